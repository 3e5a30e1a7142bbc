"""The command line as a user meets it: bad input is refused in one or two lines, with status 2, and leaves nothing."""

import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import pytest

from bert_jax import workdir
from bert_jax.__main__ import main
from bert_jax.data.corpus import open_corpus
from bert_jax.errors import UserError

RECIPE = """
from bert_jax.config import default_config, phases


def get_config():
    config = default_config()
    config.model.update(hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.model.update(dropout=0.0, attention_dropout=0.0)
    config.train.update(steps=4, batch_size=8, log_every=1)
    config.train.phases = phases({"length": 24})
    config.evaluate.update(rows=16, batch_size=8)
    config.checkpoint.every = 2
    return config
"""


class World(NamedTuple):
    """What the verbs make of a small text, in order."""

    texts: pathlib.Path
    tokenizer: pathlib.Path
    corpus: pathlib.Path
    recipe: pathlib.Path
    run: pathlib.Path
    model: pathlib.Path


def vocabulary(seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 7))) for _ in range(300)]


def prose(seed: int, sentences: int) -> str:
    rng, words = random.Random(seed), vocabulary()
    return " ".join(" ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + "." for _ in range(sentences))


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    place = tmp_path_factory.mktemp("world")
    made = World(*(place / name for name in ("texts", "tokenizer", "corpus", "recipe.py", "run", "model")))
    made.texts.mkdir()
    for number in range(40):
        (made.texts / f"{number:02}.txt").write_text(prose(number, 20))
    made.recipe.write_text(RECIPE)
    assert main(["tokenizer", "--input", str(made.texts), "--vocab_size", "200", "--output", str(made.tokenizer)]) == 0
    assert main(prepare_command(made, made.corpus, "--heldout_share", "0.2")) == 0
    assert main(pretrain_command(made, made.run)) == 0
    assert main(["export", "--workdir", str(made.run), "--output", str(made.model)]) == 0
    return made


def prepare_command(world: World, output: pathlib.Path, *more: str, texts: pathlib.Path | None = None) -> list[str]:
    inputs = ["--input", str(texts or world.texts), "--tokenizer", str(world.tokenizer)]
    return ["prepare", *inputs, "--output", str(output), "--workers", "1", *more]


def pretrain_command(world: World, place: pathlib.Path, *more: str, corpus: pathlib.Path | None = None) -> list[str]:
    data = f"--config.data.corpus={corpus or world.corpus}"
    return ["pretrain", "--config", str(world.recipe), "--workdir", str(place), data, *more]


def command(*arguments: object) -> subprocess.Popen:
    """The same verbs as a process of their own."""
    argv = [sys.executable, "-m", "bert_jax", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def run(capsys):
    """main(argv) -> (status, stdout, stderr)."""

    def run(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main([str(word) for word in argv])
        except SystemExit as stop:  # argparse's way
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def refused(run):
    """Asserts that a command is refused as it should be; `after` is how many lines it may have said before."""

    def refused(*argv: object, says: tuple[str, ...], after: int = 0) -> None:
        status, _, err = run(*argv)
        check_refusal(status, err, says, after)

    return refused


def check_refusal(status: int | None, err: str, says: tuple[str, ...], after: int = 0) -> None:
    print(err)
    assert status == 2, err
    assert "Traceback" not in err
    lines = err.splitlines()
    assert 1 <= len(lines) <= 2 + after, err
    message = "\n".join(lines[after:])
    assert message.startswith("bert-jax"), err
    for words in says:
        assert words in message


def is_empty(place: pathlib.Path) -> bool:
    """Whether a directory holds nothing at all, hidden leftovers included."""
    return not list(place.iterdir())


@contextlib.contextmanager
def no_file_beyond(size: int):
    """What a full disk is like: no file grows beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 MiB, of which a call leaves so many bytes free."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", place]).returncode:
        pytest.skip("only root can mount a small file system")

    def leave(free: int) -> pathlib.Path:
        with open(place / "filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (64 << 20) - free)
        return place

    yield leave
    subprocess.run(["umount", place], check=True)


@pytest.fixture
def read_only(tmp_path):
    """A directory in which nothing can be made; root may write wherever permissions forbid it, but not here."""
    place = tmp_path / "read-only"
    place.mkdir()
    if os.geteuid():
        place.chmod(0o500)
        yield place
        place.chmod(0o700)
        return
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", place]).returncode:
        pytest.skip("no read-only file system to be had here")
    yield place
    subprocess.run(["umount", place], check=True)


# ------------------------------------------------------------------------------------------------ the way that works


def test_evaluate_ends_with_one_json_object(world, run) -> None:
    status, out, err = run("evaluate", "--workdir", world.run)
    assert (status, err) == (0, "")
    found = json.loads(out.splitlines()[-1])
    assert (found["step"], found["length"]) == (4, 24)
    assert {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "unigram_entropy"} < found.keys()
    lines = [json.loads(line) for line in (world.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == [1, 2, 3, 4]
    last = next(line for line in lines if line["split"] == "heldout" and line["step"] == 4)
    assert found["loss"] == pytest.approx(last["loss"], rel=1e-6)


def test_evaluate_an_earlier_step(world, run) -> None:
    status, out, _ = run("evaluate", "--workdir", world.run, "--step", 2)
    assert status == 0
    assert json.loads(out)["step"] == 2


def test_fill_mask_prints_guesses_likeliest_first(world, run) -> None:
    word = vocabulary()[0]
    status, out, err = run("fill-mask", "--model", world.model, "--json", "--top_k", 200, f"{word} [MASK] {word}.")
    assert (status, err) == (0, "")
    guesses = json.loads(out)
    assert all(guess.keys() == {"token", "id", "probability", "text"} for guess in guesses)
    probabilities = [guess["probability"] for guess in guesses]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    tokens = (world.model / "vocab.txt").read_text().splitlines()
    assert [tokens[guess["id"]] for guess in guesses] == [guess["token"] for guess in guesses]
    whole = next(guess for guess in guesses if guess["token"].isalpha() and len(guess["token"]) > 1)
    assert f" {whole['token']} " in whole["text"]
    status, out, _ = run("fill-mask", "--model", world.model, f"{word} [MASK].")
    assert len(out.splitlines()) == 5


@pytest.mark.parametrize("verb", ["tokenizer", "prepare", "pretrain", "evaluate", "export", "fill-mask"])
def test_every_verb_explains_each_of_its_options(run, verb: str) -> None:
    status, out, _ = run(verb, "--help")
    assert status == 0
    assert "example" in out
    for line in out.splitlines():
        if line.startswith("  --"):
            assert line.split()[0] in out.partition("\n\n")[0], f"the usage does not show {line}"
    status, out, _ = run("--help")
    assert verb in out


# ------------------------------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], ["VERB"]),
        (["prepar"], ["'prepar'", "'prepare'"]),
        (["tokenizer", "--input", "x", "--output", "y"], ["--vocab_size"]),
        (["tokenizer", "--input", "x", "--output", "y", "--vocab_size", "many"], ["--vocab_size", "many"]),
        (["tokenizer", "--input", "x", "--output", "y", "--vocab_size", "9", "--kind", "bpe"], ["bpe", "wordpiece"]),
        (["prepare", "--input", "x", "--output", "y", "--tokenizer", "z", "--document", "line"], ["'--documents'"]),
        (["evaluate", "--workdir", "x", "--stpe", "3"], ["--stpe", "did you mean '--step'"]),
        (["fill-mask", "--model", "x", "--top-k", "3", "[MASK]"], ["--top-k", "did you mean '--top_k'"]),
        (["fill-mask", "--model", "x"], ["TEXT"]),
        (["pretrain", "--workdir", "x"], ["--config"]),
        (["evaluate"], ["--workdir"]),
        (["export", "--workdir", "x"], ["--output"]),
        (["evaluate", "--workdir", "x", "--config.train.steps=3"], ["--config.train.steps=3"]),
    ],
)
def test_unknown_verbs_and_options(refused, argv: list[str], says: list[str]) -> None:
    refused(*argv, says=(*says, "--help"))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("--config.train.step=9", ["train.step", "did you mean 'train.steps'"]),
        ("--confg.train.steps=9", ["--confg.train.steps=9", "--config"]),
        ("config.train.steps=9", ["write --config.train.steps=9"]),
        ("train.steps=9", ["'train.steps=9'", "write --config.train.steps=9"]),
        ("--config.train.steps=", ["config.train.steps"]),
        ("--config.train.steps=9.5", ["config.train.steps", "9.5"]),
        ("--config.train.phases[0].length=64", ["64", "32", "config.model.max_positions"]),
        ("--config.model.vocab_size=999", ["config.model.vocab_size=999", "200"]),
        ("--config.mesh.data=3", ["mesh.data=3", "1 devices"]),
        ("--config.train.accumulation=3", ["8 rows", "3 micro-batches", "config.train.batch_size"]),
        ("--workdri=x", ["--workdri=x", "'--workdir'"]),
    ],
)
def test_wrong_overrides_leave_the_work_directory_free(world, tmp_path, run, refused, override, says) -> None:
    """A refused command claims nothing: the mended one starts there."""
    place = tmp_path / "run"
    refused(*pretrain_command(world, place, override), says=tuple(says))
    assert not place.exists() or not (place / "run.json").exists()
    with workdir.locked(place):
        pass


def test_a_recipe_that_is_none(world, tmp_path, refused) -> None:
    for text, says in [(None, "no such file"), ("x = (", "get_config"), ("import nothing_such", "nothing_such")]:
        if text:
            (tmp_path / "recipe.py").write_text(text)
        refused("pretrain", "--config", tmp_path / "recipe.py", "--workdir", tmp_path / "run", says=("recipe.py", says))
    refused("pretrain", "--config", world.recipe, "--workdir", tmp_path / "run", says=("--config.data.corpus=DIR",))
    assert not (tmp_path / "run").exists()


def test_a_batch_that_the_mesh_does_not_divide(world, tmp_path, monkeypatch) -> None:
    """Rows of training and of evaluation; then the mended command trains in the same place."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    place = tmp_path / "run"
    commands = [
        command(*pretrain_command(world, place / name, f"--config.{name}.batch_size=6"))
        for name in ("train", "evaluate")
    ]
    for process, name in zip(commands, ("train", "evaluate"), strict=True):
        _, err = process.communicate()
        check_refusal(process.returncode, err, (f"config.{name}.batch_size", "6 rows", "4 or 8"))
        assert not (place / name / "run.json").exists()


# ------------------------------------------------------------------------------------------------------------- text


def test_no_file_matches(world, tmp_path, refused) -> None:
    (tmp_path / "bare").mkdir()
    for missing, says in [("*.txt", "no file matches"), ("absent.txt", "no such file"), ("bare", "holds no file")]:
        for argv in (
            prepare_command(world, tmp_path / "out", texts=tmp_path / missing),
            ["tokenizer", "--input", tmp_path / missing, "--vocab_size", 99, "--output", tmp_path / "out"],
        ):
            refused(*argv, says=(str(tmp_path / missing), says))
    assert os.listdir(tmp_path) == ["bare"]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "empty"), (b"\0\1\2", "binary"), (b"caf\xe9", "invalid UTF-8"), (b" \n", "empty")]
)
def test_files_without_text(world, tmp_path, refused, content: bytes, reason: str) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(3):
        (texts / str(number)).write_bytes(content)
    refused(*prepare_command(world, tmp_path / "out", texts=texts), says=("0 of 3 documents", f"3 {reason}", "UTF-8"))
    refused(
        *("tokenizer", "--input", texts, "--vocab_size", 99, "--output", tmp_path / "out"),
        says=(f"3 {reason}",),
    )
    assert os.listdir(tmp_path) == ["texts"]


