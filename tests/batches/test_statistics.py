"""Figures of a corpus against counts of the words it was made from, and of sequences against a loop over them."""

import collections
import random
import re

import numpy as np
import pytest

from bert_jax.batches import statistics
from bert_jax.batches.pipeline import make_sequences
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.batches.statistics import (
    QUANTILES,
    distribution,
    document_sizes,
    find_duplicates,
    sequence_figures,
    token_figures,
)
from bert_jax.config import DataConfig
from bert_jax.corpus.store import open_corpus
from bert_jax.tokenizer import load_tokenizer
from tests.helpers.memory_corpus import MASK, MemorySplit, random_documents
from tests.helpers.written_corpus import WORDS, sentence, text, write_corpus

UNKNOWN = "§"


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(1)
    found = [text(rng, rng.randint(1, 20)) for _ in range(200)]
    found += found[:30] + found[:10]  # copies: two and three of each
    found += [" ".join(reversed(one.split(". "))) for one in found[40:60]]  # the same words in another order
    found += [f"{UNKNOWN} {sentence(rng, 3)}" for _ in range(5)]
    found += [f"Xyz {sentence(rng, 2)}" for _ in range(5)]  # a word in three pieces
    long = text(rng, 1000)  # several records; two of these differ in the last word alone
    found += [long, long, f"{long[:-5]}bedu.", *(one.replace("a", "á") for one in found[60:80])]
    return found


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    return open_corpus(write_corpus(tmp_path_factory.mktemp("statistics"), texts, heldout_fraction=0.2))


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return load_tokenizer(corpus.tokenizer_directory)


def contents(split):
    """Return the ids of each document, read one at a time."""
    bounds = zip(split.first_record[:-1], split.first_record[1:], strict=True)
    return [tuple(split.read(np.arange(first, stop))[0].tolist()) for first, stop in bounds]


def spelled(texts):
    """Return the words, pieces and periods of each text, as the vocabulary has them."""
    return [re.findall(rf"[a-z]+|\.|{UNKNOWN}", one.lower().replace("á", "a")) for one in texts]


def test_distribution():
    rng = np.random.default_rng(0)
    for lengths in (rng.integers(1, 9, 7), rng.geometric(0.01, 1000), np.array([5]), np.array([0, 0, 1, 2, 3, 4])):
        found = distribution(lengths)
        assert found.quantiles == tuple(np.percentile(lengths, 100 * np.array(QUANTILES), method="inverted_cdf"))
        assert found.number == len(lengths)
        assert found.mean == pytest.approx(lengths.mean())
        bars = collections.Counter(max(0, int(length).bit_length() - 1) for length in lengths)
        assert list(found.doublings) == [bars[power] for power in range(max(bars) + 1)]
    assert distribution(np.zeros(0, np.int64)) == (0, 0.0, (0,) * len(QUANTILES), ())


def test_sizes_of_documents(corpus, texts):
    found = [document_sizes(corpus.split(name)) for name in ("train", "heldout")]
    tokens = sorted(np.concatenate([tokens for tokens, _ in found]).tolist())
    sentences = sorted(np.concatenate([sentences for _, sentences in found]).tolist())
    # A word of three tokens, and a period per sentence except in the texts that were reversed.
    assert tokens == sorted(len(words) + 2 * ("xyz" in words) for words in spelled(texts))
    assert sum(sentences) == sum(corpus.split(name).num_sentences for name in ("train", "heldout"))
    assert len(sentences) == len(texts)


def test_figures_of_tokens(tmp_path, texts):
    train = open_corpus(write_corpus(tmp_path, texts)).split("train")
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    found = token_figures(train, tokenizer)
    words = collections.Counter(word for one in spelled(texts) for word in one)
    number = sum(words.values()) + 2 * words["xyz"]
    assert found.tokens == number == found.counts.sum()
    assert found.records == found.num_records == train.num_records > len(texts)
    for word in (*WORDS, "."):
        assert found.counts[tokenizer.tokens.index(word)] == words[word]
    for piece in ("x", "##y", "##z"):
        assert found.counts[tokenizer.tokens.index(piece)] == words["xyz"]
    assert found.unknown == words[UNKNOWN] / number
    assert found.tokens_per_word == number / sum(words.values())
    assert found.sentences == distribution(train.read(np.arange(train.num_records))[1])


