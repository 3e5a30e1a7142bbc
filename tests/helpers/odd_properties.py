"""Odd properties of published model directories: ODD, a table of the changes that make them.

The weight of a row is the share of published directories with the property, in percent, by the author's estimate.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import tokenizers
import torch
import transformers

from tests.helpers import random_tokenizers
from tests.helpers.directory_cases import (
    ANSWERS,
    BARE,
    CHOICES,
    FOLLOW_PADDING,
    LABELED,
    MASKS,
    PRETRAINING,
    SEQUENCES,
    TOKENS,
    WITHOUT_POOLER,
    Case,
    Draft,
)
from tests.helpers.sentence_directories import add_bi_encoder_files, add_cross_encoder_files

WORDPIECE = ("bert", "distilbert", "electra", "mobilebert", "nomic_bert", "mpnet")
BYTE_LEVEL = ("roberta", "longformer", "modernbert")
HEADED = (MASKS, SEQUENCES, TOKENS, ANSWERS, CHOICES)
LIKE_BERT = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "longformer", "big_bird", "albert", "mobilebert")


class Odd(NamedTuple):
    """An odd property; of the properties of a group, a directory has at most one."""

    stage: str  # "tokenizer", "config" or "files"
    weight: float
    apply: Callable[[Draft], Any]
    fits: Callable[[Case], bool] = lambda case: True
    group: str = ""


def _of(*families: str) -> Callable[[Case], bool]:
    return lambda case: case.family in families


def _not_of(*families: str) -> Callable[[Case], bool]:
    return lambda case: case.family not in families


def _with_task(*tasks: str) -> Callable[[Case], bool]:
    return lambda case: case.task in tasks


# Architecture.


def _activation(name: str) -> Callable[[Draft], None]:
    def apply(draft: Draft) -> None:
        field = {"distilbert": "activation", "modernbert": "hidden_activation"}.get(draft.case.family, "hidden_act")
        draft.config[field] = name

    return apply


def _config(*choices: dict[str, Any]) -> Callable[[Draft], None]:
    """Return a change to one of `choices`."""
    return lambda draft: draft.config.update(draft.rng.choice(choices))


def _norm_epsilon(draft: Draft) -> None:
    field = "norm_eps" if draft.case.family == "modernbert" else "layer_norm_eps"
    draft.config[field] = draft.rng.choice((1e-5, 1e-6, 1e-8))


def _dropout(draft: Draft) -> None:
    names = {"distilbert": ("dropout", "attention_dropout"), "modernbert": ("mlp_dropout", "attention_dropout")}
    usual = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    draft.config |= {name: draft.rng.choice((0.0, 0.05, 0.2)) for name in names.get(draft.case.family, usual)}


def _classifier_dropout(draft: Draft) -> None:
    special = {"distilbert": "seq_classif_dropout", "albert": "classifier_dropout_prob", "deberta-v2": "cls_dropout"}
    draft.config[special.get(draft.case.family, "classifier_dropout")] = draft.rng.choice((0.0, 0.1, 0.3))


def _sizes(draft: Draft) -> None:
    width, heads, layers, inner = draft.rng.choice(((24, 3, 3, 20), (32, 4, 1, 64), (16, 4, 4, 40)))
    names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")
    names = ("dim", "n_heads", "n_layers", "hidden_dim") if draft.case.family == "distilbert" else names
    draft.config |= dict(zip(names, (width, heads, layers, inner), strict=True))
    if draft.case.family == "longformer":
        draft.config["attention_window"] = [8] * layers


def _fewer_tokens_than_rows(draft: Draft) -> None:
    draft.config["vocab_size"] += draft.rng.choice((1, 8, 30))


# Tokenizer.


def _added_special_tokens(draft: Draft) -> None:
    draft.tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]", "[/E1]"]})


def _added_tokens(draft: Draft) -> None:
    draft.tokenizer.add_tokens(["bad", "caj"])


def _added_token_with_flags(draft: Draft) -> None:
    flags = draft.rng.choice(({"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": False}))
    draft.tokenizer.add_tokens([tokenizers.AddedToken("bad", **flags)])


def _tokenizer(kinds: dict[str, str], **settings: Any) -> Callable[[Draft], None]:
    """Return a change to another tokenizer: family -> kind; '': of its own kind."""

    def apply(draft: Draft) -> None:
        family = draft.case.family
        kind = kinds.get(family) or random_tokenizers.KIND_OF_FAMILY[family]
        draft.tokenizer = random_tokenizers.make_tokenizer(kind, draft.rng, **settings)

    return apply


OTHER_KINDS = {
    "roberta": "bert",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "bert": "roberta",
    "distilbert": "xlm-roberta",
    "deberta-v2": "bert",
    "electra": "xlm-roberta",
    "albert": "bert",
    "longformer": "xlm-roberta",
    "big_bird": "roberta",
    "modernbert": "bert",
}


def _normalizer(*choices: dict[str, Any]) -> Callable[[Draft], None]:
    return lambda draft: draft.definition.update(normalizer=draft.rng.choice(choices))


def _truncation_and_padding(draft: Draft) -> None:
    token, number = draft.tokenizer.pad_token, draft.tokenizer.pad_token_id
    draft.definition["truncation"] = {"direction": "Right", "max_length": 48, "strategy": "LongestFirst", "stride": 0}
    draft.definition["padding"] = {
        "strategy": draft.rng.choice(("BatchLongest", {"Fixed": 48})),
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": number,
        "pad_type_id": 0,
        "pad_token": token,
    }


def _added_tokens_reversed(draft: Draft) -> None:
    draft.definition["added_tokens"] = draft.definition["added_tokens"][::-1]


def _vocabulary_alone(draft: Draft) -> None:
    random_tokenizers.write_vocabulary_files(draft.definition, draft.directory)
    draft.removed.add("tokenizer.json")


def _class_name(change: Callable[[str], str]) -> Callable[[Draft], None]:
    return lambda draft: draft.settings.update(tokenizer_class=change(draft.settings["tokenizer_class"]))


def _names_as_objects(draft: Draft) -> None:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    for name in [name for name in draft.settings if name.endswith("_token") and name != "mask_token"]:
        draft.settings[name] = {"__type": "AddedToken", "content": draft.settings[name], **flags}


def _other_case(draft: Draft) -> None:
    draft.settings["do_lower_case"] = not draft.settings["do_lower_case"]


# Labels.


def _labels(change: Callable[[Draft, int], dict[str, Any]]) -> Callable[[Draft], None]:
    """Return a change to the fields of labels, from the number of classes."""

    def apply(draft: Draft) -> None:
        draft.fields |= change(draft, draft.model.config.num_labels)

    return apply


def _numbers_as_labels(draft: Draft, count: int) -> dict[str, Any]:
    return {"id2label": {str(i): i for i in range(count)}, "label2id": {str(i): i for i in range(count)}}


def _equal_labels(draft: Draft, count: int) -> dict[str, Any]:
    names = ["other"] * 2 + [f"label {i}" for i in range(2, count)]
    return {
        "id2label": {str(i): names[i] for i in range(count)},
        "label2id": {names[i]: i for i in range(count)},
    }


def _other_label2id(draft: Draft, count: int) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [
        {"LABEL_0": 0, "LABEL_1": 1},
        {f"name {i}": count - 1 - i for i in range(count)},
        {f"LABEL_{i}": str(i) for i in range(count)},
    ]
    return {"id2label": {str(i): f"name {i}" for i in range(count)}, "label2id": draft.rng.choice(choices)}


def _labels_backward(draft: Draft, count: int) -> dict[str, Any]:
    return {
        "id2label": {str(i): f"name {i}" for i in reversed(range(count))},
        "label2id": {f"name {i}": i for i in range(count)},
    }


def _labels_left_over(draft: Draft, count: int) -> dict[str, Any]:
    choices = (_numbers_as_labels, _equal_labels, _other_label2id)
    return draft.rng.choice(choices)(draft, 3)


def _one_label(draft: Draft) -> None:
    draft.config |= {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if draft.rng.random() < 0.5:
        draft.config["problem_type"] = "regression"


def _several_labels(problem: str) -> Callable[[Draft], None]:
    def apply(draft: Draft) -> None:
        names = {f"topic {i}": i for i in range(3)}
        draft.config |= {"id2label": {i: name for name, i in names.items()}, "label2id": names}
        draft.config["problem_type"] = problem

    return apply


# Weights and config.json.


def _to_dtype(dtype: torch.dtype) -> Callable[[Draft], None]:
    def apply(draft: Draft) -> None:
        draft.tensors = {name: x.to(dtype) if x.is_floating_point() else x for name, x in draft.tensors.items()}
        draft.fields["dtype" if draft.case.version == 5 else "torch_dtype"] = str(dtype).removeprefix("torch.")

    return apply


def _mixed_dtypes(draft: Draft) -> None:
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    draft.tensors = {
        name: x.to(draft.rng.choice(dtypes)) if x.is_floating_point() else x for name, x in draft.tensors.items()
    }


def _files(name: str, num_shards: int = 1) -> Callable[[Draft], None]:
    def apply(draft: Draft) -> None:
        draft.weights_file, draft.num_shards = name, num_shards

    return apply


def _prefix(draft: Draft) -> str:
    """Return the prefix of the encoder's tensors in the file, with its dot."""
    prefix = f"{draft.model.base_model_prefix}."
    return prefix if any(name.startswith(prefix) for name in draft.tensors) else ""


