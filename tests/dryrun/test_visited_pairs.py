"""The FLOPs of our attention kernel with a window: a count of single tiles against the dry run."""

import collections
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.dryrun.hlo_cost import program_cost
from bert_jax.models import Head, make_model
from bert_jax.models.attention import self_attention, triton
from bert_jax.models.attention.inputs import NO_LIMIT

LENGTH = 192


def by_counting(length: int, reach: int) -> int:
    """The pairs in all tiles in which some query may read some key."""
    block = next(size for size in (64, 32, 16) if length % size == 0)
    query, key = np.divmod(np.arange(length * length), length)
    near = np.abs(query - key) <= reach
    return block**2 * len(set(zip(query[near] // block, key[near] // block, strict=True)))


@pytest.mark.parametrize("length", [16, 48, 64, 96, 192, 256])
@pytest.mark.parametrize("reach", [0, 1, 15, 16, 63, 64, 65, 100, NO_LIMIT])
def test_the_name_of_the_kernel_has_the_tiles_in_reach(length: int, reach: int) -> None:
    expected = by_counting(length, reach)
    assert triton.mean_visited_pairs(length, ((reach, 1),)) == expected
    # The loops of the kernel have these bounds.
    block = triton._block_size(length)
    head = triton._Head(
        triton._KernelSpec(block, 0.0, False, True), None, jnp.full((1,), reach), None, jnp.zeros((length,)), (), None
    )
    bounds = [head.blocks_in_radius(number) for number in range(length // block)]
    assert block**2 * sum(int(end) - int(first) for first, end in bounds) == expected


WINDOWS = {
    "no window": ({}, [NO_LIMIT] * 5),
    "one block in three reads all": ({"local_window": 32, "global_every": 3}, [NO_LIMIT, 16, 16, NO_LIMIT, 16]),
    "all blocks are local": ({"local_window": 32, "global_every": 0}, [16] * 5),
    "a window for each block": (
        {"local_window": 160, "local_windows": (32, 32, 160, 64, 160), "global_every": 0},
        [16, 16, 80, 32, 80],
    ),
}


@pytest.mark.parametrize(("window", "reaches"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("scan_layers", [True, False])
def test_a_program_names_the_tiles_of_its_layers(scan_layers, window, reaches, monkeypatch) -> None:
    """Unrolled each layer has its own; the one of a scanned program has the mean, rounded."""
    monkeypatch.setattr(self_attention, "traced_platform", lambda: "gpu")
    config = EncoderConfig(
        vocab_size=50, num_layers=5, hidden_size=32, num_heads=2, mlp_size=64, max_positions=LENGTH, **window
    )
    compute = ComputeConfig(dtype="bfloat16", attention="triton", scan_layers=scan_layers)
    model = make_model(config, compute, (Head("masked_token"),))
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    batch = {name: jax.ShapeDtypeStruct((2, LENGTH), jnp.int32) for name in names}

    def loss(params, batch):
        return jnp.sum(model.apply(params, batch, jax.random.key(0))["mlm_logits"])

    program = str(jax.make_jaxpr(jax.grad(loss))(jax.eval_shape(model.init, jax.random.key(0)), batch))
    expected = [by_counting(LENGTH, reach) for reach in reaches]
    for direction in ("forward", "backward"):
        found = [int(pairs) for pairs in re.findall(rf"name=attention_{direction}_(\d+)_pairs", program)]
        # The forward kernel is traced a second time with the backward pass, where the compiler drops it.
        traced = 2 if direction == "forward" else 1
        named = [round(sum(expected) / len(expected))] if scan_layers else expected
        assert collections.Counter(found) == collections.Counter(traced * named)


@pytest.mark.parametrize(("direction", "products"), [("forward", 2), ("backward", 7)])
def test_the_dry_run_reads_the_pairs(direction: str, products: int) -> None:
    """4 sequences of 192 tokens and 2 heads of 16; the backward pass computes scores and their gradients twice."""
    name = f"jit(step)/attention_{direction}_20480_pairs"
    call = f'custom-call(%s, %s, %s, %s, %q), custom_call_target="__gpu$xla.gpu.triton", metadata={{op_name="{name}"}}'
    text = f"""HloModule attention

ENTRY %main (s: s32[], q: bf16[4,192,3,32]) -> bf16[4,192,32] {{
  %s = s32[] parameter(0)
  %q = bf16[4,192,3,32]{{3,2,1,0}} parameter(1)
  ROOT %c = bf16[4,192,32]{{2,1,0}} {call}
}}
"""
    found = program_cost(text)
    assert found.flops == 2 * products * 4 * 2 * 20480 * 16
    assert found.kernels == {f"our attention, {direction}": 1}
