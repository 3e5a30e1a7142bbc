"""Learning curves of runs with one objective and another."""

import json
import pathlib

import pytest

from bert_jax.console import Console
from bert_jax.reports.plots import PANELS, plot

ALWAYS = {"mlm_loss", "mlm_accuracy", "learning_rate", "grad_norm"}


@pytest.mark.parametrize("prefix", ["nsp", "sop", ""])
def test_what_the_objective_measures_is_drawn(prefix: str, tmp_path: pathlib.Path) -> None:
    names = ALWAYS | ({f"{prefix}_loss", f"{prefix}_accuracy"} if prefix else set())
    lines = [
        {"step": step, "split": split} | dict.fromkeys(names, 1.0 / step)
        for step in (1, 2)
        for split in ("train", "heldout")
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plot(tmp_path, tmp_path / "run.svg")
    drawn = (tmp_path / "run.svg").read_text()
    assert {name for title, name in PANELS.items() if f"<!-- {title} -->" in drawn} == names


@pytest.mark.parametrize(("name", "shown"), [("nsp", "nsp 50.0%"), ("sop", "sop 50.0%")])
def test_the_console_names_the_accuracy_of_pairs(name: str, shown: str, capsys: pytest.CaptureFixture) -> None:
    line = {"step": 1, "loss": 1.0, f"{name}_accuracy": 0.5, "learning_rate": 1e-4, "tokens_per_second": 1.0}
    Console().training(line, 2, 1.0)
    assert shown in capsys.readouterr().err
