"""Thirty steps of fine-tuning beside torch: equal weights and batches give equal losses, and equal weights at the end.

The other side is a model of `transformers` with its own loss, `torch.optim.AdamW`, torch's clipping and the schedule of
`transformers`. Rows have several lengths, hence several programs, and the last batch of each epoch is not full. A
teacher of the task adds torch's divergence from a second model; the losses of similarity, of weighted labels and the
focal losses are written in torch's functions.
"""

import dataclasses
import functools
import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from bert_jax import config as c
from bert_jax.finetuning.task_data import count_labels
from bert_jax.finetuning.training_sets import TrainingSet, task_training_batches
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import make_model
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.tasks.batching import Feed
from bert_jax.tasks.class_weights import add_label_weights, label_weights
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import TrainState, train_step
from tests.helpers import torch_training
from tests.helpers.slow_cases import quick
from tests.helpers.tiny_models import CLASSES, LETTERS, MAX_POSITIONS, save

STEPS, WARMUP, BATCH, EXAMPLES = 30, 3, 8, 45
DROPOUT = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    "roberta": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    "albert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"),
    "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout", "qa_dropout"),
    "electra": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "summary_last_dropout"),
    "modernbert": ("embedding_dropout", "mlp_dropout", "attention_dropout", "classifier_dropout"),
}


def words(rng, low, high):
    return "".join(rng.choices(LETTERS, k=rng.randint(low, high)))


def texts(rng):
    pair = {"text_pair": words(rng, 1, 7)} if rng.random() < 0.5 else {}
    return {"text": words(rng, 2, 13)} | pair


def question(rng):
    context = " ".join(words(rng, 1, 3) for _ in range(rng.randint(2, 5)))
    answer = rng.choice(context.split())
    answers = [{"text": answer, "start": context.index(answer)}] if rng.random() < 0.8 else []
    return {"question": words(rng, 2, 5), "context": context, "answers": answers}


def sentence(rng):
    tokens = [words(rng, 1, 3) for _ in range(rng.randint(2, 8))]
    return {"tokens": tokens, "labels": ["abcdef".find(token[0]) % 3 for token in tokens]}


def choice(rng):
    label = rng.randrange(3)
    return {"text": words(rng, 2, 9), "choices": [("j" if n == label else "b") * 6 for n in range(3)], "label": label}


def several(rng):
    text = words(rng, 2, 20)
    return {"text": text, "label": np.array([len(text) > 3, text[0] in "ab", len(text) > 4])}


def pair(rng):
    text = words(rng, 2, 12)
    return {"text": text, "text_pair": text[::-1] + words(rng, 0, 3), "label": float(rng.randint(0, 5))}


def query(rng):
    text = words(rng, 2, 9)
    return {"text": text, "text_pair": text[0] * 5, "negative": [words(rng, 3, 6) for _ in range(2)]}


# No loss depends on these: a softmax over positions or choices ignores what is added to all of them. Their gradient is
# rounding error, from which Adam makes a step.
KEY_BIASES = ("key.bias", "k_lin.bias")
WITHOUT_EFFECT = {
    # Two names of the last layer's norm.
    "question_answering": ("qa_outputs.bias", "layer.3.output.LayerNorm.bias", "layer.3.output_layer_norm.bias"),
    "multiple_choice": ("classifier.bias",),
    "reranking": ("classifier.out_proj.bias",),
}
# Kind -> an example that can be learned in part.
EXAMPLE = {
    "sequence_classification": lambda rng: (one := texts(rng)) | {"label": LETTERS.index(one["text"][0]) % 3},
    "multilabel_classification": several,
    "prompt_classification": lambda rng: (text := words(rng, 2, 20)) and {"text": text, "label": len(text) % 3},
    "regression": lambda rng: (one := texts(rng)) | {"label": one["text"].count("a") - 0.3 * len(one["text"])},
    "token_classification": sentence,
    "question_answering": question,
    "multiple_choice": choice,
    "similarity": pair,
    "reranking": query,
}
CLASS = {
    "sequence_classification": "ForSequenceClassification",
    "multilabel_classification": "ForSequenceClassification",
    "prompt_classification": "ForMaskedLM",
    "regression": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
    "similarity": "Model",
    "reranking": "ForSequenceClassification",
}
TARGETS = {
    "sequence_classification": {"labels": "labels"},
    "multilabel_classification": {"labels": "label_set"},
    "prompt_classification": {},
    "regression": {"labels": "values"},
    "question_answering": {"start_positions": "starts", "end_positions": "ends"},
    "multiple_choice": {"labels": "labels"},
    "reranking": {},
}


