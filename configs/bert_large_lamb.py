"""BERT-large in 8,601 steps with LAMB (You et al. 2020), in the settings of NVIDIA's published runs.

    python -m bert_jax pretrain --config configs/bert_large_lamb.py --workdir runs/lamb --config.data.corpus=corpus/

Hardware and time: 575 chip-hours of TPU v5e at 40 % of its peak, by the FLOPs; estimated, not measured. A batch that
does not fit takes --config.train.accumulation=N, which changes nothing but the memory.
Score: SQuAD 1.1 F1 about 91 (published by NVIDIA; not measured here).
"""

import ml_collections

from bert_jax.recipes import you2020


def get_config() -> ml_collections.ConfigDict:
    """The recipe."""
    return you2020("large")
