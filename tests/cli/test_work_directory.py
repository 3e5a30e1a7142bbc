"""The work directory as `pretrain`, `evaluate` and `export` find it: another run's, in use, damaged, none."""

import json
import os
import pathlib
import re
import shutil

import pytest

from bert_jax import files
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.training import workdir
from tests.helpers.commands import is_empty, losses, pretrain_command, prose


def files_of(directory: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


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
    refused("evaluate", "--workdir", run_copy, says=(f"{other.corpus}: no snapshot",))
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
    refused(*pretrain_command(world, run_copy), says=(f"{run_copy / 'run.json'}: damaged", "or delete the file"))
    assert {path.name for path in (run_copy / "checkpoints").iterdir()} >= {"2", "4"}


def test_a_changed_run_json_is_blamed_and_can_be_made_again(world, run_copy, run, refused, tmp_path) -> None:
    path, output = run_copy / "run.json", tmp_path / "out"
    good = path.read_text()
    path.write_text(good.replace('"num_heads": 2', '"num_heads": 4'))
    says = (f"{path} was changed", "checkpoints/4 (model.num_heads: 2 -> 4)", "or delete the file")
    for argv in (
        pretrain_command(world, run_copy),
        ["evaluate", "--workdir", run_copy],
        ["export", "--workdir", run_copy, "--output", output],
        ["fill-mask", "--model", run_copy, "[MASK]"],
    ):
        refused(*argv, says=says)
    path.write_text(re.sub(r'"corpus": "[0-9a-f]{64}"', f'"corpus": "{64 * "0"}"', good))
    refused("evaluate", "--workdir", run_copy, says=(f"{path} was changed", "corpus: ", "-> ", "000000000000)"))
    path.unlink()
    refused(*pretrain_command(world, run_copy, "--config.seed=7"), says=(f"{run_copy} holds a run that differs (seed",))
    assert not path.exists()
    assert run(*pretrain_command(world, run_copy))[0] == 0
    assert path.read_text() == good
    assert not output.exists()


def test_a_recipe_of_another_run_with_its_run_json(world, run_copy, refused) -> None:
    """The checkpoints are of another run, and not damaged."""
    path = run_copy / "run.json"
    path.write_text(path.read_text().replace('"mlp_size": 32', '"mlp_size": 64'))
    argv = pretrain_command(world, run_copy, "--config.model.mlp_size=64")
    refused(*argv, says=("checkpoints/4 belongs to a run that differs (model.mlp_size: 32 -> 64)",), after=5)
    assert not (run_copy / "damaged").exists()


def test_the_tokenizer_of_another_run(world, other, run_copy, run, refused, tmp_path) -> None:
    shutil.rmtree(run_copy / "tokenizer")
    shutil.copytree(other.tokenizer, run_copy / "tokenizer")
    says = (f"{run_copy / 'tokenizer'} is not the tokenizer of this run", "remove it")
    for argv in (
        pretrain_command(world, run_copy),
        ["evaluate", "--workdir", run_copy],
        ["export", "--workdir", run_copy, "--output", tmp_path / "out"],
    ):
        refused(*argv, says=says)
    shutil.rmtree(run_copy / "tokenizer")
    assert run(*pretrain_command(world, run_copy))[0] == 0
    assert files_of(run_copy / "tokenizer") == files_of(world.run / "tokenizer")
    # That of a corpus which the run never read, in a directory whose run has not begun.
    shutil.copytree(other.tokenizer, tmp_path / "new" / "tokenizer")
    refused(*pretrain_command(world, tmp_path / "new"), says=(f"{tmp_path / 'new' / 'tokenizer'} is not",))


def test_a_renamed_checkpoint(world, run_copy, run, refused, tmp_path) -> None:
    (run_copy / "checkpoints" / "4").rename(run_copy / "checkpoints" / "6")
    argv = ["export", "--workdir", run_copy, "--output", tmp_path / "out"]
    refused(*argv, "--step", 6, says=("it is the checkpoint of step 4 under another name",))
    status, _, err = run(*argv)
    assert (status, "checkpoints/6 is damaged (it is the checkpoint of step 4" in err) == (0, True)
    assert "weights of step 2" in err
    (run_copy / "checkpoints" / "6").rename(run_copy / "checkpoints" / "3")
    status, _, err = run(*pretrain_command(world, run_copy))
    assert (status, "resuming at step 2" in err) == (0, True)
    assert losses(run_copy) == losses(world.run)


def test_a_place_that_is_no_work_directory(world, tmp_path, refused) -> None:
    output = ("--output", tmp_path / "out")
    for place in (tmp_path / "absent", world.texts):
        refused("evaluate", "--workdir", place, says=(str(place), "no run here"))
        refused("export", "--workdir", place, *output, "--step", 4, says=(str(place), "no run here"))
        refused("export", "--workdir", place, *output, says=(str(place), "no model here"))
    file = world.recipe
    for place, reason in [(file, "a file exists at this path"), (file / "run", "a part of its path is a file")]:
        refused(*pretrain_command(world, place), says=(f"{place}: cannot be written ({reason}); choose another",))
    assert is_empty(tmp_path)


def test_a_corpus_is_no_work_directory(world, corpus_copy, refused) -> None:
    before = sorted(corpus_copy.iterdir())
    refused(*pretrain_command(world, corpus_copy), says=(f"{corpus_copy} holds a corpus", "another --workdir"))
    refused(*pretrain_command(world, corpus_copy, corpus=corpus_copy), says=(f"{corpus_copy} holds a corpus",))
    with pytest.raises(UserError, match="holds a corpus"), workdir.locked_workdir(corpus_copy):  # of `finetune` too
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
    with workdir.locked_workdir(tmp_path):
        refused(*pretrain_command(world, tmp_path), says=(str(tmp_path), "another process is training here"))
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("run_directory", [".", "runs/lr1e-05_seed0"])
def test_the_next_run_removes_the_partial_predictions_of_a_killed_run(run_directory, tmp_path) -> None:
    place = tmp_path / run_directory / "predictions"
    place.mkdir(parents=True)
    with files.new_file(place / "custom-dev.jsonl") as file:
        partial = pathlib.Path(file.name)
    partial.touch()  # as if a process had been killed before the file was complete
    with workdir.locked_workdir(tmp_path):
        assert [path.name for path in place.iterdir()] == ["custom-dev.jsonl"]


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


def test_a_run_resumes_on_the_snapshot_that_it_began_with(world, run_copy, corpus_copy, run, refused) -> None:
    texts = run_copy.parent / "more"
    texts.mkdir()
    for number in range(3):
        (texts / f"{number}.txt").write_text(prose(100 + number, 20))
    before = open_corpus(corpus_copy).fingerprint
    append = ["prepare", "--append", "--input", texts, "--output", corpus_copy, "--workers", "1"]
    status, out, err = run(*append)
    assert status == 0, err
    assert "of 3 new documents 3 are added, 0 rejected" in out
    newest = open_corpus(corpus_copy).fingerprint
    status, _, err = run(*pretrain_command(world, run_copy, corpus=corpus_copy))
    assert status == 0, err
    assert f"corpus {corpus_copy}@{before[:12]}: " in err
    assert f"{corpus_copy}@{before[:12]}" in (run_copy / "run.json").read_text()
    named = f"{corpus_copy}@{newest[:12]}"
    prints = f"corpus: {corpus_copy} {before[:12]} -> {corpus_copy} {newest[:12]}"
    refused(*pretrain_command(world, run_copy, corpus=named), says=(prints,))
    status, out, _ = run("inspect", named, "--json")
    assert json.loads(out)["sources"][0]["train"]["documents"] == open_corpus(corpus_copy).split("train").num_documents
    refused(*append, "--language", "de", says=("--language de", "was prepared with en", "leave the option out"))
    refused(*append, "--runner", "beam", says=("--append: only with --runner local",))
    not_appended = [word for word in append if word != "--append"]
    refused(*not_appended, "--runner", "beam", says=("--workers: only with --runner local",))
