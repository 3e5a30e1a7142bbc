"""Question answering in other languages: the published scores, counted by hand, and answers that are misplaced."""
# ruff: noqa: RUF001

import itertools
import json

import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.benchmark_scores import CMRC, JAQUAD, KORQUAD, BenchmarkRule, benchmark_scores, split_for_cmrc
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.kinds.squad_score import exact_match, token_f1
from bert_jax.tasks.reading.examples import existing_sets, read_task_examples
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import TASKS, resolve_task
from bert_jax.tokenizer import load_tokenizer

# Answer, prediction, exact match, and F1 as (common characters, characters of the answer, of the prediction).
KORQUAD_CASES = [
    ("서울", "서울", 1, (2, 2, 2)),
    ("서울", "서울시", 0, (2, 2, 3)),
    ("서울특별시", "서울", 0, (2, 5, 2)),
    ("서울", "부산", 0, (0, 2, 2)),
    ("《서편제》", "서편제", 1, (3, 3, 3)),
    ("〈괴물〉", "<괴물>", 1, (2, 2, 2)),
    ("'춘향전'", "춘향전", 1, (3, 3, 3)),
    ("‘춘향전’", '"춘향전"', 1, (3, 3, 3)),
    ("박찬욱(감독)", "박찬욱 감독", 1, (5, 5, 5)),  # a bracket is a space
    ("박찬욱(감독)", "박찬욱감독", 0, (5, 5, 5)),  # which exact match sees, F1 does not
    ("1,000명", "1000명", 1, (5, 5, 5)),  # other ASCII punctuation is nothing
    ("A.B", "ab", 1, (2, 2, 2)),
    ("BTS", "bts", 1, (3, 3, 3)),
    ("대한 민국", "대한민국", 0, (4, 4, 4)),
    ("대한   민국", "대한 민국", 1, (4, 4, 4)),
    ("국민대한", "대한민국", 0, (4, 4, 4)),  # the order of characters does not count in F1
    ("가가나", "가나나", 0, (2, 3, 3)),  # characters count as often as both have them
    ("「봄봄」", "봄봄", 0, (2, 4, 2)),  # corner brackets are not in the list
    ("서울", "", 0, (0, 2, 0)),
    ("2018년 2월 9일", "2018년 2월", 0, (7, 9, 7)),
]
# SQuAD's rule, as published for English: lower case, no ASCII punctuation, no English articles, words between spaces.
XQUAD_CASES = [
    ("die Donau", "Donau", 0, (1, 2, 1)),  # other articles are words
    ("an der Donau", "der Donau", 1, (2, 2, 2)),  # an English one, though it means another thing
    ("1.000 Soldaten", "1000 Soldaten", 1, (2, 2, 2)),
    ("50 %", "50%", 1, (1, 1, 1)),
    ("a Madrid", "Madrid", 1, (1, 1, 1)),
    ("¿Quién?", "Quién", 0, (0, 1, 1)),  # the first mark is no ASCII punctuation
    ("«Война и мир»", "Война и мир", 0, (1, 3, 3)),  # quotes stay with their words
    ("北京", "北京市", 0, (0, 1, 1)),  # without spaces one word
    ("深圳，广州", "深圳广州", 0, (0, 1, 1)),
    ("กรุงเทพมหานคร", "กรุงเทพ", 0, (0, 1, 1)),
    ("İstanbul", "istanbul", 0, (0, 1, 1)),  # in lower case i and a dot above
    ("Hà Nội", "Thủ đô Hà Nội", 0, (2, 2, 4)),
    ("القاهرة", "القاهرة،", 0, (0, 1, 1)),
    ("दिल्ली शहर", "दिल्ली", 0, (1, 2, 1)),
    ("ΑΘΗΝΑ", "Αθηνα", 1, (1, 1, 1)),
    ("Αθήνα", "Αθηνα", 0, (0, 1, 1)),  # accents count
    ("a fost regele", "fost regele", 1, (2, 2, 2)),
    ("the U.S. Army", "US army", 1, (2, 2, 2)),
    ("New York, New Jersey", "New York", 0, (2, 4, 2)),
    ("1990–1995", "1990-1995", 0, (0, 1, 1)),  # a hyphen is nothing, a dash stays
]
# The longest common run of segments instead of common characters.
CMRC_CASES = [
    ("光荣", "光荣", 1, (2, 2, 2)),
    ("光荣公司", "光荣", 0, (2, 4, 2)),
    ("光荣和公司", "光荣或公司", 0, (2, 5, 5)),  # one run of two characters, not four common characters
    ("公司光荣", "光荣公司", 0, (2, 4, 4)),
    ("光荣", "任天堂", 0, (0, 2, 3)),
    ("《战国无双3》", "战国无双3", 1, (5, 5, 5)),
    ("「战史演武」&「争霸演武」", "战史演武&争霸演武", 1, (9, 9, 9)),
    ("光荣和ω-force", "光荣和ωforce", 1, (4, 4, 4)),  # without the hyphen one Greek-Latin word
    ("光荣和ω-force", "光荣和ω", 0, (3, 4, 4)),  # and another word
    ("1903年", "1903", 0, (1, 2, 1)),  # a number is one segment
    ("364.6公里", "364.6", 0, (1, 3, 1)),
    ("20 世纪 90 年代", "20世纪90年代", 0, (6, 6, 6)),  # exact match sees white space, segments do not
    ("NBA联赛", "nba联赛", 1, (3, 3, 3)),
    ("Leandro Netto", "Leandro", 0, (1, 2, 1)),
    ("don't", "don", 0, (0, 2, 1)),  # NLTK: do, n't
    ("1,000人", "1000人", 0, (1, 2, 2)),  # an ASCII comma is no symbol of the list
    ("深圳，广州", "深圳广州", 1, (4, 4, 4)),
    ("深圳、广州。", "深圳", 0, (2, 4, 2)),
    ("等等……", "等等", 0, (2, 3, 2)),  # an ellipsis is not skipped: see CMRC_SYMBOLS
    ("光荣", "", 0, (0, 2, 0)),
]
JAQUAD_CASES = [
    ("奈良", "奈良", 1, (2, 2, 2)),
    ("奈良", "奈良市", 0, (2, 2, 3)),
    ("聖武天皇", "天皇", 0, (2, 4, 2)),
    ("天皇", "聖武天皇", 0, (2, 2, 4)),
    ("奈良", "京都", 0, (0, 2, 2)),
    ("東京", "京東", 1, (2, 2, 2)),  # exact match is an F1 of 1
    ("約15メートル", "15メートル", 0, (6, 7, 6)),
    ("「塑造四天王立像」", "塑造四天王立像", 0, (7, 9, 7)),  # nothing is removed
    ("2n=44", "2N=44", 0, (4, 5, 5)),  # upper case is another character
    ("1971年3月", "1971年", 0, (5, 7, 5)),
    ("1971年 3月", "1971年3月", 1, (7, 7, 7)),  # but for white space
    ("1971年\n3月", "1971年　3月", 1, (7, 7, 7)),  # the ideographic one too
    ("35-37", "35", 0, (2, 5, 2)),
    ("35-37", "37-35", 1, (5, 5, 5)),
    ("カネヒラ", "かねひら", 0, (0, 4, 4)),
    ("ああい", "あいい", 0, (2, 3, 3)),
    ("初夏", "初夏。", 0, (2, 2, 3)),
    ("コイ科", "コイ目コイ科", 0, (3, 3, 6)),
    ("黄色", "", 0, (0, 2, 0)),
    ("1950-60年代", "1960年代", 0, (6, 9, 6)),
]


