"""Retrieval beside trec_eval, brute force, and the formula of BM25; broken collections."""

import collections
import dataclasses
import gzip
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import unicodedata

import bm25s
import numpy as np
import pyarrow
import pytest
import pytrec_eval
from pyarrow import parquet

from bert_jax.errors import UserError
from bert_jax.scoring.ranking import NOT_RETRIEVED, ndcg_recall_mrr_map, rank_by_bm25, rank_by_vectors
from bert_jax.scoring.retrieval import ranking_measures
from bert_jax.scoring.retrieval_files import Collection, read_collection, sort_in_tie_order
from bert_jax.search import top_documents
from bert_jax.search.bm25 import split_into_words
from tests.helpers.hub_server import Hub

ROOT = pathlib.Path(__file__).resolve().parents[2]
IDS = [str(number) for number in (3, 10, 1, 20, 2, 100, 11)] + ["é", "z", "Z"]
TREC = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "map": "map"}


def collection(documents: int, judgments: dict[str, dict[str, int]]) -> Collection:
    return Collection(
        document_ids=sort_in_tie_order(f"d{number}" for number in range(documents)),
        documents=["text"] * documents,
        query_ids=list(judgments),
        queries=["text"] * len(judgments),
        judgments=judgments,
        num_unjudged=0,
        num_unknown=0,
        num_empty=0,
    )


def judged_at_random(random: np.random.Generator, documents: int, queries: int) -> dict[str, dict[str, int]]:
    """Graded judgments: some negative, some of documents outside of the corpus, some queries without a relevant one."""
    judgments = {}
    for query in range(queries):
        names = random.choice(documents + 20, size=random.integers(1, 40), replace=False)
        grades = random.integers(-1, 1 if query % 7 == 0 else 4, size=len(names))
        judgments[f"q{query}"] = {f"d{name}": int(grade) for name, grade in zip(names, grades, strict=True)}
    return judgments


def trec_run(sample: Collection, scores: np.ndarray, depth: int) -> dict[str, dict[str, float]]:
    """The documents that trec_eval ranks: the `depth` best of each query by score, the larger id first among equals."""
    run = {}
    for query, row in zip(sample.query_ids, scores, strict=True):
        ids = sorted(range(len(row)), key=lambda index: (row[index], sample.document_ids[index].encode()), reverse=True)
        run[query] = {sample.document_ids[index]: float(row[index]) for index in ids[:depth]}
    return run


@pytest.mark.parametrize("depth", [7, 50, 300])
def test_measures_equal_trec_eval_ties_included(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_documents, "DOCUMENT_BLOCK", 64)
    monkeypatch.setattr(top_documents, "QUERY_BLOCK", 16)
    random = np.random.default_rng(depth)
    sample = collection(300, judged_at_random(random, 300, 50))
    # Vectors of few small integers: most scores are equal to others, and exact in float32.
    queries, documents = (random.integers(0, 3, size=(count, 4)).astype(np.float32) for count in (50, 300))
    rankings = rank_by_vectors(queries, documents, depth=depth)
    run = trec_run(sample, queries @ documents.T, depth)
    wanted = pytrec_eval.RelevanceEvaluator(sample.judgments, {"ndcg_cut.10", "recall.10,100", "map"}).evaluate(run)
    computed = ranking_measures(sample, rankings)
    for name, trec_name in TREC.items():
        expected = [wanted[query][trec_name] for query in sample.query_ids]
        np.testing.assert_allclose(computed[name], expected, rtol=0, atol=1e-9, err_msg=name)
    first_ten = trec_run(sample, queries @ documents.T, 10 if depth > 10 else depth)
    reciprocal = pytrec_eval.RelevanceEvaluator(sample.judgments, {"recip_rank"}).evaluate(first_ten)
    expected = [reciprocal[query]["recip_rank"] for query in sample.query_ids]
    np.testing.assert_allclose(computed["mrr@10"], expected, rtol=0, atol=1e-9)


def test_ties_rank_by_bytes_of_the_id() -> None:
    ids = sort_in_tie_order(IDS)
    rankings = rank_by_vectors(np.ones((1, 2), np.float32), np.ones((len(IDS), 2), np.float32), depth=20)
    assert [ids[index] for index in rankings[0]] == ["é", "z", "Z", "3", "20", "2", "11", "100", "10", "1"]


def test_only_the_query_itself_is_not_ranked() -> None:
    """As BEIR in ArguAna, where queries are documents; a collection may also number both independently."""
    sample = collection(3, {"d1": {"d2": 1}})
    as_query = dataclasses.replace(sample, queries=["own"], documents=["", "Title own", ""])
    ranking = np.array([[1, 2, 0]])
    for case, judgments, rank in (
        (as_query, {"d2": 1}, 2),
        (dataclasses.replace(as_query, documents=["", "another text", ""]), {"d2": 1}, 3),
        (as_query, {"d1": 1}, 1),
    ):
        computed = ranking_measures(dataclasses.replace(case, judgments={"d1": judgments}), ranking)
        assert computed["mrr@10"].tolist() == [1 / rank]


