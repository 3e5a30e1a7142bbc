"""Minimal pairs: a model knows a rule where it finds the acceptable sentence likelier than the unacceptable one."""

import pathlib
from collections.abc import Callable, Iterator, Sequence

from bert_jax.errors import UserError
from bert_jax.inference.inputs import read_inputs, texts_of
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, Scored, files_in, whole_texts
from bert_jax.scoring.queries import Context

PACKAGED = {name: pathlib.Path(__file__).with_name(f"{name}.jsonl") for name in ("zorro_small",)}  # 1 % of Zorro
GOOD, BAD, PARADIGM = "sentence_good", "sentence_bad", "UID"


def _json_lines(path: pathlib.Path) -> Iterator[Item]:
    """BLiMP's format (Warstadt et al. 2020): an object per line; without a UID the file's name is the paradigm."""
    for one in read_inputs(path):
        texts = texts_of(one, (GOOD,)) | texts_of(one, (BAD,))
        yield Item(one.where, str(one.fields.get(PARADIGM, path.stem)), (texts[GOOD], texts[BAD]))


def _alternating_lines(path: pathlib.Path) -> Iterator[Item]:
    """Zorro's format (Huebner et al. 2021): odd lines unacceptable, even lines acceptable."""
    lines = [one for one in read_inputs(path) if one.fields["text"].strip()]
    if len(lines) % 2:
        raise UserError(f"{path}: {len(lines)} sentences, an odd number; write the unacceptable one of each pair first")
    for bad, good in zip(lines[::2], lines[1::2], strict=True):
        yield Item(bad.where, path.stem, (good.fields["text"], bad.fields["text"]))


# Suffix -> the pairs of a file, the acceptable sentence first.
FORMATS: dict[str, Callable[[pathlib.Path], Iterator[Item]]] = {".jsonl": _json_lines, ".txt": _alternating_lines}


def read(path: pathlib.Path) -> list[Item]:
    """Return the pairs of a file, of all files of a directory, or of PACKAGED, the acceptable sentence first.

    Raises:
        UserError: no file of a known format, or a line that is no sentence.
    """
    files = files_in(PACKAGED.get(str(path), path), tuple(FORMATS))
    if files[0].suffix not in FORMATS:
        raise UserError(f"{path}: pairs are read from {' and '.join(FORMATS)} files; rename or convert it")
    items = [item for file in files for item in FORMATS[file.suffix](file)]
    if not items:
        raise UserError(f"{path} holds no pair")
    return items


def measure(context: Context, scored: Sequence[Scored]) -> Figures:
    """Return the fraction of pairs whose acceptable sentence has the higher sum; ties count half."""
    sums = [one.sums for one in scored]
    ties = sum(good == bad for good, bad in sums)
    accuracy = (sum(good > bad for good, bad in sums) + ties / 2) / len(sums)
    return {"pairs": len(sums), "accuracy": accuracy, "ties": ties}


PAIRS = Benchmark(read, "pairs", whole_texts, measure, mean_over_groups=True)
