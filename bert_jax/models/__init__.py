"""Models as pure functions: `make_model(config, compute, heads)` gives `init`, `apply`, logical axes and sections.

Linen modules stay in this room; nothing here knows objectives, data or tasks. A variant is a row of a table:

model.py      an architecture as pure functions; parameter counts, FLOPs, missing heads
encoder.py    embeddings, then the blocks, scanned or unrolled; attention weights of all layers
bottleneck.py the block of MobileBERT, narrow inside
blocks.py     the block; add a way to normalize around its sublayers as a function and its row in BLOCKS
attention/    self-attention: add a kernel as a file and its row in KERNELS
norms.py      add a normalization as a function and its row in NORMS
fused_norm.py sum and norm by one kernel on GPUs
positions/    add a position scheme as a file with its functions and its row in POSITIONS
mlps.py       add an MLP as a function and its row in MLPS
heads/        add a head as a function and its row in HEADS, a pooling likewise in POOLINGS
layers.py     linear map, activations (ACTIVATIONS), initializations (INITIALIZATIONS), parameters with logical axes
starts/       what heads of the first block read from the start, for rows of INITIALIZATIONS
dropout.py    dropout by a hash of the element's index, the same on every mesh
"""

from bert_jax.config.presets import PRESETS
from bert_jax.models.attention import kernel_used
from bert_jax.models.encoder import attention_weights, padded_vocab
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
    "attention_weights",
    "count_parameters",
    "draw_missing",
    "kernel_used",
    "make_model",
    "model_flops",
    "padded_vocab",
    "pretraining_model",
]
