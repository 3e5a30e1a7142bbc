"""Time predictions with sequences packed end to end in rows, and with padded sequences, in alternating passes.

    python benchmarks/rows_speed.py --data QNLI/dev.tsv.gz --vocab bert-base-uncased/ --examples 2000

The model is a BERT with random weights and the head of QNLI, in float32. The inputs are pairs of a question and a
sentence of up to 128 tokens (`predict`, 32 a batch), and the sentences alone (`embed`, from the same model). The first
pass includes compilation; no persistent cache is used. The row `score` has the times for masked copies of the
questions, in the batches of `bert-jax score` and in batches of rows.
"""

import argparse
import contextlib
import csv
import dataclasses
import gzip
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.config import ComputeConfig
from bert_jax.inference import embed, outputs, predict
from bert_jax.inference.inputs import Input
from bert_jax.inference.row_limits import row_limits
from bert_jax.interop.huggingface import export_model
from bert_jax.models import PRESETS, Head, make_model
from bert_jax.parallel.sharding import SINGLE_HOST, single_device_mesh
from bert_jax.scoring.log_probabilities import QueryBatch, _collate, plan_query_batches
from bert_jax.scoring.queries import (
    Queries,
    join_queries,
    make_scoring_context,
    pseudo_log_likelihood_queries,
    tokenize_texts,
)
from bert_jax.tasks.batching import Feed, collate_batches, doubling_buckets
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.prediction_batches import plan_prediction_batches
from bert_jax.tasks.table import TASKS

PASSES = 5
SCORE_BATCH = 128  # masked copies
T_OF_95_PERCENT = 2.776  # of Student, for five pairs


