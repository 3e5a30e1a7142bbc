"""Repeat the ablations of BERT's paper (Devlin et al. 2019) at a small size: ten minutes per row and seed on two cores.

    python benchmarks/paper_tables.py tasks --corpus CORPUS --data DATA --output tables/
    python benchmarks/paper_tables.py masking --corpus CORPUS --data DATA --output tables/ --seeds 1 --only '80*'
    python benchmarks/paper_tables.py masking --output tables/ --table

For every row and seed, a model is pretrained, and fine-tuned on three tasks of pretraining_gain.py. The result is a
JSON file, named after a hash of the settings, so tables share the results of equal rows. A stopped command resumes
within the row. Prints the mean and standard deviation over the seeds, and below them the paper's figures of BERT base
on the paper's tasks; NAME.png shows our figures and the paper's figures. `--config.KEY=VALUE` changes a field in all
rows. The paper's table 7, feature-based tagging, is in feature_tagging.py. `objectives` compares objectives of later
papers at equal FLOPs.
"""

import argparse
import fnmatch
import hashlib
import json
import pathlib
import sys
from typing import Any, NamedTuple

from pretraining_gain import SPLITS, TRIALS, finetuned
from recipe_rows import BERT, CHANGES, Values, config_of, parsed
from recipe_table import spread
from same_inputs import check_inputs
from table_picture import draw

from bert_jax.corpus.mixture import open_mixture

# The modern recipe of recipe_ablation.py with a constant masking rate, so that rows differ only by their own changes.
# Pooling is the mean over all tokens, because the first token of a left-to-right model attends only to itself.
BASE: Values = {
    **BERT,
    **{key: value for name in ("pre_norm", "rotary", "neighbors", "muon") for key, value in CHANGES[name].items()},
    "model.pooling": "mean",
    "evaluate.every": 1_200,
}
TASKS = ("qnli", "wnut17", "upos")
LEFT_TO_RIGHT: Values = {"objective": "left_to_right", "model.causal": True}
TYPES: Values = {"model.num_token_types": 2}
# With a generator half as wide, a step has 1.27 times the FLOPs of masked tokens, as counted by the objective.
REPLACED: Values = {"objective": "replaced_tokens", "replaced_tokens.generator_size": 0.5, "train.steps": 948}
FIRST = "first"  # not a key of a config: the changes of an earlier run, whose last weights are the initial weights
# With a generator an eighth as wide, a step has 1.04 times the FLOPs: 600 steps of masked tokens and 576 of these steps
# have the FLOPs of 1,200 steps of masked tokens.
REPLACED_LATER: Values = REPLACED | {
    "replaced_tokens.generator_size": 0.125,
    "train.steps": 576,
    FIRST: {"train.steps": 600},
}

# 45 M tokens, about an hour on two cores. Replaced tokens have equal FLOPs, and ELECTRA's masks and generator size.
HOUR: Values = {"train.steps": 22_000, "evaluate.every": 2_000, "checkpoint.every": 500}
REPLACED_HOUR: Values = {
    **HOUR,
    **REPLACED,
    "replaced_tokens.generator_size": 0.25,
    "data.mask_token_fraction": 0.85,
    "data.random_token_fraction": 0.0,
    "train.steps": 20_120,
}


class Table(NamedTuple):
    """Table of the paper: the config changes of each of our rows (`task.`: in fine-tuning), and the paper's rows."""

    question: str
    rows: dict[str, Values]
    columns: tuple[str, ...]
    published: dict[str, tuple[float, ...]]
    source: str = "The paper's, BERT base"


def mix(mask: float, random: float) -> Values:
    """Return the config fields of the fractions of [MASK] and random tokens; other predicted tokens are kept."""
    return {"data.mask_token_fraction": mask, "data.random_token_fraction": random}


