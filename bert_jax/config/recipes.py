"""Published training settings, one function for each paper; the recipes in configs/ start from these settings."""

from collections.abc import Sequence
from typing import Any

import ml_collections

from bert_jax.config.load import finetune_config, phases, pretrain_config
from bert_jax.config.presets import BERT_SIZES, architecture
from bert_jax.errors import UserError, did_you_mean


def bert_recipe_of_devlin2019(size: str) -> ml_collections.ConfigDict:
    """Return the recipe of BERT (Devlin et al. 2019, appendix A.2, and google-research/bert).

    Adam runs for 1,000,000 steps of 256 sequences, with 10,000 steps of warmup. 90 % of the steps read sequences of 128
    tokens, and the other steps read sequences of 512 tokens. As in Google's code, Adam has no bias correction, and the
    decay counts from step 0. The paper's large model differs only in size.

    Args:
        size: one of `BERT_SIZES`, such as "tiny", "base" or "L4_H256".

    Raises:
        UserError: BERT has no such size.
    """
    if size not in BERT_SIZES:
        raise UserError(
            f"BERT has no size '{size}'{did_you_mean(size, BERT_SIZES)} "
            f"(sizes: {', '.join(name for name in BERT_SIZES if '_' not in name)}, and L2_H128 to L12_H768)"
        )
    config = pretrain_config()
    config.model.update(architecture(size))
    config.compute.dtype = "bfloat16"
    config.train.update(steps=1_000_000, batch_size=256)
    config.train.phases = phases({"seq_len": 128, "fraction": 0.9}, {"seq_len": 512, "fraction": 0.1})
    config.optimizer.update(peak_learning_rate=1e-4, warmup_steps=10_000, schedule="bert", bias_correction=False)
    return config


def lamb_recipe_of_you2020(size: str) -> ml_collections.ConfigDict:
    """Return the recipe of LAMB (You et al. 2020) with the settings of NVIDIA's published BERT-large runs: 8,601 steps.

    The first phase has 7,038 steps of 65,536 sequences of 128 tokens. The second phase has 1,563 steps of 32,768
    sequences of 512 tokens. Each phase has a separate schedule. Micro-batches of 16,384 and 4,096 sequences give 8,192
    tokens per device on 256 devices.
    """
    config = pretrain_config()
    config.model.update(architecture(size))
    config.compute.dtype = "bfloat16"
    config.train.update(steps=8_601, batch_size=65_536, log_every=10)
    config.train.phases = phases(
        {
            "seq_len": 128,
            "fraction": 7_038 / 8_601,
            "grad_accum_steps": 4,
            "peak_learning_rate": 6e-3,
            "warmup_fraction": 0.2843,
        },
        {
            "seq_len": 512,
            "fraction": 1_563 / 8_601,
            "batch_size": 32_768,
            "grad_accum_steps": 8,
            "peak_learning_rate": 4e-3,
            "warmup_fraction": 0.128,
        },
    )
    config.optimizer.update(name="lamb", schedule="bert", decay_power=0.5, bias_correction=True)
    config.evaluate.every = 500
    config.checkpoint.every = 100
    return config


def roberta_recipe_of_liu2019(size: str, peak_learning_rate: float, warmup_steps: int) -> ml_collections.ConfigDict:
    """Return the recipe of RoBERTa (Liu et al. 2019): masked tokens, without sentence pairs.

    A sequence of full sentences may continue across documents. The run has 500,000 steps of 8,192 sequences of 512
    tokens. Adam's second moment decays by 0.98, and gradients are not clipped.
    """
    config = pretrain_config()
    config.model.update(architecture(f"roberta_{size}"))
    config.compute.dtype = "bfloat16"
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=500_000, batch_size=8_192)
    config.train.phases = phases({"seq_len": 512})
    config.optimizer.update(
        peak_learning_rate=peak_learning_rate, warmup_steps=warmup_steps, schedule="linear", beta2=0.98, clip_norm=None
    )
    return config


def albert_recipe_of_lan2020(size: str) -> ml_collections.ConfigDict:
    """Return the recipe of ALBERT (Lan et al. 2020): sentence order, masked n-grams, LAMB.

    The run has 125,000 steps, of which 3,125 are warmup, of 4,096 sequences of 512 tokens.
    """
    config = pretrain_config()
    config.model.update(architecture(f"albert_{size}"))
    config.compute.dtype = "bfloat16"
    config.data.update(sentence_pairs="sentence_order", masking="ngram")
    config.train.update(steps=125_000, batch_size=4_096)
    config.train.phases = phases({"seq_len": 512})
    config.optimizer.update(
        name="lamb", peak_learning_rate=1.76e-3, warmup_steps=3_125, schedule="linear", bias_correction=True
    )
    return config


