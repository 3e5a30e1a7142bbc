"""Learning from a teacher of the task: losses and gradients of torch's own functions on models of transformers."""

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional

from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import make_model
from bert_jax.objectives.base import training_rngs
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.tasks.batching import collate
from bert_jax.tasks.features import Features
from tests.helpers.tiny_models import save

SETTINGS = TaskConfig(teacher="somewhere", soft_fraction=0.3, soft_temperature=1.7)
WITHOUT_DROPOUT = {
    "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout"),
    "electra": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "summary_last_dropout"),
}


def classes(student, teacher, batch):
    """Per token cross entropy, and torch's divergence of the softened classes times T^2."""
    labels, here = torch.tensor(batch["token_labels"]).long(), torch.tensor(batch["token_weights"]) > 0
    hard = functional.cross_entropy(student[here], labels[here])
    softened = (functional.log_softmax(x[here] / SETTINGS.soft_temperature, -1) for x in (student, teacher))
    return hard, functional.kl_div(*softened, reduction="batchmean", log_target=True) * SETTINGS.soft_temperature**2


def values(student, teacher, batch):
    return functional.mse_loss(student[:, 0], torch.tensor(batch["values"])), functional.mse_loss(student, teacher)


@pytest.mark.parametrize(
    ("kind", "family", "suffix", "both"),
    [
        ("token_classification", "distilbert", "ForTokenClassification", classes),
        ("regression", "electra", "ForSequenceClassification", values),
    ],
)
def test_loss_and_gradients_equal_torch(tmp_path, kind, family, suffix, both):
    """A student without token types, and one with them, of a BERT."""
    more = {"num_labels": 1, "problem_type": "regression"} if kind == "regression" else {"num_labels": 3}
    dropout = dict.fromkeys(WITHOUT_DROPOUT[family], 0.0)
    ours, theirs = {}, {}
    for name, one, rates in (("teacher", "bert", {}), ("student", family, dropout)):
        theirs[name], tokenizer = save(tmp_path / name, one, suffix, **more, **rates)
        ours[name] = load_model(tmp_path / name)
    heads = (task_head(kind, 3),)
    student, teacher = (make_model(ours[name].config, ComputeConfig(), heads) for name in ("student", "teacher"))
    batch = rows(kind, tokenizer.pad_token_id)

    objective = make_task_objective(student, kind, False, SETTINGS, teacher)
    rngs = training_rngs(jax.random.key(0))
    loss = jax.jit(
        lambda params: objective.loss(params, ours["teacher"].params, batch, rngs, objective.normalizers(batch))[0]
    )
    value, gradients = jax.value_and_grad(loss)(ours["student"].params)

    def logits(name):
        inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * (theirs[name].config.model_type != "distilbert")
        return theirs[name](**{key: torch.tensor(batch[key]).long() for key in inputs}).logits

    with torch.no_grad():
        known = logits("teacher")
    hard, soft = both(logits("student"), known, batch)
    expected = (1 - SETTINGS.soft_fraction) * hard + SETTINGS.soft_fraction * soft
    expected.backward()
    assert value == pytest.approx(expected.item(), abs=1e-5)
    assert abs(hard.item() - soft.item()) > 0.1, "both parts are alike: the comparison shows nothing"
    wanted = dict(theirs["student"].named_parameters())
    for name, tensor in to_tensors(jax.device_get(gradients), ours["student"].config, heads).items():
        if "word_embeddings" not in name:  # torch leaves the row of the padding out
            np.testing.assert_allclose(tensor, wanted[name].grad, rtol=0, atol=1e-5, err_msg=name)


def rows(kind, pad_id):
    rng = np.random.default_rng(5)
    features = []
    for number, length in enumerate((9, 14, 12, 5)):
        ids, second = rng.integers(5, 25, length), length // 2
        if kind == "regression":
            targets = {"values": np.float32(rng.normal())}
        else:
            targets = {"token_labels": rng.integers(3, size=length, dtype=np.int32),
                       "token_weights": (rng.random(length) < 0.7).astype(np.float32)}  # fmt: skip
        features.append(Features(ids, second, number, targets))
    return collate(features, 16, 2, pad_id, len(features))
