"""A batch and the outputs that a model has for it, computed by bert_jax: the reference for every other runtime.

An export holds a batch and its expected outputs in `expected_outputs.safetensors`, so that `bert-jax verify --run`
needs no other model.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from bert_jax import __version__
from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.convert.runtimes import Arrays
from bert_jax.errors import UserError
from bert_jax.inference.embed import POOLINGS
from bert_jax.interop.sentence_modules import TOKEN_VECTORS, VECTORS, SentenceModules
from bert_jax.models import Head, Params, make_model
from bert_jax.models.heads import scale_to_unit_length
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import Tokenizer, load_tokenizer

FILE = "expected_outputs.safetensors"
LENGTH, ROWS, CHOICES = 16, 3, 2
OVER_VOCABULARY = ("mlm_logits", "next_logits")  # outputs with logits over the vocabulary; the vocabulary is padded
PER_TOKEN = (
    *("next_logits", "replaced_logits", "token_logits", "start_logits", "end_logits", "last_hidden_state"),
    TOKEN_VECTORS,
)
IMPOSSIBLE = -1e5  # a lower logit means that a token cannot be in an answer
ANSWER_LOGITS = ("start_logits", "end_logits")


@dataclasses.dataclass(frozen=True)
class ExpectedOutputs:
    """A batch, and the outputs that a model has for it."""

    format: str  # a row of export.FORMATS
    batch: dict[str, np.ndarray]  # int32 arrays with `ROWS` rows
    outputs: dict[str, np.ndarray]  # name of an output in bert_jax -> float32 array


def heads_of_exported_program(heads: tuple[Head, ...], sentences: SentenceModules | None) -> tuple[Head, ...]:
    """Return the heads of an exported program; an encoder without a head returns its last hidden states.

    The program of a model of sparse vectors, or of late interaction, returns only the vectors.
    """
    if sentences and not sentences.has_pooling and has_vectors(sentences):
        name = VECTOR_HEADS[sentences.vector_head].head
        return tuple(head for head in heads if head.name == name) or (Head(name),)
    is_pooled = sentences is not None and sentences.has_pooling
    return (*heads, Head("last_hidden_state")) if is_pooled or _is_bare(heads) else heads


def _is_bare(heads: tuple[Head, ...]) -> bool:
    """Return whether a model is an encoder without a head; its program returns the last hidden states."""
    return {head.name for head in heads} <= {"pooled"}


def has_vectors(sentences: SentenceModules | None) -> bool:
    """Return whether a model computes vectors of texts; a CrossEncoder does not."""
    return sentences is not None and not sentences.activation


def add_vectors(
    outputs: dict[str, jax.Array], attention_mask: jax.Array, sentences: SentenceModules, vocab_size: int
) -> dict[str, jax.Array]:
    """Return the outputs with a vector for each text, float32 `[batch, hidden]`, pooled from the last hidden states.

    The vectors are the output `sentence_embedding`. For a model of sparse vectors, `sentence_embedding` is the only
    output, `[batch, vocab]`. For late interaction, the only output is `token_embeddings`, `[batch, length, width]`.
    """
    if sentences.has_token_vectors:
        return {TOKEN_VECTORS: outputs["sentence_vectors"]}
    if sentences.is_sparse:
        return {VECTORS: outputs["sentence_vectors"][..., :vocab_size]}
    pool = POOLINGS[sentences.pooling]
    assert pool  # only the row `tokens` has no function, and sentence-transformers has no such pooling
    vectors = pool(outputs["last_hidden_state"], {"attention_mask": attention_mask})
    return outputs | {VECTORS: scale_to_unit_length(vectors) if sentences.normalize else vectors}


def random_example_batch(config: EncoderConfig, heads: tuple[Head, ...], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Return a batch of three rows of different lengths, from random tokens between the special tokens.

    Returns:
        `input_ids`, `token_type_ids` and `attention_mask`, int32 `[3, length]`, or `[3, choices, length]` for a head of
        multiple choice; for a masked-token head also `masked_positions`, int32 `[3, 2]`.
    """
    names, rng = {head.name for head in heads}, np.random.default_rng(0)
    longest = min(LENGTH, config.max_positions)
    lengths = [longest, max(longest // 2, 3), 3]
    words = np.setdiff1d(np.arange(tokenizer.vocab_size), [*tokenizer.special_ids.values()])
    num_choices = CHOICES if "multiple_choice" in names else 1
    shape = (ROWS, num_choices, longest)
    ids, types, mask = np.full(shape, tokenizer.pad_id, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, length in enumerate(lengths):
        ids[row, :, :length] = rng.choice(words, (num_choices, length))
        ids[row, :, 0], ids[row, :, length - 1] = tokenizer.cls_id, tokenizer.sep_id
        mask[row, :, :length] = 1
        if length > 5:  # a pair of texts
            ids[row, :, length // 2] = tokenizer.sep_id
            types[row, :, length // 2 + 1 : length] = config.num_token_types > 1
    arrays = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    if "multiple_choice" not in names:
        arrays = {name: x[:, 0] for name, x in arrays.items()}
    if "masked_token" in names:
        arrays["masked_positions"] = np.array([[1, length - 1] for length in lengths], np.int32)
    return arrays


def compute_outputs_of_bert_jax(weights: Weights, format_name: str) -> ExpectedOutputs:
    """Make a batch; return it with the outputs of a model, which bert_jax computes in float32.

    Raise UserError if an output is not finite, because no runtime can be compared with such an output.
    """
    heads = heads_of_exported_program(weights.heads, weights.sentences)
    batch = random_example_batch(weights.config, heads, load_tokenizer(weights.directory))
    model = make_model(weights.config, ComputeConfig(attention="xla"), heads)

    @jax.jit
    def run(params: Params, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        outputs = model.apply(params, batch, None)
        outputs = {
            name: x[..., : weights.config.vocab_size] if name in OVER_VOCABULARY else x for name, x in outputs.items()
        }
        if weights.sentences is None or not has_vectors(weights.sentences):
            return outputs
        outputs = add_vectors(outputs, batch["attention_mask"], weights.sentences, weights.config.vocab_size)
        # Beside another head, the last hidden states are computed only for the vectors.
        return {name: x for name, x in outputs.items() if name != "last_hidden_state" or _is_bare(weights.heads)}

    with jax.default_matmul_precision("highest"):
        outputs = run(weights.params, {name: jnp.asarray(x) for name, x in batch.items()})
    arrays = {name: np.asarray(x, np.float32) for name, x in outputs.items()}
    for name, x in arrays.items():
        if not np.isfinite(x).all():
            raise UserError(
                f"{weights.directory}: {name} of a random text is not finite: the weights are damaged or too large"
            )
    return ExpectedOutputs(format_name, batch, arrays)


def serialize_expected_outputs(expected: ExpectedOutputs) -> bytes:
    """Return a batch and its expected outputs as the bytes of the file `expected_outputs.safetensors`."""
    arrays = {f"inputs/{name}": x for name, x in expected.batch.items()}
    arrays |= {f"outputs/{name}": np.ascontiguousarray(x) for name, x in expected.outputs.items()}
    return safetensors.numpy.save(arrays, {"format": expected.format, "bert_jax": __version__})


def read_expected_outputs(path: pathlib.Path) -> ExpectedOutputs:
    """Read `expected_outputs.safetensors`; raise UserError if it is damaged."""
    try:
        with safetensors.safe_open(path, "numpy") as file:
            arrays, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: cannot be read ({error}); export the model again") from None
    inputs, outputs = (
        {name.removeprefix(part): x for name, x in arrays.items() if name.startswith(part)}
        for part in ("inputs/", "outputs/")
    )
    has_rows = all(x.shape[:1] == (ROWS,) for x in arrays.values())
    is_finite = all(np.isfinite(x).all() for x in outputs.values())
    if not outputs or not {"input_ids", "attention_mask"} <= inputs.keys() or not has_rows or not is_finite:
        raise UserError(f"{path}: holds no inputs and outputs of a model; export the model again")
    return ExpectedOutputs(metadata.get("format", ""), inputs, outputs)


def rows_without_padding(arrays: Arrays, batch: Arrays) -> list[dict[str, np.ndarray]]:
    """Return each row of the arrays as a batch of one row, cut to the tokens of this row.

    Args:
        arrays: inputs or outputs of `batch`; arrays without an axis of tokens are not cut.
        batch: the inputs of the model; `attention_mask` is 1 at the tokens.
    """
    lengths = batch["attention_mask"].reshape(ROWS, -1, batch["attention_mask"].shape[-1]).sum(-1).max(-1)
    rows = []
    for row, length in enumerate(lengths):
        cut = {name: x[row : row + 1] for name, x in arrays.items()}
        rows.append(
            {
                name: x[:, : length - 1] if name == "next_logits" else x[:, :length] if name in PER_TOKEN else x
                for name, x in cut.items()
            }
            | {
                name: x[..., :length]
                for name, x in cut.items()
                if name in ("input_ids", "token_type_ids", "attention_mask")
            }
        )
    return rows


def largest_relative_difference(expected: Arrays, actual: Arrays, batch: Arrays) -> float:
    """Return the largest difference at real tokens, divided by max(1, largest absolute expected value of the output).

    Raise UserError if an output has another shape than expected.
    """
    largest = 0.0
    for name, wanted in expected.items():
        x = actual[name]
        if x.shape != wanted.shape:
            raise UserError(f"the output {name} has the shape {x.shape}, not {wanted.shape}")
        counts = wanted > IMPOSSIBLE if name in ANSWER_LOGITS else np.ones(wanted.shape, bool)
        if name in PER_TOKEN:
            mask = batch["attention_mask"][:, : wanted.shape[1]] != 0
            counts &= mask.reshape(mask.shape + (1,) * (wanted.ndim - 2))
        scale = max(1.0, float(np.abs(wanted[counts]).max(initial=0.0)))
        difference = np.abs(x[counts] - wanted[counts]).max(initial=0.0)
        largest = max(largest, float(difference) / scale if np.isfinite(difference) else np.inf)
    return largest
