"""The ways to compute attention, as rows of one table keyed by `compute.attention`."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention import cudnn, tpu, tpu_kernels, triton, xla
from bert_jax.models.attention.inputs import AttentionInputs
from bert_jax.models.layers import block_width
from bert_jax.models.positions import POSITIONS
from bert_jax.parallel.platform import traced_platform

PLATFORMS = ("cpu", "gpu", "tpu")
LONGEST_JOINT = 512  # tokens; what one product and its biases save outweighs cuDNN's faster kernel up to here at least


class Kernel(NamedTuple):
    """A row of KERNELS: the function, and what it needs.

    Where the needs are not met, the function computes as the first row of `otherwise` does whose needs are met; where
    there is none, the choice is refused.
    """

    attend: Callable[[AttentionInputs, float], jax.Array]  # (inputs, dropout rate) -> context, as inputs.q
    words: str  # its name in messages
    otherwise: tuple[str, ...] = ()
    platforms: tuple[str, ...] = PLATFORMS
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    dropout: bool = True  # can drop probabilities
    bias: bool = True  # reads AttentionInputs.bias, .distances and .global_tokens
    window: bool = True  # reads AttentionInputs.reach
    head_multiple: int = 1  # features per head
    available: Callable[[], bool] = lambda: True  # on the devices of this process
    joint: Callable[[AttentionInputs, float], bool] = lambda *_: False  # whether it prefers Joint


def _chosen(inputs: AttentionInputs, rate: float) -> ModuleType:
    """On GPUs the first fused kernel that computes these inputs; what tpu.py chooses elsewhere."""
    if traced_platform() == "gpu" and cudnn.available():
        # cuDNN's is the faster, except for windows and packed rows, which it reads as a mask over all pairs of tokens.
        whole = inputs.reach is None and inputs.segments is None
        for fused in (cudnn, triton) if whole else (triton, cudnn):
            if inputs.q.dtype == jnp.bfloat16 and fused.fits(inputs, rate):
                return fused
    return tpu


def _joint(inputs: AttentionInputs, rate: float) -> bool:
    """Whether `auto` prefers Joint: for our kernel, also for rows that cuDNN's computes where they are short."""
    chosen = _chosen(inputs, rate)
    return chosen is triton or (chosen is cudnn and inputs.q.shape[1] <= LONGEST_JOINT and triton.fits(inputs, rate))


def _auto(inputs: AttentionInputs, rate: float) -> jax.Array:
    kernel = triton if inputs.joint else _chosen(inputs, rate)
    return cast(jax.Array, kernel.attend(inputs, rate))


KERNELS: dict[str, Kernel] = {
    "auto": Kernel(
        _auto,
        f"one fused kernel for sequences of up to {tpu_kernels.MAX_LENGTH:,} tokens, a multiple of 8",
        otherwise=("cudnn", "triton", "xla"),
        platforms=("tpu",),
        bias=False,
        head_multiple=tpu_kernels.HEAD_MULTIPLE,
        joint=_joint,
    ),
    "xla": Kernel(xla.attend, "XLA"),
    # A window is part of cuDNN's mask. Its gradient of a bias, one for all sequences, is not tested on a GPU yet.
    "cudnn": Kernel(
        cudnn.attend,
        "cuDNN",
        platforms=("gpu",),
        dtypes=("bfloat16",),
        dropout=False,
        bias=False,
        head_multiple=cudnn.HEAD_MULTIPLE,
        available=cudnn.available,
    ),
    "triton": Kernel(
        triton.attend,
        "our kernel in Triton",
        platforms=("gpu",),
        dtypes=("bfloat16",),
        bias=False,
        head_multiple=min(triton.HEAD_SIZES),
        available=cudnn.available,
        joint=triton.fits,
    ),
}


def missing_for(kernel: Kernel, config: EncoderConfig, compute: ComputeConfig) -> list[str]:
    """Return what a kernel needs and these configs lack, in words; the platform aside."""
    needs = {
        f"config.compute.dtype={kernel.dtypes[0]}": compute.dtype in kernel.dtypes,
        "config.model.attention_dropout=0": kernel.dropout or config.attention_dropout == 0,
        f"config.model.positions other than {config.positions}": kernel.bias
        or not POSITIONS[config.positions].changes_scores,
        "config.model.causal=False": kernel.bias or not config.causal,
        "config.model.separator_id=None": kernel.bias or config.separator_id is None,
        "config.model.block_size=None": kernel.bias or config.block_size is None,
        "config.model.local_window=None": kernel.window or config.local_window is None,
        f"heads of a multiple of {kernel.head_multiple} features": (
            block_width(config) // config.num_heads % kernel.head_multiple == 0
        ),
    }
    return [words for words, met in needs.items() if not met]


def check_kernel(config: EncoderConfig, compute: ComputeConfig) -> None:
    """Raise `UserError` where the chosen kernel cannot compute this architecture on any platform."""
    chosen = KERNELS[compute.attention]
    if not chosen.otherwise and (missing := missing_for(chosen, config, compute)):
        raise UserError(f"config.compute.attention={compute.attention} needs {' and '.join(missing)}")


def kernel_used(config: EncoderConfig, compute: ComputeConfig, platform: str) -> str:
    """Return the kernel that training runs on 'cpu', 'gpu' or 'tpu', and the settings for one made for the platform.

    Raises `UserError` where the chosen kernel does not run on the platform.
    """
    chosen = KERNELS[compute.attention]
    for used in (chosen, *(KERNELS[name] for name in chosen.otherwise)):
        if platform in used.platforms and used.available() and not missing_for(used, config, compute):
            break
    else:
        raise UserError(
            f"config.compute.attention={compute.attention} runs on {', '.join(chosen.platforms)}, and this is a "
            f"{platform}; set config.compute.attention=auto"
        )
    if used.platforms == (platform,):
        if chosen is not KERNELS["auto"] or used is not KERNELS["cudnn"]:
            return used.words
        joint = config.attention_bias and not config.query_key_norm and not POSITIONS[config.positions].rotate
        others = ["windows"] * (config.local_window is not None) + ["packed rows"]
        others += [f"up to {LONGEST_JOINT} tokens"] * joint
        return f"{used.words}, for {', '.join(others)} {KERNELS['triton'].words}"
    hints = []
    for name, kernel in KERNELS.items():
        if kernel.platforms == (platform,) and kernel.available():
            choose = [] if name in (compute.attention, *chosen.otherwise) else [f"config.compute.attention={name}"]
            hints.append(f"{kernel.words} is used with {', '.join(choose + missing_for(kernel, config, compute))}")
    return used.words + (f" ({'; '.join(hints)})" if hints else "")
