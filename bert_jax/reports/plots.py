"""Learning curves of a run as a picture."""

import math
import pathlib

from bert_jax.errors import UserError
from bert_jax.training.metrics import Line, read_metrics

PANELS = {
    "masked-token loss (nats)": "mlm_loss",
    "masked-token accuracy": "mlm_accuracy",
    "next-sentence loss (nats)": "nsp_loss",
    "next-sentence accuracy": "nsp_accuracy",
    "sentence-order loss (nats)": "sop_loss",
    "sentence-order accuracy": "sop_accuracy",
    "learning rate": "learning_rate",
    "gradient norm": "grad_norm",
}


def plot(workdir: pathlib.Path, output: pathlib.Path) -> None:
    """Draw `metrics.jsonl` of `workdir` into `output` (.png, .pdf or .svg): training as lines, held-out as points.

    Raises UserError where matplotlib is not installed or the run has no metrics yet.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UserError("plot needs matplotlib: pip install 'bert-jax[demo]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = read_metrics(workdir / "metrics.jsonl")
    train = [line for line in lines if line["split"] == "train"]
    heldout = [line for line in lines if line["split"] == "heldout"]
    if not train:
        raise UserError(f"{workdir}: no metrics yet to plot")
    panels = {title: name for title, name in PANELS.items() if name in train[0]}  # as many as the objective has
    columns = -(-len(panels) // 2)
    figure, axes = pyplot.subplots(2, columns, figsize=(1 + 4 * columns, 6.5), squeeze=False, layout="constrained")
    for panel, (title, name) in zip(axes.T.flat, panels.items(), strict=True):
        panel.plot([x["step"] for x in train], _numbers(train, name), linewidth=1, label="training")
        if heldout and name in heldout[0]:
            panel.plot([x["step"] for x in heldout], _numbers(heldout, name), "o-", markersize=4, label="held out")
            panel.legend()
        panel.set_title(title)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    figure.suptitle(workdir.resolve().name)
    try:
        figure.savefig(output, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"{output}: cannot be written ({error})") from error
    finally:
        pyplot.close(figure)


def _numbers(lines: list[Line], name: str) -> list[float]:
    """NaN, which matplotlib leaves out, where the run had no finite number."""
    return [math.nan if line[name] is None else line[name] for line in lines]
