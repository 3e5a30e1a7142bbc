"""A model directory opened to be used: weights and tokenizer together, checked against each other."""

import pathlib
from typing import NamedTuple

from bert_jax.config import EncoderConfig
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.models import Head, Params
from bert_jax.training.workdir import model_in


class ModelDirectory(NamedTuple):
    """What a directory holds."""

    config: EncoderConfig
    heads: tuple[Head, ...]
    params: Params  # of make_model(config, ..., heads): float32 numpy arrays
    labels: tuple[str, ...]
    tokenizer: Tokenizer


def open_model(directory: pathlib.Path, wanted: tuple[Head, ...] | None = None) -> ModelDirectory:
    """The model of `directory` with its own heads, or with those `wanted`, and its tokenizer.

    A work directory of `finetune` is opened by its best model. Raises UserError where either cannot be read, where the
    model lacks a head, and where one is not the other's.
    """
    directory = model_in(directory)
    loaded, tokenizer = load_model(directory, wanted), load_tokenizer(directory)
    if tokenizer.vocab_size > loaded.config.vocab_size:
        raise UserError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} tokens, the model {loaded.config.vocab_size}: "
            "it is another model's; export again"
        )
    return ModelDirectory(loaded.config, loaded.heads, loaded.params, loaded.labels, tokenizer)
