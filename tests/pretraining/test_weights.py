"""Weights to start from: of a pretraining, of an export, into a task and into more pretraining."""

import dataclasses
import io
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy
import transformers

from bert_jax.checkpoints.architecture import read_architecture
from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.checkpoints.longer_positions import with_longer_positions
from bert_jax.cli.main import main
from bert_jax.config import EncoderConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.models import Head
from bert_jax.pretraining import pretrain
from bert_jax.pretraining.initial_weights import read_initial_weights
from bert_jax.pretraining.teacher import read_teacher, read_teacher_architecture
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training import workdir
from bert_jax.training.workdir import read_run
from tests.helpers.finetuning_runs import finetune, make_world, read_lines
from tests.helpers.generated_corpus import generated_corpus

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.model.update(dropout=0.0, attention_dropout=0.0)
    config.train.update(steps=2, batch_size=8, log_every=1)
    config.train.phases = phases({"seq_len": 32})
    config.optimizer.warmup_fraction = 0.0
    config.evaluate.update(num_sequences=16, batch_size=8)
    return config
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A corpus, a run of two steps on it in `run`, its export in `model`, and tasks."""
    place = make_world(tmp_path_factory.mktemp("weights"))
    generated_corpus(place / "text", documents=60, vocab_size=150)
    (place / "pretrain.py").write_text(RECIPE)
    assert main(pretrain_command(place, place / "run")) == 0
    assert main(["export", "--workdir", str(place / "run"), "--output", str(place / "model")]) == 0
    return place


def pretrain_command(world, workdir, *more, corpus=None):
    data = f"--config.data.corpus={corpus or world / 'text' / 'corpus'}"
    return ["pretrain", f"--config={world / 'pretrain.py'}", f"--workdir={workdir}", data, *more]


def tensors(directory):
    return safetensors.numpy.load_file(directory / "model.safetensors")


@pytest.mark.slow
def test_a_run_and_its_export_start_a_task_alike_with_every_seed(world, tmp_path, capsys):
    settings = ("sequence_classification", "task.epochs=1", "task.num_seeds=2")
    results = [finetune(world, tmp_path / name, *settings, start=world / name) for name in ("run", "model")]
    assert results[0] == results[1]
    for run in results[0]["runs"]:
        best = f"runs/{run['run']}/best-{run['step']}/model.safetensors"
        assert (tmp_path / "run" / best).read_bytes() == (tmp_path / "model" / best).read_bytes()
    assert capsys.readouterr().err.count("randomly initialized: sequence_classification") == 2


def test_pretraining_goes_on_with_the_weights_of_a_run_and_of_its_export(world, tmp_path, run_lines):
    trained = run_lines(world / "run")
    for name in ("run", "model"):
        rate = "--config.optimizer.peak_learning_rate=0.0"
        assert main(pretrain_command(world, tmp_path / name, f"--config.init_from={world / name}", rate)) == 0
        # The held-out loss before the first step, and at a rate of 0 also after it, is the loss of the initial weights.
        found = run_lines(tmp_path / name)["heldout"]
        assert [line["step"] for line in found] == [0, 2]
        for line in found:
            assert line["loss"] == pytest.approx(trained["heldout"][-1]["loss"], rel=1e-6)
        assert main(["export", "--workdir", str(tmp_path / name), "--output", str(tmp_path / f"{name}-out")]) == 0
        before, after = tensors(world / "model"), tensors(tmp_path / f"{name}-out")
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[key], after[key]) for key in before)


def test_a_start_again_without_a_checkpoint_forgets_the_evaluation_of_other_weights(world, tmp_path, run_lines):
    run = tmp_path / "run"
    assert main(pretrain_command(world, run, f"--config.init_from={world / 'model'}")) == 0
    first = run_lines(run)["heldout"][0]
    shutil.rmtree(run / "checkpoints")  # as if the process had been killed before the first checkpoint
    assert main(pretrain_command(world, tmp_path / "other", "--config.optimizer.peak_learning_rate=0.05")) == 0
    assert main(pretrain_command(world, run, f"--config.init_from={tmp_path / 'other'}")) == 0
    lines = run_lines(run)["heldout"]
    assert [line["step"] for line in lines] == [first["step"], 2] == [0, 2]
    assert lines[0]["loss"] == pytest.approx(run_lines(tmp_path / "other")["heldout"][-1]["loss"], rel=1e-6)
    assert abs(lines[0]["loss"] - first["loss"]) > 1e-3


@pytest.mark.slow
def test_a_resumed_run_keeps_its_start_and_does_not_read_it_again(world, tmp_path, capsys, run_lines):
    """It ends with the same bits without the directory that it began from; another one is named as without effect."""
    start = tmp_path / "start"
    shutil.copytree(world / "model", start)
    begin = [f"--config.init_from={start}", "--config.checkpoint.every=1"]
    for name in ("whole", "stopped"):
        assert main(pretrain_command(world, tmp_path / name, *begin)) == 0
    shutil.rmtree(start)
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "2")
    capsys.readouterr()
    other = f"--config.init_from={world / 'run'}"
    resumed = pretrain_command(world, tmp_path / "stopped", other, "--config.checkpoint.every=1", "--config.grow=True")
    assert main(resumed) == 0
    err = capsys.readouterr().err
    assert f"config.init_from={world / 'run'} has no effect: the run resumes; it began from {start}" in err
    assert [line["step"] for line in run_lines(tmp_path / "stopped")["heldout"]] == [0, 2]
    assert "config.grow=True has no effect: the run resumes; it began without it" in err
    assert read_run(tmp_path / "stopped")[0].init_from == str(start)
    for name in ("whole", "stopped"):
        assert main(["export", "--workdir", str(tmp_path / name), "--output", str(tmp_path / f"{name}-out")]) == 0
    whole, resumed = tensors(tmp_path / "whole-out"), tensors(tmp_path / "stopped-out")
    assert all(np.array_equal(whole[key], resumed[key]) for key in whole)
    capsys.readouterr()
    assert main(pretrain_command(world, tmp_path / "stopped", "--config.checkpoint.every=1")) == 0  # left out
    assert "no effect" not in capsys.readouterr().err
    assert read_run(tmp_path / "stopped")[0].init_from == str(start)


def test_a_checkpoint_that_another_process_saved_before_the_lock_is_resumed(world, tmp_path, monkeypatch, capsys):
    shutil.copytree(world / "run", tmp_path / "run")
    monkeypatch.setattr(workdir, "has_checkpoints", lambda directory: False)  # this process looked too early
    assert main(pretrain_command(world, tmp_path / "run")) == 0
    assert "finished: all 2 steps are done" in capsys.readouterr().err


def test_a_corpus_that_is_removed_during_a_run_does_not_end_the_run(world, tmp_path, monkeypatch, capsys):
    for name in "ab":
        shutil.copytree(world / "text" / "corpus", tmp_path / name)
    monkeypatch.setattr(pretrain, "fit", lambda *_: shutil.rmtree(tmp_path / "a") or True)
    assert main(pretrain_command(world, tmp_path / "run", corpus=f"{tmp_path / 'a'},{tmp_path / 'b'}")) == 0
    assert "The capital of [MASK] is Paris." in capsys.readouterr().out


def test_pretraining_goes_on_with_more_positions(world, tmp_path, capsys):
    """Each stretch of the longer table is the trained one; nothing is learned at a rate of 0."""
    more = ["--config.model.max_positions=70", "--config.optimizer.peak_learning_rate=0.0"]
    assert main(pretrain_command(world, tmp_path / "run", f"--config.init_from={world / 'model'}", *more)) == 0
    assert "32 positions extended to 70, by repeating their table" in capsys.readouterr().err
    assert main(["export", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "model")]) == 0
    name = "bert.embeddings.position_embeddings.weight"
    before, after = tensors(world / "model").pop(name), tensors(tmp_path / "model").pop(name)
    assert after.shape == (70, 16)
    for row in range(70):
        np.testing.assert_array_equal(after[row], before[row % 32])


LARGER = [f"--config.model.{size}" for size in ("hidden_size=32", "num_heads=4", "mlp_size=70")]


def test_a_wider_model_begins_with_the_loss_of_the_smaller_model(world, tmp_path, run_lines, capsys):
    """Nothing is learned at a rate of 0."""
    more = [f"--config.init_from={world / 'model'}", *LARGER, "--config.optimizer.peak_learning_rate=0.0"]
    assert main(pretrain_command(world, tmp_path / "run", *more)) == 2
    said = "config.model.hidden_size=32 (weights: 16), and 2 more; --config.model=from_init takes the architecture of "
    assert f"{said}the weights, and --config.grow=True grows smaller weights" in capsys.readouterr().err
    assert main(pretrain_command(world, tmp_path / "run", *more, "--config.grow=True")) == 0
    said = "grown from 2 x 16 to 2 x 32 (layers x width), heads 2 to 4, MLP 32 to 70\n"
    assert said in capsys.readouterr().err
    small, wide = (run_lines(place / "run")["heldout"][-1] for place in (world, tmp_path))
    for name in ("loss", "mlm_loss", "nsp_loss"):
        assert wide[name] == pytest.approx(small[name], abs=1e-5)


@pytest.mark.slow
def test_a_grown_run_resumes_without_the_smaller_model(world, tmp_path, capsys):
    start = tmp_path / "start"
    shutil.copytree(world / "run", start)
    command = [*LARGER, "--config.model.num_layers=4", "--config.checkpoint.every=1"]
    begin = pretrain_command(world, tmp_path / "run", f"--config.init_from={start}", "--config.grow=True", *command)
    assert main(begin) == 0
    assert "MLP 32 to 70, copies of the layers 0, 0, 1, 1\n" in capsys.readouterr().err
    shutil.rmtree(start)
    shutil.copytree(tmp_path / "run", tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "2")
    assert main(pretrain_command(world, tmp_path / "stopped", *command)) == 0
    runs = [read_weights(tmp_path / name, console=Console(silent=True)) for name in ("run", "stopped")]
    assert [run.step for run in runs] == [2, 2]
    jax.tree.map(np.testing.assert_array_equal, *(run.params for run in runs))
    assert [read_run(tmp_path / name)[0].grow for name in ("run", "stopped")] == [True, True]


@pytest.fixture
def padded(world, tmp_path):
    """The model with rows that no token of its tokenizer uses, as transformers adds them."""
    shutil.copytree(world / "model", tmp_path / "padded")
    model = transformers.BertForPreTraining.from_pretrained(world / "model")
    model.resize_token_embeddings(pad_to_multiple_of=64)
    model.cls.predictions.bias.data[150:] = 9.0  # no padding of the vocabulary may keep it
    model.save_pretrained(tmp_path / "padded")
    (tmp_path / "padded" / "SHA256SUMS").unlink()
    return tmp_path / "padded"


@pytest.mark.parametrize("architecture", [(), ("--config.model=from_init",)])
def test_pretraining_goes_on_without_the_rows_that_no_token_uses(world, tmp_path, padded, capsys, architecture):
    """Nothing is learned at a rate of 0, so the export has the tensors from before transformers added rows."""
    more = [f"--config.init_from={padded}", "--config.optimizer.peak_learning_rate=0.0", *architecture]
    assert main(pretrain_command(world, tmp_path / "run", *more)) == 0
    assert "192 rows of the vocabulary cut to the 150 tokens of the tokenizer" in capsys.readouterr().err
    assert main(["export", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "model")]) == 0
    assert len(tensors(padded)["bert.embeddings.word_embeddings.weight"]) == 192
    before, after = tensors(world / "model"), tensors(tmp_path / "model")
    assert before.keys() == after.keys()
    for key, x in before.items():
        np.testing.assert_array_equal(after[key], x, err_msg=key)


def test_a_begun_run_keeps_its_architecture_without_its_initial_weights(world, tmp_path, capsys):
    """A resumed run does not read its initial weights, which may have been moved."""
    shutil.copytree(world / "model", tmp_path / "weights")
    words = [f"--config.init_from={tmp_path / 'weights'}", "--config.model=from_init"]
    for _ in range(2):
        assert main(pretrain_command(world, tmp_path / "run", *words)) == 0, capsys.readouterr().err
        shutil.rmtree(tmp_path / "weights", ignore_errors=True)
    assert read_architecture(tmp_path / "run") == read_architecture(world / "model")
    assert main(pretrain_command(world, tmp_path / "another run", *words)) == 2
    assert "no such directory" in capsys.readouterr().err


def test_a_teacher_has_no_rows_that_no_token_uses(world, padded):
    tokenizer = load_tokenizer(world / "model")
    teachers = [
        read_teacher(str(path), tokenizer, 32, "corpus", Console(silent=True)) for path in (world / "model", padded)
    ]
    assert teachers[0].config == teachers[1].config
    jax.tree.map(np.testing.assert_array_equal, *(teacher.params for teacher in teachers))
    assert read_teacher_architecture(str(padded), tokenizer.vocab_size) == teachers[0].config


@pytest.mark.parametrize(
    ("there", "wanted", "says"),
    [
        ({"position_offset": 2}, {"max_positions": 40}, "16 positions extended to 40, by repeating their table"),
        ({"positions": "rotary"}, {"max_positions": 40}, "16 positions extended to 40"),
        (
            {"positions": "rotary"},
            {"max_positions": 4000, "rotary_base": 160_000.0},
            "16 positions extended to 4,000, with the rotary base 160,000 instead of 10,000",
        ),
        (
            {"positions": "rotary", "local_window": 4},
            {"max_positions": 40, "rotary_base": 160_000.0, "local_rotary_base": 10_000.0},
            "16 positions extended to 40, with the rotary base 160,000 instead of 10,000",
        ),
        ({}, {"max_positions": 16}, ""),
        ({}, {"max_positions": 8}, ""),
        ({"positions": "rotary"}, {"rotary_base": 5.0}, ""),
        ({}, {"max_positions": 40, "positions": "rotary"}, ""),
    ],
    ids=str,
)
def test_positions_are_extended_and_never_cut(there, wanted, says):
    out = io.StringIO()
    config = EncoderConfig(vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, mlp_size=8, max_positions=16)
    config = dataclasses.replace(config, **there)
    table = np.arange(8 * (16 + config.position_offset), dtype=np.float32).reshape(-1, 8)
    params = {"encoder": {"embeddings": {"position": table, "token": np.ones(3)}}}
    found = Weights(config=config, heads=(), params=params, directory=pathlib.Path())
    longer = with_longer_positions(found, dataclasses.replace(config, **wanted), Console(out))
    assert out.getvalue().strip() == says
    if not says:
        assert longer == found
        return
    assert longer.config == dataclasses.replace(config, **wanted)
    first = config.position_offset
    for row, one in enumerate(longer.params["encoder"]["embeddings"]["position"][first:] if first else ()):
        np.testing.assert_array_equal(one, table[first + row % 16])
    assert longer.params["encoder"]["embeddings"]["token"] is params["encoder"]["embeddings"]["token"]


@pytest.fixture
def run_lines():
    def of(workdir):
        found = read_lines(workdir / "metrics.jsonl")
        return {split: [line for line in found if line["split"] == split] for split in ("train", "heldout")}

    return of


def test_pretraining_refuses_weights_that_do_not_fit_and_leaves_nothing(world, tmp_path, capsys):
    generated_corpus(tmp_path / "other", documents=20, vocab_size=149)
    same = f"--config.init_from={world / 'model'}"
    cases = [
        ([same, "--config.model.num_layers=3"], None, "config.model.num_layers=3 (weights: 2)"),
        (
            [same, "--config.grow=True"],
            None,
            "config.grow has no effect with weights that have the size of config.model",
        ),
        (["--config.grow=True"], None, "config.grow has no effect with config.init_from=None"),
        ([same, "--config.grow=True", "--config.model.mlp_size=31"], None, "mlp_size=31; choose at least 32"),
        ([same, "--config.model.activation=gelu_tanh"], None, "config.model.activation=gelu_tanh (weights: gelu)"),
        ([same], tmp_path / "other" / "corpus", "was prepared with another vocabulary than"),
        ([f"--config.init_from={tmp_path}"], None, "no model here"),
    ]
    for more, corpus, says in cases:
        assert main(pretrain_command(world, tmp_path / "run", *more, corpus=corpus)) == 2, more
        assert says in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("is_other", [False, True])
def test_equal_tokens_that_split_texts_in_other_ways_are_warned_of(world, tmp_path, is_other):
    model, said = tmp_path / "model", io.StringIO()
    shutil.copytree(world / "model", model)
    for name in ("tokenizer.json", "SHA256SUMS"):
        (model / name).unlink(missing_ok=True)
    path = model / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"do_lower_case": settings["do_lower_case"] != is_other}))
    weights, tokenizer = read_weights(model), load_tokenizer(world / "model")
    read_initial_weights(
        str(model),
        weights.config,
        weights.heads,
        {},
        grow=False,
        seed=0,
        tokenizer=tokenizer,
        corpus="corpus",
        console=Console(said),
    )
    assert ("split texts in different ways" in said.getvalue()) == is_other


def test_another_vocabulary_of_the_same_size_is_refused(world, tmp_path, capsys):
    # The export with two tokens exchanged.
    model = tmp_path / "model"
    model.mkdir()
    for path in (world / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    tokens = (model / "vocab.txt").read_text().splitlines()
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    (model / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (model / "tokenizer.json").unlink(missing_ok=True)
    (model / "SHA256SUMS").unlink()
    assert main(pretrain_command(world, tmp_path / "run", f"--config.init_from={model}")) == 2
    assert "another vocabulary" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_work_directory_holds_one_kind_of_run(world, tmp_path, capsys):
    finetune(world, tmp_path, "sequence_classification", "task.epochs=0.2")
    assert main(pretrain_command(world, tmp_path)) == 2
    assert "holds a run that differs" in capsys.readouterr().err


def test_a_run_has_no_head_of_a_task(world):
    with pytest.raises(UserError, match="fine-tune it first"):
        read_weights(world / "run", (Head("question_answering"),), None, Console(silent=True))
    found = read_weights(world / "run", None, None, Console(silent=True))
    assert [head.name for head in found.heads] == ["masked_token", "next_sentence"]
    assert (found.new, found.unused, found.directory) == ((), (), world / "run" / "tokenizer")


@pytest.mark.slow
def test_a_run_of_masked_tokens_alone_has_their_head_alone(world, tmp_path):
    settings = ("--config.data.sentence_pairs=none", "--config.data.packing=3")
    assert main(pretrain_command(world, tmp_path / "run", *settings)) == 0
    found = read_weights(tmp_path / "run", None, None, Console(silent=True))
    assert [head.name for head in found.heads] == ["masked_token"]
    assert found.params.keys() == {"encoder", "masked_token"}
    assert main(["export", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "model")]) == 0
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model")
    assert type(theirs).__name__ == "BertForMaskedLM"
