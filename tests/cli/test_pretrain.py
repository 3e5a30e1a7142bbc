"""`pretrain`: overrides and recipes that are wrong, a corpus that is damaged or another's."""

import dataclasses
import os
import pathlib
import random
import re
import shlex

import numpy as np
import pytest

from bert_jax.cli.main import VERBS
from bert_jax.cli.parser import parse_arguments
from bert_jax.config import PhaseConfig, PretrainConfig, read_config
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.store import open_corpus
from bert_jax.pretraining.data import sequence_rules
from bert_jax.pretraining.describe_run import describe_run
from bert_jax.training import workdir
from bert_jax.training.schedules import plan_phases
from tests.helpers.commands import check_refusal, command, is_empty, losses, pretrain_command, vocabulary
from tests.helpers.written_corpus import sentence, write_corpus


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("--config.train.step=9", ["train.step", "did you mean 'train.steps'"]),
        ("--confg.train.steps=9", ["--confg.train.steps=9", "--config"]),
        ("config.train.steps=9", ["did you mean '--config.train.steps=9'"]),
        ("train.steps=9", ["'train.steps=9'", "did you mean '--config.train.steps=9'"]),
        ("--config.train.accumulation=2", ["did you mean 'train.grad_accum_steps'"]),
        ("--config.task.name=mrpc", ["only `finetune` reads config.task"]),
        ("--config.train.steps=", ["config.train.steps"]),
        ("--config.train.steps=9.5", ["--config.train.steps=9.5: give a whole number"]),
        ("--config.train.phases[0].seq_len=64", ["64", "32", "config.model.max_positions"]),
        ("--config.model.vocab_size=999", ["config.model.vocab_size=999", "200"]),
        ("--config.mesh.data=3", ["mesh.data=3", "1 devices"]),
        ("--config.train.grad_accum_steps=3", ["8 sequences", "3 micro-batches", "config.train.batch_size"]),
        ("--workdri=x", ["--workdri=x", "'--workdir'"]),
        ("--config.model.family=roberta", ["config.model.family=roberta", "choose one of full_sentences"]),
    ],
)
def test_wrong_overrides_leave_the_work_directory_free(world, tmp_path, run, refused, override, says) -> None:
    """A refused command claims nothing: the corrected one starts there."""
    place = tmp_path / "run"
    refused(*pretrain_command(world, place, override), says=tuple(says))
    assert not place.exists() or not (place / "run.json").exists()
    with workdir.locked_workdir(place):
        pass


def lines_of(config: PretrainConfig, corpus: Mixture) -> list[str]:
    rules = sequence_rules(config, corpus.tokenizer())
    return list(describe_run(corpus, rules, plan_phases(config.train), config.model, config.compute))


def test_a_field_without_effect_is_refused_in_a_new_run_alone(world, tmp_path, run, refused, monkeypatch) -> None:
    """A run that an earlier version accepted resumes, and can be evaluated."""
    pairs = "--config.data.sentence_pairs=full_sentences"
    command = [*pretrain_command(world, tmp_path / "run", pairs), "--config.data.short_seq_probability=0.0"]
    refused(*command, says=("short_seq_probability has no effect", "set it to 0.1"))
    with monkeypatch.context() as patch:
        patch.setattr("bert_jax.pretraining.pretrain.refuse_fields_without_effect", lambda config, with_tables: None)
        assert run(*command)[0] == 0
    assert run(*command)[0] == 0
    assert run("evaluate", "--workdir", tmp_path / "run")[0] == 0


def test_the_end_says_where_the_model_is_and_which_commands_use_it(run_copy, world, run) -> None:
    """Each command is one that the parser takes, up to the data of the task."""
    status, out, _ = run(*pretrain_command(world, run_copy))
    assert status == 0
    first, heading, *lines = out.splitlines()
    assert (first, heading) == (f"model: {run_copy}", "next:")
    commands = [shlex.split(line)[1:] for line in lines]
    assert [argv[0] for argv in commands] == ["report", "evaluate", "fill-mask", "export", "finetune"]
    for argv in commands[1:3]:
        assert run(*argv)[0] == 0
    parsed = [parse_arguments(VERBS, argv) for argv in commands]
    assert parsed[-1].init_from == str(run_copy)
    masked = next(word for word in shlex.split(lines[2]) if "[MASK]" in word).replace("[MASK] ", "").split()
    assert len([word for word in masked if word.rstrip(".").lower() in vocabulary()]) >= 3  # of the run's corpus


def test_an_override_with_a_space(world, tmp_path, run) -> None:
    status, _, err = run(*pretrain_command(world, tmp_path / "run"), "--config.train.steps", 2)
    assert status == 0, err
    assert [step for step, split, _ in losses(tmp_path / "run") if split == "train"] == [1, 2]


