"""The fields of an architecture and of its computation."""

import dataclasses
import math

from bert_jax.config.field import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    AT_LEAST_4,
    FROM_0_BELOW_1,
    ReadBy,
    field,
)

WITH_INIT = ReadBy("init_from", not_values=(None,))  # condition: a run starts from weights, whose architecture is read
MAX_MLPS = 8  # maximum number of MLPs per block, since the table of a family lists the tensors of each MLP


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The architecture of an encoder; an export contains these fields and the weights."""

    family: str = field(
        "bert",
        "model family, which determines the class and the weight names of an export",
        table="bert_jax.interop.families.FAMILIES",
    )
    vocab_size: int = field(
        None, "number of tokens in the vocabulary; None: the vocabulary size of the corpus's tokenizer", AT_LEAST_1
    )
    hidden_size: int = field(768, "width of the residual stream", AT_LEAST_1)
    num_layers: int = field(12, "number of transformer blocks", AT_LEAST_1)
    num_heads: int = field(
        12, "number of attention heads; must divide hidden_size, or bottleneck_size, if head_size is None", AT_LEAST_1
    )
    head_size: int | None = field(
        None, "features per attention head; None: all heads together are as wide as the block", AT_LEAST_1
    )
    mlp_size: int = field(3072, "inner width of the MLP", AT_LEAST_1)
    max_positions: int = field(
        512, "maximum sequence length in tokens, which is the number of rows of a position table", AT_LEAST_1
    )
    num_token_types: int = field(
        2, "number of token types: 2 for sentence pairs, 1 in RoBERTa, 0 for no table", AT_LEAST_0
    )
    position_offset: int = field(0, "id of the first position; RoBERTa starts at its padding id + 1 = 2", AT_LEAST_0)
    embedding_size: int | None = field(
        None,
        "width of the embedding tables; a linear map projects it to hidden_size; None: hidden_size, without a "
        "projection",
        AT_LEAST_1,
    )
    trigram_embeddings: bool = field(
        False,
        "concatenate the embeddings of a token and its two neighbors, and project them to hidden_size (MobileBERT)",
    )
    bottleneck_size: int | None = field(None, "width of attention and MLPs in a block; None: hidden_size", AT_LEAST_1)
    bottleneck_mlps: int = field(
        1,
        "number of consecutive MLPs in a block with a bottleneck; each MLP has a norm",
        (1, MAX_MLPS),
        read_by=ReadBy("bottleneck_size", not_values=(None,)),
    )
    norm_position: str = field(
        "post",
        "position of the norms of a block: post, after the residual sums; pre, before the sublayers",
        table="bert_jax.models.blocks.BLOCKS",
        read_by=ReadBy("bottleneck_size", values=(None,)),
    )
    embedding_norm: bool = field(True, "norm after the embeddings")
    first_attention_norm: bool = field(
        True,
        "pre-norm: norm before the first attention; False in ModernBERT",
        read_by=ReadBy("norm_position", row_property="norm_reads_input"),
    )
    final_norm: bool = field(False, "norm after the last block")
    norm: str = field("layer_norm", "type of normalization layer", table="bert_jax.models.norms.NORMS")
    norm_scale: bool = field(True, "learned scale in every norm")
    norm_bias: bool = field(True, "learned bias in every norm")
    attention_bias: bool = field(True, "biases of the four linear maps of attention")
    mlp_bias: bool = field(True, "biases of the MLP")
    head_bias: bool = field(
        True, "bias of the dense layer in output heads and pooler; the last layer of an output head always has a bias"
    )
    positions: str = field("learned", "type of position information", table="bert_jax.models.positions.POSITIONS")
    rotary_base: float = field(
        10_000.0,
        "rotary base of global layers; the longest wavelength is about 2 pi times the base, in tokens",
        ABOVE_0,
        replaced_by_phase="rotary_base",
        still_read_by=WITH_INIT,
    )
    local_rotary_base: float | None = field(
        None,
        "rotary base of local layers; None: rotary_base",
        ABOVE_0,
        read_by=(ReadBy("local_window", not_values=(None,)), ReadBy("positions", row_property="angles")),
    )
    relative_buckets: int = field(
        32, "number of rows of the table of relative positions; an even number, half for each direction", AT_LEAST_4
    )
    relative_max_distance: int = field(
        128, "distance in tokens beyond which all relative positions share the last row", AT_LEAST_1
    )
    local_window: int | None = field(
        None,
        "attention window of a local block in tokens: queries attend to keys up to half a window away; None: no window",
        AT_LEAST_1,
        read_by=ReadBy("global_every", not_values=(1,)),
        replaced_by_phase="local_window",
        still_read_by=ReadBy("global_every", not_values=(1,)),
    )
    local_windows: tuple[int, ...] | None = field(
        None,
        "attention window of each block, if windows differ; needs global_every=0, and local_window is the widest "
        "(Longformer)",
    )
    global_every: int = field(
        1,
        "period of global blocks: block i is global if i is a multiple of global_every, else local; 0: all "
        "blocks are local",
        AT_LEAST_0,
        read_by=ReadBy("local_window", not_values=(None,)),
    )
    separator_id: int | None = field(
        None, "id of [SEP]; if set, some heads have global tokens with separate projections (Longformer)", AT_LEAST_0
    )
    block_size: int | None = field(None, "tokens per block of block-sparse attention (BigBird)", AT_LEAST_1)
    random_blocks: int = field(
        0,
        "number of random blocks of BigBird; copies of the first block replace them, as in transformers at inference",
        AT_LEAST_0,
        read_by=ReadBy("block_size", not_values=(None,)),
    )
    question_separator_id: int | None = field(
        None,
        "id of [SEP]; if set, question answering has an MLP and no answers inside the question (BigBird)",
        AT_LEAST_0,
    )
    causal: bool = field(False, "causal attention: no token attends to later tokens; for objective=left_to_right")
    query_key_norm: bool = field(False, "RMS norm of queries and keys per head, with one scale for all heads (Qwen3)")
    mlp: str = field("plain", "type of the MLP of a block", table="bert_jax.models.blocks.MLPS")
    share_layers: bool = field(False, "one set of parameters for all blocks (ALBERT)")
    activation: str = field(
        "gelu",
        "activation of the MLP; gelu_tanh is Google's code since 2019",
        table="bert_jax.models.layers.ACTIVATIONS",
    )
    masked_activation: str | None = field(
        None, "activation of the masked-token head; None: activation", table="bert_jax.models.layers.ACTIVATIONS"
    )
    masked_norm: str | None = field(
        None, "norm of the masked-token head; None: norm", table="bert_jax.models.norms.NORMS"
    )
    masked_extra_table: bool = field(
        False,
        "additional table of the masked-token head, for the features of hidden_size beyond embedding_size (MobileBERT)",
    )
    pooler_dense: bool = field(True, "dense layer and activation of the pooler; False in MobileBERT")
    pooler_activation: str = field(
        "tanh",
        "activation of the pooler; relu in DistilBERT, gelu in ELECTRA",
        table="bert_jax.models.layers.ACTIVATIONS",
    )
    sequence_activation: str | None = field(
        None,
        "activation of the pooler under a sequence classifier (BigBird); None: pooler_activation",
        table="bert_jax.models.layers.ACTIVATIONS",
    )
    pooler_dropout: bool = field(False, "dropout also before the pooler (RoBERTa, ELECTRA)")
    pooler_norm: bool = field(False, "norm after the pooler's activation (ModernBERT)")
    pooler_on_tokens: bool = field(
        False, "apply the pooler, with dropout, to each token in token-level heads (ModernBERT)"
    )
    pooling: str = field(
        "first",
        "input of the pooler: the first token, or the mean of all tokens",
        table="bert_jax.models.heads.POOLINGS",
    )
    bilstm: bool = field(False, "two bidirectional LSTM layers between encoder and task heads (task.bilstm adds them)")
    layer_norm_epsilon: float = field(1e-12, "constant added to the variance in every norm", AT_LEAST_0)
    dropout: float = field(0.1, "dropout rate of the embeddings and of the outputs of both sublayers", FROM_0_BELOW_1)
    attention_dropout: float = field(0.1, "dropout rate of the attention probabilities", FROM_0_BELOW_1)
    classifier_dropout: float = field(0.1, "dropout rate before the last layer of a task's head", FROM_0_BELOW_1)
    initializer_range: float = field(0.02, "standard deviation of the truncated normal initialization", AT_LEAST_0)
    initialization: str = field(
        "normal",
        "initial weights; normal: standard deviation initializer_range; depth_scaled: like normal, but divided "
        "by sqrt(2 * num_layers) in the last matrix of a sublayer; identity_head: like depth_scaled, and the "
        "dense layer of output heads is the identity; neighbors: like identity_head, and heads of the first "
        "block attend to neighboring tokens (needs rotary or learned positions); matches: like neighbors, and "
        "the last of these heads attends to equal tokens of the other text (needs rotary positions and token "
        "types)",
        table="bert_jax.models.init.INITIALIZATIONS",
    )

    @property
    def table_width(self) -> int:
        """The width of the token table."""
        return self.embedding_size or self.hidden_size

    @property
    def sum_width(self) -> int:
        """The width of the sum of embeddings, and of the tables of positions and token types."""
        return self.hidden_size if self.trigram_embeddings else self.table_width

    @property
    def block_width(self) -> int:
        """The width of the input of attention and MLPs in a block."""
        return self.bottleneck_size or self.hidden_size

    @property
    def head_dim(self) -> int:
        """The number of features of an attention head."""
        return self.head_size or self.block_width // self.num_heads

    @property
    def attention_width(self) -> int:
        """The number of features of all heads of a layer together."""
        return self.num_heads * self.head_dim

    @property
    def max_dense_length(self) -> float:
        """The number of tokens above which attention is block-sparse (models/attention/patterns.py)."""
        return (5 + 2 * self.random_blocks) * self.block_size if self.block_size else math.inf

    @property
    def masked_width(self) -> int:
        """The width of the vectors that the masked-token head multiplies by its tables."""
        return self.hidden_size if self.masked_extra_table else self.table_width


# Field that takes the value of another field if it is None -> this other field.
INHERITED_FROM = {
    "local_rotary_base": "rotary_base",
    "masked_activation": "activation",
    "masked_norm": "norm",
    "sequence_activation": "pooler_activation",
}


def fill_inherited_fields(config: EncoderConfig) -> EncoderConfig:
    """Return the architecture with inherited values instead of None, so that equal architectures compare as equal."""
    unset = {name: source for name, source in INHERITED_FROM.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **{name: getattr(config, source) for name, source in unset.items()})


@dataclasses.dataclass(frozen=True)
class ComputeConfig:
    """Settings of the computation, which change speed and rounding but not the model."""

    dtype: str = field("float32", "dtype of matrix products (parameters stay float32)", allowed=("float32", "bfloat16"))
    scan_layers: bool = field(True, "compile one block and scan it over the layers; False unrolls the layers")
    attention: str = field(
        "auto",
        "attention kernel; auto: the fastest kernel that supports the platform and the architecture",
        table="bert_jax.models.attention.KERNELS",
    )
    remat: bool = field(
        False, "recompute each block in the backward pass, which needs less memory and a third more FLOPs"
    )
    deterministic: bool = field(
        False, "use GPU kernels that add in a fixed order; CPUs and TPUs always add in a fixed order"
    )