def electra_recipe_of_clark2020(size: str, seq_len: int) -> ml_collections.ConfigDict:
    """Return the recipe of ELECTRA (Clark et al. 2020), except for model size, batch size, steps and learning rate.

    The objective is replaced tokens, without sentence pairs. 85 % of the masked tokens become [MASK], and 15 % stay.
    The learning rate decays from the first step on, and the warmup is a factor on the decaying rate.
    """
    config = pretrain_config()
    config.objective = "replaced_tokens"
    config.model.update(architecture(f"electra_{size}"))
    config.compute.dtype = "bfloat16"
    config.data.update(sentence_pairs="full_sentences", mask_token_fraction=0.85, random_token_fraction=0.0)
    config.train.phases = phases({"seq_len": seq_len})
    config.optimizer.update(warmup_steps=10_000, schedule="electra", bias_correction=False)
    return config


def distilbert_recipe_of_sanh2019() -> ml_collections.ConfigDict:
    """Return the recipe of DistilBERT (Sanh et al. 2019), a six-layer student of a BERT-base.

    The temperature is 2. The losses of soft targets, masked tokens and cosine have the weights 5 : 2 : 1. The student
    reads the teacher's corpus three times in batches of 4,000 sequences. The three loss weights of this recipe are half
    of the published weights, so the gradient is clipped at half of the published norm of 5.
    """
    config = pretrain_config()
    config.objective = "distillation"
    config.model.update(architecture("distilbert"))
    config.compute.dtype = "bfloat16"
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=6_500, batch_size=4_000, grad_accum_steps=5)
    config.train.phases = phases({"seq_len": 512})
    config.optimizer.update(peak_learning_rate=5e-4, warmup_fraction=0.05, schedule="linear", clip_norm=2.5)
    return config


def modernbert_recipe_of_warner2024(
    size: str,
    *,
    batch_size: int,
    peak_learning_rate: float,
    warmup_steps: int,
    short: Sequence[dict[str, Any]],
    long: Sequence[dict[str, Any]],
) -> ml_collections.ConfigDict:
    """Return the recipe of ModernBERT (Warner et al. 2024, table 3): 30 % masked tokens, StableAdamW, long texts last.

    The phases `short` have sequences of 1,024 tokens, and the phases `long` have sequences of 8,192 tokens. A phase is
    a dict of its fields, with its number of `steps` in place of its fraction. Between `short` and `long`, the rotary
    base of global blocks rises from 10,000 to 160,000. The learning rate is constant after the warmup, unless a phase
    has a decay. Unlike in the paper, all phases read the same mixture of texts. In the paper, the last phase reads more
    of the better texts; here, the corpus weights of that phase can choose these texts.
    """
    config = pretrain_config()
    config.model.update(architecture(f"modern_{size}"))
    config.compute.dtype = "bfloat16"
    config.data.update(sentence_pairs="full_sentences", mask_probability=0.3)
    planned = [{"seq_len": 1_024, "rotary_base": 10_000.0, **phase} for phase in short]
    planned += [{"seq_len": 8_192, **phase} for phase in long]
    steps = [phase.pop("steps") for phase in planned]
    config.train.update(steps=sum(steps), batch_size=batch_size)
    config.train.phases = phases(
        *({**phase, "fraction": count / sum(steps)} for phase, count in zip(planned, steps, strict=True))
    )
    config.optimizer.update(
        name="stable_adamw",
        peak_learning_rate=peak_learning_rate,
        warmup_steps=warmup_steps,
        schedule="warmup_stable_decay",
        decay_fraction=0.0,
        decay_power=0.5,
        beta2=0.98,
        weight_decay=1e-5,
        clip_norm=None,
    )
    return config


def finetuning(
    epochs: float, batch_size: int, learning_rate: float, max_seq_len: int = 128, warmup_fraction: float = 0.1
) -> ml_collections.ConfigDict:
    """Return the fine-tuning settings of Devlin et al. 2019, appendix A.3: Adam, with linear warmup and decay.

    The dev set is evaluated after each epoch. Unlike in the original, Adam has bias correction, because training on a
    small set diverges without the correction (Mosbach et al. 2021, Zhang et al. 2021).
    """
    config = finetune_config()
    config.task.update(epochs=epochs, max_seq_len=max_seq_len)
    config.train.update(batch_size=batch_size, log_every=50)
    config.optimizer.update(peak_learning_rate=learning_rate, warmup_fraction=warmup_fraction, schedule="linear")
    config.evaluate.update(every=None, batch_size=64)
    config.checkpoint.update(every=None, keep=1)
    return config
