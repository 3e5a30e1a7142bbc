"""Models as functions of a batch, whatever computes them, and the ratio of their times."""

import json
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import export

from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import ComputeConfig
from bert_jax.interop.onnx_file import FILE
from bert_jax.interop.stablehlo import MANIFEST, PROGRAM, WEIGHTS
from bert_jax.models import make_model
from bert_jax.objectives.base import Batch

Runner = Callable[[Batch], dict[str, np.ndarray]]  # a batch -> the outputs of its head
ROUNDS = 15


def jax_runner(found: Weights) -> Runner:
    """Return a model as it is computed here."""
    model = make_model(found.config, ComputeConfig(), found.heads)
    apply, params = jax.jit(lambda params, batch: model.apply(params, batch, None)), jax.device_put(found.params)
    return lambda batch: {name: np.asarray(x) for name, x in apply(params, batch).items()}


def onnx_runner(directory: pathlib.Path, names: Sequence[str]) -> Runner:
    """Return a directory of `export_onnx` under onnxruntime; its outputs, in their order, are called `names`.

    Logits of masked tokens are those at `masked_positions`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(directory / FILE, options, providers=["CPUExecutionProvider"])
    inputs = [one.name for one in session.get_inputs()]

    def run(batch: Batch) -> dict[str, np.ndarray]:
        given = {name: np.asarray(batch[name], np.int64) for name in inputs}
        outputs = dict(zip(names, session.run(None, given), strict=False))
        if "mlm_logits" in outputs:
            at = np.asarray(batch["masked_positions"])[:, :, None]
            outputs["mlm_logits"] = np.take_along_axis(outputs["mlm_logits"], at, axis=1)
        return outputs

    return run


def stablehlo_runner(directory: pathlib.Path) -> Runner:
    """Return a directory of `export_stablehlo` under JAX."""
    manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    with np.load(directory / WEIGHTS) as archive:
        weights = [jax.device_put(archive[name]) for name in manifest["weights"]]
    program = jax.jit(export.deserialize(bytearray((directory / PROGRAM).read_bytes())).call)
    inputs = [one["name"] for one in manifest["inputs"]]

    def run(batch: Batch) -> dict[str, np.ndarray]:
        outputs = program(weights, *(np.asarray(batch[name], np.int32) for name in inputs))
        return {name: np.asarray(x) for name, x in outputs.items()}

    return run


class Times(NamedTuple):
    """Median milliseconds for a batch, and the median of the second model's time over the first's."""

    before: float
    after: float
    ratio: float


def timed(before: Runner, after: Runner, batch: Batch) -> Times:
    """Return the times of two models; they take turns, and a ratio is of neighbors, as the machine may be busy."""
    pairs = []
    for number in range(ROUNDS + 1):
        pair = []
        for run in (before, after):
            begin = time.perf_counter()
            run(batch)
            pair.append(1000 * (time.perf_counter() - begin))
        if number:  # the first one compiles
            pairs.append(pair)
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Times(first, second, statistics.median(two / one for one, two in pairs))
