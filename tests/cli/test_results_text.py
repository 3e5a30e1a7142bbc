"""Tables of scores, and the commands that come next."""

import pathlib
import shlex

import pytest

from bert_jax.cli.main import VERBS
from bert_jax.cli.parser import parse_arguments
from bert_jax.cli.results_text import evaluation_table, finetuning_table, pretrained_model_text
from bert_jax.models import Head
from bert_jax.reports.next_commands import commands_for_finetuned_model, has_only_letters, report_command
from bert_jax.tasks.table import kind_of_task
from bert_jax.tasks.vector_heads import VECTOR_HEADS


def scores(accuracy: float, f1: float) -> dict[str, float]:
    return {"accuracy": accuracy, "f1": f1}


def one(rate: float, seed: int, accuracy: float, f1: float) -> dict:
    return {
        "learning_rate": rate,
        "seed": seed,
        "run": f"lr{rate:g}_seed{seed}",
        "step": 1200,
        "scores": scores(accuracy, f1),
    }


def test_the_table_of_a_fine_tuning(tmp_path: pathlib.Path) -> None:
    (recipe := tmp_path / "my.py").touch()
    runs = [one(2e-5, 0, 0.875, 0.9), one(2e-5, 1, 0.8, 0.85)]
    mean = {"2e-05": {name: {"mean": 0.5, "standard_deviation": 0.25} for name in ("accuracy", "f1")}}
    results = {"task": "mrpc", "metric": "f1", "best": runs[0], "mean": mean, "runs": runs}
    kind = kind_of_task("mrpc", None)
    commands = [
        *commands_for_finetuned_model("my runs/mrpc/", kind, "dense"),
        report_command("my runs/mrpc/", str(recipe)),
    ]
    lines = finetuning_table(results, "my runs/mrpc/", commands).splitlines()
    assert lines[:4] == [
        "task mrpc, dev scores",
        "  learning rate  seed   step  accuracy      f1",
        "          2e-05     0  1,200     87.5%  0.9000",
        "          2e-05     1  1,200     80.0%  0.8500",
    ]
    assert lines[4:7] == [
        "mean and standard deviation over the seeds",
        "  learning rate       accuracy               f1",
        "          2e-05  50.0% ± 25.0%  0.5000 ± 0.2500",
    ]
    assert lines[7] == "best by f1: learning rate 2e-05, seed 0, step 1,200"
    assert "my runs/mrpc/model" in lines[8]
    assert parse_arguments(VERBS, shlex.split(lines[-2])[1:]).model == "my runs/mrpc/"
    assert parse_arguments(VERBS, shlex.split(lines[-1])[1:]).workdir == ["my runs/mrpc/"]
    assert parse_arguments(VERBS, shlex.split(lines[-1])[1:]).own_recipe == str(recipe)


def test_one_seed_has_no_deviation() -> None:
    results = {"task": "x", "metric": "f1", "best": one(1, 0, 1, 1), "mean": {"1": {}}, "runs": [one(1, 0, 1, 1)]}
    assert "deviation" not in finetuning_table(results, "run", [])


@pytest.mark.parametrize("head", VECTOR_HEADS)
def test_a_model_of_vectors_is_embedded_scored_and_exported(head: str) -> None:
    """The arguments of each command are those of the command line."""
    lines = commands_for_finetuned_model("my run", kind_of_task("custom", "similarity"), head)
    embed, score, export = (parse_arguments(VERBS, shlex.split(line)[1:]) for line in lines)
    assert [shlex.split(line)[1] for line in lines] == ["embed", "score", "export"]
    assert embed.model == score.model == "my run"
    suffixes = {"dense": "npy", "sparse": "npz", "late_interaction": "safetensors"}
    assert embed.output == f"vectors.{suffixes[head]}"
    assert score.retrieval == ["DIR"]
    assert (export.workdir, export.output) == ("my run", "my run-export")


def test_the_table_of_an_evaluation() -> None:
    metrics = {"step": 3000, "seq_len": 128, "documents": 12, "mlm_loss": 2.5, "mlm_accuracy": 0.5}
    assert evaluation_table(metrics | {"unigram_loss": 6.25}).splitlines() == [
        "step 3,000: 12 held-out documents, 128 tokens per sequence",
        "  mlm loss         2.5000  nats",
        "  mlm accuracy      50.0%",
        "  unigram loss     6.2500  nats; loss of a model that knows only how often each token occurs",
    ]
    weighted = evaluation_table({"loss": 37.5, **metrics, "replaced_loss": 35.0, "hidden_loss": 0.1}).splitlines()
    assert weighted[1].endswith("sum of the losses below")
    assert weighted[4].endswith("times config.replaced_tokens.weight")
    assert weighted[5].endswith("times config.distillation.hidden_weight")
    other = evaluation_table(metrics, "other/")
    assert other.startswith("step 3,000: 12 documents of other/, 128 tokens per sequence\n")


@pytest.mark.parametrize("recipe", [None, "my recipes/base.py:large", "gone.py"])
def test_commands_after_pretraining_quote_the_work_directory(
    recipe: str | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the user's recipe adds a row to a table, `report`, `evaluate` and `export` need the recipe."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("my recipes").mkdir()
    pathlib.Path("my recipes", "base.py").touch()
    absolute = recipe and str(tmp_path / recipe)
    text = pretrained_model_text("my runs/base", [Head("masked_token")], "<mask> is 'a' word", recipe=absolute)
    _, _, *lines = text.splitlines()
    parsed = [parse_arguments(VERBS, shlex.split(line)[1:]) for line in lines]
    report, evaluate, fill_mask, export, finetune = parsed
    assert report.workdir == ["my runs/base"]
    assert report.output == "base.html"
    assert evaluate.workdir == export.workdir == fill_mask.model == finetune.init_from == "my runs/base"
    assert fill_mask.text == "<mask> is 'a' word"
    assert export.output == "my runs/base-export"
    expected = None if recipe == "gone.py" else recipe
    assert {command.own_recipe for command in (report, evaluate, fill_mask, export)} == {expected}


def test_a_model_that_cannot_fill_masks_is_not_asked_to() -> None:
    assert "fill-mask" not in pretrained_model_text("runs/electra", [Head("replaced_token")], "[MASK]")


@pytest.mark.parametrize("word", ["word", "हिन्दी", "ที่", "ọjọ́", "כָּל", "漢字"])
def test_words_of_every_script_can_be_masked_in_an_example(word) -> None:
    assert has_only_letters(word)
    assert not has_only_letters(word + ".")
    assert not has_only_letters("")
