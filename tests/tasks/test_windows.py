"""Windows over contexts, compared with google-research/bert, and the tokens of answers."""

import collections

import numpy as np
import pytest
from published_data import squad

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import IN_NO_WINDOW
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.answer_windows import max_context_masks, window_bounds
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tokenizer import load_tokenizer

SETTINGS = TaskConfig(max_seq_len=384, doc_stride=128, max_query_length=64)
EXAMPLE = {
    "id": "q7",
    "question": "Who was it?",
    "context": "It was unaffable me, was it not?",
    "answers": [{"text": "unaffable me", "start": 7}],
}


@pytest.fixture(scope="module", params=["bert-base-uncased", "roberta-base", "albert-base"])
def any_tokenizer(request, samples):
    return load_tokenizer(samples / "vocab" / request.param)


@pytest.fixture(scope="module")
def bert(samples):
    return load_tokenizer(samples / "vocab" / "bert-base-uncased")


def literal_windows(tokens, room, stride):
    """As run_squad.py has it, window by window."""
    found, start = [], 0
    while start < tokens:
        length = min(tokens - start, room)
        found.append((start, start + length))
        if start + length == tokens:
            break
        start += min(length, stride)
    return found


def literal_most_context(windows, token):
    best, best_score = None, None
    for number, (start, end) in enumerate(windows):
        if start <= token < end:
            score = min(token - start, end - 1 - token) + 0.01 * (end - start)
            if best_score is None or score > best_score:
                best, best_score = number, score
    return best


def test_windows_and_their_context_are_the_literal_rule():
    for tokens in (1, 5, 7, 8, 9, 13, 16, 17, 40):
        for room in (1, 3, 8):
            for stride in (1, 2, 3, 5, 8, 20):
                windows = window_bounds(tokens, room, stride)
                assert windows == literal_windows(tokens, room, stride)
                owner = [[] for _ in range(tokens)]
                for number, ((start, end), most) in enumerate(zip(windows, max_context_masks(windows), strict=True)):
                    assert most.shape == (end - start,)
                    for token in start + np.flatnonzero(most):
                        owner[token].append(number)
                assert owner == [[literal_most_context(windows, token)] for token in range(tokens)]


def test_real_questions_have_the_right_windows_and_answers(real_data, any_tokenizer):
    tokenizer = any_tokenizer
    examples = squad(real_data / "squad" / "dev-v2.0.recon.json.gz")[:3000]
    examples += squad(real_data / "squad" / "train-v2.0.first10.json.gz")[:1000]
    made, counts = make_features(KINDS["question_answering"], examples, tokenizer, SETTINGS)
    windows = collections.defaultdict(list)
    for window in made:
        windows[window.example].append(window)
    least_split, least_answered = {"samples": (5, 500), "data": (20, 2000)}[real_data.name]
    assert counts["split_contexts"] == sum(len(found) > 1 for found in windows.values()) > least_split
    assert counts["truncated_questions"] == counts[IN_NO_WINDOW] == 0
    answered = 0
    for number, example in enumerate(examples):
        found = windows[number]
        (question,) = tokenizer.encode_sentences([example["question"]])
        (context,) = tokenizer.encode_with_offsets([example["context"]])
        head = [tokenizer.cls_id, *question, *[tokenizer.sep_id] * tokenizer.separators]
        bounds = literal_windows(len(context.ids), 384 - len(head) - 1, 128)
        assert len(found) == len(bounds)
        for window, (start, end) in zip(found, bounds, strict=True):
            assert window.input_ids.tolist() == [*head, *context.ids[start:end], tokenizer.sep_id]
            assert window.type_1_start == (len(head) if tokenizer.second_type else len(window.input_ids))
            offsets = [(-1, -1)] * len(head) + context.offsets[start:end] + [(-1, -1)]
            assert window.alignment["context_offsets"].tolist() == list(map(list, offsets))
            first, last = window.targets["starts"], window.targets["ends"]
            if not example["answers"]:
                assert (first, last) == (0, 0)
            elif last:
                answered += 1
                answer = example["answers"][0]
                stop = answer["start"] + len(answer["text"])
                # The answer is within the tokens, and needs the first and the last of them.
                assert (
                    window.alignment["context_offsets"][first, 0]
                    <= answer["start"]
                    < window.alignment["context_offsets"][first, 1]
                )
                assert (
                    window.alignment["context_offsets"][last, 0] < stop <= window.alignment["context_offsets"][last, 1]
                )
        assert sum(window.alignment["max_context"].sum() for window in found) == len(context.ids)
        if example["answers"]:
            assert any(window.targets["ends"] for window in found)
    assert answered > least_answered


