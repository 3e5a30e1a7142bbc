"""SQuAD's scores on published predictions, and thresholds compared with a search of all thresholds."""
# ruff: noqa: RUF001

import json
import pathlib
import string
import tarfile
import unicodedata

import numpy as np
import pytest
from published_data import squad

from bert_jax.tasks.kinds.answer_search import Answer, AnswerCandidates
from bert_jax.tasks.kinds.squad_score import (
    best_no_answer_threshold,
    exact_match,
    normalize_answer,
    normalize_answer_of_any_script,
    question_scores,
    squad_scores,
    token_f1,
    tune_no_answer_thresholds,
)


@pytest.fixture(scope="module")
def published(real_data):
    """Scores by file, and the predictions by the same name."""
    place = real_data / "squad"
    expected = json.loads((place / "published-predictions.scores.json").read_text())
    with tarfile.open(place / "published-predictions.tar.gz") as archive:
        predictions = {f"models/{one.name}": json.load(archive.extractfile(one)) for one in archive if one.isfile()}
    examples = {
        name: squad(place / f"{pathlib.Path(name).stem}.recon.json.gz") for name in {e["set"] for e in expected}
    }
    return expected, predictions, examples


@pytest.mark.parametrize("number", range(8))
def test_published_predictions_have_the_published_scores(published, number):
    expected, predictions, examples = published
    assert len(expected) == len(predictions) == 8
    row = expected[number]
    scores = squad_scores(examples[row["set"]], predictions[row["predictions"]])
    named = {key: value for key, value in row.items() if key not in ("set", "predictions", "n", "missing")}
    assert named.keys() <= scores.keys()
    for key, value in named.items():
        assert scores[key] == pytest.approx(value, abs=5e-5, rel=0)
    assert scores.get("missing", 0) == row["missing"]
    assert ("NoAns_f1" in scores) == ("v2.0" in row["set"])


def test_the_rule():
    assert normalize_answer(" The  Cat's an A-hat,\tA ") == "cats ahat"
    assert normalize_answer("theatre (an)") == "theatre"
    assert exact_match("The end.", "end") == 1.0
    assert token_f1("a b c", "c b d") == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))  # an article is no word
    assert token_f1("x x y", "x z") == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert token_f1("x", "y") == 0.0
    assert token_f1("", "the") == 1.0
    assert token_f1("x", "") == 0.0


# Answer, prediction, exact match, and F1 as (common words, words of the answer, of the prediction), by hand.
UNSPACED_CASES = [
    ("北京", "北京市", 0, (2, 2, 3)),
    ("深圳，广州", "深圳广州", 1, (4, 4, 4)),  # no punctuation
    ("《活着》", "活 着", 1, (2, 2, 2)),  # no spaces
    ("11.42亿元", "11.42亿", 0, (2, 3, 2)),  # a number is a word
    ("A股市场", "a股", 0, (2, 4, 2)),  # no article
    ("Leandro Netto 博士", "Leandro", 0, (1, 4, 1)),
    ("東京タワー", "東京", 0, (2, 5, 2)),
    ("กรุงเทพมหานคร", "กรุงเทพ", 0, (7, 13, 7)),
    ("上海", "北京", 0, (0, 2, 2)),
    ("北京", "", 0, (0, 2, 0)),
]


@pytest.mark.parametrize(("answer", "prediction", "exact", "counts"), UNSPACED_CASES)
def test_each_character_of_a_script_without_spaces_is_a_word(answer, prediction, exact, counts):
    scores = squad_scores([{"id": "a", "answers": [{"text": answer}]}], {"a": prediction})
    common, *sizes = counts
    assert scores == pytest.approx({"exact": 100 * exact, "f1": 100 * 2 * common / sum(sizes)})


def words_of_mlqa(text):
    """The rule of MLQA for Chinese, a character at a time."""
    words = [""]
    for character in text.lower():
        if unicodedata.category(character)[0] == "P" or character in string.punctuation:
            continue
        if "\u4e00" <= character <= "\u9fa5":
            words += [character, ""]
        elif character.isspace():
            words.append("")
        else:
            words[-1] += character
    return [word for word in words if word]


@pytest.mark.parametrize("seed", range(20))
def test_chinese_is_split_as_in_mlqa(seed):
    random = np.random.default_rng(seed)
    text = "京" + "".join(random.choice([*"北京市的 aA3.,$é，。《》—·"], size=12))
    assert normalize_answer_of_any_script(text).split() == words_of_mlqa(text)
    english = text.replace("京", "x").translate({ord(c): "a" for c in "北市的"})
    assert normalize_answer_of_any_script(english) == normalize_answer(english)


