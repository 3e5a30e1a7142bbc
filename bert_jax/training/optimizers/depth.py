"""Learning rates per layer, and a frozen encoder."""

import jax
import jax.numpy as jnp
import optax

from bert_jax.training.optimizers.parameters import Tree


def scale_by_depth(encoder: float, decay: float, sections: Tree) -> optax.GradientTransformation:
    """Multiply the updates of the encoder by `encoder`, and by `decay` for each step down from the heads.

    As in google-research/electra's optimization.py, where the heads are two steps above the last layer: of L layers the
    last has decay^2, the first decay^(L + 1), the embeddings decay^(L + 2). A norm after the last layer has decay.
    """

    def update(updates: Tree, params: Tree = None) -> Tree:
        del params
        sizes = jax.tree.map(lambda section, x: len(x) if section == "layers" else 0, sections, updates)
        layers = max(jax.tree.leaves(sizes))

        def scale(section: str, x: jax.Array) -> jax.Array:
            if section == "heads":
                return x
            if section == "top":
                return x * (encoder * decay)
            if section == "embeddings":
                return x * (encoder * decay ** (layers + 2))
            depth = layers + 1 - jnp.arange(len(x), dtype=jnp.float32)
            return x * (encoder * decay**depth).reshape(-1, *(1,) * (x.ndim - 1))

        return jax.tree.map(scale, sections, updates)

    return optax.stateless(update)
