"""Outputs of the verbs for a small text, made once a session, and directories where nothing can be written."""

import os
import pathlib
import shutil
import subprocess

import pytest

from bert_jax.cli.main import main
from tests.helpers.commands import World, check_refusal, make_world, prepare_command


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    made = make_world(tmp_path_factory.mktemp("world"))
    assert main(["export", "--workdir", str(made.run), "--output", str(made.model)]) == 0
    return made


@pytest.fixture(scope="session")
def other(world, tmp_path_factory) -> World:
    """The same texts with another tokenizer, no document held out."""
    place = tmp_path_factory.mktemp("other")
    made = world._replace(tokenizer=place / "tokenizer", corpus=place / "corpus")
    argv = ["tokenizer", "--input", made.texts, "--vocab_size", 190, "--output", made.tokenizer]
    assert main([str(word) for word in argv]) == 0
    assert main(prepare_command(made, made.corpus, "--heldout_fraction", "0")) == 0
    return made


@pytest.fixture
def corpus_copy(world, tmp_path):
    return pathlib.Path(shutil.copytree(world.corpus, tmp_path / "corpus"))


@pytest.fixture
def run_copy(world, tmp_path):
    return pathlib.Path(shutil.copytree(world.run, tmp_path / "run"))


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
