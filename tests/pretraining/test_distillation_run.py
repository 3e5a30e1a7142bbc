"""A distillation from the command line: a teacher is trained, a student learns from it, is exported and resumed."""

import pathlib
import shutil
import typing

import jax
import numpy as np
import pytest
import transformers

from bert_jax.checkpoints.load_model import restore_run
from bert_jax.cli.main import main
from bert_jax.console import Console
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.metrics import read_metrics
from bert_jax.training.workdir import read_run
from tests.helpers.generated_corpus import generated_corpus

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=4, num_heads=2, mlp_size=32, max_positions=32)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=4, batch_size=8, log_every=1)
    config.train.phases = phases({"seq_len": 32})
    config.optimizer.update(peak_learning_rate=1e-2, warmup_fraction=0.0)
    config.evaluate.update(every=2, num_sequences=16, batch_size=8)
    config.checkpoint.every = 2
    return config
"""
STUDENT = ("objective=distillation", "model.family=distilbert", "model.num_layers=2", "model.num_token_types=0",
           "model.pooler_activation=relu")  # fmt: skip
LONGER = ("model.max_positions=640", "train.phases[0].seq_len=640")
TIMES = ("tokens_per_second", "model_flops_utilization", "input_wait_fraction", "energy_joules", "memory_bytes")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A corpus, the run `teacher` on it, and the run `student`."""
    place = tmp_path_factory.mktemp("distilled")
    generated_corpus(place / "text", documents=60, vocab_size=150)
    (place / "recipe.py").write_text(RECIPE)
    assert main(command(place, place / "teacher")) == 0
    assert main(command(place, place / "student", *STUDENT, f"distillation.teacher={place / 'teacher'}")) == 0
    return place


def command(world: pathlib.Path, workdir: pathlib.Path, *more: str, corpus: str = "text") -> list[str]:
    values = (f"data.corpus={world / corpus / 'corpus'}", *more)
    recipe = [f"--config={world / 'recipe.py'}", f"--workdir={workdir}"]
    return ["pretrain", *recipe, *(f"--config.{value}" for value in values)]


def params_of(workdir: pathlib.Path) -> typing.Any:
    return restore_run(workdir, None, Console(silent=True))[2]


