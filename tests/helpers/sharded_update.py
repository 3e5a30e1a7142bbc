"""Print for each mesh the largest difference between Muon's updates and the updates on one device.

tests/training/test_muon.py starts this program on several CPU devices. Differences are relative to the largest update
of a parameter. The program also checks that the momentum is sharded.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.config import MeshConfig, OptimizerConfig
from bert_jax.objectives import make_objective
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.step import init_state, state_layout
from tests.helpers.synthetic import tiny_config

MESHES = [(1, 1, 1), (8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]
STEPS = 3


def is_muon(node: object) -> bool:
    """Whether a part of the state is that of the matrices."""
    return isinstance(node, optax.contrib.MuonState)


def main() -> None:
    config = tiny_config(model={"hidden_size": 32, "num_heads": 8, "mlp_size": 64})
    objective = make_objective(config)
    optimizer = make_optimizer(OptimizerConfig(name="muon"), objective.logical_axes, objective.sections)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(objective.init, jax.random.PRNGKey(0))
    gradients = [jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes) for _ in range(STEPS)]
    found = []
    for sizes in MESHES:
        mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: int(np.prod(sizes))])
        with jax.set_mesh(mesh):
            _, placement = state_layout(objective, optimizer, mesh)
            state = jax.jit(lambda: init_state(config.seed, objective, optimizer), out_shardings=placement)()
            update = jax.jit(
                lambda g, s, p: optimizer(jnp.float32(1e-4)).update(g, s, p),
                out_shardings=(placement.params, placement.opt_state),
            )
            opt_state = state.opt_state
            for gradient in gradients:
                updates, opt_state = update(jax.device_put(gradient, placement.params), opt_state, state.params)
        (muon,) = (part for part in jax.tree.leaves(opt_state, is_leaf=is_muon) if is_muon(part))
        for kernel in jax.tree.leaves(muon.mu):
            assert kernel.addressable_shards[0].data.size * sizes[1] * sizes[2] == kernel.size, sizes
        found.append(jax.device_get(updates))
    one, *others = found
    for sizes, other in zip(MESHES[1:], others, strict=True):
        off = jax.tree.map(lambda a, b: float(np.abs(a - b).max() / np.abs(a).max()), one, other)
        print(json.dumps({"mesh": sizes, "updates": max(jax.tree.leaves(off))}))


if __name__ == "__main__":
    sys.exit(main())
