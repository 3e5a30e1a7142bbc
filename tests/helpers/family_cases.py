"""Tiny random models of every family and head: the models of `transformers`, their batch, and their outputs."""

import dataclasses
import inspect
from typing import NamedTuple

import numpy as np
import torch
import transformers

from bert_jax.config import EncoderConfig
from bert_jax.models import Head
from tests.helpers import reference

transformers.utils.logging.disable_progress_bar()

CHOICES = 2
IMPOSSIBLE = -1e5
CLASSES = {"sequence_classification": 3, "token_classification": 5}

# Every head at once, so that one compiled function serves all the reference's classes.
NAMES = (
    "masked_token",
    "next_sentence",
    "replaced_token",
    "sequence_classification",
    "multiple_choice",
    "token_classification",
    "question_answering",
    "hidden_states",
    "pooled",
)
ALL_HEADS = tuple(Head(name, CLASSES.get(name, 0)) for name in NAMES)


class Case(NamedTuple):
    """One architecture, as both sides write it."""

    theirs: transformers.PreTrainedConfig
    ours: EncoderConfig
    length: int


COMMON = {
    "vocab_size": 131,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 19,
    "hidden_dropout_prob": 0.2,
}
DISTIL = {
    "vocab_size": 131,
    "dim": 24,
    "n_layers": 2,
    "n_heads": 3,
    "hidden_dim": 40,
    "max_position_embeddings": 19,
    "dropout": 0.3,
}


BERT = EncoderConfig(
    vocab_size=131, hidden_size=24, num_layers=2, num_heads=3, mlp_size=40, max_positions=19, dropout=0.2
)
BERT = dataclasses.replace(BERT, classifier_dropout=0.2)  # follows the dropout where a file says nothing of it
ROBERTA = dataclasses.replace(
    BERT, family="roberta", position_offset=2, masked_activation="gelu", pooler_dropout=True, max_positions=17
)
MPNET = dataclasses.replace(ROBERTA, family="mpnet", num_token_types=0, positions="learned_relative")
LONGFORMER = dataclasses.replace(ROBERTA, family="longformer", local_window=6, global_every=0, separator_id=2)
BIG_BIRD = dataclasses.replace(
    BERT,
    family="big_bird",
    activation="gelu_tanh",
    sequence_activation="gelu_tanh",
    block_size=2,
    random_blocks=1,
    question_separator_id=3,
)
DEBERTA = dataclasses.replace(
    BERT,
    family="deberta-v2",
    num_token_types=0,
    positions="disentangled",
    relative_buckets=16,
    relative_max_distance=19,
    pooler_activation="gelu",
    layer_norm_epsilon=1e-7,
)
DISENTANGLED = {
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}
ALBERT = dataclasses.replace(
    BERT,
    family="albert",
    embedding_size=10,
    share_layers=True,
    activation="gelu_tanh",
    attention_dropout=0.0,
    classifier_dropout=0.1,
)
DISTILBERT = EncoderConfig(
    family="distilbert",
    vocab_size=131,
    hidden_size=24,
    num_layers=2,
    num_heads=3,
    mlp_size=40,
    max_positions=19,
    num_token_types=0,
    pooler_activation="relu",
    dropout=0.3,
    classifier_dropout=0.2,
)
ELECTRA = dataclasses.replace(
    BERT,
    family="electra",
    embedding_size=10,
    masked_activation="gelu",
    pooler_activation="gelu",
    pooler_dropout=True,
)
MODERN = {
    "vocab_size": 131,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 19,
    "pad_token_id": 0,
    "local_attention": 6,
}
MODERNBERT = EncoderConfig(
    family="modernbert",
    vocab_size=131,
    hidden_size=24,
    num_layers=4,
    num_heads=3,
    mlp_size=40,
    max_positions=19,
    num_token_types=0,
    norm_position="pre",
    final_norm=True,
    first_attention_norm=False,
    norm_bias=False,
    attention_bias=False,
    mlp_bias=False,
    head_bias=False,
    positions="rotary",
    rotary_base=160_000.0,
    local_rotary_base=10_000.0,
    local_window=6,
    global_every=3,
    mlp="gated",
    masked_activation="gelu",
    pooler_activation="gelu",
    pooler_norm=True,
    pooler_on_tokens=True,
    layer_norm_epsilon=1e-5,
    dropout=0.0,
    attention_dropout=0.0,
    classifier_dropout=0.0,
    initialization="depth_scaled",
)