def test_files_without_text_among_others_are_counted(world, tmp_path, run) -> None:
    texts = tmp_path / "texts"
    shutil.copytree(world.texts, texts)
    for name, content in [("void", b""), ("binary", b"\0"), ("latin", "café".encode("latin-1"))]:
        (texts / name).write_bytes(content)
    status, out, _ = run(*prepare_command(world, tmp_path / "a", texts=texts))
    assert status == 0
    assert "43 documents in = 40 stored + 3 rejected (1 binary, 1 empty, 1 invalid UTF-8)" in out
    status, out, _ = run(*prepare_command(world, tmp_path / "b", "--encoding_errors", "replace", texts=texts))
    assert "43 documents in = 41 stored + 2 rejected (1 binary, 1 empty)" in out
    status, out, _ = run("tokenizer", "--input", texts, "--vocab_size", 200, "--output", tmp_path / "tokenizer")
    assert "left out 1 binary, 1 empty, 1 invalid UTF-8" in out


def test_a_corpus_of_a_single_document(world, tmp_path, refused) -> None:
    (tmp_path / "one.txt").write_text(prose(0, 50))
    refused(
        *prepare_command(world, tmp_path / "out", "--heldout_share", "0", texts=tmp_path / "one.txt"),
        says=("1 training document", "next-sentence prediction", "--documents blank-line"),
    )
    assert os.listdir(tmp_path) == ["one.txt"]


