"""Functions that assemble and read the definition of a tokenizer, which is the content of a `tokenizer.json`.

Tokenizers of every kind are stored in memory, saved and exported in this format of the library `tokenizers`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError

Definition = dict[str, Any]  # the content of a tokenizer.json

# This class of transformers takes tokenizer.json as it is; model-specific classes rebuild the tokenizer.
GENERAL_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast"}
MEMBERS = ("normalizers", "pretokenizers", "processors", "decoders")  # keys of the lists of steps in a `Sequence`


class SpecialTokens(NamedTuple):
    """The names of the special tokens."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


def assemble_definition(
    special: SpecialTokens,
    vocabulary: Mapping[str, int],
    separators: int,
    mask_takes_space: bool,
    **parts: Definition | None,
) -> Definition:
    """Return a definition made of the parts `model`, `normalizer`, `pre_tokenizer` and `decoder`, with special tokens.

    Args:
        special: names of the special tokens.
        vocabulary: token -> id.
        separators: number of separators between the two texts of a pair.
        mask_takes_space: True if the mask token includes the spaces before it, because words of the vocabulary do so.

    Raises:
        UserError: a special token is missing.
    """
    definition: Definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "post_processor": None,
        **parts,
    }
    return with_special_tokens(definition, special, vocabulary, separators, mask_takes_space)


def with_special_tokens(
    definition: Definition,
    special: SpecialTokens,
    vocabulary: Mapping[str, int],
    separators: int,
    mask_takes_space: bool,
) -> Definition:
    """Return the definition with every special token as an added token, so that the library finds it in a text.

    A definition without a post-processor gets the post-processor of BERT or of RoBERTa, depending on `separators`.

    Raises:
        UserError: the vocabulary lacks a special token.
    """
    missing = [token for token in dict.fromkeys(special) if token not in vocabulary]
    if missing:
        raise UserError(
            f"the vocabulary has no {' '.join(missing)}; give the names of its special tokens in tokenizer_config.json"
        )
    known = {token["content"] for token in definition["added_tokens"]}
    new = [
        added_special_token(token, vocabulary[token], lstrip=mask_takes_space and token == special.mask)
        for token in dict.fromkeys(special)
        if token not in known
    ]
    return {
        **definition,
        "added_tokens": sorted([*definition["added_tokens"], *new], key=lambda token: token["id"]),
        "post_processor": definition["post_processor"] or _make_post_processor(special, vocabulary, separators),
    }


def added_special_token(content: str, token_id: int, lstrip: bool = False) -> Definition:
    """Return the entry of a special token among the added tokens, which the library finds in a text.

    If `lstrip` is True, the token includes the spaces before it.
    """
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": content, **flags}


def without_special_tokens(definition: Definition, special: SpecialTokens) -> Definition:
    """Return the definition without special tokens: a special token that a text spells is encoded as characters.

    All other added tokens that a text spells are encoded as tokens, as in transformers.
    """
    model = definition["model"]
    if model["type"] == "Unigram":
        # A unigram model would find the pieces of special tokens in a text. With a space before the piece, no text
        # contains the piece.
        model = {**model, "vocab": [[" " * (piece in special) + piece, score] for piece, score in model["vocab"]]}
    return {**definition, "added_tokens": added_tokens_without_special(definition, special), "model": model}


def added_tokens_without_special(definition: Definition, special: SpecialTokens) -> list[dict[str, Any]]:
    """Return the added tokens that are not in `special`."""
    return [token for token in definition["added_tokens"] if token["content"] not in special]


def steps_of_part(part: Definition | None) -> Iterator[Definition]:
    """Yield the steps of a part of a definition, such as its normalizer: the part, or the members of a `Sequence`."""
    if part is None:
        return
    if not isinstance(part, dict):
        raise UserError(f"a part of it is {part!r:.40}, not an object")
    if part.get("type") != "Sequence":
        yield part
        return
    for members in MEMBERS:
        for member in part.get(members, ()):
            yield from steps_of_part(member)


def complete_definition(content: Definition) -> Definition:
    """Return the content of a tokenizer.json, with missing parts added; raise UserError if the content has no model.

    Files of early versions of the library lack the type of their model, and have merges in the form 'a b'.
    """
    if not isinstance(content.get("model"), dict):
        raise UserError("not the file of a tokenizer: no 'model' in it")
    model = content["model"]
    if "type" not in model:
        marks = {"unk_id": "Unigram", "merges": "BPE", "max_input_chars_per_word": "WordPiece"}
        model = {"type": next((kind for mark, kind in marks.items() if mark in model), "unknown"), **model}
    if isinstance(model.get("merges"), list):
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model = {**model, "merges": merges}
    parts: Definition = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    # Truncation and padding are removed: sequences are cut and padded where they are built, not by the tokenizer.
    return {**parts, **content, "added_tokens": content.get("added_tokens") or [], "model": model} | {
        "truncation": None,
        "padding": None,
    }


