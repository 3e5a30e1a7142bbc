"""Tables of scores, and commands that use the model."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax.console import format_metric, text_table
from bert_jax.models import Head
from bert_jax.reports.bias_metric_notes import MetricNote
from bert_jax.reports.next_commands import commands_for_pretrained_model, report_command
from bert_jax.scoring.labeled import LabeledReport
from bert_jax.scoring.retrieval import RetrievalReport
from bert_jax.scoring.score import BENCHMARKS, BenchmarkReport
from bert_jax.training.metrics import WEIGHTED

NOT_METRICS = ("step", "seq_len", "documents")
NOTES = {
    "loss": "sum of the losses below",
    "unigram_loss": "nats; loss of a model that knows only how often each token occurs",
    **{name: f"times config.{weight}" for name, weight in WEIGHTED.items()},
}


def evaluation_table(metrics: Mapping[str, float], corpus: str | None = None) -> str:
    """Return the metrics of `evaluate`, one per line; `corpus` is the value of `--corpus`, if any."""
    figures = {name: value for name, value in metrics.items() if name not in NOT_METRICS}
    width = max(map(len, figures))
    documents = f"{metrics['documents']:,} " + (f"documents of {corpus}" if corpus else "held-out documents")
    head = f"step {metrics['step']:,}: {documents}, {metrics['seq_len']} tokens per sequence"
    lines = [
        f"  {name.replace('_', ' '):<{width}}  {format_metric(name, value):>9}  {_metric_note(name)}".rstrip()
        for name, value in figures.items()
    ]
    return "\n".join([head, *lines])


def finetuning_table(results: Mapping[str, Any], workdir: str, commands: Sequence[str]) -> str:
    """Return the scores of `finetune`: a line for each training, mean and deviation over seeds, and the next commands.

    Args:
        results: the content of results.json.
        workdir: directory of the run.
        commands: the next commands.
    """
    best, runs = results["best"], results["runs"]
    names = list(best["scores"])
    table = [["learning rate", "seed", "step", *(name.replace("_", " ") for name in names)]]
    table += [
        [f"{training['learning_rate']:g}", f"{training['seed']}", f"{training['step']:,}"]
        + [format_metric(name, training["scores"][name]) for name in names]
        for training in runs
    ]
    lines = [f"task {results['task']}, dev scores", *_indented_table(table)]
    if len(runs) > len(results["mean"]):  # several seeds
        table = [["learning rate", *(name.replace("_", " ") for name in names)]]
        table += [
            [rate]
            + [
                " ± ".join(format_metric(name, scores[name][figure]) for figure in ("mean", "standard_deviation"))
                for name in names
            ]
            for rate, scores in results["mean"].items()
        ]
        lines += ["mean and standard deviation over the seeds", *_indented_table(table)]
    tests = [
        f"{name} scores of this model: "
        + ", ".join(f"{metric.replace('_', ' ')} {format_metric(metric, score)}" for metric, score in scores.items())
        for name, scores in results.get("test", {}).items()
    ]
    return "\n".join(
        [
            *lines,
            f"best by {results['metric'].replace('_', ' ')}: learning rate {best['learning_rate']:g}, seed "
            f"{best['seed']}, step {best['step']:,}",
            *tests,
            f"model: {workdir.rstrip('/')}/model   predictions: {workdir.rstrip('/')}/predictions",
            "next:",
            *(f"  {command}" for command in commands),
        ]
    )


def score_table(report: BenchmarkReport) -> str:
    """Return the figures of a benchmark: a line for each paradigm or group, and a line for the mean or the total."""
    unit = BENCHMARKS[report.benchmark].unit
    chosen = (
        f"{report.scored:,} of {report.items:,} {unit}" if report.scored < report.items else f"{report.items:,} {unit}"
    )
    unknown = f", {report.unknown_tokens:,} unknown tokens" if report.unknown_tokens else ""
    head = (
        f"{report.benchmark} {report.source}: {chosen}{unknown}; masking {report.masking}, "
        f"temperature {report.temperature:g}"
    )
    rows = dict(report.rows)
    if len(rows) > 1:
        rows["mean" if BENCHMARKS[report.benchmark].mean_over_groups else "all"] = report.total
    table = [["", *(name.replace("_", " ") for name in report.total)]]
    table += [[name, *(_format_score(*figure) for figure in row.items())] for name, row in rows.items()]
    return "\n".join([head, *(f"  {line}" for line in text_table(table))])


def labeled_table(report: LabeledReport) -> str:
    """Return the scores of a model on a file with labels: a line for each score, and a line for each label."""
    counts = "".join(f", {count:,} {name}" for name, count in report.counts.items())
    rows = [[name.replace("_", " "), format_metric(name, value)] for name, value in report.scores.items()]
    lines = [f"labeled {report.source}: {report.num_examples:,} examples{counts}"]
    lines += [f"  {line}" for line in text_table(rows)]
    if report.labels:
        lines.append(f"  calibration error (ECE) {report.labels['calibration']['ece']:.4f}")
        table = [["label", "precision", "recall", "F1", "examples", "predicted"]]
        table += [
            [row["label"], *(f"{row[key]:.4f}" for key in ("precision", "recall", "f1"))]
            + [f"{row[key]:,}" for key in ("support", "predicted")]
            for row in report.labels["labels"]
        ]
        lines += [f"  {line}" for line in text_table(table)]
    return "\n".join(lines)


def retrieval_table(report: RetrievalReport) -> str:
    """Return the measures of a model and of BM25 on a collection, and the interval of their difference."""
    counts = report.collection
    remarks = (
        (counts.num_unjudged, "queries without a judgment left out"),
        (counts.num_unknown, "judgments of documents that the corpus lacks"),
        (counts.num_empty, "empty documents"),
        (report.num_truncated, "texts cut to the length that the model reads"),
    )
    head = [
        f"retrieval {report.source}, {report.split}: {len(counts.queries):,} queries, {len(counts.documents):,} "
        f"documents, similarity {report.similarity}",
        *(f"  {count:,} {remark}" for count, remark in remarks if count),
        "  numbers stored for each text: "
        + ", ".join(f"{mean:,.1f} ({role})" for role, mean in report.numbers_per_text.items()),
    ]
    names = list(next(iter(report.rows.values())))
    table = [["", *names]]
    for system, row in report.rows.items():
        table.append([system, *(f"{row[name]:.4f}" for name in names)])
        table.append(["  95 % interval", *(_interval_text(report.intervals[system][name]) for name in names)])
    table.append(["model minus BM25", *(_interval_text(report.difference[name]) for name in names)])
    lines = [*head, *(f"  {line}" for line in text_table(table))]
    if report.forms:
        table = [["vectors", "MiB", "seconds", "ndcg@10", "lost"]]
        table += [
            [name, f"{form.num_bytes / 2**20:.2f}", f"{form.seconds:.3f}", f"{form.ndcg:.4f}", f"{form.lost:+.4f}"]
            for name, form in report.forms.items()
        ]
        lines += [f"  {line}" for line in text_table(table)]
    return "\n".join(lines)


def _interval_text(bounds: tuple[float, float]) -> str:
    """Return the bounds of an interval, such as '0.312 to 0.358'."""
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def metric_notes_text(notes: Sequence[MetricNote]) -> str:
    """Return a paragraph for each figure, with its meaning and its limits."""
    wrapper = textwrap.TextWrapper(100, subsequent_indent="    ", break_on_hyphens=False)
    paragraphs = (f"  {note.figure.replace('_', ' ')}: {note.says} {note.does_not_say}" for note in notes)
    return "\n".join(map(wrapper.fill, paragraphs))


def _format_score(name: str, value: float | int | None) -> str:
    if value is None:
        return "-"
    return format_metric(name, value) if isinstance(value, int) or "accuracy" in name else f"{value:,.2f}"


def pretrained_model_text(
    workdir: str, heads: Iterable[Head], text: str, has_heldout: bool = True, recipe: str | None = None
) -> str:
    """Return lines with the directory of a pretrained model, and commands that use the model.

    Args:
        workdir: directory of the run.
        heads: heads of the exported model.
        text: text with a mask token, for `fill-mask`.
        has_heldout: whether the run evaluated on held-out documents.
        recipe: file of the user's recipe, as `config.recipe`.
    """
    commands = commands_for_pretrained_model(workdir, heads, text, has_heldout, recipe)
    commands = [report_command(workdir, recipe), *commands]
    return "\n".join([f"model: {workdir}", "next:", *(f"  {command}" for command in commands)])


def _metric_note(name: str) -> str:
    """Return the unit or the meaning of a metric of `evaluate` as a note, or ''."""
    return NOTES.get(name) or ("nats" if name.endswith("loss") else "")


def _indented_table(rows: list[list[str]]) -> list[str]:
    """Return the lines of an indented table with right-aligned columns."""
    return [f"  {line}" for line in text_table(rows, left=())]
