"""Encoder and heads in Flax linen: batch -> arrays. Linen stays here; objectives, data and tasks are unknown here.

attention/    Attention
blocks.py     the block; add a way to normalize around its sublayers as a function and its row in BLOCKS
dropout.py    dropout by a hash of the element's index, the same on every mesh
encoder.py    embeddings, then the blocks, scanned or unrolled; attention weights of all layers
fused_norm.py sum and norm by one kernel on GPUs
heads.py      The two linear maps of heads, and a table over the vocabulary beside that of the embeddings
init.py       Heads of the first block that read a token's neighbors from the start
layers.py     linear map, activations (ACTIVATIONS), initializations (INITIALIZATIONS), parameters with logical axes
model.py      an architecture as pure functions; parameter counts, FLOPs, missing heads
norms.py      add a normalization as a function and its row in NORMS
positions.py  What a position scheme consists of
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