def main() -> None:
    """Time each pass with padding and with rows, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="dev.tsv.gz of QNLI")
    parser.add_argument("--vocab", required=True, help="directory with the vocabulary of BERT uncased")
    parser.add_argument("--size", default="mini", help="of BERT: a row of bert_jax/config/presets.py")
    parser.add_argument("--examples", type=int, default=2_000)
    parser.add_argument("--scored", type=int, default=60, help="questions to score")
    arguments = parser.parse_args()
    with gzip.open(arguments.data, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[: arguments.examples]
    config = dataclasses.replace(PRESETS[arguments.size], max_positions=512)
    heads = (Head("sequence_classification", 2), Head("masked_token"))
    params = jax.device_get(jax.jit(make_model(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "model")
        exported = {name: x for name, x in params.items() if name != "masked_token"}
        export_model(exported, config, heads[:1], arguments.vocab, path, TASKS["qnli"].labels)
        loaded = open_model(path)
    loaded = dataclasses.replace(loaded, params=params)
    print(f"BERT-{arguments.size}, {len(rows):,} pairs, JAX {jax.__version__}, {jax.devices()[0].device_kind}\n")
    print(
        "| command | first pass, padded | first pass, rows | time with padding / with rows (95 % interval) | programs |"
    )
    print("| --- | --- | --- | --- | --- |")
    compare("predict", predictions(loaded, rows))
    compare("embed", vectors(loaded, [row["sentence"] for row in rows]))
    compare("score", scores(loaded, [row["question"] for row in rows[: arguments.scored]]))


def compare(name: str, pass_of_layout: Callable[[bool], Callable[[], Any]]) -> None:
    """Time passes of both layouts in turns; print a row of the table."""
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **of: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(of["fun_name"]))

    jax.monitoring.register_event_duration_secs_listener(listen)
    passes = {in_rows: pass_of_layout(in_rows) for in_rows in (False, True)}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    programs: dict[bool, int] = {}
    for _ in range(1 + PASSES):
        for in_rows, run in passes.items():
            compiled.clear()
            began = time.perf_counter()
            run()
            seconds[in_rows].append(time.perf_counter() - began)
            programs.setdefault(in_rows, len(compiled))
    jax.monitoring.unregister_event_duration_listener(listen)
    logs = [math.log(padded / rows) for padded, rows in zip(seconds[False][1:], seconds[True][1:], strict=True)]
    half = T_OF_95_PERCENT * statistics.stdev(logs) / math.sqrt(len(logs))
    mean, low, high = (math.exp(statistics.fmean(logs) + x) for x in (0.0, -half, half))
    print(
        f"| {name} | {seconds[False][0]:.1f} s | {seconds[True][0]:.1f} s | {mean:.2f} ({low:.2f} to {high:.2f}), "
        f"{statistics.median(seconds[True][1:]):.2f} s in rows | {programs[False]} and {programs[True]} |",
        flush=True,
    )


@contextlib.contextmanager
def layout(module: Any, in_rows: bool) -> Iterator[None]:
    """Let a module make models that read rows, or only padded sequences."""
    if in_rows:
        yield
        return
    with mock.patch.object(module, "row_limits", return_value=None):
        yield


def predictions(loaded: OpenModel, rows: list[dict[str, str]]) -> Callable[[bool], Callable[[], Any]]:
    """Return a function from a layout to a pass over all pairs."""

    def pass_of_layout(in_rows: bool) -> Callable[[], Any]:
        with layout(outputs, in_rows):
            predictor = predict.make_predictor(loaded)
        task = predictor.task
        settings = dataclasses.replace(predictor.settings, max_seq_len=128)
        examples = [{"id": str(n), "text": row["question"], "text_pair": row["sentence"]} for n, row in enumerate(rows)]
        features, _ = make_features(KINDS[task.kind], examples, predictor.tokenizer, settings)
        return lambda: predictor.outputs_of(features, lambda done: None)

    return pass_of_layout


def vectors(loaded: OpenModel, texts: list[str]) -> Callable[[bool], Callable[[], Any]]:
    """Return a function from a layout to a pass over all texts."""

    def pass_of_layout(in_rows: bool) -> Callable[[], Any]:
        with layout(embed, in_rows):
            embedder = embed._Embedder(loaded, embed.EmbedOptions(max_seq_len=128, truncate=True))
        features, _ = embedder.tokenize([Input(f"text {n}", n, {"text": text}) for n, text in enumerate(texts)])
        return lambda: list(embedder.compute_features(features, 32))

    return pass_of_layout


def scores(loaded: OpenModel, texts: list[str]) -> Callable[[bool], Callable[[], Any]]:
    """Return a function from a layout to a pass over masked copies of all texts."""
    context = make_scoring_context(loaded.tokenizer, loaded.config.max_positions, "within_word_l2r")
    tokens = tokenize_texts(loaded.tokenizer, texts)
    joined = join_queries([pseudo_log_likelihood_queries(context, tokens[text]) for text in texts])
    lengths = np.array([len(ids) for ids in joined.inputs])
    model = make_model(loaded.config, ComputeConfig(attention="xla"), (Head("masked_token"),))
    params = {name: loaded.params[name] for name in model.shapes}

    def log_probabilities(params: Any, batch: Any) -> jax.Array:
        logits = model.apply(params, {**batch, "token_type_ids": jnp.zeros_like(batch["input_ids"])}, None)[
            "mlm_logits"
        ]
        return jnp.take_along_axis(jax.nn.log_softmax(logits[:, 0]), batch["labels"], axis=-1)

    apply = jax.jit(log_probabilities)
    features = [
        Features(ids, len(ids), n, {"masked_positions": np.array([[position]]), "labels": np.array([[target]])})
        for n, (ids, position, target) in enumerate(zip(joined.inputs, joined.positions, joined.targets, strict=True))
    ]
    feed = Feed(doubling_buckets(loaded.config.max_positions), SCORE_BATCH, 2, loaded.tokenizer.pad_id)
    limits = row_limits((loaded.config,), (), ComputeConfig(attention="xla"), single_device_mesh())

    def in_rows() -> None:
        plan = plan_prediction_batches(feed, features, limits)
        for batch in collate_batches(feed, features, plan, SINGLE_HOST):
            np.asarray(apply(params, batch))

    def padded() -> None:
        for planned in plan_query_batches(lengths, loaded.config.max_positions, 1):
            np.asarray(apply(params, collate_queries(planned, joined, loaded.tokenizer.pad_id)))

    return lambda rows: in_rows if rows else padded


def collate_queries(planned: QueryBatch, queries: Queries, pad_id: int) -> dict[str, np.ndarray]:
    """Return the arrays of a batch of `bert-jax score`."""
    batch = _collate(planned, queries, pad_id)
    batch["labels"] = batch.pop("masked_labels")
    return batch


if __name__ == "__main__":
    main()
