"""The new files of a corpus move into it, the manifest last; what is there stays as it is."""

import os
import pathlib

from bert_jax.data.manifest import MANIFEST
from bert_jax.data.preparation.corpus_writer import Base
from bert_jax.files import SUMS, new_file, sync, write_sums


def publish_append(place: pathlib.Path, base: Base) -> None:
    """Move the files in `place` into the corpus, so that it has them all or, for a reader, none.

    A kill leaves files that no manifest names, and the next append replaces or removes them.
    """
    for path in base.directory.glob(f"*.{base.number}-*-of-*.arrayrecord"):
        path.unlink()
    for path in sorted(place.iterdir()):
        if path.name != MANIFEST:
            os.replace(path, base.directory / path.name)
    with new_file(base.directory / base.kept_name, binary=True) as file:
        file.write((base.directory / MANIFEST).read_bytes())
    os.replace(place / MANIFEST, base.directory / MANIFEST)
    sync(base.directory)
    if (base.directory / SUMS).exists():
        write_sums(base.directory)
