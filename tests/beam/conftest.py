"""Small chunks for every test of Beam."""

import pytest

from bert_jax.corpus.build import chunks


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # Importing it changes the sizes of chunks for the rest of this process.
    from tests.beam.small_chunks import small_chunks

    monkeypatch.setattr(chunks, "read_chunks", small_chunks)
