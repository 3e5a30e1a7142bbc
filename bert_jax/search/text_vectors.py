"""Vectors of queries and documents, with the prompts of the model's directory, and the function that compares them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.errors import UserError
from bert_jax.inference.embed import EmbedOptions, VectorsAndCount, encode_with_count
from bert_jax.search.top_documents import ScoreFunction, inner_products

CHUNK = 8_192  # texts that are tokenized at once
QUERIES, DOCUMENTS = "queries", "documents"
# Role of a text -> names of its prompt, as sentence-transformers looks for them; without one of them, the default
# prompt of the directory applies.
PROMPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {QUERIES: ("query",), DOCUMENTS: ("document", "passage", "corpus")}
)


class Similarity(NamedTuple):
    """A row of SIMILARITIES: `EmbedOptions.normalize`, and the score of the vectors."""

    normalize: bool | None
    score: ScoreFunction


# Similarity that a directory of sentence-transformers names -> how vectors are made and compared.
SIMILARITIES: dict[str, Similarity] = {
    "cosine": Similarity(True, inner_products),
    "dot": Similarity(None, inner_products),
}


class NamedSimilarity(NamedTuple):
    """The name of a similarity, and its row."""

    name: str
    row: Similarity


def similarity_of(model: OpenModel) -> NamedSimilarity:
    """Return the similarity of a model, the cosine by default; raise UserError for an unsupported similarity."""
    name = model.sentences.similarity or "cosine"
    if name not in SIMILARITIES:
        raise UserError(f"{model.directory}: the similarity {name}; choose a model with {' or '.join(SIMILARITIES)}")
    return NamedSimilarity(name, SIMILARITIES[name])


def text_vectors(
    model: OpenModel, texts: Sequence[str], role: str, progress: Callable[[int], None] = lambda num_done: None
) -> VectorsAndCount:
    """Return the vectors of texts, float32 `[texts, width]`, and the number of texts that were truncated.

    The vectors equal the vectors of `bert-jax embed`.

    Args:
        model: any model; its heads are not used.
        texts: the texts.
        role: QUERIES or DOCUMENTS.
        progress: called with the number of finished texts.
    """
    prompt = next((name for name in PROMPTS[role] if name in model.sentences.prompts), None)
    options = EmbedOptions(truncate=True, prompt_name=prompt, normalize=similarity_of(model).row.normalize)
    chunks, num_truncated = [], 0
    for start in range(0, len(texts), CHUNK):
        progress(start)
        values, num_cut = encode_with_count(model, texts[start : start + CHUNK], options)
        chunks.append(values)
        num_truncated += num_cut
    return VectorsAndCount(np.concatenate(chunks), num_truncated)
