"""`verify`: each kind of directory intact, each of its files damaged, and places that have no digests."""

import os
import pathlib
import re
import shutil

import pytest

from bert_jax.checkpoints.verify import verify_directory


def flip(path: pathlib.Path, place: float = 0.5) -> None:
    """Invert a bit of a file."""
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)


def without_progress(err: str) -> str:
    """The lines but those of progress, which a slow machine shows."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("verifying "))


def files_of(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tokenizer", "3 files of SHA256SUMS"),
        ("model", "6 files of SHA256SUMS"),
        ("corpus", "corpus of 5 files and tokenizer/"),
        ("run", "2 checkpoints, run.json, tokenizer/"),
    ],
)
def test_verify_reports_intact_files_and_changes_nothing(world, run, name, says) -> None:
    place = getattr(world, name)
    before = {path: path.read_bytes() for path in files_of(place)}
    status, out, err = run("verify", place)
    assert (status, without_progress(err)) == (0, "")
    assert re.fullmatch(rf"{place}: intact \({says}; [\d.]+ MB read in [\d.]+ s\)\n", out)
    assert {path: path.read_bytes() for path in files_of(place)} == before


@pytest.mark.parametrize("name", ["tokenizer", "model", "corpus"])
def test_a_flipped_bit_in_any_file(world, run, tmp_path, name) -> None:
    for number, path in enumerate(files_of(getattr(world, name))):
        place = pathlib.Path(shutil.copytree(getattr(world, name), tmp_path / str(number)))
        damaged = place / path.relative_to(getattr(world, name))
        flip(damaged)
        status, out, err = run("verify", place)
        assert (status, without_progress(err)) == (1, ""), damaged
        assert str(damaged.parent) in out
        if damaged.name != "SHA256SUMS":
            assert damaged.name in out, out
        assert re.search(r": \d+ damaged \(", out.splitlines()[-1])


def test_every_damaged_file_of_a_corpus_is_listed(corpus_copy, run) -> None:
    flip(corpus_copy / "train-00000-of-00001.arrayrecord")
    os.truncate(corpus_copy / "heldout.index.npy", 100)
    (corpus_copy / "heldout-00000-of-00001.arrayrecord").unlink()
    status, out, _ = run("verify", corpus_copy)
    assert (status, len(out.splitlines())) == (1, 4)
    for words in (
        "train-00000-of-00001.arrayrecord: differs from",
        "heldout.index.npy: differs",
        "missing, but listed",
    ):
        assert words in out
    (corpus_copy / "manifest.json").unlink()
    assert run("verify", corpus_copy)[0] == 1


def test_a_corpus_with_the_tokenizer_of_another(corpus_copy, other, run) -> None:
    shutil.rmtree(corpus_copy / "tokenizer")
    shutil.copytree(other.tokenizer, corpus_copy / "tokenizer")
    status, out, _ = run("verify", corpus_copy)
    assert (status, out.splitlines()[0]) == (1, f"{corpus_copy / 'tokenizer'}: not the tokenizer of the manifest")


def test_a_damaged_work_directory(run_copy, other, run) -> None:
    largest = max((run_copy / "checkpoints" / "2" / "state").rglob("d/*"), key=lambda path: path.stat().st_size)
    for place in range(1, 8):  # of which some hit compressed arrays, and none a gap
        flip(largest, place / 8)
    (run_copy / "checkpoints" / "4").rename(run_copy / "checkpoints" / "5")
    (run_copy / "budget.json").write_text('{"budget": "1h", ')
    with open(run_copy / "metrics.jsonl", "a") as file:
        file.write("{}\n")
    shutil.rmtree(run_copy / "tokenizer")
    shutil.copytree(other.tokenizer, run_copy / "tokenizer")
    status, out, _ = run("verify", run_copy)
    assert status == 1
    for words in (
        "checkpoints/2: ",
        "checkpoints/5: it is the checkpoint of step 4 under another name",
        "metrics.jsonl: damaged lines: 1",
        f"{run_copy / 'budget.json'}: ",
        f"{run_copy / 'tokenizer'}: not the tokenizer of run.json",
        f"{run_copy}: 5 damaged (2 checkpoints",
    ):
        assert words in out, out
    (run_copy / "run.json").unlink()
    assert "no run here (no run.json)" in run("verify", run_copy)[1]


def test_a_run_json_of_another_run(run_copy, run) -> None:
    path = run_copy / "run.json"
    path.write_text(path.read_text().replace('"num_heads": 2', '"num_heads": 4'))
    status, out, _ = run("verify", run_copy)
    assert (status, f"{path} was changed: it differs from the record in checkpoints/4" in out) == (1, True)


def test_nothing_to_compare_with(world, tmp_path, refused) -> None:
    refused("verify", world.texts, says=(str(world.texts), "nothing to compare with (no SHA256SUMS)"))
    refused("verify", tmp_path / "absent", says=("no such directory",))
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    (model / "SHA256SUMS").unlink()
    refused("verify", model, says=("nothing to compare with",))


def test_an_export_seals_no_damaged_export(world, tmp_path, refused) -> None:
    """Weights above the size that is compared at every opening."""
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    flip(model / "model.safetensors", 0.9)
    argv = ["export", "--model", model, "--output", tmp_path / "again"]
    refused(*argv, says=("model.safetensors: differs from SHA256SUMS",))
    assert not (tmp_path / "again").exists()


def test_a_corpus_without_its_shards(world, run, tmp_path) -> None:
    place = pathlib.Path(shutil.copytree(world.corpus, tmp_path / "corpus"))
    for path in place.glob("*.arrayrecord"):
        path.unlink()
    status, out, _ = run("verify", place)
    assert status == 1
    assert "missing, but listed in the manifest" in out


def test_an_edited_card_is_damage_for_verify_alone(world, run, tmp_path) -> None:
    place = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    (place / "README.md").write_text("mine")
    assert run("verify", place)[0] == 1
    assert run("fill-mask", "--model", place, "[MASK]")[0] == 0


@pytest.mark.parametrize(("name", "unit"), [("corpus", "MB"), ("model", "MB"), ("run", "checkpoints")])
def test_progress_counts_up_to_all_that_is_read(world, name, unit) -> None:
    seen = []
    found = verify_directory(getattr(world, name), lambda *line: seen.append(line))
    done, totals = [line[1] for line in seen], {line[2] for line in seen}
    assert {(line[0], line[3]) for line in seen} == {("verifying", unit)}
    assert done == sorted(done)
    last, total = (1, 2) if unit == "checkpoints" else (found.bytes // 10**6,) * 2
    assert (max(done), totals) == (last, {total})
