"""A mixture of corpora: languages or sources, prepared separately, from which sequences are sampled by weights."""

import glob
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bert_jax.corpus.cache import ShowProgress, copy_corpus_to_cache, read_snapshot_fingerprints
from bert_jax.corpus.manifest import SHORT, CorpusAndSnapshot, parse_corpus_and_snapshot
from bert_jax.corpus.store import Corpus, Split, open_corpus
from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer


class MixtureSource(NamedTuple):
    """The directory of a corpus, and its training split."""

    directory: str
    split: Split


class Mixture:
    """Several opened corpora with the same tokenizer; made by `open_mixture`. Source k of a split is corpus k.

    Attributes:
        corpora: one or more corpora.
        fingerprint: hex digest of everything that sequences depend on; with one corpus, the fingerprint of the corpus.
        vocab_size, tokenizer_sha256, tokenizer_directory: values of the first corpus, as in `Corpus`.
    """

    def __init__(self, corpora: Sequence[Corpus]):
        self.corpora = tuple(corpora)
        parts = [corpus.fingerprint for corpus in corpora]
        self.fingerprint = parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()
        self.vocab_size, self.tokenizer_sha256 = corpora[0].vocab_size, corpora[0].tokenizer_sha256
        self.tokenizer_directory = corpora[0].tokenizer_directory

    def tokenizer(self) -> "Tokenizer":
        """Return the tokenizer that made the ids; raise UserError if the corpus has another tokenizer."""
        from bert_jax.tokenizer import load_tokenizer  # this import loads the library `tokenizers`

        tokenizer = load_tokenizer(self.tokenizer_directory)
        if tokenizer.sha256 != self.tokenizer_sha256:
            raise UserError(
                f"{self.tokenizer_directory}: not the tokenizer that made this corpus; copy or prepare the corpus again"
            )
        return tokenizer

    def split(self, name: str, min_documents: int = 0) -> Split:
        """Return the split 'train' or 'heldout' of all corpora with at least `min_documents` documents in this split.

        If no corpus has `min_documents` documents, return the split of the first corpus.
        """
        splits = [corpus.split(name) for corpus in self.corpora]
        enough = [split for split in splits if split.num_documents >= min_documents] or splits[:1]
        return enough[0] if len(enough) == 1 else Split.join(enough)

    def directories_left_out(self, split: str, min_documents: int) -> list[str]:
        """Return the directories of the corpora that have fewer than `min_documents` documents in a split."""
        return [str(corpus.directory) for corpus in self.corpora if corpus.split(split).num_documents < min_documents]

    def sources(self) -> list[MixtureSource]:
        """Return the directory and the training split of each corpus."""
        return [MixtureSource(str(corpus.directory), corpus.split("train")) for corpus in self.corpora]


def open_mixture(
    corpus: str,
    say: Callable[[str], None] = lambda line: None,
    recorded: str | None = None,
    progress: ShowProgress = lambda what, done, total, unit: None,
) -> Mixture:
    """Open one or more corpora.

    Args:
        corpus: value of `config.data.corpus`: directories, glob patterns or URLs, separated by commas.
            CORPUS@FINGERPRINT, with the beginning of a fingerprint, names an older snapshot.
        say: function that prints a line; called when a corpus is copied from a URL.
        recorded: `config.data.corpus` of the resumed run; its snapshots are read if `corpus` names no snapshot.
        progress: called while a corpus is copied.

    Raises:
        UserError: `find_corpora`, `copy_corpus_to_cache` or `open_corpus` raises it, or the corpora have different
            tokenizers.
    """
    named = [parse_corpus_and_snapshot(item) for item in find_corpora(corpus)]
    if recorded:
        named = _with_recorded_snapshots(named, recorded)
    corpora = []
    for path, snapshot in named:
        is_url = "://" in path
        directory = copy_corpus_to_cache(path, say=say, snapshot=snapshot, progress=progress) if is_url else path
        corpora.append(open_corpus(directory, snapshot))
    first = corpora[0]
    for later in corpora[1:]:
        if later.tokenizer_sha256 != first.tokenizer_sha256:
            raise UserError(
                f"{later.directory} and {first.directory} have different tokenizers; prepare both with one tokenizer"
            )
    return Mixture(corpora)


def _with_recorded_snapshots(named: Sequence[CorpusAndSnapshot], recorded: str) -> list[CorpusAndSnapshot]:
    """Return corpora; a corpus without a named snapshot gets the snapshot that a resumed run recorded."""
    recorded_snapshots = snapshots_of(recorded)
    if len(recorded_snapshots) != len(named):
        return list(named)
    return [
        CorpusAndSnapshot(path, recorded_snapshot)
        if not snapshot
        and recorded_snapshot
        and any(value.startswith(recorded_snapshot) for value in read_snapshot_fingerprints(path))
        else CorpusAndSnapshot(path, snapshot)
        for (path, snapshot), recorded_snapshot in zip(named, recorded_snapshots, strict=True)
    ]


def corpus_setting_with_snapshots(setting: str, mixture: Mixture) -> str:
    """Return a value of `config.data.corpus` that names the absolute directory and opened snapshot of each corpus."""
    paths = (parse_corpus_and_snapshot(item)[0] for item in find_corpora(setting))
    return ",".join(f"{path}@{opened.fingerprint[:SHORT]}" for path, opened in zip(paths, mixture.corpora, strict=True))


def snapshots_of(setting: str | None) -> list[str]:
    """Return the snapshot of each corpus that `config.data.corpus` names, "" for no snapshot; [] for the value None."""
    return [parse_corpus_and_snapshot(item).snapshot for item in find_corpora(setting)] if setting else []


def find_corpora(corpus: str) -> list[str]:
    """Return the corpora that `config.data.corpus` names: absolute directories, sorted within a pattern, and URLs.

    Raises:
        UserError: no corpus is named; a corpus is named twice; a pattern matches nothing; a path contains a comma.
    """
    corpora: list[str] = []
    for item in filter(None, (item.strip() for item in corpus.split(","))):
        if "://" in item:
            corpora.append(item)
        elif glob.has_magic(item) and not os.path.exists(parse_corpus_and_snapshot(item)[0]):
            matches = sorted(match for match in glob.glob(item) if os.path.isdir(match))
            if not matches:
                raise UserError(f"{item}: no directory matches this pattern; check the path")
            corpora += map(os.path.abspath, matches)
        else:
            directory, snapshot = parse_corpus_and_snapshot(item)
            corpora.append(os.path.abspath(directory) + (f"@{snapshot}" if snapshot else ""))
    if not corpora:
        raise UserError(f"'{corpus}' is not a corpus; give a directory made by `bert-jax prepare`")
    paths = [parse_corpus_and_snapshot(item)[0] for item in corpora]
    for item, path in zip(corpora, paths, strict=True):
        if "," in item:
            raise UserError(
                f"{item}: commas separate corpora, so a path must not contain a comma; make a link to the directory"
            )
        if paths.count(path) > 1:
            raise UserError(f"{item} is named twice; name it once, with a weight (config.data.weights)")
    return corpora