def test_every_sentence_its_own_document(world, tmp_path, run) -> None:
    (tmp_path / "lines.txt").write_text(prose(0, 200).replace(". ", ".\n"))
    argv = prepare_command(world, tmp_path / "out", "--documents", "line", texts=tmp_path / "lines.txt")
    status, out, err = run(*argv)
    assert status == 0
    assert "warning: every document is one sentence" in err
    assert "200 documents in = 200 stored" in out


def test_a_document_of_one_large_line(world, tmp_path, run) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    words = random.Random(0).choices(vocabulary(), k=600_000)
    (texts / "large.txt").write_text(" ".join(words))
    for number in range(2):
        (texts / f"{number}.txt").write_text(prose(number, 5))
    assert (texts / "large.txt").stat().st_size > 3_000_000
    status, out, _ = run(*prepare_command(world, tmp_path / "out", "--heldout_share", "0", texts=texts))
    assert status == 0
    assert "3 documents in = 3 stored + 0 rejected (none)" in out
    assert "overlong sentences cut in pieces" in out
    train = open_corpus(tmp_path / "out").split("train")
    assert train.num_tokens > len(words)
    assert train.tokens_per_record.max() <= 2048


def test_sizes_of_vocabulary_that_the_text_cannot_fill(world, tmp_path, refused) -> None:
    argv = ["tokenizer", "--input", world.texts, "--output", tmp_path / "out"]
    refused(*argv, "--vocab_size", 30_522, says=("the text fills a vocabulary of", "not of 30,522", "give more text"))
    refused(*argv, "--vocab_size", 20, says=("--vocab_size 20 is too small",))
    refused(*argv, "--vocab_size", -1, says=("--vocab_size -1 is too small",))
    assert is_empty(tmp_path)


