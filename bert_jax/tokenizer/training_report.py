"""The report on a trained vocabulary: how it encodes each source, and warnings."""

import collections
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax.readers.rejections import describe_rejections
from bert_jax.tokenizer.tokenizer import Tokenizer
from bert_jax.tokenizer.training_sample import CharacterCounts

REPORT_CHARACTERS = 1_000_000  # number of characters of each source from which the report is made
MANY_SINGLE = 0.5  # a warning is given if a larger fraction of the tokens occurs at most once
MANY_ACCENTS = 0.01  # a warning is given if a larger fraction of the characters loses an accent


class TokenCounts(NamedTuple):
    """Counts of the words, characters, tokens and unknown tokens of a text."""

    words: int = 0  # number of words, which are separated by white space
    characters: int = 0  # number of characters without line ends
    tokens: int = 0
    unknown: int = 0  # number of unknown tokens

    def __str__(self) -> str:
        words, tokens = max(self.words, 1), max(self.tokens, 1)
        return (
            f"{self.tokens / words:.2f} tokens per word, {self.characters / tokens:.2f} characters per token,"
            f" {self.unknown / tokens:.2%} unknown"
        )


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> TokenCounts:
    """Return the counts of words, characters and tokens of texts; each line is encoded as a line inside a document."""
    words = characters = tokens = unknown = 0
    for text in texts:
        lines = [line for line in text.split("\n") if not line.isspace() and line]
        ids = tokenizer.encode_sentences([tokenizer.kind.word_prefix + line for line in lines])
        words += sum(len(line.split()) for line in lines)
        characters += sum(map(len, lines))
        tokens += sum(map(len, ids))
        unknown += sum(token_ids.count(tokenizer.unk_id) for token_ids in ids)
    return TokenCounts(words, characters, tokens, unknown)


def source_report_lines(
    tokenizer: Tokenizer,
    inputs: Sequence[Sequence[str]],
    counts: Sequence[CharacterCounts],
    rates: Sequence[float],
    samples: Sequence[Sequence[str]],
) -> Iterator[str]:
    """Yield a line about each source: its size, how often it was used, its fraction of the text, its token counts."""
    used = [source.characters * rate for source, rate in zip(counts, rates, strict=True)]
    for source, count, rate, used_characters, sample in zip(inputs, counts, rates, used, samples, strict=True):
        name = source[0] + f" and {len(source) - 1} more" * (len(source) > 1)
        times = "once" if f"{rate:.3g}" == "1" else f"{float(f'{rate:.3g}'):,g} times"
        yield (
            f"{name}: {count.characters:,} characters, used {times}, {used_characters / sum(used):.1%} of the text; "
            f"{count_tokens(tokenizer, sample)}"
        )


def accent_warning(tokenizer: Tokenizer, counts: Sequence[CharacterCounts]) -> Iterator[str]:
    """Yield a warning if BERT's lower-casing removes many accents or vowel signs, as it does in many languages."""
    if not tokenizer.normalizer.do_lower_case:
        return
    lost = total = 0
    for source in counts:
        total += source.characters
        lost += sum(
            count
            for character, count in source.frequency.items()
            if unicodedata.normalize("NFD", character) != character or unicodedata.category(character) == "Mn"
        )
    if lost > MANY_ACCENTS * total:
        yield (
            f"uncased also removes accents and vowel signs, and decomposes Korean syllables: {lost / total:.1%} of the "
            "characters here; --cased keeps them"
        )


def single_token_warning(
    tokenizer: Tokenizer, counts: Sequence[CharacterCounts], samples: Sequence[Sequence[str]]
) -> Iterator[str]:
    """Yield a warning if most tokens occur at most once in the text.

    Yield nothing if a sample may be only a part of its source, or if the kind makes no tokens of strings that occur
    only once.
    """
    if not tokenizer.kind.keeps_single_occurrences or max(source.characters for source in counts) > REPORT_CHARACTERS:
        return
    lines = (line for piece in itertools.chain.from_iterable(samples) for line in piece.split("\n"))
    seen = collections.Counter(token_id for line in lines for token_id in tokenizer.encode_sentences([line])[0])
    single = tokenizer.vocab_size - sum(times > 1 for times in seen.values())
    if single > MANY_SINGLE * tokenizer.vocab_size:
        yield (
            f"{single:,} of {tokenizer.vocab_size:,} tokens occur at most once in the text, and a model learns nothing"
            " of them: give more text or a smaller --vocab_size"
        )


def rejected_documents_clause(rejected: Mapping[str, int]) -> str:
    """Return a clause about rejected documents, such as '; left out 2 binary, 1 empty', or ''."""
    return f"; left out {describe_rejections(rejected)}" if rejected else ""
