"""Benchmarks refuse to show rows of a model or corpus as rows of a different model or corpus."""

import pathlib

import pytest

from benchmarks.same_inputs import check_inputs


def test_results_of_other_inputs_are_refused(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "tables"
    check_inputs(output, corpus="a", epochs=8)
    (output / "results").mkdir()
    check_inputs(output, corpus="a", epochs=8)  # resumed
    with pytest.raises(SystemExit, match=r"results of other inputs \(corpus a, not b\); choose another --output"):
        check_inputs(output, corpus="b", epochs=8)
    with pytest.raises(SystemExit, match="epochs 8, not 9"):
        check_inputs(output, corpus="a", epochs=9)
    check_inputs(output, corpus="a", epochs=8)  # a refused command changes nothing


def test_results_of_unknown_inputs_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "results.jsonl").touch()
    with pytest.raises(SystemExit, match=r"results of unknown inputs, without inputs\.json"):
        check_inputs(tmp_path, corpus="a")
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]
