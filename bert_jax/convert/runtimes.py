"""RUNTIMES: the programs that run an export; each program opens a directory as a function from arrays to arrays.

An output has different names in bert_jax and in transformers; `select_outputs` uses the names of bert_jax.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.interop import stablehlo
from bert_jax.interop.huggingface.model_config import read_model_config
from bert_jax.interop.onnx_file import FILE as ONNX_FILE
from bert_jax.interop.onnx_file import OPENVINO_FILE, import_openvino_without_telemetry
from bert_jax.interop.sentence_modules import VECTORS, read_sentence_modules

Arrays = Mapping[str, np.ndarray]  # name -> input or output of a program
Run = Callable[[Arrays], dict[str, np.ndarray]]  # all inputs of a batch -> outputs, by their names in the program

# Name of an output in bert_jax -> its names in transformers; the first name that exists is used.
NAMES_IN_TRANSFORMERS = {
    "mlm_logits": ("prediction_logits", "logits"),
    "next_logits": ("logits",),
    "nsp_logits": ("seq_relationship_logits", "sop_logits", "logits"),
    "replaced_logits": ("logits",),
    "sequence_logits": ("logits", "mlm_logits"),  # the second name is for a model that predicts words of labels
    "choice_logits": ("logits",),
    "token_logits": ("logits",),
    "pooled": ("pooler_output",),
}


class Runtime(NamedTuple):
    """A row of RUNTIMES."""

    package: str  # name for `pip install`
    module: str
    open: Callable[[pathlib.Path, int], Run]  # (directory, number of threads; 0: the default of the runtime)
    fits: Callable[[pathlib.Path], bool] = lambda directory: True  # whether the runtime can run a directory
    returns: Callable[[str], bool] = lambda output: True  # whether the runtime returns an output of the model

    @property
    def is_installed(self) -> bool:
        """True if the Python module of the runtime can be imported."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def label(self) -> str:
        """The name of the runtime's package, with the installed version."""
        return f"{self.package} {importlib.metadata.version(self.package)}"


