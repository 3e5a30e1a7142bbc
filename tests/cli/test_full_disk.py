"""A disk that is full or read-only: every verb says so, and nothing half-written stays."""

import os
import shutil

import pytest

from tests.helpers.commands import (
    check_refusal,
    command,
    is_empty,
    losses,
    no_file_beyond,
    prepare_command,
    pretrain_command,
)


def test_preparation_on_a_full_disk(world, tmp_path, small_disk, refused) -> None:
    place = small_disk(8192)
    refused(*prepare_command(world, place / "corpus"), says=(str(place / "corpus"), "No space left", "make room"))
    assert os.listdir(place) == ["filler"]
    argv = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output", place / "tokenizer"]
    refused(*argv, says=(str(place / "tokenizer"), "No space left"), after=1)
    assert os.listdir(place) == ["filler"]


def test_shards_that_may_not_grow(world, tmp_path, refused) -> None:
    """Signatures of copies are kept, as they fit; without them nothing is kept."""
    argv = prepare_command(world, tmp_path / "corpus")
    with no_file_beyond(60_000):
        refused(*argv, "--deduplicate", "none", says=(str(tmp_path / "corpus"), "nothing was kept"))
        assert is_empty(tmp_path)
        refused(*argv, says=(str(tmp_path / "corpus"), "finished blocks were kept"), after=1)


def test_files_that_may_not_grow(world, tmp_path, refused) -> None:
    with no_file_beyond(1000):
        refused(*prepare_command(world, tmp_path / "corpus"), says=(str(tmp_path / "corpus"), "too large"))
        argv = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output", tmp_path / "tokenizer"]
        refused(*argv, says=(str(tmp_path / "tokenizer"), "too large"), after=1)
        argv = ["export", "--workdir", world.run, "--output", tmp_path / "model"]
        refused(*argv, says=(str(tmp_path / "model"),), after=1)
    assert is_empty(tmp_path)


def test_read_only_places(world, read_only, refused) -> None:
    tokenizer = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output", read_only / "x"]
    for argv in (tokenizer, prepare_command(world, read_only / "x"), pretrain_command(world, read_only / "x")):
        refused(*argv, says=(str(read_only / "x"),), after=int(argv is tokenizer))
    refused("export", "--workdir", world.run, "--output", read_only / "x", says=(str(read_only / "x"),), after=1)
    assert is_empty(read_only)


def test_export_on_a_full_disk(world, small_disk, refused) -> None:
    place = small_disk(8192)
    argv = ["export", "--workdir", world.run, "--output", place / "model"]
    refused(*argv, says=(str(place / "model"), "No space left"), after=1)
    assert os.listdir(place) == ["filler"]


def test_a_checkpoint_on_a_full_disk_and_the_run_afterwards(world, small_disk, run, refused) -> None:
    """Nothing is written for a checkpoint that has no room; with room made, the run ends as one that never stopped."""
    place = small_disk(1 << 20)
    argv = pretrain_command(world, place / "run")
    status, _, err = run(*argv)
    check_refusal(status, err, (str(place / "run"), "No space left", "resumes"), after=len(err.splitlines()) - 1)
    assert is_empty(place / "run" / "checkpoints")
    (place / "filler").unlink()
    status, _, err = run(*argv)
    assert status == 0, err
    assert losses(place / "run") == losses(world.run)


@pytest.mark.slow
def test_metrics_that_may_not_grow(world, run_copy, run, refused) -> None:
    shutil.rmtree(run_copy / "checkpoints" / "4")
    path = run_copy / "metrics.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text(first * 200 + "".join(others))
    before = losses(run_copy)
    with no_file_beyond(path.stat().st_size - 100):
        status, _, err = run(*pretrain_command(world, run_copy))
    check_refusal(status, err, (str(path), "too large", "resumes"), after=len(err.splitlines()) - 1)
    assert not (run_copy / "checkpoints" / "4").exists()
    status, _, err = run(*pretrain_command(world, run_copy))
    assert status == 0, err
    assert losses(run_copy) == before


@pytest.mark.slow
def test_a_checkpoint_that_may_not_grow(world, run_copy, run) -> None:
    """The system refuses in the middle: TensorStore prints what it likes, but the last checkpoint stays the last."""
    shutil.rmtree(run_copy / "checkpoints" / "4")
    before = losses(run_copy)
    with no_file_beyond(8000):
        process = command(*pretrain_command(world, run_copy))
        _, err = process.communicate()
    assert process.returncode == 2, err
    (message,) = [line for line in err.splitlines() if line.startswith("bert-jax pretrain: ")]
    for words in (str(run_copy / "checkpoints"), "File too large", "resumes"):
        assert words in message
    assert [path.name for path in (run_copy / "checkpoints").iterdir() if path.name.isdigit()] == ["2"]
    status, _, err = run(*pretrain_command(world, run_copy))
    assert status == 0, err
    assert losses(run_copy) == before
