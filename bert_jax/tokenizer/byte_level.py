"""Byte-level BPE as in RoBERTa: `vocab.json` and `merges.txt`.

Text is split into words that include the space before them. The bytes of the words are written as printable characters,
and pairs of pieces are merged in the order of `merges.txt` (Radford et al. 2019, GPT-2; Liu et al. 2019, RoBERTa).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import pre_tokenizers

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.tokenizer import pair_merging, sentencepiece, tokenizer_json
from bert_jax.tokenizer.pair_merging import TrainedVocabulary, TrainingText
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

SPECIAL = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
SEPARATORS = 2
VOCABULARY, MERGES = "vocab.json", "merges.txt"
# Value of --normalization -> function that returns the steps of the normalizer.
NORMALIZATIONS: dict[str, Callable[[], list[Definition]]] = {
    "identity": list,
    "nfc": lambda: [{"type": "NFC"}],
    "nfkc": lambda: [{"type": "NFKC"}],
    "nmt_nfkc": lambda: sentencepiece.library_normalization_steps("nmt_nfkc"),
}
SPACES = ("Ġ", "Ċ", "ĉ", "č")  # spellings of the bytes of a space, a line feed, a tab and a carriage return


def define_byte_level(
    vocabulary: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    special: SpecialTokens = SPECIAL,
    add_prefix_space: bool = False,
    normalizer: Definition | None = None,
) -> Definition:
    """Return the definition of a byte-level tokenizer from its vocabulary (token -> id) and its merges.

    The merges must be in the order in which they were learned. If `add_prefix_space` is True, the first word of a text
    is encoded like a word inside the text. RoBERTa's tokenizer has neither `add_prefix_space` nor a normalizer.
    """
    space = {"add_prefix_space": add_prefix_space, "trim_offsets": True}
    byte_level = {"type": "ByteLevel", **space, "use_regex": True}
    definition = tokenizer_json.assemble_definition(
        special,
        vocabulary,
        SEPARATORS,
        mask_takes_space=True,
        normalizer=normalizer,
        pre_tokenizer=byte_level,
        decoder=byte_level,
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "vocab": dict(vocabulary),
            "merges": [list(pair) for pair in merges],
        },
    )
    return {**definition, "post_processor": {**definition["post_processor"], **space}}


def byte_level_continuation_flags(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Return, for each token, whether it continues the word before it (its first byte is no space or line end)."""
    return [not token.startswith(SPACES) for token in tokens]


def with_prefix_space(definition: Definition) -> Definition:
    """Return the definition with `add_prefix_space`, so that a single word is encoded like a word in a sentence."""

    def component_with_prefix_space(part: Any) -> Any:
        if isinstance(part, list):
            return [component_with_prefix_space(step) for step in part]
        if not isinstance(part, dict):
            return part
        return {key: key == "add_prefix_space" or component_with_prefix_space(value) for key, value in part.items()}

    return {
        **definition,
        **{name: component_with_prefix_space(definition[name]) for name in ("pre_tokenizer", "post_processor")},
    }


def byte_level_settings(definition: Definition) -> dict[str, Any]:
    """Return the settings of `tokenizer_config.json` that a byte-level definition implements."""
    steps = tokenizer_json.steps_of_part(definition["pre_tokenizer"])
    return {"add_prefix_space": any(bool(step.get("add_prefix_space")) for step in steps)}


def parse_vocab_json(
    files: Sequence[bytes], special: SpecialTokens, config: Mapping[str, Any], lowercase: bool | None
) -> Definition:
    """Return the definition of a tokenizer from the bytes of its `vocab.json` and its `merges.txt`.

    The arguments are as in `TokenizerClass.parse`.

    Raises:
        UserError: a file is broken, the ids have gaps, a merge is not a pair of tokens, or `lowercase` is True.
    """
    if lowercase:
        raise UserError("a byte-level vocabulary distinguishes capital letters; it cannot be uncased")
    tokens = vocab_json_tokens(files[0])
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    definition = define_byte_level(vocabulary, (), special, bool(config.get("add_prefix_space")))
    definition["model"]["merges"] = _parse_merges(files[1], vocabulary)
    if "backend" in config:  # in transformers 5, the mask token does not include the space before it
        definition["added_tokens"] = [{**token, "lstrip": False} for token in definition["added_tokens"]]
    return definition


def vocab_json_tokens(data: bytes) -> list[str]:
    """Return the tokens of a `vocab.json` in the order of ids; raise UserError if the ids have gaps or repetitions."""
    return list(tokenizer_json.sort_tokens_by_id(strict_json.parse_object(data, VOCABULARY)))


def train_byte_level(text: TrainingText, vocab_size: int, lowercase: bool, normalization: str) -> TrainedVocabulary:
    """Return a byte-level BPE vocabulary of exactly `vocab_size` tokens; `normalization` is a row of `NORMALIZATIONS`.

    Raises:
        UserError: an error that `wordpiece.train_wordpiece` raises, or the library of the normalization is missing.
    """
    steps = [*NORMALIZATIONS[normalization](), *([{"type": "Lowercase"}] if lowercase else [])]
    normalizer = {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else next(iter(steps), None)
    first = (SPECIAL.cls, SPECIAL.pad, SPECIAL.sep, SPECIAL.unk, SPECIAL.mask)  # RoBERTa's order, except for the mask
    untrained = define_byte_level({token: token_id for token_id, token in enumerate(first)}, (), normalizer=normalizer)
    pair_merging.check_text_has_characters(text)
    # The space before each line makes its first word look like a word inside a text.
    lines = (" " + line for piece in text.pieces() for line in piece.split("\n"))
    byte_letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens, merges = pair_merging.learn_merges(lines, vocab_size, untrained, SPECIAL, first, byte_letters)
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    return TrainedVocabulary(define_byte_level(vocabulary, merges, normalizer=normalizer))


def _parse_merges(data: bytes, vocabulary: Mapping[str, int]) -> list[list[str]]:
    """Return the merges in the bytes of a `merges.txt`; raise UserError if a merge is not a pair of tokens."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{MERGES} beside it is not a UTF-8 text") from None
    merges = []
    for line_number, line in enumerate(lines, 1):
        pair = line.rstrip("\r").split(" ")
        if pair == [""] or (line_number == 1 and line.startswith("#version")):
            continue
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise UserError(
                f"{MERGES} beside it, line {line_number}: {line!r} does not merge two tokens of the vocabulary"
            )
        merges.append(pair)
    return merges
