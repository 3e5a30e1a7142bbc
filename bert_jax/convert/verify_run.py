"""`bert-jax verify --run`: an exported directory in every installed runtime, compared with the outputs of bert_jax."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.console import Console
from bert_jax.convert.compress import jax_runner
from bert_jax.convert.eval_sets import EvalSet, compare_scores, eval_set_of
from bert_jax.convert.expected_outputs import (
    FILE,
    ExpectedOutputs,
    compute_outputs_of_bert_jax,
    has_vectors,
    largest_relative_difference,
    read_expected_outputs,
    rows_without_padding,
)
from bert_jax.convert.export import FORMATS, with_exported_heads
from bert_jax.convert.runtimes import RUNTIMES, Arrays, Run, select_outputs
from bert_jax.errors import UserError
from bert_jax.interop.tensors import PROJECTION
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.training.workdir import resolve_model_dir


class RuntimeCheck(NamedTuple):
    """The result of running an export in a runtime."""

    line: str  # message for the user
    ran: bool
    is_equal: bool  # True also for a runtime that did not run


def check_runtimes(
    path: pathlib.Path, original: str | None, data: str | None, console: Console
) -> Iterator[RuntimeCheck]:
    """Run an exported directory in every runtime of its format, and yield the result of each.

    A float32 program must give the outputs of bert_jax within the tolerance of its format, for a batch with padding and
    for each row of this batch without padding. The differences of an int8 program are only reported.

    Args:
        path: a directory of `export`, or a model directory of transformers; also a work directory of `finetune`.
        original: the model from which `path` was exported, to compare the scores of both; None: no scores.
        data: data of the scores, as for `compress`; None: the data that `finetune` read.
        console: console that prints progress.

    Raises:
        UserError: the format of `path` has no runtime, no runtime is installed, or the data cannot be read.
    """
    if data and not original:
        raise UserError("--data: only with --original")
    directory = resolve_model_dir(path)
    expected = read_or_compute_expected_outputs(directory, console)
    row = FORMATS.get(expected.format)
    if row is None or not row.runtimes:
        raise UserError(f"{directory}: no runtime for the format '{expected.format}'")
    weights = with_exported_heads(read_weights(original, console=console), is_class=True) if original else None
    if weights and has_vectors(weights.sentences):
        raise UserError(f"--original {original}: scores of models of vectors are not compared; leave out --original")
    eval_set = eval_set_of(weights, data, 0, console) if weights else None
    num_run = 0
    for name in row.runtimes:
        if not RUNTIMES[name].fits(directory):
            continue
        if not RUNTIMES[name].is_installed:
            yield RuntimeCheck(f"{name}: not installed (pip install {RUNTIMES[name].package})", False, True)
            continue
        console.say(f"{name}: opening {directory}")
        check, run = check_runtime(name, directory, expected, row.tolerance)
        yield check
        if eval_set and weights:
            yield RuntimeCheck(score_line(name, run, weights, eval_set), True, True)
        num_run += 1
    if not num_run:
        raise UserError(f"{directory}: no runtime is installed; install one of {', '.join(row.runtimes)}")


def read_or_compute_expected_outputs(directory: pathlib.Path, console: Console) -> ExpectedOutputs:
    """Read the expected outputs in a directory; if it has none, compute the outputs of its model by bert_jax."""
    if (directory / FILE).is_file():
        return read_expected_outputs(directory / FILE)
    if not (directory / "config.json").is_file() or not any(directory.glob("*.safetensors*")):
        raise UserError(
            f"{directory}: no {FILE} and no weights that bert_jax reads; give a directory of `bert-jax export`"
        )
    weights = with_exported_heads(read_weights(directory, console=console), is_class=True)
    # transformers computes neither sparse vectors nor the vectors of late interaction.
    if weights.sentences and not VECTOR_HEADS[weights.sentences.vector_head].has_pooling:
        console.say(
            f"{directory}: the outputs of the encoder are compared, but not its {weights.sentences.vector_head} vectors"
        )
        heads = tuple(head for head in weights.heads if head.name != PROJECTION)
        weights = dataclasses.replace(weights, sentences=None, heads=heads)
    return compute_outputs_of_bert_jax(weights, "huggingface")


def check_runtime(
    name: str, directory: pathlib.Path, expected: ExpectedOutputs, tolerance: float | None
) -> tuple[RuntimeCheck, Run]:
    """Run a directory in a runtime; return the comparison with the expected outputs, and the opened program.

    Raise UserError if the runtime cannot open the directory.
    """
    try:
        run = RUNTIMES[name].open(directory, 0)
    except UserError:
        raise
    except Exception as error:  # each runtime raises its own types of errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{directory}: {name} cannot open it ({reason}); export the model again") from None
    wanted = {output: x for output, x in expected.outputs.items() if RUNTIMES[name].returns(output)}
    padded = select_outputs(run(expected.batch), wanted, expected.batch)
    difference, by_padding = largest_relative_difference(wanted, padded, expected.batch), 0.0
    rows = (rows_without_padding(arrays, expected.batch) for arrays in (expected.batch, wanted, padded))
    for batch, wanted_row, padded_row in zip(*rows, strict=True):
        alone = select_outputs(run(batch), wanted, batch)
        difference = max(difference, largest_relative_difference(wanted_row, alone, batch))
        by_padding = max(by_padding, largest_relative_difference(padded_row, alone, batch))
    label = RUNTIMES[name].label
    if tolerance is None:
        line = (
            f"{label}: int8 changes outputs by up to {difference:.2g} of the largest; the other texts and the padding "
            f"of a batch change them by up to {by_padding:.2g}, because they enter the scale of the activations"
        )
        return RuntimeCheck(line, True, bool(np.isfinite(difference))), run
    is_equal = difference <= tolerance
    verdict = "equal" if is_equal else "DIFFERENT"
    line = f"{label}: {verdict}; largest difference of {', '.join(wanted)}: {difference:.1e} (limit {tolerance:g})"
    return RuntimeCheck(line, True, is_equal), run


def score_line(name: str, run: Run, weights: Weights, eval_set: EvalSet) -> str:
    """Return a line that compares the score of a program with the score of the original model in bert_jax."""

    def runner(batch: Arrays) -> dict[str, np.ndarray]:
        return select_outputs(run(batch), eval_set.outputs, batch)

    scores = compare_scores(eval_set, jax_runner(weights), runner)
    lowest, highest = scores.lost - scores.margin, scores.lost + scores.margin
    return (
        f"{name}: {eval_set.metric} {scores.after:.4f} on {eval_set.num_units:,} examples; bert_jax "
        f"{scores.before:.4f}, {scores.lost:.4f} lost (95 % interval {lowest:.4f} to {highest:.4f})"
    )