MASK_ID = 4  # in the vocabulary of tiny_models
WORDS = (("a", "d"), ("b",), ("c",))
SETTINGS = {
    "similarity": {"temperature": 0.2, "positive_from": 2.0},
    "prompt_classification": {"template": "{text} j [MASK].", "verbalizers": "a=a|d"},
}
BALANCED = {
    ("sequence_classification", "balanced"): {"class_weights": "balanced"},
    ("sequence_classification", "focal"): {"focal_gamma": 2.0},
    ("token_classification", "both"): {"class_weights": "inverse_square_root", "focal_gamma": 1.5},
    ("multilabel_classification", "both"): {"class_weights": "balanced", "focal_gamma": 2.0},
    ("multilabel_classification", "balanced"): {"class_weights": "balanced"},
}


CASES = [
    ("sequence_classification", "bert", (16, MAX_POSITIONS), None),
    ("regression", "roberta", (MAX_POSITIONS,), None),
    ("token_classification", "distilbert", (MAX_POSITIONS,), None),
    ("question_answering", "bert", (MAX_POSITIONS,), None),
    ("question_answering", "electra", (MAX_POSITIONS,), None),
    ("multiple_choice", "albert", (MAX_POSITIONS,), None),
    ("sequence_classification", "modernbert", (16, MAX_POSITIONS), None),
    ("similarity", "bert", (MAX_POSITIONS,), None),
    ("question_answering", "distilbert", (MAX_POSITIONS,), "bert"),
    ("multilabel_classification", "bert", (MAX_POSITIONS,), None),
    ("reranking", "roberta", (MAX_POSITIONS,), None),
    ("prompt_classification", "bert", (MAX_POSITIONS,), None),
    ("prompt_classification", "modernbert", (MAX_POSITIONS,), None),
    *((kind, "bert", (MAX_POSITIONS,), name) for kind, name in BALANCED),
]
FIRST_OF_KIND = {case[0]: case for case in reversed(CASES)}
WITH_TEACHER = [case for case in CASES if case[3] == "bert"]
WEIGHTED_AND_FOCAL = [case for case in CASES if (case[0], case[3]) == ("token_classification", "both")]
QUICK = [*FIRST_OF_KIND.values(), *WITH_TEACHER, *WEIGHTED_AND_FOCAL]


