"""Models out: a directory of Hugging Face, a StableHLO program, an ONNX graph; from whatever holds a model."""

import pathlib
import tempfile
from collections.abc import Callable

import jax

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.inference.load import Weights, read_weights
from bert_jax.interop.huggingface import model as huggingface
from bert_jax.interop.onnx_file import export_onnx
from bert_jax.interop.stablehlo import export_stablehlo
from bert_jax.runs.finetuning.train import SETTINGS


def export(place: pathlib.Path, step: int | None, output: pathlib.Path, form: str, console: Console) -> None:
    """Write the model in `place` to `output`, a directory that appears whole or not at all, in a form of FORMS.

    `place` is a work directory (of `pretrain`: at `step`, or at its newest undamaged checkpoint), a model directory,
    or Google's TensorFlow checkpoint of a BERT. Raises UserError where it is none, and where `output` is taken.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} exists and is not an empty directory; name another, or remove it")
    found = read_weights(place, console=console, step=step)
    FORMS[form](found, output)
    console.say(f"{found.config.family} with {', '.join(head.name for head in found.heads) or 'no head'} -> {output}")


def _huggingface(found: Weights, output: pathlib.Path) -> None:
    path = found.directory / SETTINGS
    extra = {SETTINGS: path.read_text(encoding="utf-8")} if path.is_file() else {}
    params = jax.device_get(found.params)
    huggingface.export_model(params, found.config, found.heads, found.directory, output, found.labels, extra)


def _stablehlo(found: Weights, output: pathlib.Path) -> None:
    export_stablehlo(found.params, found.config, found.heads, output, found.labels)


def _onnx(found: Weights, output: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = pathlib.Path(directory) / "model"
        _huggingface(found, model)
        export_onnx(model, output)


FORMS: dict[str, Callable[[Weights, pathlib.Path], None]] = {
    "huggingface": _huggingface,
    "stablehlo": _stablehlo,
    "onnx": _onnx,
}
