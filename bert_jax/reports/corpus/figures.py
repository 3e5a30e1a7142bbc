"""The figures of a corpus or mixture before training, and of its sequences."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.batches.masking import MAX_WORD_TOKENS
from bert_jax.batches.pipeline import Sequences
from bert_jax.batches.statistics import SequenceFigures, covered_token_fractions, sequence_figures
from bert_jax.config import DataConfig
from bert_jax.corpus.copies import Duplicates, Leaks, count_duplicates, count_leaked_near_copies
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.statistics import (
    QUANTILES,
    Distribution,
    TokenFigures,
    document_sizes,
    expected_num_predictions,
    length_distribution,
    token_figures,
)
from bert_jax.corpus.store import Split
from bert_jax.reports.corpus.examples import SequenceExample, plain_text, replace_control_characters, vocabulary_entry

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

NUM_FREQUENT = 20  # most frequent tokens that are shown
CHARACTERS = ("unknown_character_fraction", "changed_character_fractions", "counts")  # keys of a manifest
NO_SEGMENTER = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSource:
    """The figures of a single corpus or of a corpus in a mixture."""

    name: str
    train: dict[str, int]  # numbers of documents, sentences and tokens
    heldout: dict[str, int]
    prepared: dict[str, Any]  # figures of the preparation, from the manifest
    rejected: dict[str, int]  # number of rejected documents by reason
    tokens_fraction: float  # fraction of the mixture's tokens
    sequences_fraction: float | None  # fraction of the mixture's sequences; None: the mixture has no sequences
    epochs: float | None  # times that an epoch of the mixture reads the corpus
    changes: str = ""  # warning about characters that the tokenizer changes; "" for no warning


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusFigures:
    """All figures of a corpus or mixture."""

    sources: tuple[CorpusSource, ...]
    tokenizer: dict[str, str | int | bool]
    documents: Distribution  # distribution of the tokens per document
    sentences_per_document: Distribution
    one_sentence: float  # fraction of the documents
    tokens: TokenFigures
    frequent: Sequence[tuple[str, float]]  # tokens as the vocabulary spells them, and their fractions of all tokens
    unused: int  # vocabulary entries that never occur
    duplicates: Duplicates
    leaks: Leaks
    sequences: SequenceFigures | None  # None: the corpus has too few documents
    no_sequences: str  # the reason why there are no sequences
    coverage: (
        tuple[float, float] | None
    )  # fraction of the tokens that one epoch contains, and fraction that two epochs contain
    data: DataConfig
    num_predictions: int  # expected number of predictions of an evaluation


def corpus_figures(
    mixture: Mixture,
    tokenizer: "Tokenizer",
    sequences: Sequences | None,
    no_sequences: str,
    seq_len: int,
    data: DataConfig,
    evaluated_fraction: float,
) -> CorpusFigures:
    """Return all figures of a mixture and, if sequences are given, of these sequences.

    `evaluated_fraction` is the fraction of the held-out tokens that an evaluation predicts.
    """
    train, heldout = mixture.split("train"), mixture.split("heldout")
    num_tokens, num_sentences = document_sizes(train)
    tokens = token_figures(train, tokenizer, MAX_WORD_TOKENS)
    special = {getattr(tokenizer, f"{role}_id") for role in tokenizer.special._fields}
    order = np.argsort(-tokens.counts, kind="stable")[:NUM_FREQUENT]
    return CorpusFigures(
        sources=tuple(_corpus_sources(mixture, sequences, tokenizer)),
        tokenizer=dict(mixture.corpora[0].manifest["tokenizer"]),
        documents=length_distribution(num_tokens),
        sentences_per_document=length_distribution(num_sentences),
        one_sentence=float((num_sentences == 1).mean()),
        tokens=tokens,
        frequent=[
            (
                replace_control_characters(vocabulary_entry(token, tokenizer)),
                float(tokens.counts[token] / tokens.tokens),
            )
            for token in order.tolist()
            if tokens.counts[token]
        ],
        unused=int((np.delete(tokens.counts, sorted(special)) == 0).sum()),
        duplicates=count_duplicates(train, heldout),
        leaks=count_leaked_near_copies(train, heldout),
        sequences=sequence_figures(sequences, tokenizer.mask_id) if sequences else None,
        no_sequences=no_sequences,
        coverage=covered_token_fractions(train, tokenizer.separators, seq_len, data) if sequences else None,
        data=data,
        num_predictions=expected_num_predictions(heldout.num_tokens, evaluated_fraction),
    )


def _corpus_sources(mixture: Mixture, sequences: Sequences | None, tokenizer: "Tokenizer") -> list[CorpusSource]:
    """Return the figures of each corpus of a mixture."""
    from bert_jax.tokenizer.changes import changes_warning

    paths = [str(corpus.directory) for corpus in mixture.corpora]
    parent = os.path.commonpath([os.path.dirname(path) for path in paths])
    total = sum(corpus.split("train").num_tokens for corpus in mixture.corpora)
    sources = []
    for index, (path, corpus) in enumerate(zip(paths, mixture.corpora, strict=True)):
        manifest, fraction, epochs = corpus.manifest, None, None
        if sequences:
            num_sequences = sequences.num_per_source[index]
            fraction = float(num_sequences / sequences.num_per_source.sum())
            epochs = float(num_sequences / max(1, sequences.num_items[index]))
        documents, settings = manifest["documents"], manifest["settings"]
        source = CorpusSource(
            name=os.path.relpath(path, parent),
            train=_split_sizes(corpus.split("train")),
            heldout=_split_sizes(corpus.split("heldout")),
            prepared={
                "in": documents["in"],
                "stored": documents["stored"],
                "sentences_split": manifest["sentences_split"],
                "language": settings["language"],
                **{key: manifest[key] for key in CHARACTERS},
                "segmenter": settings.get("segmenter", NO_SEGMENTER),
            },
            rejected=documents["rejected"],
            tokens_fraction=corpus.split("train").num_tokens / total,
            sequences_fraction=fraction,
            epochs=epochs,
            changes=changes_warning(tokenizer, manifest["changed_character_fractions"]),
        )
        sources.append(source)
    return sources


def _split_sizes(split: Split) -> dict[str, int]:
    return {"documents": split.num_documents, "sentences": split.num_sentences, "tokens": split.num_tokens}


def figures_json(
    figures: CorpusFigures, warnings: Mapping[str, str], examples: Mapping[int, Sequence[SequenceExample]]
) -> dict[str, Any]:
    """Return counts and fractions for JSON. The argument `examples` maps sequence numbers to examples."""
    tokens = dict(vars(figures.tokens))
    del tokens["counts"]
    return {
        "sources": [vars(source) for source in figures.sources],
        "tokenizer": figures.tokenizer,
        "document_tokens": _distribution_json(figures.documents),
        "document_sentences": _distribution_json(figures.sentences_per_document),
        "sentence_tokens": _distribution_json(tokens.pop("sentences")),
        "one_sentence_fraction": figures.one_sentence,
        "tokens": tokens,
        "most_frequent": [{"token": token, "fraction": fraction} for token, fraction in figures.frequent],
        "vocabulary_unused": figures.unused,
        "duplicates": figures.duplicates._asdict(),
        "leaks": figures.leaks._asdict(),
        "sequences": figures.sequences and _sequences_json(figures.sequences),
        "no_sequences": figures.no_sequences,
        "coverage": figures.coverage and {"one epoch": figures.coverage[0], "two epochs": figures.coverage[1]},
        "warnings": dict(warnings),
        "examples": [
            {"sequence": sequence_number, "label": example.label, "texts": [plain_text(text) for text in example.texts]}
            for sequence_number, of_sequence in examples.items()
            for example in of_sequence
        ],
    }


def _sequences_json(figures: SequenceFigures) -> dict[str, Any]:
    """Return the figures of sequences as a dict, with the keys of the JSON output."""
    names = {"unchanged": "kept", "positive_pairs": "labelled"}
    return {names.get(name, name): value for name, value in vars(figures).items()}


def _distribution_json(lengths: Distribution) -> dict[str, Any]:
    return {
        "number": lengths.num_lengths,
        "mean": lengths.mean,
        "quantiles": {f"{quantile:g}": value for quantile, value in zip(QUANTILES, lengths.quantiles, strict=True)},
        "from_powers_of_two": {str(1 << power): count for power, count in enumerate(lengths.doublings)},
    }