def test_the_student_opens_in_transformers(world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert main(["export", "--workdir", str(world / "student"), "--output", str(tmp_path / "model")]) == 0
    model, report = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert model.config.n_layers == 2
    assert not report["missing_keys"]


def test_checkpoints_hold_no_teacher(world: pathlib.Path) -> None:
    config, _ = read_run(world / "student")
    checkpoints = Checkpoints(world / "student", config.checkpoint, read_only=True)
    names = checkpoints.record(4)["digests"]
    checkpoints.close()
    assert not [name for name in names if name.startswith("frozen")]
    layers = [x.shape[0] for x in jax.tree.leaves(params_of(world / "student")["encoder"]["layers"])]
    assert set(layers) == {2}


def test_a_stopped_run_ends_with_the_same_bits(world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The teacher is read again, here from another place."""
    shutil.copytree(world / "student", tmp_path / "student")
    shutil.copytree(world / "teacher", tmp_path / "moved")
    shutil.rmtree(tmp_path / "student" / "checkpoints" / "4")
    assert main(command(world, tmp_path / "student", *STUDENT, f"distillation.teacher={tmp_path / 'moved'}")) == 0
    jax.tree.map(np.testing.assert_array_equal, params_of(tmp_path / "student"), params_of(world / "student"))
    before, after = (
        [{k: x for k, x in line.items() if k not in TIMES} for line in read_metrics(place / "metrics.jsonl")]
        for place in (world / "student", tmp_path / "student")
    )
    assert before == after
    assert {"mlm_loss", "soft_loss", "cosine_loss", "teacher_accuracy"} <= before[0].keys()


@pytest.mark.slow
def test_a_narrower_student_learns_a_map_that_it_does_not_export(world: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """With hidden states of every layer; stopped and resumed to the same bits, as the map is in the checkpoints."""
    narrower = (*STUDENT, "model.hidden_size=8", "distillation.cosine_weight=0", "distillation.hidden_weight=1")
    run = command(world, tmp_path / "run", *narrower, f"distillation.teacher={world / 'teacher'}")
    assert main([*run, "--config.distillation.copy_layers=False"]) == 0
    whole = params_of(tmp_path / "run")
    assert whole["teacher_projection"]["kernel"].shape == (8, 16)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "4")
    assert main([*run, "--config.distillation.copy_layers=False"]) == 0
    jax.tree.map(np.testing.assert_array_equal, params_of(tmp_path / "run"), whole)
    assert main(["export", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "model")]) == 0
    model, report = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert model.config.dim == 8
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]


def test_evaluate_reads_the_teacher(world: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--workdir", str(world / "student")]) == 0
    found = capsys.readouterr().out
    last = [line for line in read_metrics(world / "student" / "metrics.jsonl") if line["split"] == "heldout"][-1]
    assert f"{last['soft_loss']:.4f}" in found
    assert "teacher accuracy" in found


def test_a_bad_teacher_or_student_is_refused(world: pathlib.Path, tmp_path: pathlib.Path, capsys) -> None:
    """One line each, before anything is written."""
    generated_corpus(world / "other", documents=60, vocab_size=140)
    student, teacher = tmp_path / "student", f"distillation.teacher={world / 'teacher'}"
    for more, words in (
        (STUDENT, "needs config.distillation.teacher"),
        ((teacher,), "config.distillation.teacher has no effect with config.objective=masked_tokens"),
        ((*STUDENT, f"distillation.teacher={tmp_path}"), "no model here"),
        ((*STUDENT, teacher, "model.mlp_size=64"), "set config.distillation.copy_layers=False"),
        ((*STUDENT, teacher, "model.num_heads=4"), "(here also in num_heads); set config.distillation.copy_layers"),
        ((*STUDENT, teacher, *LONGER), "tokens, and a phase has sequences of 640; lower its seq_len"),
    ):
        assert main(command(world, student, *more)) == 2
        assert words in capsys.readouterr().err
        assert not student.exists()
    assert main(command(world, student, *STUDENT, teacher, corpus="other")) == 2
    assert "was prepared with another vocabulary than" in capsys.readouterr().err
    assert main(command(world, tmp_path / "else", "train.steps=1", "seed=1")) == 0
    shutil.copytree(world / "student", student)
    assert main(command(world, student, *STUDENT, f"distillation.teacher={tmp_path / 'else'}")) == 2
    assert "holds a run that differs (teacher: " in capsys.readouterr().err


@pytest.mark.slow
def test_evaluate_refuses_another_model_in_the_place_of_the_teacher(
    world: pathlib.Path, tmp_path: pathlib.Path, capsys
) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(world / "teacher", teacher)
    run = command(world, tmp_path / "run", *STUDENT, f"distillation.teacher={teacher}", "train.steps=2")
    assert main(run) == 0
    shutil.rmtree(teacher)
    assert main(["evaluate", "--workdir", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert f"the teacher, config.distillation.teacher: {teacher}: no model here" in err
    assert f"if it was moved, resume with `bert-jax pretrain --workdir {tmp_path / 'run'}` and the new path" in err
    assert main(command(world, teacher, "train.steps=1", "seed=1")) == 0
    capsys.readouterr()
    assert main(["evaluate", "--workdir", str(tmp_path / "run")]) == 2
    assert f"{teacher} is not the model that {tmp_path / 'run'} learned from" in capsys.readouterr().err


def test_a_budget_leaves_the_size_of_a_student_alone(world: pathlib.Path, tmp_path: pathlib.Path, capsys) -> None:
    objective = "objective=distillation", f"distillation.teacher={world / 'teacher'}"
    assert main([*command(world, tmp_path / "student", *objective), "--budget", "1m"]) == 2
    assert "the teacher sets the size of a student" in capsys.readouterr().err
