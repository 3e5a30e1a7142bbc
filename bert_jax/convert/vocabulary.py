"""A model with another vocabulary: the rows of its tables are carried over, token by token."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.console import Console
from bert_jax.convert.export import usage_files, with_heads
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import export_model
from bert_jax.interop.tensors import flatten, shapes_of, stored_tensors, unflatten
from bert_jax.models import padded_vocab
from bert_jax.tokenizer import Tokenizer, load_tokenizer
from bert_jax.tokenizer.bert_words import PREFIX

POSITIONS = "encoder/embeddings/position"


class Sources(NamedTuple):
    """The old tokens that each new one takes its row from: their mean, or where there are none that of all.

    `pieces` is int64 `[any]`, ids of old tokens; `owners` int64 `[any]`, for each the id of the new token.
    """

    pieces: np.ndarray
    owners: np.ndarray
    shared: int  # new tokens that are tokens of the old vocabulary
    unknown: int  # new tokens that the old vocabulary cannot spell


def change_vocabulary(place: pathlib.Path, tokenizer: pathlib.Path, output: pathlib.Path, console: Console) -> None:
    """Write the model of `place` with the vocabulary of `tokenizer` to the directory `output`, for further pretraining.

    Args:
        place: as in `export`; the heads of one class of transformers are written.
        tokenizer: a directory or vocabulary file of any kind.
        output: a directory that does not exist or is empty.
        console: prints how many tokens are carried over.

    Raises:
        UserError: `place` holds no model, `tokenizer` no tokenizer, or the family cannot have it.
    """
    new = load_tokenizer(tokenizer)  # first: weights may be gigabytes
    found = read_weights(place, console=console)
    old = load_tokenizer(found.directory)
    if old.sha256 == new.sha256:
        raise UserError(f"{tokenizer}: the model has this vocabulary already")
    sources = sources_of(old, new)
    kept = with_heads(found, is_class=True)
    carried = carry_over(kept, sources, new)
    export_model(
        carried.params, carried.config, kept.heads, tokenizer, output, found.labels, extra=usage_files(carried)
    )
    if left_out := [head.name for head in found.heads if head not in kept.heads]:
        console.say(f"left out: the head {', '.join(left_out)}")
    console.say(
        f"{new.vocab_size:,} tokens: {sources.shared:,} as in the old vocabulary, "
        f"{new.vocab_size - sources.shared - sources.unknown:,} from the mean of their old pieces, {sources.unknown:,} "
        f"from that of all old tokens -> {output}"
    )


def sources_of(old: Tokenizer, new: Tokenizer) -> Sources:
    """Return which old tokens make up each new one.

    Special tokens are matched by their role, others by their text and by whether they continue a word, so that `##ing`
    and a SentencePiece `ing` are the same token. The old tokenizer spells the rest.
    """
    exact = {token: number for number, token in enumerate(old.tokens)} if old.kind.name == new.kind.name else {}
    known = {key: number for number, key in reversed([*enumerate(_keys(old))]) if key[0]}
    roles = dict(zip(new.special, (old.tokens.index(token) for token in old.special), strict=True))
    keys = _keys(new)
    spelled = old.encode_words([letters for letters, _ in keys])
    pieces, shared = list[list[int]](), 0
    for token, key, own in zip(new.tokens, keys, spelled, strict=True):
        same = roles.get(token, exact.get(token, known.get(key)))
        shared += same is not None
        if same is None and key[1]:  # the first piece is inside a word as well
            own = [known.get((_letters(old, own[0]), True), own[0]), *own[1:]]
        pieces.append([one for one in own if one != old.unk_id] if same is None else [same])
    owners = np.repeat(np.arange(len(pieces)), [len(own) for own in pieces])
    flat = np.array([one for own in pieces for one in own], np.int64)
    return Sources(flat, owners, shared, sum(not own for own in pieces))


def carry_over(found: Weights, sources: Sources, new: Tokenizer) -> Weights:
    """Return the model with the rows of `sources` in every array over the vocabulary, for the heads of `found`.

    Positions that follow the padding follow that of the new vocabulary, as do ids of special tokens in the config.
    """
    family, old_size, vocab_size = FAMILIES[found.config.family], found.config.vocab_size, new.vocab_size
    modules = [*family.encoder, *(module for one in family.classes for module in one.modules)]
    counts = np.bincount(sources.owners, minlength=vocab_size)

    def carried(x: np.ndarray) -> np.ndarray:
        rows = np.zeros((vocab_size, *x.shape[1:]))
        np.add.at(rows, sources.owners, x[sources.pieces])
        rows /= np.maximum(counts, 1).reshape(-1, *(1,) * (x.ndim - 1))
        rows[counts == 0] = x[:old_size].mean(axis=0)
        whole = np.zeros((padded_vocab(vocab_size), *x.shape[1:]), np.float32)
        whole[:vocab_size] = rows
        return whole

    shapes = shapes_of(found.config, found.heads)
    over_vocabulary = {stored.path for stored in stored_tensors(modules, shapes) if stored.vocabulary}
    flat = {path: np.asarray(x) for path, x in flatten(found.params).items() if path in shapes}
    flat = {path: carried(x) if path in over_vocabulary else x for path, x in flat.items()}
    ids: dict[str, Any] = {name: new.special_ids[role] for name, role in family.token_ids.items()}
    config = dataclasses.replace(found.config, vocab_size=vocab_size, **ids)
    if family.follow_padding:
        first, table = new.pad_id + 1, flat[POSITIONS]
        unused = np.resize(table[: config.position_offset], (first, table.shape[1]))
        flat[POSITIONS] = np.concatenate([unused, table[config.position_offset :]])
        config = dataclasses.replace(config, position_offset=first)
    return found._replace(config=config, params=unflatten(flat))


def _keys(tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """What two tokens have in common that are the same, of each: its letters, and whether it continues a word."""
    return [
        ("" if token in tokenizer.special else _letters(tokenizer, number), bool(tokenizer.continues[number]))
        for number, token in enumerate(tokenizer.tokens)
    ]


def _letters(tokenizer: Tokenizer, number: int) -> str:
    """The text of a token without the mark of its place in a word; '' of a part of a character."""
    text = tokenizer.decode([number]).removeprefix(PREFIX).strip()
    return "" if "\ufffd" in text else text
