"""A summary of a run in three sentences, and warnings about the run."""

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import EncoderConfig
from bert_jax.console import format_metric
from bert_jax.models import Head, count_parameters
from bert_jax.objectives import OBJECTIVES
from bert_jax.reports.run.label_sections import check_labels_without_recall
from bert_jax.reports.run.record import PretrainingFacts, Run, Training
from bert_jax.training.metrics import NOT_SCORES, WEIGHTED
from bert_jax.training.plateau import MASKED_LOSS, plateau_in_words

MAX_NORM_GROWTH = 10.0  # median gradient norm at the end of a run, relative to the median in its middle
MIN_NORMS = 20  # lines of metrics; with fewer lines, growth is not checked
MAX_RISE = 0.1  # nats by which a held-out loss may exceed its lowest value
MAX_SKIPPED = 0.01  # fraction of the steps of a run
MAX_NAMED_RESTARTS = 3
NOT_LEARNED = ("unigram_loss", *WEIGHTED)  # held-out losses whose rise is no sign of memorized text
# Part of the fingerprint -> warning for runs of the same verb that differ in this part.
DIFFERENCES = {
    "tokenizer": "different vocabularies. Losses, accuracies and numbers of tokens then count different units",
    "corpus": "different corpora. Losses and accuracies are then about different held-out texts",
    "task": "different tasks. Scores are then about different examples",
}


class RunSummary(NamedTuple):
    """A summary of a run in three sentences, its warnings, and a clause about the checks that found data.

    A healthy run has no warnings.
    """

    sentences: tuple[str, str, str]
    warnings: tuple[str, ...]
    checked: str

    @property
    def verdict(self) -> str:
        """The health of the run in two or three words."""
        return "⚠ look at this" if self.warnings else "✓ looks healthy"


def summarize_run(run: Run) -> RunSummary:
    """Return the warnings and the summary of a run: model and data, progress, health and result."""
    warnings = tuple(
        f"{training.label}: {warning}" if len(run.trainings) > 1 else warning
        for training in run.trainings
        for check in RUN_CHECKS
        if (warning := check(training, run))
    )
    if warning := check_labels_without_recall(run):
        warnings += (warning,)
    if run.pretraining:
        training = run.trainings[0]
        subject, progress = _pretraining_sentences(run.pretraining, run.init_from, training)
        result = _describe_accuracy_and_loss(training, run.pretraining)
    else:
        subject, progress, result = _finetuning_sentences(run)
    checked = _describe_checks(run.trainings)
    health = f"Nothing looks wrong: {checked}. Fine-tuning and bert-jax score show the quality of the model."
    if warnings:
        health = "Something looks wrong (below)."
    return RunSummary((subject, progress, f"{health} {result}"), warnings, checked)


def _describe_checks(trainings: Sequence[Training]) -> str:
    """Return a clause about the checks of trainings without warnings; a check without data is left out."""
    losses = dict.fromkeys(name for training in trainings for name in _heldout_losses(training))
    clauses = ["losses and gradients are finite", *(f"the held-out {_loss_in_words(n)} does not rise" for n in losses)]
    if all(len(_gradient_norms(training)) >= MIN_NORMS for training in trainings):
        clauses.append(f"the gradient norm ends below {MAX_NORM_GROWTH:g} times its usual value")
    return " and ".join([", ".join(clauses[:-1]), clauses[-1]]) if len(clauses) > 1 else clauses[0]


def _gradient_norms(training: Training) -> list[float]:
    return [value for _, value in training.points("grad_norm", "train") if value is not None]


def _heldout_losses(training: Training) -> dict[str, list[tuple[int, float]]]:
    """Return name -> (step, value) of each held-out loss with several evaluations at the last sequence length.

    A loss that the config weights is left out, because the scale of such a loss depends on the weight. In addition, the
    loss of replaced tokens may rise because the generator improves.
    """
    lines = [line for line in training.lines if line["split"] == "heldout"]
    names = [name for name in training.names("heldout") if name.endswith("_loss") and name not in NOT_LEARNED]
    measured = {name: [line for line in lines if line.get(name) is not None] for name in names}
    values = {
        name: [(line["step"], line[name]) for line in lines if line.get("seq_len") == lines[-1].get("seq_len")]
        for name, lines in measured.items()
        if lines
    }
    return {name: losses for name, losses in values.items() if len(losses) > 1}


def _loss_in_words(name: str) -> str:
    return "masked-token loss" if name == MASKED_LOSS else name.replace("_", " ")


def _check_not_finite(training: Training, run: Run) -> str:
    num_bad = sum(any(line.get(name, 0.0) is None for name in ("loss", "grad_norm")) for line in training.lines)
    return f"{num_bad:,} lines of metrics have a loss or a gradient that is not finite" if num_bad else ""


def _check_damaged_metrics(training: Training, run: Run) -> str:
    return f"{training.num_damaged:,} damaged lines of metrics.jsonl are left out" if training.num_damaged else ""


def _check_skipped_steps(training: Training, run: Run) -> str:
    count = training.last("skipped_steps", "train") or 0
    return f"{count:,.0f} steps were skipped as not finite" if count > MAX_SKIPPED * training.last_step else ""


