"""Units of a few KB, so that a small corpus has many parts, blocks and shards, in every process that imports this."""

from bert_jax.data.preparation import units
from bert_jax.data.sources import pieces

units.PART_BYTES = 30_000
units.UNIT_BYTES = 2_000
units.UNITS_PER_SHARD = 3
pieces.LARGE, pieces.PIECE = 50_000, 10_000
_units = units.units


def small_units(part, tokenizer, settings):
    """`units.units`; a worker process that is sent this function imports this file first."""
    return _units(part, tokenizer, settings)
