"""The types of a row of FAMILIES, and what several families share."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Module(NamedTuple):
    """A parameter or a group of them; `{layer}` in `name` stands for the index on the stacked `layers` axis."""

    path: str  # in our tree
    name: str  # in theirs
    kind: str = "linear"  # a key of LEAVES
    vocabulary: bool = False  # the first axis is the vocabulary, padded in ours
    part: int = 0  # which of the equal parts of their tensor, along its first axis
    parts: int = 1  # of their tensor, each a parameter of ours
    first_layer: int = 0  # layers before it do not use the parameter, and have no tensor


LEAVES = {
    "linear": {"kernel": "weight", "bias": "bias"},
    "norm": {"scale": "weight", "bias": "bias"},
    "array": {"": ""},
}


class ModelClass(NamedTuple):
    """A class of `transformers`: the heads that it has, and its modules beside the encoder."""

    name: str
    heads: tuple[str, ...]
    modules: tuple[Module, ...]


class Field(NamedTuple):
    """A field of `config.json` as a field of `EncoderConfig`, or as several of the same value."""

    name: str
    default: int | float | str | None  # in transformers, where a file lacks the field; None: null is a value of it
    values: Mapping[str, str] | None = None  # their words -> ours
    also: tuple[str, ...] = ()  # further fields of ours that have the value


class Spelling(NamedTuple):
    """Fields of a family that say in other words what those of its table do."""

    names: frozenset[str]
    read: Callable[[Mapping[str, Any], str], dict[str, Any]]  # (a file's fields, where) -> with those of the table
    write: Callable[[Mapping[str, Any]], dict[str, Any]]  # the fields of the table -> with these


class Family(NamedTuple):
    """A row of FAMILIES."""

    prefix: str  # of the encoder's tensors in a model with a head; a bare model's lack it
    encoder: tuple[Module, ...]
    classes: tuple[ModelClass, ...]  # of two with the same heads, the first is written
    tied: dict[str, str]  # second name of a tensor -> its name in this table
    fields: dict[str, Field]
    constants: dict[str, Any]  # fields of EncoderConfig that `config.json` does not have
    fixed: dict[str, Any]  # fields of `config.json` whose other values would mean another architecture
    indifferent: frozenset[str] = frozenset()  # its own fields without influence on the results
    follow_padding: bool = False  # positions start at the padding's id + 1
    project_equal: bool = False  # embeddings as wide as the encoder are projected too
    spelling: Spelling | None = None
    ignored: tuple[str, ...] = ()  # beginnings of names of published tensors that no head of ours has
    shared: frozenset[str] = frozenset()  # modules that mean the same in all its classes
    in_transformers: bool = True
    token_ids: Mapping[str, str] = MappingProxyType({})  # fields of EncoderConfig -> the tokens whose ids they are
    special_ids: Mapping[str, str] = MappingProxyType({})  # fields of `config.json` -> the tokens whose ids they are


# The first name of each is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu",
    "silu": "silu",
    "swish": "silu",
}

FIXED: dict[str, Any] = {
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
    "chunk_size_feed_forward": 0,
    "pruned_heads": {},
}

# Fields of every family without influence on the results: the origin of a file, how torch runs it, and the settings of
# text generation that transformers 2 to 4 wrote into every file.
_SILENT = (
    "_name_or_path _attn_implementation_autoset architectures bos_token_id directionality dtype eos_token_id "
    "eos_token_ids finetuning_task gradient_checkpointing language model_type name output_attentions "
    "output_hidden_states output_past pad_token_id return_dict sep_token_id task_specific_params tokenizer_class "
    "torch_dtype torchscript transformers_version use_bfloat16 use_cache xla_device "
    "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "bad_words_ids begin_suppress_tokens cross_attention_hidden_size decoder_start_token_id diversity_penalty "
    "do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id "
    "forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams "
    "num_return_sequences output_scores prefix remove_invalid_values repetition_penalty return_dict_in_generate "
    "suppress_tokens temperature tf_legacy_loss tie_encoder_decoder top_k top_p typical_p"
)
BEGIN_AND_END = {"bos_token_id": "cls", "eos_token_id": "sep"}
INDIFFERENT = frozenset(_SILENT.split())
LABELS = ("id2label", "label2id", "num_labels", "_num_labels", "problem_type")  # read together


def bert_fields(**changed: Field) -> dict[str, Field]:
    """The fields of BERT, with changes."""
    return {
        "vocab_size": Field("vocab_size", 30522),
        "hidden_size": Field("hidden_size", 768),
        "num_hidden_layers": Field("num_layers", 12),
        "num_attention_heads": Field("num_heads", 12),
        "intermediate_size": Field("mlp_size", 3072),
        "hidden_act": Field("activation", "gelu", ACTIVATIONS),
        "max_position_embeddings": Field("max_positions", 512),
        "type_vocab_size": Field("num_token_types", 2),
        "layer_norm_eps": Field("layer_norm_epsilon", 1e-12),
        "hidden_dropout_prob": Field("dropout", 0.1),
        "attention_probs_dropout_prob": Field("attention_dropout", 0.1),
        "classifier_dropout": Field("classifier_dropout", None),
        "initializer_range": Field("initializer_range", 0.02),
    } | changed


def bert_encoder(prefix: str) -> tuple[Module, ...]:
    """The tensors of BERT's encoder, named alike in RoBERTa and ELECTRA."""
    embeddings, layer = f"{prefix}.embeddings", f"{prefix}.encoder.layer.{{layer}}"
    return (
        Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
        Module("encoder/embeddings/position", f"{embeddings}.position_embeddings.weight", "array"),
        Module("encoder/embeddings/token_type", f"{embeddings}.token_type_embeddings.weight", "array"),
        Module("encoder/embeddings/norm", f"{embeddings}.LayerNorm", "norm"),
        Module("encoder/layers/attention/query", f"{layer}.attention.self.query"),
        Module("encoder/layers/attention/key", f"{layer}.attention.self.key"),
        Module("encoder/layers/attention/value", f"{layer}.attention.self.value"),
        Module("encoder/layers/attention/output", f"{layer}.attention.output.dense"),
        Module("encoder/layers/attention_norm", f"{layer}.attention.output.LayerNorm", "norm"),
        Module("encoder/layers/mlp_up", f"{layer}.intermediate.dense"),
        Module("encoder/layers/mlp_down", f"{layer}.output.dense"),
        Module("encoder/layers/mlp_norm", f"{layer}.output.LayerNorm", "norm"),
    )


def masked_head(dense: str, norm: str, bias: str, head: str = "masked_token") -> tuple[Module, ...]:
    """The tensors of a head over the vocabulary, whose table is that of the embeddings."""
    return (
        Module(f"{head}/dense", dense),
        Module(f"{head}/norm", norm, "norm"),
        Module(f"{head}/bias", bias, "array", vocabulary=True),
    )


def task_classes(family: str, classification: tuple[Module, ...], choice: tuple[Module, ...]) -> tuple[ModelClass, ...]:
    """The classes of the four tasks; the families differ in the pooler of the first two."""
    return (
        ModelClass(f"{family}ForSequenceClassification", ("sequence_classification",), classification),
        ModelClass(f"{family}ForMultipleChoice", ("multiple_choice",), choice),
        ModelClass(
            f"{family}ForTokenClassification",
            ("token_classification",),
            (Module("token_classification", "classifier"),),
        ),
        ModelClass(
            f"{family}ForQuestionAnswering", ("question_answering",), (Module("question_answering", "qa_outputs"),)
        ),
    )
