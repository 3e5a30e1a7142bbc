"""What a work directory says about how its model was made.

Cards are published, so nothing here names a directory of the machine.
"""

import os
import pathlib
import re
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.config import Config, PretrainConfig, from_json, to_json
from bert_jax.config.write_recipe import recipe_text
from bert_jax.console import format_metric
from bert_jax.corpus.manifest import read_manifest, split_snapshot
from bert_jax.corpus.mixture import find_corpora
from bert_jax.errors import UserError
from bert_jax.reports.run.record import read_runs
from bert_jax.reports.run.sections import Assumed, cost_of
from bert_jax.training.metrics import NOT_SCORES, read_metrics
from bert_jax.training.schedules import plan_phases
from bert_jax.training.workdir import read_machine, read_run

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
# Task -> its data set on the Hugging Face Hub.
DATASETS = dict.fromkeys(GLUE, "nyu-mll/glue") | {"squad1": "rajpurkar/squad", "squad2": "rajpurkar/squad_v2"}
LANGUAGE = re.compile(r"[a-z]{2,3}")


class Provenance(NamedTuple):
    """How a model was made, in words and numbers; empty where it is not known."""

    made: str = ""  # a sentence
    corpus: str = ""  # a sentence
    measured: str = ""  # of what the scores are
    scores: tuple[tuple[str, str], ...] = ()
    fingerprints: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    cost: tuple[tuple[str, str], ...] = ()
    counted: str = ""  # sentences on how the cost is known
    recipe: str = ""
    verb: str = ""  # that trains the recipe
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def provenance_of(place: pathlib.Path, step: int | None) -> Provenance:
    """Return what is known of the model of a directory; `step` is that of a checkpoint of `pretrain`."""
    if not (place / "run.json").is_file():
        return Provenance()
    config, fingerprint = read_run(place)
    machine = read_machine(place)
    cost, counted = _cost(place)
    common = Provenance(
        cost=cost,
        counted=counted,
        fingerprints=tuple(fingerprint.items()),
        versions=tuple((name, str(machine[name])) for name in ("bert_jax", "jax", "flax", "python") if name in machine),
        recipe=recipe_text(_published(config)),
    )
    if isinstance(config, PretrainConfig):
        return _pretrained(place, config, step or 0, common)
    return _finetuned(place, config.task.name or "", os.path.basename(config.init_from or ""), common)


def _pretrained(place: pathlib.Path, config: PretrainConfig, step: int, common: Provenance) -> Provenance:
    lines = [line for line in read_metrics(place / "metrics.jsonl") if line["split"] == "heldout"]
    line = max((one for one in lines if one["step"] <= step), key=lambda one: one["step"], default={})
    corpus, languages = _corpus(config.data.corpus or "")
    if (count := config.data.snapshots or 1) > 1:
        corpus += f" This is the first of {count} snapshots of a growing corpus, which the run reads in turn."
    objective = config.objective.replace("_", " ")
    start = f"weights of {os.path.basename(config.init_from)}" if config.init_from else "random weights"
    longest = max(phase.seq_len for phase in plan_phases(config.train) if phase.begin < max(step, 1))
    return common._replace(
        made=f"Pretrained by {objective} from {start}: step {step:,} of {config.train.steps:,}, on sequences of up to "
        f"{longest:,} tokens.",
        corpus=corpus,
        measured=f"Documents that were held out of training, at step {line['step']:,}." if line else "",
        scores=_figures({name: value for name, value in line.items() if name not in NOT_SCORES}),
        verb="pretrain",
        languages=languages,
        tags=(config.objective,),
    )


def _finetuned(place: pathlib.Path, task: str, start: str, common: Provenance) -> Provenance:
    try:
        results = strict_json.parse((place / "results.json").read_text(encoding="utf-8"))
        best, mean = results["best"], results["mean"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{place}: no readable results.json; run `bert-jax finetune` to its end") from error
    seeds = len(results["runs"]) // len(mean)
    scores = _figures(best["scores"])
    if seeds > 1:
        for name, figures in mean[f"{best['learning_rate']:g}"].items():
            both = " ± ".join(format_metric(name, figures[key]) for key in ("mean", "standard_deviation"))
            scores += ((f"{name.replace('_', ' ')}, mean and deviation of {seeds} seeds", both),)
    chosen = f"learning rate {best['learning_rate']:g} and seed {best['seed']}"
    return common._replace(
        made=f"Fine-tuned for {task} from the weights of {start}, with {chosen}: the best of {len(results['runs'])} by "
        f"{results['metric']} on the dev set.",
        measured=f"The dev set of {task}, which also chose this model.",
        scores=scores,
        verb="finetune",
        datasets=(DATASETS[task],) if task in DATASETS else (),
        tags=(task,),
    )


def _cost(place: pathlib.Path) -> tuple[tuple[tuple[str, str], ...], str]:
    """Time and energy of the run up to now, as its report says; nothing before its first line of metrics."""
    try:
        (run,) = read_runs([place])
    except UserError:
        return (), ""
    rows, note = cost_of(run, Assumed())
    return tuple(rows), note


def _figures(values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    numbers = {name: value for name, value in values.items() if type(value) in (int, float)}
    return tuple((name.replace("_", " "), format_metric(name, float(value))) for name, value in numbers.items())


def _corpus(corpus: str) -> tuple[str, tuple[str, ...]]:
    """A sentence on the corpus, where its manifest can be read, and the languages of its documents."""
    sentences, languages = [], []
    for directory in [] if "://" in corpus else find_corpora(corpus):
        name, (place, snapshot) = os.path.basename(directory), split_snapshot(directory)
        try:
            manifest = read_manifest(pathlib.Path(place), snapshot)
            train, language = manifest["splits"]["train"], manifest["settings"]["language"]
            sentences.append(f"{name}: {train['documents']:,} documents, {train['tokens']:,} tokens")
        except (UserError, KeyError, TypeError):
            sentences.append(name)
            continue
        if isinstance(language, str) and LANGUAGE.fullmatch(language) and language not in languages:
            languages.append(language)
    return f"{'; '.join(sentences)}." if sentences else "", tuple(languages)


def _published(config: Config) -> Config:
    """The config with names of directories and files instead of paths."""
    return from_json(_without_directories(to_json(config)))


def _without_directories(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_directories(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_directories(one) for one in value)
    if not isinstance(value, str):
        return value
    return ",".join(os.path.basename(part.rstrip("/")) or part for part in value.split(","))