def test_a_tokenizer_directory_without_vocabulary(world, tmp_path, refused) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "vocab.txt").write_text("a\nb\n")
    for name, says in [("absent", "no such vocabulary"), ("bare", "no such vocabulary"), ("wrong", "[MASK]")]:
        argv = ["prepare", "--input", world.texts, "--tokenizer", tmp_path / name, "--output", tmp_path / "out"]
        refused(*argv, says=(str(tmp_path / name), says))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--heldout_share", "1"], ["--heldout_share 1"]),
        (["--heldout_share", "nan"], ["--heldout_share nan"]),
        (["--workers", "-3"], ["--workers -3"]),
    ],
)
def test_settings_of_prepare_out_of_range(world, tmp_path, refused, more, says) -> None:
    refused(*prepare_command(world, tmp_path / "out", *more), says=tuple(says))
    assert is_empty(tmp_path)


def test_outputs_that_hold_something_are_kept(world, tmp_path, refused) -> None:
    before = sorted(path.stat().st_mtime_ns for path in (*world.corpus.rglob("*"), *world.model.rglob("*")))
    refused(*prepare_command(world, world.corpus), says=("holds a corpus already",))
    refused(*prepare_command(world, world.recipe), says=("holds something else already",))
    argv = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output"]
    refused(*argv, world.tokenizer, says=(str(world.tokenizer), "holds something else already"))
    refused(
        "export", "--workdir", world.run, "--output", world.model, says=(str(world.model), "not an empty directory")
    )
    after = sorted(path.stat().st_mtime_ns for path in (*world.corpus.rglob("*"), *world.model.rglob("*")))
    assert before == after


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_during_preparation_leaves_nothing(world, tmp_path, workers: int) -> None:
    texts, place = tmp_path / "texts", tmp_path / "made"
    texts.mkdir()
    place.mkdir()
    for number in range(30):
        (texts / str(number)).write_text(prose(number, 400) * 40)
    argv = prepare_command(world, place / "corpus", texts=texts)
    process = command(*argv, "--workers", workers)
    while is_empty(place) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "bert-jax prepare: interrupted"
    assert "Traceback" not in err
    assert is_empty(place)


# ------------------------------------------------------------------------------------------------------- the corpus


@pytest.fixture
def corpus_copy(world, tmp_path):
    return pathlib.Path(shutil.copytree(world.corpus, tmp_path / "corpus"))


def test_a_directory_that_is_no_corpus(world, tmp_path, refused) -> None:
    for place, says in [(tmp_path / "absent", "no such corpus"), (world.texts, "manifest.json")]:
        refused(*pretrain_command(world, tmp_path / "run", corpus=place), says=(str(place), says))
    assert is_empty(tmp_path)


