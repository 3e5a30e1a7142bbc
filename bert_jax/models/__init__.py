"""Models as pure functions: `make_model(config, compute, heads)` gives `init`, `apply`, logical axes and sections.

Linen modules stay in this room; nothing here knows objectives, data or tasks.
"""

from bert_jax.config.presets import PRESETS
from bert_jax.models.attention import kernel_used
from bert_jax.models.encoder import padded_vocab
from bert_jax.models.heads import HEADS, Head
from bert_jax.models.model import (
    PRETRAINING_HEADS,
    Batch,
    Model,
    Params,
    count_parameters,
    draw_missing,
    make_model,
    model_flops,
    pretraining_model,
)

__all__ = [
    "HEADS",
    "PRESETS",
    "PRETRAINING_HEADS",
    "Batch",
    "Head",
    "Model",
    "Params",
    "count_parameters",
    "draw_missing",
    "kernel_used",
    "make_model",
    "model_flops",
    "padded_vocab",
    "pretraining_model",
]
