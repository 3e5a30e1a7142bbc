"""The types in a row of FAMILIES, and the parts that several families share."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class NamedModule(NamedTuple):
    """The names of a module or of a single parameter; `{layer}` in `name` stands for the index of a layer."""

    path: str  # path in our parameter tree
    name: str  # name in the file, without the names in LEAVES
    kind: str = "linear"  # a key of LEAVES
    part: tuple[int, int] = (
        0,
        1,
    )  # (i, n): the parameter is the i-th of n equal parts of the tensor, along the first axis
    first_layer: int = 0  # earlier layers do not use the parameter and have no tensor


VOCABULARY = "vocabulary"  # the kind of an array whose first axis is the vocabulary, padded in our tree
# Kind of a module -> {name of a parameter in our tree: its name in the file}.
LEAVES = {
    "linear": {"kernel": "weight", "bias": "bias"},
    "norm": {"scale": "weight", "bias": "bias"},
    "array": {"": ""},
    VOCABULARY: {"": ""},
}


class ModelClass(NamedTuple):
    """A model class of `transformers`: the heads of the class, and its modules other than the encoder."""

    name: str
    heads: tuple[str, ...]
    modules: tuple[NamedModule, ...]

    @property
    def is_bare(self) -> bool:
        """Return whether the model class is an encoder without a head."""
        return self.heads in ((), ("pooled",))


class Field(NamedTuple):
    """The fields of `EncoderConfig` that take their value from one field of `config.json`."""

    name: str
    default: int | float | str | None  # value of transformers for a file without the field; None: the field may be null
    values: Mapping[str, str] | None = None  # value in the file -> our value
    also: tuple[str, ...] = ()  # further fields of EncoderConfig with this value


class Spelling(NamedTuple):
    """Fields of a file that replace fields of the family's table, and the conversion in both directions."""

    names: frozenset[str]  # fields of a file that the family's table lacks
    read: Callable[[Mapping[str, Any], str], dict[str, Any]]  # (fields of a file, where) -> fields of the table
    write: Callable[[Mapping[str, Any]], dict[str, Any]]  # fields of the table -> fields of a file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A row of FAMILIES, such as BERT or RoBERTa."""

    prefix: str  # prefix of the encoder's tensors in a model with a head; a bare model has no prefix
    encoder: tuple[NamedModule, ...]
    classes: tuple[ModelClass, ...]  # if two classes have equal heads, an export writes the first class
    tied: Mapping[str, str]  # second name of a tensor -> the name of the tensor in this table
    fields: Mapping[str, Field]
    constants: Mapping[str, Any]  # fields of EncoderConfig that `config.json` does not have
    fixed: Mapping[str, Any]  # field of `config.json` -> its only allowed value; other values mean another architecture
    indifferent: frozenset[str] = frozenset()  # fields of this family without influence on the results
    follow_padding: bool = False  # whether positions start at the padding's id + 1
    project_equal: bool = False  # whether a projection exists even if embedding_size equals hidden_size
    spelling: Spelling | None = None
    ignored: tuple[str, ...] = ()  # parts of the names of published tensors that no head and no encoder reads
    shared: frozenset[str] = frozenset()  # names of modules with one meaning in all classes of the family
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)  # alias -> the name in `fields`
    # Module in a file -> the modules of transformers, and so of `peft`, that have equal parts of its tensor along the
    # first axis. A family whose modules all have their names in the file has no rows.
    peft_names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    in_transformers: bool = True
    bidirectional: str | None = None  # for a causal family: the family with equal blocks and bidirectional attention
    # Fields without influence on the results that other readers of `config.json` need: name -> written value.
    written: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Field whose value is the id of a special token -> the role of this token. The fields of `token_ids` belong to
    # EncoderConfig, the fields of `special_ids` to `config.json`.
    token_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)
    special_ids: Mapping[str, str] = dataclasses.field(default_factory=dict)


# Name in a file -> our activation. The first name of an activation is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_python": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

FIXED: dict[str, Any] = {
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "quantization_config": None,
}

# Fields of every family without influence on the results: the origin of a file, how torch runs the model, and the
# settings of text generation that transformers 2 to 4 wrote into every file. tie_word_embeddings concerns only heads
# over the vocabulary. chunk_size_feed_forward only saves memory.
_SILENT = (
    "_name_or_path chunk_size_feed_forward tie_word_embeddings _attn_implementation_autoset architectures "
    "bos_token_id directionality dtype eos_token_id eos_token_ids finetuning_task gradient_checkpointing language "
    "model_type name output_attentions output_hidden_states output_past pad_token_id return_dict sep_token_id "
    "task_specific_params tokenizer_class torch_dtype torchscript transformers_version use_bfloat16 use_cache "
    "xla_device pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "bad_words_ids begin_suppress_tokens cross_attention_hidden_size decoder_start_token_id diversity_penalty "
    "do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id "
    "forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams "
    "num_return_sequences output_scores prefix remove_invalid_values repetition_penalty return_dict_in_generate "
    "suppress_tokens temperature tf_legacy_loss tie_encoder_decoder top_k top_p typical_p"
)
BEGIN_AND_END = {"bos_token_id": "cls", "eos_token_id": "sep"}
INDIFFERENT = frozenset(_SILENT.split())
# Fields about the outputs of a classification head, which are read together. sentence-transformers writes the last two
# fields for a CrossEncoder.
LABELS = (
    "id2label",
    "label2id",
    "num_labels",
    "_num_labels",
    "problem_type",
    "sentence_transformers",
    "sbert_ce_default_activation_function",
)