def tokens_in_id_order(definition: Definition) -> tuple[str, ...]:
    """Return all tokens of a definition in the order of ids.

    Raises:
        UserError: an id is missing, is not a number, or occurs twice.
    """
    vocabulary = definition["model"].get("vocab")
    try:
        if isinstance(vocabulary, list):
            vocabulary = {piece: token_id for token_id, (piece, _) in enumerate(vocabulary)}
            if len(vocabulary) < len(definition["model"]["vocab"]):
                raise UserError("the vocabulary contains a piece twice")
        pairs = dict(vocabulary)
        for token in definition["added_tokens"]:
            if pairs.setdefault(token["content"], token["id"]) != token["id"]:
                raise UserError(f"the added token {token['content']!r} has another id in the vocabulary")
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(f"the vocabulary cannot be read ({error!r})") from None
    return sort_tokens_by_id(pairs)


def sort_tokens_by_id(vocabulary: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tokens of a vocabulary, sorted by id; raise UserError if the ids are not 0, 1, 2, ... without gaps."""
    if any(type(token_id) is not int for token_id in vocabulary.values()):
        raise UserError("the vocabulary gives a token an id that is not an integer")
    if not vocabulary:
        raise UserError("the vocabulary is empty")
    token_of: dict[int, str] = {}
    for token, token_id in vocabulary.items():
        if token_id in token_of:
            raise UserError(f"the vocabulary gives id {token_id} to {token_of[token_id]!r} and to {token!r}")
        token_of[token_id] = token
    outside = [token_id for token_id in token_of if not 0 <= token_id < len(token_of)]
    if outside:
        hole = next(token_id for token_id in range(len(token_of)) if token_id not in token_of)
        raise UserError(
            f"id {max(outside)} of {token_of[max(outside)]!r} is outside the vocabulary of {len(token_of):,} tokens:"
            f" no token has id {hole}"
        )
    return tuple(token_of[token_id] for token_id in range(len(token_of)))


class PairLayout(NamedTuple):
    """The layout of a pair of texts: number of separators between the texts; whether the second has token type 1."""

    num_separators: int
    has_second_type: bool


def pair_layout(definition: Definition, special: SpecialTokens) -> PairLayout:
    """Return the layout that a definition's post-processor gives a pair of texts.

    The last separator has the token type of the second text; all tokens before the second text have type 0.

    Raises:
        UserError: a single text does not become `cls text sep`, a pair does not become `cls text sep ... text sep`, the
            special tokens differ from `special`, or the token types are not supported.
    """
    for processor in steps_of_part(definition["post_processor"]):
        kind = processor.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            between = 2 if kind == "RobertaProcessing" else 1
            first, last = processor["cls"][0], processor["sep"][0]
            single, pair = [first, "A", last], [first, "A", *[last] * between, "B", last]
            types = [0] * (between + 2) + [int(between == 1)] * 2
        elif kind == "TemplateProcessing":
            single, pair = _template_values(processor["single"], "id"), _template_values(processor["pair"], "id")
            types = [int(value) for value in _template_values(processor["pair"], "type_id")]
            between = len(pair) - 4
        else:
            continue
        cls, sep = special.cls, special.sep
        if single != [cls, "A", sep] or between < 1 or pair != [cls, "A", *[sep] * between, "B", sep]:
            raise UserError(f"the post_processor builds sequences like {' '.join(pair)!r}, not '{cls} A {sep} B {sep}'")
        if types not in ([0] * len(pair), [0] * (len(pair) - 2) + [1, 1]):
            raise UserError(f"the post_processor gives a pair the token types {types}; supported are 0, and 0 and 1")
        return PairLayout(between, types[-1] == 1)
    raise UserError("unknown post_processor; BERT's and RoBERTa's are supported")


def content_that_decides_ids(definition: Definition, tokens: Sequence[str], special: SpecialTokens) -> list[Any]:
    """Return all parts of a definition that decide the token ids of a text, for a digest."""
    model = definition["model"]
    listed = ("type", "vocab", "merges")
    return [
        model["type"],
        list(tokens),
        [score for _, score in model["vocab"]] if isinstance(model["vocab"], list) else model.get("merges"),
        {name: value for name, value in model.items() if name not in listed and value not in (None, False, "")},
        definition["normalizer"],
        definition["pre_tokenizer"],
        added_tokens_without_special(definition, special),
        list(special),
    ]


def _template_values(pieces: Sequence[Mapping[str, Mapping[str, Any]]], key: str) -> list[Any]:
    """Return the value of `key` in each piece of a template; for the key `id`, for example '[CLS]', 'A' and '[SEP]'."""
    return [value[key] for piece in pieces for value in piece.values()]


def _make_post_processor(special: SpecialTokens, vocabulary: Mapping[str, int], separators: int) -> Definition:
    """Return the post-processor that adds special tokens, as in BERT or, with two separators, in RoBERTa."""
    ends: Definition = {"sep": [special.sep, vocabulary[special.sep]], "cls": [special.cls, vocabulary[special.cls]]}
    if separators == 1:
        return {"type": "BertProcessing", **ends}
    # Spaces before a word belong to its token, but not to its offsets.
    return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
