"""The adapter of mteb, with a task of local files; `pip install mteb` makes the test run."""

import os
import sys
import types

import numpy as np
import pytest

from bert_jax.checkpoints.load_model import open_model
from bert_jax.inference.embed import HEADS
from bert_jax.scoring.retrieval import score_retrieval
from bert_jax.search.mteb_encoder import mteb_encoder
from tests.finetuning.test_mine import write_lines
from tests.helpers import tiny_models
from tests.interop import test_multi_vector_encoders, test_sparse_encoders


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mteb_computes_the_same_scores(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks import AbsTaskRetrieval

    random = np.random.default_rng(0)
    texts = [" ".join("".join(random.choice(list("abcdefghij"), 2)) for _ in range(5)) for _ in range(40)]
    queries = [text[:8] for text in texts[:12]]
    relevant = {f"q{n}": {f"d{n}": 1} for n in range(12)}
    tiny_models.save(tmp_path / "model", "bert")
    (tmp_path / "qrels").mkdir()
    write_lines(tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    write_lines(tmp_path / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(queries)])
    (tmp_path / "qrels" / "test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(12)))

    class LocalTask(AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            name="LocalTask",
            description="A task of local files",
            dataset={"path": "local", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *unused, **also_unused):
            documents = [{"id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]
            asked = [{"id": f"q{n}", "text": text} for n, text in enumerate(queries)]
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": datasets.Dataset.from_list(documents),
                        "queries": datasets.Dataset.from_list(asked),
                        "relevant_docs": relevant,
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

    results = mteb.evaluate(
        mteb_encoder(tmp_path / "model"),
        LocalTask(),
        cache=mteb.ResultCache(tmp_path / "cache"),
        show_progress_bar=False,
    )
    scores = results.task_results[0].scores["test"][0]
    row = score_retrieval(open_model(tmp_path / "model", HEADS), tmp_path).rows["model"]
    for theirs, ours in (("ndcg_at_10", "ndcg@10"), ("recall_at_10", "recall@10"), ("recall_at_100", "recall@100")):
        assert scores[theirs] == pytest.approx(row[ours], abs=1e-5), ours  # mteb rounds to five digits


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", [test_sparse_encoders, test_multi_vector_encoders])
def test_the_metadata_have_the_width_of_the_vectors_and_the_length_of_texts(tmp_path, monkeypatch, module):
    models = types.SimpleNamespace(ModelMeta=types.SimpleNamespace(create_empty=lambda fields: fields))
    monkeypatch.setitem(sys.modules, "mteb", types.ModuleType("mteb"))
    monkeypatch.setitem(sys.modules, "mteb.models", models)
    tiny_models.save(tmp_path / "model", "bert")
    theirs = module.save_theirs(tmp_path / "model", tmp_path / "theirs")
    encoder = mteb_encoder(tmp_path / "theirs")
    metadata, vectors = encoder.mteb_model_meta, encoder.encode([{"text": ["a b"]}])
    assert metadata["embed_dim"] == vectors.shape[-1]
    assert metadata["max_tokens"] == theirs.max_seq_length