def bert_fields(**changed: Field) -> dict[str, Field]:
    """Return the fields of BERT; the fields in `changed` are replaced or added."""
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


def named_modules(
    our_prefix: str, file_prefix: str, names: Mapping[str, str], kind: str = "linear"
) -> tuple[NamedModule, ...]:
    """Return a NamedModule for each of `names` (our path -> name in the file), after adding the two prefixes."""
    return tuple(NamedModule(f"{our_prefix}/{path}", f"{file_prefix}.{name}", kind) for path, name in names.items())


def bert_embeddings(prefix: str) -> tuple[NamedModule, ...]:
    """Return the tensors of BERT's embeddings; readers ignore the names of parameters that a model lacks."""
    path, tables = "encoder/embeddings", {"position": "position_embeddings.weight"}
    return (
        NamedModule(f"{path}/token", f"{prefix}.word_embeddings.weight", VOCABULARY),
        *named_modules(path, prefix, tables | {"token_type": "token_type_embeddings.weight"}, "array"),
        NamedModule(f"{path}/norm", f"{prefix}.LayerNorm", "norm"),
    )


def bert_encoder(prefix: str) -> tuple[NamedModule, ...]:
    """Return the tensors of BERT's encoder; RoBERTa and ELECTRA have equal names."""
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
        *named_modules(ours, layer, linear),
        *named_modules(ours, layer, norms, "norm"),
    )


def fused_qkv(name: str) -> tuple[NamedModule, ...]:
    """Return the query, key and value projections as equal parts of one tensor."""
    names = ("query", "key", "value")
    return tuple(NamedModule(f"encoder/layers/attention/{ours}", name, part=(i, 3)) for i, ours in enumerate(names))


def masked_head(dense: str, norm: str, bias: str, head: str = "masked_token") -> tuple[NamedModule, ...]:
    """Return the tensors of a head over the vocabulary; its output layer is the table of the token embeddings."""
    return (
        NamedModule(f"{head}/dense", dense),
        NamedModule(f"{head}/norm", norm, "norm"),
        NamedModule(f"{head}/bias", bias, VOCABULARY),
    )


def bert_masked_head(head: str = "masked_token") -> tuple[NamedModule, ...]:
    """Return the tensors of BERT's head over the vocabulary."""
    predictions = "cls.predictions"
    return masked_head(
        f"{predictions}.transform.dense", f"{predictions}.transform.LayerNorm", f"{predictions}.bias", head
    )


def tied_decoder_names(head: str, embeddings: str) -> dict[str, str]:
    """Return second name -> first name for the token table and the bias, which a head stores again as its `decoder`."""
    return {f"{head}.decoder.weight": f"{embeddings}.word_embeddings.weight", f"{head}.decoder.bias": f"{head}.bias"}


def task_classes(
    family: str,
    pooler: NamedModule,
    classification: tuple[NamedModule, ...] = (),
    answers: tuple[NamedModule, ...] = (),
) -> tuple[ModelClass, ...]:
    """Return the model classes for classification, multiple choice, token classification and question answering.

    The argument `classification` holds the modules of sequence classification: by default, the pooler and a linear map.
    The argument `answers` holds the modules of question answering: by default, a linear map.
    """
    classification = classification or (pooler, NamedModule("sequence_classification", "classifier"))
    choice, tokens = NamedModule("multiple_choice", "classifier"), NamedModule("token_classification", "classifier")
    answers = answers or (NamedModule("question_answering", "qa_outputs"),)
    return (
        ModelClass(f"{family}ForSequenceClassification", ("sequence_classification",), classification),
        ModelClass(f"{family}ForMultipleChoice", ("multiple_choice",), (pooler, choice)),
        ModelClass(f"{family}ForTokenClassification", ("token_classification",), (tokens,)),
        ModelClass(f"{family}ForQuestionAnswering", ("question_answering",), answers),
    )


# Sequence classification with a separate dense layer in place of the pooler, as in RoBERTa.
CLASSIFICATION_HEAD = (
    NamedModule("pooler", "classifier.dense"),
    NamedModule("sequence_classification", "classifier.out_proj"),
)


def bare_classes(name: str, pooler: NamedModule | None = None) -> tuple[ModelClass, ...]:
    """Return the model classes without a head: the encoder with its pooler, if it has a pooler, and without pooler."""
    pooled = (ModelClass(name, ("pooled",), (pooler,)),) if pooler else ()
    return (*pooled, ModelClass(name, (), ()))