def _saved_positions(draft: Draft) -> None:
    positions = draft.model.config.max_position_embeddings
    draft.tensors[f"{_prefix(draft)}embeddings.position_ids"] = torch.arange(positions)[None]


def _gamma_and_beta(draft: Draft) -> None:
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def renamed(name: str) -> str:
        for new, old in names.items():
            name = name.replace(new, old)
        return name

    draft.tensors = {renamed(name): x for name, x in draft.tensors.items()}


def _tied_copies(draft: Draft) -> None:
    draft.tensors = {name: x.clone() for name, x in draft.model.state_dict().items() if "position_ids" not in name}


def _head_lacking(draft: Draft) -> None:
    """Write the encoder alone, with or without its prefix, below a config.json that names the head."""
    prefix = _prefix(draft)
    kept = draft.rng.choice((prefix, ""))
    draft.tensors = {
        kept + name.removeprefix(prefix): x for name, x in draft.tensors.items() if name.startswith(prefix)
    }


def _further_heads(draft: Draft) -> None:
    """Add the tensors of heads that the class does not have, as published files of BERT do."""
    width, prefix = draft.model.config.hidden_size, _prefix(draft)
    further = {f"{prefix}pooler.dense.weight": (width, width), f"{prefix}pooler.dense.bias": (width,)}
    if draft.case.family == "bert":
        further |= {"cls.seq_relationship.weight": (2, width), "cls.seq_relationship.bias": (2,)}
    for name, shape in further.items():
        draft.tensors.setdefault(name, 0.1 * torch.ones(shape))