def test_groups_and_missing_predictions():
    examples = [
        {"id": "a", "answers": [{"text": "one two"}, {"text": "one"}]},
        {"id": "b", "answers": []},
        {"id": "c", "answers": [{"text": "the"}]},  # normalizes to nothing: as if it had no answer
        {"id": "d", "answers": []},
    ]
    scores = squad_scores(examples, {"a": "two", "b": "", "c": ""})
    assert scores == pytest.approx(
        {"exact": 50.0, "f1": 100 * (2 / 3 + 2) / 4, "HasAns_exact": 50.0, "HasAns_f1": 100 * (2 / 3 + 1) / 2}
        | {"NoAns_exact": 50.0, "NoAns_f1": 50.0, "missing": 1.0}
    )
    assert squad_scores(examples[:1], {"a": "two"}) == pytest.approx({"exact": 0.0, "f1": 200 / 3})


@pytest.mark.parametrize("seed", range(20))
def test_the_best_threshold_is_the_best_of_all(seed):
    random = np.random.default_rng(seed)
    margins = np.round(random.normal(size=30), 1 if seed % 2 else 9)  # with equal margins, and without
    unanswered = random.integers(0, 2, 30).astype(float)
    answered = np.where(unanswered, 0.0, random.random(30))
    best = best_no_answer_threshold(margins, answered, unanswered)

    def total(threshold):
        return np.where(margins > threshold, unanswered, answered).mean() * 100

    assert best.score == pytest.approx(total(best.threshold))
    assert best.score == pytest.approx(max(total(threshold) for threshold in [-100.0, *margins]))
    in_another_batch = margins + random.uniform(-1e-6, 1e-6, 30)
    np.testing.assert_array_equal(in_another_batch > best.threshold, margins > best.threshold)


def test_a_question_without_a_possible_answer_does_not_move_the_threshold() -> None:
    margins, answered, unanswered = np.array([1.0, 2.0, 3.0]), np.ones(3), np.zeros(3)
    expected = best_no_answer_threshold(margins, answered, unanswered)
    more = best_no_answer_threshold(np.append(margins, np.inf), np.append(answered, 0.0), np.append(unanswered, 1.0))
    assert more.threshold == expected.threshold == 3.5


def literal_best_threshold(predictions, scores, margins, answerable):
    """The official rule, question by question."""
    current = best = sum(not has for has in answerable)
    threshold = 0.0
    for number in sorted(range(len(margins)), key=margins.__getitem__):
        if answerable[number]:
            current += scores[number]
        elif predictions[number]:
            current -= 1
        if current > best:
            best, threshold = current, margins[number]
    return 100.0 * best / len(margins), threshold


def test_thresholds_on_published_predictions_equal_the_official_rule(published):
    expected, predictions, examples = published
    row = next(row for row in expected if "v2.0" in row["set"] and "BERT" in row["predictions"])
    examples = [example for example in examples[row["set"]] if predictions[row["predictions"]][example["id"]]]
    texts = [predictions[row["predictions"]][example["id"]] for example in examples]
    answerable = [bool(example["answers"]) for example in examples]
    # Margins that carry some information on which questions have an answer.
    margins = np.random.default_rng(0).normal(size=len(examples)) - np.array(answerable)
    found = [
        AnswerCandidates([Answer(text, 0, 1, 1.0, 0.5)], 1.0 + float(margin), 0.5)
        for text, margin in zip(texts, margins, strict=True)
    ]
    tuned = tune_no_answer_thresholds(examples, found)
    assert tuned.keys() == {"exact", "f1"}
    for name, scores in question_scores(examples, texts)._asdict().items():
        score, threshold = literal_best_threshold(texts, scores, margins, answerable)
        assert tuned[name].score == pytest.approx(score)
        np.testing.assert_array_equal(margins > tuned[name].threshold, margins > threshold)
        said = {e["id"]: one.text(tuned[name].threshold) for e, one in zip(examples, found, strict=True)}
        assert squad_scores(examples, said)[name] == pytest.approx(score)
        never = squad_scores(examples, {example["id"]: "" for example in examples})[name]
        always = squad_scores(examples, dict(zip(said, texts, strict=True)))[name]
        assert score > max(never, always)


def test_no_answer_at_all_can_be_best():
    found = [AnswerCandidates([Answer("x", 0, 1, 1.0, 0.5)], margin + 1.0, 0.5) for margin in (-3.0, 2.0)]
    examples = [{"id": "a", "answers": []}, {"id": "b", "answers": []}]
    tuned = tune_no_answer_thresholds(examples, found)["f1"]
    assert tuned.score == 100.0
    assert [one.text(tuned.threshold) for one in found] == ["", ""]
