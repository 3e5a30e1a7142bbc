"""The encoder written out in numpy, float64, one sequence at a time: every field of the block as its paper says it."""

import math
from typing import Any

import numpy as np
from scipy.special import erf

from bert_jax.config import EncoderConfig

Array = np.ndarray

ACTIVATIONS = {
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
}


def norm(config: EncoderConfig, x: Array, params: dict[str, Array]) -> Array:
    if config.norm == "layer_norm":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.layer_norm_epsilon)
    return x * params.get("scale", 1) + params.get("bias", 0)


def linear(x: Array, params: dict[str, Array]) -> Array:
    return x @ params["kernel"] + params.get("bias", 0)


def rotated(x: Array, base: float) -> Array:
    """`[length, head_dim]`, each pair as a complex number."""
    half = x.shape[1] // 2
    angles = np.arange(len(x))[:, None] / base ** (np.arange(half) / half)
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], 1)


def attention(
    config: EncoderConfig, x: Array, layer: int, params: dict[str, Any], bias: Array | None, values: Array | None = None
) -> Array:
    length, size = len(x), x.shape[1] // config.num_heads
    local = config.local_window is not None and layer % config.global_every != 0
    base = (config.local_rotary_base if local else None) or config.rotary_base
    contexts = []
    for head in range(config.num_heads):
        columns = slice(head * size, (head + 1) * size)
        inputs = {"query": x, "key": x, "value": x if values is None else values}
        q, k, v = (linear(one, params[name])[:, columns] for name, one in inputs.items())
        if config.query_key_norm:
            q, k = (
                one / np.sqrt((one**2).mean(1, keepdims=True) + config.layer_norm_epsilon) * params[name]["scale"]
                for one, name in ((q, "query_norm"), (k, "key_norm"))
            )
        if config.positions == "rotary":
            q, k = rotated(q, base), rotated(k, base)
        context = np.zeros_like(v)
        for i in range(length):
            read = [j for j in range(length) if not local or abs(i - j) <= config.local_window // 2]
            scores = np.array([q[i] @ k[j] / math.sqrt(size) + (0 if bias is None else bias[head, i, j]) for j in read])
            weights = np.exp(scores - scores.max())
            context[i] = weights / weights.sum() @ v[read]
        contexts.append(context)
    return linear(np.concatenate(contexts, 1), params["output"])


def mlp(config: EncoderConfig, x: Array, params: dict[str, Any]) -> Array:
    activation = ACTIVATIONS[config.activation]
    if config.mlp == "gated":
        inner = activation(linear(x, params["mlp_gate"])) * linear(x, params["mlp_up"])
    else:
        inner = activation(linear(x, params["mlp_up"]))
    return linear(inner, params["mlp_down"])


def bottleneck(config: EncoderConfig, x: Array, layer: int, block: dict[str, Any], bias: Array | None) -> Array:
    narrow, compared = (
        norm(config, linear(x, block[name]), block[f"{name}_norm"]) for name in ("input", "attention_input")
    )
    narrow = narrow + attention(config, compared, layer, block["attention"], bias, values=x)
    narrow = norm(config, narrow, block["attention_norm"])
    for one in [block[f"mlp_{i}"] for i in range(config.bottleneck_mlps - 1)] + [block]:
        narrow = norm(config, narrow + mlp(config, narrow, one), one["mlp_norm"])
    return norm(config, x + linear(narrow, block["output"]), block["output_norm"])


def hidden_states(config: EncoderConfig, params: dict[str, Any], ids: Array, bias: Array | None = None) -> Array:
    """`[layers + 1, length, hidden]` of the unpadded sequence `ids`, without token types; params float64."""
    tables = params["embeddings"]
    x = tables["token"][ids]
    if config.trigram_embeddings:
        zeros = 0 * x[:1]
        x = np.concatenate([np.concatenate([x[1:], zeros]), x, np.concatenate([zeros, x[:-1]])], 1)
        x = linear(x, tables["projection"])
    if config.positions == "learned":
        x = x + tables["position"][: len(ids)]
    if config.embedding_norm:
        x = norm(config, x, tables.get("norm", {}))
    states = [x]
    for layer in range(config.num_layers):
        block = {name: _slice(part, layer) for name, part in params["layers"].items()}
        if config.bottleneck_size:
            x = bottleneck(config, x, layer, block, bias)
        elif config.norm_position == "pre":
            skip = layer == 0 and not config.first_attention_norm
            read = x if skip else norm(config, x, block.get("attention_norm", {}))
            x = x + attention(config, read, layer, block["attention"], bias)
            x = x + mlp(config, norm(config, x, block.get("mlp_norm", {})), block)
        else:
            x = norm(config, x + attention(config, x, layer, block["attention"], bias), block.get("attention_norm", {}))
            x = norm(config, x + mlp(config, x, block), block.get("mlp_norm", {}))
        states.append(x)
    if config.final_norm:
        states[-1] = norm(config, x, params.get("final_norm", {}))
    return np.stack(states)


def _slice(tree: Any, layer: int) -> Any:
    return {k: _slice(v, layer) for k, v in tree.items()} if isinstance(tree, dict) else tree[layer]
