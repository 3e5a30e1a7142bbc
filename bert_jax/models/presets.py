"""Published architectures by name (Devlin et al. 2018; the 24 small ones of Turc et al. 2019)."""

import dataclasses
from typing import Any

from bert_jax.config import EncoderConfig

VOCAB_SIZE = 30522  # of the English uncased models


def bert(layers: int, hidden: int) -> EncoderConfig:
    """BERT's proportions: 64 features a head, a feed-forward of four times the width."""
    return EncoderConfig(
        vocab_size=VOCAB_SIZE,
        num_layers=layers,
        hidden_size=hidden,
        num_heads=hidden // 64,
        mlp_size=4 * hidden,
    )


PRESETS: dict[str, EncoderConfig] = {
    "tiny": bert(2, 128),
    "mini": bert(4, 256),
    "small": bert(4, 512),
    "medium": bert(8, 512),
    "base": bert(12, 768),
    "large": bert(24, 1024),
    **{f"L{layers}_H{hidden}": bert(layers, hidden) for layers in range(2, 13, 2) for hidden in (128, 256, 512, 768)},
}


def architecture(name: str) -> dict[str, Any]:
    """A preset as the values of `config.model`, with the vocabulary left to the corpus (0)."""
    return dataclasses.asdict(PRESETS[name]) | {"vocab_size": 0}
