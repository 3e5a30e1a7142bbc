"""Vocabularies made from text by merging pairs: WordPiece, BPE and byte-level BPE.

After Sennrich, Haddow and Birch 2016, with the trainer of the library `tokenizers`. The same text gives the same
vocabulary in any process: nothing is left to the order of the library's hash maps.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tokenizers
from tokenizers import pre_tokenizers, trainers

from bert_jax.data.tokenizer import bpe, byte_level, tokenizer_json, wordpiece
from bert_jax.data.tokenizer.tokenizer_json import Definition, Special
from bert_jax.data.tokenizer.wordpiece import Normalizer
from bert_jax.errors import UserError

ALPHABET = 1000  # characters, the commonest, that a vocabulary knows one by one in any case
COVERAGE = 0.9995  # and as many more as make up this share of the text; the rest is unknown
MIN_FREQUENCY = 2  # of a piece that training makes
MAX_TEXT = 8192  # characters that the library is given at once; its memory is a hundred times that


class Text(NamedTuple):
    """What a vocabulary is trained on."""

    pieces: Callable[[], Iterable[str]]  # gives the pieces from the first on each time it is called
    characters: Mapping[str, float]  # how often each character is there


class Trained(NamedTuple):
    """A vocabulary, and the files that are saved beside its tokenizer.json."""

    definition: Definition
    files: Mapping[str, bytes] = {}


def train_wordpiece(text: Text, vocab_size: int, lowercase: bool) -> Trained:
    """A WordPiece vocabulary of exactly `vocab_size` tokens, special tokens included.

    Memory grows with the number of different words, not with the text; so in all of this module.

    Raises:
        UserError: no text, or a size that the text cannot fill or that its characters alone overflow.
    """
    normalizer = Normalizer(do_lower_case=lowercase)
    tokens, _ = _merge_in_words(text, vocab_size, normalizer)
    return Trained(wordpiece.define(tokens, normalizer))


def train_bpe(text: Text, vocab_size: int, lowercase: bool) -> Trained:
    """As `train_wordpiece`, but words are cut by the order of the merges instead of into the longest pieces."""
    normalizer = Normalizer(do_lower_case=lowercase)
    return Trained(bpe.define(*_merge_in_words(text, vocab_size, normalizer), normalizer))


def train_byte_level(text: Text, vocab_size: int, lowercase: bool) -> Trained:
    """A byte-level BPE vocabulary of exactly `vocab_size` tokens; UserError as `train_wordpiece`."""
    special = byte_level.SPECIAL
    first = (special.cls, special.pad, special.sep, special.unk, special.mask)  # as in RoBERTa, but for the mask
    untrained = byte_level.define({token: number for number, token in enumerate(first)}, (), lowercase=lowercase)
    check_characters(text)
    # A line is encoded as one inside a text: its first word too has a space before it.
    lines = (" " + line for piece in text.pieces() for line in piece.split("\n"))
    tokens, merges = _merge(lines, vocab_size, untrained, special, first, sorted(pre_tokenizers.ByteLevel.alphabet()))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return Trained(byte_level.define(vocabulary, merges, lowercase=lowercase))


def alphabet(counts: Mapping[str, float], normalize: Callable[[str], str]) -> list[str]:
    """The characters after normalising that a vocabulary must know, in the order of their numbers; never a space."""
    found: dict[str, float] = {}
    for character in sorted(counts):  # a fixed order: sums of floats depend on it
        for normal in normalize(character):
            if not normal.isspace():
                found[normal] = found.get(normal, 0.0) + counts[character]
    common = sorted(found, key=lambda character: (-found[character], character))
    covered = itertools.accumulate(found[character] for character in common)
    enough = sum(total < COVERAGE * sum(found.values()) for total in covered) + 1
    return sorted(common[: max(enough, ALPHABET)])


def check_characters(text: Text) -> None:
    """Raises UserError where there is nothing but spaces."""
    if all(character.isspace() for character in text.characters):
        raise UserError("the text to train a vocabulary from is empty; give files with words in them")


def check_filled(found: int, vocab_size: int) -> None:
    """Raises UserError where training made fewer tokens than were asked for."""
    if found < vocab_size:
        raise UserError(
            f"the text fills a vocabulary of {found:,} tokens, not of {vocab_size:,};"
            f" give more text or --vocab_size {found}"
        )


def too_small(vocab_size: int, least: int) -> UserError:
    """The error for a size below what every vocabulary of the text must hold."""
    return UserError(f"--vocab_size {vocab_size:,} is too small: special tokens and characters alone are {least:,}")


def cut_text(text: str, limit: int = MAX_TEXT) -> Iterator[str]:
    """The text in pieces of at most `limit` characters, cut after a space or line end where there is one."""
    start = 0
    while len(text) - start > limit:
        end = start + limit
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = space + 1 if space > start else end
        yield text[start:end]
        start = end
    yield text[start:]


def _merge_in_words(text: Text, vocab_size: int, normalizer: Normalizer) -> tuple[list[str], list[list[str]]]:
    special = wordpiece.SPECIAL
    untrained = bpe.define(special, (), normalizer)
    library = tokenizers.Tokenizer.from_str(json.dumps(untrained))
    check_characters(text)
    characters = alphabet(text.characters, library.normalizer.normalize_str)
    after = {character: library.normalizer.normalize_str("x" + character) for character in characters}
    inside = [one for one, text in after.items() if len(library.pre_tokenizer.pre_tokenize_str(text)) == 1]
    # The library numbers inner characters in the order of a hash map, and ties between pieces are broken by number.
    # Listed among the special tokens they have a fixed order, and two runs agree.
    first = [*special, *(wordpiece.PREFIX + character for character in inside)]
    return _merge(text.pieces(), vocab_size, untrained, special, first, characters, wordpiece.PREFIX)


def _merge(
    pieces: Iterable[str],
    vocab_size: int,
    untrained: Definition,
    special: Special,
    first: Sequence[str],
    characters: Sequence[str],
    prefix: str = "",
) -> tuple[list[str], list[list[str]]]:
    """Tokens in the order of ids, and merges in that of their making; UserError where it cannot be `vocab_size`."""
    least = len(first) + len(characters)
    if vocab_size < least:
        raise too_small(vocab_size, least)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=list(first),
        initial_alphabet=list(characters),
        limit_alphabet=len(characters),
        continuing_subword_prefix=prefix,
    )
    plain = tokenizer_json.without_special_tokens(untrained, special)
    library = tokenizers.Tokenizer.from_str(json.dumps(plain))
    library.train_from_iterator(pieces, trainer)
    numbers = library.get_vocab()
    check_filled(len(numbers), vocab_size)
    return sorted(numbers, key=numbers.__getitem__), json.loads(library.to_str())["model"]["merges"]
