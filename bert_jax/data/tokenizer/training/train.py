"""Training a tokenizer on files of one or several sources, and what it makes of their text."""

import collections
import itertools
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax.data import sources
from bert_jax.data.sources.records import Reading
from bert_jax.data.sources.rejections import LeftOut, describe, hint
from bert_jax.data.tokenizer import Tokenizer, build, save
from bert_jax.data.tokenizer.tokenizer_kinds import KINDS
from bert_jax.data.tokenizer.training import algorithms as vocabulary_training
from bert_jax.data.tokenizer.training import sample as vocabulary_sample
from bert_jax.data.tokenizer.training import sentencepiece as sentencepiece_training
from bert_jax.data.tokenizer.training.algorithms import Text, Trained, cut_text
from bert_jax.data.tokenizer.training.sample import Survey
from bert_jax.errors import UserError, check_output, did_you_mean, writing

TRAINERS: dict[str, Callable[[Text, int, bool], Trained]] = {
    "wordpiece": vocabulary_training.train_wordpiece,
    "bpe": vocabulary_training.train_bpe,
    "byte_level": vocabulary_training.train_byte_level,
    "unigram": sentencepiece_training.train_unigram,
    "sentencepiece_bpe": sentencepiece_training.train_sentencepiece_bpe,
}
REPORT_CHARACTERS = 1_000_000  # of each source that the report is made from
HELD_IN_MEMORY = ("unigram", "sentencepiece_bpe")  # the text that is taken, by the library that trains them
MOST_IN_MEMORY = 1_000_000_000  # characters
NO_MINIMUM = ("sentencepiece_bpe",)  # kinds whose library makes tokens of what occurs once, down to whole sentences
MANY_ONCE = 0.5  # of the tokens; more are worth a line
MANY_MARKS = 0.01  # of the characters that lose a mark; more are worth a line


class Fit(NamedTuple):
    """What a tokenizer makes of a text; fits of two texts can be added up."""

    words: int = 0  # between spaces
    characters: int = 0  # without line ends
    tokens: int = 0
    unknown: int = 0  # of the tokens

    def __str__(self) -> str:
        words, tokens = max(self.words, 1), max(self.tokens, 1)
        return (
            f"{self.tokens / words:.2f} tokens a word, {self.characters / tokens:.2f} characters a token,"
            f" {self.unknown / tokens:.2%} unknown"
        )


def train_tokenizer(
    inputs: Sequence[Sequence[str]],
    vocab_size: int,
    output: str | os.PathLike[str],
    *,
    kind: str = "wordpiece",
    lowercase: bool = True,
    reading: Reading = Reading(),
    sample_characters: int = 0,
    smoothing: float = 1.0,
    weights: Sequence[float] = (),
) -> str:
    """Trains a vocabulary of exactly `vocab_size` tokens and saves it in `output`; the same text gives the same bytes.

    The text is read twice. Memory grows with the number of different words, in 'unigram' and 'sentencepiece_bpe' with
    the text that is taken: `sample_characters` bounds both.

    Args:
        inputs: a source each, such as a language: files, directories, globs (see `sources.documents`).
        vocab_size: special tokens included.
        output: a directory that is not there yet.
        kind: a row of `TRAINERS`.
        lowercase: uncased; in 'wordpiece' and 'bpe' this also strips accents, as in BERT.
        reading: how files are read.
        sample_characters, smoothing, weights: as in `vocabulary_sample.rates`.

    Returns:
        Lines to print: what was made, and the share and the `Fit` of each source.

    Raises:
        UserError: an unknown kind, numbers that cannot be, a source without text, a size that the text cannot fill or
            that its characters alone overflow, an output that holds something, and as in `sources`.
    """
    if kind not in TRAINERS:
        raise UserError(f"--kind {kind}: not known; known are {', '.join(TRAINERS)}{did_you_mean(kind, TRAINERS)}")
    vocabulary_sample.check(len(inputs), smoothing, weights, sample_characters)
    check_output(output)
    sources.check_reading([path for source in inputs for path in sources.find_files(source)], reading)
    rejected: collections.Counter[str] = collections.Counter()
    surveys = []
    for source in inputs:
        own = LeftOut()
        surveys.append(vocabulary_sample.survey(_pieces(_texts(source, reading, own))))
        if not surveys[-1].characters:
            mend = hint(own.reasons, own.fields, reading)
            raise UserError(f"{source[0]}: no text to train a vocabulary from{_left_out(own.reasons)}; {mend}")
        rejected += own.reasons
    sizes = [found.characters for found in surveys]
    rates = vocabulary_sample.rates(sizes, smoothing, weights, sample_characters)
    taken = sum(size * rate for size, rate in zip(sizes, rates, strict=True))
    if kind in HELD_IN_MEMORY and taken > MOST_IN_MEMORY:
        raise UserError(
            f"--kind {kind} holds the text it is trained on in memory, here {taken:,.0f} characters; "
            f"give --sample_characters {MOST_IN_MEMORY} or less"
        )
    shown: list[list[str]] = []

    def pieces() -> Iterator[str]:
        shown[:] = [[] for _ in inputs]
        for source, rate, size, own in zip(inputs, rates, sizes, shown, strict=True):
            part = min(1.0, REPORT_CHARACTERS / size)
            for piece in _pieces(_texts(source, reading)):
                if part == 1 or vocabulary_sample.fraction(piece) >= 1 - part:  # the last to be taken into a sample
                    own.append(piece)
                yield from [piece] * vocabulary_sample.copies(piece, rate)

    try:
        tokenizer, files = _train(Text(pieces, _weighted(surveys, rates)), vocab_size, kind, lowercase)
    except UserError as error:
        raise UserError(f"{error}{_left_out(rejected)}") from None
    with writing(output):
        save(tokenizer, output, files)
    case = "uncased" if lowercase else "cased"
    return "\n".join(
        [
            f"{tokenizer.vocab_size:,} tokens, {kind}, {case}, sha256 {tokenizer.sha256[:12]}, in {output}"
            f"{_left_out(rejected)}",
            *_lines(inputs, sizes, rates, [measure(tokenizer, pieces) for pieces in shown]),
            *_marks(tokenizer, surveys),
            *_once(tokenizer, shown, sizes),
        ]
    )


