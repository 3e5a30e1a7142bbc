"""Learning curves of a run as a picture."""

import math
import pathlib
from collections.abc import Callable, Iterable

from bert_jax.errors import UserError, needs_packages
from bert_jax.training.metrics import WEIGHTED, Line, damaged_lines, read_metrics

# Panels: the losses and accuracies of whatever objective the run has, by the ending of their names, and these metrics.
MEASURES = {"_loss": "loss (nats)", "_accuracy": "accuracy"}
PANELS = {"learning_rate": "learning rate", "grad_norm": "gradient norm"}
MASKED_LOSS = "mlm_loss"  # the one that the unigram entropy is a line for
IN_WORDS = {"mlm": "masked-token", "nsp": "next-sentence", "sop": "sentence-order", "replaced": "replaced-token"}


def plot_run(workdir: pathlib.Path, output: pathlib.Path, say: Callable[[str], None] = lambda line: None) -> None:
    """Draw `metrics.jsonl` of `workdir` into `output` (.png, .pdf or .svg): training as lines, held-out as points.

    The unigram entropy of the text is a line among the losses of masked tokens. `say` is called with the number of
    damaged lines, if there are any.

    Raises:
        UserError: matplotlib is not installed, the run has no metrics yet, or `output` cannot be written.
    """
    with needs_packages("plot", "matplotlib"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    path = workdir / "metrics.jsonl"
    lines = read_metrics(path)
    if damaged := damaged_lines(path):
        say(f"{path}: damaged lines, left out: {len(damaged)}")
    splits = {split: [line for line in lines if line["split"] == split] for split in ("train", "heldout")}
    panels = panel_titles(dict.fromkeys(name for line in lines for name in line))
    if not splits["train"] or not panels:
        several = f"; give one of its trainings, {workdir / 'runs'}/*, or use `report`" * (workdir / "runs").is_dir()
        raise UserError(f"{workdir}: no metrics yet{several}")
    entropy = next((line["unigram_entropy"] for line in lines if "unigram_entropy" in line), None)
    columns = -(-len(panels) // 2)
    figure, axes = pyplot.subplots(2, columns, figsize=(1 + 4 * columns, 6.5), squeeze=False, layout="constrained")
    for panel in axes.T.flat[len(panels) :]:
        panel.set_axis_off()
    for panel, (name, title) in zip(axes.T.flat, panels.items(), strict=False):
        panel.plot(*_curve(splits["train"], name), linewidth=1, label="training")
        if any(name in line for line in splits["heldout"]):
            panel.plot(*_curve(splits["heldout"], name), "o-", markersize=4, label="held out")
        if name == MASKED_LOSS and entropy is not None:
            panel.axhline(entropy, color="gray", linestyle="--", linewidth=1, label="unigram entropy")
        if len(panel.lines) > 1:
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


def panel_titles(names: Iterable[str]) -> dict[str, str]:
    """Return the titles of the metrics that have a panel, by name: each loss with its accuracy, then `PANELS`."""
    names = list(names)
    titles: dict[str, str] = {}
    for prefix in dict.fromkeys(name.rpartition("_")[0] for name in names if name.endswith(tuple(MEASURES))):
        words = IN_WORDS.get(prefix, prefix.replace("_", " "))
        measures = MEASURES | ({"_loss": "loss (weighted)"} if f"{prefix}_loss" in WEIGHTED else {})
        titles |= {f"{prefix}{ending}": f"{words} {measure}" for ending, measure in measures.items()}
    return {name: title for name, title in (titles | PANELS).items() if name in names}


def _curve(lines: list[Line], name: str) -> tuple[list[int], list[float]]:
    """Steps and values; NaN, which matplotlib leaves out, where the run had no finite number."""
    chosen = [line for line in lines if name in line]
    return [line["step"] for line in chosen], [math.nan if line[name] is None else line[name] for line in chosen]
