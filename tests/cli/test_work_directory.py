"""The work directory as `pretrain`, `evaluate` and `export` find it: another run's, in use, damaged, none."""

import os
import shutil

import pytest

from bert_jax.data.corpus import open_corpus
from bert_jax.errors import UserError
from bert_jax.training import workdir
from tests.cli.commands import is_empty, pretrain_command


def test_a_corpus_made_with_another_tokenizer(world, other, run_copy, refused) -> None:
    """A resumed run, and the evaluation of one, find another corpus where theirs was."""
    refused(
        *pretrain_command(world, run_copy, corpus=other.corpus),
        says=(str(run_copy), "differs", "tokenizer: ", "model.vocab_size: 200 -> 190", "another --workdir"),
    )
    prints = [f"{one} {open_corpus(one).fingerprint[:12]}" for one in (world.corpus, other.corpus)]
    refused(*pretrain_command(world, run_copy, corpus=other.corpus), says=(f"corpus: {prints[0]} -> {prints[1]};",))
    path = run_copy / "run.json"
    path.write_text(path.read_text().replace(str(world.corpus), str(other.corpus)))
    refused("evaluate", "--workdir", run_copy, says=(f"{other.corpus} is not the corpus that",))
    path.write_text(path.read_text().replace(str(other.corpus), "/nowhere"))
    refused("evaluate", "--workdir", run_copy, says=("/nowhere", "no such corpus"))


def test_a_work_directory_of_another_run(world, run_copy, refused) -> None:
    refused(
        *pretrain_command(world, run_copy, "--config.seed=7", "--config.optimizer.epsilon=1"),
        says=(str(run_copy), "seed: 0 -> 7", "optimizer.epsilon: 1e-06 -> 1.0", "another --workdir"),
    )
    before = (run_copy / "run.json").read_text()
    refused(
        *pretrain_command(world, run_copy, "--config.train.steps=9"), says=("-> 9: would have changed step", "copy")
    )
    assert (run_copy / "run.json").read_text() == before
    (run_copy / "run.json").write_text("[]")
    refused(*pretrain_command(world, run_copy), says=(str(run_copy), "run.json"))
    (run_copy / "run.json").unlink()
    refused(*pretrain_command(world, run_copy), says=(str(run_copy), "without their run.json"))
    assert {path.name for path in (run_copy / "checkpoints").iterdir()} >= {"2", "4"}


def test_a_place_that_is_no_work_directory(world, tmp_path, refused) -> None:
    output = ("--output", tmp_path / "out")
    for place in (tmp_path / "absent", world.texts):
        refused("evaluate", "--workdir", place, says=(str(place), "no run here"))
        refused("export", "--workdir", place, *output, "--step", 4, says=(str(place), "no run here"))
        refused("export", "--workdir", place, *output, says=(str(place), "no model here"))
    file = world.recipe
    for place, reason in [(file, "a file stands there"), (file / "run", "a part of its path is a file")]:
        refused(*pretrain_command(world, place), says=(f"{place}: cannot be written ({reason}); choose another",))
    assert is_empty(tmp_path)


def test_a_corpus_is_no_work_directory(world, corpus_copy, refused) -> None:
    before = sorted(corpus_copy.iterdir())
    refused(*pretrain_command(world, corpus_copy), says=(f"{corpus_copy} holds a corpus", "another --workdir"))
    refused(*pretrain_command(world, corpus_copy, corpus=corpus_copy), says=(f"{corpus_copy} holds a corpus",))
    with pytest.raises(UserError, match="holds a corpus"), workdir.locked(corpus_copy):  # of `finetune` too
        pass
    assert sorted(corpus_copy.iterdir()) == before


def test_a_finished_run_says_so_and_how_to_train_further(world, run_copy, run, tmp_path) -> None:
    status, _, err = run(*pretrain_command(world, run_copy))
    assert status == 0
    assert "resuming" not in err
    (said,) = [line for line in err.splitlines() if line.startswith("finished")]
    assert said == (
        f"finished: all 4 steps are done; to train further from {run_copy}, use another --workdir "
        "and --config.init_from"
    )
    status, _, err = run(*pretrain_command(world, tmp_path / "on", f"--config.init_from={run_copy}"))
    assert status == 0, err


def test_a_second_process_in_the_same_work_directory(world, tmp_path, refused) -> None:
    with workdir.locked(tmp_path):
        refused(*pretrain_command(world, tmp_path), says=(str(tmp_path), "another process is training here"))
    assert not (tmp_path / "run.json").exists()


def test_steps_without_a_checkpoint(world, run_copy, tmp_path, refused) -> None:
    for verb, more in [("evaluate", ()), ("export", ("--output", tmp_path / "out"))]:
        refused(verb, "--workdir", run_copy, "--step", 3, *more, says=("no checkpoint of step 3", "4", "2"))
    shutil.rmtree(run_copy / "checkpoints")
    for verb, more in [("evaluate", ()), ("export", ("--output", tmp_path / "out"))]:
        refused(verb, "--workdir", run_copy, *more, says=(str(run_copy), "no checkpoint"))
    assert not (tmp_path / "out").exists()


def test_damaged_checkpoints(world, run_copy, tmp_path, refused) -> None:
    for step in (2, 4):
        for path in (run_copy / "checkpoints" / str(step) / "state").rglob("*"):
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)
    argv = ["export", "--workdir", run_copy, "--output", tmp_path / "out"]
    refused(*argv, "--step", 4, says=("step 4 is damaged",))
    refused(*argv, says=("no undamaged checkpoint among [4, 2]",), after=2)
    assert not (tmp_path / "out").exists()
