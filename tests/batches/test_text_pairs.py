"""Pairs of texts from documents: each rule against its definition, and pairs by their numbers alone."""

import itertools
import json

import numpy as np
import pytest

from bert_jax.batches.text_pairs import PAIR_RULES, TextLimits, TextPairs
from bert_jax.cli.main import main
from bert_jax.corpus.store import open_corpus
from tests.helpers.memory_corpus import FIRST_TOKEN, MemorySplit
from tests.helpers.written_corpus import text, write_corpus

LIMITS = TextLimits(12, 20)
DOCUMENTS = [[5, 9, 3, 30, 2, 8], [4], [7, 6], [11, 2, 2, 2, 19, 1, 6], [3, 3]]
SPLIT = MemorySplit(DOCUMENTS)
CONTINUES = SPLIT.symbols().vocabulary.continues


def sentence_bounds(document: int) -> list[int]:
    """The token ids at which the sentences of a document begin, and the end."""
    return [FIRST_TOKEN + SPLIT.document_start[document] + end for end in np.cumsum([0, *DOCUMENTS[document]])]


def drawn(rule: str, number: int = 300) -> list[tuple[list[int], list[int], int]]:
    """Ids of both texts of each pair, and their document, which must be one document."""
    pairs = TextPairs(SPLIT, CONTINUES, rule, LIMITS, seed=3).pairs(np.arange(number))
    result = []
    for pair in pairs:
        documents = {int(document) for ids in pair for document in SPLIT.document_of(ids)}
        assert len(documents) == 1
        result.append((pair.query.tolist(), pair.document.tolist(), documents.pop()))
    return result


def is_range(ids: list[int]) -> bool:
    return ids == list(range(ids[0], ids[0] + len(ids)))


@pytest.mark.parametrize("rule", PAIR_RULES)
def test_lengths_are_within_the_limits_and_every_record_is_read_once_an_epoch(rule):
    pairs = TextPairs(SPLIT, CONTINUES, rule, LIMITS, seed=3)
    enough = [n for n, document in enumerate(DOCUMENTS) if len(document) >= PAIR_RULES[rule].min_sentences]
    assert pairs.num_per_epoch == len(enough)
    assert pairs.num_without == len(DOCUMENTS) - len(enough)
    made = drawn(rule)
    for query, document, _ in made:
        assert 1 <= len(query) <= LIMITS.query
        assert 1 <= len(document) <= LIMITS.document
    for first in range(0, len(made) - len(enough), len(enough)):
        assert sorted(document for _, _, document in made[first : first + len(enough)]) == enough


def test_adjacent_texts_meet_at_the_border_of_two_sentences():
    for query, document, number in drawn("adjacent"):
        assert is_range(query)
        assert is_range(document)
        assert query[-1] + 1 == document[0]
        bounds = sentence_bounds(number)
        assert document[0] in bounds[1:-1]
        # Whole sentences, or the part of a longer sentence.
        assert query[0] in bounds or len(query) == LIMITS.query
        assert document[-1] + 1 in bounds or len(document) == LIMITS.document


def test_the_query_of_an_inverse_cloze_is_a_sentence_and_its_passage_surrounds_it():
    num_kept = 0
    made = drawn("inverse_cloze", 2_000)
    for query, document, number in made:
        bounds = sentence_bounds(number)
        begin = bounds.index(query[0])
        sentence = list(range(bounds[begin], bounds[begin + 1]))
        assert query == sentence[: LIMITS.query]
        kept = query[0] in document
        num_kept += kept
        joined = document if kept else sorted({*document, *sentence})
        assert is_range(joined)
        assert len({*joined}) == len(document) + len(sentence) * (not kept)
        first, last = joined[0], joined[-1] + 1
        lengths = [end - start for start, end in itertools.pairwise(bounds) if first == end or last == start]
        assert all(len(document) + length > LIMITS.document for length in lengths)  # no further sentence fits
    assert 0.06 < num_kept / len(made) < 0.14  # a tenth


def test_crops_are_whole_words_of_one_window():
    lengths = set()
    for query, document, _ in drawn("crop"):
        for ids in (query, document):
            assert is_range(ids)
        assert max(*query, *document) - min(*query, *document) < 2 * LIMITS.document
        lengths.add(len(document))
    assert len(lengths) > 8