def _without_pooler(draft: Draft) -> None:
    draft.tensors = {name: x for name, x in draft.tensors.items() if "pooler" not in name}


def _tensor_prefix(prefix: str) -> Callable[[Draft], None]:
    def apply(draft: Draft) -> None:
        draft.tensors = {prefix + name: x for name, x in draft.tensors.items()}

    return apply


def _prefixed_encoder(draft: Draft) -> None:
    """Write the names of an encoder as a model with a head has them."""
    prefix = f"{draft.model.base_model_prefix}."
    draft.tensors = {prefix + name.removeprefix(prefix): x for name, x in draft.tensors.items()}


def _bias_of_decoder(draft: Draft) -> None:
    """Store the bias of a head over the vocabulary as the bias of its decoder, alone or also under its own name."""
    for name in ("cls.predictions.bias", "lm_head.bias", "predictions.bias"):
        if name in draft.tensors:
            draft.tensors[name.replace(".bias", ".decoder.bias")] = draft.tensors[name].clone()
            if draft.rng.random() < 0.5:
                del draft.tensors[name]


def _heads_of_other_classes(draft: Draft) -> None:
    """Add the tensors of the heads of two other classes, except for tensors that the class has."""
    case, prefix = draft.case, f"{draft.model.base_model_prefix}."
    names = [case.class_prefix + task for task in HEADED if task != case.task]
    for name in draft.rng.sample([name for name in names if hasattr(transformers, name)], 2):
        tensors = getattr(transformers, name)(draft.model.config).state_dict()
        new = [key for key in tensors if key not in draft.tensors and not key.startswith(prefix)]
        draft.tensors |= {key: tensors[key].clone() for key in new}


