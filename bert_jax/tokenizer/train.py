"""Train a tokenizer on the files of one or several sources."""

import collections
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_jax import readers as sources
from bert_jax.errors import UserError, check_not_input, check_output, did_you_mean, with_message, writing
from bert_jax.files import Paths, list_paths, local_path
from bert_jax.readers import ReadOptions
from bert_jax.readers.rejections import Rejections, hint_for_most_common_reason
from bert_jax.tokenizer import training_report as report
from bert_jax.tokenizer import training_sample as sample
from bert_jax.tokenizer.kinds import TOKENIZERS
from bert_jax.tokenizer.pair_merging import TrainingText, VocabularyNotFullError, cut_text
from bert_jax.tokenizer.save import save_tokenizer
from bert_jax.tokenizer.tokenizer import Tokenizer, build_tokenizer
from bert_jax.tokenizer.training_sample import CharacterCounts

MAX_IN_MEMORY = 1_000_000_000  # maximum number of characters for a kind whose library holds the text in memory

Progress = Callable[[int, int, int], None]  # (bytes read so far, bytes in total, documents read so far)


def train_tokenizer(
    inputs: str | os.PathLike[str] | Sequence[Paths],
    vocab_size: int,
    output: str | os.PathLike[str],
    *,
    kind: str = "wordpiece",
    lowercase: bool = True,
    normalization: str | None = None,
    read_options: ReadOptions = ReadOptions(),
    sample_characters: int | None = None,
    smoothing: float = 1.0,
    weights: Sequence[float] | None = None,
    progress: Progress = lambda done, total, documents: None,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """Train a vocabulary of exactly `vocab_size` tokens and save it in `output`; equal texts give equal files.

    The text is read twice. The memory grows with the number of distinct words. For the kinds 'unigram' and
    'sentencepiece_bpe', the memory grows with the size of the text. The argument `sample_characters` limits the memory
    for every kind.

    Args:
        inputs: for each source, such as a language, its files, directories and globs; a single path is one source.
        vocab_size: number of tokens, special tokens included.
        output: a directory that does not exist yet.
        kind: name of the kind, a key of `TOKENIZERS`.
        lowercase: True for an uncased vocabulary; the kinds 'wordpiece' and 'bpe' then also strip accents, as in BERT.
        normalization: name of the normalization before words are split: 'bert' cleans a text as BERT does, 'identity'
            keeps it, 'nfc' and 'nfkc' are the forms of Unicode, 'nmt_nfkc' is SentencePiece's NFKC with clean-up. A
            kind allows the normalizations that are keys of its `train`; None means the first of these keys.
        read_options: options for reading the files.
        sample_characters, smoothing, weights: arguments of `training_sample.num_uses_per_source`.
        progress: function that is called with (bytes read so far in both passes, total bytes of both passes, documents
            read).
        say: function that is called with a line of text when all of the text has been read and the last phase begins.

    Returns:
        A report to print: a line about the vocabulary, a line about each source, and warnings.

    Raises:
        UserError: the kind is unknown or lacks the normalization, a number is out of range, a source has no text, the
            text cannot fill the vocabulary (VocabularyNotFullError), its distinct characters already exceed the
            vocabulary size, the output is not empty, or an input cannot be read.
    """
    if kind not in TOKENIZERS:
        raise UserError(f"--kind {kind}: unknown; known are {', '.join(TOKENIZERS)}{did_you_mean(kind, TOKENIZERS)}")
    normalization = _checked_normalization(kind, normalization)
    one_or_more = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    paths_of_sources = [list_paths(source) for source in one_or_more] or [[]]  # `find_files` refuses an empty list
    sample.check_sampling_arguments(len(paths_of_sources), smoothing, weights, sample_characters)
    check_not_input(output, (path for source in paths_of_sources for path in source))
    check_output(local_path(output))
    files = [sources.find_files(source, read_options, say) for source in paths_of_sources]
    sources.check_read_options([path for source in files for path in source], read_options)
    reader = _SourceReader(files, read_options, progress)
    rejected: collections.Counter[str] = collections.Counter()
    counts = []
    for index, source in enumerate(paths_of_sources):
        rejections = Rejections()
        counts.append(sample.count_characters(_cut_texts(reader.texts(index, rejections))))
        if not counts[-1].characters:
            hint = hint_for_most_common_reason(rejections.reasons, rejections.fields, read_options)
            rejected_documents = report.rejected_documents_clause(rejections.reasons)
            raise UserError(f"{source[0]}: no text to train a vocabulary from{rejected_documents}; {hint}")
        rejected += rejections.reasons
    sizes = [source.characters for source in counts]
    rates = sample.num_uses_per_source(sizes, smoothing, weights, sample_characters)
    used = sum(size * rate for size, rate in zip(sizes, rates, strict=True))
    if TOKENIZERS[kind].trains_in_memory and used > MAX_IN_MEMORY:
        raise UserError(
            f"--kind {kind} holds the text it is trained on in memory, here {used:,.0f} characters; "
            f"give --sample_characters {MAX_IN_MEMORY} or less"
        )
    samples: list[list[str]] = []

    def pieces() -> Iterator[str]:
        samples[:] = [[] for _ in paths_of_sources]
        for index, (rate, size, sample_pieces) in enumerate(zip(rates, sizes, samples, strict=True)):
            part = min(1.0, report.REPORT_CHARACTERS / size)
            for piece in _cut_texts(reader.texts(index)):
                if part == 1 or sample.hash_fraction(piece) >= 1 - part:  # pieces that the training sample draws last
                    sample_pieces.append(piece)
                yield from [piece] * sample.num_uses_of_piece(piece, rate)
        say(f"learning {vocab_size:,} tokens from {used:,.0f} characters")

    try:
        text = TrainingText(pieces, _weighted_character_frequency(counts, rates))
        tokenizer, files_to_save = _train_kind(text, vocab_size, kind, lowercase, normalization)
    except UserError as error:
        message = f"{error}{report.rejected_documents_clause(rejected)}"
        if isinstance(error, VocabularyNotFullError):
            raise VocabularyNotFullError(message, error.num_tokens) from None
        raise with_message(error, message) from None
    with writing(output):
        save_tokenizer(tokenizer, output, files_to_save)
    case = "uncased" if lowercase else "cased"
    return "\n".join(
        [
            f"{tokenizer.vocab_size:,} tokens, {kind}, {case}, normalization {normalization}, sha256 "
            f"{tokenizer.sha256[:12]}, in {output}{report.rejected_documents_clause(rejected)}",
            *report.source_report_lines(tokenizer, paths_of_sources, counts, rates, samples),
            *report.accent_warning(tokenizer, counts),
            *report.single_token_warning(tokenizer, counts, samples),
        ]
    )


class TrainedTokenizer(NamedTuple):
    """A trained tokenizer, and further files to save with it."""

    tokenizer: Tokenizer
    files: Mapping[str, bytes]


def train_from_texts(
    texts: Callable[[], Iterable[str]],
    vocab_size: int,
    kind: str = "wordpiece",
    lowercase: bool = True,
    normalization: str | None = None,
) -> TrainedTokenizer:
    """Return a tokenizer trained on all of the texts, and further files to save with it.

    Args:
        texts: function that yields all texts; it is called twice.
        vocab_size, kind, lowercase, normalization: as in `train_tokenizer`.

    Raises:
        UserError: the errors of `train_tokenizer` that concern these arguments.
    """

    def pieces() -> Iterator[str]:
        return _cut_texts(texts())

    text = TrainingText(pieces, sample.count_characters(pieces()).frequency)
    return _train_kind(text, vocab_size, kind, lowercase, _checked_normalization(kind, normalization))


def _checked_normalization(kind: str, asked: str | None) -> str:
    """Return the requested normalization, or the kind's default; raise UserError for an unsupported normalization."""
    if asked is None:
        return next(iter(TOKENIZERS[kind].train))
    if asked not in TOKENIZERS[kind].train:
        kinds_of: dict[str, list[str]] = {}
        for row in TOKENIZERS.values():
            kinds_of.setdefault(", ".join(row.train), []).append(row.name)
        known = "; ".join(f"{names} for {' and '.join(kinds)}" for names, kinds in kinds_of.items())
        raise UserError(f"--normalization {asked}: not for --kind {kind}; give {known}")
    return asked


def _train_kind(
    text: TrainingText, vocab_size: int, kind: str, lowercase: bool, normalization: str
) -> TrainedTokenizer:
    """Return a tokenizer of a kind, trained on a text, and further files to save with it."""
    row = TOKENIZERS[kind]
    trained = row.train[normalization](text, vocab_size, lowercase)
    return TrainedTokenizer(build_tokenizer(trained.definition, row.special), trained.files)


class _SourceReader:
    """A reader of the texts of several sources, which reports its progress over two passes."""

    def __init__(self, files: Sequence[Sequence[str]], options: ReadOptions, progress: Progress):
        self._files, self._options = files, options
        self._progress = progress
        self._sizes = [sources.total_bytes(source) for source in files]
        self._done = 0  # bytes of completely read sources, summed over both passes
        self._documents = 0

    def texts(self, source_index: int, rejections: Rejections | None = None) -> Iterator[str]:
        """Yield the texts of a source; documents without text are counted in `rejections`."""
        for raw in sources.read_raw_documents(self._files[source_index], self._options):
            document = sources.to_document(raw, self._options)
            self._documents += raw.piece == 0
            self._progress(self._done + raw.bytes_read, 2 * sum(self._sizes), self._documents)
            if not document.rejected:
                yield document.text
            elif rejections is not None:
                rejections.add(document)
        self._done += self._sizes[source_index]


def _cut_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield all texts, cut into pieces by `cut_text`."""
    return (piece for text in texts for piece in cut_text(text))


def _weighted_character_frequency(counts: Sequence[CharacterCounts], rates: Sequence[float]) -> dict[str, float]:
    """Return the approximate frequency of each character, if the text of source i is used `rates[i]` times."""
    frequency: dict[str, float] = {}
    for source, rate in zip(counts, rates, strict=True):
        for character, count in source.frequency.items():
            frequency[character] = frequency.get(character, 0.0) + rate * count
    return frequency
