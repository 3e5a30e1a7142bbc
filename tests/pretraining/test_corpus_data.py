"""Phases with masks of their own: the batches of each phase, and equal masks in every evaluation."""

import dataclasses
import pathlib

import numpy as np
import pytest

from bert_jax import config as c
from bert_jax.batches.pipeline import batch_shapes, special_ids_and_vocabulary
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.errors import UserError
from bert_jax.tasks.kinds.texts import text_features
from bert_jax.tokenizer.train import train_tokenizer
from bert_jax.training.schedules import Phase, plan_phases
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import batches_of, heldout_of

STEPS, BATCH = 40, 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Mixture:
    return open_mixture(str(generated_corpus(tmp_path_factory.mktemp("corpus"), documents=40)))


def configured(data: dict | None = None, *phases: dict) -> c.PretrainConfig:
    made = c.pretrain_config()
    made.train.update(steps=STEPS, batch_size=BATCH)
    made.train.phases = c.phases(*({"seq_len": 48} | phase for phase in phases or ({},)))
    made.data.update({"sentence_pairs": "full_sentences", "num_threads": 1} | (data or {}))
    made.evaluate.update(num_sequences=32, batch_size=16)
    return c.resolve(c.PretrainConfig, made)


def batches(config: c.PretrainConfig, corpus: Mixture, phase: Phase, step: int, count: int) -> list[dict]:
    reading = batches_of(config, corpus)(phase, step)
    found = [next(reading) for _ in range(count)]
    reading.close()
    return found


def predictions(batch: dict) -> tuple[np.ndarray, np.ndarray]:
    """Of each sequence, the number of predicted tokens and of all tokens."""
    return batch["masked_weights"].sum(axis=1), batch["attention_mask"].sum(axis=1)


@pytest.mark.parametrize("kind", ["wordpiece", "byte_level"])
def test_pairs_have_the_token_types_of_fine_tuning(tmp_path: pathlib.Path, kind: str) -> None:
    """The second text has type 1 with a BERT tokenizer, and type 0 with a byte-level tokenizer, as in RoBERTa."""
    texts = str(generated_corpus(tmp_path).parent / "texts")
    train_tokenizer([[texts]], 300, str(tmp_path / kind), kind=kind)
    prepare([texts], tmp_path / kind, tmp_path / "pairs", workers=1, heldout_fraction=0.1)
    pairs = open_mixture(str(tmp_path / "pairs"))
    config = configured({"sentence_pairs": "next_sentence"})
    phase = plan_phases(config.train)[0]
    (batch,) = batches(config, pairs, phase, 0, 1)
    (feature,), _ = text_features([{"text": "a", "text_pair": "b"}], pairs.tokenizer(), 48)
    assert batch["token_type_ids"].any() == (feature.type_1_start < len(feature.input_ids)) == (kind == "wordpiece")
    assert next(heldout_of(config, pairs).batches(phase))["token_type_ids"].any() == (kind == "wordpiece")


def test_each_phase_has_its_rate_and_its_mix(corpus: Mixture) -> None:
    config = configured(
        {"mask_probability": 0.2},
        {"fraction": 0.5, "mask_probability": 0.4, "mask_token_fraction": 1.0, "random_token_fraction": 0.0},
        {"fraction": 0.5},
    )
    mask = special_ids_and_vocabulary(corpus.tokenizer()).vocabulary.mask
    for phase, rate, always in zip(plan_phases(config.train), (0.4, 0.2), (True, False), strict=True):
        for batch in batches(config, corpus, phase, phase.begin, 2):
            predicted, tokens = predictions(batch)
            np.testing.assert_array_equal(predicted, np.rint(rate * tokens))
            assert batch["masked_positions"].shape[1] == int(np.ceil(rate * 48))
            read = np.take_along_axis(batch["input_ids"], batch["masked_positions"], axis=1)
            hidden = read[batch["masked_weights"] > 0] == mask
            assert hidden.all() == always


def test_a_rate_falls_with_the_number_of_the_sequence(corpus: Mixture) -> None:
    """At step s of n the rate is 30 % - 15 % s / n, whichever step the reading begins at; the width is that of 30 %."""
    config = configured({"mask_probability": 0.3}, {"fraction": 0.25}, {"fraction": 0.75, "mask_probability_end": 0.15})
    _, phase = plan_phases(config.train)
    read = batches(config, corpus, phase, phase.begin, 30)
    for step, batch in enumerate(read):
        predicted, tokens = predictions(batch)
        rates = 0.3 - 0.15 * (step * BATCH + np.arange(BATCH)) / (30 * BATCH)
        np.testing.assert_array_equal(predicted, np.maximum(1, np.rint(rates * tokens)))
        assert batch["masked_positions"].shape == (BATCH, 15)
    assert predictions(read[0])[0].sum() > 1.8 * predictions(read[-1])[0].sum()
    for name, array in batches(config, corpus, phase, phase.begin + 17, 1)[0].items():
        np.testing.assert_array_equal(array, read[17][name], err_msg=name)


