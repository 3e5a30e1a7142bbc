"""The rows of benchmarks/recipe_ablation.py are configs that a run takes, and its table is read off results."""

import itertools
import json
import pathlib

import pytest
import recipe_ablation as ablation
from recipe_rows import BERT, CHANGES, ROWS, Job, config_of, with_masks
from recipe_table import write_table

from bert_jax.config import check_choices
from bert_jax.training.schedules import plan_phases


def values_of(row: str) -> dict:
    values = BERT.copy()
    for name in ROWS[row].changes:
        values |= CHANGES[name]
    return values


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_a_config_with_the_same_tokens(row: str) -> None:
    config = config_of(values_of(row), "corpus")
    check_choices(config)
    phases = plan_phases(config.train)
    assert ablation.tokens_until(phases, phases[-1].end) == 1_200 * 16 * 128


def test_the_ladder_leads_from_bert_to_modern_by_single_changes() -> None:
    ladder = [ROWS[row].changes for row in ("bert", *(row for row in ROWS if row.startswith("+")), "modern")]
    assert [len(changes) for changes in ladder] == list(range(len(CHANGES) + 1))
    for less, more in itertools.pairwise(ladder):
        assert more[:-1] == less


def test_masking_rates_are_linear_over_the_phases() -> None:
    phases = with_masks([{"seq_len": 64, "fraction": 0.8}, {"seq_len": 128, "fraction": 0.2}], 0.3, 0.15)
    rates = [(phase["mask_probability"], phase["mask_probability_end"]) for phase in phases]
    assert rates == [pytest.approx((0.3, 0.18)), pytest.approx((0.18, 0.15))]


def test_only_the_ends_have_several_seeds() -> None:
    found = list(ablation.jobs(["bert", "+rotary", "modern"], ["tokens", "time"], 3))
    assert len(found) == 2 * (3 + 1 + 3)
    assert found[0] == Job("bert", "tokens", 0)
    assert {job.mode for job in found[:7]} == {"tokens"}
    assert len({job.file(pathlib.Path("x")) for job in found}) == len(found)


def result(row: str, mode: str, seed: int, loss: float, seconds: float = 600.0) -> dict:
    curve = [
        {"step": step, "tokens": 2_048 * step, "seconds": seconds * step / 1_200, "loss": loss + more, "accuracy": 0.25}
        for step, more in ((600, 0.5), (1_200, 0.0))
    ]
    ends = {"steps": 1_200, "tokens": 2_457_600, "seconds": seconds, "curve": curve}
    reported = {"loss": loss + 0.1, "accuracy": 0.2, "unigram_loss": 6.4}
    return {"job": [row, mode, seed], "unigram_loss": 6.3, "left_plateau_at": 10**6, "reported": reported, **ends}


def test_the_table_has_means_deviations_and_the_picture(tmp_path: pathlib.Path) -> None:
    (tmp_path / "results").mkdir()
    for one in (
        result("bert", "tokens", 0, 6.0),
        result("modern", "tokens", 0, 4.2),
        result("modern", "tokens", 1, 4.4),
    ):
        Job(*one["job"]).file(tmp_path).write_text(json.dumps(one))
    text = write_table(tmp_path)
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in text.splitlines() if line.startswith("|")}
    assert rows["bert"][1:7] == ["1", "1,200", "2.46", "600", "6.000", "0.30"]
    assert rows["modern"][5] == "4.300 ± 0.141"
    assert rows["modern"][8] == "4.400 ± 0.141"
    assert "At equal time" not in text
    assert (tmp_path / "curves_tokens.png").stat().st_size > 10_000


def test_equal_time_is_the_time_of_bert(tmp_path: pathlib.Path) -> None:
    job = Job("+rotary", "time", 0)
    with pytest.raises(SystemExit, match="run 'bert' at equal tokens first"):
        ablation.steps_in_equal_time(job, 1_200, tmp_path)
    (tmp_path / "results").mkdir()
    for one in (result("bert", "tokens", 0, 6.0, 600), result("+rotary", "tokens", 0, 5.0, 800)):
        Job(*one["job"]).file(tmp_path).write_text(json.dumps(one))
    assert ablation.steps_in_equal_time(job, 1_200, tmp_path) == 900
    assert ablation.steps_in_equal_time(job, 600, tmp_path) == 450, "by speeds, whatever the length of the runs"