def test_bm25_equals_its_formula() -> None:
    texts = ["The cat sat. The cat!", "a dog sat on the cat", "birds", "", "Der Hund, der Hund"]
    queries = ["the cat", "hund vogel", "vogel", "x", "birds birds sat"]
    rankings = rank_by_bm25(queries, texts)
    words = [re.findall(r"\w\w+", text.lower()) for text in texts]
    mean_length = sum(map(len, words)) / len(words)
    for query, ranked in zip(queries, rankings, strict=True):
        scores = np.zeros(len(texts))
        for word in re.findall(r"\w\w+", query.lower()):
            containing = sum(word in document for document in words)
            weight = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
            for index, document in enumerate(words):
                count = collections.Counter(document)[word]
                scores[index] += weight * count / (count + 0.9 * (0.6 + 0.4 * len(document) / mean_length))
        wanted = [index for index in np.argsort(-scores, kind="stable") if scores[index] > 0]
        assert [index for index in ranked if index != NOT_RETRIEVED] == wanted


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("दिल्ली", "दिल्ली बड़ा शहर है।", "मौसम अच्छा है।"),
        ("கொள்கை", "கொள்கை முக்கியம்", "வானிலை நன்றாக உள்ளது"),
        ("आग", "वह आग है", "वह पानी है"),
        ("天气", "今天天气很好。", "我们去公园吧。"),
        ("水", "水。", "火。"),
        ("人々", "多くの人々がいる", "東京ヘ行ク"),
        ("อากาศ", "วันนี้อากาศดี", "ไปสวนกัน"),
        ("ကောင်း", "နေကောင်းလား။", "သွားမယ်"),
        ("ọjọ́", "ọjọ́ dára", "ọ̀la ni"),
        ("Đường", "con đường dài", "thời tiết"),
        ("날씨", "날씨 좋다", "공원 크다"),
        ("גָּדוֹל", "בַּיִת גָּדוֹל", "עִיר"),
    ],
)
def test_bm25_finds_words_in_every_script(query, right, wrong, form) -> None:
    texts = [unicodedata.normalize(form, text) for text in (wrong, right, "OK 12")]
    assert rank_by_bm25([query], texts).tolist() == [[1, NOT_RETRIEVED, NOT_RETRIEVED]]


def test_words_of_scripts_with_spaces_are_the_words_of_bm25s() -> None:
    texts = [
        "Straße nach 東京 und Übersee_2, x",
        "Οδός και δρόμος; καλά",
        "Съешь ещё этих мягких",
        "Գնանք այգի",
        "A1 b2 c",
    ]
    spaced = [text.replace("東京", "") for text in texts]
    expected = bm25s.tokenize(spaced, stopwords=None, return_ids=False, show_progress=False)
    assert list(map(split_into_words, spaced)) == expected
    assert split_into_words(texts[0]) == ["straße", "nach", "東京", "und", "übersee_2"]


def test_a_query_without_a_relevant_document_counts_zero() -> None:
    assert {name: value.tolist() for name, value in ndcg_recall_mrr_map(np.zeros((1, 3), int), [[0, -1]]).items()} == {
        name: [0.0] for name in ("ndcg@10", "recall@10", "recall@100", "mrr@10", "map")
    }


@pytest.fixture
def files(tmp_path):
    """A collection of three documents and three queries, one of them without a judgment."""
    (tmp_path / "qrels").mkdir()
    documents = [{"_id": "1", "title": "Cats", "text": "sit"}, {"_id": "2", "text": "dogs"}, {"_id": "3", "text": ""}]
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, documents)))
    queries = [{"_id": str(number), "text": f"query {number}"} for number in range(3)]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n\n")
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n0\t1\t1\n0\t9\t2\n2\t2\t0\n")
    return tmp_path