@pytest.mark.parametrize(
    "name", ["manifest.json", "train.index.npy", "tokenizer/tokenizer.json", "train-00000-of-00001.arrayrecord"]
)
def test_a_corpus_with_a_file_missing(world, tmp_path, corpus_copy, refused, name: str) -> None:
    (corpus_copy / name).unlink()
    refused(
        *pretrain_command(world, tmp_path / "run", corpus=corpus_copy), says=(str(corpus_copy), pathlib.Path(name).name)
    )
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
def test_flipped_bits_in_a_shard_are_named_when_they_are_read(world, tmp_path, corpus_copy, refused, threads) -> None:
    """The exception crosses Grain's threads."""
    shard = flip_a_bit_in_each_record(corpus_copy, "train")
    argv = pretrain_command(world, tmp_path / "run", f"--config.data.threads={threads}", corpus=corpus_copy)
    refused(*argv, says=(str(shard), "copy"), after=3)


def test_flipped_bits_in_a_heldout_shard(world, run_copy, corpus_copy, refused) -> None:
    path = run_copy / "run.json"
    path.write_text(path.read_text().replace(str(world.corpus), str(corpus_copy)))
    shard = flip_a_bit_in_each_record(corpus_copy, "heldout")
    refused("evaluate", "--workdir", run_copy, says=(str(shard), "copy"))


def test_the_tokenizer_of_a_corpus_exchanged(world, tmp_path, corpus_copy, refused) -> None:
    path = corpus_copy / "tokenizer" / "vocab.txt"
    tokens = path.read_text().splitlines()
    path.write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]) + "\n")
    refused(
        *pretrain_command(world, tmp_path / "run", corpus=corpus_copy),
        says=(str(path.parent), "not the tokenizer", "prepare"),
    )
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------------ the work directory


@pytest.fixture
def run_copy(world, tmp_path):
    return pathlib.Path(shutil.copytree(world.run, tmp_path / "run"))


@pytest.fixture(scope="session")
def other(world, tmp_path_factory) -> World:
    """The same texts with another tokenizer, no document held out."""
    place = tmp_path_factory.mktemp("other")
    made = world._replace(tokenizer=place / "tokenizer", corpus=place / "corpus")
    argv = ["tokenizer", "--input", made.texts, "--vocab_size", 190, "--output", made.tokenizer]
    assert main([str(word) for word in argv]) == 0
    assert main(prepare_command(made, made.corpus, "--heldout_share", "0")) == 0
    return made


def test_a_corpus_made_with_another_tokenizer(world, other, run_copy, refused) -> None:
    """A resumed run, and the evaluation of one, find another corpus where theirs was."""
    refused(
        *pretrain_command(world, run_copy, corpus=other.corpus),
        says=(str(run_copy), "differs", "tokenizer:", "corpus:", "model.vocab_size: 200 -> 190", "another --workdir"),
    )
    path = run_copy / "run.json"
    path.write_text(path.read_text().replace(str(world.corpus), str(other.corpus)))
    refused("evaluate", "--workdir", run_copy, says=(str(other.corpus), "another corpus"))
    path.write_text(path.read_text().replace(str(other.corpus), "/nowhere"))
    refused("evaluate", "--workdir", run_copy, says=("/nowhere", "no such corpus"))


def test_evaluate_without_heldout_documents(other, tmp_path, run, refused) -> None:
    status, _, err = run(*pretrain_command(other, tmp_path / "run", "--config.train.steps=2"))
    assert status == 0
    assert "held out: fewer than 2 documents, so no evaluation" in err
    refused("evaluate", "--workdir", tmp_path / "run", says=(str(other.corpus), "fewer than 2 held-out documents"))


def test_a_work_directory_of_another_run(world, run_copy, refused) -> None:
    refused(
        *pretrain_command(world, run_copy, "--config.seed=7", "--config.optimizer.epsilon=1"),
        says=(str(run_copy), "seed: 0 -> 7", "optimizer.epsilon: 1e-06 -> 1.0", "another --workdir"),
    )
    (run_copy / "run.json").write_text("[]")
    refused(*pretrain_command(world, run_copy), says=(str(run_copy), "run.json"))
    (run_copy / "run.json").unlink()
    refused(*pretrain_command(world, run_copy), says=(str(run_copy), "without their run.json"))
    assert {path.name for path in (run_copy / "checkpoints").iterdir()} >= {"2", "4"}


