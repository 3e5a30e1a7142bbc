"""Figures of sequences against a loop over them."""

import numpy as np
import pytest

from bert_jax.batches.pipeline import make_sequences
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.batches.statistics import sequence_figures
from bert_jax.config import DataConfig
from tests.helpers.memory_corpus import MASK, MemorySplit, random_documents


@pytest.mark.parametrize(
    "config",
    [
        DataConfig(),
        DataConfig(sentence_pairs="sentence_order", masking="whole_word", packing=4),
        DataConfig(sentence_pairs="full_sentences", masking="span", mask_token_fraction=0.5, random_token_fraction=0.3),
        DataConfig(sentence_pairs="none", packing=3, mask_probability=0.3),
    ],
    ids=lambda config: config.sentence_pairs,
)
def test_figures_of_sequences(config):
    split = MemorySplit(random_documents(0, 40, (1, 9), (1, 30)))
    sequences = make_sequences(split, split.symbols(), 64, 5, config)
    found = sequence_figures(sequences, MASK)
    real = padding = kept = masked = other = idle = examples = ones = 0
    for number in range(sequences.num_per_epoch):
        row = {name: values[0] for name, values in sequences.batch(np.array([number])).items()}
        real += (row["attention_mask"] == 1).sum()
        padding += (row["attention_mask"] == 0).sum()
        predictions = [i for i, weight in enumerate(row["masked_weights"]) if weight]
        idle += not predictions
        for i in predictions:
            read, wanted = row["input_ids"][row["masked_positions"][i]], row["masked_labels"][i]
            masked += read == MASK
            kept += read == wanted
            other += read not in (MASK, wanted)
        examples += np.atleast_1d(row["example_weights"]).sum()
        ones += np.atleast_1d(row.get("next_sentence_labels", 0)).sum()
    number = masked + kept + other
    epoch = sequences.num_per_epoch
    assert (found.num_sequences, found.num_per_epoch, found.seq_len) == (epoch, epoch, 64)
    assert found.fill == pytest.approx(real / (real + padding))
    assert found.examples == pytest.approx(examples / epoch)
    assert found.predicted == pytest.approx(number / real)
    assert (found.masked, found.unchanged, found.random) == pytest.approx(
        (masked / number, kept / number, other / number)
    )
    assert found.idle == pytest.approx(idle / epoch)
    assert found.positive_pairs == (
        pytest.approx(ones / examples) if SENTENCE_PAIRS[config.sentence_pairs].num_texts == 2 else None
    )


def test_figures_of_the_first_sequences():
    split = MemorySplit(random_documents(0, 300, (3, 9), (5, 30)))
    sequences = make_sequences(split, split.symbols(), 32, 0, DataConfig())
    whole, part = sequence_figures(sequences, MASK), sequence_figures(sequences, MASK, num_sequences=1000)
    assert part.num_sequences == 1000 < whole.num_sequences == whole.num_per_epoch == part.num_per_epoch
    for name in ("fill", "predicted", "masked", "random", "unchanged", "positive_pairs"):
        assert getattr(part, name) == pytest.approx(getattr(whole, name), abs=0.05)
