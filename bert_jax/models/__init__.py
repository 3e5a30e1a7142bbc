"""The encoder and its heads in Flax linen: functions from a batch to output arrays.

Only this package uses linen. This package does not depend on objectives, data or tasks.

model.py      an architecture as pure functions; parameter counts, FLOPs, initial values of missing heads
heads.py      the network of encoder and heads; for a new head, add a function and a row of HEADS
encoder.py    embeddings, then the blocks, scanned or unrolled; attention weights of all layers
token_rows.py  tokens of padded sequences -> rows that the encoder reads, and back
blocks.py     the block; for a new residual connection, add a row to BLOCKS; for a new MLP, add a row to MLPS
attention/    the attention layer; for a new attention kernel, add a file and a row of KERNELS
positions.py  position schemes; for a new scheme, add a row to POSITIONS
fused_norm.py  a GPU kernel that computes a residual sum and its norm
norms.py      normalization layers; for a new norm, add a function and a row of NORMS
dropout.py    dropout by a hash of the element's index, so that the mask does not depend on the mesh
layers.py     parameters, linear maps, activations (ACTIVATIONS), marks for arrays that the backward pass needs
adapters.py   adapters (LoRA): small trained matrices that are added to the frozen linear maps of the encoder
init.py       initial values of parameters (INITIALIZATIONS), among them attention heads with a designed start

The suffix of a name gives the axes of an array: B sequences of a batch, L tokens of a sequence, Q queries, K keys, H
heads, D features of a head, C chunks of queries. A number in a suffix is the size of an axis, as the 1 in
`readable_Bx1xQxK`. If a name has no suffix, the docstring or the comment of the field gives the axes of the array.
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
