"""A run in three sentences, and what looks wrong with it."""

import functools
import statistics
from collections.abc import Callable
from typing import NamedTuple

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import EncoderConfig, FinetuneConfig, PretrainConfig
from bert_jax.console import format_metric
from bert_jax.models import Head, count_parameters
from bert_jax.objectives import OBJECTIVES
from bert_jax.reports.run.record import Run, Training
from bert_jax.training.plateau import MASKED_LOSS, Plateau, expected_step

GROWN = 10.0  # times the median of the middle of a run, from which the gradient norm at its end is named
RISEN = 0.1  # nats above its lowest value, from which a held-out loss is named
SKIPPED = 0.01  # of all steps
MAX_RESTARTS = 3  # whose steps are named
HEALTHY = (
    "Nothing looks wrong: losses and gradients are finite, the held-out loss does not rise, and the gradient norm ends "
    f"below {GROWN:g} times its usual value. Fine-tuning and bert-jax score show what the model is good for."
)


class Summary(NamedTuple):
    """Three sentences, and what looks wrong; () is a healthy run."""

    sentences: tuple[str, str, str]
    signs: tuple[str, ...]


def summarize(run: Run) -> Summary:
    """Return what was trained, how far, and whether it looks healthy and why."""
    signs = tuple(
        f"{training.label}: {text}" if len(run.trainings) > 1 else text
        for training in run.trainings
        for sign in SIGNS
        if (text := sign(run, training))
    )
    describe = _pretraining if isinstance(run.config, PretrainConfig) else _finetuning
    what, how_far, measured = describe(run)
    health = f"{HEALTHY} " if not signs else "Something looks wrong (below). "
    return Summary((what, how_far, health + measured), signs)


def left_plateau(run: Run, training: Training) -> int | None:
    """Return the step at which the loss left the unigram entropy; None where it has not, or that is not known."""
    entropy = training.last("unigram_entropy", "train")
    if entropy is None or not isinstance(run.config, PretrainConfig):
        return None
    last_step = run.phases[-1].end
    watch = Plateau(entropy, last_step, last_step, ())
    for line in training.lines:
        watch.remarks(line)
    return watch.left_at


def tokens_read(run: Run, step: int) -> int:
    """Return the tokens of pretraining up to a step, padding included."""
    return sum(max(0, min(step, one.end) - one.begin) * one.batch_size * one.seq_len for one in run.phases)


def _not_finite(run: Run, training: Training) -> str:
    bad = [line for line in training.lines if any(line.get(name, 0.0) is None for name in ("loss", "grad_norm"))]
    return f"{len(bad):,} lines of metrics have a loss or a gradient that is not finite" if bad else ""


def _damaged(run: Run, training: Training) -> str:
    return f"{training.damaged:,} damaged lines of metrics.jsonl are left out" if training.damaged else ""


def _skipped(run: Run, training: Training) -> str:
    count = training.last("skipped_steps", "train") or 0
    return f"{count:,.0f} steps were skipped as not finite" if count > SKIPPED * training.last_step else ""


def _on_plateau(run: Run, training: Training) -> str:
    loss, entropy = (training.last(name, "train") for name in (MASKED_LOSS, "unigram_entropy"))
    config = run.config
    if loss is None or entropy is None or not isinstance(config, PretrainConfig) or config.init_from:
        return ""
    due = min(expected_step(config.train.plateau_steps, config.optimizer, run.phases), run.phases[-1].end)
    if training.last_step < due or left_plateau(run, training) is not None:
        return ""
    return (
        f"the masked-token loss of {loss:.2f} is still at the unigram entropy of {entropy:.2f} nats: the model knows "
        "how often tokens occur and little more (docs/learning.md)"
    )


