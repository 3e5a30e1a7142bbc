"""The ways to compute attention, as rows of one table keyed by `compute.attention`."""

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import cast

import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention import cudnn, tpu, tpu_kernels, triton, xla
from bert_jax.models.attention.inputs import AttentionInputs
from bert_jax.models.positions import POSITIONS
from bert_jax.parallel.platform import traced_platform

PLATFORMS = ("cpu", "gpu", "tpu")
LONGEST_FUSED_QKV = 512  # tokens; up to here at least, one product and its biases save more than cuDNN does


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
    """A row of KERNELS: the function, and what it needs.

    Where the needs are not met, the function computes as the first row of `fallbacks` does whose needs are met; where
    there is none, the choice is refused.
    """

    attend: Callable[[AttentionInputs, float], jax.Array]  # (inputs, dropout rate) -> context, as inputs.q
    display_name: str  # in messages
    fallbacks: tuple[str, ...] = ()
    platforms: tuple[str, ...] = PLATFORMS
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    dropout: bool = True  # can drop probabilities
    bias: bool = True  # reads AttentionInputs.bias, .distances and .global_tokens
    window: bool = True  # reads AttentionInputs.radius
    head_multiple: int = 1  # features per head
    available: Callable[[], bool] = lambda: True  # on the devices of this process
    prefers_fused_qkv: Callable[[AttentionInputs, float], bool] = lambda *_: False


def _fastest_kernel(inputs: AttentionInputs, rate: float) -> ModuleType:
    """The first fused kernel for GPUs that computes these inputs; on other platforms tpu.py, which chooses itself."""
    if traced_platform() == "gpu" and cudnn.available():
        # cuDNN's is the faster, except for windows and packed rows, which it reads as a mask over all pairs of tokens.
        reads_all_pairs = inputs.radius is None and inputs.segments is None
        for kernel in (cudnn, triton) if reads_all_pairs else (triton, cudnn):
            if inputs.q.dtype == jnp.bfloat16 and kernel.fits(inputs, rate):
                return kernel
    return tpu


def _prefers_fused_qkv(inputs: AttentionInputs, rate: float) -> bool:
    """Whether `auto` prefers FusedQKV: for our kernel, also for short rows, which cuDNN's kernel could compute."""
    fastest = _fastest_kernel(inputs, rate)
    is_short = inputs.q.shape[1] <= LONGEST_FUSED_QKV
    return fastest is triton or (fastest is cudnn and is_short and triton.fits(inputs, rate))


def _attend_by_fastest(inputs: AttentionInputs, rate: float) -> jax.Array:
    kernel = triton if inputs.fused_qkv else _fastest_kernel(inputs, rate)
    return cast(jax.Array, kernel.attend(inputs, rate))


KERNELS: dict[str, Kernel] = {
    "auto": Kernel(
        attend=_attend_by_fastest,
        display_name=f"one fused kernel for sequences of up to {tpu_kernels.MAX_LENGTH:,} tokens, a multiple of 8",
        fallbacks=("cudnn", "triton", "xla"),
        platforms=("tpu",),
        bias=False,
        head_multiple=tpu_kernels.HEAD_MULTIPLE,
        prefers_fused_qkv=_prefers_fused_qkv,
    ),
    "xla": Kernel(attend=xla.attend, display_name="XLA"),
    # A window is part of cuDNN's mask. Its gradient of a bias, one for all sequences, is not tested on a GPU yet.
    "cudnn": Kernel(
        attend=cudnn.attend,
        display_name="cuDNN",
        platforms=("gpu",),
        dtypes=("bfloat16",),
        dropout=False,
        bias=False,
        head_multiple=cudnn.HEAD_MULTIPLE,
        available=cudnn.available,
    ),
    "triton": Kernel(
        attend=triton.attend,
        display_name="our kernel in Triton",
        platforms=("gpu",),
        dtypes=("bfloat16",),
        bias=False,
        head_multiple=min(triton.HEAD_SIZES),
        available=cudnn.available,
        prefers_fused_qkv=triton.fits,
    ),
}


def unmet_needs(kernel: Kernel, config: EncoderConfig, compute: ComputeConfig) -> list[str]:
    """Return the settings that a kernel needs and these configs lack; the platform aside."""
    needs = {
        f"config.compute.dtype={kernel.dtypes[0]}": compute.dtype in kernel.dtypes,
        "config.model.attention_dropout=0": kernel.dropout or config.attention_dropout == 0,
        f"config.model.positions other than {config.positions}": kernel.bias
        or not POSITIONS[config.positions].changes_scores,
        "config.model.causal=False": kernel.bias or not config.causal,
        "config.model.separator_id=None": kernel.bias or config.separator_id is None,
        "config.model.block_size=None": kernel.bias or config.block_size is None,
        "config.model.local_window=None": kernel.window or config.local_window is None,
        f"heads of a multiple of {kernel.head_multiple} features": config.head_dim % kernel.head_multiple == 0,
    }
    return [setting for setting, is_met in needs.items() if not is_met]


def check_kernel(config: EncoderConfig, compute: ComputeConfig) -> None:
    """Raise `UserError` where the chosen kernel cannot compute this architecture on any platform."""
    kernel = KERNELS[compute.attention]
    if not kernel.fallbacks and (unmet := unmet_needs(kernel, config, compute)):
        raise UserError(f"config.compute.attention={compute.attention} needs {' and '.join(unmet)}")


def kernel_used(config: EncoderConfig, compute: ComputeConfig, platform: str) -> str:
    """Return the kernel that training runs on 'cpu', 'gpu' or 'tpu', and the settings for one made for the platform.

    Raises `UserError` where the chosen kernel does not run on the platform.
    """
    chosen = KERNELS[compute.attention]
    for used in (chosen, *(KERNELS[name] for name in chosen.fallbacks)):
        if platform in used.platforms and used.available() and not unmet_needs(used, config, compute):
            break
    else:
        raise UserError(
            f"config.compute.attention={compute.attention} runs on {', '.join(chosen.platforms)}, and this is a "
            f"{platform}; set config.compute.attention=auto"
        )
    if used.platforms == (platform,):
        if chosen is not KERNELS["auto"] or used is not KERNELS["cudnn"]:
            return used.display_name
        may_fuse = config.attention_bias and not config.query_key_norm and not POSITIONS[config.positions].rotate
        exceptions = ["windows"] * (config.local_window is not None) + ["packed rows"]
        exceptions += [f"up to {LONGEST_FUSED_QKV} tokens"] * may_fuse
        return f"{used.display_name}, for {', '.join(exceptions)} {KERNELS['triton'].display_name}"
    hints = []
    for name, kernel in KERNELS.items():
        if kernel.platforms == (platform,) and kernel.available():
            settings = [] if name in (compute.attention, *chosen.fallbacks) else [f"config.compute.attention={name}"]
            settings += unmet_needs(kernel, config, compute)
            hints.append(f"{kernel.display_name} is used with {', '.join(settings)}")
    return used.display_name + (f" ({'; '.join(hints)})" if hints else "")