@pytest.mark.parametrize(("kind", "family", "buckets", "teacher"), quick(CASES, *QUICK))
def test_losses_and_weights_follow_torch(tmp_path, kind, family, buckets, teacher):
    one_output = kind in ("regression", "reranking")
    labels = {"num_labels": 1, "problem_type": "regression"} if one_output else {"num_labels": 3}
    labels |= {"problem_type": "multi_label_classification"} if kind == "multilabel_classification" else {}
    labels = {} if kind == "prompt_classification" else labels
    balanced = BALANCED.get((kind, teacher), {})
    teacher = None if balanced else teacher
    more = dict.fromkeys(DROPOUT[family], 0.0)
    more |= labels if "classification" in kind or one_output else {}
    model, _ = save(tmp_path, family, CLASS[kind], **more)
    tokenizer = load_tokenizer(tmp_path)

    made = c.finetune_config()
    made.train.update(batch_size=BATCH)
    made.optimizer.update(peak_learning_rate=2e-3, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    made.task.update(kind=kind, max_seq_len=MAX_POSITIONS, max_query_length=8, doc_stride=6)
    made.task.update(SETTINGS.get(kind, {}))
    made.task.update({"teacher": "the teacher", "soft_fraction": 0.4, "soft_temperature": 1.7} if teacher else {})
    made.task.update(balanced)
    made.optimizer.update(clip_norm=0.5 if balanced or kind == "multilabel_classification" else 1.0)
    config = c.resolve(c.FinetuneConfig, made)
    config = dataclasses.replace(config, task=KINDS[kind].fill_settings(config.task, "abc", tokenizer))
    rng = random.Random(7)
    examples = [{"id": str(number)} | EXAMPLE[kind](rng) for number in range(EXAMPLES)]
    features = make_features(KINDS[kind], examples, tokenizer, config.task)[0]
    weights = torch_weights(kind, examples, config.task.class_weights)
    if config.task.class_weights:
        counts, exclusive = count_labels(KINDS[kind], examples), not KINDS[kind].problem
        total = counts.total() if exclusive else EXAMPLES
        given = label_weights(config.task.class_weights, "abc", counts, total, exclusive)
        np.testing.assert_allclose(given, weights, rtol=1e-6)
        features = add_label_weights(KINDS[kind], features, given)

    heads = (task_head(kind, 3),)
    loaded = load_model(tmp_path, None if KINDS[kind].classes is None else heads)
    assert loaded.heads == heads
    assert (loaded.config.dropout, loaded.config.attention_dropout, loaded.config.classifier_dropout) == (0, 0, 0)
    # The teacher has dropout, which it does not use, and token types, which its student lacks.
    taught_by, _ = save(tmp_path / "teacher", teacher, CLASS[kind]) if teacher else (None, None)
    known = load_model(tmp_path / "teacher") if teacher else None
    teaching = make_model(known.config, config.compute, heads) if teacher else None
    token_types = (known or loaded).config.num_token_types
    feed = Feed(buckets, BATCH, token_types, tokenizer.pad_id)
    batches = list(
        itertools.islice(
            task_training_batches((TrainingSet(features, feed),), None, config.seed, BatchBlocks((0,), 1), 0), STEPS
        )
    )
    assert {batch["input_ids"].shape[-1] for batch in batches} == set(buckets)
    assert min((batch["example_weights"] > 0).sum() for batch in batches) < BATCH, "every batch is full"

    student = make_model(loaded.config, config.compute, heads)
    objective = make_task_objective(student, kind, freeze_encoder=False, settings=config.task, teacher=teaching)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    params, zero = jax.tree.map(jnp.asarray, loaded.params), jnp.zeros((), jnp.int32)
    frozen = jax.tree.map(jnp.asarray, known.params) if teacher else ()
    state = TrainState(zero, params, optimizer(0.0).init(params), jax.random.PRNGKey(0), zero, zero, frozen)
    phase = Phase(end=STEPS, seq_len=MAX_POSITIONS, batch_size=BATCH)
    step = jax.jit(
        functools.partial(
            train_step,
            objective,
            optimizer,
            functools.partial(learning_rate, config.optimizer, (phase,)),
            phase.grad_accum_steps,
        )
    )
    ours, states = [], []
    for batch in batches:
        state, metrics = step(state, batch)
        ours.append(metrics["means"]["task_loss"].value())
        states.append(jax.device_get(state.params))
    assert step._cache_size() == len(buckets)

    model.get_input_embeddings().padding_idx = None  # in the published code padding is learned too

    early = []  # the weights before each of the first three steps

    def loss_of(model, batch):
        if len(early) < 3:
            early.append({name: x.detach().numpy().copy() for name, x in model.state_dict().items()})
        if kind == "similarity":
            return torch_training.contrastive_loss(model, batch, config.task.temperature)
        if kind == "prompt_classification":
            return word_loss(model, batch, [[tokenizer.tokens.index(word) for word in of] for of in WORDS])
        if kind == "reranking":
            return listwise_loss(model, reference_inputs(model, kind, batch))
        found = model(**reference_inputs(model, kind, batch))
        if balanced:
            return balanced_loss(found.logits, kind, reference_inputs(model, kind, batch), weights, config.task)
        if teacher:
            return taught(found, taught_by, reference_inputs(taught_by, kind, batch), config.task)
        return found.loss

    theirs, norms = torch_training.trajectory(model, loss_of, batches, config.optimizer, WARMUP)
    assert max(theirs) - min(theirs) > (0.15 if balanced else 0.3), (
        "the loss hardly moves: the comparison shows nothing"
    )
    assert max(norms) > config.optimizer.clip_norm, "clipping is never at work"
    np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    final = {name: x.detach().numpy() for name, x in model.state_dict().items()}
    # The rate of the first step is 0, so the second step is the first change.
    assert any(not np.array_equal(early[2][name], x) for name, x in early[1].items())
    for params, expected, tolerance in ((states[1], early[2], 1e-5), (states[-1], final, 1e-4)):
        for name, tensor in to_tensors(params, loaded.config, heads).items():
            if name.endswith((*KEY_BIASES, *WITHOUT_EFFECT.get(kind, ()))):
                continue
            # Padding matters where a loss is over all positions.
            noise = name.endswith(("word_embeddings.weight", "tok_embeddings.weight")) and kind != "question_answering"
            compared = np.arange(len(tensor)) != tokenizer.pad_id if noise else ...
            np.testing.assert_allclose(tensor[compared], expected[name][compared], rtol=0, atol=tolerance, err_msg=name)


def listwise_loss(model, inputs):
    """Cross entropy of the first document among the documents of a query, whose scores are those of separate pairs."""
    num_queries, num_documents, _ = inputs["input_ids"].shape
    scores = model(**{name: x.flatten(0, 1) for name, x in inputs.items()}).logits.view(num_queries, num_documents)
    return functional.cross_entropy(scores, torch.zeros(num_queries, dtype=torch.long))


def word_loss(model, batch, ids):
    """Cross entropy over the mean logits of the words of each label at the only mask, as in PET."""
    real = batch["example_weights"] > 0
    logits = model(**reference_inputs(model, "prompt_classification", batch)).logits
    masks = torch.tensor(batch["input_ids"][real] == MASK_ID)
    at_mask = torch.stack([of_text[mask].squeeze(0) for of_text, mask in zip(logits, masks, strict=True)])
    of_labels = torch.stack([at_mask[:, of_label].mean(1) for of_label in ids], dim=1)
    return functional.cross_entropy(of_labels, torch.tensor(batch["labels"][real]).long())


def torch_weights(kind, examples, scheme):
    """The weights of the labels by scikit-learn, or their definition; None without a scheme."""
    if scheme is None:
        return None
    if kind == "multilabel_classification":
        gold = np.stack([example["label"] for example in examples])
        return torch.tensor((~gold).sum(0) / gold.sum(0), dtype=torch.float32)
    labels = np.concatenate([np.atleast_1d(example.get("labels", example.get("label"))) for example in examples])
    weights = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    if scheme == "inverse_square_root":
        weights = np.sqrt(weights)
        weights /= weights[labels].mean()
    return torch.tensor(weights, dtype=torch.float32)


def balanced_loss(logits, kind, inputs, weights, settings):
    """Torch's weighted losses; the focal loss as in its paper, with the weights as alpha."""
    gamma, labels = settings.focal_gamma, inputs["labels"]
    if kind == "multilabel_classification":
        if not gamma:
            return functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights)
        right = torch.where(labels > 0, torch.sigmoid(logits), torch.sigmoid(-logits))
        return (torch.where(labels > 0, weights, 1.0) * -((1 - right) ** gamma) * torch.log(right)).mean()
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    if not gamma:
        return functional.cross_entropy(logits, labels, weight=weights)
    logits, labels = logits[labels >= 0], labels[labels >= 0]
    right = torch.softmax(logits, 1)[torch.arange(len(labels)), labels]
    of_target = torch.ones(len(labels)) if weights is None else weights[labels]
    return (of_target * -((1 - right) ** gamma) * torch.log(right)).sum() / of_target.sum()