@pytest.fixture(scope="module")
def bert(samples):
    return load_tokenizer(samples / "vocab" / "bert-base-uncased")


RULES = {
    "korquad": (KORQUAD, KORQUAD_CASES),
    "cmrc2018": (CMRC, CMRC_CASES),
    "jaquad": (JAQUAD, JAQUAD_CASES),
    "xquad": (BenchmarkRule(exact_match, token_f1), XQUAD_CASES),
}


@pytest.mark.parametrize("name", RULES)
def test_scores_by_the_published_rule(name):
    rule, cases = RULES[name]
    assert len(cases) == 20
    for answer, prediction, exact, (common, gold, predicted) in cases:
        precision, recall = common / max(predicted, 1), common / gold
        f1 = 2 * precision * recall / (precision + recall) if common else 0.0
        assert (rule.exact(answer, prediction), rule.f1(answer, prediction)) == (exact, pytest.approx(f1)), answer
        examples = [{"id": "a", "answers": [{"text": "☃"}, {"text": answer}]}]  # the best of several answers counts
        assert score_predictions(TASKS[name], examples, [prediction]) == pytest.approx(
            {"exact": 100.0 * exact, "f1": 100.0 * f1}
        )


def test_a_question_without_prediction_scores_nothing():
    examples = [{"id": name, "answers": [{"text": "서울"}]} for name in "ab"]
    assert benchmark_scores(KORQUAD, examples, {"a": "서울"}) == {"exact": 50.0, "f1": 50.0, "missing": 1.0}