NOMIC = dataclasses.replace(
    BERT,
    family="nomic_bert",
    attention_bias=False,
    mlp_bias=False,
    positions="rotary",
    rotary_base=1_000.0,
    mlp="gated",
    activation="silu",
    attention_dropout=0.0,
)


MOBILEBERT = dataclasses.replace(
    BERT,
    family="mobilebert",
    num_heads=2,
    embedding_size=10,
    trigram_embeddings=True,
    bottleneck_size=14,
    bottleneck_mlps=3,
    norm="no_norm",
    masked_norm="layer_norm",
    masked_extra_table=True,
    activation="relu",
)


def rope(full: float, local: float) -> dict:
    """The bases of the two kinds of layers."""
    bases = {"full_attention": full, "sliding_attention": local}
    return {name: {"rope_type": "default", "rope_theta": base} for name, base in bases.items()}


CASES = {
    "bert": Case(transformers.BertConfig(**COMMON), BERT, 19),
    "bert odd, tanh": Case(
        transformers.BertConfig(
            **COMMON
            | {"hidden_size": 33, "intermediate_size": 57, "num_hidden_layers": 3, "type_vocab_size": 3}
            | {"hidden_act": "gelu_new", "classifier_dropout": 0.4, "layer_norm_eps": 1e-5}
        ),
        dataclasses.replace(
            BERT,
            hidden_size=33,
            mlp_size=57,
            num_layers=3,
            num_token_types=3,
            activation="gelu_tanh",
            classifier_dropout=0.4,
            layer_norm_epsilon=1e-5,
        ),
        13,
    ),
    "roberta": Case(
        transformers.RobertaConfig(**COMMON, type_vocab_size=1), dataclasses.replace(ROBERTA, num_token_types=1), 17
    ),
    "roberta of another padding, tanh": Case(
        transformers.RobertaConfig(**COMMON | {"hidden_act": "gelu_new", "vocab_size": 256, "pad_token_id": 4}),
        dataclasses.replace(ROBERTA, activation="gelu_tanh", vocab_size=256, position_offset=5, max_positions=14),
        11,
    ),
    "xlm-roberta": Case(
        transformers.XLMRobertaConfig(**COMMON, type_vocab_size=1, layer_norm_eps=1e-5),
        dataclasses.replace(ROBERTA, family="xlm-roberta", num_token_types=1, layer_norm_epsilon=1e-5),
        17,
    ),
    "camembert": Case(transformers.CamembertConfig(**COMMON), dataclasses.replace(ROBERTA, family="camembert"), 12),
    "mpnet": Case(transformers.MPNetConfig(**COMMON), MPNET, 17),
    # Longer than the distances that have buckets of their own.
    "mpnet, long, tanh": Case(
        transformers.MPNetConfig(**COMMON | {"hidden_act": "gelu_new", "max_position_embeddings": 150}),
        dataclasses.replace(MPNET, activation="gelu_tanh", max_positions=148),
        148,
    ),
    # Windows that transformers pads to, of a length that they do not divide, with and without the end of a window.
    "longformer": Case(transformers.LongformerConfig(**COMMON, attention_window=6), LONGFORMER, 17),
    "longformer of another separator, short": Case(
        transformers.LongformerConfig(
            **COMMON | {"hidden_act": "gelu_new", "pad_token_id": 0}, attention_window=[10, 10], sep_token_id=3
        ),
        dataclasses.replace(
            LONGFORMER, activation="gelu_tanh", local_window=10, separator_id=3, position_offset=1, max_positions=18
        ),
        8,
    ),
    "longformer whose layers have other windows": Case(
        transformers.LongformerConfig(**COMMON, attention_window=[4, 8]),
        dataclasses.replace(LONGFORMER, local_window=8, local_windows=(4, 8)),
        15,
    ),
    # Nine blocks, the last of one token; up to seven are read in full.
    "big_bird": Case(
        transformers.BigBirdConfig(**COMMON, block_size=2, num_random_blocks=1, sep_token_id=3), BIG_BIRD, 17
    ),
    "big_bird of the published separator, short": Case(
        transformers.BigBirdConfig(**COMMON, block_size=2, num_random_blocks=1),
        dataclasses.replace(BIG_BIRD, question_separator_id=66),
        14,
    ),
    "deberta-v2": Case(transformers.DebertaV2Config(**COMMON, **DISENTANGLED), DEBERTA, 19),
    "deberta-v2, token types, tanh": Case(
        transformers.DebertaV2Config(
            **COMMON
            | {"hidden_act": "gelu_new", "type_vocab_size": 2, "max_relative_positions": 14, "cls_dropout": 0.3},
            **DISENTANGLED | {"position_buckets": 10, "pos_att_type": ["c2p", "p2c"]},
        ),
        dataclasses.replace(
            DEBERTA,
            activation="gelu_tanh",
            num_token_types=2,
            relative_buckets=20,
            relative_max_distance=14,
            classifier_dropout=0.3,
        ),
        18,
    ),
    "nomic_bert": Case(transformers.NomicBertConfig(**COMMON), NOMIC, 19),
    "nomic_bert, another base, three token types, erf": Case(
        transformers.NomicBertConfig(
            **COMMON | {"hidden_act": "gelu", "type_vocab_size": 3, "classifier_dropout": 0.1},
            rope_parameters={"rope_type": "default", "rope_theta": 50.0},
        ),
        dataclasses.replace(NOMIC, rotary_base=50.0, num_token_types=3, activation="gelu", classifier_dropout=0.1),
        13,
    ),
    "albert": Case(transformers.AlbertConfig(**COMMON, embedding_size=10), ALBERT, 19),
    "albert of equal widths, erf": Case(
        transformers.AlbertConfig(**COMMON | {"hidden_act": "gelu", "num_hidden_layers": 3, "embedding_size": 24}),
        dataclasses.replace(ALBERT, activation="gelu", num_layers=3, embedding_size=24),
        9,
    ),
    "distilbert": Case(transformers.DistilBertConfig(**DISTIL), DISTILBERT, 19),
    "distilbert odd, tanh": Case(
        transformers.DistilBertConfig(**DISTIL | {"dim": 21, "hidden_dim": 35, "activation": "gelu_new"}),
        dataclasses.replace(DISTILBERT, hidden_size=21, mlp_size=35, activation="gelu_tanh"),
        7,
    ),
    "electra": Case(transformers.ElectraConfig(**COMMON, embedding_size=10), ELECTRA, 19),
    "electra, wider tables, tanh": Case(
        transformers.ElectraConfig(**COMMON, hidden_act="gelu_new", embedding_size=30),
        dataclasses.replace(ELECTRA, activation="gelu_tanh", embedding_size=30),
        8,
    ),
    "electra of equal widths": Case(
        transformers.ElectraConfig(**COMMON, embedding_size=24), dataclasses.replace(ELECTRA, embedding_size=None), 16
    ),
    "mobilebert": Case(
        transformers.MobileBertConfig(
            **COMMON | {"num_attention_heads": 2, "embedding_size": 10, "num_feedforward_networks": 3},
            intra_bottleneck_size=14,
        ),
        MOBILEBERT,
        19,
    ),
    "modernbert": Case(transformers.ModernBertConfig(**MODERN), MODERNBERT, 19),
    "modernbert, all layers global": Case(
        transformers.ModernBertConfig(**MODERN, global_attn_every_n_layers=1, rope_parameters=rope(1e4, 1e3)),
        dataclasses.replace(
            MODERNBERT, global_every=1, local_window=None, rotary_base=10_000.0, local_rotary_base=None
        ),
        19,
    ),
    "modernbert with biases, of mean, every second": Case(
        transformers.ModernBertConfig(
            **MODERN | {"num_hidden_layers": 5, "local_attention": 3, "global_attn_every_n_layers": 2},
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
            rope_parameters=rope(500.0, 500.0),
            hidden_activation="silu",
            classifier_activation="gelu_new",
            classifier_pooling="mean",
            classifier_dropout=0.3,
            embedding_dropout=0.1,
            mlp_dropout=0.1,
            norm_eps=1e-6,
        ),
        dataclasses.replace(
            MODERNBERT,
            num_layers=5,
            local_window=3,
            global_every=2,
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "head_bias"), True),
            rotary_base=500.0,
            local_rotary_base=None,
            activation="silu",
            masked_activation="gelu_tanh",
            pooler_activation="gelu_tanh",
            pooling="mean",
            classifier_dropout=0.3,
            dropout=0.1,
            layer_norm_epsilon=1e-6,
        ),
        13,
    ),
    "modernbert, all layers local": Case(
        transformers.ModernBertConfig(**MODERN, layer_types=["sliding_attention"] * 4),
        dataclasses.replace(MODERNBERT, global_every=0),
        19,
    ),
    "modernbert of one layer": Case(
        transformers.ModernBertConfig(**MODERN | {"num_hidden_layers": 1}),
        dataclasses.replace(MODERNBERT, num_layers=1, global_every=1, local_window=None, local_rotary_base=None),
        7,
    ),
}

