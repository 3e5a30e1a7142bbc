"""The attention kernels, as rows of a table; the key of a row is a value of the setting `compute.attention`."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention import cudnn, tpu, triton, xla
from bert_jax.models.attention.inputs import AttentionInputs, has_score_terms
from bert_jax.models.positions import POSITIONS
from bert_jax.parallel.platform import traced_platform

PLATFORMS = ("cpu", "gpu", "tpu")
Attend = Callable[[AttentionInputs, float], jax.Array]  # (inputs, dropout rate) -> attention output
MAX_FUSED_QKV_LENGTH = 512  # tokens; up to this length, FusedQKV saves more time than cuDNN's kernel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernel:
    """A row of KERNELS: the function of an attention kernel, and the requirements of the kernel.

    If a requirement is not met, attention is computed by the first row of `fallbacks` whose requirements are met. If
    the requirements of no fallback are met, the choice of the kernel is an error.
    """

    attend: Attend
    display_name: str  # name of the kernel in messages
    fallbacks: tuple[str, ...] = ()
    platforms: tuple[str, ...] = PLATFORMS
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    dropout: bool = True  # whether the kernel can drop probabilities
    bias: bool = True  # whether the kernel reads AttentionInputs.bias, .distances and .global_tokens
    window: bool = True  # whether the kernel reads AttentionInputs.radius
    head_multiple: int = 1  # the features of a head are a multiple of this number
    available: Callable[[], bool] = lambda: True  # whether the devices of this process have the kernel
    prefers_fused_qkv: Callable[[AttentionInputs, float], bool] = lambda *_: False


def _fastest_attention(inputs: AttentionInputs, rate: float) -> Attend:
    """Return the fastest attention function for these inputs on the platform of the program."""
    platform = traced_platform()
    if platform == "gpu" and cudnn.is_cudnn_available() and inputs.q.dtype == jnp.bfloat16:
        # cuDNN's kernel is faster than our Triton kernel, except for windows and packed rows, for which cuDNN reads a
        # mask over all pairs of tokens.
        reads_all_pairs = inputs.radius is None and inputs.segments is None
        kernels = ((cudnn.cudnn_attention, cudnn.fits_cudnn), (triton.triton_attention, triton.fits_triton))
        for attend, fits in kernels if reads_all_pairs else kernels[::-1]:
            if fits(inputs, rate):
                return attend
    if platform == "tpu" and tpu.fits_tpu(inputs):
        return tpu.tpu_attention
    return xla.xla_attention if has_score_terms(inputs) else xla.recomputed_attention


def _prefers_fused_qkv(inputs: AttentionInputs, rate: float) -> bool:
    """Return whether the choice `auto` uses our Triton kernel for FusedQKV, in place of cuDNN for short sequences."""
    fastest = _fastest_attention(inputs, rate)
    is_short = inputs.q.shape[1] <= MAX_FUSED_QKV_LENGTH
    replaces_cudnn = fastest is cudnn.cudnn_attention and is_short and triton.fits_triton(inputs, rate)
    return fastest is triton.triton_attention or replaces_cudnn


def _attend_by_fastest(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output of the fastest kernel; for FusedQKV, of our Triton kernel."""
    attend = triton.triton_attention if inputs.fused_qkv else _fastest_attention(inputs, rate)
    return attend(inputs, rate)


KERNELS: dict[str, Kernel] = {
    "auto": Kernel(
        attend=_attend_by_fastest,
        display_name=f"one fused kernel for sequences of up to {tpu.MAX_LENGTH:,} tokens, a multiple of 8",
        fallbacks=("cudnn", "triton", "xla"),
        platforms=("tpu",),
        bias=False,
        head_multiple=tpu.HEAD_MULTIPLE,
        prefers_fused_qkv=_prefers_fused_qkv,
    ),
    "xla": Kernel(attend=xla.xla_attention, display_name="XLA"),
    # For cuDNN, a window is a part of the mask. cuDNN's gradient of a bias that all sequences share is not tested yet.
    "cudnn": Kernel(
        attend=cudnn.cudnn_attention,
        display_name="cuDNN",
        platforms=("gpu",),
        dtypes=("bfloat16",),
        dropout=False,
        bias=False,
        head_multiple=cudnn.HEAD_MULTIPLE,
        available=cudnn.is_cudnn_available,
    ),
    "triton": Kernel(
        attend=triton.triton_attention,
        display_name="our kernel in Triton",
        platforms=("gpu",),
        dtypes=("bfloat16",),
        bias=False,
        head_multiple=min(triton.HEAD_SIZES),
        available=cudnn.is_cudnn_available,
        prefers_fused_qkv=triton.fits_triton,
    ),
}


def unmet_kernel_settings(kernel: Kernel, config: EncoderConfig, compute: ComputeConfig) -> list[str]:
    """Return the settings that a kernel needs and that these configs lack; the platform is not checked."""
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
    """Raise `UserError` if the chosen kernel cannot compute this architecture on any platform."""
    kernel = KERNELS[compute.attention]
    if not kernel.fallbacks and (unmet := unmet_kernel_settings(kernel, config, compute)):
        raise UserError(f"config.compute.attention={compute.attention} needs {' and '.join(unmet)}; or set it to auto")


def describe_used_kernel(config: EncoderConfig, compute: ComputeConfig, platform: str) -> str:
    """Return text on the kernel of a training on 'cpu', 'gpu' or 'tpu', and on settings that fused kernels need.

    Raise `UserError` if the chosen kernel does not run on the platform.
    """
    chosen = KERNELS[compute.attention]
    for used in (chosen, *(KERNELS[name] for name in chosen.fallbacks)):
        if platform in used.platforms and used.available() and not unmet_kernel_settings(used, config, compute):
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
        exceptions += [f"up to {MAX_FUSED_QKV_LENGTH} tokens"] * may_fuse
        return f"{used.display_name}, for {', '.join(exceptions)} {KERNELS['triton'].display_name}"
    hints = []
    for name, kernel in KERNELS.items():
        if kernel.platforms == (platform,) and kernel.available():
            settings = [] if name in (compute.attention, *chosen.fallbacks) else [f"config.compute.attention={name}"]
            settings += unmet_kernel_settings(kernel, config, compute)
            hints.append(f"{kernel.display_name} is used with {', '.join(settings)}")
    return used.display_name + (f" ({'; '.join(hints)})" if hints else "")
