"""Cross-encoders: their scores of pairs, and rankings that a cross-encoder sorts again."""

import json
import random

import numpy as np
import pytest
import pytrec_eval
import torch
from sentence_transformers import CrossEncoder

import bert_jax
from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.inference.cross_encoder import make_cross_encoder_scorer
from bert_jax.inference.predict import load_predictor
from bert_jax.scoring.ranking import NOT_RETRIEVED, rank_by_bm25, rerank_by_pairs
from tests.helpers import tiny_models

WORDS = ("ab", "cd", "ef", "gh", "ba", "dc")


@pytest.mark.parametrize(
    ("labels", "relevant"),
    [
        (("0", "1"), 1),
        (("entailment", "not_entailment"), 0),
        (("match", "no_match"), 0),
        (("Duplicate", "not duplicate"), 0),
        (("LABEL_0", "LABEL_1"), 1),
        (("no", "yes"), 1),
        (("red", "green"), None),
        (("match", "relevant"), None),
    ],
)
def test_two_labels_of_a_cross_encoder_are_read_by_their_names(tmp_path, labels, relevant) -> None:
    """The score is the log odds of the relevant label, as `transformers` computes the probabilities."""
    model, tokenizer = tiny_models.save(
        tmp_path, "bert", "ForSequenceClassification", id2label=dict(enumerate(labels)), num_labels=2
    )
    if relevant is None:
        with pytest.raises(UserError, match=f"labels '{labels[0]}' and '{labels[1]}'"):
            make_cross_encoder_scorer(load_predictor(tmp_path))
        return
    with torch.no_grad():
        logits = model(**tokenizer(["ab"], ["cd"], return_tensors="pt")).logits[0]
    odds = torch.log_softmax(logits, 0)[relevant] - torch.log_softmax(logits, 0)[1 - relevant]
    np.testing.assert_allclose(make_cross_encoder_scorer(load_predictor(tmp_path))([("ab", "cd")]), odds, atol=1e-5)


def test_the_first_documents_are_sorted_by_the_scores_of_their_pairs() -> None:
    rng = np.random.default_rng(0)
    queries, documents = [f"q{n}" for n in range(5)], [f"d{n}" for n in range(12)]
    score_of = {(q, d): float(rng.integers(4)) for q in queries for d in documents}  # with ties
    rankings = [np.stack([rng.permutation(12) for _ in queries]) for _ in range(2)]
    rankings[1][2, 3:], rankings[1][4] = NOT_RETRIEVED, NOT_RETRIEVED
    asked: list[tuple[str, str]] = []

    def scores_of_pairs(pairs):
        asked.extend(pairs)
        return np.array([score_of[pair] for pair in pairs], np.float32)

    before = [ranking.copy() for ranking in rankings]
    reranked = rerank_by_pairs(rankings, scores_of_pairs, queries, documents, 7)
    assert all(np.array_equal(*both) for both in zip(before, rankings, strict=True))
    assert len(asked) == len(set(asked))
    for old, new in zip(before, reranked, strict=True):
        for row, query in enumerate(queries):
            first = [index for index in old[row, :7].tolist() if index >= 0]
            expected = sorted(first, key=lambda index, q=query: (-score_of[q, documents[index]], first.index(index)))
            assert new[row].tolist() == [*expected, *old[row, len(expected) :]]


def test_reranked_measures_equal_sentence_transformers_and_trec_eval(tmp_path, capsys) -> None:
    """The order is the order of `CrossEncoder.rank`, and the measures are the measures of pytrec_eval."""
    rng = random.Random(0)
    documents = {f"d{n}": " ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for n in range(30)}
    queries = {f"q{n}": " ".join(rng.sample(WORDS[:4], 2)) for n in range(6)}
    judged = {query: {name: rng.randint(0, 2) for name in rng.sample([*documents], 8)} for query in queries}
    (tmp_path / "qrels").mkdir()
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = (json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items())
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    rows = (f"{q}\t{d}\t{score}\n" for q, of_query in judged.items() for d, score in of_query.items())
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    tiny_models.save(tmp_path / "dense", "bert", "Model")
    tiny_models.save(tmp_path / "judge", "bert", "ForSequenceClassification", num_labels=1)

    settings = {"retrieval": tmp_path, "rerank": tmp_path / "judge", "rerank_depth": 10}
    (found,) = bert_jax.score(tmp_path / "dense", **settings)["results"]
    assert [*found["rows"]] == ["model", "BM25", "model, reranked", "BM25, reranked"]
    judge = CrossEncoder(str(tmp_path / "judge"), device="cpu")
    names = sorted(documents, reverse=True)  # the order of ties
    ranking = rank_by_bm25([*queries.values()], [documents[name] for name in names])
    run = {}
    for query, ranked in zip(queries, ranking, strict=True):
        ranked = [names[index] for index in ranked if index != NOT_RETRIEVED]
        hits = judge.rank(queries[query], [documents[name] for name in ranked[:10]])
        order = [*(ranked[hit["corpus_id"]] for hit in hits), *ranked[10:]]
        run[query] = {name: float(-rank) for rank, name in enumerate(order)}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut_10", "map", "recall_10"})
    measured = evaluator.evaluate(run).values()
    for ours, theirs in (("ndcg@10", "ndcg_cut_10"), ("map", "map"), ("recall@10", "recall_10")):
        mean = np.mean([of_query[theirs] for of_query in measured])
        assert found["rows"]["BM25, reranked"][ours] == pytest.approx(mean, abs=1e-9)
    assert found["rows"]["BM25"] != found["rows"]["BM25, reranked"]
    assert (
        main(["score", f"--model={tmp_path / 'dense'}", f"--retrieval={tmp_path}", f"--rerank={tmp_path / 'judge'}"])
        == 0
    )
    assert "model, reranked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rerank": "judge"}, "--rerank needs --retrieval"),
        ({"retrieval": ".", "rerank_depth": 5}, "--rerank_depth needs --rerank"),
        ({"retrieval": ".", "rerank": "judge", "rerank_depth": 0}, "--rerank_depth 0: give a number above 0"),
        ({"retrieval": ".", "rerank": "many"}, "the cross-encoder answers the task sequence_classification with 3"),
    ],
)
def test_options_of_reranking_that_do_not_fit_are_refused(tmp_path, monkeypatch, more, message) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_models.save(tmp_path / "judge", "bert", "ForSequenceClassification", num_labels=1)
    tiny_models.save(tmp_path / "many", "bert", "ForSequenceClassification", num_labels=3)
    with pytest.raises(UserError, match=message):
        bert_jax.score("judge", **({} if "retrieval" in more else {"pairs": "zorro_small"}), **more)


def test_a_cross_encoder_in_place_of_a_model_of_vectors_is_warned_about(tmp_path, capsys) -> None:
    tiny_models.save(tmp_path / "judge", "bert", "ForSequenceClassification", num_labels=1)
    CrossEncoder(str(tmp_path / "judge"), device="cpu").save_pretrained(str(tmp_path / "theirs"))
    (tmp_path / "qrels").mkdir()
    for name in ("corpus", "queries"):
        (tmp_path / f"{name}.jsonl").write_text('{"_id": "1", "text": "ab cd"}\n{"_id": "2", "text": "ef"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("1\t2\t1\n")
    bert_jax.score(tmp_path / "theirs", retrieval=tmp_path)
    assert "compares the means of its token vectors" in capsys.readouterr().err
