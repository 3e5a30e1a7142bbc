"""A training of sentence vectors whose evaluations search a test collection."""

import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

import bert_jax
from bert_jax.config import FinetuneTrainConfig, TaskConfig
from bert_jax.config.recipes import finetuning
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.finetuning.dev_retrieval import sentence_modules_of_task
from bert_jax.finetuning.inputs import TaskInputs, read_task_inputs
from bert_jax.finetuning.pairs import changed_token_rules_warning, with_prompts_of_weights
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.models import Head
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, prompt_of_role
from bert_jax.tasks.late_interaction import TokenRules, token_rules
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from tests.finetuning.test_mine import write_lines
from tests.helpers import tiny_models
from tests.helpers.finetuning_runs import RECIPE, finetune_command

ROOT = pathlib.Path(__file__).resolve().parents[2]


def inputs_of(config) -> tuple[TaskInputs, str]:
    """The inputs of a fine-tuning, and the printed lines."""
    frozen, out = bert_jax.resolve(bert_jax.FinetuneConfig, config), io.StringIO()
    return read_task_inputs(frozen.init_from, frozen.task, frozen.train, False, 0, Console(out)), out.getvalue()


def write_pairs_and_collection(directory):
    """Write train.jsonl, dev.jsonl and a collection of the same texts; return the pairs and the collection's path."""
    random = np.random.default_rng(0)
    texts = [" ".join("".join(random.choice(list("abcdefghij"), 2)) for _ in range(5)) for _ in range(24)]
    pairs = [{"text": text[:5], "text_pair": text} for text in texts]
    write_lines(directory / "train.jsonl", pairs[:16])
    write_lines(directory / "dev.jsonl", [{**pair, "label": n % 2} for n, pair in enumerate(pairs[16:])])
    collection = directory / "collection"
    (collection / "qrels").mkdir(parents=True)
    write_lines(collection / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    write_lines(collection / "queries.jsonl", [{"_id": f"q{n}", "text": text[:5]} for n, text in enumerate(texts)])
    (collection / "qrels" / "test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(24)))
    return pairs, collection


@pytest.mark.parametrize(
    "vector_head", ["dense", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sparse", "late_interaction"))]
)
def test_evaluations_search_a_collection_and_choose_the_best_model(tmp_path, vector_head, monkeypatch) -> None:
    tiny_models.save(tmp_path / "model", "bert")
    pairs, collection = write_pairs_and_collection(tmp_path)
    config = finetuning(epochs=2, batch_size=8, learning_rate=1e-2, max_seq_len=16)
    config.init_from = str(tmp_path / "model")
    config.task.update(name="custom", kind="similarity", query_prompt="a ", retrieval=str(collection))
    config.task.update(vector_head=vector_head)
    if VECTOR_HEADS[vector_head].has_token_vectors:
        config.task.update(vector_width=8, query_length=12)
    config.task.update(train=str(tmp_path / "train.jsonl"), dev=str(tmp_path / "dev.jsonl"), metric="ndcg@10")
    config.evaluate.every = 1
    shown = set()
    monkeypatch.setattr(Console, "progress", lambda console, task, *counts: shown.add((task, *counts[:1])))
    results = bert_jax.finetune(config, tmp_path / "run", console=Console(silent=True))
    assert results is not None
    # Each text restarts the clock of the watchdog.
    assert {(f"embedding {role}", n + 1) for role in ("queries", "documents") for n in range(24)} <= shown
    lines = map(json.loads, (tmp_path / "run" / "runs" / "lr0.01_seed0" / "metrics.jsonl").read_text().splitlines())
    history = {line["step"]: line["ndcg@10"] for line in lines if line["split"] == "heldout"}
    assert len(history) == 4
    assert results["best"]["step"] == max(history, key=history.__getitem__)
    # The exported model, with its prompt, has the scores of the evaluation.
    row = bert_jax.score(tmp_path / "run" / "model", retrieval=[collection])["results"][0]["rows"]["model"]
    assert {name: results["best"]["scores"][name] for name in row} == pytest.approx(row, abs=1e-6)

    if vector_head != "dense":
        return
    # Weights with prompts are trained, searched and exported with their prompts, or with the prompts of the settings.
    config.init_from = str(tmp_path / "run" / "model")
    for given, query in ((None, "a "), ("", ""), ("b ", "b ")):
        config.task.query_prompt = given
        inputs, said = inputs_of(config)
        assert f"prompts: '{query}' before each text, '' before each text_pair and negative" in said
        ids, _ = inputs.train[0].features[0].sequences[0]
        assert ids.tolist() == inputs.tokenizer.encode(query + pairs[0]["text"])
        sentences = sentence_modules_of_task(inputs, inputs.settings)
        assert prompt_of_role(sentences.prompts, sentences.prompt, QUERIES) == query
        assert prompt_of_role(sentences.prompts, sentences.prompt, DOCUMENTS) == ""

    # A resumed training must find the judgments that it began with.
    before = inputs.fingerprint
    (collection / "qrels" / "test.tsv").write_text("q0\td1\t1\n")
    after = inputs_of(config)[0].fingerprint
    assert [name for name in before if before[name] != after[name]] == ["retrieval"]

    config.task.retrieval = str(tmp_path)
    with pytest.raises(UserError, match="no corpus"):
        bert_jax.finetune(config, tmp_path / "other", console=Console(silent=True))
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_eight_devices_search_as_one(tmp_path) -> None:
    tiny_models.save(tmp_path / "start", "bert")
    (tmp_path / "recipe.py").write_text(RECIPE)
    (tmp_path / "similarity").mkdir()
    _, collection = write_pairs_and_collection(tmp_path / "similarity")
    search = (f"task.retrieval={collection}", "task.metric=ndcg@10", "evaluate.every=2")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    run = subprocess.run(
        [sys.executable, "-m", "bert_jax", *finetune_command(tmp_path, tmp_path / "run", "similarity", *search)],
        cwd=ROOT,
        # NPROC sizes XLA's thread pool: with only as many threads as cores, waiting collectives fill it.
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    scores = json.loads((tmp_path / "run" / "results.json").read_text())["best"]["scores"]
    row = bert_jax.score(tmp_path / "run" / "model", retrieval=[collection])["results"][0]["rows"]["model"]
    assert {name: scores[name] for name in row} == pytest.approx(row, abs=1e-6)


@pytest.mark.parametrize(
    ("known", "default", "settings", "expected"),
    [
        ({"query": "query: ", "passage": "passage: "}, None, {}, {"query": "query: ", "passage": "passage: "}),
        (
            {"query": "query: ", "passage": "p: "},
            None,
            {"document_prompt": "d: "},
            {"query": "query: ", "passage": "d: "},
        ),
        ({"query": "query: "}, None, {"query_prompt": ""}, {"query": "", "document": ""}),
        ({"sts": "compare: "}, "sts", {}, {"sts": "compare: ", "query": "compare: ", "document": "compare: "}),
        ({"sts": "compare: "}, None, {"query_prompt": "q "}, {"sts": "compare: ", "query": "q ", "document": ""}),
        ({}, None, {"query_prompt": "q "}, {"query": "q "}),
        ({}, None, {}, {}),
    ],
)
def test_exported_prompts_are_the_prompts_of_the_training(known, default, settings, expected) -> None:
    weights = SentenceModules(prompts=known, default_prompt=default)
    task = with_prompts_of_weights(TaskConfig(kind="similarity", **settings), weights, Console(silent=True))
    inputs = types.SimpleNamespace(
        weights=types.SimpleNamespace(sentences=weights, heads=(Head("sentence_embedding"),))
    )
    exported = sentence_modules_of_task(inputs, task)
    assert exported.prompts == expected
    for role, prompt in ((QUERIES, task.query_prompt), (DOCUMENTS, task.document_prompt)):
        assert prompt_of_role(exported.prompts, exported.prompt, role) == (prompt or "")


def test_vectors_that_start_from_a_cross_encoder_are_exported_as_vectors() -> None:
    known = SentenceModules(activation="sigmoid", similarity="dot")
    inputs = types.SimpleNamespace(weights=types.SimpleNamespace(sentences=known, heads=(Head("sentence_embedding"),)))
    exported = sentence_modules_of_task(inputs, TaskConfig(kind="similarity"))
    assert exported == SentenceModules(normalize=True, max_seq_len=exported.max_seq_len)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({}, ""),
        ({"query_length": 8}, "query_length 32 instead of 8"),
        ({"expands": False}, "mask tokens in queries True instead of False"),
        ({"attends": True}, "attention to mask tokens False instead of True"),
        ({"skipped_words": (".", "!")}, "% & ' ( ) * + , - . / : ; < = > ? @ [ \\ ] ^ _ ` { | } ~ instead of ! ."),
    ],
)
def test_changed_rules_of_late_interaction_are_named(rules, says) -> None:
    settings = TaskConfig(kind="similarity", vector_head="late_interaction")
    trained = SentenceModules(vector_head="late_interaction", token_rules=token_rules(settings)._replace(**rules))
    warning = changed_token_rules_warning(settings, trained)
    assert says in warning
    assert bool(warning) == bool(says)
    assert not changed_token_rules_warning(settings, SentenceModules(token_rules=TokenRules()))


def test_equal_texts_without_dropout_are_refused(tmp_path) -> None:
    write_lines(tmp_path / "train.jsonl", [{"text": text, "text_pair": text} for text in ("ab cd", "ef", "gh")])
    write_lines(tmp_path / "dev.jsonl", [{"text": "ab", "text_pair": "cd", "label": label} for label in (0, 1)])
    tiny_models.save(tmp_path / "model", "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = finetuning(epochs=1, batch_size=2, learning_rate=1e-2, max_seq_len=16)
    config.init_from = str(tmp_path / "model")
    config.task.update(name="custom", kind="similarity", dropout=None)
    config.task.update(train=str(tmp_path / "train.jsonl"), dev=str(tmp_path / "dev.jsonl"))
    with pytest.raises(
        UserError, match=r"no dropout, so both vectors of a pair are equal; set config.task.dropout=0.1"
    ):
        inputs_of(config)
    config.task.dropout = 0.1
    assert len(inputs_of(config)[0].train[0].features) == 3


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