PREFIXES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "albert": "Albert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "longformer": "Longformer",
    "big_bird": "BigBird",
    "mpnet": "MPNet",
    "deberta-v2": "DebertaV2",
    "nomic_bert": "NomicBert",
    "mobilebert": "MobileBert",
}
TASKS = {
    "ForSequenceClassification": ("sequence_classification",),
    "ForTokenClassification": ("token_classification",),
    "ForQuestionAnswering": ("question_answering",),
    "ForMultipleChoice": ("multiple_choice",),
    "ForMaskedLM": ("masked_token",),
}
OTHERS = {
    "bert": {
        "ForPreTraining": ("masked_token", "next_sentence"),
        "ForNextSentencePrediction": ("next_sentence",),
        "Model": ("pooled",),
    },
    **{name: {"Model": ("pooled",)} for name in ("roberta", "xlm-roberta", "camembert", "longformer", "mpnet")},
    "mobilebert": {
        "ForPreTraining": ("masked_token", "next_sentence"),
        "ForNextSentencePrediction": ("next_sentence",),
        "Model": ("pooled",),
    },
    "albert": {"ForPreTraining": ("masked_token", "next_sentence"), "Model": ("pooled",)},
    "big_bird": {"ForPreTraining": ("masked_token", "next_sentence"), "Model": ("pooled",)},
    "distilbert": {"Model": ()},
    "electra": {"ForPreTraining": ("replaced_token",), "Model": ()},
    "modernbert": {"Model": ()},
    "deberta-v2": {"Model": ()},
    "nomic_bert": {"Model": ()},
}
INCOMPLETE = ("nomic_bert",)  # without a class for each task
UNREAD = {"bert.pooler.weight", "bert.pooler.bias"}  # of every BigBird, though few of its classes read it


