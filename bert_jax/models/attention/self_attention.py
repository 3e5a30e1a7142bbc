"""The attention layer of the encoder."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import (
    AttentionInputs,
    AttentionMetadata,
    FusedQKV,
    RelativeKeysAndQueries,
    attention_inputs,
    with_fused_qkv,
)
from bert_jax.models.attention.kernels import KERNELS
from bert_jax.models.attention.xla import attention_probabilities, weighted_values
from bert_jax.models.init import init_scales
from bert_jax.models.layers import Biased, Linear, dtype_between_products, rows_by_one_hot_product, save_for_backward
from bert_jax.models.norms import Norm, rms_norm
from bert_jax.models.positions import POSITIONS, Distances
from bert_jax.parallel.platform import traced_platform
from bert_jax.parallel.sharding import constrain

WEIGHTS = "intermediates"  # the collection that gets the attention weights of a layer, if the caller asks for weights
PROBES = "probes"  # terms added to the attention weights; the gradient of a term is the gradient of its weight
PROJECTIONS = ("query", "key", "value")
GLOBAL_PROJECTIONS = tuple(f"{name}_global" for name in PROJECTIONS)  # unused in models without global tokens


class SelfAttention(nn.Module):
    """The self-attention layer; input and output are `[batch, length, width]`, and the output lacks its bias.

    The seed of the dropout of the probabilities is uint32 `[2]`, or None for no dropout. The values are computed from
    `value_input`, `[batch, length, any]`, or from `x` if `value_input` is None. The caller adds the bias of the output.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    kernel: str  # value of `config.compute.attention`

    @nn.compact
    def __call__(
        self, x: jax.Array, metadata: AttentionMetadata, seed: jax.Array | None, value_input: jax.Array | None = None
    ) -> Biased:
        config = self.config
        rate = 0.0 if seed is None else config.attention_dropout
        inputs = self._kernel_inputs(x, x if value_input is None else value_input, metadata, seed, rate)
        if self._is_asked_for_weights():
            weights = attention_probabilities(inputs)
            self.sow(WEIGHTS, "weights", weights)
            context = weighted_values(weights + self.get_variable(PROBES, "weights", 0.0), inputs)
        else:
            context = save_for_backward(KERNELS[self.kernel].attend(inputs, rate))
        sizes = (config.attention_width, x.shape[-1])
        return self._linear("output", sizes, ("heads", "embed"), init_scales(config).output).product_and_bias(context)

    def _is_asked_for_weights(self) -> bool:
        """Return whether the caller asks for the attention weights."""
        return self.is_mutable_collection(WEIGHTS) and not self.is_initializing()

    def _kernel_inputs(
        self, x: jax.Array, value_input: jax.Array, metadata: AttentionMetadata, seed: jax.Array | None, rate: float
    ) -> AttentionInputs:
        """Return the inputs of the kernel, with queries, keys and values in the form that the kernel prefers."""
        config, seed = self.config, seed if rate else None
        query, key, _ = projections = self._projections(PROJECTIONS, x.shape[-1], value_input.shape[-1])
        has_adapter = any(linear.has_adapter() for linear in projections)
        if value_input is x and not has_adapter and self._may_fuse_qkv(metadata):
            q_shaped = jnp.zeros((*x.shape[:2], config.attention_width), self.dtype)
            inputs = attention_inputs(q_shaped, q_shaped, q_shaped, metadata, config.num_heads, seed)
            if KERNELS[self.kernel].prefers_fused_qkv(inputs, rate):
                return with_fused_qkv(inputs, self._fused_qkv(x, projections))
        q, k, v = self._normalized_qkv(projections, PROJECTIONS, x, value_input, metadata)
        tokens = metadata.global_tokens
        if tokens is not None:
            if config.separator_id is None:
                global_qkv = q, k, v
            else:
                global_projections = self._projections(GLOBAL_PROJECTIONS, x.shape[-1], value_input.shape[-1])
                global_qkv = self._normalized_qkv(global_projections, GLOBAL_PROJECTIONS, x, value_input, metadata)
            tokens = dataclasses.replace(tokens, **dict(zip("qkv", global_qkv, strict=True)))
        distances = _relative_keys_and_queries(query, key, metadata.distances) if metadata.distances else None
        return attention_inputs(q, k, v, metadata, config.num_heads, seed, distances, tokens)

    def _linear(self, name: str, sizes: tuple[int, int], axes: tuple[str, str], stddev: float) -> Linear:
        return Linear(sizes, axes, stddev, self.dtype, self.config.attention_bias, name=name)

    def _projections(self, names: tuple[str, ...], width: int, value_width: int) -> list[Linear]:
        """Return the linear maps to queries, keys and values; the input of the values has `value_width` features."""
        attention_width, stddev = self.config.attention_width, init_scales(self.config).inner
        return [
            self._linear(name, (input_width, attention_width), ("embed", "heads"), stddev)
            for name, input_width in zip(names, (width, width, value_width), strict=True)
        ]

    def _normalized_qkv(
        self,
        projections: list[Linear],
        names: tuple[str, ...],
        x: jax.Array,
        value_input: jax.Array,
        metadata: AttentionMetadata,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return q, k and v, each `[batch, length, heads * head_dim]`, after the norm and the rotation of q and k."""
        query, key, value = projections
        q, k = (
            self._normalize_and_rotate(constrain(linear(x), "batch", "length", "heads"), name, metadata)
            for linear, name in zip((query, key), names[:2], strict=True)
        )
        return q, k, save_for_backward(constrain(value(value_input), "batch", "length", "heads"))

    def _may_fuse_qkv(self, metadata: AttentionMetadata) -> bool:
        """Return whether a GPU kernel may add the biases; True if no step after the projection changes q and k."""
        config, rotate = self.config, POSITIONS[self.config.positions].rotate
        changes = (rotate, config.query_key_norm, metadata.distances, metadata.global_tokens)
        return (
            traced_platform() == "gpu"
            and config.attention_bias
            and not any(changes)
            and not self._is_asked_for_weights()
        )

    def _fused_qkv(self, x: jax.Array, projections: list[Linear]) -> FusedQKV:
        """Compute queries, keys and values by one product; a kernel reads parts of the product without a copy."""
        kernels, biases = zip(*(linear.kernel_and_bias() for linear in projections), strict=True)
        kernel = save_for_backward(jnp.stack(kernels, axis=1))
        products = jnp.einsum("blw,wmh->blmh", x.astype(self.dtype), kernel)
        products = save_for_backward(constrain(products, "batch", "length", "maps", "heads"))
        return FusedQKV(products, jnp.stack(biases))

    def _normalize_and_rotate(self, x: jax.Array, name: str, metadata: AttentionMetadata) -> jax.Array:
        """Apply the norm and the rotation of the architecture, if it has them, to queries or keys."""
        config, rotate = self.config, POSITIONS[self.config.positions].rotate
        if config.query_key_norm:
            heads = x.reshape(*x.shape[:2], config.num_heads, -1)
            dtype = dtype_between_products(self.dtype)
            norm = Norm(rms_norm, config.layer_norm_epsilon, dtype, bias=False, name=f"{name}_norm")
            x = norm(heads).reshape(x.shape)
        # The array is saved after these steps, because the gradient of a rotation needs only the angles, and a norm
        # saves its result.
        return save_for_backward(rotate(config, x, metadata.angles) if rotate else x)


def _relative_keys_and_queries(query: Linear, key: Linear, distances: Distances) -> RelativeKeysAndQueries:
    """Project the embeddings of distances with the layer's maps of queries and keys; many distances share a row."""

    def project(linear: Linear, rows: jax.Array) -> jax.Array:
        projected = rows_by_one_hot_product(rows[None], linear(distances.table[None])[0])[0]
        return projected.astype(dtype_between_products(linear.dtype))

    return RelativeKeysAndQueries(project(key, distances.of_keys), project(query, distances.of_queries))
