"""A model as an encoder of the package `mteb`, for the Massive Text Embedding Benchmark (Muennighoff et al. 2023).

    mteb.evaluate(mteb_encoder("my-vectors/"), tasks)

The package `mteb`, which needs PyTorch, is imported only in this module and is not a requirement of bert_jax.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.inference.embed import HEADS
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, similarity_of, text_vectors


def mteb_encoder(directory: str | os.PathLike[str]) -> "MtebEncoder":
    """Open a model directory of any family as an encoder for `mteb`."""
    return MtebEncoder(open_model(directory, HEADS))


class MtebEncoder:
    """An encoder with the functions of `mteb.EncoderProtocol`, which uses the prompts and the similarity of a model."""

    def __init__(self, model: OpenModel):
        self._model = model
        self._scores = similarity_of(model).scores

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], *, prompt_type: Any = None, **unused: Any
    ) -> np.ndarray:
        """Return the vectors of texts, float32 `[texts, width]`.

        Args:
            inputs: batches, each a dict with a list of texts under the key `text`.
            prompt_type: "query" for queries; with every other value, the texts are documents.
            unused: the task and its split, on which the vectors do not depend.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        role = QUERIES if getattr(prompt_type, "value", prompt_type) == "query" else DOCUMENTS
        vectors = text_vectors(self._model, texts, role).vectors
        return vectors[np.arange(len(vectors))]

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the score of every first vector with every second vector, as a tensor `[first, second]`."""
        import torch

        first, second = (jnp.atleast_2d(jnp.asarray(vectors, jnp.float32)) for vectors in (embeddings1, embeddings2))
        return torch.from_numpy(np.array(self._scores(first, second)))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the score of each pair of vectors at the same index of two lists, as a tensor `[pairs]`."""
        import torch

        first, second = (jnp.asarray(vectors, jnp.float32) for vectors in (embeddings1, embeddings2))
        scores = [self._scores(first[row : row + 1], second[row : row + 1])[0, 0] for row in range(len(first))]
        return torch.from_numpy(np.array(scores, np.float32))

    @property
    def mteb_model_meta(self) -> Any:
        """The name, the size and other facts of the model, which `mteb` saves with the scores."""
        from mteb.models import ModelMeta

        directory, config, sentences = self._model.directory, self._model.config, self._model.sentences
        return ModelMeta.create_empty(
            {
                "name": f"{directory.parent.name or 'local'}/{directory.name}",
                "framework": ["JAX"],
                "embed_dim": config.vocab_size if sentences.is_sparse else sentences.vector_width or config.hidden_size,
                "max_tokens": sentences.max_tokens(config.max_positions),
                "similarity_fn_name": similarity_of(self._model).name,
            }
        )
