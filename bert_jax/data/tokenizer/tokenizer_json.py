"""`tokenizer.json` as plain data: how one is put together, and what can be read off one.

The format of the library `tokenizers` is the one form in which a tokenizer of any kind is held, saved and handed on.
"""

import json
import pathlib
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError

Definition = dict[str, Any]  # what a tokenizer.json holds

# The classes of single models in transformers build a tokenizer anew; this one takes tokenizer.json as it is.
GENERAL = {"tokenizer_class": "PreTrainedTokenizerFast"}
PARTS = ("normalizers", "pretokenizers", "processors")  # where a sequence keeps its members


class Special(NamedTuple):
    """What the special tokens are called."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


def assemble(
    special: Special,
    vocabulary: Mapping[str, int],
    separators: int,
    mask_takes_space: bool,
    **parts: Definition | None,
) -> Definition:
    """A definition around the `model`, `normalizer`, `pre_tokenizer` and `decoder` in `parts`.

    Args:
        special: what the special tokens are called.
        vocabulary: token -> id.
        separators: between the two texts of a pair.
        mask_takes_space: the mask token swallows spaces before it, for vocabularies whose words hold their space.

    Raises:
        UserError: a special token is missing.
    """
    check_special_tokens(special, vocabulary)
    definition: Definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "post_processor": _post_processor(special, vocabulary, separators),
        **parts,
    }
    return with_special_tokens(definition, special, vocabulary, mask_takes_space)


def check_special_tokens(special: Special, vocabulary: Container[str]) -> None:
    """Raises UserError where the vocabulary has not got a special token."""
    missing = [token for token in dict.fromkeys(special) if token not in vocabulary]
    if missing:
        raise UserError(f"the vocabulary has no {' '.join(missing)}; name its special tokens in tokenizer_config.json")


def with_special_tokens(
    definition: Definition, special: Special, vocabulary: Mapping[str, int], mask_takes_space: bool
) -> Definition:
    """The definition in which every special token is one that the library finds in a text."""
    known = {token["content"] for token in definition["added_tokens"]}
    new = [
        {
            "id": vocabulary[token],
            "content": token,
            "single_word": False,
            "lstrip": mask_takes_space and token == special.mask,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in dict.fromkeys(special)
        if token not in known
    ]
    added = sorted([*definition["added_tokens"], *new], key=lambda token: token["id"])
    return {**definition, "added_tokens": added}


def with_post_processor(
    definition: Definition, special: Special, vocabulary: Mapping[str, int], separators: int
) -> Definition:
    """The definition, with the post-processor of its kind where it has none."""
    return {
        **definition,
        "post_processor": definition["post_processor"] or _post_processor(special, vocabulary, separators),
    }


def without_special_tokens(definition: Definition, special: Special) -> Definition:
    """The definition that takes a special token spelled in a text for the characters it is spelled with."""
    added = [token for token in definition["added_tokens"] if not token["special"]]
    model = definition["model"]
    if model["type"] == "Unigram":
        # These pieces are as good as any other to the model, so a text could spell one; no text holds a space by then.
        model = {**model, "vocab": [[" " * (piece in special) + piece, score] for piece, score in model["vocab"]]}
    return {**definition, "added_tokens": added, "model": model}


def components(part: Definition | None) -> Iterator[Definition]:
    """A normalizer, pre-tokenizer or post-processor, or the members of a sequence of them."""
    if part is None:
        return
    if part.get("type") != "Sequence":
        yield part
        return
    for members in PARTS:
        for member in part.get(members, ()):
            yield from components(member)


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The object in a JSON file; UserError that names the file where there is none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} is not a JSON file ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path.name} is not a JSON object")
    return content


def checked(content: Definition) -> Definition:
    """The content of a tokenizer.json with the parts that this module reads; UserError where it has not got them.

    Files of early versions of the library do not say the type of their model, and write merges as 'a b'.
    """
    if not isinstance(content.get("model"), dict):
        raise UserError("not the file of a tokenizer: it has no 'model'")
    model = content["model"]
    if "type" not in model:
        marks = {"unk_id": "Unigram", "merges": "BPE", "max_input_chars_per_word": "WordPiece"}
        model = {"type": next((kind for mark, kind in marks.items() if mark in model), "unknown"), **model}
    if isinstance(model.get("merges"), list):
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model = {**model, "merges": merges}
    parts: Definition = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    # Texts are cut and padded where rows are made, never by the tokenizer.
    return {**parts, **content, "added_tokens": content.get("added_tokens") or [], "model": model} | {
        "truncation": None,
        "padding": None,
    }


def tokens_of(definition: Definition) -> tuple[str, ...]:
    """Every token in the order of ids.

    Raises:
        UserError: an id is missing, given twice or no number.
    """
    vocabulary = definition["model"].get("vocab")
    try:
        if isinstance(vocabulary, list):
            vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
            if len(vocabulary) < len(definition["model"]["vocab"]):
                raise UserError("the vocabulary holds a piece twice")
        pairs = dict(vocabulary)
        for token in definition["added_tokens"]:
            if pairs.setdefault(token["content"], token["id"]) != token["id"]:
                raise UserError(f"the added token {token['content']!r} has another id in the vocabulary")
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(f"the vocabulary cannot be read ({error!r})") from None
    return in_order(pairs)


def in_order(vocabulary: Mapping[str, Any]) -> tuple[str, ...]:
    """The tokens by id; UserError unless the ids are 0, 1, 2 ... each once."""
    if any(type(number) is not int for number in vocabulary.values()):
        raise UserError("the vocabulary gives a token an id that is no whole number")
    if not vocabulary:
        raise UserError("the vocabulary is empty")
    token_of: dict[int, str] = {}
    for token, number in vocabulary.items():
        if number in token_of:
            raise UserError(f"the vocabulary gives id {number} to {token_of[number]!r} and to {token!r}")
        token_of[number] = token
    strange = [number for number in token_of if not 0 <= number < len(token_of)]
    if strange:
        hole = next(number for number in range(len(token_of)) if number not in token_of)
        raise UserError(
            f"id {max(strange)} of {token_of[max(strange)]!r} is beyond the vocabulary of {len(token_of):,} tokens:"
            f" no token has id {hole}"
        )
    return tuple(token_of[number] for number in range(len(token_of)))


def separators_of(definition: Definition, special: Special) -> int:
    """How many separators the post-processor puts between the two texts of a pair.

    Raises:
        UserError: rows are not `cls text sep` and `cls text sep ... text sep`, with the tokens in `special`.
    """
    for processor in components(definition["post_processor"]):
        kind = processor.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            between = 2 if kind == "RobertaProcessing" else 1
            first, last = processor["cls"][0], processor["sep"][0]
            single, pair = [first, "A", last], [first, "A", *[last] * between, "B", last]
        elif kind == "TemplateProcessing":
            single, pair = _template(processor["single"]), _template(processor["pair"])
            between = len(pair) - 4
        else:
            continue
        cls, sep = special.cls, special.sep
        if single == [cls, "A", sep] and between > 0 and pair == [cls, "A", *[sep] * between, "B", sep]:
            return between
        raise UserError(f"the post_processor makes rows like {' '.join(pair)!r}, not '{cls} A {sep} B {sep}'")
    raise UserError("the post_processor is of a kind that is not known; BERT's and RoBERTa's rows can be made")


def lowercases(definition: Definition) -> bool:
    """Whether the normaliser makes text lower case."""
    return any(
        part.get("type") == "Lowercase" or bool(part.get("lowercase")) for part in components(definition["normalizer"])
    )


def content(definition: Definition, tokens: Sequence[str], special: Special) -> list[Any]:
    """All that decides which ids a text gets, for a digest."""
    model = definition["model"]
    known = ("type", "vocab", "merges")
    return [
        model["type"],
        list(tokens),
        [score for _, score in model["vocab"]] if isinstance(model["vocab"], list) else model.get("merges"),
        {name: value for name, value in model.items() if name not in known and value not in (None, False, "")},
        definition["normalizer"],
        definition["pre_tokenizer"],
        [token for token in definition["added_tokens"] if not token["special"]],
        list(special),
    ]


def _template(pieces: Sequence[Mapping[str, Mapping[str, str]]]) -> list[str]:
    return [value["id"] for piece in pieces for value in piece.values()]


def _post_processor(special: Special, vocabulary: Mapping[str, int], separators: int) -> Definition:
    ends: Definition = {"sep": [special.sep, vocabulary[special.sep]], "cls": [special.cls, vocabulary[special.cls]]}
    if separators == 1:
        return {"type": "BertProcessing", **ends}
    # Spaces before a word are a part of its token, but not of its offsets.
    return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