def test_a_recipe_of_the_other_kind(tmp_path, refused) -> None:
    refused(
        "pretrain", "--config=glue", "--workdir", tmp_path, says=("glue", "fine-tuning recipe", "`bert-jax finetune`")
    )
    refused(
        "finetune", "--config=demo", "--workdir", tmp_path, says=("demo", "pretraining recipe", "`bert-jax pretrain`")
    )
    assert is_empty(tmp_path)


def test_a_recipe_that_is_none(world, tmp_path, refused) -> None:
    for text, says in [(None, "no such file"), ("x = (", "get_config"), ("import nothing_such", "nothing_such")]:
        if text:
            (tmp_path / "recipe.py").write_text(text)
        refused("pretrain", "--config", tmp_path / "recipe.py", "--workdir", tmp_path / "run", says=("recipe.py", says))
    refused("pretrain", "--config", world.recipe, "--workdir", tmp_path / "run", says=("--config.data.corpus=DIR",))
    assert not (tmp_path / "run").exists()


def test_a_batch_that_the_mesh_does_not_divide(world, tmp_path, monkeypatch) -> None:
    """Rows of training and of evaluation; then the corrected command trains in the same place."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    place = tmp_path / "run"
    commands = [
        command(*pretrain_command(world, place / name, f"--config.{name}.batch_size=6"))
        for name in ("train", "evaluate")
    ]
    for process, name in zip(commands, ("train", "evaluate"), strict=True):
        _, err = process.communicate()
        check_refusal(process.returncode, err, (f"config.{name}.batch_size", "6 sequences", "4 or 8"))
        assert not (place / name / "run.json").exists()


def test_a_directory_that_is_no_corpus(world, tmp_path, refused) -> None:
    for place, says in [
        (tmp_path / "absent", "no such corpus"),
        (world.texts, "no complete manifest.json, so not a corpus; make a corpus of its texts with `prepare --input`"),
        (world.corpus.parent, f"so not a corpus; its subdirectories are corpora: give '{world.corpus.parent}/*'"),
    ]:
        refused(*pretrain_command(world, tmp_path / "run", corpus=place), says=(str(place), says))
    assert is_empty(tmp_path)


def test_phases_are_printed_with_three_digits_and_without_the_empty(world) -> None:
    """Of one step, a share of 0.9 rounds to 1: none is left for the second phase."""
    config, corpus = (
        read_config(PretrainConfig, str(world.recipe), ["--config.train.steps=1"]),
        open_mixture(str(world.corpus)),
    )
    shares = PhaseConfig(seq_len=16, fraction=0.9), PhaseConfig(seq_len=24, fraction=0.1)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, phases=shares))
    (line,) = [line for line in lines_of(config, corpus) if line.startswith("phase ")]
    (times,) = re.findall(r"phase 1: steps 0 to 1 of 8 sequences x 16 tokens, ([\d.]+) times the corpus", line)
    assert times == f"{8 * 16 / corpus.split('train').num_tokens:.3g}" != "0"
    growing = dataclasses.replace(config, data=dataclasses.replace(config.data, snapshots=3))
    said = "\n".join(lines_of(growing, corpus))
    assert "it is the first of 3 snapshots, 6.2% of the text" in said
    (times,) = re.findall(r"([\d.e-]+) times the text, about", said)
    assert float(times) == pytest.approx(8 * 16 / (16 * corpus.split("train").num_tokens), rel=1e-2)


def test_likely_problems_are_printed_before_the_run(world, tmp_path) -> None:
    """The lines of `inspect`, for each phase; a line that two phases share is printed once."""
    corpus = write_corpus(tmp_path, [sentence(random.Random(number), 9) for number in range(60)])
    config = read_config(
        PretrainConfig, str(world.recipe), [f"--config.data.corpus={corpus}", "--config.train.steps=10"]
    )
    shares = PhaseConfig(seq_len=32, fraction=0.9), PhaseConfig(seq_len=48, fraction=0.1)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, phases=shares))
    said = lines_of(config, open_mixture(str(corpus)))
    lines = [line for line in said if line.startswith(("phase", "warning"))]
    starts = [line.partition(":")[0] + re.search(r"random pairs|padding|$", line)[0] for line in lines]
    assert starts == ["phase 1", "warningrandom pairs", "phase 2", "warningpadding"]


@pytest.mark.parametrize("last", [None, "left_to_right", "hybrid"])
def test_a_run_that_ends_left_to_right_is_warned_of(world, last: str | None) -> None:
    words = ["--config.train.steps=10", "--config.data.sentence_pairs=full_sentences"]
    config = read_config(PretrainConfig, str(world.recipe), words)
    phases = (
        PhaseConfig(seq_len=16, fraction=0.5, objective="left_to_right"),
        PhaseConfig(seq_len=16, fraction=0.5, objective=last),
    )
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, phases=phases))
    said = "\n".join(lines_of(config, open_mixture(str(world.corpus))))
    assert ("warning: the last phase is left_to_right" in said) == (last == "left_to_right")


@pytest.mark.parametrize("setting", ["--config.data.weights=(3,)", "--config.data.smoothing=0.7"])
def test_shares_of_a_corpus_alone_are_refused(world, tmp_path, refused, setting: str) -> None:
    refused(*pretrain_command(world, tmp_path / "run"), setting, says=("no effect with one corpus",))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["manifest.json", "train.index.npy", "train-00000-of-00001.arrayrecord"])
def test_a_corpus_with_a_file_missing(world, tmp_path, corpus_copy, refused, name: str) -> None:
    (corpus_copy / name).unlink()
    refused(*pretrain_command(world, tmp_path / "run", corpus=corpus_copy), says=(str(corpus_copy), name))
    assert not (tmp_path / "run").exists()


def test_a_corpus_without_its_tokenizer(world, tmp_path, corpus_copy, refused) -> None:
    """Its tokenizer.json or its vocab.txt would do."""
    for name in ("tokenizer.json", "vocab.txt"):
        (corpus_copy / "tokenizer" / name).unlink()
    argv = pretrain_command(world, tmp_path / "run", corpus=corpus_copy)
    refused(*argv, says=(str(corpus_copy / "tokenizer"), "no such vocabulary", "tokenizer.json", "vocab.txt"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "train.index.npy", "heldout-00000-of-00001.arrayrecord", "train-00000-of-00001.arrayrecord"],
)
def test_a_truncated_file_of_a_corpus(world, tmp_path, corpus_copy, refused, name: str) -> None:
    os.truncate(corpus_copy / name, (corpus_copy / name).stat().st_size // 2)
    refused(*pretrain_command(world, tmp_path / "run", corpus=corpus_copy), says=(str(corpus_copy), name))
    assert not (tmp_path / "run").exists()


def flip_a_bit_in_each_record(corpus: pathlib.Path, name: str) -> pathlib.Path:
    """The shard of a split, in whose header no bit is flipped, so that it opens."""
    (path,) = corpus.glob(f"{name}-*.arrayrecord")
    split, data = open_corpus(corpus).split(name), bytearray(path.read_bytes())
    for record in range(split.num_records):
        tokens, *_ = split.read(np.array([record]))
        data[data.index(tokens.tobytes()) + 7] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_flipped_bits_in_a_shard_are_named_when_they_are_read(
    world, tmp_path, corpus_copy, refused, monkeypatch, threads
) -> None:
    """The exception crosses Grain's threads; counting the tokens for the unigram loss would find the bits before."""
    monkeypatch.setattr("bert_jax.pretraining.pretrain.token_counts", lambda *_: None)
    monkeypatch.setattr("bert_jax.pretraining.pretrain.unigram_loss", lambda *_: 6.0)
    shard = flip_a_bit_in_each_record(corpus_copy, "train")
    argv = pretrain_command(world, tmp_path / "run", f"--config.data.num_threads={threads}", corpus=corpus_copy)
    refused(*argv, says=(str(shard), "copy"), after=3)


def test_flipped_bits_in_a_heldout_shard(world, run_copy, corpus_copy, refused) -> None:
    path = run_copy / "run.json"
    path.write_text(path.read_text().replace(str(world.corpus), str(corpus_copy)))
    shard = flip_a_bit_in_each_record(corpus_copy, "heldout")
    refused("evaluate", "--workdir", run_copy, says=(str(shard), "copy"))


def test_the_tokenizer_of_a_corpus_exchanged(world, tmp_path, corpus_copy, refused) -> None:
    """In one of its files, which the other then contradicts, and whole."""
    path = corpus_copy / "tokenizer" / "vocab.txt"
    tokens = path.read_text().splitlines()
    path.write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]) + "\n")
    argv = pretrain_command(world, tmp_path / "run", corpus=corpus_copy)
    refused(*argv, says=(str(path), "differs from SHA256SUMS", "copy"))
    path.with_name("SHA256SUMS").unlink()
    refused(*argv, says=(str(path.parent), "vocab.txt beside it", "differs from its own vocabulary"))
    path.with_name("tokenizer.json").unlink()
    refused(*argv, says=(str(path.parent), "not the tokenizer that made this corpus", "prepare"))
    assert not (tmp_path / "run").exists()