def open_onnxruntime(directory: pathlib.Path, threads: int = 0) -> Run:
    """Open `model.onnx` in onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(directory / ONNX_FILE, options, providers=["CPUExecutionProvider"])
    input_names, output_names = (
        [node.name for node in nodes] for nodes in (session.get_inputs(), session.get_outputs())
    )

    def run(batch: Arrays) -> dict[str, np.ndarray]:
        inputs = {name: np.asarray(batch[name], np.int64) for name in input_names}
        return dict(zip(output_names, session.run(output_names, inputs), strict=True))

    return run


def open_openvino(directory: pathlib.Path, threads: int = 0) -> Run:
    """Open `openvino_model.xml`, or else `model.onnx`, in OpenVINO, on the CPU in float32."""
    openvino = import_openvino_without_telemetry()
    # By default, OpenVINO computes in bfloat16 on a CPU that multiplies bfloat16.
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"} | (
        {"INFERENCE_NUM_THREADS": threads} if threads else {}
    )
    name = OPENVINO_FILE if (directory / OPENVINO_FILE).is_file() else ONNX_FILE
    model = openvino.Core().compile_model(directory / name, "CPU", settings)
    input_names = [port.any_name for port in model.inputs]

    def run(batch: Arrays) -> dict[str, np.ndarray]:
        outputs = model({name: np.asarray(batch[name], np.int64) for name in input_names})
        return {port.any_name: np.array(x) for port, x in outputs.items()}

    return run


def open_transformers(directory: pathlib.Path, threads: int = 0) -> Run:
    """Open a directory of transformers by the class in `config.json`, in torch on the CPU."""
    import torch
    import transformers

    if threads:
        torch.set_num_threads(threads)
    described = read_model_config(directory / "config.json")
    with _quiet_transformers():
        model = getattr(transformers, described.architecture).from_pretrained(directory, local_files_only=True).eval()
    names = ("input_ids", "attention_mask") + ("token_type_ids",) * (described.encoder.num_token_types > 1)

    def run(batch: Arrays) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            outputs = model(**{name: torch.tensor(batch[name], dtype=torch.int64) for name in names})
        return {name: x.numpy() for name, x in outputs.items()}

    return run


def open_sentence_transformers(directory: pathlib.Path, threads: int = 0) -> Run:
    """Open a directory with a Pooling module in sentence-transformers, in torch on the CPU."""
    import sentence_transformers
    import torch

    if threads:
        torch.set_num_threads(threads)
    with _quiet_transformers():
        model = sentence_transformers.SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    described = read_model_config(directory / "config.json")
    names = ("input_ids", "attention_mask") + ("token_type_ids",) * (described.encoder.num_token_types > 1)

    def run(batch: Arrays) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            outputs = model({name: torch.tensor(batch[name], dtype=torch.int64) for name in names})
        return {VECTORS: outputs[VECTORS].numpy()}

    return run


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress progress bars, and the report about weights that no output needs, such as an absent pooler."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def open_stablehlo(directory: pathlib.Path, threads: int = 0) -> Run:
    """Open a StableHLO program in JAX; the number of threads is a setting of the whole process."""
    del threads
    import jax

    manifest = json.loads((directory / stablehlo.MANIFEST).read_bytes())
    with np.load(directory / stablehlo.WEIGHTS) as archive:
        weights = [jax.device_put(archive[name]) for name in manifest["weights"]]
    program = jax.jit(jax.export.deserialize(bytearray((directory / stablehlo.PROGRAM).read_bytes())).call)
    input_names = [entry["name"] for entry in manifest["inputs"]]

    def run(batch: Arrays) -> dict[str, np.ndarray]:
        with jax.default_matmul_precision("highest"):
            outputs = program(weights, *(np.asarray(batch[name], np.int32) for name in input_names))
        return {name: np.asarray(x) for name, x in outputs.items()}

    return run


def _has_pooling(directory: pathlib.Path) -> bool:
    """Return whether a directory has a Pooling module of sentence-transformers."""
    modules = read_sentence_modules(directory)
    return modules is not None and modules.has_pooling


RUNTIMES: dict[str, Runtime] = {
    "onnxruntime": Runtime("onnxruntime", "onnxruntime", open_onnxruntime),
    "openvino": Runtime("openvino", "openvino", open_openvino),
    "transformers": Runtime(
        "transformers", "transformers", open_transformers, returns=lambda output: output != VECTORS
    ),
    "sentence-transformers": Runtime(
        "sentence-transformers",
        "sentence_transformers",
        open_sentence_transformers,
        fits=_has_pooling,
        returns=lambda output: output == VECTORS,
    ),
    "jax": Runtime("jax", "jax", open_stablehlo),
}


def select_outputs(outputs: Arrays, names: Iterable[str], batch: Arrays) -> dict[str, np.ndarray]:
    """Select outputs of a program for a batch; return a dict from the output's name in bert_jax to its array.

    Logits of transformers over the vocabulary are selected at the `masked_positions` of the batch; logits of the next
    token are cut before the last token, which has no next token. If the batch has `verbalizers`, the logits of labels
    are the mean logits of their words at the first masked position, as in `models.heads.masked_token_logits`.
    """
    selected = {}
    for name in names:
        theirs = next((n for n in (name, *NAMES_IN_TRANSFORMERS.get(name, ())) if n in outputs), None)
        if theirs is None:
            raise UserError(f"the program has no output {name}; it has {', '.join(outputs)}")
        x = outputs[theirs]
        predicts_words = name == "sequence_logits" and theirs != name and "verbalizers" in batch
        if (name == "mlm_logits" or predicts_words) and theirs not in (name, "mlm_logits"):
            x = np.take_along_axis(x, np.asarray(batch["masked_positions"])[:, :, None], axis=1)
        if predicts_words:
            words = np.asarray(batch["verbalizers"])
            of_words = np.take_along_axis(x[:, 0], words.reshape(len(words), -1), axis=1).reshape(words.shape)
            x = of_words.mean(-1, where=words >= 0)
        if theirs != name and name == "next_logits":
            x = x[:, :-1]
        selected[name] = x
    return selected


def open_runtime(name: str, directory: str | os.PathLike[str], threads: int = 0) -> Run:
    """Open a directory in a row of RUNTIMES; raise UserError if the runtime is not installed."""
    runtime = RUNTIMES[name]
    if not runtime.is_installed:
        raise UserError(f"{name} is not installed: pip install {runtime.package}")
    return runtime.open(pathlib.Path(directory), threads)
