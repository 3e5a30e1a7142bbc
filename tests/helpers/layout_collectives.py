"""Prints the number of collectives by kind of a gradient on eight devices, without and with the layouts of GPUs."""

import collections
import dataclasses
import json
import re

import jax

from bert_jax.config import ComputeConfig, MeshConfig
from bert_jax.models import make_model
from bert_jax.parallel import sharding
from tests.models.test_blocks import CASES, HEADS, LENGTH, batch_of, random_params

COMPUTE = ComputeConfig(scan_layers=True)
KINDS = re.compile(r" (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def main() -> None:
    """One line of JSON for each of two meshes: [on a CPU, on a GPU]."""
    config = dataclasses.replace(CASES["post"], dropout=0.1)
    params, batch = random_params(config, COMPUTE), batch_of(config, [LENGTH] * 8)
    for mesh in (MeshConfig(data=8), MeshConfig(data=2, fsdp=2, tensor=2)):
        counts = []
        for platform in ("cpu", "gpu"):
            sharding.traced_platform = lambda name=platform: name
            model = make_model(config, COMPUTE, HEADS)

            def loss(params: dict, model=model) -> jax.Array:
                return model.apply(params, batch, jax.random.key(3))["hidden_states"].sum()

            with jax.set_mesh(sharding.make_mesh(mesh, jax.devices())):
                program = jax.jit(jax.grad(loss)).lower(params).compile().as_text()
            counts.append(collections.Counter(KINDS.findall(program)))
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