def test_a_growing_batch_reads_the_sequences_of_a_constant_batch(corpus: Mixture) -> None:
    """With equal masks; with a falling rate, sequence i of n has the rate 30 % - 15 % i / n, in any batch."""
    growing = {"batch_size": 18, "batch_stages": 3}
    phases = plan_phases(configured(None, growing).train)
    num_sequences = sum((phase.end - phase.begin) * phase.batch_size for phase in phases)
    assert num_sequences == 13 * 6 + 14 * 12 + 13 * 18
    falling = {"mask_probability": 0.3, "mask_probability_end": 0.15}
    for masks in ({}, falling):
        config = configured(None, growing | masks)
        read = [
            batch
            for phase in plan_phases(config.train)
            for batch in batches(config, corpus, phase, phase.begin, phase.end - phase.begin)
        ]
        found = {name: np.concatenate([batch[name] for batch in read]) for name in read[0]}
        predicted, tokens = predictions(found)
        rates = 0.3 - 0.15 * np.arange(num_sequences) / num_sequences if masks else 0.15
        np.testing.assert_array_equal(predicted, np.maximum(1, np.rint(rates * tokens)))
        if not masks:
            constant = configured()
            (whole,) = plan_phases(constant.train)
            expected = batches(constant, corpus, whole, 0, num_sequences // BATCH)
            for name in found:
                x = np.concatenate([batch[name] for batch in expected])
                np.testing.assert_array_equal(found[name][: len(x)], x)
        for phase in plan_phases(config.train):
            again = batches(config, corpus, phase, phase.begin + 5, 1)[0]
            np.testing.assert_array_equal(again["masked_labels"], read[phase.begin + 5]["masked_labels"])


def test_every_evaluation_reads_the_same_masks(corpus: Mixture) -> None:
    """Those of a run with 15 % and BERT's mix, whatever data and phases say."""

    def heldout(config: c.PretrainConfig) -> list[list[dict]]:
        evaluated, phases = heldout_of(config, corpus), plan_phases(config.train)
        found = [list(evaluated.batches(phase)) for phase in phases]
        assert [len(batches) for batches in found] == [evaluated.num_batches(phase) for phase in phases]
        return found

    (plain,) = heldout(configured())
    other = configured(
        {"mask_probability": 0.4, "mask_token_fraction": 1.0, "random_token_fraction": 0.0, "rarity_power": 0.5},
        {"fraction": 0.5, "mask_probability": 0.3, "mask_probability_end": 0.2},
        {"fraction": 0.5, "mask_token_fraction": 0.5, "rarity_power": 1.0},
    )
    for found in heldout(other):
        for batch, expected in zip(found, plain, strict=True):
            for name, array in expected.items():
                np.testing.assert_array_equal(batch[name], array, err_msg=name)
    predicted, tokens = predictions(plain[0])
    np.testing.assert_array_equal(predicted, np.rint(0.15 * tokens))


MIX = {"mask_probability": 0.3, "mask_token_fraction": 0.75, "random_token_fraction": 0.0}


@pytest.mark.parametrize("config", [configured(MIX), configured(None, MIX)], ids=["of the run", "of the phase"])
def test_replaced_tokens_are_evaluated_with_the_mix_that_they_train_with(corpus: Mixture, config) -> None:
    config = dataclasses.replace(config, objective="replaced_tokens")
    (phase,), mask = plan_phases(config.train), special_ids_and_vocabulary(corpus.tokenizer()).vocabulary.mask
    found = {"hidden": 0, "kept": 0, "random": 0}
    for batch in heldout_of(config, corpus).batches(phase):
        predicted, tokens = predictions(batch)
        np.testing.assert_array_equal(predicted, np.rint(0.15 * tokens))
        real = batch["masked_weights"] > 0
        read = np.take_along_axis(batch["input_ids"], batch["masked_positions"], axis=1)[real]
        found["hidden"] += int((read == mask).sum())
        found["kept"] += int((read == batch["masked_labels"][real]).sum())
        found["random"] += int(((read != mask) & (read != batch["masked_labels"][real])).sum())
    assert found["random"] == 0
    assert found["hidden"] / sum(found.values()) == pytest.approx(0.75, abs=0.1)
    assert found["kept"] > 0


def test_phases_without_mask_settings_read_the_batches_of_the_default_settings(corpus: Mixture) -> None:
    (phase,) = plan_phases(configured().train)
    one, other = (
        batches(config, corpus, phase, 3, 1)[0]
        for config in (configured(), configured(None, {"mask_probability": 0.15, "mask_token_fraction": 0.8}))
    )
    assert {name: (array.shape, array.dtype.type) for name, array in one.items()} == batch_shapes(
        BATCH, 48, configured().data
    )
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array, err_msg=name)


def test_masks_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UserError, match=r"phases\[0\]: .*=1 and random_token_fraction=0\.1 add up to more than 1"):
        configured(None, {"mask_token_fraction": 1.0})
    with pytest.raises(UserError, match=r"phases\[0\]: .* add up to more than 1"):
        configured({"mask_token_fraction": 0.95})
