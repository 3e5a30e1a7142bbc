"""Multi-head self-attention (Vaswani et al. 2017): every position reads every unpadded one of its own segment.

kernels.py         KERNELS, the ways to compute it: add a row, and a file with its function
inputs.py          what every kernel reads
xla.py             plain operations, which XLA compiles for any platform
local.py           plain operations over chunks, for windows of long sequences
devices.py         a kernel on a mesh, each device on its part
tpu.py             the fused kernel on TPUs, plain operations elsewhere
tpu_kernels.py     the fused kernel itself, in Pallas
gpu/               the fused kernels on GPUs: cuDNN's, and one in Pallas with dropout
self_attention.py  the layer of the encoder: projections, position scheme, kernel
"""

from bert_jax.models.attention.inputs import AttentionInputs, attention_inputs
from bert_jax.models.attention.kernels import KERNELS, Kernel, kernel_used, missing_for

__all__ = ["KERNELS", "AttentionInputs", "Kernel", "attention_inputs", "kernel_used", "missing_for"]
