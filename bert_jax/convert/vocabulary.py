"""Change of a model's vocabulary: the embedding of each new token comes from rows of the old tables."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.console import Console
from bert_jax.convert.export import left_out_heads, usage_files, with_exported_heads
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import export_model
from bert_jax.interop.tensors import flatten_params, iterate_stored_tensors, parameter_shapes, unflatten_params
from bert_jax.models import padded_vocab
from bert_jax.tokenizer import Tokenizer, load_tokenizer
from bert_jax.tokenizer.wordpiece import PREFIX

POSITIONS = "encoder/embeddings/position"


class TokenSources(NamedTuple):
    """The old tokens from whose rows the row of each new token is made.

    The row of a new token is the mean of the rows of its old tokens, or, without old tokens, the mean of all rows. The
    old token `old_ids[i]` is a piece of the new token `new_ids[i]`; both arrays are int64 `[any]`.
    """

    old_ids: np.ndarray
    new_ids: np.ndarray
    num_shared: int  # number of new tokens that are tokens of the old vocabulary
    num_unknown: int  # number of new tokens that the old vocabulary cannot spell


def change_vocabulary(model: pathlib.Path, tokenizer: pathlib.Path, output: pathlib.Path, console: Console) -> None:
    """Write the model with the vocabulary of `tokenizer` to the directory `output`, for further pretraining.

    Args:
        model: a directory as in `export_directory`; only the heads of one class of transformers are written.
        tokenizer: a directory or vocabulary file of any kind.
        output: a directory that does not exist or is empty.
        console: console that prints the number of tokens that keep their embeddings.

    Raises:
        UserError: `model` holds no model, `tokenizer` holds no tokenizer, or the family does not support the
        vocabulary.
    """
    new = load_tokenizer(tokenizer)  # loaded first, since reading the weights may take long
    weights = read_weights(model, console=console)
    old = load_tokenizer(weights.directory)
    if old.sha256 == new.sha256:
        raise UserError(f"{tokenizer}: the model has this vocabulary already")
    sources = old_tokens_of_new_tokens(old, new)
    changed = with_rows_for_new_tokens(with_exported_heads(weights, is_class=True), sources, new)
    export_model(
        changed.params,
        changed.config,
        changed.heads,
        tokenizer,
        output,
        changed.labels,
        usage_files(changed),
        activation=changed.activation,
        problem=changed.problem,
    )
    if left_out := left_out_heads(weights, changed):
        console.say(f"left out: the head {', '.join(left_out)}")
    num_spelled = new.vocab_size - sources.num_shared - sources.num_unknown
    console.say(
        f"{new.vocab_size:,} tokens: {sources.num_shared:,} as in the old vocabulary, {num_spelled:,} from the mean of "
        f"their old pieces, {sources.num_unknown:,} from the mean of all old tokens -> {output}"
    )


def old_tokens_of_new_tokens(old: Tokenizer, new: Tokenizer) -> TokenSources:
    """Return the old tokens of each new token.

    Special tokens match by their role. Other tokens match if their text is equal and both begin or both continue a
    word, so `##ing` matches a SentencePiece `ing`. The old tokenizer splits the text of every new token without a match
    into old tokens.
    """
    same_token = {token: i for i, token in enumerate(old.tokens)} if old.kind.name == new.kind.name else {}
    same_text = {key: i for i, key in reversed([*enumerate(_text_keys(old))]) if key[0]}
    same_role = dict(zip(new.special, (old.tokens.index(token) for token in old.special), strict=True))
    keys = _text_keys(new)
    spelled = [
        ids or [old.unk_id] for ids in old.encode_sentences(old.words_as_inside_sentence([text for text, _ in keys]))
    ]
    pieces_of_new, num_shared = list[list[int]](), 0
    for token, key, pieces in zip(new.tokens, keys, spelled, strict=True):
        old_id = same_role.get(token, same_token.get(token, same_text.get(key)))
        if old_id is not None:
            pieces, num_shared = [old_id], num_shared + 1
        elif key[1]:  # the new token continues a word, so its first piece continues a word, too
            pieces = [same_text.get(_TextKey(_plain_text(old, pieces[0]), True), pieces[0]), *pieces[1:]]
        pieces_of_new.append([piece for piece in pieces if old_id is not None or piece != old.unk_id])
    counts = [len(pieces) for pieces in pieces_of_new]
    old_ids = np.array([piece for pieces in pieces_of_new for piece in pieces], np.int64)
    return TokenSources(old_ids, np.repeat(np.arange(len(counts)), counts), num_shared, counts.count(0))


def with_rows_for_new_tokens(weights: Weights, sources: TokenSources, new: Tokenizer) -> Weights:
    """Return the model with a row for each new token in arrays over the vocabulary; old rows give the new rows.

    The ids of special tokens in the config change with the vocabulary; the first position changes, too, if it
    is derived from the id of the padding token.
    """
    family, old_size, vocab_size = FAMILIES[weights.config.family], weights.config.vocab_size, new.vocab_size
    modules = [*family.encoder, *(module for model_class in family.classes for module in model_class.modules)]
    counts = np.bincount(sources.new_ids, minlength=vocab_size)

    def rows_for_new_tokens(x: np.ndarray) -> np.ndarray:
        rows = np.zeros((vocab_size, *x.shape[1:]))
        np.add.at(rows, sources.new_ids, x[sources.old_ids])
        rows /= np.maximum(counts, 1).reshape(-1, *(1,) * (x.ndim - 1))
        rows[counts == 0] = x[:old_size].mean(axis=0)
        padded = np.zeros((padded_vocab(vocab_size), *x.shape[1:]), np.float32)
        padded[:vocab_size] = rows
        return padded

    shapes = parameter_shapes(weights.config, weights.heads)
    over_vocabulary = {stored.path for stored in iterate_stored_tensors(modules, shapes) if stored.has_vocabulary}
    flat = {path: np.asarray(x) for path, x in flatten_params(weights.params).items() if path in shapes}
    flat = {path: rows_for_new_tokens(x) if path in over_vocabulary else x for path, x in flat.items()}
    ids: dict[str, Any] = {name: new.special_ids[role] for name, role in family.token_ids.items()}
    config = dataclasses.replace(weights.config, vocab_size=vocab_size, **ids)
    if family.follow_padding:
        offset, table = new.pad_id + 1, flat[POSITIONS]
        unused = np.resize(table[: config.position_offset], (offset, table.shape[1]))
        flat[POSITIONS] = np.concatenate([unused, table[config.position_offset :]])
        config = dataclasses.replace(config, position_offset=offset)
    return dataclasses.replace(weights, config=config, params=unflatten_params(flat))


class _TextKey(NamedTuple):
    """The text of a token, and whether the token continues a word."""

    text: str
    continues: bool


def _text_keys(tokenizer: Tokenizer) -> list[_TextKey]:
    """Return a key for each token: its text, and whether it continues a word; tokens with equal keys match."""
    return [
        _TextKey("" if token in tokenizer.special else _plain_text(tokenizer, i), bool(tokenizer.continues[i]))
        for i, token in enumerate(tokenizer.tokens)
    ]


def _plain_text(tokenizer: Tokenizer, token_id: int) -> str:
    """Return the text of a token without marks such as `##`; '' if the token is a part of a character."""
    text = tokenizer.decode([token_id]).removeprefix(PREFIX).strip()
    return "" if "\ufffd" in text else text
