"""Vectors of queries and documents, made with the prompts in the model's directory, and comparisons of vectors."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.errors import UserError
from bert_jax.inference.embed import EmbedOptions, VectorsAndCount, encode_and_count_truncated
from bert_jax.inference.vectors import join_vectors
from bert_jax.objectives.vector_scores import SCORES, Scores
from bert_jax.tasks.vector_heads import VECTOR_HEADS

CHUNK = 8_192  # texts that are tokenized at once
QUERIES, DOCUMENTS = "queries", "documents"
# Role of a text -> names of its prompt; the first name in the model directory applies, else the default prompt of the
# directory. `encode_document` of sentence-transformers 6 reads only "document", and ignores the default prompt.
PROMPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {QUERIES: ("query",), DOCUMENTS: ("document", "passage", "corpus")}
)
# Similarity of a directory of sentence-transformers -> `EmbedOptions.normalize` before the comparison.
SIMILARITIES = {"cosine": True, "dot": None, "maxsim": None}


class Similarity(NamedTuple):
    """The name of a similarity, as `EmbedOptions.normalize`, and the function that compares vectors."""

    name: str
    normalize: bool | None
    scores: Scores


def similarity_of(model: OpenModel) -> Similarity:
    """Return the similarity that a model names, else the similarity of its head; raise UserError if unsupported."""
    head = VECTOR_HEADS[model.sentences.vector_head]
    name = model.sentences.similarity or head.similarity
    if name not in SIMILARITIES:
        raise UserError(f"{model.directory}: the similarity {name}; choose a model with {' or '.join(SIMILARITIES)}")
    return Similarity(name, SIMILARITIES[name], SCORES[head.scores])


def prompt_of_role(prompts: Mapping[str, str], default_prompt: str, role: str) -> str:
    """Return the prompt before texts of a role, QUERIES or DOCUMENTS, in a model directory with these prompts."""
    return next((prompts[name] for name in PROMPTS[role] if name in prompts), default_prompt)


def text_vectors(
    model: OpenModel, texts: Sequence[str], role: str, progress: Callable[[int], None] = lambda num_done: None
) -> VectorsAndCount:
    """Return the vectors of texts, and the number of texts that were truncated.

    The vectors equal the vectors that `bert-jax embed` makes.

    Args:
        model: any model; the model's heads are used only if the model's directory names a head that makes vectors.
        texts: the texts.
        role: role of the texts, QUERIES or DOCUMENTS.
        progress: function that is called with the number of finished texts, after each text.
    """
    prompt = next((name for name in PROMPTS[role] if name in model.sentences.prompts), None)
    options = EmbedOptions(truncate=True, prompt_name=prompt, normalize=similarity_of(model).normalize)
    chunks, num_truncated = [], 0
    for start in range(0, len(texts), CHUNK):

        def report(num_done: int, num_before: int = start) -> None:
            progress(num_before + num_done)

        values, num_cut = encode_and_count_truncated(model, texts[start : start + CHUNK], options, report)
        chunks.append(values)
        num_truncated += num_cut
    return VectorsAndCount(join_vectors(chunks), num_truncated)
