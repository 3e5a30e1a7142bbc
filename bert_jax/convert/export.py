"""Export a model to the formats of other programs, from any directory that holds one."""

import functools
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax

from bert_jax import files
from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.interop.directory import CARD, TASK_FILE
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.onnx_file import export_onnx, quantize_onnx
from bert_jax.interop.sentence_modules import sentence_module_files
from bert_jax.interop.stablehlo import export_stablehlo
from bert_jax.interop.tensors import class_for, shapes_of
from bert_jax.reports.card import model_card
from bert_jax.training.checkpoint import read_record
from bert_jax.training.metrics import has_digest
from bert_jax.training.remote_workdir import checkpoints_in
from bert_jax.training.workdir import resolve_model_dir


def export(
    place: pathlib.Path,
    step: int | None,
    output: pathlib.Path,
    target: str,
    console: Console,
    head: str | None = None,
    part: str | None = None,
    license_: str | None = None,
    base_model: str | None = None,
    bias: pathlib.Path | None = None,
) -> None:
    """Write the model in `place` to the directory `output`, which appears whole or not at all.

    Args:
        place: a work directory, a model directory, or Google's TensorFlow checkpoint of a BERT.
        step: of a work directory of `pretrain`; None: its newest undamaged checkpoint.
        output: a directory that does not exist or is empty.
        target: a row of FORMATS.
        console: prints the result, and the heads that are left out.
        head: the only one to write; None: all, or where transformers has no class with all of them, those of the class
            with the most.
        part: of a work directory of `pretrain`, another model that the run trains, such as "generator".
        license_: of the model, for its card (huggingface alone); None: none is given.
        base_model: id on the Hugging Face Hub of the model that this one was trained from, for its card.
        bias: file with a report of `bert-jax bias --json` on this model, for its card.

    Raises:
        UserError: `place` holds no model, the format cannot express it, or `output` is in use.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} exists and is not an empty directory; name another, or remove it")
    sealed = resolve_model_dir(place)
    files.check_sums(
        sealed, [name for name in files.read_sums(sealed) if name != CARD], None
    )  # every byte, as what is written is sealed anew
    row, whole = FORMATS[target], read_weights(place, console=console, step=step, part=part)
    found, of_huggingface = with_heads(whole, row.is_class, head), row.write is write_huggingface
    left_out = [one.name for one in whole.heads if one not in found.heads]
    row.write(found, output, {CARD: card_of(found, place, license_, base_model, bias)} if of_huggingface else {})
    if of_huggingface and found.step is not None:
        _compare_metrics(place, found.step, console)
    if found.sentences is not None and not of_huggingface:
        console.say("left out: what modules.json says of pooling, length and prompt; this format has the encoder alone")
    if left_out:
        has_class = any(left_out[0] in one.heads for one in FAMILIES[found.config.family].classes)
        advice = f"; export it by itself with --head {left_out[0]}" if has_class and not head else ""
        console.say(f"left out: the head {', '.join(left_out)}{advice}")
    if of_huggingface and not FAMILIES[found.config.family].in_transformers:
        console.say("bert_jax reads this directory, transformers does not: it has no such architecture")
    console.say(f"{found.config.family} with {', '.join(head.name for head in found.heads) or 'no head'} -> {output}")


def with_heads(found: Weights, is_class: bool, head: str | None = None) -> Weights:
    """Return the model with the heads to write, all or one; UserError where it lacks `head`.

    With `is_class` those of one class of transformers, which has few.
    """
    if head is not None:
        kept = tuple(other for other in found.heads if other.name == head)
        if not kept:
            there = ", ".join(other.name for other in found.heads) or "none"
            raise UserError(f"--head {head}: this model has no such head; it has {there}")
    else:
        one = class_for(FAMILIES[found.config.family], {other.name for other in found.heads}) if is_class else None
        kept = tuple(other for other in found.heads if one is None or other.name in one.heads)
    shapes = shapes_of(found.config, kept)
    params = {name: x for name, x in found.params.items() if any(path.startswith(f"{name}/") for path in shapes)}
    return found._replace(heads=kept, params=params)


def card_of(
    found: Weights,
    place: pathlib.Path,
    license_: str | None = None,
    base_model: str | None = None,
    bias: pathlib.Path | None = None,
) -> str:
    """Return the card of a model that has one, unless something else is to be said in it; else a new one."""
    path = found.directory / CARD
    if path.is_file() and license_ is None and base_model is None and bias is None:
        return path.read_text(encoding="utf-8", errors="replace")
    return model_card(found, place, license_, base_model, bias)


def _compare_metrics(place: pathlib.Path, step: int, console: Console) -> None:
    """Say so where the metrics, which the card quotes, are not those that the checkpoint recorded."""
    path, digest = place / "metrics.jsonl", read_record(checkpoints_in(place), step).get("metrics")
    if digest and not has_digest(path, digest):
        console.say(
            f"{path}: differs from what the checkpoint of step {step:,} recorded; the scores in {CARD} may be wrong"
        )


def write_huggingface(found: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write a directory of transformers."""
    extra = {**extra, **usage_files(found)}
    params = jax.device_get(found.params)
    huggingface.export_model(params, found.config, found.heads, found.directory, output, found.labels, extra)


def usage_files(found: Weights) -> dict[str, str]:
    """Return name -> text of what says how a model is used: its task, and the modules of sentence-transformers."""
    path = found.directory / TASK_FILE
    task = {TASK_FILE: path.read_text(encoding="utf-8")} if path.is_file() else {}
    return task if found.sentences is None else task | sentence_module_files(found.sentences, found.config.hidden_size)


def write_stablehlo(found: Weights, output: pathlib.Path, extra: Mapping[str, str], int8: bool = False) -> None:
    """Write a StableHLO program; `extra` is for people, and has no place beside what a program reads."""
    del extra
    export_stablehlo(found.params, found.config, found.heads, output, found.labels, int8=int8)


def write_onnx(found: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write an ONNX file."""
    if not FAMILIES[found.config.family].in_transformers:
        raise UserError(
            f"transformers, which computes the program, has no model.family={found.config.family}; "
            "use --format stablehlo, or --format huggingface for bert_jax itself"
        )
    with tempfile.TemporaryDirectory() as directory:
        model = pathlib.Path(directory) / "model"
        write_huggingface(found, model, extra)
        export_onnx(model, output)


def write_onnx_int8(found: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write an ONNX file with int8 weights."""
    with tempfile.TemporaryDirectory() as directory:
        float32 = pathlib.Path(directory) / "float32"
        write_onnx(found, float32, extra)
        quantize_onnx(float32, output)


class Format(NamedTuple):
    """A row of FORMATS."""

    write: Callable[[Weights, pathlib.Path, Mapping[str, str]], None]  # a model to a directory, with other files
    is_class: bool  # of transformers, whose classes have few heads


FORMATS: dict[str, Format] = {
    "huggingface": Format(write_huggingface, True),
    "stablehlo": Format(write_stablehlo, False),
    "stablehlo_int8": Format(functools.partial(write_stablehlo, int8=True), False),
    "onnx": Format(write_onnx, True),
    "onnx_int8": Format(write_onnx_int8, True),
}
