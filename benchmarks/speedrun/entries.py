"""The entries of the race; each entry is a function that changes the baseline, and a row of ENTRIES.

`bert-jax pretrain --config=benchmarks/speedrun/entries.py:NAME` trains an entry.
"""

from collections.abc import Callable

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def small_cpu_2026_11(config: ml_collections.ConfigDict) -> None:
    """The baseline: the recipe `small_cpu` as it was on 2026-11-26. This function must not be changed."""
    config.model.update(architecture("modern_mini"))
    config.model.update(initialization="neighbors", initializer_range=0.07)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=2_900, batch_size=64, log_every=20)
    config.train.phases = phases(
        {"seq_len": 64, "fraction": 0.8, "mask_probability": 0.3, "mask_probability_end": 0.2},
        {"seq_len": 128, "fraction": 0.2, "mask_probability": 0.2, "mask_probability_end": 0.15, "batch_size": 32},
    )
    config.optimizer.update(name="muon", peak_learning_rate=2e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=200, num_sequences=1_000, batch_size=64)
    config.checkpoint.update(every=200, keep=2)


def adam_8e3(config: ml_collections.ConfigDict) -> None:
    """Four times the learning rate of Adam, which trains the token table, the norms and the head; Muon's rate stays."""
    small_cpu_2026_11(config)
    config.optimizer.update(peak_learning_rate=8e-3, beta2=0.98)


def four_layers(config: ml_collections.ConfigDict) -> None:
    """Two layers fewer, and more steps in about the same time; Adam's rate as in `adam_8e3`."""
    adam_8e3(config)
    config.model.num_layers = 4
    config.train.steps = 4_000


def small_cpu_2026_11_27(config: ml_collections.ConfigDict) -> None:
    """The recipe `small_cpu` since 2026-11-27: the rates of `adam_8e3`, and five times the weight decay."""
    adam_8e3(config)
    config.optimizer.weight_decay = 0.05


def hybrid_16th(config: ml_collections.ConfigDict) -> None:
    """A sixteenth of the sequences of each batch is left to right, in both phases, as in GPT-BERT."""
    small_cpu_2026_11_27(config)
    for phase in config.train.phases:
        phase.objective = "hybrid"


def hybrid_4th(config: ml_collections.ConfigDict) -> None:
    """A quarter of the sequences of each batch is left to right, in both phases."""
    hybrid_16th(config)
    for phase in config.train.phases:
        phase.left_to_right_fraction = 1 / 4


def causal_first(config: ml_collections.ConfigDict) -> None:
    """The first fifth of the steps is left to right; the other steps have the masks of `small_cpu`."""
    small_cpu_2026_11_27(config)
    masked, last = config.train.phases
    causal = {"seq_len": 64, "fraction": 0.2, "objective": "left_to_right"}
    config.train.phases = phases(causal, masked.to_dict() | {"fraction": 0.6}, last.to_dict())


def rarity_025(config: ml_collections.ConfigDict) -> None:
    """The rates of `small_cpu_2026_11_27`, and masks that prefer rare tokens: proportional to frequency ** -0.25."""
    small_cpu_2026_11_27(config)
    config.data.rarity_power = 0.25


def rarity_050(config: ml_collections.ConfigDict) -> None:
    """Masks that prefer rare tokens more than in `rarity_025`: proportional to frequency ** -0.5."""
    rarity_025(config)
    config.data.rarity_power = 0.5


def rarity_050_first(config: ml_collections.ConfigDict) -> None:
    """Masks by rarity as in `rarity_050`, but uniform masks in the last phase, as in the evaluation."""
    rarity_050(config)
    config.train.phases[1].rarity_power = 0.0


def half_depth(config: ml_collections.ConfigDict) -> None:
    """The run before `grown_from_half`: three of the six layers, short sequences, and a rate that does not decay."""
    adam_8e3(config)
    config.model.num_layers = 3
    config.train.steps = 1_200
    config.train.phases = phases({"seq_len": 64, "mask_probability": 0.3})
    config.optimizer.update(schedule="warmup_stable_decay", decay_fraction=0.0)


def grown_from_half(config: ml_collections.ConfigDict) -> None:
    """`adam_8e3` from the weights of `half_depth`, with fewer steps; the time of both runs counts."""
    adam_8e3(config)
    config.train.steps = 2_200


def bfloat16_factors(config: ml_collections.ConfigDict) -> None:
    """The rates of `small_cpu_2026_11_27`, with the factors of products in bfloat16, and unrolled layers."""
    small_cpu_2026_11_27(config)
    config.compute.update(dtype="bfloat16", scan_layers=False)


def corpus_vectors(config: ml_collections.ConfigDict) -> None:
    """`bfloat16_factors` with initial vectors from counts of the corpus, and with fewer steps."""
    bfloat16_factors(config)
    config.corpus_vectors = True
    config.train.steps = 1_900


def corpus_vectors_3500(config: ml_collections.ConfigDict) -> None:
    """`corpus_vectors` with so many steps that the training takes about as long as the baseline."""
    corpus_vectors(config)
    config.train.steps = 3_500


ENTRIES: dict[str, Callable[[ml_collections.ConfigDict], None]] = {
    entry.__name__: entry
    for entry in (
        small_cpu_2026_11,
        adam_8e3,
        four_layers,
        small_cpu_2026_11_27,
        hybrid_16th,
        hybrid_4th,
        causal_first,
        rarity_025,
        rarity_050,
        rarity_050_first,
        half_depth,
        grown_from_half,
        bfloat16_factors,
        corpus_vectors,
        corpus_vectors_3500,
    )
}
# Entry -> the entry whose trained weights grow (`config.grow`) to the initial weights of the first.
GROWN_FROM = {"grown_from_half": "half_depth"}


def get_config(name: str) -> ml_collections.ConfigDict:
    """Return the recipe of an entry."""
    config = pretrain_config()
    ENTRIES[name](config)
    return config
