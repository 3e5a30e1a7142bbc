"""Words in pieces and windows: no word and no label is lost."""

import dataclasses
import itertools

import numpy as np
import pytest
import tokenizers
from published_data import sentences
from tokenizers import models, normalizers, pre_tokenizers

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import SPELLED
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.kinds.token_classification import OVERLAP, word_values_from_tokens, word_windows
from bert_jax.tokenizer import load_tokenizer

COUNTS = {
    "samples": {"wnut17": (900, 14999), "wikigold": (242, 5887), "klue-ner": (120, 7049)},
    "data": {"wnut17": (5690, 101857), "wikigold": (1696, 39007), "klue-ner": (5000, 285929)},
}


def reference(samples, vocabulary):
    """The library's own alignment of words, from the vocabulary files alone."""
    place = samples / "vocab" / vocabulary
    if (place / "vocab.txt").exists():
        lines = (place / "vocab.txt").read_text(encoding="utf-8").split("\n")
        numbers = {token: number for number, token in enumerate(lines) if token}
        made = tokenizers.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(lowercase="uncased" in vocabulary)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        made = tokenizers.Tokenizer(models.BPE.from_file(str(place / "vocab.json"), str(place / "merges.txt")))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


@pytest.mark.parametrize(
    ("data", "vocabulary", "max_seq_len"),
    [
        ("wnut17", "bert-base-cased", 512),
        ("wnut17", "roberta-base", 24),
        ("wikigold", "bert-base-uncased", 24),
        ("wikigold", "roberta-base", 512),
        ("klue-ner", "koelectra", 512),
        ("klue-ner", "roberta-base", 24),
    ],
)
def test_every_word_of_real_sentences_keeps_its_label_on_its_first_piece(
    real_data, samples, data, vocabulary, max_seq_len
):
    examples = sentences(real_data, data)
    words = sum(len(example["tokens"]) for example in examples)
    assert (len(examples), words) == COUNTS[real_data.name][data]
    names = sorted({name for example in examples for name in example["labels"]})
    examples = [example | {"labels": [names.index(name) for name in example["labels"]]} for example in examples]
    tokenizer = dataclasses.replace(load_tokenizer(samples / "vocab" / vocabulary), spaces_words=True)
    made, counts = make_features(
        KINDS["token_classification"], examples, tokenizer, TaskConfig(max_seq_len=max_seq_len)
    )
    assert max(one.length for one in made) <= max_seq_len
    assert counts["split_sentences"] == np.count_nonzero(np.bincount([one.example for one in made]) > 1)

    library = reference(samples, vocabulary)
    library_found = library.encode_batch(
        [example["tokens"] for example in examples], is_pretokenized=True, add_special_tokens=False
    )
    first_pieces = []
    for example, found in zip(examples, library_found, strict=True):
        pieces = dict(zip(reversed(found.word_ids), reversed(found.ids), strict=True))
        first_pieces.append([pieces.get(word, tokenizer.unk_id) for word in range(len(example["tokens"]))])

    seen = [[0] * len(example["tokens"]) for example in examples]
    for one in made:
        labels = one.targets["token_labels"]
        assert labels.dtype == one.alignment["words"].dtype == np.int32
        assert len(labels) == len(one.alignment["words"]) == len(one.input_ids) == one.type_1_start
        assert np.array_equal(one.targets["token_weights"] > 0, one.alignment["words"] >= 0)
        assert not labels[one.alignment["words"] < 0].any()
        assert one.input_ids[0] == tokenizer.cls_id
        assert one.input_ids[-1] == tokenizer.sep_id
        gold, firsts, counted = examples[one.example]["labels"], first_pieces[one.example], seen[one.example]
        for word, label, piece in zip(
            one.alignment["words"].tolist(), labels.tolist(), one.input_ids.tolist(), strict=True
        ):
            if word >= 0:
                counted[word] += 1
                assert label == gold[word]
                assert piece == firsts[word]
    assert all(count == 1 for counted in seen for count in counted)
    assert sum(map(len, seen)) == words
    labels = [one.targets["token_labels"] for one in made]
    assert word_values_from_tokens(made, labels, len(examples)) == [example["labels"] for example in examples]


@pytest.mark.parametrize("seed", range(10))
def test_windows_cover_each_word_once_with_context(seed):
    for number in range(50):
        check_windows(np.random.default_rng([seed, number]))


def check_windows(random):
    room = int(random.integers(1, 30))
    sizes = random.integers(1, 1 + random.integers(1, room + 1), size=random.integers(0, 60)).tolist()
    windows = word_windows(sizes, room)
    predicted = [word for _, words in windows for word in words]
    assert predicted == list(range(len(sizes)))
    for window, words in windows:
        assert set(words) <= set(window)
        assert sum(sizes[word] for word in window) <= room
    assert len(windows) == 1 or sum(sizes) > room
    for (before, _), (after, _) in itertools.pairwise(windows):
        assert before.start < after.start <= before.stop < after.stop
        assert sum(sizes[word] for word in range(after.start, before.stop)) <= room // OVERLAP
        # As many words as fit: one more would not.
        assert sum(sizes[word] for word in range(before.start, before.stop + 1)) > room


def test_words_are_predicted_where_they_have_the_most_context():
    windows = word_windows([1] * 20, 8)
    assert windows == [
        (range(0, 8), range(0, 7)),
        (range(6, 14), range(7, 13)),
        (range(12, 20), range(13, 20)),
    ]


def test_a_word_longer_than_a_sequence_is_truncated_and_counted(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    example = {"id": "1", "tokens": ["a", "qzxqzxqzxqzxqzx", "b"], "labels": [0, 1, 2]}
    made, counts = make_features(KINDS["token_classification"], [example], tokenizer, TaskConfig(max_seq_len=6))
    assert counts == {"split_sentences": 1, "truncated_words": 1, SPELLED: 0}
    assert all(one.length <= 6 for one in made)
    assert word_values_from_tokens(made, [one.targets["token_labels"] for one in made], 1) == [[0, 1, 2]]


def test_words_without_a_piece_and_sentences_without_a_word(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    examples = [{"id": "1", "tokens": ["\u200b", "a", " "]}, {"id": "2", "tokens": []}]
    made, counts = make_features(KINDS["token_classification"], examples, tokenizer, TaskConfig())
    assert not any(counts.values())
    assert made[0].input_ids.tolist() == [101, 100, 1037, 100, 102]
    assert made[0].targets == made[1].targets == {}
    assert made[1].input_ids.tolist() == [101, 102]
    assert word_values_from_tokens(made, [np.arange(9), np.arange(9)], 2) == [[1, 2, 3], []]


def test_each_word_needs_a_label(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    with pytest.raises(UserError, match="'s7' has 2 words and 1 labels"):
        make_features(
            KINDS["token_classification"], [{"id": "s7", "tokens": ["a", "b"], "labels": [0]}], tokenizer, TaskConfig()
        )