def test_the_texts_of_a_dropout_pair_are_equal():
    for query, document, number in drawn("dropout"):
        assert query == document
        assert query[0] in sentence_bounds(number)


@pytest.mark.parametrize("rule", PAIR_RULES)
def test_a_pair_depends_on_its_number_and_seed_alone(rule):
    pairs = TextPairs(SPLIT, CONTINUES, rule, LIMITS, seed=3)
    numbers = np.array([7, 0, 40, 7, 12_345])
    together = pairs.pairs(numbers)
    for number, pair in zip(numbers, together, strict=True):
        alone = TextPairs(SPLIT, CONTINUES, rule, LIMITS, seed=3).pairs(np.array([number]))[0]
        assert [ids.tolist() for ids in alone] == [ids.tolist() for ids in pair]
    other = [pair.query.tolist() for pair in TextPairs(SPLIT, CONTINUES, rule, LIMITS, seed=4).pairs(np.arange(40))]
    assert other != [pair.query.tolist() for pair in pairs.pairs(np.arange(40))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    import random

    rng = random.Random(0)
    texts = [text(rng, sentences=rng.randint(1, 9)) for _ in range(60)]
    return write_corpus(tmp_path_factory.mktemp("corpus"), texts, heldout_fraction=0.2)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def num_of_heldout_records(corpus, min_sentences):
    return int((open_corpus(corpus).split("heldout").sentences_per_record >= min_sentences).sum())


def test_the_command_writes_pairs_that_finetune_reads(corpus, tmp_path, capsys):
    assert main(["pairs", "--corpus", str(corpus), "--output", str(tmp_path / "pairs"), "--number", "70"]) == 0
    assert "70 training pairs" in capsys.readouterr().out
    train, dev = (lines(tmp_path / "pairs" / name) for name in ("train.jsonl", "dev.jsonl"))
    assert [line["id"] for line in train] == [str(number) for number in range(70)]
    assert all(line["text"].strip() and line["text_pair"].strip() for line in train)
    num_heldout = num_of_heldout_records(corpus, min_sentences=2)
    assert [line["label"] for line in dev] == [1, 0] * num_heldout
    right = [line["text_pair"] for line in dev if line["label"]]
    wrong = [line["text_pair"] for line in dev if not line["label"]]
    assert wrong == right[1:] + right[:1]


@pytest.mark.parametrize("rule", PAIR_RULES)
def test_right_dev_pairs_are_not_equal_texts(corpus, tmp_path, capsys, rule):
    """Equal texts have equal vectors in any model, so they rank no checkpoint."""
    command = ["pairs", "--corpus", str(corpus), "--output", str(tmp_path / "pairs"), "--number", "9", "--rule", rule]
    assert main(command) == 0
    printed, right = capsys.readouterr().out, lines(tmp_path / "pairs" / "dev.jsonl")[::2]
    assert len(right) == num_of_heldout_records(corpus, PAIR_RULES[rule].min_sentences)
    assert sum(line["text"] == line["text_pair"] for line in right) <= 1, "crops of a very short record may be equal"
    assert ("by the rule crop" in printed) == (rule == "dropout")
    equal = [line["text"] == line["text_pair"] for line in lines(tmp_path / "pairs" / "train.jsonl")]
    assert all(equal) if rule == "dropout" else not all(equal)


def test_no_dev_pairs_are_no_lack_of_held_out_documents(corpus, tmp_path, capsys):
    assert main(["pairs", "--corpus", str(corpus), "--output", str(tmp_path / "pairs"), "--dev_number", "0"]) == 0
    assert "dev.jsonl" not in capsys.readouterr().out
    assert not (tmp_path / "pairs" / "dev.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rule", "inverse"], "invalid choice: 'inverse'"),
        (["--query_tokens", "2"], "give at least 4 tokens for each text"),
        (["--number", "0"], "at least 1 pair"),
    ],
)
def test_bad_options_are_refused(corpus, tmp_path, capsys, words, says):
    try:
        status = main(["pairs", "--corpus", str(corpus), "--output", str(tmp_path / "pairs"), *words])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "pairs").exists()
