"""Export a model to the formats of other programs, from any directory that holds one."""

import pathlib
import tempfile
from collections.abc import Callable

import jax

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.inference.load import Weights, read_weights
from bert_jax.interop import huggingface
from bert_jax.interop.directory import TASK_FILE
from bert_jax.interop.onnx_file import export_onnx
from bert_jax.interop.stablehlo import export_stablehlo


def export(place: pathlib.Path, step: int | None, output: pathlib.Path, target: str, console: Console) -> None:
    """Write the model in `place` to the directory `output`, which appears whole or not at all.

    Args:
        place: a work directory, a model directory, or Google's TensorFlow checkpoint of a BERT.
        step: of a work directory of `pretrain`; None: its newest undamaged checkpoint.
        output: a directory that does not exist or is empty.
        target: a row of FORMATS.
        console: prints the result.

    Raises:
        UserError: `place` holds no model, the format cannot express it, or `output` is in use.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} exists and is not an empty directory; name another, or remove it")
    found = read_weights(place, console=console, step=step)
    FORMATS[target](found, output)
    console.say(f"{found.config.family} with {', '.join(head.name for head in found.heads) or 'no head'} -> {output}")


def _huggingface(found: Weights, output: pathlib.Path) -> None:
    path = found.directory / TASK_FILE
    extra = {TASK_FILE: path.read_text(encoding="utf-8")} if path.is_file() else {}
    params = jax.device_get(found.params)
    huggingface.export_model(params, found.config, found.heads, found.directory, output, found.labels, extra)


def _stablehlo(found: Weights, output: pathlib.Path) -> None:
    export_stablehlo(found.params, found.config, found.heads, output, found.labels)


def _onnx(found: Weights, output: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = pathlib.Path(directory) / "model"
        _huggingface(found, model)
        export_onnx(model, output)


# Target format -> a function that writes a model to a directory.
FORMATS: dict[str, Callable[[Weights, pathlib.Path], None]] = {
    "huggingface": _huggingface,
    "stablehlo": _stablehlo,
    "onnx": _onnx,
}
