"""Measure each change from BERT's recipe to the modern recipe, one at a time, at equal tokens and at equal time.

    python benchmarks/recipe_ablation.py --text 'books/*.txt' --report 'others/*.txt' --output ablation/
    python benchmarks/recipe_ablation.py --corpus CORPUS --report OTHER --output ablation/ --only 'bert' '+*'
    python benchmarks/recipe_ablation.py --output ablation/ --table

Every run is a process, which writes one JSON file, so that the rows can be run in any order and over several commands.
`--list` prints the rows. The table (table.md) and the picture (curves.png, curves.svg) are written again
after each run. `--config.KEY=VALUE` changes a field in all rows.

At equal time, a row has as many steps as fit in the time that the steps of `bert` took. The speed of a row is taken
from its run at equal tokens; with --time_of, from runs on another machine. Rows `bert` and `modern` are run with
`--seeds` seeds, the other rows with one seed.

Two sets of documents are kept apart. Recipes were tuned on the held-out documents of the corpus (column "tuned on").
The reported loss is measured on the documents of --report, which influenced no choice. --report is a text or,
with --corpus, a corpus with an equal tokenizer. Rows with different vocabularies predict different tokens, so a direct
comparison of their losses means nothing. Compare such rows, with care, by the distance of the loss to the unigram loss,
or by `bert-jax score`.
"""

import argparse
import fnmatch
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from recipe_rows import BERT, CHANGES, ENDS, MODES, ROWS, Job, Values, config_of, parsed
from recipe_table import write_table

HELDOUT = 0.05  # of the documents is tuned on


def main() -> None:
    """Run the missing rows, then write the table and the picture."""
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
    parser.add_argument("--list", action="store_true", help="print the rows and their changes")
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
    """Yield the runs, mode by mode, because a run at equal time needs the run of the row at equal tokens."""
    for mode in modes:
        for seed in range(seeds):
            for row in rows:
                if seed == 0 or row in ENDS:
                    yield Job(row, mode, seed)


class Corpora:
    """Corpora by size of the vocabulary; a corpus of `text` is made when it is first requested."""

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
        """Return (corpus, corpus to report on) for a relative vocabulary size, or None if there is no such corpus."""
        if self.corpus:
            return (self.corpus, self.report[0] if self.report else None) if relative == 1.0 else None
        vocabulary = round(relative * self.vocabulary)
        directory = self.output / str(vocabulary)
        if not (directory / "report" / "manifest.json").exists():
            self._make(directory, vocabulary)
        return str(directory / "corpus"), str(directory / "report")

    def _make(self, directory: pathlib.Path, vocabulary: int) -> None:
        from bert_jax.corpus.build.prepare import prepare
        from bert_jax.tokenizer.train import train_tokenizer

        assert self.text
        assert self.report
        if not (directory / "tokenizer").exists():
            train_tokenizer([self.text], vocabulary, str(directory / "tokenizer"))
        for name, text, fraction in (("corpus", self.text, HELDOUT), ("report", self.report, 0.0)):
            if not (directory / name / "manifest.json").exists():
                prepare(text, directory / "tokenizer", directory / name, heldout_fraction=fraction)


def carry_out(job: Job, corpora: Corpora, output: pathlib.Path, overrides: Values, time_of: pathlib.Path) -> None:
    """Run a job in a new process, unless its result exists."""
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
    """Return how many steps of a row take as long as `steps` steps of `bert`; speeds are from the runs in `output`."""
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
    from bert_jax.api import pretrain
    from bert_jax.config import PretrainConfig
    from bert_jax.parallel.platform import use_compilation_cache
    from bert_jax.training.metrics import read_metrics
    from bert_jax.training.plateau import Plateau
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
    plateau = Plateau(config.train.steps, config.train.steps, ())
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
        "unigram_loss": held[-1]["unigram_loss"],
        "left_plateau_at": plateau.left_at and tokens_until(phases, plateau.left_at),
        "curve": curve,
        "reported": reported(workdir, spec["report"]) if spec["report"] else None,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = output.with_suffix(".tmp")
    fresh.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    fresh.rename(output)


def tokens_until(phases: Any, step: int) -> int:
    """Return the number of tokens of the steps up to `step`."""
    return sum(max(0, min(step, p.end) - p.begin) * p.batch_size * p.seq_len for p in phases)


def seconds_until(lines: Sequence[Values], phases: Any, step: int) -> float:
    """Return the seconds of the training steps up to `step`; each line has the speed since the last line."""
    seconds, before = 0.0, 0
    for line in lines:
        if line["step"] <= step:
            tokens = tokens_until(phases, line["step"])
            seconds += (tokens - before) / line["tokens_per_second"]
            before = tokens
    return seconds


def reported(workdir: pathlib.Path, corpus: str) -> Values:
    """Return loss and accuracy on another corpus, with 15 % of the tokens masked, and its unigram loss."""
    from bert_jax.console import Console
    from bert_jax.pretraining.evaluate import evaluate_checkpoint

    metrics = evaluate_checkpoint(workdir, None, Console(silent=True), corpus)
    return {
        "loss": metrics["mlm_loss"],
        "accuracy": metrics["mlm_accuracy"],
        "unigram_loss": metrics["unigram_loss"],
    }


if __name__ == "__main__":
    from bert_jax.errors import UserError

    try:
        main()
    except UserError as error:
        sys.exit(str(error))
