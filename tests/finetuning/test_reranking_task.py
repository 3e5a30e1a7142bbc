"""Reranking from a file to a CrossEncoder: scores, refusals, the dev set, and its use in `mine` and `score`."""

import json
import random

import numpy as np
import pytest
import sentence_transformers

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.inference.cross_encoder import make_cross_encoder_scorer
from bert_jax.inference.predict import load_predictor
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import resolve_task
from tests.helpers.finetuning_runs import read_lines, write_lines
from tests.helpers.tiny_models import LETTERS, save

SETTINGS = {"name": "custom", "kind": "reranking", "train": "train.jsonl"}


def query(rng, number):
    texts = ["".join(rng.choices(LETTERS, k=rng.randint(3, 8))) for _ in range(4)]
    return {"text": f"{texts[0]} {number // 2}", "text_pair": texts[0][:2] + texts[1], "negative": texts[2:]}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A directory with queries in `train.jsonl`, and a reranker in `run`."""
    place = tmp_path_factory.mktemp("reranking")
    rng = random.Random(0)
    write_lines(place / "train.jsonl", [query(rng, number) for number in range(60)])
    save(place / "start", "bert", "ForPreTraining")
    argv = ["finetune", "--config=reranking", f"--workdir={place / 'run'}", f"--config.init_from={place / 'start'}"]
    argv += [f"--config.task.data={place}", "--config.task.train=train.jsonl", "--config.task.dev_fraction=0.3"]
    argv += ["--config.task.max_seq_len=24", "--config.optimizer.peak_learning_rate=1e-3"]
    assert main(argv) == 0
    return place


def test_scores_equal_a_cross_encoder_and_the_dev_scores_follow(run) -> None:
    written = read_lines(run / "run" / "predictions" / "custom-dev.jsonl")
    scorer = sentence_transformers.CrossEncoder(str(run / "run" / "model"), device="cpu")
    ranks = []
    for line in written:
        row = line["input"]
        documents = [row["text_pair"], *row["negative"]]
        expected = scorer.predict([(row["text"], document) for document in documents])
        np.testing.assert_allclose(line["scores"], expected, rtol=0, atol=2e-6)  # written with 6 decimals
        assert line["gold"] == [1.0, 0.0, 0.0]
        ranks.append(1 + [*np.argsort(-expected)].index(0))
    best = json.loads((run / "run" / "results.json").read_text())["best"]["scores"]
    assert best["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert best["accuracy"] == pytest.approx(np.mean([rank == 1 for rank in ranks]))

    # Pairs without negatives have one score; all forms of prediction agree.
    pairs = [(line["input"]["text"], line["input"]["text_pair"]) for line in written]
    expected = [line["scores"][0] for line in written]
    predicted = [line["scores"] for line in bert_jax.load(run / "run").predict(pairs)]
    np.testing.assert_allclose(predicted, np.array(expected)[:, None], rtol=0, atol=2e-6)
    scores = make_cross_encoder_scorer(load_predictor(run / "run"))(pairs)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6)
    lines = [{"text": text, "text_pair": document} for text, document in pairs]
    write_lines(run / "pairs.jsonl", lines)
    argv = ["predict", f"--model={run / 'run'}", f"--input={run / 'pairs.jsonl'}", f"--output={run / 'scores.jsonl'}"]
    assert main(argv) == 0
    predicted = [line["scores"] for line in read_lines(run / "scores.jsonl")]
    np.testing.assert_allclose(predicted, np.array(expected)[:, None], rtol=0, atol=2e-6)

    # `mine` writes the scores of this model.
    write_lines(run / "corpus.jsonl", [{"text": document} for _, document in pairs])
    files = (run / "pairs.jsonl", run / "corpus.jsonl", run / "mined.jsonl")
    bert_jax.mine_negatives(*files, ranks=(0, 5), model=run / "start", cross_encoder=run / "run")
    for line in read_lines(run / "mined.jsonl"):
        expected = scorer.predict([(line["text"], text) for text in (line["text_pair"], *line["negative"])])
        np.testing.assert_allclose(line["scores"], expected, rtol=0, atol=2e-6)


def test_the_card_has_code_that_scores_pairs(run, tmp_path, monkeypatch) -> None:
    bert_jax.export(run / "run", tmp_path / "export")
    text = (tmp_path / "export" / "README.md").read_text()
    assert "pipeline_tag: text-ranking" in text
    assert "sorting the documents that a search found" in text
    code = text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path / "export")
    scope: dict = {}
    exec(code, scope)
    assert len(scope["scores"]) == 2


def test_rows_with_one_query_are_held_out_together(run) -> None:
    settings = TaskConfig(**SETTINGS, data=str(run), dev_fraction=0.3)
    task = resolve_task(settings)
    train, dev = ({row["text"] for row in read_task_examples(task, settings, split)} for split in ("train", "dev"))
    assert train
    assert dev
    assert not train & dev


ROW = {"text": "a", "text_pair": "b", "negative": ["c", "d"]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROW, "negative": ["c"]}, "example '1' has 1 negatives, and the first example has 2; give"),
        ({**ROW, "negative": ["b", "c"]}, r"train.jsonl:2: negative equals text_pair; remove it"),
        ({"text": "a", "text_pair": "b"}, r"train.jsonl:2: has no negative; add it"),
        ({**ROW, "negative": "c"}, "example '1' has 1 negatives"),
        ({**ROW, "negative": [1, 2]}, r"train.jsonl:2: negative is 1, not a text"),
        ({**ROW, "negative": []}, r"train.jsonl:2: negative is an empty list; add a text"),
    ],
)
def test_rows_without_fitting_negatives_are_refused(tmp_path, row, message) -> None:
    write_lines(tmp_path / "train.jsonl", [ROW, row, ROW])
    save(tmp_path / "start", "bert", "ForPreTraining")
    with pytest.raises(UserError, match=message):
        bert_jax.finetune(
            "reranking",
            tmp_path / "run",
            {
                "init_from": tmp_path / "start",
                "task.data": tmp_path,
                "task.train": "train.jsonl",
                "task.dev": "train.jsonl",
                "task.max_seq_len": 24,
            },
        )


def test_the_rank_of_the_right_document_counts_equal_scores_before_it() -> None:
    task = resolve_task(TaskConfig(**SETTINGS, dev_fraction=0.5))
    examples = [{"id": str(number), "negative": ["x", "y"]} for number in range(4)]
    scores = score_predictions(task, examples, [[3, 1, 2], [1, 1, 0], [0, 2, 1], [2, 2, 2]])
    assert scores == {"mrr": pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 3) / 4), "accuracy": 0.25}
