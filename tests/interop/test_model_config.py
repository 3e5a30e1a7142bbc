"""`config.json` as the authors of the families published it, and refusals that name the field."""

import copy
import dataclasses
import json
import re

import numpy as np
import pytest
import torch
import transformers

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.families.base import ACTIVATIONS
from bert_jax.interop.families.deberta import BOTH, REQUIRED, TERMS
from bert_jax.interop.huggingface.model_config import Labels, parse_model_config, read_model_config
from bert_jax.models import PRESETS, layers

SIZES = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
BERT = SIZES | {
    "architectures": ["BertForMaskedLM"],
    "gradient_checkpointing": False,
    "layer_norm_eps": 1e-12,
    "model_type": "bert",
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "use_cache": True,
}
ROBERTA = SIZES | {
    "architectures": ["RobertaForMaskedLM"],
    "bos_token_id": 0,
    "eos_token_id": 2,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 514,
    "model_type": "roberta",
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}
ALBERT = SIZES | {
    "architectures": ["AlbertForMaskedLM"],
    "attention_probs_dropout_prob": 0,
    "bos_token_id": 2,
    "classifier_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": 128,
    "eos_token_id": 3,
    "gap_size": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "inner_group_num": 1,
    "layer_norm_eps": 1e-12,
    "model_type": "albert",
    "net_structure_type": 0,
    "num_hidden_groups": 1,
    "num_memory_blocks": 0,
    "pad_token_id": 0,
    "vocab_size": 30000,
}
DISTILBERT = {
    "activation": "gelu",
    "architectures": ["DistilBertForMaskedLM"],
    "attention_dropout": 0.1,
    "dim": 768,
    "dropout": 0.1,
    "hidden_dim": 3072,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "model_type": "distilbert",
    "n_heads": 12,
    "n_layers": 6,
    "pad_token_id": 0,
    "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "transformers_version": "4.10.0.dev0",
    "vocab_size": 30522,
}
ELECTRA = SIZES | {
    "architectures": ["ElectraForPreTraining"],
    "embedding_size": 128,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "layer_norm_eps": 1e-12,
    "model_type": "electra",
    "num_attention_heads": 4,
    "summary_activation": "gelu",
    "summary_last_dropout": 0.1,
    "summary_type": "first",
    "summary_use_proj": True,
}
# answerdotai/ModernBERT-base, December 2024.
MODERNBERT = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "sep_token_id": 50282,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}


