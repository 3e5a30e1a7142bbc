"""Optimizers against straightforward numpy versions of the published updates, and against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from bert_jax.config import OptimizerConfig
from bert_jax.objectives.vectors import LOG_TEMPERATURE
from bert_jax.training.optimizers import make_optimizer, weight_decay_mask

AXES = {
    "encoder": {
        "layers": {"kernel": ("layers", "embed", "mlp"), "bias": ("layers", "mlp")},
        "norm": {"scale": ("features",), "bias": ("features",)},
        "token": ("vocab", "features"),
    }
}
SECTIONS = {
    "encoder": {
        "layers": {"kernel": "layers", "bias": "layers"},
        "norm": {"scale": "embeddings", "bias": "embeddings"},
        "token": "embeddings",
    }
}
SHAPES = {
    "encoder": {
        "layers": {"kernel": (3, 4, 5), "bias": (3, 5)},
        "norm": {"scale": (4,), "bias": (4,)},
        "token": (7, 4),
    }
}


def random_tree(seed: int, scale: float = 1.0) -> dict:
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: (scale * rng.normal(size=shape)).astype(np.float32),
        SHAPES,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def follow(config: OptimizerConfig, steps: int = 5, rate: float = 0.01) -> tuple[list[dict], list[dict]]:
    """Gradients fed, and parameters after each step."""
    optimizer = make_optimizer(config, AXES, SECTIONS)(rate)
    params = jax.tree.map(jnp.asarray, random_tree(0))
    state = optimizer.init(params)
    gradients, trail = [random_tree(10 + step, scale=3.0) for step in range(steps)], []
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        trail.append(params)
    return gradients, trail


def flat(tree: dict) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def decays(name: str) -> bool:
    return "bias" not in name and "scale" not in name


def numpy_adam(config: OptimizerConfig, gradients: list[dict], rate: float = 0.01, trust: bool = False) -> list[dict]:
    """In float64, leaf by leaf, as the papers write it."""
    params = {k: v.astype(np.float64) for k, v in flat(random_tree(0)).items()}
    m = {k: np.zeros_like(v) for k, v in params.items()}
    v2 = {k: np.zeros_like(v) for k, v in params.items()}
    trail = []
    for t, tree in enumerate(gradients, start=1):
        g = {k: v.astype(np.float64) for k, v in flat(tree).items()}
        norm = np.sqrt(sum((x**2).sum() for x in g.values()))
        clip = min(1.0, config.clip_norm / norm) if config.clip_norm else 1.0
        for k in params:
            m[k] = config.beta1 * m[k] + (1 - config.beta1) * clip * g[k]
            v2[k] = config.beta2 * v2[k] + (1 - config.beta2) * (clip * g[k]) ** 2
            first, second = m[k], v2[k]
            if config.bias_correction:
                first, second = first / (1 - config.beta1**t), second / (1 - config.beta2**t)
            update = first / (np.sqrt(second) + config.epsilon)
            if decays(k):
                update = update + config.weight_decay * params[k]
            if trust and decays(k):
                blocks = range(update.shape[0]) if "layers" in k else [slice(None)]
                for block in blocks:
                    update[block] *= np.linalg.norm(params[k][block]) / np.linalg.norm(update[block])
            params[k] = params[k] - rate * update
        trail.append({k: v.copy() for k, v in params.items()})
    return trail


def assert_trails_equal(ours: list[dict], theirs: list[dict]) -> None:
    for left, right in zip(ours, theirs, strict=True):
        for name, value in flat(left).items():
            np.testing.assert_allclose(value, right[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_berts_adam_has_no_bias_correction() -> None:
    config = OptimizerConfig(bias_correction=False, weight_decay=0.1, beta2=0.9)
    gradients, ours = follow(config)
    assert_trails_equal(ours, numpy_adam(config, gradients))


def test_adamw_with_correction() -> None:
    config = OptimizerConfig(weight_decay=0.1, clip_norm=None, beta2=0.9)
    gradients, ours = follow(config)
    assert_trails_equal(ours, numpy_adam(config, gradients))


def test_lamb_has_one_trust_ratio_per_layer() -> None:
    config = OptimizerConfig(name="lamb", weight_decay=0.1, beta2=0.9)
    gradients, ours = follow(config)
    assert_trails_equal(ours, numpy_adam(config, gradients, trust=True))


def test_stable_adamw_clips_the_updates_of_each_layer() -> None:
    """Algorithm 2 of Wortsman et al. 2023 in float64, on gradients that suddenly grow."""
    config = OptimizerConfig(name="stable_adamw", weight_decay=0.1, beta2=0.9, clip_norm=None)
    optimizer = make_optimizer(config, AXES, SECTIONS)(0.01)
    params = jax.tree.map(jnp.asarray, random_tree(0))
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    theirs = {k: v.astype(np.float64) for k, v in flat(params).items()}
    m = {k: np.zeros_like(v) for k, v in theirs.items()}
    u = {k: np.zeros_like(v) for k, v in theirs.items()}
    largest = 0.0
    for t, scale in enumerate((1.0, 1.0, 10.0, 1.0), start=1):
        gradient = random_tree(10 + t, scale)
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        beta1, beta2 = (beta * (1 - beta ** (t - 1)) / (1 - beta**t) for beta in (config.beta1, config.beta2))
        for k, g in flat(gradient).items():
            m[k] = beta1 * m[k] + (1 - beta1) * g.astype(np.float64)
            u[k] = beta2 * u[k] + (1 - beta2) * g.astype(np.float64) ** 2
            for block in range(len(g)) if "layers" in k else [slice(None)]:
                rms = np.sqrt(np.mean(g[block].astype(np.float64) ** 2 / np.maximum(u[k][block], config.epsilon**2)))
                rate, decay = 0.01 / max(1.0, rms), 0.1 if decays(k) else 0.0
                step = m[k][block] / (np.sqrt(u[k][block]) + config.epsilon)
                theirs[k][block] = theirs[k][block] - rate * decay * theirs[k][block] - rate * step
                largest = max(largest, rms)
        for name, value in flat(params).items():
            np.testing.assert_allclose(value, theirs[name], rtol=2e-5, atol=2e-6, err_msg=name)
    assert largest > 1.5  # so that clipping is at work


def test_adamw_equals_torch() -> None:
    config = OptimizerConfig(weight_decay=0.1)
    gradients, ours = follow(config)
    params = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in flat(random_tree(0)).items()}
    groups = [
        {"params": [p for k, p in params.items() if decays(k)], "weight_decay": 0.1},
        {"params": [p for k, p in params.items() if not decays(k)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01, eps=config.epsilon)
    trail = []
    for gradient in gradients:
        for name, value in flat(gradient).items():
            params[name].grad = torch.tensor(value)
        torch.nn.utils.clip_grad_norm_(params.values(), config.clip_norm)
        optimizer.step()
        trail.append({name: p.detach().numpy().copy() for name, p in params.items()})
    assert_trails_equal(ours, trail)


def test_zero_gradients_move_only_parameters_with_weight_decay() -> None:
    optimizer = make_optimizer(OptimizerConfig(name="lamb"), AXES, SECTIONS)(1.0)
    params = jax.tree.map(jnp.asarray, random_tree(0))
    updates, _ = optimizer.update(jax.tree.map(jnp.zeros_like, params), optimizer.init(params), params)
    for name, update in flat(updates).items():
        assert np.isfinite(update).all()
        assert bool(np.any(update)) == decays(name)


def test_decay_mask_of_bert() -> None:
    from bert_jax.config import ComputeConfig
    from bert_jax.models import PRESETS, pretraining_model

    mask = flat(weight_decay_mask(pretraining_model(PRESETS["tiny"], ComputeConfig()).logical_axes))
    exempt = {name for name, decayed in mask.items() if not decayed}
    assert all(name.endswith(("['bias']", "['scale']")) for name in exempt)
    assert {name.split("'")[-2] for name in mask.keys() - exempt} == {"kernel", "token", "position", "token_type"}
    assert weight_decay_mask({LOG_TEMPERATURE: ("temperature",)}) == {LOG_TEMPERATURE: False}  # it would tend to 1


def test_layer_decay_is_electras_literal_rates() -> None:
    axes = {"encoder": AXES["encoder"], "head": {"kernel": ("embed", "classes")}}
    sections = {"encoder": SECTIONS["encoder"], "head": {"kernel": "heads"}}
    params = {"encoder": random_tree(0)["encoder"], "head": {"kernel": np.ones((4, 2), np.float32)}}
    gradients = {"encoder": random_tree(1)["encoder"], "head": {"kernel": np.full((4, 2), 0.5, np.float32)}}

    def updates(**settings) -> dict[str, np.ndarray]:
        optimizer = make_optimizer(OptimizerConfig(weight_decay=0.1, **settings), axes, sections)(1.0)
        return flat(optimizer.update(gradients, optimizer.init(params), params)[0])

    plain, decayed = updates(), updates(layer_decay=0.8)
    # google-research/electra, optimization.py, _get_layer_lrs: the head is two steps above the last of 3 layers, the
    # embeddings one below the first.
    for name, update in plain.items():
        expected = np.copy(update)
        if "'layers'" in name:
            for layer, factor in enumerate((0.8**4, 0.8**3, 0.8**2)):
                expected[layer] *= factor
        elif "'encoder'" in name:
            expected *= 0.8**5
        np.testing.assert_allclose(decayed[name], expected, rtol=1e-6, err_msg=name)


def test_a_frozen_encoder_gets_no_update_not_even_decay() -> None:
    axes = {"encoder": AXES["encoder"], "head": {"kernel": ("embed", "classes")}}
    sections = {"encoder": SECTIONS["encoder"], "head": {"kernel": "heads"}}
    params = {"encoder": random_tree(0)["encoder"], "head": {"kernel": np.ones((4, 2), np.float32)}}
    optimizer = make_optimizer(OptimizerConfig(weight_decay=0.1, freeze_encoder=True), axes, sections)(1.0)
    updates = flat(optimizer.update(params, optimizer.init(params), params)[0])
    assert {name for name, update in updates.items() if np.any(update)} == {"['head']['kernel']"}


def test_the_gradient_of_a_frozen_encoder_does_not_clip_the_heads() -> None:
    axes = {"encoder": AXES["encoder"], "head": {"kernel": ("embed", "classes")}}
    sections = {"encoder": SECTIONS["encoder"], "head": {"kernel": "heads"}}
    params = {"encoder": random_tree(0)["encoder"], "head": {"kernel": np.ones((4, 2), np.float32)}}
    found = []
    for scale in (0.0, 1e6):  # of the encoder's gradient; two steps, since the first of Adam is only a sign
        optimizer = make_optimizer(OptimizerConfig(clip_norm=1.0, freeze_encoder=True), axes, sections)(1.0)
        state = optimizer.init(params)
        for head in (1.0, 0.1):
            gradient = {
                "encoder": jax.tree.map(lambda x, s=scale: s * x, params["encoder"]),
                "head": {"kernel": np.full((4, 2), head, np.float32)},
            }
            updates, state = optimizer.update(gradient, state, params)
        found.append(np.asarray(updates["head"]["kernel"]))
    np.testing.assert_array_equal(*found)
    whole = make_optimizer(OptimizerConfig(clip_norm=1.0), axes, sections)(1.0).init(params)
    assert jax.tree.structure(state[0]) == jax.tree.structure(whole[0])  # checkpoints of earlier versions fit
