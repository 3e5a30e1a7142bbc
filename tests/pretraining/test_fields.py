"""Fields that a run would not read are refused when it begins."""

import pytest

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import PretrainConfig, read_config
from bert_jax.errors import UserError
from bert_jax.pretraining.fields import check_fields

CAUSAL = ("objective=left_to_right", "model.causal=True", "data.sentence_pairs=full_sentences")


def config(recipe: str | None, *overrides: str) -> PretrainConfig:
    return read_config(PretrainConfig, recipe, [f"--config.{one}" for one in overrides])


@pytest.mark.parametrize(
    ("override", "default"),
    [
        ("data.masking=span", "token"),
        ("data.random_token_fraction=0.0", "0.1"),
        ("data.mask_probability=0.3", "0.15"),
        ("train.phases[0].mask_probability=0.3", "None"),
        ("train.phases[0].mask_probability_end=0.1", "None"),
    ],
)
def test_settings_of_masks_are_refused_without_masks(override: str, default: str) -> None:
    check_fields(config(None, *CAUSAL))
    check_fields(config(None, override))
    with pytest.raises(UserError) as error:
        check_fields(config(None, *CAUSAL, override))
    assert str(error.value).startswith(f"config.{override.partition('=')[0]} has no effect with config.objective=left")
    assert str(error.value).endswith(f"set it to {default}")


def test_a_recipe_with_masks_says_what_to_set() -> None:
    unset = [f"train.phases[{phase}].mask_probability{end}=None" for phase in (0, 1) for end in ("", "_end")]
    with pytest.raises(UserError, match=r"phases\[0\]\.mask_probability has no effect .*; set it to None"):
        check_fields(config("small_cpu", *CAUSAL))
    check_fields(config("small_cpu", *CAUSAL, *unset))


@pytest.mark.parametrize("rule", SENTENCE_PAIRS)
def test_short_pairs_are_refused_without_pairs(rule: str) -> None:
    found = config(None, f"data.sentence_pairs={rule}", "data.short_seq_probability=0.0")
    if SENTENCE_PAIRS[rule].num_texts == 2:
        check_fields(found)
    else:
        with pytest.raises(UserError, match=f"short_seq_probability has no effect with .*={rule}, .*; set it to 0.1"):
            check_fields(found)
