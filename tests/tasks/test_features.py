"""Features of texts and choices, and batches of every kind."""

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.batching import collate
from bert_jax.tasks.features import SPELLED, Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.kinds.texts import truncated_pair_lengths
from bert_jax.tokenizer import load_tokenizer

PAIRS = [
    ("Who was Jim Henson ?", "Jim Henson was a nice puppet"),
    ("A much longer first text, with [SEP] spelled in it, and naïve déjà-vu words.", "Short."),
    ("Only one", None),
    ("", None),
    ("", "second alone"),
]


@pytest.fixture(scope="module")
def bert(samples):
    return load_tokenizer(samples / "vocab" / "bert-base-uncased")


@pytest.fixture(scope="module")
def roberta(samples):
    return load_tokenizer(samples / "vocab" / "roberta-base")


def library_bert(samples):
    made = tokenizers.BertWordPieceTokenizer(str(samples / "vocab/bert-base-uncased/vocab.txt"), lowercase=True)
    return made


def library_roberta(samples):
    place = samples / "vocab/roberta-base"
    made = tokenizers.Tokenizer(models.BPE.from_file(str(place / "vocab.json"), str(place / "merges.txt")))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return made


def examples_of(pairs, **label):
    return [
        {"id": str(number), "text": first, **({} if second is None else {"text_pair": second}), **label}
        for number, (first, second) in enumerate(pairs)
    ]


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_texts_and_pairs_have_the_layout_of_the_library(samples, name, request):
    library = {"bert": library_bert, "roberta": library_roberta}[name](samples)
    made, counts = make_features(
        KINDS["sequence_classification"], examples_of(PAIRS, label=1), request.getfixturevalue(name), TaskConfig()
    )
    assert counts == {"truncated_texts": 0, SPELLED: int(name == "bert")}  # [SEP] in the second text
    batch = collate(made, 64, 2, 9, len(made))
    for number, (one, (first, second)) in enumerate(zip(made, PAIRS, strict=True)):
        expected = library.encode(first, second)
        assert one.input_ids.tolist() == expected.ids
        assert one.length == len(expected.ids)
        assert one.input_ids.dtype == np.int32
        assert one.targets == {"labels": 1}
        padded = expected.type_ids + [0] * (64 - one.length)
        assert batch["token_type_ids"][number].tolist() == padded
        if second is None:
            assert one.type_1_start == one.length


def test_truncation_is_the_literal_loop():
    for limit in range(1, 16):
        for first in range(20):
            for second in range(20):
                kept = [first, second]
                while sum(kept) > limit:
                    kept[0 if kept[0] > kept[1] else 1] -= 1
                assert truncated_pair_lengths(first, second, limit) == tuple(kept)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_truncated_texts_are_counted_and_fill_the_sequence(name, request):
    tokenizer = request.getfixturevalue(name)
    made, counts = make_features(
        KINDS["regression"], examples_of(PAIRS, label=2.5), tokenizer, TaskConfig(max_seq_len=12)
    )
    long, _ = make_features(KINDS["regression"], examples_of(PAIRS, label=2.5), tokenizer, TaskConfig())
    cut = [number for number, one in enumerate(long) if one.length > 12]
    assert counts == {"truncated_texts": len(cut), SPELLED: int(name == "bert")}
    assert len(cut) >= 2
    for number, (one, whole) in enumerate(zip(made, long, strict=True)):
        assert one.targets == {"values": 2.5}
        assert one.input_ids[-1] == tokenizer.sep_id
        if number in cut:
            assert one.length == 12
            np.testing.assert_array_equal(one.input_ids[:3], whole.input_ids[:3])
        else:
            np.testing.assert_array_equal(one.input_ids, whole.input_ids)


def test_choices_are_pairs_of_the_text_and_each_choice(bert):
    example = {"id": "1", "text": "I went home", "choices": ["to sleep .", "a fish", "and cooked a very long dinner"]}
    made, _ = make_features(
        KINDS["multiple_choice"], [example | {"label": 2}, example | {"label": 0}], bert, TaskConfig()
    )
    pairs, _ = make_features(
        KINDS["sequence_classification"],
        examples_of([("I went home", choice) for choice in example["choices"]]),
        bert,
        TaskConfig(),
    )
    for ids, second, pair in zip(made[0].input_ids, made[0].type_1_start, pairs, strict=True):
        np.testing.assert_array_equal(ids, pair.input_ids)
        assert second == pair.type_1_start
    assert made[0].length == max(pair.length for pair in pairs)
    batch = collate(made, 16, 2, 0, 4)
    assert batch["input_ids"].shape == (4, 3, 16)
    together = collate(pairs, 16, 2, 0, 3)
    for key in ("input_ids", "token_type_ids", "attention_mask"):
        np.testing.assert_array_equal(batch[key][1], together[key])
    assert batch["labels"].tolist() == [2, 0, 0, 0]
    assert batch["example_weights"].tolist() == [1, 1, 0, 0]
    with pytest.raises(UserError, match="'2' has 1 choices, the first has 3"):
        make_features(
            KINDS["multiple_choice"], [example, {"id": "2", "text": "", "choices": ["a"]}], bert, TaskConfig()
        )


