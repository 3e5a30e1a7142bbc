"""Table and picture of recipe_ablation.py, made from the existing results."""

import fnmatch
import json
import pathlib
import statistics
from collections.abc import Sequence

from recipe_rows import ENDS, MODES, ROWS, Values


def write_table(output: pathlib.Path) -> str:
    """Write table.md and the picture from all results; return the table."""
    results = [json.loads(path.read_text()) for path in sorted((output / "results").glob("*.json"))]
    by_row: dict[tuple[str, str], list[Values]] = {}
    for result in results:
        row, mode, _ = result["job"]
        by_row.setdefault((mode, row), []).append(result)
    lines = ["Losses in nats per masked token, 15 % masks; the mean over seeds, ± their standard deviation.", ""]
    for mode in MODES:
        rows = {row: by_row[mode, row] for row in ROWS if (mode, row) in by_row}
        if rows:
            lines += [f"At equal {mode}:", "", *table(rows), ""]
            draw(rows, mode, output)
    text = "\n".join(lines)
    output.mkdir(parents=True, exist_ok=True)
    (output / "table.md").write_text(text, encoding="utf-8")
    return text


COLUMNS = (
    "recipe | seeds | steps | M tokens | seconds | tuned on | below entropy | accuracy | reported | below entropy "
    "| plateau left after M tokens"
)


def table(rows: dict[str, list[Values]]) -> list[str]:
    """Return the lines of one table."""
    names = COLUMNS.split(" | ")
    lines = [f"| {COLUMNS} |", f"|{' --- |' * len(names)}"]
    for row, runs in rows.items():
        ends = [run["curve"][-1] for run in runs]
        far = [run["reported"] for run in runs if run["reported"]]
        left = [run["left_plateau_at"] for run in runs]
        cells = [
            row,
            str(len(runs)),
            f"{runs[0]['steps']:,}",
            f"{runs[0]['tokens'] / 1e6:.2f}",
            f"{statistics.mean(run['seconds'] for run in runs):.0f}",
            spread([end["loss"] for end in ends]),
            f"{statistics.mean(run['unigram_loss'] - run['curve'][-1]['loss'] for run in runs):.2f}",
            f"{statistics.mean(end['accuracy'] for end in ends):.1%}",
            spread([run["loss"] for run in far]) if far else "",
            f"{statistics.mean(run['unigram_loss'] - run['loss'] for run in far):.2f}" if far else "",
            "never" if None in left else f"{statistics.mean(left) / 1e6:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean and standard deviation."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


PANELS = {
    "from BERT's recipe to the modern recipe, change by change": "+*",
    "BERT's recipe with one change": "bert with *",
    "the modern recipe with one change": "modern?*",
}


def draw(rows: dict[str, list[Values]], mode: str, output: pathlib.Path) -> None:
    """Draw the held-out loss minus the unigram loss of its vocabulary, over tokens or seconds; a line per seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colors = pyplot.get_cmap("turbo")
    over, unit, words = {
        "tokens": ("tokens", 1e6, "million training tokens"),
        "time": ("seconds", 1.0, "seconds of training steps"),
    }[mode]
    drawn = {title: pattern for title, pattern in PANELS.items() if fnmatch.filter(rows, pattern)}
    drawn = drawn or {"the two ends": "+*"}
    figure, panels = pyplot.subplots(1, len(drawn), figsize=(5 * len(drawn), 6), sharey=True, squeeze=False)
    for (title, pattern), panel in zip(drawn.items(), panels[0], strict=True):
        changed = fnmatch.filter(rows, pattern)
        for row in [row for row in rows if row in ENDS or row in changed]:
            color = "black" if row in ENDS else colors(changed.index(row) / max(1, len(changed) - 1))
            for seed, run in enumerate(rows[row]):
                panel.plot(
                    [point[over] / unit for point in run["curve"]],
                    [point["loss"] - run["unigram_loss"] for point in run["curve"]],
                    color=color,
                    linestyle=":" if row == "bert" else "-",
                    linewidth=1.5,
                    label=row if seed == 0 else None,
                )
        panel.axhline(0, color="gray", linestyle="--", linewidth=1)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel(words)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=7)
    panels[0, 0].set_ylabel("held-out masked-token loss minus unigram loss (nats)")
    figure.tight_layout()
    for ending in ("png", "svg"):
        figure.savefig(output / f"curves_{mode}.{ending}", dpi=80)
    pyplot.close(figure)
