"""Published architectures by name; each is a row of PRESETS.

BERT (Devlin et al. 2018; the 24 small models of Turc et al. 2019), RoBERTa (Liu et al. 2019), ALBERT version 2 (Lan et
al. 2020), DistilBERT (Sanh et al. 2019), ELECTRA's generators and discriminators (Clark et al. 2020), MobileBERT (Sun
et al. 2020), XLM-RoBERTa (Conneau et al. 2020), CamemBERT (Martin et al. 2020), MPNet (Song et al. 2020), DeBERTa
version 3 (He et al. 2023), Longformer (Beltagy et al. 2020), BigBird (Zaheer et al. 2020), ModernBERT (Warner
et al. 2024). The ModernBERT sizes that are smaller than base are not published; this project defines them.
"""

import dataclasses
from typing import Any

from bert_jax.config.encoder import EncoderConfig

VOCAB_SIZE = 30522  # vocabulary size of the English uncased models


def bert_preset(num_layers: int, hidden_size: int) -> EncoderConfig:
    """Return BERT in any size, with 64 features per head and an MLP of four times the width."""
    return EncoderConfig(
        vocab_size=VOCAB_SIZE,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=hidden_size // 64,
        mlp_size=4 * hidden_size,
    )


def roberta_preset(num_layers: int, hidden_size: int) -> EncoderConfig:
    """Return RoBERTa, with positions from 2, one token type, and a byte-level vocabulary."""
    return dataclasses.replace(
        bert_preset(num_layers, hidden_size),
        family="roberta",
        vocab_size=50265,
        num_token_types=1,
        position_offset=2,
        layer_norm_epsilon=1e-5,
        masked_activation="gelu",
        pooler_dropout=True,
    )


def longformer_preset(num_layers: int, hidden_size: int) -> EncoderConfig:
    """Return Longformer, which is RoBERTa for 4,096 tokens, with windows of 512 and global tokens."""
    return dataclasses.replace(
        roberta_preset(num_layers, hidden_size),
        family="longformer",
        max_positions=4096,
        local_window=512,
        global_every=0,
        separator_id=2,
    )


def big_bird_preset(num_layers: int, hidden_size: int) -> EncoderConfig:
    """Return BigBird, which is BERT for 4,096 tokens; above 704 tokens, attention is sparse, in blocks of 64 tokens."""
    return dataclasses.replace(
        bert_preset(num_layers, hidden_size),
        family="big_bird",
        vocab_size=50358,
        max_positions=4096,
        block_size=64,
        random_blocks=3,
        question_separator_id=66,
        activation="gelu_tanh",
        sequence_activation="gelu_tanh",
    )


def mpnet_preset(num_layers: int, hidden_size: int) -> EncoderConfig:
    """Return MPNet, which is RoBERTa with T5's relative positions in addition, and without token types."""
    return dataclasses.replace(
        roberta_preset(num_layers, hidden_size),
        family="mpnet",
        vocab_size=30527,
        num_token_types=0,
        positions="learned_relative",
    )


def deberta_preset(num_layers: int, hidden_size: int, vocab_size: int = 128100) -> EncoderConfig:
    """Return DeBERTa version 3, with embeddings of 512 distances instead of positions, and without token types."""
    return dataclasses.replace(
        bert_preset(num_layers, hidden_size),
        family="deberta-v2",
        vocab_size=vocab_size,
        num_token_types=0,
        positions="disentangled",
        relative_buckets=512,
        relative_max_distance=512,
        pooler_activation="gelu",
        layer_norm_epsilon=1e-7,
    )


def albert_preset(num_layers: int, hidden_size: int, num_heads: int) -> EncoderConfig:
    """Return ALBERT version 2, with tables of 128 features, one block for all layers, and no dropout."""
    return dataclasses.replace(
        bert_preset(num_layers, hidden_size),
        family="albert",
        vocab_size=30000,
        num_heads=num_heads,
        embedding_size=128,
        share_layers=True,
        activation="gelu_tanh",
        dropout=0.0,
        attention_dropout=0.0,
    )


def electra_preset(num_layers: int, hidden_size: int, num_heads: int, embedding_size: int) -> EncoderConfig:
    """Return ELECTRA; small models have narrower tables, and a generator is 1/4 or 1/3 as wide as its discriminator."""
    return dataclasses.replace(
        bert_preset(num_layers, hidden_size),
        family="electra",
        num_heads=num_heads,
        embedding_size=None if embedding_size == hidden_size else embedding_size,
        masked_activation="gelu",
        pooler_activation="gelu",
        pooler_dropout=True,
    )


def mobilebert_preset() -> EncoderConfig:
    """Return MobileBERT, whose tables and blocks are 1/4 as wide as its residual stream; a block has four MLPs."""
    return EncoderConfig(
        family="mobilebert",
        vocab_size=VOCAB_SIZE,
        num_layers=24,
        hidden_size=512,
        num_heads=4,
        mlp_size=512,
        embedding_size=128,
        trigram_embeddings=True,
        bottleneck_size=128,
        bottleneck_mlps=4,
        norm="no_norm",
        masked_norm="layer_norm",
        masked_extra_table=True,
        pooler_dense=False,
        activation="relu",
        dropout=0.0,
        classifier_dropout=0.0,
    )


