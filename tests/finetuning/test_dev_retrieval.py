"""A training of sentence vectors whose evaluations search a test collection."""

import dataclasses
import io
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.config import FinetuneTrainConfig, TaskConfig
from bert_jax.config.recipes import finetuning
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.finetuning.inputs import read_task_inputs
from tests.finetuning.test_mine import write_lines
from tests.helpers import tiny_models


def test_evaluations_search_a_collection_and_choose_the_best_model(tmp_path) -> None:
    tiny_models.save(tmp_path / "model", "bert")
    random = np.random.default_rng(0)
    texts = [" ".join("".join(random.choice(list("abcdefghij"), 2)) for _ in range(5)) for _ in range(24)]
    pairs = [{"text": text[:5], "text_pair": text} for text in texts]
    write_lines(tmp_path / "train.jsonl", pairs[:16])
    write_lines(tmp_path / "dev.jsonl", [{**pair, "label": n % 2} for n, pair in enumerate(pairs[16:])])
    collection = tmp_path / "collection"
    (collection / "qrels").mkdir(parents=True)
    write_lines(collection / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    write_lines(collection / "queries.jsonl", [{"_id": f"q{n}", "text": text[:5]} for n, text in enumerate(texts)])
    (collection / "qrels" / "test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(24)))
    config = finetuning(epochs=2, batch_size=8, learning_rate=1e-2, max_seq_len=16)
    config.init_from = str(tmp_path / "model")
    config.task.update(name="custom", kind="similarity", query_prompt="a ", retrieval=str(collection))
    config.task.update(train=str(tmp_path / "train.jsonl"), dev=str(tmp_path / "dev.jsonl"), metric="ndcg@10")
    config.evaluate.every = 1
    results = bert_jax.finetune(config, tmp_path / "run", console=Console(silent=True))
    assert results is not None
    lines = map(json.loads, (tmp_path / "run" / "runs" / "lr0.01_seed0" / "metrics.jsonl").read_text().splitlines())
    history = {line["step"]: line["ndcg@10"] for line in lines if line["split"] == "heldout"}
    assert len(history) == 4
    assert results["best"]["step"] == max(history, key=history.__getitem__)
    # The exported model, with its prompt, has the scores of the evaluation.
    row = bert_jax.score(tmp_path / "run" / "model", retrieval=[collection])["results"][0]["rows"]["model"]
    assert {name: results["best"]["scores"][name] for name in row} == pytest.approx(row, abs=1e-6)

    config.task.retrieval = str(tmp_path)
    with pytest.raises(UserError, match="no corpus"):
        bert_jax.finetune(config, tmp_path / "other", console=Console(silent=True))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("splits", "chosen", "metric", "wanted", "warns"),
    [
        (["test"], None, "ndcg@10", "test", True),
        (["test"], None, "spearman", "test", False),  # the judgments choose no model
        (["dev", "test", "train"], None, "ndcg@10", "dev", False),
        (["dev", "test", "train"], "train", "ndcg@10", "train", False),
        (["dev", "test"], "test", "ndcg@10", "test", True),
        (["dev", "test"], "validation", "ndcg@10", None, False),
    ],
)
def test_judgments_of_dev_choose_the_model(tmp_path, splits, chosen, metric, wanted, warns) -> None:
    tiny_models.save(tmp_path / "model", "bert")
    (tmp_path / "qrels").mkdir()
    texts = [f"{'abcdefgh'[n]}b cd" for n in range(8)]
    for name in ("corpus", "queries"):
        write_lines(tmp_path / f"{name}.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    for n, split in enumerate(splits):
        (tmp_path / "qrels" / f"{split}.tsv").write_text(f"d{n}\td{n}\t1\n")
    pairs = [{"text": text, "text_pair": text[::-1], "label": n % 2} for n, text in enumerate(texts)]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    path = str(tmp_path / "pairs.jsonl")
    settings = TaskConfig(name="custom", kind="similarity", train=path, dev=path, max_seq_len=16, positive_from=1.0)
    settings = dataclasses.replace(settings, retrieval=str(tmp_path), retrieval_split=chosen, metric=metric)
    out = io.StringIO()

    def read():
        return read_task_inputs(str(tmp_path / "model"), settings, FinetuneTrainConfig(), False, 0, Console(out))

    if wanted is None:
        with pytest.raises(UserError, match=r"validation\.tsv: not a file; choose a split from dev, test"):
            read()
        return
    collection = read().collection
    assert collection is not None
    assert list(collection.judgments) == [f"d{splits.index(wanted)}"]
    assert f"with the judgments of its split '{wanted}'" in out.getvalue()
    assert ("warning: test data choose" in out.getvalue()) == warns