def classes_of(family):
    """Name of each of the reference's classes -> names of our heads."""
    names = {f"{PREFIXES[family]}{end}": heads for end, heads in {**TASKS, **OTHERS[family]}.items()}
    return {name: heads for name, heads in names.items() if family not in INCOMPLETE or hasattr(transformers, name)}


def model_of(case: Case, name: str, classes: int | None = None, seed: int = 0) -> transformers.PreTrainedModel:
    """A random model of the reference's class `name`."""
    head = next((head for head in classes_of(case.ours.family)[name] if head in CLASSES), "")
    fields = {key: x for key, x in case.theirs.to_dict().items() if key not in ("id2label", "label2id")}
    config = type(case.theirs)(**fields, num_labels=classes or CLASSES.get(head, 2))
    return reference.randomized(getattr(transformers, name), config, seed, deviation=0.15)


def batch_of(case: Case, rows: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """`[rows, choices, length]`, padded to the right; every position is asked for its token."""
    rng, config, length = np.random.default_rng(seed), case.ours, case.length
    shape = (rows, CHOICES, length)
    dense = config.max_dense_length  # a BigBird reads shorter texts in batches of their own
    lengths = rng.integers(int(dense) + 1 if dense < length else length // 2, length + 1, shape[:2])
    lengths[0, 0] = length
    mask = (np.arange(length) < lengths[..., None]).astype(np.int32)
    padding = case.theirs.pad_token_id
    ids = rng.integers(5, config.vocab_size, shape)
    separator = config.question_separator_id if config.separator_id is None else config.separator_id
    if separator is not None:  # two texts, with two separators between them
        column, end = np.arange(length), lengths[..., None] - 1
        ids[(column == end) | (column // 2 == end // 4)] = separator
    return {
        "input_ids": np.where(mask, ids, padding).astype(np.int32),
        "token_type_ids": (rng.integers(0, max(config.num_token_types, 1), shape) * mask).astype(np.int32),
        "attention_mask": mask,
        "masked_positions": np.tile(np.arange(length, dtype=np.int32), (rows * CHOICES, 1)),
    }


def whole_batch(model: transformers.PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict:
    return dict(model(**inputs, output_hidden_states=True))


def by_sequence(model: transformers.PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict:
    """What the reference answers for each sequence without padding, with 0 for padding.

    A BigBird of transformers computes blocks of the padded batch, and stays dense after a short sequence.
    """
    shape, found = inputs["input_ids"].shape, []
    flat = {key: x.reshape(-1, 1, shape[-1]) for key, x in inputs.items()}
    for row, mask in enumerate(flat["attention_mask"]):
        size = int(mask.sum())
        model.base_model.set_attention_type(model.config.attention_type)
        of_row = whole_batch(
            model, {key: x[row, :, :size].reshape(*(1,) * (len(shape) - 1), -1) for key, x in flat.items()}
        )
        for key, x in of_row.items():
            if key == "hidden_states":  # these have padding up to a whole block
                of_row[key] = tuple(padded_to(y[:, :size], shape[-1]) for y in x)
            elif key in PER_TOKEN or (key == "logits" and type(model).__name__.endswith(LOGITS_PER_TOKEN)):
                of_row[key] = padded_to(x[:, :size], shape[-1])
        found.append(of_row)
    joined = {key: torch.cat([x[key] for x in found]) for key in found[0] if key != "hidden_states"}
    if type(model).__name__.endswith("MultipleChoice"):
        joined["logits"] = joined["logits"].reshape(shape[:2])
    return joined | {"hidden_states": tuple(map(torch.cat, zip(*(x["hidden_states"] for x in found), strict=True)))}


PER_TOKEN = ("prediction_logits", "start_logits", "end_logits", "last_hidden_state")
LOGITS_PER_TOKEN = ("ForMaskedLM", "ForTokenClassification")


def padded_to(x: torch.Tensor, length: int) -> torch.Tensor:
    return torch.cat([x, x.new_zeros(x.shape[0], length - x.shape[1], *x.shape[2:])], 1)


def answers(model: transformers.PreTrainedModel, batch: dict[str, np.ndarray], run=None) -> dict[str, np.ndarray]:
    """What the reference answers, under our names and in our shapes; choices are rows but to classes and `choice`."""
    name = type(model).__name__
    inputs = {key: torch.tensor(batch[key]).long() for key in ("input_ids", "token_type_ids", "attention_mask")}
    if "token_type_ids" not in inspect.signature(model.forward).parameters:
        del inputs["token_type_ids"]
    if not name.endswith("MultipleChoice"):
        inputs = {key: x.flatten(0, 1) for key, x in inputs.items()}
    with torch.no_grad():
        out = (run or (by_sequence if name.startswith("BigBird") else whole_batch))(model, inputs)
    fields = {
        "ForPreTraining": {
            "prediction_logits": "mlm_logits",
            "seq_relationship_logits": "nsp_logits",
            "sop_logits": "nsp_logits",
            "logits": "replaced_logits",
        },
        "ForNextSentencePrediction": {"logits": "nsp_logits"},
        "ForMaskedLM": {"logits": "mlm_logits"},
        "ForSequenceClassification": {"logits": "sequence_logits"},
        "ForTokenClassification": {"logits": "token_logits"},
        "ForMultipleChoice": {"logits": "choice_logits"},
        "ForQuestionAnswering": {"start_logits": "start_logits", "end_logits": "end_logits"},
        "Model": {"pooler_output": "pooled"},
    }
    ends = next(names for end, names in fields.items() if name.endswith(end))
    found = {ours: out[theirs].numpy() for theirs, ours in ends.items() if out.get(theirs) is not None}
    if "sequence_logits" in found:
        found["sequence_logits"] = found["sequence_logits"].reshape(*batch["input_ids"].shape[:-1], -1)
    length = batch["input_ids"].shape[-1]  # a BigBird's have padding up to a whole block
    return found | {"hidden_states": torch.stack([x[:, :length] for x in out["hidden_states"]]).numpy()}


def compare(ours: dict, theirs: dict[str, np.ndarray], batch: dict[str, np.ndarray], atol: float = 2e-5) -> None:
    """Asserts that what both answer is equal, on the tokens that are no padding."""
    real = batch["attention_mask"].reshape(-1, batch["attention_mask"].shape[-1]) > 0
    for name, expected in theirs.items():
        found = np.asarray(ours[name])
        if name == "mlm_logits":
            found = found[..., : expected.shape[-1]]
        assert found.shape == expected.shape, name
        if name == "hidden_states":
            found, expected = found[:, real], expected[:, real]
        elif expected.shape[:2] == real.shape:
            found, expected = found[real], expected[real]
        if name in ("start_logits", "end_logits"):  # far below all others: where a question has no answer
            np.testing.assert_array_equal(found < IMPOSSIBLE, expected < IMPOSSIBLE)
            found, expected = (np.where(x < IMPOSSIBLE, 0, x) for x in (found, expected))
        assert expected.std() > 0.05, f"{name}: too small for an absolute tolerance to mean anything"
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=name)