XLM_ROBERTA = ROBERTA | {
    "architectures": ["XLMRobertaForMaskedLM"],
    "model_type": "xlm-roberta",
    "output_past": True,
    "pad_token_id": 1,
    "vocab_size": 250002,
}
CAMEMBERT = XLM_ROBERTA | {
    "architectures": ["CamembertForMaskedLM"],
    "bos_token_id": 5,
    "eos_token_id": 6,
    "model_type": "camembert",
    "vocab_size": 32005,
}
MPNET = {name: value for name, value in XLM_ROBERTA.items() if name not in ("type_vocab_size", "output_past")} | {
    "architectures": ["MPNetForMaskedLM"],
    "model_type": "mpnet",
    "relative_attention_num_buckets": 32,
    "vocab_size": 30527,
}
LONGFORMER = ROBERTA | {
    "architectures": ["LongformerForMaskedLM"],
    "attention_mode": "longformer",
    "attention_window": [512] * 12,
    "ignore_attention_mask": False,
    "max_position_embeddings": 4098,
    "model_type": "longformer",
    "sep_token_id": 2,
}
BIG_BIRD = {
    "architectures": ["BigBirdForPreTraining"],
    "attention_probs_dropout_prob": 0.1,
    "attention_type": "block_sparse",
    "block_size": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "gradient_checkpointing": False,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 4096,
    "model_type": "big_bird",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_random_blocks": 3,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "rescale_embeddings": False,
    "sep_token_id": 66,
    "transformers_version": "4.2.0.dev0",
    "type_vocab_size": 2,
    "use_bias": True,
    "use_cache": True,
    "vocab_size": 50358,
}
DEBERTA = {  # names no architectures
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "model_type": "deberta-v2",
    "norm_rel_ebd": "layer_norm",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"relative_attention": None}, "relative_attention is None; only True"),
        ({"share_att_key": False}, "share_att_key is False; only True"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd is 'none'; only 'layer_norm'"),
        ({"position_biased_input": True}, "position_biased_input is True; only False"),
        ({"pos_att_type": "c2p"}, "pos_att_type is 'c2p'; only 'p2c|c2p'"),
        ({"pos_att_type": 3}, "pos_att_type is 3; only 'p2c|c2p'"),
        ({"position_buckets": -1}, "position_buckets is -1; only numbers from 4 on"),
        ({"position_buckets": 2.0}, "position_buckets is 2.0; only numbers from 4 on"),
        ({"conv_kernel_size": 3}, "conv_kernel_size is 3; only 0"),
        ({"pooler_dropout": 0.1}, "pooler_dropout is 0.1; only 0"),
        ({"pooler_hidden_size": 99}, "pooler_hidden_size is not hidden_size, 768"),
        ({"max_relative_positions": "far"}, "max_relative_positions is 'far', not an integer"),
    ],
    ids=str,
)
def test_another_deberta_is_refused_by_name(change, says):
    with pytest.raises(UserError, match=re.escape(says)):
        parse_model_config(DEBERTA | change, "config.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attention_window": [512] * 11}, "attention_window has 11 numbers, but num_hidden_layers is 12"),
        ({"attention_window": [*[512] * 11, 255]}, "attention_window is 255; it must be even"),
        ({"attention_window": [*[512] * 11, 384]}, "transformers needs a widest that is a multiple of each"),
        ({"attention_window": [*[512] * 11, None]}, "attention_window is None, not an integer"),
        ({"attention_windows": [512] * 12}, "unknown field 'attention_windows'; did you mean 'attention_window'?"),
        ({"attention_window": 5}, "attention_window is 5; it must be even"),
        ({"attention_window": "wide"}, "attention_window is 'wide', not an integer"),
        ({"attention_window": []}, "attention_window has 0 numbers"),
        ({"attention_window": 0}, "attention_window is 0; it must be even, and at least 2"),
        ({"sep_token_id": None}, "sep_token_id is None, not an integer"),
        ({"ignore_attention_mask": True}, "ignore_attention_mask is True; only False"),
    ],
    ids=str,
)
def test_another_longformer_is_refused_by_name(change, says):
    with pytest.raises(UserError, match=re.escape(says)):
        parse_model_config(LONGFORMER | change, "config.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attention_type": "sparse"}, "attention_type is 'sparse', none of block_sparse, original_full"),
        ({"block_size": None}, "block_size is None, not an integer"),
        ({"block_size": 0}, "block_size is 0; it must lie from 1"),
        ({"num_random_blocks": "many"}, "num_random_blocks is 'many', not an integer"),
        ({"use_bias": False}, "use_bias is False; only True"),
        ({"rescale_embeddings": True}, "rescale_embeddings is True; only False"),
        ({"is_decoder": True}, "is_decoder is True; only False"),
        ({"sep_token_id": None}, "sep_token_id is None, not an integer"),
    ],
    ids=str,
)
def test_another_big_bird_is_refused_by_name(change, says):
    with pytest.raises(UserError, match=re.escape(says)):
        parse_model_config(BIG_BIRD | change, "config.json")


def test_a_big_bird_of_full_attention_has_no_blocks():
    read = parse_model_config(BIG_BIRD | {"attention_type": "original_full"}, "config.json")
    assert read.encoder == dataclasses.replace(PRESETS["big_bird_base"], block_size=None, random_blocks=0)


@pytest.mark.parametrize("change", [{"relative_attention_num_buckets": 64}, {"pad_token_id": 0}], ids=str)
def test_an_mpnet_that_transformers_would_compute_otherwise_is_refused(change):
    ((name, value),) = change.items()
    with pytest.raises(UserError, match=f"{name} is {value}; only"):
        parse_model_config(MPNET | change, "config.json")


