"""Fields that a run would not read are refused: with values of a choice when the config is read, else at the start."""

import pytest

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import (
    DataConfig,
    EncoderConfig,
    FinetuneConfig,
    OptimizerConfig,
    PretrainConfig,
    fields_of,
    read_config,
    refuse_fields_without_effect,
)
from bert_jax.errors import UserError

CAUSAL = ("objective=left_to_right", "model.causal=True", "data.sentence_pairs=full_sentences")


def config(recipe: str | None, *overrides: str) -> PretrainConfig:
    return read_config(PretrainConfig, recipe, [f"--config.{override}" for override in overrides])


@pytest.mark.parametrize(
    ("override", "default"),
    [
        ("data.masking=span", "token"),
        ("data.random_token_fraction=0.0", "0.1"),
        ("data.mask_probability=0.3", "0.15"),
        ("data.rarity_power=0.5", "0.0"),
        ("train.phases[0].mask_probability=0.3", "None"),
        ("train.phases[0].mask_probability_end=0.1", "None"),
        ("train.phases[0].rarity_power=0.5", "None"),
    ],
)
def test_settings_of_masks_are_refused_without_masks(override: str, default: str) -> None:
    refuse_fields_without_effect(config(None, *CAUSAL))
    refuse_fields_without_effect(config(None, override))
    with pytest.raises(UserError) as error:
        refuse_fields_without_effect(config(None, *CAUSAL, override))
    assert str(error.value).startswith(f"config.{override.partition('=')[0]} has no effect with config.objective=left")
    assert str(error.value).endswith(f"set it to {default}")


@pytest.mark.parametrize(
    ("override", "default"),
    [("data.masking=span", "token"), ("data.mask_probability=0.3", "0.15"), ("data.rarity_power=0.5", "0.0")],
)
def test_settings_of_masks_are_refused_where_no_phase_has_masks(override: str, default: str) -> None:
    first, second = (
        [f"train.phases[{phase}].{value}" for value in ("objective=left_to_right", *unset)]
        for phase, unset in enumerate([("mask_probability=None", "mask_probability_end=None")] * 2)
    )
    refuse_fields_without_effect(config("small_cpu", override, *first))
    refuse_fields_without_effect(config("small_cpu", override, *first, "train.phases[1].objective=masked_tokens"))
    refuse_fields_without_effect(config("small_cpu", *first, *second))
    with pytest.raises(UserError) as error:
        refuse_fields_without_effect(config("small_cpu", override, *first, *second))
    choice = "config.train.phases[0].objective=left_to_right"
    assert str(error.value) == f"config.{override.partition('=')[0]} has no effect with {choice}; set it to {default}"


def test_the_fix_names_the_field_of_the_phase_where_a_phase_may_choose_more() -> None:
    fraction = "train.phases[0].left_to_right_fraction=0.25"
    with pytest.raises(UserError, match=r", or config\.train\.phases\[0\]\.objective to hybrid$"):
        refuse_fields_without_effect(config("small_cpu", fraction))
    refuse_fields_without_effect(config("small_cpu", fraction, "train.phases[0].objective=hybrid"))


def test_a_recipe_with_unused_masks_names_the_field_to_unset() -> None:
    unset = [f"train.phases[{phase}].mask_probability{end}=None" for phase in (0, 1) for end in ("", "_end")]
    with pytest.raises(UserError, match=r"phases\[0\]\.mask_probability has no effect .*; set it to None"):
        refuse_fields_without_effect(config("small_cpu", *CAUSAL))
    refuse_fields_without_effect(config("small_cpu", *CAUSAL, *unset))