def size(layers: int, width: int) -> Values:
    """Return the config fields of a size, with heads of 64 features as in BERT base."""
    sizes = {"num_layers": layers, "hidden_size": width, "num_heads": width // 64, "mlp_size": 4 * width}
    return {f"model.{name}": value for name, value in sizes.items()}


TABLES: dict[str, Table] = {
    "tasks": Table(
        "Worth of the pretraining tasks (table 5)",
        {
            "masked tokens and next sentences": TYPES | {"data.sentence_pairs": "next_sentence"},
            "no next sentences": {},
            "left to right, no next sentences": LEFT_TO_RIGHT,
            "+ BiLSTM": LEFT_TO_RIGHT | {"task.bilstm": True},
        },
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD F1"),
        {
            "BERT base": (84.4, 88.4, 86.7, 92.7, 88.5),
            "no next sentences": (83.9, 84.9, 86.5, 92.6, 87.9),
            "left to right, no next sentences": (82.1, 84.3, 77.5, 92.1, 77.8),
            "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
        },
    ),
    "size": Table(
        "Worth of size (table 6)",
        {f"{layers} x {width}": size(layers, width) for layers, width in ((2, 64), (2, 128), (4, 128), (4, 192))},
        ("perplexity", "MNLI-m", "MRPC", "SST-2"),
        {
            "3 x 768": (5.84, 77.9, 79.8, 88.4),
            "6 x 768": (4.68, 81.9, 84.8, 91.3),
            "12 x 768": (3.99, 84.4, 86.7, 92.9),
            "24 x 1024": (3.23, 86.6, 87.8, 93.7),
        },
    ),
    "masking": Table(
        "Replacements of predicted tokens: [MASK], kept, random, % (table 8)",
        {
            "80, 10, 10": {},
            "100, 0, 0": mix(1.0, 0.0),
            "80, 0, 20": mix(0.8, 0.2),
            "80, 20, 0": mix(0.8, 0.0),
            "0, 20, 80": mix(0.0, 0.8),
            "0, 0, 100": mix(0.0, 1.0),
        },
        ("MNLI", "NER", "NER on features"),
        {
            "80, 10, 10": (84.2, 95.4, 94.9),
            "100, 0, 0": (84.3, 94.9, 94.0),
            "80, 0, 20": (84.1, 95.2, 94.6),
            "80, 20, 0": (84.4, 95.2, 94.7),
            "0, 20, 80": (83.7, 94.8, 94.6),
            "0, 0, 100": (83.6, 94.9, 94.6),
        },
    ),
    "steps": Table(
        "Worth of more steps (figure 5)",
        {
            **{f"masked tokens, {steps:,} steps": {"train.steps": steps} for steps in (300, 600, 1_200)},
            **{
                f"left to right, {steps:,} steps": LEFT_TO_RIGHT | {"train.steps": steps} for steps in (300, 600, 1_200)
            },
        },
        ("MNLI-m, points gained",),
        {"masked tokens, 1,000,000 steps over 500,000": (1.0,)},
    ),
    "objectives": Table(
        "Worth of the objective at equal FLOPs",
        {
            "masked tokens": {},
            "replaced tokens": REPLACED,
            "masked tokens, then replaced tokens": REPLACED_LATER,
            "masked tokens and sentence order": TYPES | {"data.sentence_pairs": "sentence_order"},
        },
        ("average of tasks",),
        {
            "BERT small": (75.1,),
            "ELECTRA small": (79.9,),
            "ALBERT base, masked tokens": (79.0,),
            "and next sentences": (79.2,),
            "and sentence order": (80.1,),
        },
        "Published: GLUE (Clark et al. 2020, table 1) and five tasks (Lan et al. 2020, table 5)",
    ),
    "hour": Table(
        "Worth of replaced tokens after an hour on two cores, at equal FLOPs",
        {"masked tokens": HOUR, "replaced tokens": REPLACED_HOUR},
        ("average of tasks",),
        {"BERT small": (75.1,), "ELECTRA small": (79.9,)},
        "Published: GLUE (Clark et al. 2020, table 1)",
    ),
}


def main() -> None:
    """Train the missing rows, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--corpus", help="a corpus of `bert-jax prepare` with held-out documents")
    parser.add_argument("--data", type=pathlib.Path, help="the whole data sets of tests/samples/README.md")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="rows")
    parser.add_argument("--table", action="store_true", help="only print the table of the results there are")
    args, overrides = parser.parse_known_args()
    table, changes, output = TABLES[args.name], parsed(overrides), args.output
    if not args.table:
        if not (args.corpus and args.data):
            parser.error("give --corpus and --data, or --table")
        check_inputs(output, corpus=open_mixture(args.corpus).fingerprint, data=args.data.resolve())
        for seed in range(args.seeds):
            for row in fnmatch.filter(table.rows, args.only):
                print(f"{row}, seed {seed}", file=sys.stderr, flush=True)
                train(BASE | table.rows[row] | changes, seed, args.corpus, args.data, output)
    results = results_of(table, changes, output)
    if not results:
        parser.error(f"{output}: no results of this table; leave out --table to train its rows")
    paper = {row: dict(zip(table.columns, figures, strict=True)) for row, figures in table.published.items()}
    draw({row: columns_of(runs) for row, runs in results.items()}, paper, output / f"{args.name}.png")
    print(report(table, results))


def result_file(values: Values, seed: int, output: pathlib.Path) -> pathlib.Path:
    """Return the path of the result of a row and seed, which is named by a hash of the settings."""
    name = hashlib.sha256(json.dumps(values | {"seed": seed}, sort_keys=True).encode()).hexdigest()[:12]
    return output / "results" / f"{name}.json"


def train(values: Values, seed: int, corpus: str, data: pathlib.Path, output: pathlib.Path) -> None:
    """Pretrain and fine-tune with one seed, and write the scores, unless the result exists."""
    file = result_file(values, seed, output)
    if file.exists():
        return
    pretraining = {key: value for key, value in values.items() if not key.startswith("task.")}
    task = {key: value for key, value in values.items() if key not in pretraining}
    from bert_jax.training.metrics import read_metrics

    workdir = pretrained(pretraining, seed, corpus, output)
    last = [line for line in read_metrics(workdir / "metrics.jsonl") if line["split"] == "heldout"][-1]
    scores = {}
    for trial in (candidate for name in TASKS for candidate in TRIALS if candidate.name == name):
        overrides, _ = SPLITS[trial.name](data, output / "data" / trial.name)
        task_workdir = output / "tasks" / file.stem / trial.name
        task_scores = finetuned(trial, overrides | task, str(workdir), task_workdir, 1, seed)
        scores[trial.name] = 100 * task_scores[trial.metric]["mean"]
    result = {"seed": seed, "values": values, "heldout": last, "scores": scores}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def pretrained(values: Values, seed: int, corpus: str, output: pathlib.Path) -> pathlib.Path:
    """Pretrain with one seed, from the weights of an earlier run if the row has `FIRST`; return the work directory."""
    from bert_jax.api import pretrain

    workdir = output / "runs" / result_file(values, seed, output).stem
    settings = {key: value for key, value in values.items() if key != FIRST}
    if FIRST in values:
        settings["init_from"] = str(pretrained(BASE | values[FIRST], seed, corpus, output))
    if not pretrain(config_of(settings | {"seed": seed}, corpus), workdir):
        raise SystemExit(1)
    return workdir


def results_of(table: Table, changes: Values, output: pathlib.Path) -> dict[str, list[Any]]:
    """Return the existing results of each row, of at most ten seeds."""
    found = {}
    for row, values in table.rows.items():
        files = [result_file(BASE | values | changes, seed, output) for seed in range(10)]
        found[row] = [json.loads(file.read_text()) for file in files if file.exists()]
    return {row: runs for row, runs in found.items() if runs}


def columns_of(runs: list[Any]) -> dict[str, list[float]]:
    """Return the columns of a row; each column has a number per seed."""
    losses = [run["heldout"].get("mlm_loss", run["heldout"]["loss"]) for run in runs]
    return {"held-out loss": losses} | {task: [run["scores"][task] for run in runs] for task in TASKS}


def report(table: Table, results: dict[str, list[Any]]) -> str:
    """Return a Markdown table of our rows, and a table of the paper's rows."""
    words = "Held-out loss of masked or next tokens in nats, scores in %; mean ± standard deviation over the seeds."
    lines = [f"{table.question}. {words}", ""]
    lines += ["| row | seeds | held-out loss | " + " | ".join(TASKS) + " |", "|" + " --- |" * (3 + len(TASKS))]
    for row, runs in results.items():
        cells = [spread(values, 1 if name in TASKS else 3) for name, values in columns_of(runs).items()]
        lines.append(f"| {row} | {len(runs)} | {' | '.join(cells)} |")
    lines += ["", f"{table.source}:", ""]
    lines += ["| row | " + " | ".join(table.columns) + " |", "|" + " --- |" * (1 + len(table.columns))]
    lines += [f"| {row} | {' | '.join(f'{x:g}' for x in figures)} |" for row, figures in table.published.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    from bert_jax.errors import UserError

    try:
        main()
    except UserError as error:
        sys.exit(str(error))
