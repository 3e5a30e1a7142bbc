"""The figures that the page of a run shows first: loss, accuracy or score, tokens or steps, time, cost."""

from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.console import format_metric
from bert_jax.reports.html.markup import Html, element, join_html, table
from bert_jax.reports.run.cost import RunCost, format_duration, format_energy, format_grams
from bert_jax.reports.run.record import Run

UNKNOWN = "-"  # value of a tile without a figure
WHERE = {"heldout": "held-out", "train": "training"}  # split -> adjective for the split


class Tile(NamedTuple):
    """A figure of a run, with its name, its value, and a note on its reference value or its source."""

    name: str
    value: str
    note: str


def run_tiles(run: Run, cost: RunCost) -> list[Tile]:
    """Return the tiles of a run: the figures that its page shows first."""
    result = _pretraining_tiles(run, cost) if run.pretraining else _finetuning_tiles(run)
    speed = f"{cost.tokens_per_second:,.0f} tokens per second" if cost.tokens_per_second is not None else ""
    time = UNKNOWN if cost.seconds is None else format_duration(cost.seconds)
    return [*result, Tile("time", time, speed if cost.seconds is not None else "not recorded"), _cost_tile(cost)]


def tiles_html(tiles: Sequence[Tile]) -> Html:
    """Return an HTML element with tiles side by side."""
    cells = [
        element("div", element("dt", tile.name), element("dd", tile.value), element("dd", tile.note, class_="note"))
        for tile in tiles
    ]
    return element("dl", *cells, class_="tiles")


def tiles_table(tiles_by_run: Sequence[tuple[str, str, Sequence[Tile]]]) -> Html:
    """Return a table of several runs; `tiles_by_run` has the name, the health and the tiles of each run."""
    names = list(dict.fromkeys(tile.name for _, _, tiles in tiles_by_run for tile in tiles))
    rows = []
    for label, health, tiles in tiles_by_run:
        cells = {tile.name: join_html([tile.value, element("span", tile.note, class_="note")]) for tile in tiles}
        rows.append((label, health, *(cells.get(name, "") for name in names)))
    return table(("run", "health", *names), rows, "the runs")


def _pretraining_tiles(run: Run, cost: RunCost) -> list[Tile]:
    """Return the tiles of a pretraining run: loss (with the unigram loss), accuracy and number of tokens."""
    (training, *_), facts = run.trainings, run.pretraining
    assert facts is not None
    split = "heldout" if training.names("heldout") else "train"
    names = training.main_metrics(split)
    loss, reference = training.last(names.loss, split), training.last("unigram_loss", split)
    accuracy = training.last(names.accuracy, split)
    against = ""
    if names.accuracy and loss is not None and reference is not None:
        against = (
            f"{abs(reference - loss):.2f} {'below' if loss <= reference else 'above'} the unigram loss, {reference:.2f}"
        )
    total = facts.phases[-1].end
    steps = f"{training.last_step:,} of {total:,} steps" if training.last_step < total else f"all {total:,} steps"
    return [
        Tile(f"{WHERE[split]} loss", UNKNOWN if loss is None else f"{loss:.3f} nats", against),
        Tile(
            f"{WHERE[split]} accuracy",
            UNKNOWN if accuracy is None else f"{accuracy:.1%}",
            "not measured" if accuracy is None else f"of the {names.predicted}",
        ),
        Tile("tokens", _format_count(cost.tokens or 0), f"padding included; {steps}"),
    ]


def _format_count(count: int) -> str:
    """Return a number as it is written in English, such as "1.2 billion", "3.4 million" or "56,789"."""
    for size, word in ((1_000_000_000, "billion"), (1_000_000, "million")):
        if count >= size:
            return f"{count / size:,.1f} {word}"
    return f"{count:,}"


def _finetuning_tiles(run: Run) -> list[Tile]:
    """Return the tiles of a fine-tuning run: dev score, last training loss and steps."""
    name, value, note = "dev score", UNKNOWN, "the run has not ended"
    if results := run.results:
        name = results.metric.replace("_", " ")
        value, note = format_metric(results.metric, results.best["scores"][results.metric]), "best training, dev set"
        if results.num_seeds > 1:
            note = f"best of {len(results.trainings)}; over seeds {results.mean_and_deviation(results.metric)}"
    losses = [loss for training in run.trainings if (loss := training.last("loss", "train")) is not None]
    steps = sum(training.last_step for training in run.trainings)
    count = len(run.trainings)
    return [
        Tile(name, value, note),
        Tile(
            "training loss",
            f"{min(losses):.3f}" if losses else UNKNOWN,
            "at the end" if count == 1 else "least, at the end",
        ),
        Tile("steps", f"{steps:,}", "one training" if count == 1 else f"{count} trainings"),
    ]


def _cost_tile(cost: RunCost) -> Tile:
    """Return a tile with the CO2 of a run if it is known, else with the energy of the run."""
    if not cost.joules:
        return Tile("cost", UNKNOWN, "energy is not known; --watts gives the power")
    energy, source = format_energy(sum(cost.joules.values())), " and ".join(cost.joules)
    if cost.grams is not None:
        return Tile("cost", f"{format_grams(cost.grams)} CO2", f"{energy}, {source}")
    return Tile("cost", energy, f"energy, {source}")
