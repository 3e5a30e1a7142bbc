"""Sections on the labels of a fine-tuned classifier: scores, confusion, calibration and the worst errors."""

import pathlib
from typing import Any

from bert_jax import strict_json
from bert_jax.files import read_file
from bert_jax.reports.html.markup import (
    Html,
    collapsible,
    element,
    join_html,
    section,
    shortened,
    small_paragraph,
    table,
)
from bert_jax.reports.run.record import Run

LABELS_FILE = "labels.json"  # file of `finetune`: name of a set -> values of tasks/label_report.py
MAX_TEXT = 200  # characters of a text in the list of errors
MIN_CONFUSED = 0.1  # fraction of a gold label from which a count of the confusion matrix is colored
MIN_SUPPORT = 5  # examples of a label that are needed for a warning about its recall


def read_label_reports(path: pathlib.Path) -> dict[str, Any]:
    """Return the reports on the labels of each dev set; {} if the file of the reports is absent or damaged."""
    try:
        reports = strict_json.parse(read_file(path / LABELS_FILE, strict_json.MAX_TABLE_BYTES).decode())
        for report in filter(None, reports.values()):
            _label_report_html(report)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}
    return {name: report for name, report in reports.items() if report}


def label_section(run: Run) -> Html:
    """Return the section on the labels of a fine-tuning run; return an empty text if the run has no label reports."""
    reports = read_label_reports(run.path)
    parts = [
        join_html([element("h3", f"{name} set") if len(reports) > 1 else "", _label_report_html(report)])
        for name, report in reports.items()
    ]
    return section("Labels", *parts) if parts else Html("")


def check_labels_without_recall(run: Run) -> str:
    """Return a warning about labels of a dev set that the best model of a run never predicts correctly, or ""."""
    lost = [
        row["label"]
        for report in read_label_reports(run.path).values()
        for row in report["labels"]
        if row["support"] >= MIN_SUPPORT and row["recall"] == 0
    ]
    return f"the best model finds no example of the labels {', '.join(map(repr, lost))} in the dev set" if lost else ""


def _label_report_html(report: dict[str, Any]) -> Html:
    """Return the HTML tables of a report on labels."""
    head = ("label", "precision", "recall", "F1", "support", "predicted")
    rows = [
        (row["label"], *(f"{row[key]:.3f}" for key in ("precision", "recall", "f1")), row["support"], row["predicted"])
        for row in report["labels"]
    ]
    return join_html(
        [
            table(head, rows, "scores of each label"),
            _confusion_html(report),
            _calibration_html(report["calibration"]),
            _errors_html(report),
        ]
    )


def _confusion_html(report: dict[str, Any]) -> Html:
    """Return a table of the confusion matrix (rows: gold labels, columns: predicted labels); "" without a matrix."""
    if "confusion" not in report:
        return Html("")
    names = [row["label"] for row in report["labels"]]
    rows = [
        (name, *(_confusion_cell(count, sum(counts), row == column) for column, count in enumerate(counts)))
        for row, (name, counts) in enumerate(zip(names, report["confusion"], strict=True))
    ]
    matrix = table(("gold", *names), rows, "confusion matrix")
    return collapsible("Confusion matrix: rows are gold labels", matrix, open_=True)


def _confusion_cell(count: int, num_gold: int, is_right: bool) -> Html:
    """Return a cell with a count of the confusion matrix; the cell of a large count has a percentage and a color."""
    if count < MIN_CONFUSED * num_gold or not count:
        return element("td", count or "")
    return element("td", f"{count} ({count / num_gold:.0%})", class_="right" if is_right else "wrong")


def _calibration_html(calibration: dict[str, Any]) -> Html:
    """Return the expected calibration error and the bins of confidence as HTML."""
    rows = [(f"{mean:.3f}", f"{share:.3f}", f"{count:,}") for mean, share, count in calibration["bins"]]
    return join_html(
        [
            small_paragraph(
                f"Expected calibration error: {calibration['ece']:.3f}. A calibrated model is right as often as its "
                "probabilities say."
            ),
            collapsible("Calibration", table(("probability", "fraction right", "decisions"), rows, "calibration")),
        ]
    )


def _errors_html(report: dict[str, Any]) -> Html:
    """Return the table of the worst errors of a classifier; an empty text if there are no errors."""
    rows = [
        (
            error["id"],
            shortened(error["text"], MAX_TEXT),
            ", ".join(error["gold"]) or "none",
            ", ".join(error["predicted"]) or "none",
            f"{error['probability']:.3f}",
        )
        for error in report.get("errors", ())
    ]
    head = ("id", "text", "gold", "predicted", "probability of gold")
    return (
        collapsible("Worst errors", table(head, rows, "worst errors", class_="errors"), open_=True)
        if rows
        else Html("")
    )
