"""Write a smaller model, and measure what it saves and what it costs: a method is a row of `METHODS`."""

import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import jax

from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.console import Console
from bert_jax.convert.eval_sets import Yardstick, compare, yardstick_of
from bert_jax.convert.export import card_of, with_heads, write_huggingface, write_onnx, write_stablehlo
from bert_jax.convert.prune import PARTS, prune
from bert_jax.convert.runners import Runner, jax_runner, onnx_runner, stablehlo_runner, timed
from bert_jax.errors import UserError
from bert_jax.interop.directory import CARD, appearing
from bert_jax.interop.onnx_file import quantize_onnx

TIMED = 8  # sequences in the batch that is timed


class Compressed(NamedTuple):
    """A compressed model beside the model it was made from, both in the same format and on disk."""

    found: Weights
    directory: pathlib.Path
    original: pathlib.Path
    run: Runner
    run_original: Runner
    what: str  # a phrase: what was done

    def card(self, place: pathlib.Path) -> str:
        """Return the card of the model in `place`, for directories that transformers opens, or a title."""
        of_huggingface = (self.directory / "model.safetensors").is_file()
        return card_of(self.found, place) if of_huggingface else f"# {place.resolve().name}: {self.what}"


# The model, what it is measured on, the amount, a scratch directory -> the compressed model.
Method = Callable[[Weights, Yardstick, float, pathlib.Path], Compressed]


def compress(
    place: pathlib.Path,
    output: pathlib.Path,
    method: str,
    amount: float,
    data: str | None,
    examples: int,
    console: Console,
) -> list[str]:
    """Write a smaller model to the directory `output`; return lines on size, time and score, which its card has too.

    Args:
        place: a fine-tuned model, or one with a head for masked tokens.
        output: a directory that does not exist or is empty.
        method: a row of METHODS.
        amount: fraction of heads, MLP features or layers to remove; int8 does not read it.
        data: files of the task, or a corpus: see `yardstick_of`.
        examples: of the training set, to weigh parts by.
        console: for progress.

    Raises:
        UserError: `place` holds no such model, `data` does not fit it, `amount` removes nothing or everything, a
            package is missing, or `output` is in use.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} exists and is not an empty directory; name another, or remove it")
    found = with_heads(read_weights(place, console=console), is_class=True)
    yardstick = yardstick_of(found, data, examples, console)
    with tempfile.TemporaryDirectory() as scratch:
        console.say(f"{method}: making the smaller model")
        made = METHODS[method](found, yardstick, amount, pathlib.Path(scratch))
        console.say(f"measuring {yardstick.metric} of {yardstick.units:,} examples, and times")
        lines = measured(made, yardstick)
        card = made.card(place).rstrip() + "\n\n" + section(lines)
        with appearing(output) as partial:
            for path in made.directory.iterdir():
                if path.name not in ("SHA256SUMS", CARD):
                    shutil.copyfile(path, partial / path.name)
            (partial / CARD).write_text(card, encoding="utf-8")
    return lines


def measured(made: Compressed, yardstick: Yardstick) -> list[str]:
    """Return what was done, and size, time and score before and after."""
    sizes = [_megabytes(directory) for directory in (made.original, made.directory)]
    batch = {name: x[:TIMED] for name, x in yardstick.batches[-1].items()}
    times = timed(made.run_original, made.run, batch)
    rows, length = batch["input_ids"].shape[0], batch["input_ids"].shape[-1]
    lost = compare(yardstick, made.run_original, made.run)
    return [
        made.what,
        f"weights: {sizes[0]:.2f} MB before, {sizes[1]:.2f} MB after, {sizes[1] / sizes[0]:.2f} of the size",
        f"time of {rows} x {length} tokens on {jax.default_backend()}: {times.before:.1f} ms before, "
        f"{times.after:.1f} ms after, {times.ratio:.2f} of the time (median of pairs)",
        f"{yardstick.metric} on {yardstick.units:,} held-out examples: {lost.before:.4f} before, {lost.after:.4f} "
        f"after, {lost.lost:.4f} lost (95 % interval {lost.lost - lost.margin:.4f} to {lost.lost + lost.margin:.4f})",
    ]


def section(lines: list[str]) -> str:
    """Return the part of a card that says what was compressed and what it cost."""
    before = "Other figures on this page are those of the model before."
    return "\n".join(["## Compression\n", *(f"- {line}" for line in lines), "", before, ""])


def _pruned(name: str, found: Weights, yardstick: Yardstick, amount: float, scratch: pathlib.Path) -> Compressed:
    smaller = prune(PARTS[name], found.config, found.params, yardstick.examples(), yardstick.loss(found.config), amount)
    after = found._replace(config=smaller.config, params=smaller.params)
    original, directory = scratch / "original", scratch / "smaller"
    write_huggingface(found, original, {})
    write_huggingface(after, directory, {})
    return Compressed(after, directory, original, jax_runner(after), jax_runner(found), smaller.what)


def _onnx_int8(found: Weights, yardstick: Yardstick, amount: float, scratch: pathlib.Path) -> Compressed:
    del amount
    original, directory = scratch / "float32", scratch / "int8"
    write_onnx(found, original, {})
    quantize_onnx(original, directory)
    run, run_original = (onnx_runner(place, yardstick.outputs) for place in (directory, original))
    return Compressed(found, directory, original, run, run_original, "ONNX with int8 weights, beside ONNX in float32")


def _stablehlo_int8(found: Weights, yardstick: Yardstick, amount: float, scratch: pathlib.Path) -> Compressed:
    del amount, yardstick
    original, directory = scratch / "float32", scratch / "int8"
    write_stablehlo(found, original, {})
    write_stablehlo(found, directory, {}, int8=True)
    what = "StableHLO with int8 weights, beside StableHLO in float32"
    return Compressed(found, directory, original, stablehlo_runner(directory), stablehlo_runner(original), what)


def _megabytes(directory: pathlib.Path) -> float:
    """Of the files that hold weights or a program."""
    suffixes = (".safetensors", ".onnx", ".npz", ".stablehlo", ".data")
    return sum(path.stat().st_size for path in directory.iterdir() if path.suffix in suffixes) / 1e6


METHODS: dict[str, Method] = {name: functools.partial(_pruned, name) for name in PARTS} | {
    "onnx_int8": _onnx_int8,
    "stablehlo_int8": _stablehlo_int8,
}
