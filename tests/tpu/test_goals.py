"""Goals for BERT under the TPU compiler: FLOPs, memory and collectives of a step on v5e.

Each program is compiled once per session; BERT-base takes about half a minute on two cores.
"""

import functools
from typing import Any

import pytest

from bert_jax.config.presets import architecture
from tests.helpers.dry_run_process import phase

pytestmark = pytest.mark.tpu

ROWS, LENGTH, CHIPS = 64, 128, 4  # sequences per chip


@functools.cache
def base(*words: str) -> dict[str, Any]:
    """BERT-base at 64 x 128 tokens per chip on v5e:2x2."""
    return phase("base", "v5e:2x2", ROWS * CHIPS, LENGTH, *words)


def moved(one: dict[str, Any], kind: str) -> tuple[int, int]:
    """Count and bytes of the collectives of one kind."""
    found = [each for each in one["collectives"] if each["kind"] == kind]
    return sum(each["count"] for each in found), sum(each["bytes"] for each in found)


def parameters() -> int:
    """Parameters of BERT-base with its heads; the vocabulary is padded to a multiple of 128."""
    size = architecture("base")
    h, layers, mlp = size["hidden_size"], size["num_layers"], size["mlp_size"]
    block = 4 * (h * h + h) + 2 * h * mlp + mlp + h + 4 * h
    embeddings = (30_592 + 512 + 2 + 2) * h
    heads = h * h + h + 2 * h + 30_592 + h * h + h + 2 * h + 2
    return layers * block + embeddings + heads


def test_flops_exceed_the_model_flops_by_at_most_three_percent() -> None:
    assert base()["flops_per_chip"] <= 1.03 * base()["model_flops_per_chip"]


def test_bytes_in_hbm() -> None:
    assert base()["hbm_bytes_per_chip"] <= 15e9


@pytest.mark.xfail(reason="2.01 GB, half a percent above the goal: docs/results/compilers.md", strict=True)
def test_temporaries() -> None:
    assert base()["temporary_bytes_per_chip"] <= 2e9


def test_data_parallel_reduces_only_the_gradient() -> None:
    one = base()
    assert {each["kind"] for each in one["collectives"]} == {"all-reduce"}
    assert one["parameter_bytes_per_chip"] == 4 * parameters()
    assert moved(one, "all-reduce")[1] <= 1.01 * 4 * parameters()


def fully_sharded() -> dict[str, Any]:
    return base(f"--config.mesh.fsdp={CHIPS}", "--config.mesh.data=1", "--config.compute.scan_layers=True")


def test_fsdp_gathers_each_parameter_as_published() -> None:
    """Forward and backward, in bfloat16; the token table once, in float32."""
    assert moved(fully_sharded(), "all-gather")[1] == pytest.approx(2 * 2 * parameters(), rel=0.05)


def test_fsdp_scatters_each_gradient_once() -> None:
    """In bfloat16, but that of the token table in float32."""
    table = 30_592 * architecture("base")["hidden_size"]
    assert moved(fully_sharded(), "reduce-scatter")[1] == pytest.approx(2 * parameters() + 2 * table, rel=0.05)


@pytest.mark.xfail(reason="the token table's gradient is scattered in float32: docs/results/compilers.md", strict=True)
def test_fsdp_scatters_in_bfloat16() -> None:
    assert moved(fully_sharded(), "reduce-scatter")[1] == pytest.approx(2 * parameters(), rel=0.05)


def test_tensor_parallel_reduces_twice_a_layer_each_way() -> None:
    """In bytes, 2 + 4 activations per layer: query, key and value are reduced together, as three arrays."""
    one = base("--config.mesh.data=1", f"--config.mesh.tensor={CHIPS}", "--config.compute.scan_layers=True")
    layers = architecture("base")["num_layers"]
    activation = 2 * ROWS * CHIPS * LENGTH * architecture("base")["hidden_size"]  # bfloat16
    count, size = moved(one, "all-reduce")
    assert 4 * layers <= count <= 4 * layers + 20  # a few of the embeddings, the heads and the norm
    assert size == pytest.approx(6 * layers * activation + 2 * activation, rel=0.02)  # with the lookup, in float32


def test_large_at_512_fits_one_chip_with_remat() -> None:
    assert phase("large", "v5e:1x1", 8, 512, "--config.compute.remat=True")["fits"]


def test_a_pod_of_256_chips() -> None:
    one = phase("large", "v5e:16x16", 4096, 512, "--config.compute.remat=True")
    assert one["fits"]
    assert moved(one, "all-gather") == (0, 0)
