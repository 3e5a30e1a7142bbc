"""The torch reference: tiny random models of `transformers`, and conversions of weights and batches."""

import tempfile

import numpy as np
import torch
import transformers

from bert_jax.config import EncoderConfig
from bert_jax.interop.huggingface import load_model
from bert_jax.models import PRETRAINING_HEADS, Head, Params


def bert(config: EncoderConfig, seed: int = 0) -> transformers.BertForPreTraining:
    """A reference model in evaluation mode, its weights well away from zero so that every one matters."""
    hidden_act = {"gelu": "gelu", "gelu_tanh": "gelu_new"}[config.activation]
    theirs = transformers.BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_size,
        max_position_embeddings=config.max_positions,
        type_vocab_size=config.num_token_types,
        hidden_act=hidden_act,
        layer_norm_eps=config.layer_norm_epsilon,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.attention_dropout,
        initializer_range=config.initializer_range,
    )
    return randomized(transformers.BertForPreTraining, theirs, seed)


def randomized(
    kind: type, config: transformers.PreTrainedConfig, seed: int = 0, deviation: float = 0.05
) -> transformers.PreTrainedModel:
    """A model of class `kind` in evaluation mode, its weights well away from zero so that every one matters."""
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += deviation * torch.randn_like(parameter)
    return model


def params_of(
    model: transformers.PreTrainedModel, config: EncoderConfig, heads: tuple[Head, ...] = PRETRAINING_HEADS
) -> Params:
    """The reference's weights in our tree, by way of a directory; `config` must be the one that is read there."""
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        loaded = load_model(directory, heads)
    assert loaded.config == config
    return loaded.params


def random_batch(
    config: EncoderConfig, batch: int, length: int, predictions: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Rows of different lengths, padded, with random labels; the last prediction of each row has weight 0."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(length // 2, length + 1, batch)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    positions = np.sort(rng.random((batch, length)).argsort(1)[:, :predictions] % lengths[:, None], axis=1)
    weights = np.ones((batch, predictions), np.float32)
    weights[:, -1] = 0
    return {
        "input_ids": (rng.integers(1, config.vocab_size, (batch, length)) * mask).astype(np.int32),
        "token_type_ids": (rng.integers(0, config.num_token_types, (batch, length)) * mask).astype(np.int32),
        "attention_mask": mask,
        "masked_positions": positions.astype(np.int32),
        "masked_labels": rng.integers(0, config.vocab_size, (batch, predictions)).astype(np.int32),
        "masked_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, batch).astype(np.int32),
    }


def reference_outputs(
    model: transformers.BertForPreTraining, batch: dict[str, np.ndarray]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(MLM logits at the masked positions `[batch, predictions, vocab]`, NSP logits `[batch, 2]`)."""
    inputs = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "token_type_ids", "attention_mask")}
    out = model(**inputs)
    rows = torch.arange(len(batch["input_ids"]))[:, None]
    return out.prediction_logits[rows, torch.tensor(batch["masked_positions"]).long()], out.seq_relationship_logits


def reference_loss(model: transformers.BertForPreTraining, batch: dict[str, np.ndarray]) -> torch.Tensor:
    """Weighted mean over the predictions plus the NSP mean."""
    mlm, nsp = reference_outputs(model, batch)
    labels = torch.tensor(batch["masked_labels"]).long().flatten()
    each = torch.nn.functional.cross_entropy(mlm.flatten(0, 1), labels, reduction="none")
    weights = torch.tensor(batch["masked_weights"]).flatten()
    nsp_loss = torch.nn.functional.cross_entropy(nsp, torch.tensor(batch["next_sentence_labels"]).long())
    return (each * weights).sum() / weights.sum() + nsp_loss
