"""Google's BERT checkpoints: the names of its variables, written out here, against `BertForPreTraining` under torch."""

import json

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.interop.google_tf import load_google, model_from_variables
from bert_jax.models import Head, make_model

# As Google's files have them; no others.
FIELDS = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 12,
    "initializer_range": 0.02,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pooler_fc_size": 768,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 40,
}


@pytest.fixture(scope="module")
def torch_model():
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(transformers.BertConfig(**FIELDS)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


@pytest.fixture(scope="module")
def variables(torch_model):
    """What Google's run_pretraining.py saves for the same model."""
    found = {"global_step": np.int64(7)}

    def linear(name, module):
        found[f"{name}/kernel"] = module.weight.detach().numpy().T
        found[f"{name}/bias"] = module.bias.detach().numpy()

    def norm(name, module):
        found[f"{name}/gamma"] = module.weight.detach().numpy()
        found[f"{name}/beta"] = module.bias.detach().numpy()

    bert, cls = torch_model.bert, torch_model.cls
    for name in ("word", "position", "token_type"):
        table = getattr(bert.embeddings, f"{name}_embeddings").weight
        found[f"bert/embeddings/{name}_embeddings"] = table.detach().numpy()
    norm("bert/embeddings/LayerNorm", bert.embeddings.LayerNorm)
    for number, layer in enumerate(bert.encoder.layer):
        place = f"bert/encoder/layer_{number}"
        for name in ("query", "key", "value"):
            linear(f"{place}/attention/self/{name}", getattr(layer.attention.self, name))
        linear(f"{place}/attention/output/dense", layer.attention.output.dense)
        norm(f"{place}/attention/output/LayerNorm", layer.attention.output.LayerNorm)
        linear(f"{place}/intermediate/dense", layer.intermediate.dense)
        linear(f"{place}/output/dense", layer.output.dense)
        norm(f"{place}/output/LayerNorm", layer.output.LayerNorm)
    linear("bert/pooler/dense", bert.pooler.dense)
    linear("cls/predictions/transform/dense", cls.predictions.transform.dense)
    norm("cls/predictions/transform/LayerNorm", cls.predictions.transform.LayerNorm)
    found["cls/predictions/output_bias"] = cls.predictions.bias.detach().numpy()
    found["cls/seq_relationship/output_weights"] = cls.seq_relationship.weight.detach().numpy()
    found["cls/seq_relationship/output_bias"] = cls.seq_relationship.bias.detach().numpy()
    found |= {f"{name}/adam_m": x for name, x in list(found.items()) if name.startswith("cls/predictions/t")}
    return found


def check_logits(loaded, torch_model):
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(0, 40, (3, 9)),
        "token_type_ids": rng.integers(0, 2, (3, 9)),
        "attention_mask": (np.arange(9) < np.array([[9], [5], [1]])).astype(int),
    }
    with torch.no_grad():
        theirs = torch_model(**{name: torch.tensor(x) for name, x in batch.items()})
    batch |= {"masked_positions": np.tile(np.arange(9), (3, 1))}
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)
    ours = jax.jit(model.apply)(loaded.params, {name: x.astype(np.int32) for name, x in batch.items()}, None)
    np.testing.assert_allclose(ours["mlm_logits"][..., :40], theirs.prediction_logits, rtol=0, atol=2e-5)
    np.testing.assert_allclose(ours["nsp_logits"], theirs.seq_relationship_logits, rtol=0, atol=2e-5)


def test_logits_equal_the_logits_of_torch(variables, torch_model):
    loaded = model_from_variables(variables, FIELDS, "here")
    assert loaded.heads == (Head("masked_token"), Head("next_sentence"))
    assert loaded.config.activation == "gelu"
    assert loaded.unused == (
        *(f"cls/predictions/transform/{name}/adam_m" for name in ("LayerNorm/beta", "LayerNorm/gamma")),
        *(f"cls/predictions/transform/{name}/adam_m" for name in ("dense/bias", "dense/kernel")),
        "global_step",
    )
    check_logits(loaded, torch_model)
    encoder = {name: x for name, x in variables.items() if name.startswith("bert/")}
    assert model_from_variables(encoder, FIELDS, "here").heads == (Head("pooled"),)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bert/encoder/layer_1/output/dense/kernel": None}, "'bert.encoder.layer.1.output.dense.weight' is missing"),
        ({"cls/squad/output_bias": np.zeros(2, np.float32)}, "'cls/squad/output_bias' does not belong to a BERT"),
        (
            {"bert/pooler/dense/bias": np.full(12, np.nan, np.float32)},
            "'bert/pooler/dense/bias' is not float32 and fin",
        ),
        ({"bert/pooler/dense/bias": np.zeros(3, np.float32)}, r"'bert.pooler.dense.bias' is \[3\], not \[12\]"),
    ],
)
def test_a_variable_that_does_not_fit_is_reported_by_name(variables, change, says):
    changed = {name: x for name, x in {**variables, **change}.items() if x is not None}
    with pytest.raises(UserError, match=says):
        model_from_variables(changed, FIELDS, "here")


def test_a_false_number_of_layers_takes_no_memory(variables):
    with pytest.raises(UserError, match=r"'bert\.encoder\.layer\.2\..*' is missing"):
        model_from_variables(variables, FIELDS | {"num_hidden_layers": 2**31 - 1}, "here")


def test_the_checkpoint_of_a_directory_must_be_unique(tmp_path):
    with pytest.raises(UserError, match=r"holds 0 checkpoints of TensorFlow \(none\)"):
        load_google(tmp_path)
    for name in ("a.ckpt.index", "b.ckpt.index"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"holds 2 checkpoints of TensorFlow \(a.ckpt, b.ckpt\)"):
        load_google(tmp_path)
    with pytest.raises(UserError, match=r"c.ckpt.index does not exist"):
        load_google(tmp_path / "c.ckpt")
    with pytest.raises(UserError, match=r"bert_config\.json: cannot be read"):
        load_google(tmp_path / "a.ckpt")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TensorFlow's own
def test_a_checkpoint_written_by_tensorflow_is_read(tmp_path, variables, torch_model):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: pip install tensorflow-cpu")
    with tensorflow.Graph().as_default(), tensorflow.compat.v1.Session() as session:
        for name, x in variables.items():
            tensorflow.compat.v1.get_variable(name, initializer=np.asarray(x))
        session.run(tensorflow.compat.v1.global_variables_initializer())
        saver = tensorflow.compat.v1.train.Saver()
        saver.save(session, str(tmp_path / "bert_model.ckpt"), write_meta_graph=False)
    (tmp_path / "bert_config.json").write_text(json.dumps(FIELDS))
    check_logits(load_google(tmp_path), torch_model)
    check_logits(load_google(tmp_path / "bert_model.ckpt"), torch_model)
    data = next(tmp_path.glob("bert_model.ckpt.data-*"))
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UserError, match=r"bert_model\.ckpt cannot be read"):
        load_google(tmp_path)
