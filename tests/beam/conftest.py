import pytest

from bert_jax.data.preparation import chunks
from tests.beam.small_chunks import small_chunks


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(chunks, "read_chunks", small_chunks)
