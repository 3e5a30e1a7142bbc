"""The names of `transformers` for the parts of each family, as data: fields of `config.json`, classes, tensors.

A family is a row of `FAMILIES`, keyed by its `model_type`. The names are those of its modeling and configuration files
in transformers 5, and of the files published since 2018 that it still reads.
"""

from typing import Any, NamedTuple


class Module(NamedTuple):
    """A parameter or a group of them; `{layer}` in `name` stands for the index on the stacked `layers` axis."""

    path: str  # in our tree
    name: str  # in theirs
    kind: str = "linear"  # a key of LEAVES
    vocabulary: bool = False  # the first axis is the vocabulary, padded in ours


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
    """A field of `config.json` as a field of `EncoderConfig`.

    `default`: the value in transformers where a file lacks the field; None: that of `hidden_dropout_prob`.
    """

    name: str
    default: int | float | str | None


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


ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu"}

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
INDIFFERENT = frozenset(_SILENT.split())
LABELS = ("id2label", "label2id", "num_labels", "_num_labels", "problem_type")  # read together


def _fields(**changed: Field) -> dict[str, Field]:
    """The fields of BERT, with changes."""
    return {
        "vocab_size": Field("vocab_size", 30522),
        "hidden_size": Field("hidden_size", 768),
        "num_hidden_layers": Field("num_layers", 12),
        "num_attention_heads": Field("num_heads", 12),
        "intermediate_size": Field("mlp_size", 3072),
        "hidden_act": Field("activation", "gelu"),
        "max_position_embeddings": Field("max_positions", 512),
        "type_vocab_size": Field("num_token_types", 2),
        "layer_norm_eps": Field("layer_norm_epsilon", 1e-12),
        "hidden_dropout_prob": Field("dropout", 0.1),
        "attention_probs_dropout_prob": Field("attention_dropout", 0.1),
        "classifier_dropout": Field("classifier_dropout", None),
        "initializer_range": Field("initializer_range", 0.02),
    } | changed


def _bert_encoder(prefix: str) -> tuple[Module, ...]:
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


def _masked(dense: str, norm: str, bias: str) -> tuple[Module, ...]:
    return (
        Module("masked_token/dense", dense),
        Module("masked_token/norm", norm, "norm"),
        Module("masked_token/bias", bias, "array", vocabulary=True),
    )


def _task_classes(
    family: str, classification: tuple[Module, ...], choice: tuple[Module, ...]
) -> tuple[ModelClass, ...]:
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