def test_answers_across_the_borders_of_windows_are_counted(real_data, bert):
    """Windows of run_squad.py do not overlap if they are at most as long as the step between them."""
    examples = squad(real_data / "squad" / "train-v2.0.first10.json.gz")[:300]
    counted = {}
    for doc_stride in (128, 8):
        settings = TaskConfig(max_seq_len=64, doc_stride=doc_stride, max_query_length=32)
        windows, counts = make_features(KINDS["question_answering"], examples, bert, settings)
        seen = {window.example for window in windows if window.targets["ends"]}
        answered = {number for number, example in enumerate(examples) if example["answers"]}
        counted[doc_stride] = counts[IN_NO_WINDOW]
        assert counted[doc_stride] == len(answered - seen)
    assert counted[128] > counted[8]


def test_an_answer_is_only_in_windows_that_hold_all_of_it(bert):
    settings = TaskConfig(max_seq_len=10, doc_stride=1, max_query_length=64)
    made, counts = make_features(KINDS["question_answering"], [EXAMPLE], bert, settings)
    assert {name: count for name, count in counts.items() if count} == {"split_contexts": 1, IN_NO_WINDOW: 1}
    assert [(window.targets["starts"], window.targets["ends"]) for window in made][:4] == [
        (0, 0),
        (0, 0),
        (0, 0),
        (0, 0),
    ]
    wide, _ = make_features(KINDS["question_answering"], [EXAMPLE], bert, SETTINGS)
    first, last = wide[0].targets["starts"], wide[0].targets["ends"]
    assert bert.decode(wide[0].input_ids[first : last + 1].tolist()) == "unaffable me"
    settings = TaskConfig(max_seq_len=12, doc_stride=1, max_query_length=64)
    made, counts = make_features(KINDS["question_answering"], [EXAMPLE], bert, settings)
    assert not counts[IN_NO_WINDOW]
    held = [window for window in made if window.targets["ends"]]
    assert 0 < len(held) < len(made)
    for window in held:
        answer = window.input_ids[window.targets["starts"] : window.targets["ends"] + 1].tolist()
        assert bert.decode(answer) == "unaffable me"


def test_long_questions_are_truncated_or_refused_where_no_context_fits(bert):
    long = EXAMPLE | {"question": "who " * 100}
    made, counts = make_features(KINDS["question_answering"], [EXAMPLE, long], bert, SETTINGS)
    assert {name: count for name, count in counts.items() if count} == {"truncated_questions": 1}
    assert made[1].type_1_start == 66
    with pytest.raises(UserError, match="'q7' has 62 tokens, which leaves no room"):
        make_features(KINDS["question_answering"], [long], bert, TaskConfig(max_seq_len=64, max_query_length=62))
    assert make_features(KINDS["question_answering"], [long], bert, TaskConfig(max_seq_len=64, max_query_length=60))[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": [{"text": "you", "start": 7}]}, "'q7': the answer 'you' is not in the context at character 7"),
        ({"answers": [{"text": "not?", "start": -4}]}, "is not in the context at character -4"),
        ({"answers": [{"text": "", "start": 4}]}, "'q7': the answer '' is not in the context"),
        ({"context": " \u200b "}, "'q7' has a context without words"),
        ({"context": "a \u200b b", "answers": [{"text": "\u200b", "start": 2}]}, "has no token of the vocabulary"),
    ],
)
def test_refused_questions(bert, change, message):
    with pytest.raises(UserError, match=message):
        make_features(KINDS["question_answering"], [EXAMPLE | change], bert, SETTINGS)


def test_unlabeled_questions_have_no_targets(bert):
    made, _ = make_features(
        KINDS["question_answering"], [{key: EXAMPLE[key] for key in ("id", "question", "context")}], bert, SETTINGS
    )
    assert made[0].targets == {}
    impossible, _ = make_features(KINDS["question_answering"], [EXAMPLE | {"answers": []}], bert, SETTINGS)
    assert impossible[0].targets == {"starts": 0, "ends": 0}


@pytest.mark.parametrize("real_data", [pytest.param("shared", marks=pytest.mark.shared)], indirect=True)
def test_the_whole_training_set(real_data, bert):
    examples = squad(real_data / "squad" / "train-v1.1.recon.json.gz")
    made, counts = make_features(KINDS["question_answering"], examples, bert, SETTINGS)
    assert (len(examples), len(made)) == (87_599, 88_641)
    assert counts["truncated_questions"] == 0
    assert len({window.example for window in made if window.targets["ends"]}) == len(examples)
