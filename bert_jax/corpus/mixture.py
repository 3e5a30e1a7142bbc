"""Several corpora as one: languages or sources, prepared separately, that sequences are sampled from by weights."""

import glob
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from bert_jax.corpus.cache import Progress, known_snapshots, staged
from bert_jax.corpus.manifest import SHORT, split_snapshot
from bert_jax.corpus.store import Corpus, Split, open_corpus
from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer


class Mixture(NamedTuple):
    """Open corpora with the same tokenizer; made by `open_mixture`. Source k of a split is corpus k."""

    corpora: tuple[Corpus, ...]

    @property
    def fingerprint(self) -> str:
        """Hex digest of all that sequences are made from; that of the corpus where there is only one."""
        found = [corpus.fingerprint for corpus in self.corpora]
        return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()

    @property
    def tokenizer_sha256(self) -> str:
        """Digest of the tokenizer that made the ids."""
        return self.corpora[0].tokenizer_sha256

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary; every id is below it."""
        return self.corpora[0].vocab_size

    @property
    def tokenizer_directory(self) -> pathlib.Path:
        """Directory of the tokenizer's files."""
        return self.corpora[0].tokenizer_directory

    def tokenizer(self) -> "Tokenizer":
        """Return the tokenizer that made the ids; UserError where the files in the corpus are of another."""
        from bert_jax.tokenizer import load_tokenizer  # loads `tokenizers`

        tokenizer = load_tokenizer(self.tokenizer_directory)
        if tokenizer.sha256 != self.tokenizer_sha256:
            raise UserError(
                f"{self.tokenizer_directory}: not the tokenizer that made this corpus; copy or prepare the corpus again"
            )
        return tokenizer

    def split(self, name: str, min_documents: int = 0) -> Split:
        """Return the split 'train' or 'heldout' of all corpora that have at least `min_documents` in it.

        Where no corpus has, it is the split of the first corpus.
        """
        splits = [corpus.split(name) for corpus in self.corpora]
        enough = [split for split in splits if split.num_documents >= min_documents]
        return Split.join(enough or splits[:1])

    def left_out(self, name: str, min_documents: int) -> list[str]:
        """Return the directories of the corpora that have fewer than `min_documents` in the split."""
        return [str(corpus.directory) for corpus in self.corpora if corpus.split(name).num_documents < min_documents]

    def sources(self) -> list[tuple[str, Split]]:
        """Return the directory and the training split of each corpus."""
        return [(str(corpus.directory), corpus.split("train")) for corpus in self.corpora]


def open_mixture(
    corpus: str,
    say: Callable[[str], None] = lambda line: None,
    recorded: str = "",
    progress: Progress = lambda what, done, total, unit: None,
) -> Mixture:
    """Open one or more corpora.

    Args:
        corpus: as `config.data.corpus`: directories, glob patterns or URLs, separated by commas, each with @ and the
            beginning of a fingerprint for another snapshot than the newest.
        say: called with a line of text when a corpus is copied from a URL.
        recorded: `config.data.corpus` of the run that is resumed, whose snapshots are read where `corpus` names none.
        progress: called while a corpus is copied.

    Raises:
        UserError: as `find_corpora`, `staged` and `open_corpus`; the corpora have different tokenizers.
    """
    places = [split_snapshot(place) for place in find_corpora(corpus)]
    before = [split_snapshot(place)[1] for place in find_corpora(recorded)] if recorded else []
    known = before if len(before) == len(places) else [""] * len(places)
    corpora = tuple(
        _open(place, snapshot, old, say, progress) for (place, snapshot), old in zip(places, known, strict=True)
    )
    first = corpora[0]
    for other in corpora[1:]:
        if other.tokenizer_sha256 != first.tokenizer_sha256:
            raise UserError(
                f"{other.directory} and {first.directory} have different tokenizers; prepare both with the same one"
            )
    return Mixture(corpora)


def _open(place: str, snapshot: str, recorded: str, say: Callable[[str], None], progress: Progress) -> Corpus:
    """Open a snapshot; without one, that of a record if the corpus has it, else the newest."""
    if recorded and not snapshot and recorded in [one[: len(recorded)] for one in known_snapshots(place)]:
        snapshot = recorded
    directory = staged(place, say=say, snapshot=snapshot, progress=progress)
    return open_corpus(directory, snapshot)


def name_snapshots(corpus: str, mixture: Mixture) -> str:
    """Return `config.data.corpus` with the snapshot that was opened of each corpus, and absolute directories."""
    places = (split_snapshot(place)[0] for place in find_corpora(corpus))
    return ",".join(f"{place}@{one.fingerprint[:SHORT]}" for place, one in zip(places, mixture.corpora, strict=True))


def find_corpora(corpus: str) -> list[str]:
    """Return the corpora that `config.data.corpus` names: absolute directories, sorted within a pattern, and URLs.

    Raises:
        UserError: no corpus is named, or one twice; a pattern matches nothing; a path contains a comma.
    """
    found: list[str] = []
    for place in filter(None, (place.strip() for place in corpus.split(","))):
        if "://" in place:
            found.append(place)
        elif glob.has_magic(place) and not os.path.exists(split_snapshot(place)[0]):
            matches = sorted(match for match in glob.glob(place) if os.path.isdir(match))
            if not matches:
                raise UserError(f"{place}: no directory matches this pattern; check --config.data.corpus")
            found += map(os.path.abspath, matches)
        else:
            directory, snapshot = split_snapshot(place)
            found.append(os.path.abspath(directory) + (f"@{snapshot}" if snapshot else ""))
    if not found:
        raise UserError(f"'{corpus}' names no corpus; give --config.data.corpus=DIR, made by `bert-jax prepare`")
    for place in found:
        if "," in place:
            raise UserError(f"{place}: commas separate corpora, so a path must not contain any; make a link to it")
        if [split_snapshot(one)[0] for one in found].count(split_snapshot(place)[0]) > 1:
            raise UserError(f"{place} is named twice in --config.data.corpus; give it a weight instead")
    return found
