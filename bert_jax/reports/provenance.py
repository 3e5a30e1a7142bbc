"""The origin of a model (data, training, scores, cost) for a model card, read from the model's work directory.

Model cards are published, so no text in this module names a directory of the machine.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.console import format_metric
from bert_jax.corpus.manifest import parse_corpus_and_snapshot, read_manifest
from bert_jax.corpus.mixture import find_corpora
from bert_jax.errors import UserError
from bert_jax.reports.run.cost import AssumedPower, cost_rows
from bert_jax.reports.run.record import PretrainingFacts, Run, published_paths, read_workdir
from bert_jax.training.metrics import NOT_SCORES
from bert_jax.training.schedules import phase_after_step

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
# Task -> its data set on the Hugging Face Hub.
DATASETS = dict.fromkeys(GLUE, "nyu-mll/glue") | {"squad1": "rajpurkar/squad", "squad2": "rajpurkar/squad_v2"}
LANGUAGE = re.compile(r"([a-z]{2,3})(-[a-z]+)*")  # the Hub knows zh, but not zh-hans
VERSIONS = ("bert_jax", "jax", "flax", "python")  # names of the versions that a card shows

NamedValues = Sequence[tuple[str, str]]  # name and value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """The origin of a model in words and numbers; unknown fields are empty."""

    origin: str = ""  # a sentence
    corpus: str = ""  # a sentence
    eval_set: str = ""  # a sentence: the documents or the task behind the scores
    scores: NamedValues = ()
    task: str = ""  # name of the task that the model was fine-tuned on
    task_scores: Mapping[str, float] = dataclasses.field(default_factory=dict)  # on the dev set, by metric
    fingerprints: NamedValues = ()
    versions: NamedValues = ()
    cost: NamedValues = ()
    cost_note: str = ""  # sentences on how the cost is known
    recipe: str = ""
    verb: str = ""  # verb of the command line that trains the recipe
    languages: Sequence[str] = ()
    datasets: Sequence[str] = ()
    tags: Sequence[str] = ()
    fills_masks: bool = True  # False: the last phase of a run of masked tokens predicts next tokens


def provenance_of(directory: pathlib.Path, step: int | None) -> Provenance:
    """Return the provenance of the model in a directory; for a checkpoint of `pretrain`, `step` is its step."""
    if not (directory / "run.json").is_file():
        return Provenance()
    run = read_workdir(directory)
    facts = (
        _pretraining_provenance_fields(run, run.pretraining, step or 0)
        if run.pretraining
        else _finetuning_provenance_fields(run)
    )
    if any(training.lines for training in run.trainings):
        facts["cost"], facts["cost_note"] = cost_rows(run, AssumedPower())
    return Provenance(
        **facts,
        fingerprints=tuple(run.fingerprint.items()),
        versions=[(name, str(run.machine[name])) for name in VERSIONS if name in run.machine],
        recipe=run.published_recipe,
        verb=run.verb,
    )


def _pretraining_provenance_fields(run: Run, facts: PretrainingFacts, step: int) -> dict[str, Any]:
    """Return the fields of `Provenance` for a pretraining run."""
    lines = [line for line in run.trainings[0].lines if line["split"] == "heldout" and line["step"] <= step]
    line = max(lines, key=lambda line: line["step"], default={})
    corpus, languages = _corpora_and_languages(facts.data.corpus or "")
    if (count := facts.data.snapshots or 1) > 1:
        corpus += f" This is the first of {count} snapshots of a growing corpus, which the run reads in turn."
    objective = facts.objective.replace("_", " ")
    start = f"weights of {published_paths(run.init_from)}" if run.init_from else "random weights"
    max_seq_len = max(phase.seq_len for phase in facts.phases if phase.begin < max(step, 1))
    is_causal_phase = not facts.predicts_masks[phase_after_step(facts.phases, step).index]
    caution = " Its last steps were left to right: its masked-token head predicts next tokens and does not fill masks."
    return {
        "origin": f"Pretrained by {objective} from {start}: step {step:,} of {facts.phases[-1].end:,}, on sequences "
        f"of up to {max_seq_len:,} tokens.{caution if is_causal_phase else ''}",
        "corpus": corpus,
        "eval_set": f"Documents that were held out of training, at step {line['step']:,}." if line else "",
        "scores": _format_scores({name: value for name, value in line.items() if name not in NOT_SCORES}),
        "languages": languages,
        "tags": [facts.objective],
        "fills_masks": not is_causal_phase,
    }


def _finetuning_provenance_fields(run: Run) -> dict[str, Any]:
    """Return the fields of `Provenance` for a fine-tuning run."""
    task, results = run.task, run.results
    if results is None:
        raise UserError(f"{run.path}: no readable results.json; run `bert-jax finetune` to its end")
    best, scores = results.best, _format_scores(results.best["scores"])
    if results.num_seeds > 1:
        suffix = f", mean and deviation of {results.num_seeds} seeds"
        scores += [
            NamedScore(name.replace("_", " ") + suffix, results.mean_and_deviation(name)) for name in best["scores"]
        ]
    start = "random weights of the architecture of" if run.random_weights else "the weights of"
    return {
        "origin": f"Fine-tuned for {task} from {start} {published_paths(run.init_from)}, with learning rate "
        f"{best['learning_rate']:g} and seed {best['seed']}: the best of {len(results.trainings)} by {results.metric} "
        "on the dev set.",
        "eval_set": f"The dev set of {task}, which also chose this model.",
        "scores": scores,
        "task": task,
        "task_scores": {
            name: value
            for name, value in best["scores"].items()
            if type(value) in (int, float) and name != "threshold"  # a setting that the dev set chose
        },
        "datasets": [DATASETS[task]] if task in DATASETS else [],
        "tags": [task],
    }


class NamedScore(NamedTuple):
    """The name of a score, and its value as text."""

    name: str
    score: str


def _format_scores(metrics: Mapping[str, Any]) -> list[NamedScore]:
    numbers = {name: value for name, value in metrics.items() if type(value) in (int, float)}
    return [NamedScore(name.replace("_", " "), format_metric(name, float(value))) for name, value in numbers.items()]


class CorporaAndLanguages(NamedTuple):
    """A sentence about the training corpora, and the languages of the documents."""

    sentence: str
    languages: list[str]


def _corpora_and_languages(corpus: str) -> CorporaAndLanguages:
    """Return a sentence about the corpora whose manifests can be read, and the list of their documents' languages."""
    sentences, languages = [], []
    for directory in [] if "://" in corpus else find_corpora(corpus):
        name, (path, snapshot) = os.path.basename(directory), parse_corpus_and_snapshot(directory)
        try:
            manifest = read_manifest(pathlib.Path(path), snapshot)
            train, language = manifest["splits"]["train"], manifest["settings"]["language"]
            sentences.append(f"{name}: {train['documents']:,} documents, {train['tokens']:,} tokens")
        except (UserError, KeyError, TypeError):
            sentences.append(name)
            continue
        if isinstance(language, str) and (code := LANGUAGE.fullmatch(language)):
            languages.append(code[1])
    return CorporaAndLanguages(f"{'; '.join(sentences)}." if sentences else "", [*dict.fromkeys(languages)])
