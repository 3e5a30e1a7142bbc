"""Global tokens beside a window: chunks and rows against all pairs, Longformer at length, memory, unused maps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers

from bert_jax import config as c
from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.models import Head, make_model
from bert_jax.models.attention import local, xla
from bert_jax.models.attention.inputs import AttentionMetadata, GlobalTokens, WindowSpec
from bert_jax.models.attention.patterns import block_sparse_metadata
from bert_jax.models.model import apply_with_attention_weights
from bert_jax.objectives import make_objective
from bert_jax.training.optimizers import make_param_info
from tests.helpers.family_cases import (
    BIG_BIRD,
    CASES,
    COMMON,
    LONGFORMER,
    MODERN,
    MODERNBERT,
    Case,
    answers,
    batch_of,
    compare,
    model_of,
)
from tests.models.test_attention import random_inputs

SHAPE = (2, 701, 2, 8)  # no multiple of a chunk
BESIDE = 5


def maps_of(shape: tuple[int, ...]) -> list[jax.Array]:
    """Queries, keys and values of global tokens."""
    rng = np.random.default_rng(1)
    return [jnp.asarray(rng.normal(size=(*shape[:2], shape[2] * shape[3])), jnp.float32) for _ in range(3)]


def inputs_of(numbers: tuple[int, int], reach: int, shape: tuple[int, ...] = SHAPE):
    """Of two sequences with so many global tokens, the second padded; a window reaches some of these."""
    inputs, gradient = random_inputs(shape)
    mask, chosen = np.ones(shape[:2], np.int32), np.zeros(shape[:2], bool)
    mask[1, 500:] = 0
    for row, number in enumerate(numbers):
        chosen[row, np.random.default_rng(row).choice(500, number, replace=False)] = True
    _, columns = jax.lax.top_k(jnp.asarray(chosen, jnp.int32), BESIDE)
    q, k, v = maps_of(shape)
    tokens = GlobalTokens(mask=jnp.asarray(chosen), columns=columns, q=q, k=k, v=v)
    window = WindowSpec(radius=reach, num_gathered=BESIDE, gathers_all=max(numbers) <= BESIDE)
    inputs = dataclasses.replace(inputs, mask=jnp.asarray(mask), radius=reach, window=window, global_tokens=tokens)
    return inputs, gradient * mask[..., None]


@pytest.mark.parametrize(("numbers", "reach", "computed"), [((5, 3), 64, "chunks"), ((9, 0), 70, "rows")])
def test_every_way_equals_all_pairs(numbers: tuple[int, int], reach: int, computed: str) -> None:
    """Results and gradients at real tokens, with the same dropout; more tokens than chunks read: by rows."""
    inputs, gradient = inputs_of(numbers, reach)
    assert local.chunks_save_work(inputs)
    assert inputs.window.gathers_all == (computed == "chunks")

    def run(which, *maps):
        q, k, v, *own = maps
        tokens = dataclasses.replace(inputs.global_tokens, **dict(zip("qkv", own, strict=True)))
        return which(dataclasses.replace(inputs, q=q, k=k, v=v, global_tokens=tokens), 0.3)

    maps = (inputs.q, inputs.k, inputs.v, *(getattr(inputs.global_tokens, name) for name in "qkv"))
    (found, pull), (expected, pull_expected) = (
        jax.vjp(jax.jit(lambda *maps, which=which: run(which, *maps)), *maps)
        for which in (xla.xla_attention, xla.dense_attention)
    )
    real = np.asarray(inputs.mask, bool)
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=1e-5)
    for ours, theirs in zip(pull(gradient), pull_expected(gradient), strict=True):
        assert np.abs(theirs).max() > 0.01
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_all_pairs_equal_a_literal_rule() -> None:
    """A loop over queries and heads of a short sequence."""
    inputs, maps = random_inputs((2, 23, 2, 8))[0], maps_of((2, 23, 2, 8))
    chosen = np.zeros((2, 23), bool)
    chosen[0, [0, 7]] = True
    tokens = GlobalTokens(mask=jnp.asarray(chosen), **dict(zip("qkv", maps, strict=True)))
    inputs = dataclasses.replace(inputs, radius=2, global_tokens=tokens)
    ordinary_maps = inputs.q, inputs.k, inputs.v
    mask = np.asarray(inputs.mask)[0]
    found = np.asarray(xla.xla_attention(inputs, 0.0))[0].reshape(23, 2, 8)
    for query in np.flatnonzero(mask):
        q, k, v = (np.asarray(x)[0].reshape(23, 2, 8) for x in (maps if chosen[0, query] else ordinary_maps))
        keys = [j for j in np.flatnonzero(mask) if chosen[0, query] or abs(query - j) <= 2 or chosen[0, j]]
        for head in range(2):
            weights = np.exp(k[keys, head] @ q[query, head] / np.sqrt(8))
            np.testing.assert_allclose(found[query, head], weights / weights.sum() @ v[keys, head], rtol=0, atol=1e-5)


def longformer_of(length: int, *windows: int) -> Case:
    """Of one window, or of one for each layer."""
    positions, each = {"max_position_embeddings": length + 2}, windows if len(windows) > 1 else None
    theirs = transformers.LongformerConfig(**COMMON | positions, attention_window=[*windows] if each else windows[0])
    ours = dataclasses.replace(LONGFORMER, max_positions=length, local_window=max(windows), local_windows=each)
    return Case(theirs, ours, length)


def with_question(batch: dict[str, np.ndarray], tokens: int, separator: int) -> dict[str, np.ndarray]:
    """The batch with separators after so many tokens, and at the end."""
    ids, ends = batch["input_ids"].copy(), batch["attention_mask"].sum(-1) - 1
    ids[ids == separator] = 7
    ids[..., tokens : tokens + 2] = separator
    np.put_along_axis(ids, ends[..., None], separator, axis=-1)
    return batch | {"input_ids": ids}


def big_bird_of(length: int) -> Case:
    positions = -(-length // 64) * 64  # transformers reads the positions of whole blocks
    theirs = transformers.BigBirdConfig(**COMMON | {"max_position_embeddings": positions}, sep_token_id=3)
    return Case(theirs, dataclasses.replace(BIG_BIRD, max_positions=positions, block_size=64, random_blocks=3), length)


def modernbert_of(length: int) -> Case:
    """Local blocks with the window of the published models, and every third global."""
    theirs = transformers.ModernBertConfig(**MODERN | {"max_position_embeddings": length, "local_attention": 128})
    return Case(theirs, dataclasses.replace(MODERNBERT, max_positions=length, local_window=128), length)


LONGFORMERS = ("LongformerForSequenceClassification", "LongformerForQuestionAnswering", "LongformerForMaskedLM")
BIG_BIRDS = ("BigBirdForSequenceClassification", "BigBirdForMaskedLM", "BigBirdForQuestionAnswering")
SHORTER = [(LONGFORMERS[0], longformer_of(700, 64)), (LONGFORMERS[1], longformer_of(700, 64))]
SHORTER += [(LONGFORMERS[0], longformer_of(700, 64, 16)), (BIG_BIRDS[0], big_bird_of(800))]
PUBLISHED = [(name, longformer_of(4096, 512)) for name in LONGFORMERS]
PUBLISHED += [(name, big_bird_of(4096)) for name in BIG_BIRDS]
PUBLISHED += [("ModernBertForMaskedLM", modernbert_of(8192))]
CASES_AT_LENGTH = [*SHORTER, *(pytest.param(*one, marks=pytest.mark.slow) for one in PUBLISHED)]


@pytest.mark.parametrize(("name", "case"), CASES_AT_LENGTH, ids=lambda x: x if isinstance(x, str) else str(x.length))
def test_a_long_input_equals_the_reference(name: str, case: Case, tmp_path) -> None:
    """By chunks, in every layer and in the answers."""
    theirs = model_of(case, name)
    theirs.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    batch = batch_of(case, rows=1)
    if case.ours.separator_id is not None:
        batch = with_question(batch, 60, case.ours.separator_id)
    batch["masked_positions"] = batch["masked_positions"][:, :7]
    assert loaded.config == case.ours
    model = make_model(loaded.config, ComputeConfig(), (*loaded.heads, Head("hidden_states")))
    expected = answers(theirs, batch)
    if "mlm_logits" in expected:
        expected["mlm_logits"] = expected["mlm_logits"][:, :7]
    compare(jax.jit(model.apply)(loaded.params, batch, None), expected, batch)


def test_blocks_of_long_inputs_equal_a_literal_rule() -> None:
    """In chunks and from all pairs; of a program for any length, also where the sequence is short."""
    for length in (21, 800):
        size, blocks = (2, -(-21 // 2)) if length == 21 else (16, 50)
        inputs, _ = random_inputs((2, length, 2, 8))
        metadata = block_sparse_metadata(AttentionMetadata(mask=inputs.mask), size, random_blocks=2)
        tokens = dataclasses.replace(metadata.global_tokens, q=inputs.q, k=inputs.k, v=inputs.v)
        inputs = dataclasses.replace(inputs, radius=size, window=metadata.window, global_tokens=tokens)
        assert local.chunks_save_work(inputs) == (length == 800)
        found, mask = (
            np.asarray(jax.jit(xla.xla_attention, static_argnums=1)(inputs, 0.0))[0],
            np.asarray(inputs.mask)[0],
        )
        q, k, v = (np.asarray(x)[0].reshape(length, 2, 8) for x in (inputs.q, inputs.k, inputs.v))
        for query in np.random.default_rng(0).permutation(np.flatnonzero(mask))[:60]:
            own, keys = query // size, np.arange(length) // size
            ends = own in (0, blocks - 1)
            times = np.where(ends | (np.abs(keys - own) <= 1) | (keys == blocks - 1), 1, 0)
            times = mask * np.where((keys == 0) & ~np.array(ends), 3, times)
            for head in range(2):
                weights = times * np.exp(k[:, head] @ q[query, head] / np.sqrt(8))
                expected = weights / weights.sum() @ v[:, head]
                np.testing.assert_allclose(found[query].reshape(2, 8)[head], expected, rtol=0, atol=1e-5)


def test_packed_sequences_of_blocks_are_refused() -> None:
    packed = AttentionMetadata(mask=jnp.ones((1, 99), jnp.int32), segments=jnp.ones((1, 99), jnp.int32))
    with pytest.raises(UserError, match=r"packed sequences of 99 tokens: .* above 44 .*packing=1"):
        block_sparse_metadata(packed, 4, random_blocks=3)
    assert block_sparse_metadata(packed, 16, random_blocks=3) == packed


@pytest.mark.parametrize("of_teacher", [False, True])
def test_a_run_refuses_packed_sequences_of_blocks_in_any_phase(of_teacher: bool) -> None:
    """Before its first step, and not when the step of a later phase is compiled."""
    made = c.pretrain_config()
    made.model.update(vocab_size=100, hidden_size=32, num_layers=1, num_heads=2, mlp_size=64, max_positions=256)
    made.data.sentence_pairs = "full_sentences"
    made.train.phases = c.phases({"seq_len": 44, "fraction": 0.9}, {"seq_len": 48, "fraction": 0.1})
    dense = c.resolve(c.PretrainConfig, made).model
    sparse, teacher = dataclasses.replace(dense, family="big_bird", block_size=4, random_blocks=3), None
    if of_teacher:
        made.update(objective="distillation", distillation={"teacher": "somewhere", "cosine_weight": 0.0})
        teacher = sparse
    else:
        made.model.update(family="big_bird", block_size=4, random_blocks=3)
    assert make_objective(c.resolve(c.PretrainConfig, made), teacher)
    made.data.packing = 2
    with pytest.raises(UserError, match=r"packing=2: .* of up to 44 tokens, and .*phases\[1\].seq_len=48; set .*=1"):
        make_objective(c.resolve(c.PretrainConfig, made), teacher)
    made.train.phases[0].fraction, made.train.phases[1].fraction = 1.0, 0.0
    assert make_objective(c.resolve(c.PretrainConfig, made), teacher)


def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    """Of a program with both ways, forward and backward; compiled and not run."""

    def temporary(length: int) -> int:
        inputs, gradient = inputs_of((9, 0), 64, (2, length, 2, 8))
        pull = jax.jit(
            lambda inputs, gradient: jax.vjp(
                lambda q: xla.xla_attention(dataclasses.replace(inputs, q=q), 0.1), inputs.q
            )[1](gradient)
        )
        static = dataclasses.replace(inputs, radius=jnp.asarray(64))
        return pull.lower(static, gradient).compile().memory_analysis().temp_size_in_bytes

    assert temporary(4096) < 4.2 * temporary(1024)


@pytest.mark.parametrize(("head", "used"), [("masked_token", False), ("sequence_classification", True)])
def test_unused_maps_do_not_decay(head: str, used: bool) -> None:
    """Without a head that makes tokens global they have no gradient, and must stay as they are for the next task."""
    model = make_model(CASES["longformer"].ours, ComputeConfig(), (Head(head, 2),))
    info = make_param_info(model.logical_axes, model.sections)
    attention = info.decayed["encoder"]["layers"]["attention"]
    for name in ("query", "key", "value"):
        assert attention[name]["kernel"]
        assert attention[f"{name}_global"]["kernel"] == used
        assert info.linear["encoder"]["layers"]["attention"][f"{name}_global"]["kernel"] == used


def test_weights_of_attention_make_the_same_answers() -> None:
    """Those of global tokens read the values of global tokens."""
    case = CASES["longformer"]
    heads, batch = (Head("question_answering"),), {k: x[:, 0] for k, x in batch_of(case).items() if x.ndim == 3}
    model = make_model(case.ours, ComputeConfig(), heads)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(lambda x: 0.2 * rng.standard_normal(x.shape).astype(np.float32), shapes)
    probes = jnp.zeros((2, 2, 3, 17, 17))
    found, weights = jax.jit(lambda params: apply_with_attention_weights(case.ours, heads, params, batch, probes))(
        params
    )
    expected = jax.jit(model.apply)(params, batch, None)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.sum(weights[0], -1), 1, atol=1e-5)
