"""Console lines about corpus, model and phases at the start of a pretraining run."""

import itertools
import os
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.batches.masking import data_config_of_phase
from bert_jax.batches.pipeline import make_sequences
from bert_jax.batches.statistics import sequence_figures
from bert_jax.config import ComputeConfig, EncoderConfig, EvaluateConfig
from bert_jax.corpus.build.prepare_parts import estimate_text_tokens, fraction_prepared_after_part
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.statistics import EVALUATED_FRACTION, expected_num_predictions, few_predictions_warning
from bert_jax.models import describe_used_kernel
from bert_jax.objectives import predicts_masks
from bert_jax.parallel.platform import cpu_has_bfloat16
from bert_jax.pretraining.data import SequenceRules, mixtures_of_phases
from bert_jax.reports.corpus.checks import sequence_warnings
from bert_jax.training.schedules import Phase, sequences_of_phase, steps_of_phase

CPU_FLOPS_PER_CORE = 50e9  # an optimistic speed of training in float32; the machine may be slower
MAX_CPU_HOURS = 6  # a longer run on CPUs gets a warning
CHECKED_SEQUENCES = 512  # sequences of each phase that are checked for likely problems
SHOWN_OF_PHASE = ("rotary_base", "local_window", "weight_decay")  # shown in the line of a phase that sets them


def evaluation_line(num_tokens: int, evaluate: EvaluateConfig, max_seq_len: int, predicts_all: bool) -> str:
    """Return a line about the number of predictions of an evaluation, with advice if the number is small.

    Args:
        num_tokens: number of tokens of the text of the evaluation.
        evaluate: settings of the evaluation, which limit the number of sequences.
        max_seq_len: maximum number of tokens of a sequence.
        predicts_all: whether every token is predicted, as in left-to-right pretraining.
    """
    max_tokens = evaluate.num_sequences * max_seq_len
    fraction = 1.0 if predicts_all else EVALUATED_FRACTION
    num_predictions = expected_num_predictions(min(num_tokens, max_tokens), fraction)
    if max_tokens < num_tokens:
        warning = few_predictions_warning(num_predictions, "raise config.evaluate.num_sequences")
    elif evaluate.corpus:
        warning = few_predictions_warning(num_predictions, "prepare more text for config.evaluate.corpus")
    else:
        warning = few_predictions_warning(num_predictions)
    return warning or f"an evaluation has about {num_predictions:,} predictions"


def describe_run(
    corpus: Mixture, rules: SequenceRules, phases: tuple[Phase, ...], model: EncoderConfig, compute: ComputeConfig
) -> Iterator[str]:
    """Yield console lines about a run before it begins: its corpus, sources, model, phases and likely problems."""
    split, symbols, data = corpus.split("train"), rules.symbols, rules.data
    devices, num_snapshots = jax.devices(), data.snapshots or 1
    yield (
        f"corpus {data.corpus}: {split.num_documents:,} documents, {split.num_tokens:,} tokens, "
        f"vocabulary {corpus.vocab_size:,}"
    )
    if num_snapshots > 1:
        yield (
            f"  it is the first of {num_snapshots} snapshots, "
            f"{fraction_prepared_after_part(0, num_snapshots):.1%} of the text; "
            "the next follows when as many tokens were read as a snapshot has, and evaluation stays with the first"
        )
    if len(corpus.corpora) > 1:
        yield from _describe_sources(corpus, rules, phases)
    may_round = devices[0].platform == "cpu" and compute.dtype == "float32" and cpu_has_bfloat16()
    faster = " (with config.compute.dtype=bfloat16, a step on this CPU is shorter)" if may_round else ""
    yield (
        f"model {model.num_layers} layers x {model.hidden_size}, {compute.dtype}, "
        f"on {len(devices)} x {devices[0].device_kind}{faster}, "
        f"attention by {describe_used_kernel(model, compute, devices[0].platform)}"
    )
    warned = set[str]()  # lines that an earlier phase has printed
    for phase_number, index in enumerate(dict.fromkeys(phase.index for phase in phases), 1):
        settings, steps = rules.phases[index], steps_of_phase(phases, index)
        if not steps:
            continue
        tokens = len(sequences_of_phase(phases, index)) * settings.seq_len
        sizes = [phase.batch_size for phase in phases if phase.index == index]
        text_size = split.num_tokens if num_snapshots == 1 else estimate_text_tokens(split.num_tokens, num_snapshots)
        passes = np.format_float_positional(tokens / text_size, precision=3, fractional=False, trim="-")
        yield (
            f"phase {phase_number}: steps {steps.start:,} to {steps.stop:,} of {_describe_range(sizes)} sequences x "
            f"{settings.seq_len} tokens, {passes} times the {'corpus' if num_snapshots == 1 else 'text, about'}"
            + (f", {settings.objective.replace('_', ' ')}" if settings.objective else "")
            + "".join(
                f", {name.replace('_', ' ')} {value:,g}"
                for name in SHOWN_OF_PHASE
                if (value := getattr(settings, name)) is not None
            )
        )
        masked = data_config_of_phase(data, settings)
        sequences = make_sequences(split, symbols, settings.seq_len, rules.seed, masked)
        figures = sequence_figures(sequences, symbols.vocabulary.mask, CHECKED_SEQUENCES)
        lines = [line for line in sequence_warnings(figures, masked).values() if line not in warned]
        yield from (f"warning: {line}" for line in lines)
        warned.update(lines)
    if not predicts_masks(rules.phases[phases[-1].index]):
        yield (
            "warning: the last phase is left_to_right, so the masked-token head of the trained model will predict next "
            "tokens; end with a phase of masked tokens"
        )


def _describe_sources(corpus: Mixture, rules: SequenceRules, phases: tuple[Phase, ...]) -> Iterator[str]:
    """Yield a line for each corpus of a mixture: its fractions of the tokens and the sequences, and its epochs."""
    split = corpus.split("train")
    mixtures = mixtures_of_phases(split, rules, phases)
    for index, (name, source) in enumerate(corpus.sources()):
        all_shares = (f"{mixture.shares[index]:.2%}" for mixture in mixtures)
        shares = ", then ".join(share for share, _ in itertools.groupby(all_shares))
        times = sum(mixture.num_epochs * mixture.passes[index] for mixture in mixtures)
        yield (
            f"  {name}: {source.num_tokens / split.num_tokens:.2%} of the tokens, "
            f"{shares} of the sequences, {times:,.2f} epochs"
        )


def _describe_range(sizes: Sequence[int]) -> str:
    """Return the first and the last size in words, or a single size if both are equal."""
    return f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"


def long_cpu_run_warning(flops: float, mesh: Mesh) -> str:
    """Return a warning if a run of `flops` model FLOPs takes more than MAX_CPU_HOURS on the CPUs of a mesh; else ""."""
    if mesh.devices.flat[0].platform != "cpu":
        return ""
    hours = flops / (CPU_FLOPS_PER_CORE * (os.cpu_count() or 1) * jax.process_count()) / 3_600
    if hours < MAX_CPU_HOURS:
        return ""
    time = f"{hours:,.0f} hours" if hours < 48 else f"{hours / 24:,.0f} days"
    return (
        f"warning: a recipe for accelerators: on CPUs these steps take at least {time}; --config=small_cpu "
        "takes an hour, and --budget 2h fits the model to the time"
    )
