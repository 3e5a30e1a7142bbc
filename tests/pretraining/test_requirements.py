"""`requirements.lock`: the versions that a resumed run has to install again."""

import importlib.metadata
import pathlib

import pytest
from packaging.requirements import Requirement

from bert_jax.errors import UserError
from bert_jax.pretraining import requirements
from bert_jax.pretraining.requirements import LOCK, installed_versions, write_or_compare_versions

# name, version -> its requirements and the extras that it has.
PACKAGES = {
    ("qq-root", "1.0"): (
        ["qq-array>=1", "qq_Fast[wide]", "qq-chip; extra == 'tpu'", "qq-old; python_version < '3'"],
        ["tpu"],
    ),
    ("qq-array", "2.1+cpu"): (["qq-root", "this is no requirement"], []),  # a circle
    ("qq.fast", "3.0rc1"): (["qq-lane; extra == 'wide'", "qq-deep; extra == 'deep'"], ["wide", "deep"]),
    ("qq-lane", "4.0"): ([], []),
    ("qq-deep", "5.0"): ([], []),
    ("qq-old", "6.0"): ([], []),
    ("qq-other", "7.0"): ([], []),
}


@pytest.fixture
def packages(tmp_path, monkeypatch) -> pathlib.Path:
    """Installed packages; `qq-chip` is not."""
    place = tmp_path / "packages"
    for (name, version), (needs, extras) in PACKAGES.items():
        directory = place / f"{name.replace('-', '_')}-{version}.dist-info"
        directory.mkdir(parents=True)
        lines = [f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {need}" for need in needs] + [f"Provides-Extra: {extra}" for extra in extras]
        (directory / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        (directory / "RECORD").write_text(f"{directory.name}/METADATA,,\n")  # pip's, which a checkout lacks
    monkeypatch.syspath_prepend(place)
    return place


def test_installed_versions_cover_the_requirements_of_a_package(packages) -> None:
    wanted = {"qq-root": "1.0", "qq-array": "2.1", "qq-fast": "3.0rc1", "qq-lane": "4.0"}
    assert installed_versions("qq-root") == wanted
    (packages / "qq_root-1.0.dist-info" / "direct_url.json").write_text('{"url": "file:///home/me/secret"}')
    del wanted["qq-root"]
    assert installed_versions("qq-root") == wanted
    for name in ("direct_url.json", "RECORD"):
        (packages / "qq_root-1.0.dist-info" / name).unlink()
    assert installed_versions("qq-root") == wanted
    assert installed_versions("qq-none") == {}


def test_the_lock_of_this_installation(tmp_path) -> None:
    """Against the versions that each package reports, and the parser of requirements."""
    write_or_compare_versions(tmp_path, pytest.fail)
    about, *pins = (tmp_path / LOCK).read_text().splitlines()
    assert about.startswith("# ")
    needs = {need.name: need for need in map(Requirement, pins)}
    for name in ("jax", "jaxlib", "numpy", "orbax-checkpoint", "tensorstore", "ml-dtypes"):
        assert str(needs[name].specifier) == f"=={importlib.metadata.version(name)}"
    assert "bert-jax" not in needs  # installed from a checkout, here as in `make test`
    write_or_compare_versions(tmp_path, pytest.fail)  # nothing differs


def test_a_resumed_run_names_changed_versions_and_keeps_the_lock(tmp_path, packages, monkeypatch) -> None:
    said: list[str] = []
    text = "# of the first start\nqq-array==2.0\nqq-fast==3.0rc1\nqq-gone==1\nqq_lane==3.9\n"
    (tmp_path / LOCK).write_text(text)
    write_or_compare_versions(tmp_path, said.append)
    (line,) = said
    assert "(qq-array 2.0 -> 2.1, qq_lane 3.9 -> 4.0)" in line
    assert f"--constraint {tmp_path / LOCK}" in line
    assert (tmp_path / LOCK).read_text() == text
    monkeypatch.setattr(requirements, "MAX_NAMES", 1)
    write_or_compare_versions(tmp_path, said.append)
    assert "(qq-array 2.0 -> 2.1 and 1 more)" in said[1]


def test_a_damaged_lock_is_reported_and_ends_no_run(tmp_path) -> None:
    said: list[str] = []
    (tmp_path / LOCK).write_bytes(b"\xff\xfe")
    write_or_compare_versions(tmp_path, said.append)
    (line,) = said
    assert line.startswith(f"{tmp_path / LOCK}: cannot be read")
    assert (tmp_path / LOCK).read_bytes() == b"\xff\xfe"


def test_a_lock_that_cannot_be_written(tmp_path) -> None:
    with pytest.raises(UserError, match="choose another --workdir"):
        write_or_compare_versions(tmp_path / "nowhere", pytest.fail)
