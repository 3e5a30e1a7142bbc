"""Write a smaller model, and measure its size, time and score; each row of `METHODS` is a compression method."""

import dataclasses
import functools
import math
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.config import ComputeConfig
from bert_jax.console import Console
from bert_jax.convert.eval_sets import EvalSet, Runner, compare_scores, eval_set_of
from bert_jax.convert.expected_outputs import FILE, compute_outputs_of_bert_jax, serialize_expected_outputs
from bert_jax.convert.export import card_text, with_exported_heads, write_huggingface, write_onnx
from bert_jax.convert.program import program_readme
from bert_jax.convert.prune import TARGETS, prune
from bert_jax.convert.runtimes import open_runtime, select_outputs
from bert_jax.errors import UserError, check_output, did_you_mean
from bert_jax.files import output_directory
from bert_jax.interop.huggingface import CARD
from bert_jax.interop.onnx_file import quantize_onnx
from bert_jax.models import make_model
from bert_jax.objectives.base import Batch

TIMED_SEQUENCES = 8  # number of sequences in the timed batch
ROUNDS = 15  # number of timing rounds; each round runs both models
WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compressed:
    """A compressed model and its original, both on disk in equal formats."""

    weights: Weights
    directory: pathlib.Path
    original: pathlib.Path
    run: Runner
    run_original: Runner
    description: str  # a phrase that describes the compression


# (model, held-out data, amount, scratch directory) -> the compressed model.
Method = Callable[[Weights, EvalSet, float, pathlib.Path], Compressed]


def compress_model(
    model: pathlib.Path,
    output: pathlib.Path,
    method: str,
    amount: float,
    data: str | None,
    num_examples: int,
    console: Console,
) -> list[str]:
    """Write a smaller model to the directory `output`; return the lines of the model card on size, time and score.

    Args:
        model: directory of a fine-tuned model, or of a model with a masked-token head.
        output: a directory that does not exist or is empty.
        method: a row of METHODS.
        amount: fraction of heads, MLP features or layers to remove; the method int8 ignores it.
        data: files of the task, or a corpus, as in `eval_set_of`.
        num_examples: number of training examples on which the importance of parts is measured.
        console: console that prints progress.

    Raises:
        UserError: the method is unknown, `model` holds no such model, `data` does not fit the model, `amount` removes
        nothing or everything, a package is missing, or `output` exists and is not empty.
    """
    check_output(output)
    if method not in METHODS:
        raise UserError(f"--method {method}: unknown; known are {', '.join(METHODS)}{did_you_mean(method, METHODS)}")
    original = read_weights(model, console=console)
    weights = with_exported_heads(original, is_class=True)
    eval_set = eval_set_of(weights, data, num_examples, console)
    with tempfile.TemporaryDirectory() as scratch:
        console.say(f"{method}: making the smaller model")
        compressed = METHODS[method](weights, eval_set, amount, pathlib.Path(scratch))
        console.say(f"measuring {eval_set.metric} of {eval_set.num_units:,} examples, and times")
        lines = comparison_lines(compressed, eval_set)
        if (compressed.directory / "model.safetensors").is_file():
            card = card_text(compressed.weights, original, model)
        else:
            title = f"{os.path.basename(os.path.realpath(model))}: {compressed.description}"
            card = program_readme(weights, title, "onnxruntime", is_int8=True)
        with output_directory(output) as partial:
            other_files = shutil.ignore_patterns("SHA256SUMS", CARD)
            shutil.copytree(compressed.directory, partial, ignore=other_files, dirs_exist_ok=True)
            if METHODS[method] is _quantize:  # `verify --run` compares the ONNX file with these outputs
                (partial / FILE).write_bytes(serialize_expected_outputs(compute_outputs_of_bert_jax(weights, method)))
            (partial / CARD).write_text(f"{card.rstrip()}\n\n{compression_card_section(lines)}", encoding="utf-8")
    return lines