@pytest.mark.parametrize(
    ("fields", "preset", "changed"),
    [
        (XLM_ROBERTA, "xlm_roberta_base", {}),
        (CAMEMBERT, "camembert_base", {}),
        (MPNET, "mpnet_base", {}),
        (LONGFORMER, "longformer_base", {}),
        (BIG_BIRD, "big_bird_base", {}),
        (DEBERTA, "deberta_v3_base", {}),
        (BERT, "base", {}),
        (ROBERTA, "roberta_base", {}),
        (ALBERT, "albert_base", {}),
        (DISTILBERT, "distilbert", {"classifier_dropout": 0.2}),
        (ELECTRA, "electra_small", {}),
        (
            ELECTRA | {"hidden_size": 768, "embedding_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
            "electra_base",
            {},
        ),
        (MODERNBERT, "modern_base", {"pooling": "mean"}),
        (
            MODERNBERT
            | {"hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 2624, "num_attention_heads": 16},
            "modern_large",
            {"pooling": "mean"},
        ),
    ],
    ids=[
        "xlm-roberta",
        "camembert",
        "mpnet",
        "longformer",
        "big_bird",
        "deberta",
        "bert",
        "roberta",
        "albert",
        "distilbert",
        "electra",
        "electra base",
        "modernbert",
        "modernbert large",
    ],
)
def test_published_files_are_our_presets(fields, preset, changed):
    read = parse_model_config(fields, "config.json")
    assert read.encoder == dataclasses.replace(PRESETS[preset], **changed)
    assert read.architecture == fields.get("architectures", [""])[0]
    assert read.labels == Labels()


@pytest.mark.parametrize(
    "fields",
    [BERT, ROBERTA, ALBERT, DISTILBERT, ELECTRA, MODERNBERT, LONGFORMER, BIG_BIRD],
    ids=lambda f: f["model_type"],
)
def test_missing_fields_have_the_defaults_of_transformers(fields):
    kept = {name: fields[name] for name in ("model_type", "vocab_size")}
    theirs = json.loads(transformers.AutoConfig.for_model(**kept).to_json_string(use_diff=False))
    assert parse_model_config(kept, "") == parse_model_config(theirs, "")


OF_DEBERTA = REQUIRED | {TERMS: [*BOTH], "position_buckets": 256, "pooler_hidden_size": 1536}
IN_TRANSFORMERS = [name for name, family in FAMILIES.items() if family.in_transformers]


@pytest.mark.parametrize("family", IN_TRANSFORMERS)
def test_a_field_that_transformers_does_not_read_is_named_and_not_read(family):
    fields = {"model_type": family, "vocab_size": 99} | (OF_DEBERTA if family == "deberta-v2" else {})
    read = parse_model_config(fields | {"attention_stride": 3, "vocab_sizes": 98}, "config.json")
    assert read.unknown == ("'attention_stride'", "'vocab_sizes' (did you mean 'vocab_size'?)")
    assert read.encoder == parse_model_config(fields, "config.json").encoder


@pytest.mark.parametrize("family", IN_TRANSFORMERS)
def test_every_field_that_transformers_reads_is_known(family):
    """So a field that is not known has no influence on a model of transformers."""
    config = transformers.AutoConfig.for_model(family)
    fields = json.loads(config.to_json_string(use_diff=False)) | (OF_DEBERTA if family == "deberta-v2" else {})
    aliases = {alias: fields[name] for alias, name in type(config).attribute_map.items()}
    assert parse_model_config(fields | aliases, "config.json").unknown == ()


@pytest.mark.parametrize("family", ["modernbert", "nomic_bert"])
@pytest.mark.parametrize(
    "change", [{"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"partial_rotary_factor": 0.5}]
)
def test_a_rotary_field_of_earlier_versions_is_refused_if_transformers_reads_it(family, change):
    def rotations(fields):
        return transformers.CONFIG_MAPPING[family].from_dict(copy.deepcopy(fields)).rope_parameters

    fields = {"model_type": family, "vocab_size": 99}
    if rotations(fields | change) != rotations(fields):
        with pytest.raises(UserError, match=f"{next(iter(change))} is"):
            parse_model_config(fields | change, "config.json")


def test_a_field_under_two_names_has_one_value():
    assert parse_model_config(DISTILBERT | {"hidden_size": 768}, "") == parse_model_config(DISTILBERT, "")
    named_otherwise = {name: value for name, value in DISTILBERT.items() if name != "dim"} | {"hidden_size": 384}
    assert (
        parse_model_config(named_otherwise, "").encoder.hidden_size
        == transformers.DistilBertConfig(hidden_size=384).dim
    )
    with pytest.raises(UserError, match=r"^config\.json: hidden_size is 384, but dim is 768"):
        parse_model_config(DISTILBERT | {"hidden_size": 384}, "config.json")


def test_an_unknown_field_of_a_directory_for_bert_jax_alone_is_refused():
    with pytest.raises(UserError, match=r"^config\.json: unknown field 'attention_stride'"):
        parse_model_config({"model_type": "research", "vocab_size": 99, "attention_stride": 3}, "config.json")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_compute_the_values_of_transformers(name):
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    ours = layers.ACTIVATIONS[ACTIVATIONS[name]](x)
    np.testing.assert_allclose(ours, transformers.activations.ACT2FN[name](torch.tensor(x)), atol=1e-5)


def test_labels_follow_the_order_of_their_numbers_in_the_file():
    names = {str(i): f"name {i}" for i in range(11)}
    read = parse_model_config(BERT | {"id2label": names, "label2id": {x: int(i) for i, x in names.items()}}, "")
    assert read.labels == Labels(tuple(names.values()), 11)
    assert parse_model_config(BERT | {"num_labels": 7}, "").labels.classes == 7
    assert parse_model_config(BERT | {"_num_labels": 3}, "").labels.classes == 3
    unnamed = {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}
    assert parse_model_config(BERT | unnamed, "").labels == Labels(classes=3)


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"id2label": {"0": 0, "1": 1}, "label2id": {"0": 0, "1": 1}}, ""),
        ({"id2label": {"0": 0.5, "1": True}}, ""),
        ({"id2label": {"1": "b", "0": "a"}}, ""),
        ({"id2label": {"0": "a", "1": "a"}, "label2id": {"a": 1}}, ""),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}}, "label2id is not the inverse of id2label"),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"LABEL_0": 0}}, "label2id is not the inverse of id2label"),
    ],
    ids=str,
)
def test_labels_are_read_as_transformers_reads_them(fields, note):
    theirs = transformers.BertConfig(**json.loads(json.dumps(fields))).id2label
    read = parse_model_config(BERT | fields, "config.json").labels
    assert read.names == tuple(str(theirs[i]) for i in range(len(theirs)))
    assert [line.partition(";")[0] for line in read.notes] == ([f"config.json: {note}"] if note else [])