def train(
    texts: Callable[[], Iterable[str]], vocab_size: int, kind: str = "wordpiece", lowercase: bool = True
) -> tuple[Tokenizer, Mapping[str, bytes]]:
    """The tokenizer of a vocabulary trained on all of the texts, and the files that `save` puts beside it.

    Args:
        texts: gives them from the first on each time it is called, which is twice.
        vocab_size, kind, lowercase: as in `train_tokenizer`.

    Raises:
        UserError: as `train_tokenizer`.
    """

    def pieces() -> Iterator[str]:
        return _pieces(texts())

    return _train(Text(pieces, vocabulary_sample.survey(pieces()).counts), vocab_size, kind, lowercase)


def measure(tokenizer: Tokenizer, texts: Iterable[str]) -> Fit:
    """What the tokenizer makes of the lines of texts, encoded as inside a document."""
    words = characters = tokens = unknown = 0
    for text in texts:
        lines = [line for line in text.split("\n") if not line.isspace() and line]
        ids = tokenizer.encode_sentences([tokenizer.sentence_prefix + line for line in lines])
        words += sum(len(line.split()) for line in lines)
        characters += sum(map(len, lines))
        tokens += sum(map(len, ids))
        unknown += sum(one.count(tokenizer.unk_id) for one in ids)
    return Fit(words, characters, tokens, unknown)


def _train(text: Text, vocab_size: int, kind: str, lowercase: bool) -> tuple[Tokenizer, Mapping[str, bytes]]:
    trained = TRAINERS[kind](text, vocab_size, lowercase)
    special = next(row.special for row in KINDS if row.name == kind)
    return build(trained.definition, special), trained.files


def _texts(source: Sequence[str], reading: Reading, left_out: LeftOut | None = None) -> Iterator[str]:
    for document in sources.documents(source, reading):
        if not document.rejected:
            yield document.text
        elif left_out is not None:
            left_out.add(document)


def _pieces(texts: Iterable[str]) -> Iterator[str]:
    return (piece for text in texts for piece in cut_text(text))


def _weighted(surveys: Sequence[Survey], rates: Sequence[float]) -> dict[str, float]:
    """How often each character is in what is taken, about."""
    found: dict[str, float] = {}
    for one, rate in zip(surveys, rates, strict=True):
        for character, count in one.counts.items():
            found[character] = found.get(character, 0.0) + rate * count
    return found


def _lines(
    inputs: Sequence[Sequence[str]], sizes: Sequence[int], rates: Sequence[float], fits: Sequence[Fit]
) -> Iterator[str]:
    """The report, a line a source."""
    taken = [size * rate for size, rate in zip(sizes, rates, strict=True)]
    for source, size, rate, own, fit in zip(inputs, sizes, rates, taken, fits, strict=True):
        name = source[0] + f" and {len(source) - 1} more" * (len(source) > 1)
        times = "once" if f"{rate:.3g}" == "1" else f"{rate:.3g} times"
        yield f"{name}: {size:,} characters, taken {times}, {own / sum(taken):.1%} of the text; {fit}"


def _marks(tokenizer: Tokenizer, surveys: Sequence[Survey]) -> Iterator[str]:
    """A line where lower-casing as in BERT takes more than capitals away, as it does in many languages."""
    if not tokenizer.normalizer.do_lower_case:
        return
    lost = total = 0
    for one in surveys:
        total += one.characters
        lost += sum(n for character, n in one.counts.items() if unicodedata.normalize("NFD", character) != character)
    if lost > MANY_MARKS * total:
        yield (
            f"uncased also takes accents off and Korean syllables apart, {lost / total:.1%} of the characters here;"
            " --cased leaves them whole"
        )


def _once(tokenizer: Tokenizer, shown: Sequence[Sequence[str]], sizes: Sequence[int]) -> Iterator[str]:
    """A line where the vocabulary is larger than the text has use for; said where all of the text is in the report."""
    if tokenizer.kind.name not in NO_MINIMUM or max(sizes) > REPORT_CHARACTERS:
        return
    lines = (line for piece in itertools.chain.from_iterable(shown) for line in piece.split("\n"))
    seen = collections.Counter(number for line in lines for number in tokenizer.encode_sentences([line])[0])
    once = tokenizer.vocab_size - sum(times > 1 for times in seen.values())
    if once > MANY_ONCE * tokenizer.vocab_size:
        yield (
            f"{once:,} of {tokenizer.vocab_size:,} tokens occur at most once in the text, and a model learns nothing of"
            " them: give more text or a smaller --vocab_size"
        )


def _left_out(rejected: Mapping[str, int]) -> str:
    return f"; left out {describe(rejected)}" if rejected else ""
