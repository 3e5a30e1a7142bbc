"""Draw the figures of our table above the figures of a paper's table."""

import pathlib
import statistics
from collections.abc import Mapping, Sequence

Rows = Mapping[str, Mapping[str, Sequence[float]]]


def draw(ours: Rows, paper: Mapping[str, Mapping[str, float]], file: pathlib.Path) -> None:
    """Draw a panel for each column, and in it a line for each row: our seeds and their mean, or the paper's figure.

    Args:
        ours: row -> column -> a value per seed; all rows have equal columns.
        paper: row -> column -> the published value. A table with a single row is not drawn.
        file: path of the PNG file to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    published: Rows = {row: {f"paper: {name}": [x] for name, x in figures.items()} for row, figures in paper.items()}
    both = [rows for rows in (ours, published) if len(rows) > 1]  # a single row is not worth a picture
    if not both:
        return
    width = max(len(next(iter(rows.values()))) for rows in both)
    height = len(both) + 0.3 * sum(map(len, both))
    figure, panels = pyplot.subplots(
        len(both), width, figsize=(3 + 1.7 * width, height), layout="constrained", squeeze=False
    )
    for rows, line in zip(both, panels, strict=True):
        names = list(next(iter(rows.values())))
        for panel in line[len(names) :]:
            panel.set_visible(False)
        for name, panel in zip(names, line, strict=False):
            for height_of_row, columns in enumerate(rows.values()):
                panel.plot(columns[name], [height_of_row] * len(columns[name]), "o", color="#0072b2", alpha=0.5)
                panel.plot([statistics.mean(columns[name])], [height_of_row], "|", color="black", markersize=14)
            panel.set_title(name, fontsize=9)
            panel.set_yticks(range(len(rows)), list(rows) if panel is line[0] else [""] * len(rows), fontsize=8)
            panel.set_ylim(len(rows) - 0.5, -0.5)
            panel.margins(x=0.2)
            panel.grid(alpha=0.3)
            panel.tick_params(axis="x", labelsize=8)
    figure.savefig(file, dpi=90)
    pyplot.close(figure)