def _gradient_grows(run: Run, training: Training) -> str:
    norms = [value for _, value in training.points("grad_norm", "train") if value is not None]
    if len(norms) < 20:
        return ""
    middle = statistics.median(norms[len(norms) // 4 : len(norms) * 3 // 4])
    end = statistics.median(norms[-len(norms) // 20 :])
    return f"the gradient norm grows: {middle:.3g} in the middle, {end:.3g} at the end" if end > GROWN * middle else ""


def _heldout_rises(run: Run, training: Training) -> str:
    """Of the lines of the last sequence length: a longer one has another loss."""
    lines = [line for line in training.lines if line["split"] == "heldout" and line.get(MASKED_LOSS) is not None]
    losses = [line[MASKED_LOSS] for line in lines if line.get("seq_len") == lines[-1].get("seq_len")]
    if not losses or losses[-1] < min(losses) + RISEN:
        return ""
    rise = f"{min(losses):.2f} to {losses[-1]:.2f}"
    return f"the held-out masked-token loss rose from {rise}: the model learns its text by heart"


# What may look wrong: (run, training) -> a clause, or "" where it does not apply.
SIGNS: tuple[Callable[[Run, Training], str], ...] = (
    _not_finite,
    _damaged,
    _skipped,
    _on_plateau,
    _gradient_grows,
    _heldout_rises,
)


def _pretraining(run: Run) -> tuple[str, str, str]:
    config, training = run.config, run.trainings[0]
    assert isinstance(config, PretrainConfig)
    model, total = config.model, run.phases[-1].end
    rule = SENTENCE_PAIRS.get(config.data.sentence_pairs)
    pairs = f" and {config.data.sentence_pairs.replace('_', ' ')}" if rule and rule.label_meanings else ""
    parameters = _count(model, OBJECTIVES[config.objective].heads(config.data.sentence_pairs))
    lengths = ", then ".join(dict.fromkeys(f"{phase.seq_len:,}" for phase in run.phases))
    start = f"weights of {_name(config.init_from)}" if config.init_from else "random weights"
    what = (
        f"An encoder of the family {model.family} with {model.num_layers} layers of width {model.hidden_size}"
        f"{parameters} was pretrained by {config.objective.replace('_', ' ')}{pairs} on "
        f"{_name(config.data.corpus or '')}, from {start}."
    )
    step = training.last_step
    state = "all of its" if step >= total else f"{step / total:.0%} of its"
    tokens = f"{tokens_read(run, step):,} tokens including padding, in sequences of {lengths}"
    how_far = f"It has done {state} {total:,} steps: {tokens}{_restarted(training)}."
    return what, how_far, _level(run, training)


def _level(run: Run, training: Training) -> str:
    """The masked tokens that are guessed, their loss against the unigram entropy, or whatever else a run measures."""
    split = "heldout" if training.names("heldout") else "train"
    where = "held-out" if split == "heldout" else "training"
    loss, entropy = training.last(MASKED_LOSS, split), training.last("unigram_entropy", split)
    accuracy = training.last("mlm_accuracy", split)
    guessed = (
        "" if accuracy is None else f"Of the {where} tokens that it is asked for, it guesses {accuracy:.1%} right. "
    )
    if loss is None:
        loss, entropy = training.last("loss", split), None
        said = "No finite loss is recorded" if loss is None else f"The {where} loss is {loss:.3f}"
    else:
        said = f"The {where} masked-token loss is {loss:.3f} nats"
    if loss is not None and entropy is not None:
        below = entropy - loss
        said += (
            f", {abs(below):.2f} nats {'below' if below >= 0 else 'above'} the unigram entropy of {entropy:.2f}, the "
            "loss of knowing only how often each token occurs"
        )
        left = left_plateau(run, training)
        said += f" (first clearly below it at step {left:,})" if left is not None else ""
    said += "."
    config = run.config
    if split == "heldout" and isinstance(config, PretrainConfig):
        said += (
            f" Measured on up to {config.evaluate.num_sequences:,} sequences of documents that are not trained on. It "
            "is asked for 15 % of their tokens, of which eight in ten are masked, one is random and one kept."
        )
    return guessed + said


def _finetuning(run: Run) -> tuple[str, str, str]:
    config = run.config
    assert isinstance(config, FinetuneConfig)
    name, count = config.task.name, len(run.trainings)
    start = "random weights of the architecture of" if config.task.random_weights else "the weights of"
    what = f"The task {name} was fine-tuned from {start} {_name(config.init_from or '')}."
    steps = [one.last_step for one in run.trainings]
    ends = f"{steps[0]:,}" if len(set(steps)) == 1 else f"{min(steps):,} to {max(steps):,}"
    trainings = "one training" if count == 1 else f"{count} trainings"
    ended = "has ended" if run.results else "has not ended"
    how_far = f"It {ended}, with {trainings} of {ends} steps{_restarted(*run.trainings)}."
    best = best_scores(run)
    if not best:
        return what, how_far, "No score is recorded yet."
    scores = ", ".join(f"{key.replace('_', ' ')} {format_metric(key, value)}" for key, value in best.items())
    return what, how_far, f"On the dev set the best training scores {scores}{_spread(run)}."


def best_scores(run: Run) -> dict[str, float]:
    """Return the dev scores of the best training, or where none has ended, the last ones of the first training."""
    best = run.results.get("best")
    scores = best.get("scores") if isinstance(best, dict) else None
    if isinstance(scores, dict):
        return {str(name): value for name, value in scores.items() if type(value) in (int, float)}
    lines = [line for one in run.trainings for line in one.lines if line["split"] == "heldout"]
    left_out = ("step", "split", "seq_len")
    return (
        {name: value for name, value in lines[-1].items() if name not in left_out and value is not None}
        if lines
        else {}
    )


def _spread(run: Run) -> str:
    """Mean and deviation over the seeds of the learning rate of the best training."""
    metric, best, mean = (run.results.get(name) for name in ("metric", "best", "mean"))
    if not isinstance(best, dict) or not isinstance(mean, dict) or len(run.trainings) <= len(mean):
        return ""
    try:
        found = mean[f"{best['learning_rate']:g}"][metric]
        both = " ± ".join(format_metric(str(metric), found[name]) for name in ("mean", "standard_deviation"))
    except (KeyError, TypeError, ValueError):
        return ""
    return f"; {str(metric).replace('_', ' ')} over the seeds {both}"


def _name(paths: str) -> str:
    """Directories in few words; the settings have the whole paths."""
    return ", ".join("/".join(path.strip().rstrip("/").split("/")[-2:]) for path in paths.split(","))


def _restarted(*trainings: Training) -> str:
    after = [f"{session.first_step - 1:,}" for one in trainings for session in one.sessions[1:]]
    if not after or len(after) > MAX_RESTARTS or len(trainings) > 1:
        return f"; it was restarted {len(after)} times" if after else ""
    return f"; it was restarted after step {' and '.join(after)}"


@functools.cache
def _count(model: EncoderConfig, heads: tuple[Head, ...]) -> str:
    """The parameters of a model in words; none where the size of its vocabulary is not recorded."""
    return f" ({count_parameters(model, heads) / 1e6:,.1f} million parameters)" if model.vocab_size else ""
