"""What each choice of the recipe is worth: BERT's recipe, one change at a time, at equal tokens and at equal time.

    python benchmarks/recipe_ablation.py --text 'books/*.txt' --report 'others/*.txt' --output ablation/
    python benchmarks/recipe_ablation.py --corpus CORPUS --report OTHER --output ablation/ --only 'bert' '+*'
    python benchmarks/recipe_ablation.py --output ablation/ --table

Every run is a process of its own and leaves one JSON file, so that the ablation can be made in pieces, in any order,
and resumed; `--list` prints the rows. The table (table.md) and the picture (curves.png, curves.svg) are written again
after each run. `--config.KEY=VALUE` changes a field in all rows.

Equal time: as many steps as fit in the time that the steps of `bert` took, at the speed of the row's run at equal
tokens; with --time_of by the speeds on another machine. Rows `bert` and `modern` are run with `--seeds` seeds, the
others with one.

Two splits of the text are kept apart. Recipes were tuned on the held-out documents of the corpus (column "tuned on");
the reported loss is of documents that nothing was chosen by (--report): text, or with --corpus another corpus with the
same tokenizer. Losses of rows with another vocabulary are of other tokens: compare
them by their distance to the unigram entropy, with care, or by `bert-jax score`.
"""

import argparse
import ast
import fnmatch
import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

HELDOUT = 0.05  # of the documents is tuned on
ENDS = ("bert", "modern")
MODES = ("tokens", "time")
Values = dict[str, Any]  # flat keys of a config
MASKS = "masks"  # not a key: masking rates at the beginning and the end of the run, linear in between

# BERT's recipe (Devlin et al. 2019) at a size that two CPU cores train in minutes. The published learning rate is for
# 256 sequences a step and a million steps; next sentences are left out, as their loss is not compared.
BERT: Values = {
    "model.family": "research",  # transformers has no model for most rows
    "model.num_layers": 4,
    "model.hidden_size": 128,
    "model.num_heads": 2,
    "model.mlp_size": 512,
    "model.max_positions": 128,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
    "data.sentence_pairs": "full_sentences",
    "train.steps": 1_200,
    "train.batch_size": 16,
    "train.log_every": 20,
    "train.phases": [{"seq_len": 128}],
    "optimizer.peak_learning_rate": 2e-3,
    "optimizer.warmup_fraction": 0.05,
    "optimizer.schedule": "linear",
    "evaluate.every": 100,
    "evaluate.batch_size": 64,
    "evaluate.num_sequences": 1_000,
    "checkpoint.every": 200,
    "checkpoint.keep": 1,
}
# The changes that lead from BERT's recipe to the modern one, in this order.
CHANGES: dict[str, Values] = {
    "pre_norm": {"model.norm_position": "pre", "model.final_norm": True},
    "rotary": {"model.positions": "rotary"},
    "gated": {"model.mlp": "gated", "model.mlp_size": 352},
    "no_biases": {
        "model.attention_bias": False,
        "model.mlp_bias": False,
        "model.norm_bias": False,
        "model.head_bias": False,
    },
    "neighbors": {"model.initialization": "neighbors", "model.initializer_range": 0.08},
    "muon": {"optimizer.name": "muon", "optimizer.muon_learning_rate": 0.02},
    "masks_40_to_15": {MASKS: (0.4, 0.15)},
    "short_first": {
        "train.phases": [
            {"seq_len": 64, "fraction": 0.8, "batch_size": 32},
            {"seq_len": 128, "fraction": 0.2, "batch_size": 16},
        ]
    },
}


class Row(NamedTuple):
    """A row of the ablation: the names of its changes, and the size of its vocabulary relative to the others'."""

    changes: tuple[str, ...]
    vocabulary: float = 1.0


ALL = tuple(CHANGES)
ROWS: dict[str, Row] = {
    "bert": Row(()),
    **{f"+{name}": Row(ALL[: number + 1]) for number, name in enumerate(ALL[:-1])},
    "modern": Row(ALL),
    **{f"bert with {name}": Row((name,)) for name in ALL[1:]},
    **{f"modern without {name}": Row(tuple(one for one in ALL if one != name)) for name in ALL[:-1]},
    "modern, half the vocabulary": Row(ALL, 0.5),
    "modern, twice the vocabulary": Row(ALL, 2.0),
}


