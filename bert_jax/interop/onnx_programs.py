"""Programs of torch for models of long texts, whose own in transformers depend on their input: torch exports these.

Every layer computes the scores of all pairs and masks those that the model does not read, so that one program serves
every length. Answers are those of transformers; memory grows with the square of the length.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.config import EncoderConfig

Inputs = dict[str, Any]  # int64 `[batch, length]`, or `[batch, choices, length]`


def longformer(model: Any, config: EncoderConfig) -> Callable[[Inputs], Inputs]:
    """Replace the encoder of a Longformer; return what adds the tokens that its class makes global to its inputs."""
    import torch
    from transformers.models.longformer.modeling_longformer import LongformerBaseModelOutputWithPooling as Output

    base, choose = getattr(model, "longformer", model), _global_tokens(type(model).__name__)
    assert config.local_window  # which every longformer has
    windows = config.local_windows or (config.local_window,) * config.num_layers

    def forward(
        input_ids: Any, attention_mask: Any, global_attention_mask: Any = None, token_type_ids: Any = None, **_: Any
    ) -> Any:
        x = base.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        column = torch.arange(input_ids.shape[1])
        away = (column[:, None] - column).abs()
        real = (attention_mask != 0)[:, None, None, :]
        chosen = None if global_attention_mask is None else (global_attention_mask * attention_mask) != 0
        for layer, window in zip(base.encoder.layer, windows, strict=True):
            near = away <= window // 2
            own = layer.attention.self
            read = near if chosen is None else near | chosen[:, None, None, :]
            context = _context(x, (own.query, own.key, own.value), own.num_heads, _masked(read & real))
            if chosen is not None:
                maps = (own.query_global, own.key_global, own.value_global)
                context = torch.where(chosen[..., None], _context(x, maps, own.num_heads, _masked(real)), context)
            x = layer.ff_chunk(layer.attention.output(context, x))
        return Output(last_hidden_state=x, pooler_output=base.pooler(x) if base.pooler else None)

    def with_global_tokens(inputs: Inputs) -> Inputs:
        return inputs if choose is None else inputs | {"global_attention_mask": choose(inputs["input_ids"], config)}

    base.forward = forward
    return with_global_tokens


def big_bird(model: Any, config: EncoderConfig) -> Callable[[Inputs], Inputs]:
    """Replace the encoder of a BigBird, whose inputs stay as they are; see models/attention/patterns.py."""
    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions as Output

    base = getattr(model, "bert", model)

    def added(length: int) -> Any:
        """What is added to the scores of each pair of columns."""
        if config.block_size is None:
            return torch.zeros(1, 1)
        block = torch.arange(length) // config.block_size
        end = (block == 0) | (block == block[-1])
        whole = block[-1] < 5 + 2 * config.random_blocks
        near = (block[:, None] - block).abs() <= 1
        again = (block == 0) & ~end[:, None] & ~whole
        return _masked(near | end[:, None] | end | whole) + math.log(1 + config.random_blocks) * again

    def forward(input_ids: Any, attention_mask: Any, token_type_ids: Any = None, **_: Any) -> Any:
        x = base.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        scores = _masked((attention_mask != 0)[:, None, None, :]) + added(input_ids.shape[1])
        for layer in base.encoder.layer:
            own = layer.attention.self
            context = _context(x, (own.query, own.key, own.value), config.num_heads, scores)
            x = layer.feed_forward_chunk(layer.attention.output(context, x))
        pooled = base.activation(base.pooler(x[:, 0])) if base.pooler else None
        return Output(last_hidden_state=x, pooler_output=pooled)

    base.forward = forward
    return lambda inputs: inputs


PROGRAMS: Mapping[str, Callable[[Any, EncoderConfig], Callable[[Inputs], Inputs]]] = {
    "longformer": longformer,
    "big_bird": big_bird,
}


def _masked(readable: Any) -> Any:
    """What is added to scores: 0 where a key is read."""
    return (~readable) * -1e9


def _context(x: Any, maps: tuple[Any, Any, Any], heads: int, added: Any) -> Any:
    """What all columns read of all: `[batch, length, hidden]`."""
    import torch

    q, k, v = (one(x).unflatten(-1, (heads, -1)).transpose(1, 2) for one in maps)
    weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + added, dim=-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def _global_tokens(name: str) -> Callable[[Any, EncoderConfig], Any] | None:
    """As models/heads.py, of a class: input_ids -> int64 of the same shape, 1 where a token is global."""
    import torch

    def separators(ids: Any, config: EncoderConfig) -> Any:
        return (ids == config.separator_id).long().cumsum(-1)

    def second_text(ids: Any, config: EncoderConfig) -> Any:
        return torch.nn.functional.pad((separators(ids, config) > 0).long(), (2, 0))[..., : ids.shape[-1]]

    chosen: dict[str, Callable[[Any, EncoderConfig], Any]] = {
        "ForSequenceClassification": lambda ids, config: (torch.arange(ids.shape[-1]) == 0).long().expand(ids.shape),
        "ForQuestionAnswering": lambda ids, config: (separators(ids, config) == 0).long(),
        "ForMultipleChoice": second_text,
    }
    return next((choose for end, choose in chosen.items() if name.endswith(end)), None)
