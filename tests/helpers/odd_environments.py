"""Environments of containers and clusters, and a program that runs every verb in the environment of its process.

    python -m tests.helpers.odd_environments WORLD SCRATCH

The program prints a line of JSON for each row of `odd_place_commands.HONEST`: the row, the exit status and the
messages. WORLD is a directory of `benchmarks.odd_places.made_world`.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_NAME = 54321  # user id without an entry in /etc/passwd
SECONDS = 600
# Of linux/capability.h, linux/prctl.h and sys/mount.h.
READ_EVERYTHING = 2
KEEP_CAPABILITIES, RAISE_AMBIENT = (8, 1, 0, 0, 0), (47, 2, READ_EVERYTHING, 0, 0)
CAPABILITIES_VERSION = 0x20080522
NEW_MOUNTS, BIND, REMOUNT_READ_ONLY, PRIVATE = 0x20000, 4096, 4096 | 32 | 1, 1 << 18 | 16384


class Environment(NamedTuple):
    """Changes of the variables (None: unset; {0} is the writable directory), the user id, and the file system."""

    variables: dict[str, str | None]
    user: int = 0  # 0: the user of the tests; other users need root
    is_read_only: bool = False  # only the writable directory may be written; needs root


IMAGE = (ROOT / "launch" / "Dockerfile").read_text()
IMAGE_VARIABLES = dict(pair.split("=") for pair in re.findall(r"^ENV (.*)$", IMAGE, re.MULTILINE)[0].split())
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ENVIRONMENTS = {
    "no HOME": Environment({"HOME": None}),
    "no HOME and a user without a name": Environment({"HOME": None}, NO_NAME),
    "HOME of root and a user without a name": Environment({"HOME": "/root"}, NO_NAME),
    "HOME that does not exist": Environment({"HOME": "/proc/absent/home"}),
    "HOME that is not writable": Environment({"HOME": "/proc/self"}),
    "cache that is a file": Environment({"XDG_CACHE_HOME": "{0}/a file"}),
    "cache that is read-only": Environment({"XDG_CACHE_HOME": "/proc/self"}),
    "output in ASCII": Environment({"PYTHONIOENCODING": "ascii"}),
    "output in Latin-1": Environment({"PYTHONIOENCODING": "latin-1"}),
    "LC_ALL=C": Environment({"LC_ALL": "C"}),
    "LC_ALL=C without the UTF-8 mode of Python": Environment(ASCII),
    "a single writable directory": Environment({"HOME": None, "TMPDIR": "{0}"}, NO_NAME, is_read_only=True),
    "launch/Dockerfile": Environment(
        {name: value.replace("/work", "{0}") for name, value in IMAGE_VARIABLES.items()}, NO_NAME, is_read_only=True
    ),
}


def run_in(name: str, writable: pathlib.Path, command: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run a command of Python in the environment of this name, in its writable directory."""
    (writable / "a file").touch()
    writable.chmod(0o777)
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XDG_", "LC_"))}
    variables |= {
        "HOME": str(writable),
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for key, value in ENVIRONMENTS[name].variables.items():
        variables.pop(key, None)
        if value is not None:
            variables[key] = value.format(writable)
    words = [sys.executable, __file__, "enter", name, str(writable), *command]
    return subprocess.run(words, cwd=writable, env=variables, capture_output=True, timeout=SECONDS, check=False)


def enter(name: str, writable: str, *command: str) -> None:
    """Replace this process by a command of Python, as the user and among the mounts of an environment."""
    libc = ctypes.CDLL(None, use_errno=True)
    if ENVIRONMENTS[name].is_read_only:
        make_read_only(libc, writable)
    if ENVIRONMENTS[name].user:
        become(libc, ENVIRONMENTS[name].user)
    os.execv(sys.executable, [sys.executable, *command])


def make_read_only(libc: ctypes.CDLL, writable: str) -> None:
    """Make the root file system read-only for this process and its children, except a directory."""
    directory = os.fsencode(writable)
    checked(libc.unshare(NEW_MOUNTS))
    for source, target, flags in (
        (None, b"/", PRIVATE),
        (directory, directory, BIND),
        (None, b"/", REMOUNT_READ_ONLY),
    ):
        checked(libc.mount(source, target, None, flags, None))
    os.chdir(directory)


def become(libc: ctypes.CDLL, user: int) -> None:
    """Become a user who may read every file, as the interpreter may lie in a home, and write none that is not his."""
    checked(libc.prctl(*KEEP_CAPABILITIES))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    bit = 1 << READ_EVERYTHING
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)))
    checked(libc.prctl(*RAISE_AMBIENT))


def checked(status: int) -> None:
    """Raise OSError for the status of a function of C that failed."""
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(world_directory: str, scratch: str) -> None:
    """Run each verb in a fork of this process, which has imported all modules in its environment."""
    from benchmarks import odd_places
    from benchmarks.faults.world import World
    from bert_jax.files import user_cache

    odd_places.preload(libraries=())  # a library may read HOME when a verb imports it
    directory = pathlib.Path(world_directory)
    # The cache of this environment has the compiled programs, which would take minutes.
    shutil.copytree(directory / "programs", user_cache() / "xla", dirs_exist_ok=True)
    world = World(directory, *(directory / part for part in World._fields[1:]))
    for row, ended in odd_places.start_honest(world, pathlib.Path(scratch)):
        print(json.dumps({"row": row, "status": ended.status, "text": ended.text}))


if __name__ == "__main__":
    enter(*sys.argv[2:]) if sys.argv[1] == "enter" else main(*sys.argv[1:])
