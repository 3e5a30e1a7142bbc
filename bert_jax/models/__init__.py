"""Models as pure functions: `make_model(config, compute, heads)` gives `init`, `apply`, logical axes and sections.

model.py      Model, make_model, missing heads, counts of parameters and FLOPs
encoder.py    embeddings and blocks, scanned or unrolled over the layers
attention/    the attention layer and its kernels: add a row to KERNELS
positions.py  position schemes: add a row to POSITIONS
norms.py      normalization layers: add a row to NORMS
mlps.py       the MLP of a block: add a row to MLPS
heads.py      heads on the encoder: add a row to HEADS
layers.py     linear map, activations (ACTIVATIONS), lookup
dropout.py    dropout by a hash, the same on every mesh

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
