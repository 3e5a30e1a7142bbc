"""Export of a model directory as an ONNX file or an OpenVINO model, for runtimes outside Python and JAX.

The export goes by way of PyTorch: `transformers` opens the directory, `torch.onnx` exports the model, and OpenVINO
converts the ONNX file. The owners of each format maintain the library that writes the format.
"""

import contextlib
import inspect
import os
import pathlib
import shutil
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError, needs_packages
from bert_jax.files import output_directory
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface.model_config import read_model_config
from bert_jax.interop.huggingface.weight_files import read_dense_kernel, read_weight_files
from bert_jax.interop.onnx_programs import PROGRAMS, TEXT_VECTORS
from bert_jax.interop.sentence_modules import MODULE_FILES, TOKEN_VECTORS, VECTORS, read_sentence_modules
from bert_jax.tokenizer import tokenizer_files

FILE = "model.onnx"
OPENVINO_FILE = "openvino_model.xml"  # the name that sentence-transformers and Optimum look for
MAX_FILE_BYTES = 2_000_000_000  # Protocol Buffers limit a file's size; larger weights go into a second file


def export_onnx(directory: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Write `model.onnx` into the directory `output`, beside the config, tokenizer and modules of `directory`.

    Inputs are `input_ids`, `attention_mask` and, if the model has several token types, `token_type_ids`. All inputs are
    int64 and have the shape `[batch, length]`, or `[batch, choices, length]` for multiple choice. Outputs are float32
    and have the names of transformers: `logits`, `start_logits`, `last_hidden_state`, .... A directory of a
    SentenceTransformer also has the output `sentence_embedding`, `[batch, hidden]`: the vectors after pooling and
    normalization. A directory of a SparseEncoder has the output `sentence_embedding`, `[batch, vocab]`. A directory of
    a MultiVectorEncoder has the output `token_embeddings`, `[batch, length, width]`: the vectors of all tokens after
    projection and normalization. All dimensions of the inputs are dynamic.

    Args:
        directory: directory of transformers, such as an output of `export_model`.
        output: directory to write; it appears only when it is complete.

    Raises:
        UserError: torch, transformers or onnxscript is not installed, `directory` cannot be read or names no known
            model class, or `output` is in use.
    """
    source = pathlib.Path(directory)
    described = read_model_config(source / "config.json")
    family = FAMILIES[described.encoder.family]
    known = {model.name for model in family.classes}
    if described.architecture not in known:
        raise UserError(
            f"{source / 'config.json'}: architectures is '{described.architecture}', none of {', '.join(sorted(known))}"
        )
    with needs_packages("an ONNX file", "onnxscript torch transformers"):
        import onnxscript  # noqa: F401 (torch.onnx needs it, and its message is a page long)
        import torch
        import transformers

    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (described.encoder.num_token_types > 1)
    axes = (
        ("batch", "choices", "length") if described.architecture.endswith("ForMultipleChoice") else ("batch", "length")
    )
    with output_directory(pathlib.Path(output)) as partial, _silenced_loggers():
        model_class = getattr(transformers, described.architecture)
        options = _pooler_options(model_class, source)
        model = model_class.from_pretrained(source, local_files_only=True, **options).eval()
        modules = read_sentence_modules(source)
        modules = None if modules and modules.activation else modules
        program = PROGRAMS.get(described.encoder.family)
        add_inputs = program(model, described.encoder) if program else dict

        class Positional(torch.nn.Module):
            """The model with positional inputs and outputs instead of named inputs and outputs."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model
                kernel = read_dense_kernel(source / modules.projection) if modules and modules.projection else None
                self.register_buffer("projection", None if kernel is None else torch.tensor(kernel))

            def forward(self, *inputs: Any) -> Any:
                batch = dict(zip(names, inputs, strict=True))
                outputs = self.model(**add_inputs(batch)).to_tuple()
                if modules is None:
                    return outputs
                text_vectors = TEXT_VECTORS[modules.vector_head]
                states = outputs[0] if self.projection is None else outputs[0] @ self.projection
                return *outputs, text_vectors(states, batch["attention_mask"], modules)

        # A separate tensor for each input: torch would treat a shared tensor as a single input.
        example = {name: torch.ones((2, 3, 4)[-len(axes) :], dtype=torch.int64) for name in names}
        with torch.no_grad():
            outputs = [*model(**add_inputs(example)).keys()]
        if modules:
            outputs.append(TOKEN_VECTORS if modules.has_token_vectors else VECTORS)
        sizes = {i: torch.export.Dim(name, min=1) for i, name in enumerate(axes[:-1])}
        sizes[len(axes) - 1] = torch.export.Dim("length", min=1, max=described.encoder.max_positions)
        torch.onnx.export(
            Positional().eval(),
            tuple(example.values()),
            partial / FILE,
            input_names=names,
            output_names=outputs,
            dynamic_shapes={"inputs": tuple(sizes for _ in names)},
            dynamo=True,
            external_data=sum(x.numel() * x.element_size() for x in model.parameters()) > MAX_FILE_BYTES,
            verbose=False,
        )
        _copy_files_beside_weights(source, partial)


def _pooler_options(model_class: Any, source: pathlib.Path) -> dict[str, bool]:
    """Return the options with which a class of transformers makes a pooler only if the weights have a pooler.

    Without these options, transformers makes a pooler of random weights, and the program has a random output.
    """
    if "add_pooling_layer" not in inspect.signature(model_class).parameters:
        return {}
    return {"add_pooling_layer": any("pooler" in name for name in read_weight_files(source).tensors)}


def quantize_onnx(source: pathlib.Path, output: pathlib.Path) -> None:
    """Copy a directory of `export_onnx` with int8 weights, which onnxruntime multiplies with int8 activations.

    The quantization is dynamic: each output feature of the weights has a constant scale, and inference computes a scale
    for each matrix of activations. Inputs and outputs stay as they are; norms, softmax and sums are float32. As a
    matrix of activations holds all texts of a batch and their padding, the outputs for a text depend on its batch.
    Weights are between -64 and 64: x86 processors without VNNI add two products in 16 bits, which full int8 overflows.

    Raises:
        UserError: onnxruntime or onnx is not installed, or `output` is in use.
    """
    with needs_packages("a model with int8 weights", "onnx onnxruntime"):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    with output_directory(output) as partial, _silenced_loggers():
        model = onnx.load(source / FILE)
        del model.graph.value_info[:]  # the exporter's shapes of transposed weights are wrong, and are inferred again
        options = {"per_channel": True, "weight_type": QuantType.QInt8, "reduce_range": True}
        quantize_dynamic(model, partial / FILE, **options)
        _copy_files_beside_weights(source, partial)


def convert_to_openvino(source: pathlib.Path, output: pathlib.Path) -> None:
    """Convert a directory of `export_onnx` to a directory with `openvino_model.xml` and float32 `openvino_model.bin`.

    Raises:
        UserError: openvino is not installed, or `output` is in use.
    """
    with needs_packages("an OpenVINO model", "openvino"):
        openvino = import_openvino_without_telemetry()
    with output_directory(output) as partial:
        model = openvino.Core().read_model(source / FILE)
        openvino.save_model(model, partial / OPENVINO_FILE, compress_to_fp16=False)
        _copy_files_beside_weights(source, partial)


def import_openvino_without_telemetry() -> Any:
    """Return the module `openvino`, imported without its telemetry.

    By default, each import of openvino 2026.4 sends an event to its maker, from a forked process. Without the package
    openvino_telemetry, openvino sends nothing.
    """
    # If the entry is None, an import of this package fails.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def _copy_files_beside_weights(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy config, tokenizer, and the files of sentence-transformers that exist."""
    modules = [path for name in MODULE_FILES if (path := source / name).is_file()]
    for path in (source / "config.json", *tokenizer_files(source), *modules):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)


@contextlib.contextmanager
def _silenced_loggers() -> Iterator[None]:
    """Suppress the messages that torch and onnxruntime write for their own developers."""
    import logging

    loggers = logging.getLogger("torch.onnx"), logging.getLogger()  # onnxruntime.quantization writes to the root logger
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
