"""The corpus that documents are added to: its options, which the new documents are prepared with, and its counts."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_jax.data.manifest import read_manifest
from bert_jax.data.preparation.cleaning.chunk import CleaningCounts
from bert_jax.data.preparation.cleaning.recipe import Recipe, make_step
from bert_jax.data.preparation.corpus_writer import Base, ShardInfo
from bert_jax.data.preparation.encoding import DocumentCounts, PrepareSettings
from bert_jax.data.preparation.segmenters.table import NO_SEGMENTER
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.errors import UserError

# Settings that all documents of a corpus have in common; a manifest names a segmenter where there is one.
SETTINGS = ("language", "heldout_fraction", "deduplicate", "segmenter")


class Existing(NamedTuple):
    """A corpus and what its documents were prepared with."""

    base: Base
    tokenizer: Tokenizer
    settings: PrepareSettings
    recipe: Recipe | None

    def shards(self) -> list[ShardInfo]:
        """Return the sums of each split as one shard."""
        return [
            ShardInfo(name, 0, 0, part["records"], part["documents"], part["sentences"], part["tokens"], 0, "", "")
            for name, part in self.base.manifest["splits"].items()
        ]

    def counts(self) -> DocumentCounts:
        """Return the counts over its documents."""
        documents, counts = self.base.manifest["documents"], self.base.manifest["counts"]
        return DocumentCounts(documents["in"], documents["rejected"], **counts)

    def cleaning_counts(self) -> CleaningCounts:
        """Return the counts of its cleaning."""
        known = self.base.manifest["cleaning"]
        return CleaningCounts(**{name: known[name] for name in CleaningCounts().description()})


def read_existing(
    directory: pathlib.Path,
    tokenizer_directory: Any,
    settings: PrepareSettings,
    given: Mapping[str, Any],
    recipe: Recipe | None,
) -> Existing:
    """Return the corpus in a directory, and `settings` with the options of the corpus.

    Args:
        directory: of the corpus.
        tokenizer_directory: None, or the directory of its tokenizer.
        settings: how the new documents are read.
        given: name -> value, None where it is not given, for `SETTINGS`.
        recipe: None, or the recipe that it was cleaned with.

    Raises:
        UserError: no corpus, or what is given contradicts it.
    """
    manifest = read_manifest(directory)
    if "signatures" not in manifest:
        raise UserError(
            f"{directory}: prepared by a version of bert_jax that kept no signatures of documents, so nothing can be "
            "added; prepare it again"
        )
    known = {name: {"segmenter": NO_SEGMENTER, **manifest["settings"]}[name] for name in SETTINGS}
    for name, value in given.items():
        if value is not None and value != known[name]:
            raise UserError(f"--{name} {value}: {directory} was prepared with {known[name]}; leave the option out")
    tokenizer = load_tokenizer(directory / "tokenizer")
    if tokenizer.sha256 != manifest["tokenizer"]["sha256"]:
        raise UserError(f"{directory / 'tokenizer'}: not the tokenizer of this corpus; copy or prepare it again")
    if tokenizer_directory is not None and load_tokenizer(tokenizer_directory).sha256 != tokenizer.sha256:
        raise UserError(
            f"--tokenizer {tokenizer_directory}: {directory} was prepared with another one; leave the option out"
        )
    cleaning = manifest.get("cleaning", {})
    rules, against = cleaning.get("rules"), tuple(cleaning.get("against", ()))
    own = json.loads(json.dumps(recipe.description()["rules"])) if recipe else {}
    if recipe and (rules is None or list(own.items()) != list(rules.items()) or recipe.against != against):
        was = "with other rules" if cleaning else "without cleaning"
        raise UserError(f"--clean {recipe.name}: {directory} was prepared {was}; leave the option out")
    if recipe and recipe.deduplicate not in ("none", known["deduplicate"]):
        raise UserError(
            f"--clean {recipe.name}: deduplicate = {recipe.deduplicate}, but {directory} was prepared with "
            f"{known['deduplicate']}; leave the option out"
        )
    if rules is not None:
        name = str(directory / "manifest.json")
        recipe = Recipe(
            name, tuple(make_step(name, rule, one) for rule, one in rules.items()), known["deduplicate"], against
        )
    return Existing(Base(directory, manifest), tokenizer, settings._replace(**known), recipe)
