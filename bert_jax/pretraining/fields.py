"""Fields that the objective or the sentence pairs of a run do not read: refused when the run begins."""

from typing import Any

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import PretrainConfig
from bert_jax.errors import UserError
from bert_jax.objectives import OBJECTIVES

# Of DataConfig and PhaseConfig. Fields that only some rules of masking read are refused with the others (masking.py).
MASKS = ("masking", "mask_probability", "mask_probability_end", "mask_token_fraction", "random_token_fraction")


def check_fields(config: PretrainConfig) -> None:
    """Raise UserError where a field is set that nothing reads: of masks without masks, of pairs without pairs."""
    phases = {f"train.phases[{number}]": phase for number, phase in enumerate(config.train.phases)}
    if OBJECTIVES[config.objective].causal:
        for section, values in {"data": config.data, **phases}.items():
            _refuse(section, values, MASKS, f"config.objective={config.objective}, which has no masks")
    if SENTENCE_PAIRS[config.data.sentence_pairs].num_texts == 1:
        pairs = f"config.data.sentence_pairs={config.data.sentence_pairs}, which has no pairs"
        _refuse("data", config.data, ("short_seq_probability",), pairs)


def _refuse(section: str, values: Any, names: tuple[str, ...], beside: str) -> None:
    for name in names:
        default = getattr(type(values)(), name, None)
        if getattr(values, name, default) != default:
            raise UserError(f"config.{section}.{name} has no effect with {beside}; set it to {default}")