EXAMPLES = {
    "sequence_classification": {"text": "a b", "text_pair": "c", "label": 3},
    "regression": {"text": "a b", "label": 0.5},
    "token_classification": {"tokens": ["a", "unaffable", "c"], "labels": [2, 0, 1]},
    "question_answering": {"question": "who ?", "context": "It was me .", "answers": [{"text": "me", "start": 7}]},
    "multiple_choice": {"text": "a", "choices": ["b", "c d"], "label": 1},
    "similarity": {"text": "a b", "text_pair": "c", "label": 4.5},
    "reranking": {"text": "a b", "text_pair": "c", "negative": ["d"]},
}
TARGETS = {
    "sequence_classification": {"labels": np.int32},
    "regression": {"values": np.float32},
    "token_classification": {"token_labels": np.int32, "token_weights": np.float32},
    "question_answering": {"starts": np.int32, "ends": np.int32},
    "multiple_choice": {"labels": np.int32},
    "similarity": {"positives": np.float32, "grades": np.float32, "text_ids": np.int32},
    "reranking": {"labels": np.int32},
}
INPUTS = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), np.int32)


@pytest.mark.parametrize("types", [0, 1, 2])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_batches_have_the_documented_arrays(bert, kind, types):
    made, _ = make_features(
        KINDS[kind], [EXAMPLES[kind] | {"id": str(number)} for number in range(3)], bert, TaskConfig()
    )
    batch = collate(made, 24, types, 7, 5)
    dtypes = INPUTS | {"example_weights": np.float32} | TARGETS[kind]
    assert {name: array.dtype for name, array in batch.items()} == dtypes
    shape = (5, 2, 24) if kind in ("multiple_choice", "similarity", "reranking") else (5, 24)
    for name, array in batch.items():
        assert array.flags.c_contiguous
        width = {"text_ids": (5, 2)}.get(name, (5, 24) if "token" in name else (5,))
        assert array.shape == (shape if name in INPUTS else width)
    assert batch["example_weights"].tolist() == [1, 1, 1, 0, 0]
    # Fillers are copies of real inputs, so that no attention is empty.
    assert batch["attention_mask"].sum(-1).min() > 0
    assert np.all(batch["input_ids"][batch["attention_mask"] == 0] == 7)
    alone = kind in ("regression", "similarity", "token_classification")
    assert batch["token_type_ids"].any() == (types == 2 and not alone)
    unlabeled = {
        key: value for key, value in EXAMPLES[kind].items() if key not in ("label", "labels", "answers", "negative")
    }
    made, _ = make_features(KINDS[kind], [unlabeled | {"id": "1"}], bert, TaskConfig())
    learned = {"positives", "text_ids"} if kind == "similarity" else set()  # pairs without a label belong together
    assert collate(made, 24, types, 7, 5).keys() == INPUTS.keys() | {"example_weights"} | learned


def test_targets_of_a_batch_equal_the_targets_of_its_features(bert):
    tagging, _ = make_features(
        KINDS["token_classification"], [EXAMPLES["token_classification"] | {"id": "1"}], bert, TaskConfig()
    )
    batch = collate(tagging, 10, 2, 0, 2)
    assert batch["token_labels"].tolist() == [[0, 2, 0, 0, 0, 1, 0, 0, 0, 0], [0] * 10]
    assert batch["token_weights"].tolist() == [[0, 1, 1, 0, 0, 1, 0, 0, 0, 0], [0] * 10]
    span, _ = make_features(
        KINDS["question_answering"], [EXAMPLES["question_answering"] | {"id": "1"}], bert, TaskConfig()
    )
    batch = collate(span, 12, 2, 0, 1)
    assert (batch["starts"].tolist(), batch["ends"].tolist()) == ([6], [6])
    assert bert.decode(batch["input_ids"][0, 6:7].tolist()) == "me"


def test_features_that_do_not_fit_a_batch():
    one = Features(np.arange(5, dtype=np.int32), 5, 0, {})
    with pytest.raises(ValueError, match="a sequence of 5 tokens does not fit into 4"):
        collate([one], 4, 2, 0, 1)
    for given in ([], [one, one]):
        with pytest.raises(ValueError, match="do not make a batch of 1"):
            collate(given, 8, 2, 0, 1)


def test_refused_examples(bert):
    with pytest.raises(UserError, match="'1' has no label, but others have"):
        make_features(
            KINDS["sequence_classification"],
            [{"id": "0", "text": "", "label": 1}, {"id": "1", "text": ""}],
            bert,
            TaskConfig(),
        )
    with pytest.raises(UserError, match="max_seq_len=4 is too short for two texts"):
        make_features(KINDS["sequence_classification"], examples_of(PAIRS), bert, TaskConfig(max_seq_len=4))
    with pytest.raises(UserError, match="max_seq_len=2 is too short for a word"):
        make_features(
            KINDS["token_classification"],
            [EXAMPLES["token_classification"] | {"id": "1"}],
            bert,
            TaskConfig(max_seq_len=2),
        )
    assert make_features(KINDS["sequence_classification"], [], bert, TaskConfig()) == (
        [],
        {"truncated_texts": 0, SPELLED: 0},
    )