def modernbert_preset(num_layers: int, hidden_size: int, num_heads: int, mlp_size: int) -> EncoderConfig:
    """Return ModernBERT: pre-norm, no biases, rotary positions, gated MLPs, two of three blocks local, no dropout.

    A gated MLP of width `8 / 3 * hidden_size` has as many parameters as the MLP of BERT.
    """
    return EncoderConfig(
        family="modernbert",
        vocab_size=50368,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        mlp_size=mlp_size,
        max_positions=8192,
        num_token_types=0,
        norm_position="pre",
        first_attention_norm=False,
        final_norm=True,
        norm_bias=False,
        attention_bias=False,
        mlp_bias=False,
        head_bias=False,
        positions="rotary",
        rotary_base=160_000.0,
        local_rotary_base=10_000.0,
        local_window=128,
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


def nomic_bert_preset(num_layers: int, hidden_size: int, num_heads: int, mlp_size: int) -> EncoderConfig:
    """Return NomicBERT, which is BERT with rotary positions, gated MLPs, and no biases or dropout in its blocks."""
    return EncoderConfig(
        family="nomic_bert",
        vocab_size=30528,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        mlp_size=mlp_size,
        max_positions=2048,
        attention_bias=False,
        mlp_bias=False,
        positions="rotary",
        rotary_base=1_000.0,
        mlp="gated",
        activation="silu",
        dropout=0.0,
        attention_dropout=0.0,
        classifier_dropout=0.0,
    )


BERT_SIZES: dict[str, EncoderConfig] = {
    "tiny": bert_preset(2, 128),
    "mini": bert_preset(4, 256),
    "small": bert_preset(4, 512),
    "medium": bert_preset(8, 512),
    "base": bert_preset(12, 768),
    "large": bert_preset(24, 1024),
    **{
        f"L{layers}_H{hidden}": bert_preset(layers, hidden)
        for layers in range(2, 13, 2)
        for hidden in (128, 256, 512, 768)
    },
}
PRESETS: dict[str, EncoderConfig] = {
    **BERT_SIZES,
    "roberta_base": roberta_preset(12, 768),
    "roberta_large": roberta_preset(24, 1024),
    "xlm_roberta_base": dataclasses.replace(roberta_preset(12, 768), family="xlm-roberta", vocab_size=250002),
    "xlm_roberta_large": dataclasses.replace(roberta_preset(24, 1024), family="xlm-roberta", vocab_size=250002),
    "camembert_base": dataclasses.replace(roberta_preset(12, 768), family="camembert", vocab_size=32005),
    "longformer_base": longformer_preset(12, 768),
    "longformer_large": longformer_preset(24, 1024),
    "big_bird_base": big_bird_preset(12, 768),
    "big_bird_large": big_bird_preset(24, 1024),
    "mpnet_base": mpnet_preset(12, 768),
    "deberta_v3_xsmall": deberta_preset(12, 384),
    "deberta_v3_small": deberta_preset(6, 768),
    "deberta_v3_base": deberta_preset(12, 768),
    "deberta_v3_large": deberta_preset(24, 1024),
    "mdeberta_v3_base": deberta_preset(12, 768, vocab_size=251000),
    "albert_base": albert_preset(12, 768, 12),
    "albert_large": albert_preset(24, 1024, 16),
    "albert_xlarge": albert_preset(24, 2048, 16),
    "albert_xxlarge": albert_preset(12, 4096, 64),
    "distilbert": dataclasses.replace(
        bert_preset(6, 768), family="distilbert", num_token_types=0, pooler_activation="relu"
    ),
    "electra_small": electra_preset(12, 256, 4, 128),
    "electra_small_generator": electra_preset(12, 64, 1, 128),
    "electra_base": electra_preset(12, 768, 12, 768),
    "electra_base_generator": electra_preset(12, 256, 4, 768),
    "electra_large": electra_preset(24, 1024, 16, 1024),
    "electra_large_generator": electra_preset(24, 256, 4, 1024),
    "mobilebert": mobilebert_preset(),
    "nomic_bert_mini": nomic_bert_preset(6, 192, 3, 512),
    "nomic_bert_base": nomic_bert_preset(12, 768, 12, 3072),
    "modern_tiny": modernbert_preset(4, 128, 2, 352),
    "modern_mini": modernbert_preset(6, 192, 3, 512),
    "modern_small": modernbert_preset(12, 384, 6, 1024),
    "modern_base": modernbert_preset(22, 768, 12, 1152),
    "modern_large": modernbert_preset(28, 1024, 16, 2624),
}


def architecture(name: str) -> dict[str, Any]:
    """Return a preset as values of `config.model`; `vocab_size` is None, which means the vocabulary of the corpus."""
    return dataclasses.asdict(PRESETS[name]) | {"vocab_size": None}
