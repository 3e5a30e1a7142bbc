"""Entries of the cache of compiled programs that a full disk or a kill left incomplete are made again."""

import os
import pathlib
import subprocess
import sys
import time
import zlib

import pytest
import zstandard

from bert_jax.parallel.platform import remove_damaged_programs

HOUR = 3600.0
PROGRAM = """
import warnings
warnings.simplefilter("error")
import jax
from bert_jax.parallel.platform import use_compilation_cache
use_compilation_cache()
print(float(jax.jit(lambda x: (x @ x).sum())(jax.numpy.eye(3))))
"""


def age(path: pathlib.Path, seconds: float) -> None:
    """Give a file a time of modification in the past."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def run_program(directory: pathlib.Path) -> None:
    names = {"JAX_COMPILATION_CACHE_DIR": str(directory), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment = os.environ | names | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr


def entries(directory: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*-cache")}


def test_a_program_whose_entry_is_incomplete_is_compiled_again_without_a_warning(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path)
    written = entries(tmp_path)
    assert written
    for name, content in written.items():
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        age(tmp_path / name, HOUR)
    age(tmp_path / ".checked", 2 * HOUR)  # the first run checked the empty directory
    run_program(tmp_path)
    assert entries(tmp_path).keys() == written.keys()
    for content in entries(tmp_path).values():
        assert zstandard.ZstdDecompressor().decompress(content)


@pytest.mark.parametrize("compress", [zlib.compress, zstandard.ZstdCompressor().compress])
def test_only_old_incomplete_entries_since_the_last_check_are_removed(tmp_path: pathlib.Path, compress) -> None:
    remove_damaged_programs(tmp_path)
    age(tmp_path / ".checked", 2 * HOUR)
    whole = compress(os.urandom(1_000))
    for name, content, seconds in (
        ("whole-cache", whole, HOUR),
        ("cut-cache", whole[:500], HOUR),
        ("empty-cache", b"", HOUR),
        ("being_written-cache", whole[:500], 0.0),
        ("checked_before-cache", whole[:500], 3 * HOUR),
        ("cut.txt", whole[:500], HOUR),
    ):
        (tmp_path / name).write_bytes(content)
        age(tmp_path / name, seconds)
    remove_damaged_programs(tmp_path)
    kept = {"whole-cache", "being_written-cache", "checked_before-cache", "cut.txt", ".checked"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    # The next check reads the entry that was being written.
    assert (tmp_path / ".checked").stat().st_mtime < (tmp_path / "being_written-cache").stat().st_mtime
    age(tmp_path / "being_written-cache", 30.0)
    remove_damaged_programs(tmp_path)
    assert (tmp_path / "being_written-cache").exists()
    age(tmp_path / ".checked", HOUR)
    age(tmp_path / "being_written-cache", 100.0)  # the writer was killed
    remove_damaged_programs(tmp_path)
    assert not (tmp_path / "being_written-cache").exists()