def test_contents_of_a_collection(files) -> None:
    sample = read_collection(files)
    assert (sample.document_ids, sample.documents) == (["3", "2", "1"], ["", "dogs", "Cats sit"])
    assert (sample.query_ids, sample.queries) == (["0", "2"], ["query 0", "query 2"])
    assert sample.judgments == {"0": {"1": 1, "9": 2}, "2": {"2": 0}}
    assert (sample.num_unjudged, sample.num_unknown, sample.num_empty) == (1, 1, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("qrels/test.tsv", "q\t1\t1\n", "the query 'q' does not occur in queries.jsonl"),
        ("qrels/test.tsv", "0\t1\n", "test.tsv:1: 2 values"),
        ("qrels/test.tsv", "0\t1\t1\n0\t1\tx\n", "test.tsv:2: the relevance 'x' is no integer"),
        ("qrels/test.tsv", "0\t1\t1.0\n2\t2\t1\n", "test.tsv:1: the relevance '1.0' is no integer"),
        ("qrels/test.tsv", "0\t1\t--1\n2\t2\t1\n", "test.tsv:1: the relevance '--1' is no integer"),
        ("qrels/test.tsv", "0\t1\t1\n2\t2\t--1\n", "test.tsv:2: the relevance '--1' is no integer"),
        ("qrels/test.tsv", "0\t1\t1\n2\t2\t\u00b2\n", "test.tsv:2: the relevance '\u00b2' is no integer"),
        (
            "qrels/test.tsv",
            f"0\t1\t{'9' * 5000}\n",
            f"test.tsv:1: the relevance '{'9' * 20}' is no integer of at most 6",
        ),
        ("qrels/test.tsv", "0\t1\t1000000\n", "test.tsv:1: the relevance '1000000' is no integer of at most 6 digits"),
        ("corpus.jsonl", '{"_id": "1", "title": 1984, "text": "a"}', "corpus.jsonl:1: no title with a string"),
        ("qrels/test.tsv", "0\t1\t1\n0\t1\t1\n", "test.tsv:2: a second judgment of document '1' for query '0'"),
        ("qrels/test.tsv", "query\tdocument\tscore\n", "holds no judgment"),
        ("queries.jsonl", '{"_id": 0, "text": "a"}', "queries.jsonl:1: no _id with a string"),
        ("queries.jsonl", '{"_id": "0"}', "queries.jsonl:1: no text with a string"),
        ("queries.jsonl", '{"_id": "0", "text": "a"}\n' * 2, "queries.jsonl:2: the _id '0' occurs twice"),
        ("queries.jsonl", '{"_id": "0", "text": " "}', "the query '0' is empty"),
        ("queries.jsonl", '{"_id": "\\ud83d", "text": "a"}', "queries.jsonl:1: the _id has half of a surrogate pair"),
        ("corpus.jsonl.gz", "plain", "corpus.jsonl.gz: not a whole gzip file"),
    ],
)
def test_a_broken_collection_is_refused(files, name: str, content: str, message: str) -> None:
    (files / name).write_text(content)
    with pytest.raises(UserError) as refused:
        read_collection(files)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_absent_file_or_split_is_named(files, tmp_path) -> None:
    with pytest.raises(UserError, match=r"dev\.tsv: not a file; choose a split from test"):
        read_collection(files, "dev")
    (files / "corpus.jsonl.gz").unlink()
    with pytest.raises(UserError, match=r"no corpus\.jsonl or corpus\.jsonl\.gz"):
        read_collection(files)


def write_nano(directory: pathlib.Path) -> pathlib.Path:
    """The collection of `files` in the layout of Nano; the judgments have no score."""
    rows = {
        "corpus": {"_id": ["1", "2", "3"], "text": ["Cats sit", "dogs", ""]},
        "queries": {"_id": ["0", "1", "2"], "text": ["query 0", "query 1", "query 2"]},
        "qrels": {"query-id": ["0", "0", "2"], "corpus-id": ["1", "9", "2"]},
    }
    for name, columns in rows.items():
        (directory / name).mkdir(parents=True)
        parquet.write_table(pyarrow.table(columns), directory / name / "train-00000-of-00001.parquet")
    return directory


@pytest.mark.parametrize(
    ("document", "score", "message"),
    [
        ("1", 0, "row 2: a second judgment of document '1' for query '0'"),
        ("2", 10**6, "row 2: give an integer of at most 6 digits as score"),
    ],
)
def test_broken_judgments_in_parquet_are_refused(tmp_path, document: str, score: int, message: str) -> None:
    columns = {"query-id": ["0", "0"], "corpus-id": ["1", document], "score": [1, score]}
    path = write_nano(tmp_path) / "qrels" / "train-00000-of-00001.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(UserError, match=message):
        read_collection(tmp_path)


def test_judgments_of_nano_are_read_for_tests_alone(tmp_path) -> None:
    with pytest.raises(UserError, match="qrels: no judgments of the split tset; choose a split from train"):
        read_collection(write_nano(tmp_path), "tset")
    assert read_collection(tmp_path, "train").judgments == read_collection(tmp_path).judgments


def test_a_collection_in_the_layout_of_nano(tmp_path) -> None:
    sample = read_collection(write_nano(tmp_path))
    assert (sample.document_ids, sample.documents) == (["3", "2", "1"], ["", "dogs", "Cats sit"])
    assert (sample.query_ids, sample.queries) == (["0", "2"], ["query 0", "query 2"])
    assert sample.judgments == {"0": {"1": 1, "9": 1}, "2": {"2": 1}}
    assert (sample.num_unjudged, sample.num_unknown, sample.num_empty) == (1, 1, 1)


def test_a_nano_collection_is_downloaded_by_its_name(tmp_path) -> None:
    hub = Hub()
    hub.add("zeta-alpha-ai/NanoNQ", write_nano(tmp_path / "data"))
    code = "import pathlib, bert_jax.scoring.retrieval_files as files\n"
    code += "print(files.read_collection(pathlib.Path('NanoNQ')).documents)"
    with hub.serving() as url:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert done.stdout == "['', 'dogs', 'Cats sit']\n", done.stderr