def _files_beside(draft: Draft) -> None:
    """Write files that a training leaves beside a model, among them older weights."""
    (draft.directory / "training_args.bin").write_bytes(b"no weights")
    (draft.directory / "generation_config.json").write_text('{"max_length": 5}')
    torch.save({name: torch.zeros_like(x) for name, x in draft.tensors.items()}, draft.directory / "pytorch_model.bin")
    ids = {token["content"]: token["id"] for token in draft.definition["added_tokens"]}
    (draft.directory / "added_tokens.json").write_text(json.dumps(ids))


def _absent_fields(draft: Draft) -> None:
    """Remove most fields with the default value of the family, as files of early versions lack them."""
    defaults = transformers.CONFIG_MAPPING[draft.case.family]().to_dict()
    for name in [*draft.fields]:
        is_default = name in defaults and draft.fields[name] == defaults[name]
        if is_default and name not in ("model_type", "vocab_size") and draft.rng.random() < 0.6:
            del draft.fields[name]


def _unknown_tensor(draft: Draft) -> None:
    name = draft.rng.choice(("loss_fct.weight", "log_vars", "projection.dense.weight", "teacher.temperature"))
    draft.tensors[name] = torch.ones(3)


UNKNOWN_FIELDS: tuple[dict[str, Any], ...] = (
    {"max_seq_length": 128},
    {"num_train_epochs": 3, "learning_rate": 2e-5},
    {"adapters": {"adapters": {}, "config_map": {}}},
    {"model_name": "my model", "dataset": "reviews"},
    {"gradient_accumulation": 2},
    {"label_names": ["a", "b"]},
    {"custom": {"threshold": 0.4}},
    {"reference_compile": None, "attn_implementation": "sdpa"},
    {"transformers.js_config": {"use_external_data_format": False}},
    {"unsloth_version": "2025.1"},
)
GENERATION = {
    "return_dict": True,
    "output_attentions": False,
    "torchscript": False,
    "pruned_heads": {},
    "is_encoder_decoder": False,
    "max_length": 20,
    "num_beams": 1,
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "chunk_size_feed_forward": 0,
    "tie_word_embeddings": True,
    "finetuning_task": None,
    "use_bfloat16": False,
    "problem_type": None,
    "sep_token_id": None,
    "tokenizer_class": None,
}


def _field(*choices: dict[str, Any]) -> Callable[[Draft], None]:
    """Return a change to some fields of config.json: to one of `choices`."""
    return lambda draft: draft.fields.update(draft.rng.choice(choices))


def _fields_of_generation(draft: Draft) -> None:
    draft.fields |= {name: value for name, value in GENERATION.items() if name not in draft.fields}