WRONG_LABELS = [
    ({"id2label": {"0": "a", "1": "b"}, "num_labels": 3}, "num_labels is 3, but id2label has 2 names"),
    ({"id2label": {"0": "a", "1": "b"}, "_num_labels": 3}, "_num_labels is 3, but id2label has 2 names"),
    ({"num_labels": 3, "_num_labels": 2}, "num_labels is 3 and _num_labels is 2"),
    ({"num_labels": 0}, "num_labels is 0"),
    ({"id2label": {"0": "a", "2": "b"}}, "are not 0 to 1"),
    ({"label2id": {"a": 0}}, "a label2id, but no id2label"),
    ({"id2label": ["a", "b"]}, "not a table of numbers and names"),
    ({"id2label": {"0": ["a"], "1": "b"}}, "not a table of numbers and names"),
    ({"problem_type": "ranking"}, "problem_type is 'ranking'"),
    ({"problem_type": "single_label_classification", "num_labels": 1}, "there is one label"),
    ({"sbert_ce_default_activation_function": "torch.nn.Tanh"}, "is 'torch.nn.Tanh'; Sigmoid and Identity can be read"),
]


@pytest.mark.parametrize(("fields", "words"), WRONG_LABELS, ids=[str(row[0])[:60] for row in WRONG_LABELS])
def test_wrong_labels_are_an_error_of_the_head_alone(fields, words):
    read = parse_model_config(BERT | fields, "config.json")
    assert isinstance(read.labels, UserError)
    assert words in str(read.labels)
    assert read.encoder == parse_model_config(BERT, "config.json").encoder


