"""Containers and clusters: every verb works without HOME, without a user name, in ASCII, on a read-only root."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from bert_jax.cli.main import VERBS
from tests.helpers.odd_environments import ENVIRONMENTS, IMAGE, IMAGE_VARIABLES, ROOT, run_in

# Runs its arguments as commands, in turn, without JAX, which takes seconds to import.
PROGRAM = """
import json, os, sys
from bert_jax.__main__ import run

for words in json.loads(sys.argv[1]):
    sys.argv = ["bert-jax", *(os.fsdecode(word.encode()) for word in words)]  # as a shell gives them
    try:
        status = run()
    except SystemExit as stop:
        status = stop.code
    print("status", status, flush=True)
"""


@pytest.fixture(params=ENVIRONMENTS)
def environment(request: pytest.FixtureRequest) -> str:
    name = request.param
    needs_root = ENVIRONMENTS[name].user or ENVIRONMENTS[name].is_read_only
    if needs_root and (sys.platform != "linux" or os.getuid()):
        pytest.skip("needs root")
    return str(name)


@pytest.fixture
def writable(tmp_path: pathlib.Path) -> pathlib.Path:
    for directory in (tmp_path, *tmp_path.parents):  # another user enters them
        if directory.stat().st_uid == os.getuid() and "pytest" in directory.name:
            directory.chmod(0o755)
    (tmp_path / "writable").mkdir()
    return tmp_path / "writable"


def test_help_and_small_work(environment: str, writable: pathlib.Path) -> None:
    texts = writable.parent / "caf\u00e9"
    texts.mkdir()
    (texts / "caf\u00e9.txt").write_text("Un caf\u00e9, s'il vous pla\u00eet. \u4f60\u597d\n" * 50, encoding="utf-8")
    output = f"{writable}/{texts.name}"
    commands = [[verb, "--help"] for verb in VERBS]
    commands += [["tokenizer", "--input", str(texts), "--vocab_size=45", "--output", output], ["verify", output]]
    done = run_in(environment, writable, ["-c", PROGRAM, json.dumps(commands)])
    assert b"Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(b"status ")] == [b"status 0"] * len(commands), done.stderr
    for verb in VERBS:
        assert f"usage: bert-jax {verb} ".encode() in done.stdout
    assert any(b": intact (" in line for line in lines)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("odd") / "world"
    program = "import pathlib, sys; from benchmarks.odd_places import made_world; made_world(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(directory)], cwd=ROOT, check=True)
    return directory


@pytest.mark.slow
def test_every_verb(environment: str, writable: pathlib.Path, world: pathlib.Path) -> None:
    from benchmarks.odd_place_commands import HONEST

    assert {row.split()[0] for row in HONEST} == set(VERBS) - {"completion"}  # reads no file
    program = ["-m", "tests.helpers.odd_environments", str(world), str(writable)]
    done = run_in(environment, writable, program)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["row"] for result in results] == list(HONEST)
    for result in results:
        assert result["status"] == 0, result
        assert "Traceback" not in result["text"]


def test_an_image_runs_as_a_plain_user_on_a_read_only_root() -> None:
    """The text of launch/Dockerfile; the environment of that name above is the container without Docker."""
    instructions = [line.split(maxsplit=1) for line in IMAGE.splitlines() if line and not line.startswith("#")]
    words = {name: [value for key, value in instructions if key == name] for name, _ in instructions}
    assert instructions[:2] == [["ARG", "BASE"], ["FROM", "${BASE}"]]  # no default: an image by its digest
    assert words["USER"] == ["65534:65534"]
    assert words["WORKDIR"] == words["VOLUME"] == ["/work"]
    assert set(IMAGE_VARIABLES) == {"HOME", "TMPDIR"}
    assert set(IMAGE_VARIABLES.values()) == {"/work"}
    for option in ("--read-only", "--user", '--volume "$PWD:/work"', "--build-arg BASE="):
        assert option in IMAGE
    ignored = [(ROOT / "launch" / place / "Dockerfile.dockerignore").read_text() for place in (".", "gke")]
    assert ignored[0] == ignored[1]
