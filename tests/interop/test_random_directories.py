"""Random directories of transformers: bert_jax computes the same as transformers, or refuses in one line."""

import pathlib
import warnings

import pytest

from tests.helpers.opened_by_both import CRASHED, READ, UNREAD, WRONG, compare_case
from tests.helpers.random_directories import draw_case, write_case

SEED = 1  # another than in benchmarks/random_directories.py


def outcomes_of(numbers: range, directory: pathlib.Path) -> dict[int, tuple]:
    outcomes = {}
    for number in numbers:
        case = draw_case(SEED, number)
        (path := directory / str(number)).mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch and transformers
            write_case(case, path)
            outcomes[number] = (case, compare_case(case, path))
    return outcomes


def test_a_case_is_a_function_of_seed_and_number(tmp_path):
    case = draw_case(SEED, 7)
    assert case == draw_case(SEED, 7)
    contents = []
    for name in "ab":
        (tmp_path / name).mkdir()
        write_case(case, tmp_path / name)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]


def check(outcomes: dict[int, tuple]) -> None:
    for number, (case, outcome) in outcomes.items():
        assert outcome.kind != CRASHED, f"{number}: {case}: {outcome}"
        assert outcome.kind != WRONG, f"{number}: {case}: {outcome}"
        if not case.odd:
            assert outcome.kind == READ, f"{number}: {case}: {outcome}"


@pytest.mark.slow
def test_200_directories_are_read_as_by_transformers(tmp_path):
    outcomes = outcomes_of(range(200), tmp_path)
    check(outcomes)
    kinds = [outcome.kind for _, outcome in outcomes.values() if outcome.kind != UNREAD]
    assert kinds.count(READ) >= 0.85 * len(kinds)
