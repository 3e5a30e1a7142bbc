"""Encoder and heads in Flax linen: batch -> arrays. Linen stays here; objectives, data and tasks are unknown here.

model.py      an architecture as pure functions; parameter counts, FLOPs, missing heads
heads.py      encoder and heads together; add a head as a function and its row in HEADS
encoder.py    embeddings, then the blocks, scanned or unrolled; attention weights of all layers
blocks.py     the block; add a way to join sublayers as a row of BLOCKS, an MLP as a row of MLPS
attention/    the attention layer; add a kernel as a file and its row in KERNELS
positions.py  position schemes; add a row of POSITIONS
fused_norm.py  sum and norm by one kernel on GPUs
norms.py      add a normalization as a function and its row in NORMS
dropout.py    dropout by a hash of the element's index: every mesh has the same mask
layers.py     parameters, linear map, activations (ACTIVATIONS), marks of arrays to save for the backward pass
adapters.py   adapters: small trained matrices beside the frozen linear maps of the encoder (LoRA)
init.py       initial values of parameters (INITIALIZATIONS), heads of the first block that start with a task

Suffixes of names give the axes of an array: B sequences of a batch, L tokens of a sequence, Q queries, K keys, H heads,
D features of a head, C chunks of queries; a size stands for itself, as in `readable_Bx1xQxK`. Arrays without a suffix
have the axes that their docstring or field says.
"""

from bert_jax.config.presets import PRESETS
from bert_jax.models.adapters import Adapter, Target
from bert_jax.models.attention import kernel_used
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
    "draw_missing",
    "kernel_used",
    "make_model",
    "model_flops",
    "padded_vocab",
    "pretraining_model",
]
