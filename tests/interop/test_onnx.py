"""Exported ONNX files under onnxruntime give our logits, also for batch sizes and lengths that were not exported."""

import json

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.onnx_file import export_onnx, quantize_onnx
from bert_jax.models import make_model
from tests.helpers import tiny_models
from tests.helpers.family_cases import CASES, answers, batch_of, compare, model_of
from tests.helpers.tokenizer_directories import of_family

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["roberta", pytest.param("albert", marks=pytest.mark.slow)])
@pytest.mark.parametrize("has_pooler", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_encoder_without_pooler_has_no_random_output(tmp_path, family, has_pooler):
    """For weights without a pooler, transformers would make a pooler of random weights."""
    model, _ = tiny_models.save(tmp_path / "model", family, "Model")
    if not has_pooler:
        model.pooler = None
        for path in (tmp_path / "model").glob("*.safetensors"):
            path.unlink()
        model.save_pretrained(tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    outputs = ["last_hidden_state", *(["pooler_output"] if has_pooler else [])]
    assert [output.name for output in session.get_outputs()] == outputs


@pytest.mark.parametrize(
    ("family", "task", "names", "shapes"),
    [
        ("bert", "ForSequenceClassification", {"logits": "sequence_logits"}, [(1, 1), (3, 32)]),
        pytest.param(
            *("roberta", "ForQuestionAnswering"),
            {"start_logits": "start_logits", "end_logits": "end_logits"},
            [(4, 7)],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("modernbert", "ForTokenClassification", {"logits": "token_logits"}, [(1, 1), (3, 19)]),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("albert", "ForMultipleChoice", {"logits": "choice_logits"}, [(1, 2, 1), (2, 4, 9)]),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_onnxruntime_gives_our_logits(tmp_path, family, task, names, shapes):
    tiny_models.save(tmp_path / "model", family, task)
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    axes = ["batch", "choices", "length"] if len(shapes[0]) == 3 else ["batch", "length"]
    inputs = [one.name for one in session.get_inputs()]
    assert inputs == ["input_ids", "attention_mask"] + ["token_type_ids"] * (family in ("bert", "albert"))
    assert all(one.shape == axes for one in session.get_inputs())
    loaded = load_model(tmp_path / "model")
    apply = jax.jit(make_model(loaded.config, ComputeConfig(), loaded.heads).apply)
    for number, shape in enumerate(shapes):
        rng = np.random.default_rng(number)
        batch = {
            "input_ids": rng.integers(5, loaded.config.vocab_size, shape),
            "token_type_ids": rng.integers(0, max(loaded.config.num_token_types, 1), shape),
            "attention_mask": np.arange(shape[-1]) < rng.integers(1, shape[-1] + 1, shape[:-1])[..., None],
        }
        batch = {name: x.astype(np.int64) for name, x in batch.items()}
        # RoBERTa counts positions over tokens that are not <pad>; so do we where padding comes last.
        batch["input_ids"][batch["attention_mask"] == 0] = 1 if family == "roberta" else 0
        found = session.run(list(names), {name: batch[name] for name in inputs})
        wanted = apply(loaded.params, {name: x.astype(np.int32) for name, x in batch.items()}, None)
        real = 1
        if family == "modernbert":
            real = batch["attention_mask"][..., None]
        elif names.keys() == {"start_logits", "end_logits"}:
            real = batch["attention_mask"]
        for x, ours in zip(found, names.values(), strict=True):
            np.testing.assert_allclose(x * real, wanted[ours] * real, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("case", "one"),
    [
        pytest.param("longformer", "LongformerForQuestionAnswering", marks=pytest.mark.slow),
        pytest.param("longformer", "LongformerForMultipleChoice", marks=pytest.mark.slow),
        pytest.param("longformer whose layers have other windows", "LongformerForMaskedLM", marks=pytest.mark.slow),
        pytest.param("big_bird", "BigBirdForQuestionAnswering", marks=pytest.mark.slow),
        pytest.param("big_bird", "BigBirdForPreTraining", marks=pytest.mark.slow),
    ],
)
def test_models_of_long_texts_give_the_answers_of_transformers(tmp_path, case, one):
    """By a program of our own: of texts with windows and blocks, and of one that is read in full."""
    found = CASES[case]
    theirs = model_of(found, one)
    theirs.save_pretrained(tmp_path / "model")
    of_family(found.ours.family, tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    for length, rows in ((found.length, 2), (9, 3)):
        batch = batch_of(found._replace(length=length), rows, seed=length)
        shape = (rows, 2, length) if one.endswith("MultipleChoice") else (2 * rows, length)
        inputs = {put.name: batch[put.name].reshape(shape).astype(np.int64) for put in session.get_inputs()}
        expected = answers(theirs, batch)
        del expected["hidden_states"]
        compare(dict(zip(expected, session.run(None, inputs), strict=True)), expected, batch)


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.json"):
        export_onnx(tmp_path, tmp_path / "onnx")
    config = {"model_type": "bert", "vocab_size": 9, "architectures": ["BertGenerationDecoder"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="architectures is 'BertGenerationDecoder', none of BertForMaskedLM"):
        export_onnx(tmp_path, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.slow
def test_int8_weights_give_nearly_the_same_logits(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    tiny_models.save(tmp_path / "model", "bert", "ForSequenceClassification")
    export_onnx(tmp_path / "model", tmp_path / "float32")
    quantize_onnx(tmp_path / "float32", tmp_path / "int8")
    assert {path.name for path in (tmp_path / "int8").iterdir()} == {
        path.name for path in (tmp_path / "float32").iterdir()
    }
    rng = np.random.default_rng(0)
    batch = {"input_ids": rng.integers(5, 25, (3, 9))} | {
        name: np.ones((3, 9), np.int64) for name in ("attention_mask", "token_type_ids")
    }
    files = {name: tmp_path / name / "model.onnx" for name in ("float32", "int8")}
    outputs = {
        name: onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, batch)[0]
        for name, file in files.items()
    }
    difference = np.abs(outputs["int8"] - outputs["float32"])
    assert 0 < difference.max() < 0.1 * np.ptp(outputs["float32"])
    # onnx's own evaluator adds products in 32 bits, so no sum of products overflows.
    exact = ReferenceEvaluator(onnx.load(files["int8"])).run(None, batch)[0]
    np.testing.assert_allclose(outputs["int8"], exact, atol=0.02 * np.ptp(exact))
    weights = [
        numpy_helper.to_array(x)
        for x in onnx.load(files["int8"]).graph.initializer
        if x.data_type == onnx.TensorProto.INT8
    ]
    # With these weights, no pair of products overflows on any processor.
    assert 0 < max(np.abs(x.astype(int)).max() for x in weights) <= 64
