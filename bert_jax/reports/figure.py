"""A matplotlib figure that is saved when it is complete, for commands that make pictures."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.errors import UserError, needs_packages, writing
from bert_jax.files import new_file


class FigureAndAxes(NamedTuple):
    """A figure of matplotlib, and its axes `[rows, columns]`."""

    figure: Any
    axes: Any


@contextlib.contextmanager
def saved_figure(
    output: str | os.PathLike[str], command: str, grid: tuple[int, int], size: tuple[float, float], dpi: int
) -> Iterator[FigureAndAxes]:
    """Yield a figure and its axes `[rows, columns]`; save the figure when the `with` block ends.

    Args:
        output: .png, .svg or .pdf file to create; its directory must exist.
        command: the verb of bert-jax that draws the figure, for messages.
        grid: number of rows and number of columns of axes.
        size: width and height in inches.
        dpi: pixels per inch of a .png file.

    Raises:
        UserError: matplotlib is not installed, or `output` cannot be written.
    """
    with needs_packages(command, "matplotlib"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(*grid, figsize=size, squeeze=False, layout="constrained")
    try:
        yield FigureAndAxes(figure, axes)
        with writing(output, "choose another --output"), new_file(output, binary=True) as file:
            figure.savefig(file, format=os.path.splitext(output)[1][1:] or "png", dpi=dpi)
    except ValueError as error:  # an unknown suffix
        raise UserError(f"{output}: cannot be written ({error})") from error
    finally:
        pyplot.close(figure)
