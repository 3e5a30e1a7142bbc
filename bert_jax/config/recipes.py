"""Published training settings, one function each; the recipes in configs/ start from them."""

import ml_collections

from bert_jax.config.load import finetune_config, phases, pretrain_config
from bert_jax.config.presets import BERT_SIZES, architecture
from bert_jax.errors import UserError, did_you_mean


def devlin2019(size: str) -> ml_collections.ConfigDict:
    """Return the recipe of BERT (Devlin et al. 2019, appendix A.2, and google-research/bert).

    Adam, 1,000,000 steps of 256 sequences; 90 % of the steps at length 128, the rest at 512; 10,000 steps of warmup. As
    in the code, Adam has no bias correction and the decay counts from step 0. The paper's large model differs in size
    alone.

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


def you2020(size: str) -> ml_collections.ConfigDict:
    """Return the recipe of LAMB (You et al. 2020) in the settings of NVIDIA's published BERT-large runs: 8,601 steps.

    7,038 steps of 65,536 sequences at length 128, then 1,563 of 32,768 at 512, each phase with a schedule of its own.
    In micro-batches of 16,384 and 4,096 sequences: 8,192 tokens a device on 256 devices.
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


def liu2019(size: str, peak_learning_rate: float, warmup_steps: int) -> ml_collections.ConfigDict:
    """Return the recipe of RoBERTa (Liu et al. 2019): masked tokens alone, full sentences across documents.

    500,000 steps of 8,192 sequences of 512 tokens; the second moment decays by 0.98, gradients are not clipped.
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


def lan2020(size: str) -> ml_collections.ConfigDict:
    """Return the recipe of ALBERT (Lan et al. 2020): sentence order, masked n-grams, LAMB.

    125,000 steps of 4,096 sequences of 512 tokens, 3,125 of them warmup.
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


def clark2020(size: str, seq_len: int) -> ml_collections.ConfigDict:
    """Return the recipe of ELECTRA (Clark et al. 2020) without model size, batch, steps and learning rate.

    Replaced tokens, no sentence pairs. Of the masked tokens 85 % become [MASK] and 15 % stay. The
    rate decays from the first step on; warmup multiplies it.
    """
    config = pretrain_config()
    config.objective = "replaced_tokens"
    config.model.update(architecture(f"electra_{size}"))
    config.compute.dtype = "bfloat16"
    config.data.update(sentence_pairs="full_sentences", mask_token_fraction=0.85, random_token_fraction=0.0)
    config.train.phases = phases({"seq_len": seq_len})
    config.optimizer.update(warmup_steps=10_000, schedule="electra", bias_correction=False)
    return config


def sanh2019() -> ml_collections.ConfigDict:
    """Return the recipe of DistilBERT (Sanh et al. 2019): six layers that a BERT-base teaches.

    Temperature 2, weights 5 : 2 : 1 of soft targets, masked tokens and cosine; batches of 4,000 sequences, three passes
    over the teacher's corpus. Our weights are half of theirs, so the gradient is clipped at half of their norm of 5.
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


def warner2024(size: str, peak_learning_rate: float) -> ml_collections.ConfigDict:
    """Return the recipe of ModernBERT (Warner et al. 2024): 30 % masks, StableAdamW, a long stretch at the peak.

    360,000 steps of 4,608 sequences of 1,024 tokens, which is 1.7 trillion tokens, then 63,600 steps of as many tokens
    in sequences of 8,192 at 3e-4, the last 15 % of them with a decay of 1 - sqrt (in the paper the last sixth:
    here the fraction is of the run and of its last phase, and the first phase stays at its peak). Unlike the paper the
    batch does not grow, all blocks have their final rotary bases from the start, and the second phase is all at one
    rate.
    """
    config = pretrain_config()
    config.model.update(architecture(f"modern_{size}"))
    config.compute.dtype = "bfloat16"
    config.data.update(sentence_pairs="full_sentences", mask_probability=0.3)
    config.train.update(steps=423_600, batch_size=4_608)
    config.train.phases = phases(
        {"seq_len": 1_024, "fraction": 360_000 / 423_600},
        {"seq_len": 8_192, "fraction": 63_600 / 423_600, "batch_size": 576, "peak_learning_rate": 3e-4},
    )
    config.optimizer.update(
        name="stable_adamw",
        peak_learning_rate=peak_learning_rate,
        warmup_steps=640,
        schedule="warmup_stable_decay",
        decay_fraction=63_600 / 423_600,
        decay_power=0.5,
        beta2=0.98,
        weight_decay=1e-5,
        clip_norm=None,
    )
    return config


def finetuning(
    epochs: float, batch_size: int, learning_rate: float, max_seq_len: int = 128, warmup_fraction: float = 0.1
) -> ml_collections.ConfigDict:
    """Return the settings of fine-tuning in Devlin et al. 2019, A.3: Adam, linear warmup and decay.

    The dev set is evaluated after each epoch. Adam has bias correction, unlike the original: without it, training on a
    small set diverges (Mosbach et al. 2021, Zhang et al. 2021).
    """
    config = finetune_config()
    config.task.update(epochs=epochs, max_seq_len=max_seq_len)
    config.train.update(batch_size=batch_size, log_every=50)
    config.optimizer.update(peak_learning_rate=learning_rate, warmup_fraction=warmup_fraction, schedule="linear")
    config.evaluate.update(every=None, batch_size=64)
    config.checkpoint.update(every=None, keep=1)
    return config
