"""Errors that are worded in one place."""

import pytest

from bert_jax.errors import UserError, needs_packages


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
