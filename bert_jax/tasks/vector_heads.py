"""Descriptions of the heads that make vectors of texts; they are data, because this package does not import jax."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorHead:
    """The description of a head that makes vectors of texts; a row of VECTOR_HEADS.

    Attributes:
        head: a key of models.heads.HEADS; the head's output is `sentence_vectors`, `[batch, texts, ...]`
        scores: a key of objectives.vector_scores.SCORES: the function that compares vectors of queries and documents
        similarity: name of the comparing function in sentence-transformers
        opener: class of sentence-transformers that opens an exported model
        description: sentence for the card of a model
        temperature: divisor of the scores in the loss, unless the user gives a temperature
        has_pooling: whether the vector is a pooling of the hidden states, so that `embed` may choose pooling and layer
        is_sparse: whether a vector has a number for each token of the vocabulary, most of them 0
        can_shorten: whether the first numbers of a vector can be used as a shorter vector
        suffix: suffix of the files that `embed` writes
        has_token_vectors: whether a text has a vector for each token; late_interaction.py chooses the tokens
    """

    head: str
    scores: str
    similarity: str
    opener: str
    description: str
    temperature: float
    has_pooling: bool = False
    is_sparse: bool = False
    can_shorten: bool = True
    suffix: str = ".npy"
    has_token_vectors: bool = False


VECTOR_HEADS: dict[str, VectorHead] = {
    "dense": VectorHead(
        head="sentence_embedding",
        scores="inner_product",
        similarity="cosine",
        opener="SentenceTransformer",
        description="A text is one vector.",
        temperature=0.05,
        has_pooling=True,
    ),
    "sparse": VectorHead(
        head="sparse_embedding",
        scores="inner_product",
        similarity="dot",
        opener="SparseEncoder",
        description="A text is a sparse vector with a weight for each token of the vocabulary.",
        temperature=1.0,
        is_sparse=True,
        suffix=".npz",
        can_shorten=False,
    ),
    "late_interaction": VectorHead(
        head="token_embedding",
        scores="max_sim",
        similarity="maxsim",
        opener="MultiVectorEncoder",
        description="A text is a vector of length 1 for each token (late interaction).",
        temperature=1.0,
        suffix=".safetensors",
        has_token_vectors=True,
    ),
}
