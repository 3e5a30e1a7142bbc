"""Torch code that an export adds to models of transformers: encoders for long texts, and pooling to sentence vectors.

The encoders for long texts replace encoders of transformers that torch cannot export. Every layer computes the
attention scores of all pairs of tokens, then masks the pairs outside the model's attention pattern. So one program
serves sequences of every length. Results equal the results of transformers, but memory grows with the square of the
length.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.config import EncoderConfig
from bert_jax.interop.sentence_modules import SentenceModules

Inputs = dict[str, Any]  # name -> int64 tensor `[batch, length]`, or `[batch, choices, length]`


def replace_longformer_encoder(model: Any, config: EncoderConfig) -> Callable[[Inputs], Inputs]:
    """Replace the encoder of a Longformer; return a function that adds `global_attention_mask` to the model's inputs.

    The class of the model decides which tokens are global.
    """
    import torch
    from transformers.models.longformer.modeling_longformer import LongformerBaseModelOutputWithPooling as Output

    base, global_mask_fn = getattr(model, "longformer", model), _global_mask_fn(type(model).__name__)
    assert config.local_window  # every Longformer has a window
    windows = config.local_windows or (config.local_window,) * config.num_layers

    def forward(
        input_ids: Any, attention_mask: Any, global_attention_mask: Any = None, token_type_ids: Any = None, **_: Any
    ) -> Any:
        x = base.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        column = torch.arange(input_ids.shape[1])
        distance = (column[:, None] - column).abs()
        real = (attention_mask != 0)[:, None, None, :]
        is_global = None if global_attention_mask is None else (global_attention_mask * attention_mask) != 0
        for layer, window in zip(base.encoder.layer, windows, strict=True):
            near = distance <= window // 2
            attention = layer.attention.self
            readable = near if is_global is None else near | is_global[:, None, None, :]
            qkv = (attention.query, attention.key, attention.value)
            context = _dense_attention(x, qkv, attention.num_heads, _mask_to_score_bias(readable & real))
            if is_global is not None:
                qkv = (attention.query_global, attention.key_global, attention.value_global)
                global_context = _dense_attention(x, qkv, attention.num_heads, _mask_to_score_bias(real))
                context = torch.where(is_global[..., None], global_context, context)
            x = layer.ff_chunk(layer.attention.output(context, x))
        return Output(last_hidden_state=x, pooler_output=base.pooler(x) if base.pooler else None)

    def add_global_attention_mask(inputs: Inputs) -> Inputs:
        if global_mask_fn is None:
            return inputs
        return inputs | {"global_attention_mask": global_mask_fn(inputs["input_ids"], config)}

    base.forward = forward
    return add_global_attention_mask


def replace_big_bird_encoder(model: Any, config: EncoderConfig) -> Callable[[Inputs], Inputs]:
    """Replace the encoder of a BigBird; the returned function leaves the model's inputs as they are.

    `block_sparse_metadata` in models/attention/patterns.py describes the attention pattern.
    """
    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions as Output

    base = getattr(model, "bert", model)

    def pattern_bias(attention_mask: Any) -> Any:
        """Return the term to add to the attention score of each pair of tokens, `[sequences, 1, length, length]`."""
        if config.block_size is None:
            return torch.zeros(1, 1)
        column = torch.arange(attention_mask.shape[1])
        block = column // config.block_size
        num_tokens = ((attention_mask != 0) * (column + 1)).amax(1)[:, None, None, None]
        last = (num_tokens - 1) // config.block_size
        end = (block == 0) | (block == last)
        end_query = (block[:, None] == 0) | (block[:, None] == last)
        reads_all = num_tokens <= config.max_dense_length
        near = (block[:, None] - block).abs() <= 1
        counts_again = (block == 0) & ~end_query & ~reads_all
        bias = _mask_to_score_bias(near | end_query | end | reads_all)
        return bias + math.log(1 + config.random_blocks) * counts_again

    def forward(input_ids: Any, attention_mask: Any, token_type_ids: Any = None, **_: Any) -> Any:
        x = base.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        bias = _mask_to_score_bias((attention_mask != 0)[:, None, None, :]) + pattern_bias(attention_mask)
        for layer in base.encoder.layer:
            attention = layer.attention.self
            context = _dense_attention(x, (attention.query, attention.key, attention.value), config.num_heads, bias)
            x = layer.feed_forward_chunk(layer.attention.output(context, x))
        pooled = base.activation(base.pooler(x[:, 0])) if base.pooler else None
        return Output(last_hidden_state=x, pooler_output=pooled)

    base.forward = forward
    return lambda inputs: inputs


PROGRAMS: Mapping[str, Callable[[Any, EncoderConfig], Callable[[Inputs], Inputs]]] = {
    "longformer": replace_longformer_encoder,
    "big_bird": replace_big_bird_encoder,
}


def dense_vectors(hidden: Any, attention_mask: Any, modules: SentenceModules) -> Any:
    """Return the dense vectors of texts, `[batch, hidden]`, as in sentence-transformers.

    Args:
        hidden: last hidden states, float32 `[batch, length, hidden]`.
        attention_mask: int64 `[batch, length]`.
        modules: pooling and normalization.
    """
    import torch

    is_real = attention_mask[..., None] != 0
    poolings: dict[str, Callable[[], Any]] = {
        "mean": lambda: (hidden * is_real).sum(1) / is_real.sum(1),
        "cls": lambda: hidden[:, 0],
        "max": lambda: torch.where(is_real, hidden, -torch.inf).amax(1),
    }
    vectors = poolings[modules.pooling]()
    return torch.nn.functional.normalize(vectors, dim=-1) if modules.normalize else vectors


def sparse_vectors(logits: Any, attention_mask: Any, modules: SentenceModules) -> Any:
    """Return the sparse vectors of texts (SPLADE), `[batch, vocab]`: log(1 + relu(largest masked-token logit)).

    Args:
        logits: logits of the masked-token head, float32 `[batch, length, vocab]`.
        attention_mask: int64 `[batch, length]`.
        modules: not read.
    """
    import torch

    del modules
    largest = (logits * attention_mask[..., None]).amax(1)  # a 0 in place of padding changes no vector
    return torch.log1p(torch.relu(largest))


def late_interaction_vectors(projected: Any, attention_mask: Any, modules: SentenceModules) -> Any:
    """Return the vectors of all tokens (ColBERT), `[batch, length, width]`, scaled to length 1.

    Args:
        projected: projections of the last hidden states, float32 `[batch, length, width]`.
        attention_mask: not read.
        modules: not read.
    """
    import torch

    del attention_mask, modules
    return torch.nn.functional.normalize(projected, dim=-1)


# Row of VECTOR_HEADS -> (first output of the model, perhaps projected; attention mask; modules) -> vectors of texts.
TEXT_VECTORS: Mapping[str, Callable[[Any, Any, SentenceModules], Any]] = {
    "dense": dense_vectors,
    "sparse": sparse_vectors,
    "late_interaction": late_interaction_vectors,
}


def _mask_to_score_bias(readable: Any) -> Any:
    """Return the terms to add to scores: 0 for readable keys, else -1e9."""
    return (~readable) * -1e9


def _dense_attention(x: Any, qkv: tuple[Any, Any, Any], heads: int, score_bias: Any) -> Any:
    """Return the output of dense attention, `[batch, length, hidden]`; `qkv` holds the three projections."""
    import torch

    q, k, v = (linear(x).unflatten(-1, (heads, -1)).transpose(1, 2) for linear in qkv)
    weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + score_bias, dim=-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def _global_mask_fn(class_name: str) -> Callable[[Any, EncoderConfig], Any] | None:
    """Return the function that marks the global tokens of a model class; None if the class has no global tokens.

    The function maps (input_ids, config) to an int64 mask with the shape of input_ids: 1 for global tokens, else 0.
    """
    import torch

    def separators(ids: Any, config: EncoderConfig) -> Any:
        return (ids == config.separator_id).long().cumsum(-1)

    def second_text(ids: Any, config: EncoderConfig) -> Any:
        return torch.nn.functional.pad((separators(ids, config) > 0).long(), (2, 0))[..., : ids.shape[-1]]

    rules: dict[str, Callable[[Any, EncoderConfig], Any]] = {
        "ForSequenceClassification": lambda ids, config: (torch.arange(ids.shape[-1]) == 0).long().expand(ids.shape),
        "ForQuestionAnswering": lambda ids, config: (separators(ids, config) == 0).long(),
        "ForMultipleChoice": second_text,
    }
    return next((rule for ending, rule in rules.items() if class_name.endswith(ending)), None)
