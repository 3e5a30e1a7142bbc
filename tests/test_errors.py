"""Errors that are worded in one place."""

import pathlib

import pytest

from bert_jax.errors import UserError, check_output, needs_packages


def test_a_missing_package_is_named_with_its_installation() -> None:
    with (
        pytest.raises(UserError) as error,
        needs_packages("x.pdf: PDF", "some-reader", ", or give a text file"),
    ):
        import a_package_that_nobody_has  # noqa: F401
    assert str(error.value) == "x.pdf: PDF needs some-reader: pip install some-reader, or give a text file"


def test_other_errors_and_results_pass() -> None:
    with needs_packages("x", "y"):
        import json
    assert json.loads("[1]") == [1]
    with pytest.raises(ZeroDivisionError), needs_packages("x", "y"):
        raise ZeroDivisionError


@pytest.mark.parametrize("spelling", ["", ".", "../{name}", "{path}"])
def test_the_current_directory_is_no_output(
    spelling: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="the current directory"):
        check_output(spelling.format(name=tmp_path.name, path=tmp_path))


def test_a_link_and_a_mount_point_are_no_outputs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty")
    check_output(tmp_path / "absent")
    for target in ("empty", "absent"):
        link = tmp_path / f"link to {target}"
        link.symlink_to(tmp_path / target)
        with pytest.raises(UserError, match="a symbolic link"):
            check_output(link)
    with pytest.raises(UserError, match="a mount point"):
        check_output("/proc")
