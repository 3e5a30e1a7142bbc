"""Learning curves of runs with different objectives."""

import json
import pathlib
import re

import pytest

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.run.plot import plot_run

OF_EVERY_RUN = {"learning_rate": "learning rate", "grad_norm": "gradient norm"}
MASKED_TOKENS = {"mlm_loss": "masked-token loss (nats)", "mlm_accuracy": "masked-token accuracy"}
NOT_TITLES = ("step", "training", "held out", "unigram loss")
# Metrics of an objective -> titles of the panels.
OBJECTIVES = {
    "masked tokens": MASKED_TOKENS,
    "next sentence": MASKED_TOKENS
    | {"nsp_loss": "next-sentence loss (nats)", "nsp_accuracy": "next-sentence accuracy"},
    "sentence order": MASKED_TOKENS
    | {"sop_loss": "sentence-order loss (nats)", "sop_accuracy": "sentence-order accuracy"},
    "replaced tokens": MASKED_TOKENS
    | {"replaced_loss": "replaced-token loss (weighted)", "replaced_accuracy": "replaced-token accuracy"},
    "unknown to the plots": {
        "replaced_token_loss": "replaced token loss (nats)",
        "replaced_token_accuracy": "replaced token accuracy",
        "teacher_loss": "teacher loss (nats)",
    },
}


def write_metrics(directory: pathlib.Path, lines: list[dict]) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def titles(picture: pathlib.Path) -> list[str]:
    """Return the titles of the panels of an .svg file: its texts in letters, without axes and legends."""
    texts = re.findall(r"<!-- (.*?) -->", picture.read_text())
    return [text for text in texts if re.search("[a-z]", text) and text not in NOT_TITLES]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_metrics_of_an_objective_have_a_panel_each(objective: str, tmp_path: pathlib.Path) -> None:
    names = OBJECTIVES[objective] | OF_EVERY_RUN
    others = {"loss": 1.0, "tokens_per_second": 1.0, "input_wait_fraction": 0.0, "unigram_loss": 6.0}
    run = tmp_path / "123"
    run.mkdir()
    write_metrics(
        run,
        [
            {"step": step, "split": split} | dict.fromkeys(names, 1.0 / step) | others
            for step in (1, 2)
            for split in ("train", "heldout")
        ],
    )
    plot_run(run, tmp_path / "run.svg")
    assert sorted(titles(tmp_path / "run.svg")) == sorted(names.values())


def test_metrics_that_some_lines_lack_are_drawn(tmp_path: pathlib.Path) -> None:
    lines = [{"step": 1, "split": "train", "mlm_loss": None}, {"step": 2, "split": "train", "sop_loss": 1.0}]
    write_metrics(tmp_path, [*lines, {"step": 2, "split": "heldout", "mlm_accuracy": 0.5}])
    plot_run(tmp_path, tmp_path / "run.svg")
    drawn = titles(tmp_path / "run.svg")
    assert {"masked-token loss (nats)", "sentence-order loss (nats)", "masked-token accuracy"} <= set(drawn)


def test_a_run_without_metrics_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UserError, match="no metrics yet"):
        plot_run(tmp_path, tmp_path / "run.svg")


@pytest.mark.parametrize(("name", "shown"), [("nsp", "nsp 50.0%"), ("sop", "sop 50.0%")])
def test_the_console_names_the_accuracy_of_pairs(name: str, shown: str, capsys: pytest.CaptureFixture) -> None:
    line = {"step": 1, "loss": 1.0, f"{name}_accuracy": 0.5, "learning_rate": 1e-4, "tokens_per_second": 1.0}
    Console().print_training_step(line, 2, 1.0)
    assert shown in capsys.readouterr().err