def taught(found, teacher, inputs, settings):
    """The loss of the labels and, of both ends of an answer, torch's divergence from the teacher's times T^2."""
    with torch.no_grad():
        known = teacher(**inputs)
    soft = 0.0
    for name in ("start_logits", "end_logits"):
        softened = (functional.log_softmax(one[name] / settings.soft_temperature, -1) for one in (found, known))
        soft += functional.kl_div(*softened, reduction="batchmean", log_target=True) * settings.soft_temperature**2
    return (1 - settings.soft_fraction) * found.loss + settings.soft_fraction * soft / 2


def reference_inputs(model, kind, batch):
    """A batch without fillers, under the names of `transformers`; tokens that do not count are labeled -100."""
    real = batch["example_weights"] > 0
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (
        model.config.model_type not in ("distilbert", "modernbert")
    )
    inputs = {name: torch.tensor(batch[name][real]).long() for name in names}
    if kind == "token_classification":
        labels = np.where(batch["token_weights"] > 0, batch["token_labels"], -100)
        return inputs | {"labels": torch.tensor(labels[real]).long()}
    targets = {theirs: torch.tensor(batch[name][real]) for theirs, name in TARGETS[kind].items()}
    return inputs | {name: x if x.is_floating_point() else x.long() for name, x in targets.items()}


def test_every_family_and_every_kind_is_compared():
    assert {family for _, family, *_ in CASES} == set(CLASSES)
    assert {kind for kind, *_ in CASES} == set(EXAMPLE) == set(KINDS)
