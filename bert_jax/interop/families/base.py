"""The types of a row of FAMILIES, and what several families share."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Module(NamedTuple):
    """A parameter or a group of them; `{layer}` in `name` stands for the index on the stacked `layers` axis."""

    path: str  # in our tree
    name: str  # in theirs
    kind: str = "linear"  # a key of LEAVES
    part: tuple[int, int] = (0, 1)  # (i, n): it is the i-th of n equal parts of their tensor, along its first axis
    first_layer: int = 0  # layers before it do not use the parameter, and have no tensor


VOCABULARY = "vocabulary"  # the kind of an array whose first axis is the vocabulary, padded in ours
# Kind -> names of its parameters in our tree and in their file.
LEAVES = {
    "linear": {"kernel": "weight", "bias": "bias"},
    "norm": {"scale": "weight", "bias": "bias"},
    "array": {"": ""},
    VOCABULARY: {"": ""},
}


class ModelClass(NamedTuple):
    """A class of `transformers`: the heads that it has, and its modules beside the encoder."""

    name: str
    heads: tuple[str, ...]
    modules: tuple[Module, ...]

    @property
    def is_bare(self) -> bool:
        """Whether the class is an encoder without a head of its own."""
        return self.heads in ((), ("pooled",))


class Field(NamedTuple):
    """A field of `config.json` as a field of `EncoderConfig`, or as several of the same value."""

    name: str
    default: int | float | str | None  # in transformers, where a file lacks the field; None: null is a value of it
    values: Mapping[str, str] | None = None  # their words -> ours
    also: tuple[str, ...] = ()  # further fields of ours that have the value


class Spelling(NamedTuple):
    """Fields of a family that say in other words the same as those of its table."""

    names: frozenset[str]
    read: Callable[[Mapping[str, Any], str], dict[str, Any]]  # (a file's fields, where) -> with those of the table
    write: Callable[[Mapping[str, Any]], dict[str, Any]]  # the fields of the table -> with these


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A row of FAMILIES."""

    prefix: str  # of the encoder's tensors in a model with a head; a bare model's lack it
    encoder: tuple[Module, ...]
    classes: tuple[ModelClass, ...]  # of two with the same heads, the first is written
    tied: Mapping[str, str]  # second name of a tensor -> its name in this table
    fields: Mapping[str, Field]
    constants: Mapping[str, Any]  # fields of EncoderConfig that `config.json` does not have
    fixed: Mapping[str, Any]  # fields of `config.json` whose other values would mean another architecture
    indifferent: frozenset[str] = frozenset()  # its own fields without influence on the results
    follow_padding: bool = False  # positions start at the padding's id + 1
    project_equal: bool = False  # embeddings as wide as the encoder are projected too
    spelling: Spelling | None = None
    ignored: tuple[str, ...] = ()  # beginnings of names of published tensors that no head of ours has
    shared: frozenset[str] = frozenset()  # modules that mean the same in all its classes
    in_transformers: bool = True
    # Fields of EncoderConfig, and fields of `config.json`, -> the tokens whose ids they are.
    token_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    special_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)


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
    """Return the fields of BERT, with changes."""
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


def modules(ours: str, theirs: str, names: Mapping[str, str], kind: str = "linear") -> tuple[Module, ...]:
    """Return a Module for each of `names`, ours -> theirs, below the prefixes `ours` and `theirs`."""
    return tuple(Module(f"{ours}/{path}", f"{theirs}.{name}", kind) for path, name in names.items())


def bert_embeddings(theirs: str) -> tuple[Module, ...]:
    """Return the tensors of BERT's embeddings; families without token types or positions have no such parameters."""
    ours, tables = "encoder/embeddings", {"position": "position_embeddings.weight"}
    return (
        Module(f"{ours}/token", f"{theirs}.word_embeddings.weight", VOCABULARY),
        *modules(ours, theirs, tables | {"token_type": "token_type_embeddings.weight"}, "array"),
        Module(f"{ours}/norm", f"{theirs}.LayerNorm", "norm"),
    )


def bert_encoder(prefix: str) -> tuple[Module, ...]:
    """Return the tensors of BERT's encoder, named alike in RoBERTa and ELECTRA."""
    ours, layer = "encoder/layers", f"{prefix}.encoder.layer.{{layer}}"
    linear = {
        "attention/query": "attention.self.query",
        "attention/key": "attention.self.key",
        "attention/value": "attention.self.value",
        "attention/output": "attention.output.dense",
        "mlp_up": "intermediate.dense",
        "mlp_down": "output.dense",
    }
    norms = {"attention_norm": "attention.output.LayerNorm", "mlp_norm": "output.LayerNorm"}
    return (
        *bert_embeddings(f"{prefix}.embeddings"),
        *modules(ours, layer, linear),
        *modules(ours, layer, norms, "norm"),
    )


def fused_qkv(name: str) -> tuple[Module, ...]:
    """Return queries, keys and values as equal parts of one tensor."""
    names = ("query", "key", "value")
    return tuple(Module(f"encoder/layers/attention/{ours}", name, part=(i, 3)) for i, ours in enumerate(names))


def masked_head(dense: str, norm: str, bias: str, head: str = "masked_token") -> tuple[Module, ...]:
    """Return the tensors of a head over the vocabulary, whose table is that of the embeddings."""
    return (
        Module(f"{head}/dense", dense),
        Module(f"{head}/norm", norm, "norm"),
        Module(f"{head}/bias", bias, VOCABULARY),
    )


def bert_masked_head(head: str = "masked_token") -> tuple[Module, ...]:
    """Return the tensors of BERT's head over the vocabulary."""
    predictions = "cls.predictions"
    return masked_head(
        f"{predictions}.transform.dense", f"{predictions}.transform.LayerNorm", f"{predictions}.bias", head
    )


def tied_decoder(head: str, embeddings: str) -> dict[str, str]:
    """Return the second names of a masked-token head's table and bias: its `decoder`."""
    return {f"{head}.decoder.weight": f"{embeddings}.word_embeddings.weight", f"{head}.decoder.bias": f"{head}.bias"}


def task_classes(
    family: str, pooler: Module, classification: tuple[Module, ...] = (), answers: tuple[Module, ...] = ()
) -> tuple[ModelClass, ...]:
    """Return the classes of the four tasks.

    `classification` and `answers` are the modules of sequence classification and of question answering where these are
    not a linear map, for the first on the `pooler`.
    """
    classification = classification or (pooler, Module("sequence_classification", "classifier"))
    choice, tokens = Module("multiple_choice", "classifier"), Module("token_classification", "classifier")
    answers = answers or (Module("question_answering", "qa_outputs"),)
    return (
        ModelClass(f"{family}ForSequenceClassification", ("sequence_classification",), classification),
        ModelClass(f"{family}ForMultipleChoice", ("multiple_choice",), (pooler, choice)),
        ModelClass(f"{family}ForTokenClassification", ("token_classification",), (tokens,)),
        ModelClass(f"{family}ForQuestionAnswering", ("question_answering",), answers),
    )


# Sequence classification with a dense layer of its own in place of the pooler, as in RoBERTa.
CLASSIFICATION_HEAD = (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj"))


def bare_classes(name: str, pooler: Module | None = None) -> tuple[ModelClass, ...]:
    """Return the class of an encoder without a head: with its pooler, where it has one, and without."""
    pooled = (ModelClass(name, ("pooled",), (pooler,)),) if pooler else ()
    return (*pooled, ModelClass(name, (), ()))