def test_a_place_that_is_no_work_directory(world, tmp_path, refused) -> None:
    for verb, more in [("evaluate", ()), ("export", ("--output", tmp_path / "out"))]:
        for place in (tmp_path / "absent", world.texts):
            refused(verb, "--workdir", place, *more, says=(str(place), "no run here"))
    refused(*pretrain_command(world, world.recipe), says=(str(world.recipe), "another --workdir"))
    assert is_empty(tmp_path)


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


# --------------------------------------------------------------------------------------------------- the full disk


def test_preparation_on_a_full_disk(world, tmp_path, small_disk, refused) -> None:
    place = small_disk(8192)
    refused(*prepare_command(world, place / "corpus"), says=(str(place / "corpus"), "No space left", "make room"))
    assert os.listdir(place) == ["filler"]
    argv = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output", place / "tokenizer"]
    refused(*argv, says=(str(place / "tokenizer"), "No space left"))
    assert os.listdir(place) == ["filler"]


def test_shards_that_may_not_grow(world, tmp_path, refused) -> None:
    with no_file_beyond(60_000):
        refused(*prepare_command(world, tmp_path / "corpus"), says=(str(tmp_path / "corpus"), "nothing was kept"))
    assert is_empty(tmp_path)


def test_files_that_may_not_grow(world, tmp_path, refused) -> None:
    with no_file_beyond(1000):
        refused(*prepare_command(world, tmp_path / "corpus"), says=(str(tmp_path / "corpus"), "too large"))
        argv = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output", tmp_path / "tokenizer"]
        refused(*argv, says=(str(tmp_path / "tokenizer"), "too large"))
        refused("export", "--workdir", world.run, "--output", tmp_path / "model", says=(str(tmp_path / "model"),))
    assert is_empty(tmp_path)


def test_read_only_places(world, read_only, refused) -> None:
    tokenizer = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output", read_only / "x"]
    for argv in (
        tokenizer,
        prepare_command(world, read_only / "x"),
        pretrain_command(world, read_only / "x"),
        ["export", "--workdir", world.run, "--output", read_only / "x"],
    ):
        refused(*argv, says=(str(read_only / "x"),))
    assert is_empty(read_only)


def test_export_on_a_full_disk(world, small_disk, refused) -> None:
    place = small_disk(8192)
    refused("export", "--workdir", world.run, "--output", place / "model", says=(str(place / "model"), "No space left"))
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


def losses(place: pathlib.Path) -> list[tuple[int, str, float]]:
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["split"], line["loss"]) for line in lines]


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


# ------------------------------------------------------------------------------------------------------- fill-mask


def test_texts_that_cannot_be_filled(world, refused) -> None:
    argv = ["fill-mask", "--model", world.model]
    refused(*argv, "no mask here", says=("no [MASK]",))
    refused(*argv, "", says=("no [MASK]",))
    refused(*argv, "[MASK] " * 40, says=("42 tokens", "32"))
    refused(*argv, "--top_k", 0, "[MASK]", says=("--top_k 0", "1 to 200"))
    refused(*argv, "--top_k", 201, "[MASK]", says=("--top_k 201", "1 to 200"))


def test_directories_that_are_no_model(world, tmp_path, refused) -> None:
    for place in (tmp_path / "absent", world.texts, world.tokenizer):
        refused("fill-mask", "--model", place, "[MASK]", says=(str(place), "config.json"))
    for name in ("model.safetensors", "vocab.txt"):
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        shutil.copytree(world.model, tmp_path / "model")
        (tmp_path / "model" / name).unlink()
        refused("fill-mask", "--model", tmp_path / "model", "[MASK]", says=(str(tmp_path / "model"), name))


@pytest.mark.parametrize("keep", [0, 4, 500, -100])
def test_damaged_weights(world, tmp_path, refused, keep: int) -> None:
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    refused("fill-mask", "--model", model, "[MASK]", says=(str(weights),))


def test_a_model_with_the_tokenizer_of_another(world, tmp_path, refused) -> None:
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    with open(model / "vocab.txt", "a") as file:
        file.write("more\n")
    refused("fill-mask", "--model", model, "[MASK]", says=(str(model), "201 tokens", "200"))


def test_debug_shows_the_traceback(tmp_path) -> None:
    with pytest.raises(UserError):
        main(["evaluate", "--debug", "--workdir", str(tmp_path)])