_WITH_HEAD = _with_task(MASKS, SEQUENCES, TOKENS, ANSWERS, PRETRAINING)
ODD: dict[str, Odd] = {
    "activation gelu_new": Odd("config", 3, _activation("gelu_new"), _not_of("albert", "big_bird"), "activation"),
    "activation relu": Odd("config", 1.5, _activation("relu"), _not_of("mobilebert"), "activation"),
    "activation gelu_pytorch_tanh": Odd("config", 0.7, _activation("gelu_pytorch_tanh"), group="activation"),
    "activation silu": Odd("config", 0.4, _activation("silu"), _not_of("nomic_bert"), "activation"),
    "activation gelu_fast": Odd("config", 0.3, _activation("gelu_fast"), group="activation"),
    "activation gelu_python": Odd("config", 0.3, _activation("gelu_python"), group="activation"),
    "epsilon of norms": Odd("config", 4, _norm_epsilon, _not_of("distilbert", "mobilebert")),
    "rates of dropout": Odd("config", 4, _dropout),
    "dropout before the classifier": Odd("config", 2, _classifier_dropout, _not_of("mpnet", "longformer")),
    "sizes": Odd("config", 4, _sizes, _not_of("mobilebert", "electra")),
    "positions": Odd("config", 2, _config({"max_position_embeddings": 80}, {"max_position_embeddings": 130})),
    "token types": Odd(
        "config",
        2,
        lambda draft: draft.config.update(
            type_vocab_size=2 if draft.case.family in FOLLOW_PADDING else draft.rng.choice((1, 3))
        ),
        _not_of("distilbert", "modernbert", "mpnet"),
    ),
    "no tied table": Odd("config", 1, _config({"tie_word_embeddings": False}), _not_of("nomic_bert")),
    "feed forward in chunks": Odd("config", 0.5, _config({"chunk_size_feed_forward": 1})),
    "decoder": Odd(
        "config", 0.3, _config({"is_decoder": True}), lambda case: (case.family, case.task) == ("bert", BARE)
    ),
    "fewer tokens than rows": Odd("config", 3, _fewer_tokens_than_rows),
    "albert: groups": Odd(
        "config", 2, _config({"num_hidden_groups": 2}, {"inner_group_num": 2}), _of("albert"), "family"
    ),
    "albert: equal widths": Odd("config", 4, _config({"embedding_size": 16}), _of("albert"), "family"),
    "deberta: other terms": Odd(
        "config",
        8,
        _config({"pos_att_type": ["c2p"]}, {"share_att_key": False}, {"norm_rel_ebd": "none"}),
        _of("deberta-v2"),
        "family",
    ),
    "deberta: absolute positions": Odd(
        "config",
        3,
        _config({"position_biased_input": True}, {"relative_attention": False}),
        _of("deberta-v2"),
        "family",
    ),
    "deberta: convolution": Odd(
        "config", 2, _config({"conv_kernel_size": 3, "conv_act": "gelu"}), _of("deberta-v2"), "family"
    ),
    "deberta: distances": Odd("config", 6, _config({"max_relative_positions": 20}), _of("deberta-v2"), "family"),
    "modernbert: biases": Odd(
        "config",
        4,
        _config({"norm_bias": True}, {"attention_bias": True, "mlp_bias": True}, {"classifier_bias": True}),
        _of("modernbert"),
        "family",
    ),
    "modernbert: layers": Odd(
        "config",
        6,
        _config({"global_attn_every_n_layers": 1}, {"local_attention": 4}, {"global_attn_every_n_layers": 2}),
        _of("modernbert"),
        "family",
    ),
    "nomic_bert: rotary base": Odd(
        "files",
        5,
        _field({"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}, {"rope_theta": 50.0}),
        _of("nomic_bert"),
        "family",
    ),
    "longformer: one window": Odd("config", 5, _config({"attention_window": 8}), _of("longformer"), "family"),
    "big_bird: attention": Odd(
        "config", 8, _config({"attention_type": "original_full"}, {"block_size": 8}), _of("big_bird"), "family"
    ),
    "mobilebert: norms": Odd(
        "config",
        6,
        _config({"normalization_type": "layer_norm"}, {"classifier_activation": False}),
        _of("mobilebert"),
        "family",
    ),
    "several labels a text": Odd(
        "config", 3, _several_labels("multi_label_classification"), _with_task(SEQUENCES), "labels"
    ),
    "several values a text": Odd("config", 0.4, _several_labels("regression"), _with_task(SEQUENCES), "labels"),
    "one label": Odd("config", 4, _one_label, _with_task(SEQUENCES), "labels"),
    "problem_type": Odd(
        "config", 4, _config({"problem_type": "single_label_classification"}), _with_task(SEQUENCES), "labels"
    ),
    # Tokenizer.
    "added special tokens": Odd("tokenizer", 2.5, _added_special_tokens, group="added"),
    "added tokens": Odd("tokenizer", 2, _added_tokens, group="added"),
    "added token with flags": Odd("tokenizer", 0.5, _added_token_with_flags, group="added"),
    "accents": Odd("tokenizer", 0.7, _tokenizer({}, strip_accents=False), _of(*WORDPIECE), "kind"),
    "no spaces in Chinese": Odd(
        "tokenizer", 0.5, _tokenizer({}, tokenize_chinese_chars=False), _of(*WORDPIECE), "kind"
    ),
    "space before the text": Odd(
        "tokenizer", 1, _tokenizer({}, add_prefix_space=True), _of("roberta", "longformer"), "kind"
    ),
    "tokenizer of another family": Odd("tokenizer", 1.5, _tokenizer(OTHER_KINDS), _of(*OTHER_KINDS), "kind"),
    "maximum length": Odd("files", 5, lambda draft: draft.settings.update(model_max_length=48)),
    "padding on the left": Odd("files", 0.4, lambda draft: draft.settings.update(padding_side="left")),
    "lower case before BERT": Odd(
        "files",
        0.5,
        _normalizer(
            {
                "type": "Sequence",
                "normalizers": [
                    {"type": "Lowercase"},
                    {
                        "type": "BertNormalizer",
                        "clean_text": True,
                        "handle_chinese_chars": True,
                        "strip_accents": None,
                        "lowercase": False,
                    },
                ],
            }
        ),
        _of(*WORDPIECE),
        "normalizer",
    ),
    "chain of normalizers": Odd(
        "files",
        0.7,
        _normalizer(
            {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]},
            {"type": "Sequence", "normalizers": [{"type": "NFKC"}]},
            {"type": "Lowercase"},
        ),
        _not_of("modernbert"),
        "normalizer",
    ),
    "truncation and padding": Odd("files", 4, _truncation_and_padding),
    "added tokens in another order": Odd("files", 1, _added_tokens_reversed),
    "vocabulary alone": Odd("files", 4, _vocabulary_alone, _of(*WORDPIECE, *BYTE_LEVEL), "layout"),
    "no tokenizer_config.json": Odd(
        "files", 1, lambda draft: draft.removed.add("tokenizer_config.json"), group="layout"
    ),
    "general class": Odd("files", 1.5, _class_name(lambda name: "PreTrainedTokenizerFast"), group="class"),
    "fast class": Odd("files", 2, _class_name(lambda name: name.removesuffix("Fast") + "Fast"), group="class"),
    "names as objects": Odd("files", 1.5, _names_as_objects),
    "do_lower_case of another value": Odd("files", 0.5, _other_case, _of(*WORDPIECE)),
    # Labels.
    "numbers as labels": Odd("files", 1.2, _labels(_numbers_as_labels), _with_task(*LABELED), "labels"),
    "equal labels": Odd("files", 0.6, _labels(_equal_labels), _with_task(*LABELED), "labels"),
    "label2id not inverse": Odd("files", 1.2, _labels(_other_label2id), _with_task(*LABELED), "labels"),
    "no label2id": Odd("files", 0.7, lambda draft: draft.fields.pop("label2id", None), _with_task(*LABELED), "labels"),
    "no id2label": Odd("files", 0.2, lambda draft: draft.fields.pop("id2label", None), _with_task(*LABELED), "labels"),
    "labels backward": Odd("files", 0.7, _labels(_labels_backward), _with_task(*LABELED), "labels"),
    "labels left over": Odd("files", 1.5, _labels(_labels_left_over), _with_task(MASKS, BARE, ANSWERS), "labels"),
    "num_labels": Odd(
        "files", 0.7, _labels(lambda draft, count: {"num_labels": count}), _with_task(*LABELED), "labels"
    ),
    # Weights and config.json.
    "float16": Odd("files", 2.5, _to_dtype(torch.float16), group="dtype"),
    "bfloat16": Odd("files", 1.5, _to_dtype(torch.bfloat16), group="dtype"),
    "several dtypes": Odd("files", 0.3, _mixed_dtypes, group="dtype"),
    "float64": Odd("files", 0.2, _to_dtype(torch.float64), group="dtype"),
    "shards": Odd("files", 1, _files("model.safetensors", 3), group="files"),
    "file of torch": Odd("files", 6, _files("pytorch_model.bin"), group="files"),
    "shards of torch": Odd("files", 0.3, _files("pytorch_model.bin", 2), group="files"),
    "saved positions": Odd("files", 4, _saved_positions, _not_of("modernbert", "nomic_bert", "deberta-v2")),
    "gamma and beta": Odd("files", 1, _gamma_and_beta, _of(*LIKE_BERT), "names"),
    "copies of tied tensors": Odd("files", 2, _tied_copies, _with_task(MASKS, PRETRAINING), "tensors"),
    "bias of the decoder": Odd("files", 1, _bias_of_decoder, _with_task(MASKS, PRETRAINING), "tensors"),
    "heads of other classes": Odd("files", 1, _heads_of_other_classes, _WITH_HEAD, "tensors"),
    "encoder with its prefix": Odd("files", 2, _prefixed_encoder, _with_task(BARE), "names"),
    "no head": Odd("files", 2.5, _head_lacking, _WITH_HEAD, "tensors"),
    "further heads": Odd(
        "files",
        2.5,
        _further_heads,
        lambda case: case.family in ("bert", "roberta", "xlm-roberta") and case.task in (MASKS, TOKENS, ANSWERS),
        "tensors",
    ),
    "no pooler": Odd(
        "files",
        2,
        _without_pooler,
        lambda case: case.task == BARE and case.family not in WITHOUT_POOLER,
        "tensors",
    ),
    "prefix module.": Odd("files", 0.3, _tensor_prefix("module."), group="names"),
    "prefix 0.auto_model.": Odd("files", 0.2, _tensor_prefix("0.auto_model."), _with_task(BARE), "names"),
    "files beside": Odd("files", 3, _files_beside, group="files"),
    "absent fields": Odd("files", 3, _absent_fields),
    "unknown tensor": Odd("files", 0.7, _unknown_tensor),
    "no architectures": Odd("files", 1, lambda draft: draft.fields.pop("architectures"), group="class of the model"),
    "other architecture": Odd(
        "files",
        0.4,
        _field({"architectures": ["MyClassifier"]}, {"architectures": ["BertForMultiLabelClassification"]}),
        group="class of the model",
    ),
    "unknown fields": Odd("files", 2.5, _field(*UNKNOWN_FIELDS)),
    "fields of text generation": Odd("files", 1.5, _fields_of_generation),
    "code": Odd("files", 0.3, _field({"auto_map": {"AutoModel": "modeling.MyModel"}})),
    "positions of keys": Odd(
        "files", 0.2, _field({"position_embedding_type": "relative_key"}), _of("bert", "roberta", "electra")
    ),
    "directory of sentence-transformers": Odd("files", 12, add_bi_encoder_files, _with_task(BARE), "wrap"),
    "directory of a CrossEncoder": Odd("files", 4, add_cross_encoder_files, _with_task(SEQUENCES), "wrap"),
}
