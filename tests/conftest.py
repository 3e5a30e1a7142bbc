"""Real data, a cache of compiled programs, each worker's own cores, and compiled programs freed now and then."""

import functools
import gc
import importlib.metadata
import lzma
import os
import pathlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from bert_jax.pretraining import requirements

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Many tests compile the same step. Set before the first import of JAX, and inherited by the processes tests start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")

# The lines of Python that an operation comes from, which tests of programs do not read: a tenth of the time to compile.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# Tests compile much and compute little: without LLVM's passes and with XLA's older emitter of loops, which makes the
# same programs of HLO, compiling takes a third of the time. JAX 0.11 has no older emitter, and ends at a flag that it
# does not know. A level in the environment takes the place of all this.
LEVEL, HAS_OLDER_EMITTER = "xla_backend_optimization_level", importlib.metadata.version("jaxlib").startswith("0.10.")
FLAGS = f"--{LEVEL}=0 --xla_cpu_use_fusion_emitters=false" if HAS_OLDER_EMITTER else f"--{LEVEL}=1"
# Parts of a program for several threads take a fifth of the time to compile, and a worker has one core.
FLAGS += " --xla_cpu_parallel_codegen_split_count=1" if HAS_OLDER_EMITTER else ""
if LEVEL not in (given := os.environ.get("XLA_FLAGS", "")):
    os.environ["XLA_FLAGS"] = f"{given} {FLAGS}".strip()
# Tracing makes millions of objects, which Python's collector would visit again and again.
gc.set_threshold(200_000, 50, 1_000)

# A shell that runs the tests in the background ignores Ctrl-C for them and for all that they start; nohup, SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Workers of `pytest -n` share out the cores: threads of two workers on the same cores keep each other waiting.
worker, workers = (os.environ.get(name) for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"))
if worker and workers and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    number = int(worker.removeprefix("gw")) % len(cores)
    os.sched_setaffinity(0, cores[number :: int(workers)])


# With `--no-loadscope-reorder`, workers begin with these files. Otherwise one worker would run the last of these files
# alone, because xdist sorts files by the number of tests.
LONG_FILES = {
    "test_distributed.py",
    "test_finetune_trainings.py",
    "test_record.py",
    "test_resume.py",
    "test_sharding.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


SECONDS_OF_RELEASE = 15.0  # CPU time of tests between two releases of their programs
released_at = time.process_time()


@pytest.fixture(scope="module", autouse=True)
def released() -> Iterator[None]:
    """Drop compiled programs after every few files: a process that keeps those of hundreds of files slows down.

    A release takes a third of a second, and the next file traces the functions of JAX again. Python's collector need
    not visit the objects that are left, which belong to libraries.
    """
    global released_at
    yield
    jax = sys.modules.get("jax")
    if jax and time.process_time() - released_at > SECONDS_OF_RELEASE:
        jax.clear_caches()
        gc.collect()
        gc.freeze()
        released_at = time.process_time()


SAFE_PATH = os.environ.get("PYTHONSAFEPATH")


@pytest.fixture(autouse=True)
def restored_safe_path() -> None:
    """`run`, called in this process, sets PYTHONSAFEPATH; programs of later tests import from the working directory."""
    if SAFE_PATH is None:
        os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture(scope="session", autouse=True)
def versions_are_read_once() -> None:
    """Each new run writes the versions of 150 packages, which takes a sixth of a second and changes in no test."""
    requirements.installed_versions = functools.cache(requirements.installed_versions)


@pytest.fixture(autouse=True)
def nothing_said_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb that a slow machine keeps for seconds says on stderr how long it has worked; tests compare stderr."""
    monkeypatch.setattr("bert_jax.console.QUIET_SECONDS", 3600.0)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The real texts, vocabularies and vectors of tests/samples, with plain vocabularies: see its README.md."""
    place = tmp_path_factory.mktemp("real") / "samples"
    shutil.copytree(ROOT / "tests" / "samples", place)
    for packed in place.rglob("*.xz"):
        if packed.suffixes[-2:] != [".tar", ".xz"]:
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
            packed.unlink()
    return place


@pytest.fixture(scope="session", params=["samples", pytest.param("shared", marks=pytest.mark.shared)])
def real_data(request: pytest.FixtureRequest) -> pathlib.Path:
    """The samples; and with `make test-shared`, the whole data sets that lie beside a developer's checkout.

    The directory's name is "samples" or "data": expected numbers are written as `{"samples": 3, "data": 30}`.
    """
    if request.param == "samples":
        return request.getfixturevalue("samples")
    place = ROOT.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip("the whole data sets (../shared/data) are not beside this checkout")
    return place
