"""Goals for BERT under the CUDA compiler: FLOPs, HBM bytes, memory and attention kernels of a step on an H100.

Each program is compiled once per session: 20 to 40 seconds of one core for BERT-base.
"""

import functools
from typing import Any

import pytest

from bert_jax.config.presets import architecture
from tests.helpers.dry_run_process import phase

pytestmark = pytest.mark.gpu_compiler

NO_DROPOUT = "--config.model.attention_dropout=0"
TRITON, XLA, CUDNN = (f"--config.compute.attention={name}" for name in ("triton", "xla", "cudnn"))
PACKED = ("--config.data.packing=8", "--config.compute.scan_layers=True")
LAYERS = architecture("base")["num_layers"]


@functools.cache
def h100(size: str, rows: int, length: int, *words: str) -> dict[str, Any]:
    """A model's step of `rows` sequences on one H100; base is unrolled, as its recipe."""
    return phase(size, "h100", rows, length, *words)


def attention(one: dict[str, Any], direction: str, whose: str = "cuDNN") -> int:
    """Number of attention kernels of cuDNN, or of ours in Triton."""
    return one["kernels"].get(f"{whose} attention, {direction}", 0)


@pytest.mark.parametrize("words", [(), (XLA,), (NO_DROPOUT, CUDNN)], ids=["our kernel", "XLA's attention", "cuDNN's"])
def test_flops_exceed_the_model_flops_by_at_most_two_percent(words: tuple[str, ...]) -> None:
    one = h100("base", 64, 128, *words)
    assert one["model_flops_per_chip"] < one["flops_per_chip"] <= 1.02 * one["model_flops_per_chip"]


@pytest.mark.parametrize(("rows", "length"), [(64, 128), (16, 512)])
def test_hbm_bytes_of_the_published_recipe(rows: int, length: int) -> None:
    assert h100("base", rows, length)["hbm_bytes_per_chip"] <= 25e9


@pytest.mark.parametrize(("rows", "length"), [(64, 128), (16, 512)])
def test_hbm_bytes_with_cudnns_attention(rows: int, length: int) -> None:
    assert h100("base", rows, length, NO_DROPOUT, CUDNN)["hbm_bytes_per_chip"] <= 25e9


def test_large_at_512_fits_32_sequences() -> None:
    one = h100("large", 32, 512)
    assert one["capacity_bytes_per_chip"] == 60 * 2**30, "of 80: JAX takes three quarters"
    assert one["fits"]


def test_one_forward_attention_kernel_per_layer() -> None:
    one = h100("base", 64, 128, NO_DROPOUT, CUDNN)
    assert (attention(one, "forward"), attention(one, "backward")) == (LAYERS, LAYERS)


def test_one_forward_attention_kernel_per_layer_of_packed_sequences() -> None:
    """Ours, which needs no mask over all pairs of tokens."""
    one = h100("base", 64, 128, NO_DROPOUT, *PACKED)
    assert [attention(one, direction, "our") for direction in ("forward", "backward")] == [LAYERS, LAYERS]
    masked = h100("base", 64, 128, NO_DROPOUT, *PACKED, CUDNN)
    assert one["hbm_bytes_per_chip"] < masked["hbm_bytes_per_chip"]


@pytest.mark.parametrize("words", [(), PACKED], ids=["not packed", "packed"])
def test_one_attention_kernel_per_layer_and_direction_with_dropout(words: tuple[str, ...]) -> None:
    one = h100("base", 64, 128, *words)
    assert [attention(one, direction, "our") for direction in ("forward", "backward")] == [LAYERS, LAYERS]


def test_a_window_costs_the_flops_of_its_tiles() -> None:
    """Of 16 x 16 tiles of 64 x 64 pairs, a window of 64 columns on each side reads 46; 9 products in all."""
    longer = "--config.model.max_positions=1024"
    whole = h100("mini", 8, 1024, longer)
    local = h100("mini", 8, 1024, longer, "--config.model.local_window=128", "--config.model.global_every=0")
    size = architecture("mini")
    saved = 2 * 9 * size["num_layers"] * 8 * size["hidden_size"] * (256 - 46) * 64**2
    assert whole["flops_per_chip"] - local["flops_per_chip"] == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize(("rows", "length", "part"), [(64, 128, 0.8), (16, 512, 0.5)])
def test_the_kernel_with_dropout_moves_fewer_bytes_than_xlas_attention(rows: int, length: int, part: float) -> None:
    ours, xlas = (h100("base", rows, length, words)["hbm_bytes_per_chip"] for words in (TRITON, XLA))
    assert ours < part * xlas


def test_data_parallel_reduces_only_the_gradient() -> None:
    words = (NO_DROPOUT, "--config.compute.scan_layers=True")
    one = phase("base", "h100:8", 512, 128, *words)
    assert {each["kind"] for each in one["collectives"]} == {"all-reduce"}
    assert sum(each["bytes"] for each in one["collectives"]) <= 1.01 * one["parameter_bytes_per_chip"]