def test_the_longest_common_run_equals_a_search_of_all_pairs():
    """Compare with the definition: the longest slice of the answer that is a slice of the prediction."""
    for gold in itertools.product("甲乙", repeat=4):
        for predicted in itertools.product("甲乙丙", repeat=3):
            answer, prediction = "".join(gold), "".join(predicted)
            slices = [answer[start:end] for start in range(4) for end in range(start + 1, 5)]
            longest = max((len(part) for part in slices if part in prediction), default=0)
            assert CMRC.f1(answer, prediction) == pytest.approx(2 * longest / 7)


def test_segments_are_characters_and_words():
    assert split_for_cmrc("莱昂德罗·内托（Leandro Netto de Macedo,），11.42亿元") == (
        *"莱昂德罗内托",
        *("leandro", "netto", "de", "macedo,11.42"),  # symbols are skipped before the words are split
        *"亿元",
    )


CONTEXT = "서울은 대한민국의 수도이다. 서울!"
PLACED, MOVED, ABSENT = (
    {"text": text, "answer_start": start} for text, start in (("서울", 0), ("수도", 4), ("부산", 0))
)


def korquad(tmp_path, questions, split, **settings):
    """The examples of these questions, given as lists of answers, and the lines that were printed."""
    asked = [{"id": f"q{n}", "question": "어디?", "answers": answers} for n, answers in enumerate(questions)]
    data = {"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]}
    (tmp_path / f"KorQuAD_v1.0_{split}.json").write_text(json.dumps(data))
    config, lines = TaskConfig(name="korquad", data=str(tmp_path), **settings), []
    return read_task_examples(resolve_task(config), config, split, lines.append), lines


def test_training_leaves_out_a_misplaced_answer_where_another_stands(tmp_path):
    examples, lines = korquad(tmp_path, [[MOVED, PLACED, ABSENT], [PLACED]], "train")
    assert [example["answers"] for example in examples] == [[{"text": "서울", "start": 0}]] * 2
    assert lines == ["korquad train: 2 answers are left out: they are not at their place, and another answer is"]


def test_training_questions_without_an_answer_are_left_out_only_if_asked(tmp_path):
    questions = [[MOVED], [PLACED], [ABSENT], [{"text": "수도"}]]
    with pytest.raises(UserError, match=r"q0: answer '수도' is not at answer_start 4 but at 10; .*skip_unusable"):
        korquad(tmp_path, questions, "train")
    examples, lines = korquad(tmp_path, questions, "train", skip_unusable_answers=True)
    assert [example["id"] for example in examples] == ["q1"]
    assert lines == ["korquad train: 3 questions are left out: none of their answers is at its place"]


def test_a_dev_set_is_not_refused_for_the_place_of_its_answers(tmp_path):
    examples, lines = korquad(tmp_path, [[MOVED, ABSENT], [ABSENT], [{"text": "수도"}]], "dev")
    assert [[answer["text"] for answer in example["answers"]] for example in examples] == [
        ["수도", "부산"],
        ["부산"],
        ["수도"],
    ]
    assert lines == ["korquad dev: 1 questions have no answer that is in their context: none can be predicted"]


def test_long_answers_and_long_words_are_counted(bert):
    kind, word = KINDS["question_answering"], "n" * 101
    example = {"id": "a", "question": "who?", "context": f"the {word} is not unaffable me"}
    example["answers"] = [{"text": "not"}]
    long = example | {"id": "b", "answers": [{"text": "is not unaffable me"}]}
    features, counts = make_features(kind, [example, long], bert, TaskConfig(max_seq_len=64, max_answer_length=3))
    assert counts["questions_with_answers_above_max_answer_length"] == 1
    assert counts["contexts_with_unknown_words_of_more_than_100_characters"] == 1
    assert [one.targets for one in features] == [{}, {}]
    short = example | {"context": f"the {word[1:]} is not"}
    assert not make_features(kind, [short], bert, TaskConfig())[1][
        "contexts_with_unknown_words_of_more_than_100_characters"
    ]


def test_an_answer_without_tokens_is_left_out_only_if_asked(bert):
    example = {"id": "a", "question": "who?", "context": "a \u200b b", "answers": [{"text": "\u200b", "start": 2}]}
    kind, other = KINDS["question_answering"], {"id": "b", "answers": [{"text": "b", "start": 4}]}
    features, counts = make_features(kind, [example, example | other], bert, TaskConfig(skip_unusable_answers=True))
    assert [one.example for one in features] == [1]
    assert counts["questions_left_out_for_their_answers"] == 1


def test_xquad_is_scored_on_the_languages_that_are_there(tmp_path):
    for name in ("train-v1.1", "dev-v1.1", "xquad.ko", "xquad.th", "xquad.de"):
        (tmp_path / f"{name}.json").write_text("{}")
    config = TaskConfig(name="xquad", data=str(tmp_path))
    assert existing_sets(resolve_task(config), config, "dev") == ("dev", "dev_de", "dev_th")
