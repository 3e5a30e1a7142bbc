"""Outputs of inputs that share rows equal the outputs of each input alone, padded."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.inference.outputs import single_device_predictor
from bert_jax.inference.row_limits import row_limits
from bert_jax.interop.huggingface import load_model
from bert_jax.models import PRESETS, make_model
from bert_jax.parallel.sharding import single_device_mesh
from bert_jax.tasks.batching import Feed, collate
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from tests.helpers.family_cases import CASES as CASES_OF_FAMILIES
from tests.helpers.family_cases import answers, model_of
from tests.helpers.rows_and_padding import make_task
from tests.helpers.tiny_models import MAX_POSITIONS

CASES = [
    ("sequence_classification", "bert"),
    ("regression", "roberta"),
    ("token_classification", "modernbert"),
    ("question_answering", "bert"),
    ("multiple_choice", "albert"),
    ("multilabel_classification", "distilbert"),
    ("similarity", "bert"),
    ("reranking", "bert"),
    ("prompt_classification", "bert"),
]


def test_every_kind_is_compared():
    assert {kind for kind, _ in CASES} == set(KINDS)


@pytest.mark.parametrize(("kind", "family"), CASES)
def test_outputs_equal_the_outputs_of_each_input_alone(tmp_path, kind, family):
    model, _, params, feed, features, _ = make_task(tmp_path, kind, family, None)
    feed, compiled = feed._replace(buckets=(16, MAX_POSITIONS), batch_size=4), []

    def apply(params, batch, rng):
        compiled.append(batch)
        return model.apply(params, batch, rng)

    outputs_of = single_device_predictor(dataclasses.replace(model, apply=apply), params, feed, ComputeConfig())
    outputs = outputs_of(features, lambda done: None)
    assert 1 <= len(compiled) <= 2
    assert all("row_tokens" in batch for batch in compiled)
    alone = jax.jit(lambda params, batch: model.apply(params, batch, None))
    for feature, output in zip(features, outputs, strict=True):
        batch = collate([feature], MAX_POSITIONS, feed.num_token_types, feed.pad_id, 1)
        present = batch["attention_mask"][0] != 0
        for name, expected in alone(params, batch).items():
            ours, theirs = output[name], np.asarray(expected)[0]
            if theirs.shape[: present.ndim] == present.shape:
                ours, theirs = ours[present[..., : ours.shape[present.ndim - 1]]], theirs[present]
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("changes", [{"separator_id": 2}, {"block_size": 64}])
def test_global_tokens_and_blocks_are_padded(changes):
    config = dataclasses.replace(PRESETS["mini"], vocab_size=32)
    mesh = single_device_mesh()
    assert row_limits((config,), (), ComputeConfig(), mesh).max_length == config.max_positions
    assert row_limits((config, dataclasses.replace(config, **changes)), (), ComputeConfig(), mesh) is None


def test_equal_models_share_their_programs(tmp_path):
    """A second predictor of an equal model compiles nothing."""
    model, _, params, feed, features, _ = make_task(tmp_path, "sequence_classification", "bert", None)
    compiled = []

    def listen(event, seconds, **_):
        compiled.append(event) if event.endswith("backend_compile_duration") else None

    def predict():
        equal = make_model(dataclasses.replace(model.config), ComputeConfig(), model.heads)
        return single_device_predictor(equal, params, feed, ComputeConfig())(features, lambda done: None)

    predict()
    jax.monitoring.register_event_duration_secs_listener(listen)
    predict()
    jax.monitoring.unregister_event_duration_listener(listen)
    assert not compiled


def test_a_big_bird_answers_as_transformers_answers_each_text(tmp_path):
    """Short texts, whose attention is dense, long texts, and texts whose last block is not the last of the batch."""
    case, name = CASES_OF_FAMILIES["big_bird"], "BigBirdForSequenceClassification"
    theirs = model_of(case, name)
    theirs.save_pretrained(tmp_path)
    loaded, rng, size = load_model(tmp_path), np.random.default_rng(0), case.length
    lengths = np.array([3, 9, 13, 14, 15, 16, 17, 15, 4, 17, 14])
    ids = rng.integers(5, case.ours.vocab_size, (len(lengths), 1, size))
    mask = (np.arange(size) < lengths[:, None, None]).astype(np.int32)
    features = [
        Features(row[0, :n].astype(np.int32), n, index)
        for index, (row, n) in enumerate(zip(ids, lengths.tolist(), strict=True))
    ]
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)
    feed = Feed((8, size), 4, case.ours.num_token_types, theirs.config.pad_token_id)
    outputs = single_device_predictor(model, loaded.params, feed, ComputeConfig())(features, lambda done: None)
    expected = answers(theirs, {"input_ids": ids * mask, "token_type_ids": 0 * mask, "attention_mask": mask})
    found = np.stack([output["sequence_logits"] for output in outputs])
    np.testing.assert_allclose(found, expected["sequence_logits"][:, 0], rtol=0, atol=1e-5)
