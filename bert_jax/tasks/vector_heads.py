"""Heads that make vectors of texts, as rows of a table of data, because this package does not import jax."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorHead:
    """A row of VECTOR_HEADS.

    head: a key of models.heads.HEADS, whose output is `sentence_vectors`, `[batch, texts, ...]`
    scores: a key of objectives.vector_scores.SCORES, the comparison of the vectors of queries and documents
    similarity: name of this comparison in sentence-transformers
    opener: class of sentence-transformers that opens an exported model
    description: sentence for the card of a model
    temperature: divisor of the scores in the loss, unless the user gives a divisor
    has_pooling: whether a pooling of the hidden states makes a vector, so that `embed` may choose pooling and layer
    is_sparse: whether a vector has a number for each token of the vocabulary, most of them 0
    can_shorten: whether the first numbers of a vector are a vector
    has_token_vectors: whether a text has a vector for each token; roles and settings choose the tokens
        (late_interaction.py)
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
        can_shorten=False,
    ),
    "late_interaction": VectorHead(
        head="token_embedding",
        scores="max_sim",
        similarity="maxsim",
        opener="MultiVectorEncoder",
        description="A text is a vector of length 1 for each token (late interaction).",
        temperature=1.0,
        has_token_vectors=True,
    ),
}