def _bert() -> Family:
    pooler, next_sentence = Module("pooler", "bert.pooler.dense"), Module("next_sentence", "cls.seq_relationship")
    transform = "cls.predictions.transform"
    masked = _masked(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias")
    return Family(
        prefix="bert",
        encoder=_bert_encoder("bert"),
        classes=(
            ModelClass("BertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, next_sentence)),
            ModelClass("BertForMaskedLM", ("masked_token",), masked),
            ModelClass("BertForNextSentencePrediction", ("next_sentence",), (pooler, next_sentence)),
            *_task_classes(
                "Bert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("BertModel", ("pooled",), (pooler,)),
            ModelClass("BertModel", (), ()),
        ),
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        fields=_fields(),
        constants={},
        fixed=FIXED,
    )


def _roberta() -> Family:
    pooler = Module("pooler", "roberta.pooler.dense")
    return Family(
        prefix="roberta",
        encoder=_bert_encoder("roberta"),
        classes=(
            ModelClass(
                "RobertaForMaskedLM", ("masked_token",), _masked("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
            ),
            *_task_classes(
                "Roberta",
                (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("RobertaModel", ("pooled",), (pooler,)),
            ModelClass("RobertaModel", (), ()),
        ),
        tied={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        fields=_fields(vocab_size=Field("vocab_size", 50265)),
        constants={"masked_activation": "gelu", "pooler_dropout": True},
        fixed=FIXED,
        follow_padding=True,
    )


def _albert() -> Family:
    embeddings = "albert.embeddings"
    layer = "albert.encoder.albert_layer_groups.{layer}.albert_layers.0"  # one group, of one layer, used for all
    pooler, order = Module("pooler", "albert.pooler"), Module("next_sentence", "sop_classifier.classifier")
    masked = _masked("predictions.dense", "predictions.LayerNorm", "predictions.bias")
    fields = _fields(
        vocab_size=Field("vocab_size", 30000),
        embedding_size=Field("embedding_size", 128),
        hidden_size=Field("hidden_size", 4096),
        num_attention_heads=Field("num_heads", 64),
        intermediate_size=Field("mlp_size", 16384),
        hidden_act=Field("activation", "gelu_new"),
        hidden_dropout_prob=Field("dropout", 0.0),
        attention_probs_dropout_prob=Field("attention_dropout", 0.0),
        classifier_dropout_prob=Field("classifier_dropout", 0.1),
    )
    del fields["classifier_dropout"]
    return Family(
        prefix="albert",
        encoder=(
            Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
            Module("encoder/embeddings/position", f"{embeddings}.position_embeddings.weight", "array"),
            Module("encoder/embeddings/token_type", f"{embeddings}.token_type_embeddings.weight", "array"),
            Module("encoder/embeddings/norm", f"{embeddings}.LayerNorm", "norm"),
            Module("encoder/projection", "albert.encoder.embedding_hidden_mapping_in"),
            Module("encoder/layers/attention/query", f"{layer}.attention.query"),
            Module("encoder/layers/attention/key", f"{layer}.attention.key"),
            Module("encoder/layers/attention/value", f"{layer}.attention.value"),
            Module("encoder/layers/attention/output", f"{layer}.attention.dense"),
            Module("encoder/layers/attention_norm", f"{layer}.attention.LayerNorm", "norm"),
            Module("encoder/layers/mlp_up", f"{layer}.ffn"),
            Module("encoder/layers/mlp_down", f"{layer}.ffn_output"),
            Module("encoder/layers/mlp_norm", f"{layer}.full_layer_layer_norm", "norm"),
        ),
        classes=(
            ModelClass("AlbertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, order)),
            ModelClass("AlbertForMaskedLM", ("masked_token",), masked),
            *_task_classes(
                "Albert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("AlbertModel", ("pooled",), (pooler,)),
            ModelClass("AlbertModel", (), ()),
        ),
        tied={
            "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
        fields=fields,
        constants={"share_layers": True},
        fixed=FIXED
        | {"num_hidden_groups": 1, "inner_group_num": 1}
        | {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1},
        project_equal=True,
    )


def _distilbert() -> Family:
    embeddings, layer = "distilbert.embeddings", "distilbert.transformer.layer.{layer}"
    pooler = Module("pooler", "pre_classifier")
    return Family(
        prefix="distilbert",
        encoder=(
            Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
            Module("encoder/embeddings/position", f"{embeddings}.position_embeddings.weight", "array"),
            Module("encoder/embeddings/norm", f"{embeddings}.LayerNorm", "norm"),
            Module("encoder/layers/attention/query", f"{layer}.attention.q_lin"),
            Module("encoder/layers/attention/key", f"{layer}.attention.k_lin"),
            Module("encoder/layers/attention/value", f"{layer}.attention.v_lin"),
            Module("encoder/layers/attention/output", f"{layer}.attention.out_lin"),
            Module("encoder/layers/attention_norm", f"{layer}.sa_layer_norm", "norm"),
            Module("encoder/layers/mlp_up", f"{layer}.ffn.lin1"),
            Module("encoder/layers/mlp_down", f"{layer}.ffn.lin2"),
            Module("encoder/layers/mlp_norm", f"{layer}.output_layer_norm", "norm"),
        ),
        classes=(
            ModelClass(
                "DistilBertForMaskedLM",
                ("masked_token",),
                _masked("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            ),
            *_task_classes(
                "DistilBert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("DistilBertModel", (), ()),
        ),
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        fields={
            "vocab_size": Field("vocab_size", 30522),
            "dim": Field("hidden_size", 768),
            "n_layers": Field("num_layers", 6),
            "n_heads": Field("num_heads", 12),
            "hidden_dim": Field("mlp_size", 3072),
            "activation": Field("activation", "gelu"),
            "max_position_embeddings": Field("max_positions", 512),
            "dropout": Field("dropout", 0.1),
            "attention_dropout": Field("attention_dropout", 0.1),
            "seq_classif_dropout": Field("classifier_dropout", 0.2),
            "initializer_range": Field("initializer_range", 0.02),
        },
        constants={"num_token_types": 0, "layer_norm_epsilon": 1e-12, "pooler_activation": "relu"},
        fixed=FIXED | {"tie_weights_": True},
        # The position table starts as sinusoids or at random; it is in the file either way.
        indifferent=frozenset({"sinusoidal_pos_embds", "qa_dropout"}),
    )


def _electra() -> Family:
    summary = Module("pooler", "sequence_summary.summary")
    discriminator = "discriminator_predictions"
    return Family(
        prefix="electra",
        encoder=(*_bert_encoder("electra"), Module("encoder/projection", "electra.embeddings_project")),
        classes=(
            ModelClass(
                "ElectraForPreTraining",
                ("replaced_token",),
                (
                    Module("replaced_token/dense", f"{discriminator}.dense"),
                    Module("replaced_token/output", f"{discriminator}.dense_prediction"),
                ),
            ),
            ModelClass(
                "ElectraForMaskedLM",
                ("masked_token",),
                _masked("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
            ),
            *_task_classes(
                "Electra",
                (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj")),
                (summary, Module("multiple_choice", "classifier")),
            ),
            ModelClass("ElectraModel", (), ()),
        ),
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        fields=_fields(
            embedding_size=Field("embedding_size", 128),
            hidden_size=Field("hidden_size", 256),
            num_attention_heads=Field("num_heads", 4),
            intermediate_size=Field("mlp_size", 1024),
        ),
        constants={"masked_activation": "gelu", "pooler_activation": "gelu", "pooler_dropout": True},
        fixed=FIXED | {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        indifferent=frozenset({"summary_last_dropout"}),
    )


FAMILIES: dict[str, Family] = {
    "bert": _bert(),
    "roberta": _roberta(),
    "albert": _albert(),
    "distilbert": _distilbert(),
    "electra": _electra(),
}
