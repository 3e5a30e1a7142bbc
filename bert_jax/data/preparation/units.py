"""Files -> parts -> units: how the work of a preparation is cut; the same in every run, for any number of workers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.data.preparation.encoding import Settings, Unit, has_tokens, split_of
from bert_jax.data.sources import Raw, convert, raws
from bert_jax.data.tokenizer import Tokenizer

PART_BYTES = 512 << 20  # of input as it lies on disk
UNIT_BYTES = 1 << 20  # of documents, with what each costs
DOCUMENT_BYTES = 64
UNITS_PER_SHARD = 512  # in a block: what is lost at most when a preparation is killed


class Part(NamedTuple):
    """Consecutive inputs that are read by one process, one after the other."""

    number: int
    files: tuple[str, ...]
    bytes_before: int  # of the inputs of the parts before it


def plan(files: Sequence[str], sizes: Sequence[int]) -> tuple[Part, ...]:
    """The inputs in parts: runs of whole files of at most `PART_BYTES` together, a larger file alone."""
    parts: list[Part] = []
    own: list[str] = []
    before = size = 0
    for path, bytes_ in zip(files, sizes, strict=True):
        if own and size + bytes_ > PART_BYTES:
            parts.append(Part(len(parts), tuple(own), before))
            own, before, size = [], before + size, 0
        own.append(path)
        size += bytes_
    return (*parts, Part(len(parts), tuple(own), before))


def units(part: Part, tokenizer: Tokenizer, settings: Settings) -> Iterator[Unit]:
    """The units of a part, in order, at least one; cheap, and in bounded memory.

    Raises:
        UserError: as `sources.raws`.
    """
    number = size = 0
    documents: list[Raw] = []
    split, begun = "", False  # of the latest document that comes in pieces
    at_start = (split, begun)

    def unit(last: bool) -> Unit:
        bytes_read = part.bytes_before + documents[-1].bytes_read if documents else part.bytes_before
        return Unit(part.number, number, number // UNITS_PER_SHARD, last, documents, bytes_read, *at_start)

    for raw in raws(part.files, settings.reading):
        if size >= UNIT_BYTES:
            yield unit(last=False)
            number, size, documents, at_start = number + 1, 0, [], (split, begun)
        documents.append(raw)
        size += len(raw.data) + DOCUMENT_BYTES
        if raw.piece == 0 and not raw.last:
            text = convert(raw, settings.reading).text
            split, begun = split_of(text, settings.heldout_fraction), has_tokens(text, True, tokenizer, settings)
        elif raw.piece and not begun:
            begun = has_tokens(convert(raw, settings.reading).text, False, tokenizer, settings)
    yield unit(last=True)
