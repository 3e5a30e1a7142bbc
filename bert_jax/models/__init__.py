"""Encoder and heads in Flax linen: batch -> arrays.

Only this package uses linen; it knows no objectives, data and tasks.

model.py      an architecture as pure functions; parameter counts, FLOPs, missing heads
heads.py      encoder and heads together; add a function and a row of HEADS for a head
encoder.py    embeddings, then the blocks, scanned or unrolled; attention weights of all layers
token_rows.py  tokens of padded sequences -> rows that the encoder reads, and back
blocks.py     the block; add a row to BLOCKS for a form of residual connection, and to MLPS for an MLP
attention/    the attention layer; add a file and a row of KERNELS for a kernel
positions.py  position schemes; add a row to POSITIONS for a scheme
fused_norm.py  a GPU kernel that computes a residual sum and its norm
norms.py      normalization layers; add a function and a row of NORMS for a norm
dropout.py    dropout by a hash of the element's index, so that the mask does not depend on the mesh
layers.py     parameters, linear maps, activations (ACTIVATIONS), marks for arrays that the backward pass needs
adapters.py   adapters (LoRA): small trained matrices that are added to the frozen linear maps of the encoder
init.py       initial values of parameters (INITIALIZATIONS), among them attention heads with a designed start

The suffix of a name gives the axes of an array: B sequences of a batch, L tokens of a sequence, Q queries, K keys, H
heads, D features of a head, C chunks of queries. A number is the size of an axis, as in `readable_Bx1xQxK`. The axes of
an array without a suffix are in the docstring, or in the comment of the field.
"""

from bert_jax.config.presets import PRESETS
from bert_jax.models.adapters import Adapter, Target
from bert_jax.models.attention import describe_used_kernel
from bert_jax.models.encoder import attention_weights, padded_vocab
from bert_jax.models.heads import HEADS, Batch, Head
from bert_jax.models.model import (
    PRETRAINING_HEADS,
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
    "Adapter",
    "Batch",
    "Head",
    "Model",
    "Params",
    "Target",
    "attention_weights",
    "count_parameters",
    "describe_used_kernel",
    "draw_missing",
    "make_model",
    "model_flops",
    "padded_vocab",
    "pretraining_model",
]
