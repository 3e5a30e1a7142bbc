"""Answers from logits, compared with a search of all spans."""

import collections
import math

import numpy as np
import pytest
from published_data import squad

from bert_jax.config import TaskConfig
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.answer_search import Answer, AnswerCandidates, find_answers
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.kinds.squad_score import normalize_answer
from bert_jax.tokenizer import load_tokenizer

CONTEXT = "The unaffable Ütrecht council met in 1713, and met again: nobody knows (today) why the council met."


@pytest.fixture(scope="module", params=["bert-base-uncased", "roberta-base"])
def tokenizer(request, samples):
    return load_tokenizer(samples / "vocab" / request.param)


def brute_force(context, windows, starts, ends, settings, null):
    """Every pair of positions of every window, then the best by score."""
    found = []
    for window, start, end in zip(windows, starts, ends, strict=True):
        for first in range(window.length):
            for last in range(window.length):
                if not 0 <= last - first < settings.max_answer_length:
                    continue
                if (
                    window.alignment["context_offsets"][first, 0] < 0
                    or window.alignment["context_offsets"][last, 0] < 0
                    or not window.alignment["max_context"][first]
                ):
                    continue
                a, b = window.alignment["context_offsets"][first, 0], window.alignment["context_offsets"][last, 1]
                found.append((float(start[first]) + float(end[last]), context[a:b].strip()))
    found.sort(key=lambda one: -one[0])
    best = {}
    for score, text in found:
        if text and text not in best and len(best) < settings.n_best:
            best[text] = score
    null_score = min(float(start[0]) + float(end[0]) for start, end in zip(starts, ends, strict=True))
    total = sum(math.exp(score) for score in best.values()) + (math.exp(null_score) if null else 0.0)
    answers = [(text, score, math.exp(score) / total) for text, score in best.items()]
    return answers, null_score, math.exp(null_score) / total if null else 0.0


@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize(("max_seq_len", "longest", "n_best"), [(64, 30, 20), (18, 4, 5), (18, 1, 3), (16, 30, 1000)])
def test_answers_equal_a_brute_force_search(tokenizer, max_seq_len, longest, n_best, null):
    settings = TaskConfig(max_seq_len=max_seq_len, doc_stride=3, max_answer_length=longest, n_best=n_best)
    examples = [{"id": str(n), "question": "why ?" * n, "context": CONTEXT[9 * n :]} for n in range(3)]
    made, _ = make_features(KINDS["question_answering"], examples, tokenizer, settings)
    random = np.random.default_rng(max_seq_len)
    order = random.permutation(len(made))
    made = [made[number] for number in order]
    # Logits of a padded batch are longer than the sequence; the logits of padding must not count.
    starts, ends = (
        [np.append(random.normal(size=window.length) * 2, [9.0] * 5).astype(np.float32) for window in made]
        for _ in "ab"
    )
    found = find_answers(examples, made, starts, ends, settings, null)
    for number, (example, one) in enumerate(zip(examples, found, strict=True)):
        # Windows in their order, so that ties are broken alike; there are none here.
        mine = [index for index, window in enumerate(made) if window.example == number]
        chosen = [[array[index] for index in mine] for array in (made, starts, ends)]
        answers, null_score, null_probability = brute_force(example["context"], *chosen, settings, null)
        assert [answer.text for answer in one.answers] == [text for text, *_ in answers]
        np.testing.assert_allclose([answer.score for answer in one.answers], [score for _, score, _ in answers])
        np.testing.assert_allclose([answer.probability for answer in one.answers], [p for *_, p in answers])
        np.testing.assert_allclose([one.null_score, one.null_probability], [null_score, null_probability])
        np.testing.assert_allclose(sum(answer.probability for answer in one.answers) + one.null_probability, 1.0)
        for answer in one.answers:
            assert example["context"][answer.start : answer.end] == answer.text == answer.text.strip()