def _check_on_plateau(training: Training, run: Run) -> str:
    """Return a warning if the loss is still at the unigram loss after the step `plateau_end`."""
    # With `data.rarity_power`, only the lines of held-out documents have a unigram loss.
    split = "train" if "unigram_loss" in training.names("train") else "heldout"
    loss, reference = (training.last(name, split) for name in (MASKED_LOSS, "unigram_loss"))
    expected = run.pretraining.plateau_end if run.pretraining else None
    if loss is None or reference is None or expected is None:
        return ""
    if training.last_step < expected or training.left_plateau_at is not None:
        return ""
    level, knowledge = plateau_in_words(loss, reference)
    return (
        f"{level}: the masked-token loss is {loss:.2f}, the unigram loss {reference:.2f} nats; {knowledge} "
        "(docs/learning.md)"
    )


def _check_gradient_grows(training: Training, run: Run) -> str:
    """Return a warning if the gradient norm at the end of a run is far above the norm in the middle."""
    norms = _gradient_norms(training)
    if len(norms) < MIN_NORMS:
        return ""
    middle = statistics.median(norms[len(norms) // 4 : len(norms) * 3 // 4])
    end = statistics.median(norms[-len(norms) // 20 :])
    if end <= MAX_NORM_GROWTH * middle:
        return ""
    return f"the gradient norm grows: {middle:.3g} in the middle, {end:.3g} at the end"


def _check_heldout_rises(training: Training, run: Run) -> str:
    """Return a warning if a held-out loss rose."""
    rises = []
    for name, points in _heldout_losses(training).items():
        lowest, first = min((loss, step) for step, loss in points)
        if points[-1][1] >= lowest + MAX_RISE:
            since = " of the initial weights" if first == 0 else ""
            rises.append(f"the held-out {_loss_in_words(name)} rose from {lowest:.2f}{since} to {points[-1][1]:.2f}")
    cause = "the model memorizes its training text"
    if any("initial weights" in rise for rise in rises):
        cause = "try a lower learning rate, or more steps"
    return f"{' and '.join(rises)}: {cause}" if rises else ""


def _check_ends_with_next_tokens(training: Training, run: Run) -> str:
    """Return a warning if the last phase predicts next tokens in a run of masked tokens."""
    facts = run.pretraining
    if facts is None or facts.predicts_masks[facts.phases[-1].index]:
        return ""
    return (
        "the last phase is left_to_right, so the masked-token head of the trained model predicts next tokens; end with "
        "a phase of masked tokens"
    )


def comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """Return warnings about runs whose figures cannot be compared."""
    if len({run.verb for run in runs}) > 1:
        return ["Losses and scores of a pretraining and of a fine-tuning are not comparable."]
    warnings = []
    for name, text in DIFFERENCES.items():
        labels: dict[str | None, list[str]] = {}
        for run in runs:
            labels.setdefault(run.fingerprint.get(name), []).append(run.label)
        if len(labels) > 1 and (name != "tokenizer" or runs[0].pretraining):
            groups = " / ".join(", ".join(group) for group in labels.values())
            warnings.append(f"{groups} have {text}.")
    return warnings


# (a training, its run) -> a warning about the training, or "".
RUN_CHECKS: tuple[Callable[[Training, Run], str], ...] = (
    _check_not_finite,
    _check_damaged_metrics,
    _check_skipped_steps,
    _check_on_plateau,
    _check_ends_with_next_tokens,
    _check_gradient_grows,
    _check_heldout_rises,
)


class _PretrainingSentences(NamedTuple):
    """Two sentences about a pretraining run: its model and data, and its progress."""

    model_and_data: str
    progress: str


def _pretraining_sentences(facts: PretrainingFacts, init_from: str, training: Training) -> _PretrainingSentences:
    """Return two sentences about a pretraining run: its model and data, and its progress."""
    model, total, step = facts.model, facts.phases[-1].end, training.last_step
    rule = SENTENCE_PAIRS.get(facts.data.sentence_pairs)
    pairs = f" and {facts.data.sentence_pairs.replace('_', ' ')}" if rule and rule.label_meanings else ""
    start = f"weights of {_short_paths(init_from)}" if init_from else "random weights"
    subject = (
        f"An encoder of the family {model.family} with {model.num_layers} layers of width {model.hidden_size}"
        f"{_describe_size(model, facts.heads)} was pretrained by {facts.objective.replace('_', ' ')}{pairs} on "
        f"{_short_paths(facts.data.corpus or '')}, from {start}."
    )
    begun = [phase for phase in facts.phases if phase.begin < max(step, 1)]
    lengths = ", then ".join(dict.fromkeys(f"{phase.seq_len:,}" for phase in begun))
    done = "all of its" if step >= total else f"{step / total:.0%} of its"
    tokens = f"{facts.tokens_read(step):,} tokens including padding, in sequences of {lengths}"
    return _PretrainingSentences(
        subject, f"It has done {done} {total:,} steps: {tokens}{_describe_restarts([training])}."
    )


def _describe_accuracy_and_loss(training: Training, facts: PretrainingFacts) -> str:
    """Return sentences about the accuracy, and about the loss compared with the unigram loss, if they are measured."""
    split = "heldout" if training.names("heldout") else "train"
    where = "held-out" if split == "heldout" else "training"
    names, sentences = training.main_metrics(split), []
    if (accuracy := training.last(names.accuracy, split)) is not None:
        sentences.append(f"Of the {where} {names.predicted}, it predicts {accuracy:.1%} right.")
    loss, reference = training.last(names.loss, split), training.last("unigram_loss", split)
    if names.accuracy and loss is not None:
        level = f"The {where} {_loss_in_words(names.loss)} is {loss:.3f} nats"
        if reference is not None:
            level += (
                f", {abs(reference - loss):.2f} nats {'below' if loss <= reference else 'above'} the unigram loss of "
                f"{reference:.2f}, the loss of a model that knows only how often each token occurs"
            )
            if names.loss == MASKED_LOSS and training.left_plateau_at is not None:
                level += f" (first clearly below it at step {training.left_plateau_at:,})"
        step, first = training.points(names.loss, split)[0]
        if step == 0 and first is not None:
            level += f"; the initial weights had {first:.3f} nats"
    elif loss is not None:
        level = f"The {where} loss is {loss:.3f}"
    else:
        level = "No finite loss is recorded"
    sentences.append(f"{level}.")
    if split == "heldout":
        sentences.append(
            f"Measured on up to {facts.num_eval_sequences:,} sequences of documents that are not trained on."
        )
        row = OBJECTIVES[facts.objective]
        if names.loss == MASKED_LOSS and row.has_masks and not row.eval_uses_training_masks:
            sentences.append(
                "The evaluation predicts 15 % of their tokens: 80 % of these are masked, 10 % random and 10 % kept."
            )
    return " ".join(sentences)


class _FinetuningSentences(NamedTuple):
    """Three sentences about a fine-tuning run: its task and weights, its progress, and its dev scores."""

    task_and_weights: str
    progress: str
    dev_scores: str


def _finetuning_sentences(run: Run) -> _FinetuningSentences:
    """Return three sentences about a fine-tuning run: its task and weights, its progress, and its dev scores."""
    count, steps = len(run.trainings), [training.last_step for training in run.trainings]
    start = "random weights of the architecture of" if run.random_weights else "the weights of"
    subject = f"The task {run.task} was fine-tuned from {start} {_short_paths(run.init_from)}."
    ends = f"{steps[0]:,}" if len(set(steps)) == 1 else f"{min(steps):,} to {max(steps):,}"
    trainings = "one training" if count == 1 else f"{count} trainings"
    ended = "has ended" if run.results else "has not ended"
    progress = f"It {ended}, with {trainings} of {ends} steps{_describe_restarts(run.trainings)}."
    evaluated = [training for training in run.trainings if training.names("heldout")] or run.trainings
    name = f" {evaluated[-1].label}" if count > 1 else ""
    scores, over_seeds = _last_dev_scores(evaluated[-1]), ""
    scored = f"the last evaluation of the training{name} scores"
    if results := run.results:
        scores, scored = results.best["scores"], "the best training scores"
        if results.num_seeds > 1:
            metric = results.metric
            over_seeds = f"; {metric.replace('_', ' ')} over the seeds {results.mean_and_deviation(metric)}"
    if not scores:
        return _FinetuningSentences(subject, progress, "No score is recorded yet.")
    figures = ", ".join(f"{name.replace('_', ' ')} {format_metric(name, score)}" for name, score in scores.items())
    return _FinetuningSentences(subject, progress, f"On the dev set {scored} {figures}{over_seeds}.")


def _last_dev_scores(training: Training) -> dict[str, float]:
    """Return the dev scores of the last evaluation; {} before the first evaluation."""
    lines = [line for line in training.lines if line["split"] == "heldout"]
    last = lines[-1] if lines else {}
    return {name: value for name, value in last.items() if name not in NOT_SCORES and value is not None}


def _short_paths(paths: str) -> str:
    """Return paths shortened to their last two parts; the section on settings shows the full paths."""
    return ", ".join("/".join(path.strip().rstrip("/").split("/")[-2:]) for path in paths.split(","))


def _describe_restarts(trainings: Sequence[Training]) -> str:
    steps = [f"{session.first_step - 1:,}" for training in trainings for session in training.sessions[1:]]
    if not steps or len(steps) > MAX_NAMED_RESTARTS or len(trainings) > 1:
        return f"; it was restarted {len(steps)} times" if steps else ""
    return f"; it was restarted after step {' and '.join(steps)}"


@functools.cache
def _describe_size(model: EncoderConfig, heads: tuple[Head, ...]) -> str:
    """Return a phrase with the number of parameters of a model; "" if the size of the vocabulary is not recorded."""
    if not model.vocab_size:
        return ""
    count = count_parameters(model, heads)
    return f" ({f'{count / 1e6:,.1f} million' if count >= 1e6 else f'{count:,}'} parameters)"