def comparison_lines(compressed: Compressed, eval_set: EvalSet) -> list[str]:
    """Measure size, time and score before and after the compression; return lines about these measurements."""
    size_before, size_after = (
        _weights_megabytes(directory) for directory in (compressed.original, compressed.directory)
    )
    batch = {name: x[:TIMED_SEQUENCES] for name, x in eval_set.batches[-1].items()}
    times = compare_times(compressed.run_original, compressed.run, batch)
    rows, length = batch["input_ids"].shape[0], batch["input_ids"].shape[-1]
    scores = compare_scores(eval_set, compressed.run_original, compressed.run)
    interval = f"95 % interval {scores.lost - scores.margin:.4f} to {scores.lost + scores.margin:.4f}"
    if math.isnan(scores.margin):
        interval = "too few examples for an interval"
    return [
        compressed.description,
        f"weights: {size_before:.2f} MB before, {size_after:.2f} MB after, {size_after / size_before:.2f} of the size",
        f"time of {rows} x {length} tokens on {jax.default_backend()}: {times.before:.1f} ms before, "
        f"{times.after:.1f} ms after, {times.ratio:.2f} of the time (median of pairs)",
        f"{eval_set.metric} on {eval_set.num_units:,} held-out examples: {scores.before:.4f} before, "
        f"{scores.after:.4f} after, {scores.lost:.4f} lost ({interval})",
    ]


def compression_card_section(lines: list[str]) -> str:
    """Return the section of a model card about the compression and its cost."""
    note = "Other figures on this page describe the model before compression."
    return "\n".join(["## Compression\n", *(f"- {line}" for line in lines), "", note, ""])


class Times(NamedTuple):
    """Median milliseconds for a batch, and the median ratio of the second model's time to the first model's time."""

    before: float
    after: float
    ratio: float


def compare_times(before: Runner, after: Runner, batch: Batch) -> Times:
    """Return the times of two models; each ratio compares consecutive runs, because the machine may be busy."""
    pairs = []
    for round_index in range(ROUNDS + 1):
        pair = []
        for run in (before, after):
            begin = time.perf_counter()
            run(batch)
            pair.append(1000 * (time.perf_counter() - begin))
        if round_index:  # the first round, which compiles, does not count
            pairs.append(pair)
    median_before, median_after = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Times(median_before, median_after, statistics.median(after / before for before, after in pairs))


def jax_runner(weights: Weights) -> Runner:
    """Return a function that runs a model in JAX on a batch."""
    model = make_model(weights.config, ComputeConfig(), weights.heads)
    apply, params = jax.jit(model.apply), jax.device_put(weights.params)
    return lambda batch: {name: np.asarray(x) for name, x in apply(params, batch, None).items()}


def onnx_runner(directory: pathlib.Path, output_names: Sequence[str]) -> Runner:
    """Return a function that runs a directory of `export_onnx` in onnxruntime, with the outputs `output_names`."""
    run = open_runtime("onnxruntime", directory)
    return lambda batch: select_outputs(run(batch), output_names, batch)


def _prune(target: str, weights: Weights, eval_set: EvalSet, amount: float, scratch: pathlib.Path) -> Compressed:
    """Remove the parts that a row of TARGETS describes; each row of TARGETS is a compression method."""
    examples, loss = eval_set.training_examples(), eval_set.loss(weights.config)
    pruned = prune(TARGETS[target], weights.config, weights.params, examples, loss, amount)
    smaller = dataclasses.replace(weights, config=pruned.config, params=pruned.params)
    original, directory = scratch / "original", scratch / "smaller"
    write_huggingface(weights, original, {})
    write_huggingface(smaller, directory, {})
    return Compressed(
        weights=smaller,
        directory=directory,
        original=original,
        run=jax_runner(smaller),
        run_original=jax_runner(weights),
        description=pruned.description,
    )


def _quantize(weights: Weights, eval_set: EvalSet, amount: float, scratch: pathlib.Path) -> Compressed:
    """Write ONNX files in float32 and with int8 weights."""
    del amount
    original, directory = scratch / "float32", scratch / "int8"
    write_onnx(weights, original, {})
    quantize_onnx(original, directory)
    return Compressed(
        weights=weights,
        directory=directory,
        original=original,
        run=onnx_runner(directory, eval_set.outputs),
        run_original=onnx_runner(original, eval_set.outputs),
        description="ONNX with int8 weights, beside ONNX in float32",
    )


METHODS: dict[str, Method] = {name: functools.partial(_prune, name) for name in TARGETS} | {"onnx_int8": _quantize}


def _weights_megabytes(directory: pathlib.Path) -> float:
    """Return the total size, in MB, of the files of a model that hold weights."""
    return sum(path.stat().st_size for path in directory.iterdir() if path.suffix in WEIGHT_SUFFIXES) / 1e6