class Job(NamedTuple):
    """One run: a row, at equal tokens or time, with a seed."""

    row: str
    mode: str
    seed: int

    def file(self, output: pathlib.Path) -> pathlib.Path:
        """The result of the run."""
        name = "".join(c if c.isalnum() else "_" for c in self.row.replace("+", "to "))
        return output / "results" / f"{name}-{self.mode}-{self.seed}.json"


def main() -> None:
    """Run what is asked for and not yet there, then write table and picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--text", nargs="+", help="text, as `bert-jax prepare --input`; makes a corpus per vocabulary")
    source.add_argument("--corpus", help="a prepared corpus; rows with another vocabulary are left out")
    parser.add_argument("--vocabulary", type=int, default=8_192, help="with --text: tokens in the vocabulary")
    parser.add_argument("--report", nargs="+", help="other text to report on; with --corpus: one other corpus")
    parser.add_argument(
        "--time_of", type=pathlib.Path, metavar="OUTPUT", help="equal time by the speeds of these runs, of any length"
    )
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="rows, such as bert '+*'")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the ends")
    parser.add_argument("--list", action="store_true", help="print the rows and what each changes")
    parser.add_argument("--table", action="store_true", help="only write table and picture from the results there are")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args, overrides = parser.parse_known_args()
    if args.run:
        run(json.loads(args.run))
        return
    chosen = [name for name in ROWS if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.only)]
    if args.list or not chosen:
        print("\n".join(f"{name}: {', '.join(row.changes) or 'nothing'}" for name, row in ROWS.items()))
        return
    if not args.table:
        if not (args.text or args.corpus):
            parser.error("give --text or --corpus")
        if args.text and not args.report:
            parser.error("give --report, other text than --text")
        corpora = Corpora(args.output, args.text, args.vocabulary, args.corpus, args.report)
        for job in jobs(chosen, args.modes, args.seeds):
            carry_out(job, corpora, args.output, parsed(overrides), args.time_of or args.output)
            write_table(args.output)
    print(write_table(args.output))


def jobs(rows: Sequence[str], modes: Sequence[str], seeds: int) -> Iterator[Job]:
    """Yield the runs, all of the first mode first; a run at equal time needs the one at equal tokens."""
    for mode in modes:
        for seed in range(seeds):
            for row in rows:
                if seed == 0 or row in ENDS:
                    yield Job(row, mode, seed)


def parsed(overrides: Sequence[str]) -> Values:
    """Return `--config.KEY=VALUE` words as values."""
    values: Values = {}
    for one in overrides:
        key, equals, text = one.removeprefix("--config.").partition("=")
        if not (one.startswith("--config.") and equals):
            raise SystemExit(f"{one}: write --config.KEY=VALUE")
        try:
            values[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[key] = text
    return values


class Corpora:
    """Where the corpora are, by vocabulary; those of `text` are made when they are first asked for."""

    def __init__(
        self,
        output: pathlib.Path,
        text: Sequence[str] | None,
        vocabulary: int,
        corpus: str | None,
        report: Sequence[str] | None,
    ) -> None:
        self.output, self.text, self.vocabulary = output / "corpora", text, vocabulary
        self.corpus, self.report = corpus, report

    def of(self, relative: float) -> tuple[str, str | None] | None:
        """Return (corpus, corpus to report on) of a relative size of the vocabulary; None where there is none."""
        if self.corpus:
            return (self.corpus, self.report[0] if self.report else None) if relative == 1.0 else None
        vocabulary = round(relative * self.vocabulary)
        place = self.output / str(vocabulary)
        if not (place / "report" / "manifest.json").exists():
            self._make(place, vocabulary)
        return str(place / "corpus"), str(place / "report")

    def _make(self, place: pathlib.Path, vocabulary: int) -> None:
        from bert_jax.data.preparation.prepare import prepare
        from bert_jax.data.tokenizer.training.train import train_tokenizer

        assert self.text
        assert self.report
        if not (place / "tokenizer").exists():
            train_tokenizer([self.text], vocabulary, str(place / "tokenizer"))
        for name, text, fraction in (("corpus", self.text, HELDOUT), ("report", self.report, 0.0)):
            if not (place / name / "manifest.json").exists():
                prepare(text, place / "tokenizer", place / name, heldout_fraction=fraction)


def carry_out(job: Job, corpora: Corpora, output: pathlib.Path, overrides: Values, time_of: pathlib.Path) -> None:
    """Run a job in a process of its own, unless its result is there."""
    row, file = ROWS[job.row], job.file(output)
    places = corpora.of(row.vocabulary)
    if places is None:
        print(f"left out: '{job.row}' needs another vocabulary, so --text", flush=True)
        return
    values = BERT.copy()
    for name in row.changes:
        values |= CHANGES[name]
    values |= overrides | {"seed": job.seed}
    if job.mode == "time":
        values["train.steps"] = steps_in_equal_time(job, values["train.steps"], time_of)
    spec = {"job": job, "values": values, "corpus": places[0], "report": places[1], "output": str(file)}
    if file.exists():
        before = json.loads(file.read_text())["values"]
        # The length of a run at equal time follows from measured speeds.
        differs = [k for k in before.keys() | values.keys() if before.get(k) != values.get(k)]
        if differs and not (job.mode == "time" and differs == ["train.steps"]):
            raise SystemExit(f"{file} was made with other settings ({', '.join(differs)}); choose another --output")
        return
    print(f"{job.row}, equal {job.mode}, seed {job.seed}", flush=True)
    command = [sys.executable, __file__, "--output", str(output), "--run", json.dumps(spec)]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"{job.row}, equal {job.mode}, seed {job.seed} did not finish; the same command resumes")


def steps_in_equal_time(job: Job, steps: int, output: pathlib.Path) -> int:
    """Return the steps of a row that take the time of `steps` of `bert`, by the runs at equal tokens in `output`."""
    found = []
    for row in ("bert", job.row):
        file = Job(row, "tokens", 0).file(output)
        if not file.exists():
            raise SystemExit(f"equal time needs {file}: run '{row}' at equal tokens first (--only, --modes tokens)")
        found.append(json.loads(file.read_text()))
    bert, own = (one["seconds"] / one["steps"] for one in found)
    return max(1, round(bert / own * steps))


def run(spec: Values) -> None:
    """Train one config in this process, evaluate it, and write its result."""
    from bert_jax.config import PretrainConfig
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.reports.plateau import Plateau
    from bert_jax.runs.api import pretrain
    from bert_jax.training.metrics import read_metrics
    from bert_jax.training.schedules import plan_phases
    from bert_jax.training.workdir import read_run

    use_compilation_cache()
    output = pathlib.Path(spec["output"])
    workdir = output.parents[1] / "runs" / output.stem
    if not pretrain(config_of(spec["values"], spec["corpus"]), workdir):
        raise SystemExit(1)
    config, _ = read_run(workdir)
    assert isinstance(config, PretrainConfig)
    phases = plan_phases(config.train)
    lines = read_metrics(workdir / "metrics.jsonl")
    held = [line for line in lines if line["split"] == "heldout"]
    trained = [line for line in lines if line["split"] == "train"]
    plateau = Plateau(config, phases, held[-1]["unigram_entropy"])
    for line in lines:
        plateau.remarks(line)
    curve = [
        {
            "step": line["step"],
            "tokens": tokens_until(phases, line["step"]),
            "seconds": seconds_until(trained, phases, line["step"]),
            "loss": line["mlm_loss"],
            "accuracy": line["mlm_accuracy"],
        }
        for line in held
    ]
    result = {
        "job": spec["job"],
        "values": spec["values"],
        "steps": phases[-1].end,
        "tokens": curve[-1]["tokens"],
        "seconds": curve[-1]["seconds"],
        "unigram_entropy": held[-1]["unigram_entropy"],
        "left_plateau_at": plateau.left_at and tokens_until(phases, plateau.left_at),
        "curve": curve,
        "reported": reported(workdir, spec["report"]) if spec["report"] else None,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = output.with_suffix(".tmp")
    fresh.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    fresh.rename(output)


def config_of(values: Values, corpus: str) -> Any:
    """Return the config with flat values, as `PretrainConfig`."""
    from bert_jax.config import PretrainConfig, phases, pretrain_config, resolve

    made, values = pretrain_config(), values | {"data.corpus": corpus}
    masks = values.pop(MASKS, None)
    if masks:
        values["train.phases"] = with_masks(values["train.phases"], *masks)
    for key, value in values.items():
        *path, last = key.split(".")
        part = made
        for name in path:
            part = part[name]
        part[last] = phases(*value) if key == "train.phases" else value
    return resolve(PretrainConfig, made)


def with_masks(phases: Sequence[Values], begin: float, end: float) -> list[Values]:
    """Return phases with masking rates from `begin` to `end`, linear over the run."""
    found, done = [], 0.0
    for phase in phases:
        until = done + phase.get("fraction", 1.0)
        rates = [begin + (end - begin) * part for part in (done, until)]
        found.append(phase | {"mask_probability": rates[0], "mask_probability_end": rates[1]})
        done = until
    return found


def tokens_until(phases: Any, step: int) -> int:
    """Return the tokens of the steps up to `step`."""
    return sum(max(0, min(step, p.end) - p.begin) * p.batch_size * p.seq_len for p in phases)


def seconds_until(lines: Sequence[Values], phases: Any, step: int) -> float:
    """Return the seconds of the training steps up to `step`: a line has the speed since the line before it."""
    seconds, before = 0.0, 0
    for line in lines:
        if line["step"] <= step:
            tokens = tokens_until(phases, line["step"])
            seconds += (tokens - before) / line["tokens_per_second"]
            before = tokens
    return seconds


def reported(workdir: pathlib.Path, corpus: str) -> Values:
    """Return loss and accuracy at 15 % BERT masks over the documents of another corpus, and their unigram entropy."""
    from bert_jax.console import Console
    from bert_jax.runs.evaluate import evaluate

    found = evaluate(workdir, None, Console(silent=True), pathlib.Path(corpus))
    return {"loss": found["mlm_loss"], "accuracy": found["mlm_accuracy"], "unigram_entropy": found["unigram_entropy"]}


def write_table(output: pathlib.Path) -> str:
    """Write table.md and the picture from all results; return the table."""
    results = [json.loads(path.read_text()) for path in sorted((output / "results").glob("*.json"))]
    by_row: dict[tuple[str, str], list[Values]] = {}
    for one in results:
        row, mode, _ = one["job"]
        by_row.setdefault((mode, row), []).append(one)
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
        ends = [one["curve"][-1] for one in runs]
        far = [one["reported"] for one in runs if one["reported"]]
        left = [one["left_plateau_at"] for one in runs]
        cells = [
            row,
            str(len(runs)),
            f"{runs[0]['steps']:,}",
            f"{runs[0]['tokens'] / 1e6:.2f}",
            f"{statistics.mean(one['seconds'] for one in runs):.0f}",
            spread([end["loss"] for end in ends]),
            f"{statistics.mean(one['unigram_entropy'] - one['curve'][-1]['loss'] for one in runs):.2f}",
            f"{statistics.mean(end['accuracy'] for end in ends):.1%}",
            spread([one["loss"] for one in far]) if far else "",
            f"{statistics.mean(one['unigram_entropy'] - one['loss'] for one in far):.2f}" if far else "",
            "never" if None in left else f"{statistics.mean(left) / 1e6:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean and standard deviation."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


PANELS = {
    "from BERT's recipe to the modern one, change by change": "+*",
    "BERT's recipe with one change": "bert with *",
    "the modern recipe with one change": "modern?*",
}


def draw(rows: dict[str, list[Values]], mode: str, output: pathlib.Path) -> None:
    """Draw the held-out loss, from the unigram entropy of its vocabulary, over tokens or seconds; a line per seed."""
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
            for seed, one in enumerate(rows[row]):
                panel.plot(
                    [point[over] / unit for point in one["curve"]],
                    [point["loss"] - one["unigram_entropy"] for point in one["curve"]],
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
    panels[0, 0].set_ylabel("held-out masked-token loss minus unigram entropy (nats)")
    figure.tight_layout()
    for ending in ("png", "svg"):
        figure.savefig(output / f"curves_{mode}.{ending}", dpi=80)
    pyplot.close(figure)


if __name__ == "__main__":
    from bert_jax.errors import UserError

    try:
        main()
    except UserError as error:
        sys.exit(str(error))
