"""Shared fixtures: real data for tests, and a cache of compiled programs for the whole session."""

import lzma
import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Many tests compile the same step. Set before the first import of JAX, and inherited by the processes tests start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")


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