@pytest.mark.parametrize("rule", SENTENCE_PAIRS)
def test_short_pairs_are_refused_without_pairs(rule: str) -> None:
    pairs = config(None, f"data.sentence_pairs={rule}", "data.short_seq_probability=0.0")
    if SENTENCE_PAIRS[rule].num_texts == 2:
        refuse_fields_without_effect(pairs)
    else:
        with pytest.raises(UserError, match=f"short_seq_probability has no effect with .*={rule}; set it to 0.1"):
            refuse_fields_without_effect(pairs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, ""),
        ({"masking": "ngram", "max_span_length": 2}, ""),
        ({"masking": "span", "max_span_length": 4, "span_end_probability": 0.5}, ""),
        (
            {"max_span_length": 4},
            "config.data.max_span_length has no effect with config.data.masking=token; set it to None, or "
            "config.data.masking to ngram or span",
        ),
        ({"masking": "whole_word", "max_span_length": 4}, "config.data.masking=whole_word; set it to None"),
        ({"masking": "ngram", "span_end_probability": 0.5}, "set it to 0.2, or config.data.masking to span"),
    ],
)
def test_fields_that_a_rule_of_masking_does_not_read(values: dict[str, object], message: str) -> None:
    """In a section alone, whose fields of other sections are not known."""
    if message:
        with pytest.raises(UserError) as error:
            refuse_fields_without_effect(DataConfig(**values), "config.data")  # type: ignore[arg-type]
        assert message in str(error.value)
    else:
        refuse_fields_without_effect(DataConfig(**values), "config.data")  # type: ignore[arg-type]


def test_fields_that_an_optimizer_or_a_schedule_does_not_read() -> None:
    muon = OptimizerConfig(name="muon", momentum=0.9, nesterov=False, muon_learning_rate=0.1)
    refuse_fields_without_effect(muon, "config.optimizer")
    with pytest.raises(
        UserError, match=r"momentum has no effect with config\.optimizer\.name=adamw; set it to 0\.95, or"
    ):
        config(None, "optimizer.momentum=0.9")
    with pytest.raises(UserError, match=r"decay_power has no effect with .*schedule=cosine; .* to bert or electra or"):
        config(None, "optimizer.schedule=cosine", "optimizer.decay_power=0.5")
    with pytest.raises(UserError, match=r"layer_decay has no effect with .*freeze_encoder=True; set it to 1.0, or"):
        config(None, "optimizer.freeze_encoder=True", "optimizer.layer_decay=0.8")


def test_a_shipped_recipe_trains_the_head_alone() -> None:
    """The recipe sets `layer_decay`, which has no effect with a frozen encoder."""
    config = read_config(FinetuneConfig, "electra_glue", ["--config.optimizer.freeze_encoder=True"])
    refuse_fields_without_effect(config)
    assert (config.optimizer.layer_decay, config.optimizer.freeze_encoder) == (0.8, True)


def test_fields_of_the_section_of_another_objective() -> None:
    with pytest.raises(UserError) as error:
        config(None, "distillation.temperature=4.0")
    assert str(error.value) == (
        "config.distillation.temperature has no effect with config.objective=masked_tokens; set it to 2.0, or "
        "config.objective to distillation"
    )


def test_an_architecture_alone() -> None:
    refuse_fields_without_effect(EncoderConfig(norm_position="pre", first_attention_norm=False), "model")
    with pytest.raises(UserError, match=r"^model\.first_attention_norm has no effect with model\.norm_position=post"):
        refuse_fields_without_effect(EncoderConfig(first_attention_norm=False), "model")
    with pytest.raises(
        UserError, match=r"model\.global_every has no effect with model\.local_window=None; .* or change"
    ):
        refuse_fields_without_effect(EncoderConfig(global_every=3), "model")


@pytest.mark.parametrize("kind", [PretrainConfig, FinetuneConfig])
def test_the_metadata_of_a_field_names_fields_that_exist(kind: type) -> None:
    keys = {key: field for key, field, _ in fields_of(kind)}
    phase_fields = {key.rpartition(".")[2] for key in keys if key.startswith("train.phases[0].")}
    for key, field in keys.items():
        section = key.rpartition(".")[0]
        for condition in field.metadata["read_by"]:
            choice = keys.get(f"{section}.{condition.choice}") or keys.get(condition.choice)
            assert choice, key
            table = choice.metadata["table"]
            assert table or not condition.row_property, key
        replaced = field.metadata["replaced_by_phase"]
        assert replaced is None or replaced in phase_fields or kind is FinetuneConfig, key
