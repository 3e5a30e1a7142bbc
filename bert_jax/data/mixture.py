"""One corpus or several as one: languages or sources, prepared each on its own, that rows are drawn from by weights."""

import glob
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from bert_jax.data.corpus import Corpus, Split, open_corpus
from bert_jax.data.staging import staged
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.errors import UserError


class Mixture(NamedTuple):
    """Open corpora of one tokenizer; made by `open_mixture`. Source k of a split is corpus k."""

    corpora: tuple[Corpus, ...]

    @property
    def fingerprint(self) -> str:
        """Hex digest of all that rows are made from; a corpus alone keeps its own."""
        found = [corpus.fingerprint for corpus in self.corpora]
        return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()

    @property
    def tokenizer_sha256(self) -> str:
        """Digest of the tokenizer that made the ids."""
        return self.corpora[0].tokenizer_sha256

    @property
    def vocab_size(self) -> int:
        """Every id is below this."""
        return self.corpora[0].vocab_size

    @property
    def tokenizer_directory(self) -> pathlib.Path:
        """The tokenizer's files."""
        return self.corpora[0].tokenizer_directory

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids; UserError where the files beside the corpus are another's."""
        tokenizer = load_tokenizer(self.tokenizer_directory)
        if tokenizer.sha256 != self.tokenizer_sha256:
            raise UserError(
                f"{self.tokenizer_directory}: not the tokenizer that made this corpus; copy or prepare the corpus again"
            )
        return tokenizer

    def split(self, name: str, least: int = 0) -> Split:
        """'train' or 'heldout' of all corpora, of those alone that have `least` documents there."""
        splits = [corpus.split(name) for corpus in self.corpora]
        enough = [split for split in splits if split.num_documents >= least]
        return Split.join(enough or splits[:1])

    def left_out(self, name: str, least: int) -> list[str]:
        """The corpora that `split` leaves out."""
        return [str(corpus.directory) for corpus in self.corpora if corpus.split(name).num_documents < least]

    def sources(self) -> list[tuple[str, Split]]:
        """Each corpus by name, with its training documents."""
        return [(str(corpus.directory), corpus.split("train")) for corpus in self.corpora]


def open_mixture(places: str, say: Callable[[str], None] = lambda line: None) -> Mixture:
    """The corpora at `places`: directories, patterns of directories or URLs, parted by commas.

    What is copied from a URL is told to `say`.

    Raises:
        UserError: as `open_corpus` and `staged`; a pattern that matches nothing; corpora of different tokenizers.
    """
    corpora = tuple(open_corpus(staged(place, say=say)) for place in find_corpora(places))
    first = corpora[0]
    for other in corpora[1:]:
        if other.tokenizer_sha256 != first.tokenizer_sha256:
            raise UserError(
                f"{other.directory} and {first.directory} were made with different tokenizers; prepare them with one"
            )
    return Mixture(corpora)


def find_corpora(places: str) -> list[str]:
    """The corpora that `places` names, local ones absolute, patterns sorted; no corpus twice.

    Raises:
        UserError: none, a pattern that matches nothing, the same corpus twice, a comma in a path.
    """
    found: list[str] = []
    for place in filter(None, (place.strip() for place in places.split(","))):
        if "://" in place:
            found.append(place)
        elif glob.has_magic(place) and not os.path.exists(place):
            matches = sorted(match for match in glob.glob(place) if os.path.isdir(match))
            if not matches:
                raise UserError(f"{place}: no directory matches this pattern; check --config.data.corpus")
            found += map(os.path.abspath, matches)
        else:
            found.append(os.path.abspath(place))
    if not found:
        raise UserError(f"'{places}' names no corpus; give --config.data.corpus=DIR, made by `bert-jax prepare`")
    for place in found:
        if "," in place:
            raise UserError(f"{place}: commas part the names of corpora, so a path may have none; link to it")
        if found.count(place) > 1:
            raise UserError(f"{place} is named twice in --config.data.corpus; give it a weight instead")
    return found