REFUSED = [
    (BERT, {"hidden_act": "mish"}, "hidden_act is 'mish'"),
    (BERT, {"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]"),
    (BERT, {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
    (BERT, {"is_decoder": 1}, "is_decoder is 1, not true or false"),
    (BERT, {"is_encoder_decoder": True}, "is_encoder_decoder is True"),
    (BERT, {"model_type": "gpt2"}, "model_type is 'gpt2'; these can be read: bert, roberta"),
    (BERT, {"model_type": None}, "there is no 'model_type'"),
    (BERT, {"model_type": ["bert"]}, r"model_type is \['bert'\]"),
    (BERT, {"hidden_size": "24"}, "hidden_size is '24', not an integer"),
    (BERT, {"hidden_size": None}, "hidden_size is None, not an integer"),
    (ALBERT, {"classifier_dropout_prob": None}, "classifier_dropout_prob is None, not a number"),
    (BERT, {"hidden_size": 24.0}, "hidden_size is 24.0, not an integer"),
    (BERT, {"num_hidden_layers": True}, "num_hidden_layers is True, not an integer"),
    (BERT, {"num_hidden_layers": 0}, "num_hidden_layers is 0; it must lie from 1"),
    (BERT, {"hidden_size": 10**12}, "hidden_size is 1000000000000; it must lie"),
    (BERT, {"hidden_dropout_prob": 1.5}, "hidden_dropout_prob is 1.5"),
    (BERT, {"layer_norm_eps": -1e-12}, "layer_norm_eps is -1e-12"),
    (BERT, {"auto_map": {"AutoModel": "modeling.Mine"}}, "names Python code of the model"),
    (BERT, {"quantization_config": {}}, "quantization_config is {}; only None"),
    (BERT, {"architectures": ["BertModel", "BertForMaskedLM"]}, "not a list of one name"),
    (BERT, {"architectures": "BertModel"}, "not a list of one name"),
    (ROBERTA, {"pad_token_id": None}, "pad_token_id is None"),
    (ROBERTA, {"pad_token_id": 513}, "pad_token_id is 513"),
    (ALBERT, {"num_hidden_groups": 2}, "num_hidden_groups is 2; only 1"),
    (ALBERT, {"inner_group_num": 2}, "inner_group_num is 2"),
    (ALBERT, {"gap_size": 1}, "gap_size is 1"),
    (ALBERT, {"down_scale_factor": 2}, "down_scale_factor is 2"),
    (ALBERT, {"embedding_size": 0}, "embedding_size is 0"),
    (DISTILBERT, {"tie_weights_": False}, "tie_weights_ is False"),
    (ELECTRA, {"summary_type": "mean"}, "summary_type is 'mean'"),
    (ELECTRA, {"summary_use_proj": False}, "summary_use_proj is False"),
    (MODERNBERT, {"norm_bias": 0}, "norm_bias is 0, not true or false"),
    (MODERNBERT, {"decoder_bias": False}, "decoder_bias is False; only True"),
    (MODERNBERT, {"classifier_pooling": "max"}, "classifier_pooling is 'max', none of cls, mean"),
    (MODERNBERT, {"classifier_activation": "mish"}, "classifier_activation is 'mish', none of gelu"),
    (MODERNBERT, {"mlp_dropout": 0.1}, r"mlp_dropout is 0\.1, but embedding_dropout is 0\.0; only equal values"),
    (MODERNBERT, {"rope_scaling": {"type": "linear"}}, "rope_scaling is"),
    (MODERNBERT, {"global_rope_theta": "big"}, "global_rope_theta is 'big', not a number"),
    (MODERNBERT, {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0; it must lie from 1"),
    (MODERNBERT, {"local_attention": None}, "local_attention is None, not an integer"),
    (MODERNBERT, {"rope_parameters": [1]}, "rope_parameters is not a table"),
    (MODERNBERT, {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters is not a table of full_attention and"),
    (MODERNBERT, {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'; only 'default'"),
    (MODERNBERT, {"rope_parameters": {"full_attention": {"factor": 2.0}}}, "not rope_type and rope_theta alone"),
    (
        MODERNBERT,
        {"rope_parameters": {"sliding_attention": {"rope_theta": 1e5}}},
        r"local_rope_theta is 10000\.0, but rope_parameters say 100000\.0",
    ),
    (
        MODERNBERT,
        {"layer_types": "full_attention"},
        "layer_types is not a list of full_attention and sliding_attention",
    ),
    (MODERNBERT, {"layer_types": [["full_attention"]]}, "layer_types is not a list of full_attention"),
    (MODERNBERT, {"layer_types": ["full_attention"] * 21}, "layer_types names 21 layers, but num_hidden_layers is 22"),
    (MODERNBERT, {"layer_types": ["full_attention"] * 22}, "contradict global_attn_every_n_layers=3"),
    (MODERNBERT, {"layer_types": ["sliding_attention"] * 22}, "contradict global_attn_every_n_layers=3"),
    (MODERNBERT, {"layer_types": ["sliding_attention", "full_attention"] * 11}, "only every n-th of layer_types"),
    (BERT, {"layer_norm_eps": float("inf")}, r"layer_norm_eps is inf; it must lie from 0 to 3\.4e\+38"),
    (BERT, {"layer_norm_eps": float("nan")}, "layer_norm_eps is nan; it must lie"),
    (BERT, {"layer_norm_eps": 1e39}, r"layer_norm_eps is 1e\+39; it must lie"),
    (MODERNBERT, {"global_rope_theta": float("inf")}, "global_rope_theta is inf; it must lie"),
]


@pytest.mark.parametrize(("fields", "change", "words"), REFUSED, ids=[str(row[1])[:60] for row in REFUSED])
def test_a_field_of_another_architecture_is_refused_by_name(fields, change, words):
    with pytest.raises(UserError, match=words):
        parse_model_config(fields | change, "config.json")


def test_a_file_without_a_vocabulary_is_refused():
    with pytest.raises(UserError, match="'vocab_size' is missing"):
        parse_model_config({name: x for name, x in BERT.items() if name != "vocab_size"}, "config.json")


def test_a_number_beyond_the_largest_is_refused(tmp_path):
    """JSON has no infinity, but Python reads one."""
    text = json.dumps(BERT).replace("1e-12", "1e999")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match="cannot be read as JSON: 1e999 is too large for a number"):
        read_model_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "cannot be read as JSON"),
        (b"[1]", "is not a JSON object"),
        (b"\xff{}", "cannot be read as JSON"),
        (b'{"vocab_size": 3, "model_type": "bert", "vocab_size": 4}', "the key 'vocab_size' is given twice"),
        (b'{"layer_norm_eps": NaN}', "NaN is no JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
    ],
    ids=["cut", "list", "no UTF-8", "twice", "NaN", "deep", "long"],
)
def test_a_file_that_is_not_strict_json_is_refused(tmp_path, text, words):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(UserError, match=words):
        read_model_config(tmp_path / "config.json")


def test_a_config_with_100_000_long_labels_is_read(tmp_path):
    names = [f"a label of eighty characters, such as the path to a department of a shop {n:07}" for n in range(100_000)]
    ids = {name: n for n, name in enumerate(names)}
    transformers.BertConfig(id2label=dict(enumerate(names)), label2id=ids).save_pretrained(tmp_path)
    assert (tmp_path / "config.json").stat().st_size > strict_json.MAX_BYTES
    assert read_model_config(tmp_path / "config.json").labels.names == tuple(names)