def test_characters_of_words(tmp_path):
    # The period is a word; decoding joins it without a space.
    corpus = write_corpus(tmp_path, ["Badu badu bed.", "Bed."])
    found = token_figures(open_corpus(corpus).split("train"), load_tokenizer(tmp_path / "tokenizer"))
    assert found.characters_per_word == (4 + 4 + 3 + 1 + 3 + 1) / 6
    assert found.tokens_per_word == (1 + 1 + 3 + 1 + 3 + 1) / 6
    assert found.sentences == distribution(np.array([6, 4]))


def test_a_sample_of_tokens_is_like_the_whole(corpus, tokenizer):
    split = corpus.split("train")
    whole, part = token_figures(split, tokenizer), token_figures(split, tokenizer, limit=split.num_tokens // 2)
    assert split.num_tokens / 4 < part.tokens <= split.num_tokens // 2
    assert part.records < part.num_records == split.num_records
    assert (part.counts <= whole.counts).all()
    assert np.corrcoef(part.counts, whole.counts)[0, 1] > 0.95
    assert (token_figures(split, tokenizer, limit=split.num_tokens // 2).counts == part.counts).all()


def test_duplicates(corpus, texts):
    train, heldout = (corpus.split(name) for name in ("train", "heldout"))
    found = find_duplicates(train, heldout)
    known = set(contents(train))
    assert found.exact
    assert (found.train, found.heldout) == (train.num_documents, heldout.num_documents)
    assert found.repeated == train.num_documents - len(known) > 20
    # Texts that differ in accents alone, which the vocabulary lacks, are in both splits.
    assert found.leaked == sum(one in known for one in contents(heldout)) > 0


def test_duplicates_hash_long_documents_in_pieces(corpus, monkeypatch):
    splits = [corpus.split(name) for name in ("train", "heldout")]
    expected = find_duplicates(*splits)
    monkeypatch.setattr(statistics, "_RECORDS_AT_ONCE", 3)
    assert find_duplicates(*splits) == expected


def test_duplicates_of_a_sample(corpus):
    train, heldout = (corpus.split(name) for name in ("train", "heldout"))
    found = find_duplicates(train, heldout, limit=3000)
    assert not found.exact
    assert 0 < found.train < train.num_documents
    # All documents of some sizes or none: a document is read together with its copies.
    everything = find_duplicates(train, heldout)
    assert 0 < found.repeated < everything.repeated
    fractions = [each.repeated / each.train for each in (found, everything)]
    assert fractions[0] == pytest.approx(fractions[1], abs=0.1)


def test_duplicates_without_held_out_documents(tmp_path):
    corpus = open_corpus(write_corpus(tmp_path, ["Badu bedu.", "Bedu badu.", "Badu bedu.", "Badu."]))
    assert find_duplicates(corpus.split("train"), corpus.split("heldout")) == (True, 4, 1, 0, 0)


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
    assert (found.masked, found.kept, found.random) == pytest.approx((masked / number, kept / number, other / number))
    assert found.idle == pytest.approx(idle / epoch)
    assert found.labelled == (
        pytest.approx(ones / examples) if SENTENCE_PAIRS[config.sentence_pairs].num_texts == 2 else None
    )


def test_figures_of_the_first_sequences():
    split = MemorySplit(random_documents(0, 300, (3, 9), (5, 30)))
    sequences = make_sequences(split, split.symbols(), 32, 0, DataConfig())
    whole, part = sequence_figures(sequences, MASK), sequence_figures(sequences, MASK, number=1000)
    assert part.num_sequences == 1000 < whole.num_sequences == whole.num_per_epoch == part.num_per_epoch
    for name in ("fill", "predicted", "masked", "random", "kept", "labelled"):
        assert getattr(part, name) == pytest.approx(getattr(whole, name), abs=0.05)