def test_answers_have_different_texts_even_where_many_spans_share_a_text(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    settings = TaskConfig(n_best=3, max_answer_length=1)
    example = {"id": "1", "question": "a", "context": "dog " * 40 + "cat dog bird"}
    made, _ = make_features(KINDS["question_answering"], [example], tokenizer, settings)
    logits = np.arange(made[0].length, 0, -1.0)
    (found,) = find_answers([example], made, [logits], [logits], settings, False)
    assert [answer.text for answer in found.answers] == ["dog", "cat", "bird"]
    assert found.answers[0].start == 0


@pytest.mark.parametrize("word", ["e\u0301te\u0301", "\u0928\u092e\u0938\u094d\u0924\u0947"])
def test_an_answer_ends_with_the_marks_of_its_last_character(samples, word):
    """The vocabulary removes accents and vowel signs, so that the last token ends before them."""
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    settings = TaskConfig(n_best=1, max_answer_length=8)
    context = f"we say {word}, or"
    example = {"id": "1", "question": "a", "context": context, "answers": [{"text": word, "start": 7}]}
    made, _ = make_features(KINDS["question_answering"], [example], tokenizer, settings)
    start, end = gold_logits(made[0])
    (found,) = find_answers([example], made, [start], [end], settings, False)
    assert found.answers[0].text == word
    assert context[found.answers[0].start : found.answers[0].end] == word


def test_the_margin_decides_for_no_answer():
    found = AnswerCandidates([Answer("a", 0, 1, 3.0, 0.5)], 5.0, 0.5)
    assert found.null_margin == 2.0
    assert [found.text(threshold) for threshold in (None, 2.0, 2.5, 1.9, -3.0)] == ["a", "a", "a", "", ""]
    nothing = AnswerCandidates([], 5.0, 1.0)
    assert nothing.text(None) == nothing.text(1e9) == ""


def gold_logits(window):
    logits = np.zeros((2, window.length), np.float32)
    logits[0, window.targets["starts"]] = logits[1, window.targets["ends"]] = 1
    return logits


# Of dev 1.1's different answers: why the span of gold logits is not the answer, character for character.
INSIDE_TOKEN = "begins or ends inside a token, as '8' in '18' and 'Japan' in 'Japanese'"
IN_PUNCTUATION = "begins or ends inside a token of punctuation, as before '.' of the token '.\"'; scores the same"
TOO_LONG = "has more than max_answer_length tokens"
NOT_FOUND = {
    "samples": {"bert-base-uncased": {INSIDE_TOKEN: 8}, "roberta-base": {INSIDE_TOKEN: 8}},  # counted by hand
    "data": {
        "bert-base-uncased": {INSIDE_TOKEN: 57, TOO_LONG: 21},
        "roberta-base": {INSIDE_TOKEN: 54, TOO_LONG: 20, IN_PUNCTUATION: 180},
    },
}


@pytest.mark.parametrize("vocabulary", ["bert-base-uncased", "roberta-base"])
def test_every_answer_of_squad_is_found_again_from_gold_logits(real_data, samples, vocabulary):
    tokenizer = load_tokenizer(samples / "vocab" / vocabulary)
    questions = squad(real_data / "squad" / "dev-v1.1.recon.json.gz")
    examples = [
        question | {"answers": [{"text": text, "start": start}]}
        for question in questions
        for text, start in {(answer["text"], answer["start"]): None for answer in question["answers"]}
    ]
    assert (len(questions), len(examples)) == {"samples": (572, 921), "data": (10_570, 18_076)}[real_data.name]
    settings = TaskConfig(max_seq_len=384, doc_stride=128, max_query_length=64, max_answer_length=30, n_best=1)
    made, _ = make_features(KINDS["question_answering"], examples, tokenizer, settings)
    starts, ends = zip(*(gold_logits(window) for window in made), strict=True)
    tokens = np.zeros(len(examples), int)
    for window in made:
        if window.targets["ends"]:
            tokens[window.example] = window.targets["ends"] - window.targets["starts"] + 1
    assert tokens.min() > 0  # each is whole in some window
    found = find_answers(examples, made, starts, ends, settings, False)
    reasons = collections.Counter()
    for example, count, one in zip(examples, tokens, found, strict=True):
        gold, said = example["answers"][0], one.text(None)
        (best,) = one.answers
        if (said, best.start) == (gold["text"], gold["start"]):
            continue
        if count > 30:
            reasons[TOO_LONG] += 1
            continue
        assert best.score == 2.0
        assert best.start <= gold["start"] < gold["start"] + len(gold["text"]) <= best.end
        same = normalize_answer(said) == normalize_answer(gold["text"])
        reasons[IN_PUNCTUATION if same else INSIDE_TOKEN] += 1
    assert dict(reasons) == NOT_FOUND[real_data.name][vocabulary]
