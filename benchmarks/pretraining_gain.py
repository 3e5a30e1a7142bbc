"""Measure the gain of pretraining: fine-tune a pretrained model, and its random initial weights, on small tasks.

    python benchmarks/pretraining_gain.py --model runs/mini --data DATA --output gain/
    python benchmarks/pretraining_gain.py --model runs/mini --data DATA --output gain/ --tasks qnli_tuning \\
        --config.optimizer.name=muon --config.optimizer.muon_learning_rate=6e-3
    python benchmarks/pretraining_gain.py --articles articles/ --data DATA

The training and dev examples of a task have no article or premise in common. WNUT-17, CODAH (fold 0) and parts of
speech are split as published. QNLI's development set is split by SQuAD article, MNLI's development set by premise, and
SQuAD 1.1 by whole articles. `qnli_tuning` splits the training examples of QNLI once more, to choose settings without
the dev set. Prints one row per task: the dev score of the best epoch, as mean and standard deviation over the seeds,
from pretrained and from random weights. `--config.KEY=VALUE` changes a field in all runs. `--articles` writes the text
of SQuAD's training articles, to pretrain on text that is similar to the text of QNLI; QNLI's examples are from other
articles.
"""

import argparse
import gzip
import json
import pathlib
import platform
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from recipe_rows import Values, parsed

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Trial(NamedTuple):
    """Task and its training settings; `values` are fields of the config."""

    name: str
    recipe: str
    metric: str
    values: Values


def _trial(title: str, recipe: str, metric: str, learning_rate: float = 3e-4, **task: Any) -> Trial:
    """Return a trial; `task` has the values of fields of `config.task`."""
    values = {f"task.{key}": value for key, value in ({"name": title, "dropout": 0.1} | task).items()}
    return Trial(
        title, recipe, metric, values | {"optimizer.peak_learning_rate": learning_rate, "train.batch_size": 16}
    )


TRIALS = (
    _trial("wnut17", "token_classification", "entity_f1", 1e-3, epochs=2),
    _trial(
        "upos", "token_classification", "token_accuracy", 1e-3, name="custom", kind="token_classification", epochs=2
    ),
    _trial("qnli", "glue", "accuracy", epochs=2),
    _trial("qnli_tuning", "glue", "accuracy", name="qnli", epochs=2),
    _trial("mnli", "glue", "accuracy", name="custom", kind="sequence_classification", epochs=1),
    _trial("codah", "multiple_choice", "accuracy", epochs=2),
    _trial("squad", "squad", "f1", name="squad1", epochs=1, max_seq_len=192, doc_stride=64),
)


def main() -> None:
    """Fine-tune every task from both initial weights, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--articles", type=pathlib.Path, metavar="DIR", help="write a file an article there, and end")
    parser.add_argument("--model", help="a pretrained work directory or an export")
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="the whole data sets of tests/samples/README.md"
    )
    parser.add_argument("--output", type=pathlib.Path, help="for splits, runs and table.md")
    parser.add_argument("--seeds", type=int, default=3)
    names = [trial.name for trial in TRIALS]
    parser.add_argument("--tasks", default=",".join(names), help=f"of {', '.join(names)}; all where not given")
    args, words = parser.parse_known_args()
    if args.articles:
        write_articles(args.data, args.articles)
        return
    if not args.model or not args.output:
        parser.error("--model and --output are needed")
    changes = parsed(words)
    splits = {name: SPLITS[name](args.data, args.output / "data" / name) for name in args.tasks.split(",")}
    lines = [
        " ".join([f"{args.seeds} seeds, JAX {jax.__version__}, {platform.machine()}", *words]),
        "",
        "| task | train / dev | metric | random weights | pretrained | gain | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for trial in TRIALS:
        if trial.name not in splits:
            continue
        data, sizes = splits[trial.name]
        began, scores = time.perf_counter(), []
        for start in ("random", "pretrained"):
            workdir = args.output / "runs" / f"{trial.name}_{start}"
            values = data | changes | {"task.random_weights": start == "random"}
            scores.append(finetuned(trial, values, args.model, workdir, args.seeds)[trial.metric])
        scale = 1.0 if trial.name == "squad" else 100.0
        (low, low_spread), (high, high_spread) = (
            (scale * score["mean"], scale * score["standard_deviation"]) for score in scores
        )
        lines.append(
            f"| {trial.name} | {sizes} | {trial.metric} "
            f"| {low:.1f} ± {low_spread:.1f} "
            f"| {high:.1f} ± {high_spread:.1f} | {high - low:+.1f} | {time.perf_counter() - began:.0f} |"
        )
        print(lines[-1], flush=True)
        (args.output / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def write_articles(data: pathlib.Path, output: pathlib.Path) -> None:
    """Write the paragraphs of each training article of SQuAD 1.1: 442 files, 13.9 million characters."""
    for number, article in enumerate(_json(data / "squad" / "train-v1.1.recon.json.gz")["data"]):
        _write(output / f"{number:03}.txt", ["\n\n".join(one["context"].strip() for one in article["paragraphs"])])


def finetuned(
    trial: Trial, values: Values, model: str, workdir: pathlib.Path, seeds: int, seed: int = 0
) -> dict[str, Any]:
    """Fine-tune with `seeds` seeds, each in a new process; return mean and standard deviation of every score."""
    values = trial.values | values | {"task.num_seeds": seeds, "init_from": pathlib.Path(model).absolute()}
    command = [sys.executable, "-m", "bert_jax", "finetune", "--json", "--config", trial.recipe]
    command += ["--workdir", str(workdir.absolute())]
    command += [f"--config.{key}={value}" for key, value in ({"seed": seed} | values).items()]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    mean_scores: dict[str, Any] = next(iter(json.loads(done.stdout.splitlines()[-1])["mean"].values()))
    return mean_scores


Split = tuple[Values, str]  # fields of the config, and "training examples / dev examples"


def wnut17(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Return WNUT-17, split as published."""
    return {"task.data": (data / "ner" / "wnut17").absolute()}, "3,394 / 1,009"


def upos(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Write parts of speech of English EWT (Universal Dependencies): train on its dev file, score its test file."""
    sizes = []
    for split, published in (("train", "dev"), ("dev", "test")):
        rows = [line.split("\t") for line in _lines(data / "ud" / f"en_ewt-ud-{published}.conllu.gz")]
        # A row is a word if its number is an integer: 3-4 is a contraction, and 8.1 is an elided word.
        words = [f"{row[1]}\t{row[3]}" if row[0].isdigit() else "" for row in rows if row[0].isdigit() or row == [""]]
        sizes.append(words.count("") + 1)
        _write(output / f"{split}.tsv", words)
    return _files(output), f"{sizes[0]:,} / {sizes[1]:,}"


def qnli(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Write QNLI's development set, split by the article of the sentence; every fifth article is held out."""
    return _qnli(data, output, (1, 2, 3, 4), (0,))


def qnli_tuning(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Write the training examples of `qnli`, split again; every fourth article is held out."""
    return _qnli(data, output, (2, 3, 4), (1,))


def _qnli(data: pathlib.Path, output: pathlib.Path, train: Sequence[int], dev: Sequence[int]) -> Split:
    """Write QNLI's development set, split by the number of the sentence's article modulo 5."""
    articles = _json(data / "squad" / "dev-v1.1.recon.json.gz")["data"]
    contexts = [" ".join(paragraph["context"] for paragraph in article["paragraphs"]) for article in articles]
    header, *rows = _lines(data / "glue" / "QNLI" / "dev.tsv.gz")
    groups = []
    for row in rows:
        sentence = row.split("\t")[2]
        groups.append(next((n % 5 for n, text in enumerate(contexts) if sentence in text), None))
    # The few sentences that no article has word for word are left out.
    sides = [[row for row, group in zip(rows, groups, strict=True) if group in side] for side in (train, dev)]
    for side, name in zip(sides, ("train.tsv", "dev.tsv"), strict=True):
        _write(output / name, [header, *side])
    return {"task.data": output.absolute()}, f"{len(sides[0]):,} / {len(sides[1]):,}"


def mnli(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Write MNLI's matched development set, split by premise: a fifth is held out, half of the set is trained on."""
    header, *rows = _lines(data / "glue" / "MNLI" / "dev_matched.hans.tsv.gz")
    part = [zlib.crc32(row.split("\t")[1].strip().encode()) % 10 for row in rows]
    train = [row for row, p in zip(rows, part, strict=True) if 2 <= p < 7]
    dev = [row for row, p in zip(rows, part, strict=True) if p < 2]
    _write(output / "train.tsv", [header, *train])
    _write(output / "dev.tsv", [header, *dev])
    columns = "format=tsv_plain,text=premise,text_pair=hypothesis,label=gold_label"
    return _files(output) | {"task.columns": columns}, f"{len(train):,} / {len(dev):,}"


def codah(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Write the first fold of CODAH, as its authors split it."""
    output.mkdir(parents=True, exist_ok=True)
    with tarfile.open(data / "multiple-choice" / "codah" / "cv_split-fold_0.tar.gz") as archive:
        archive.extractall(output, filter="data")
    return {"task.data": (output / "fold_0").absolute()}, "1,665 / 556"


def squad(data: pathlib.Path, output: pathlib.Path) -> Split:
    """Write the questions of whole articles: at least 1,200 of training articles, and 500 of development articles."""
    sizes = []
    for name, published, wanted in (("train-v1.1.json", "train", 1_200), ("dev-v1.1.json", "dev", 500)):
        published_set = _json(data / "squad" / f"{published}-v1.1.recon.json.gz")
        chosen: list[Any] = []
        for article in published_set["data"][2:]:  # the first two articles are five times as long as the others
            if sum(len(p["qas"]) for a in chosen for p in a["paragraphs"]) < wanted:
                chosen.append(article)
        paragraphs = [paragraph for article in chosen for paragraph in article["paragraphs"]]
        sizes.append(sum(len(paragraph["qas"]) for paragraph in paragraphs))
        _write(output / name, [json.dumps({"version": "1.1", "data": chosen})])
    return {"task.data": output.absolute()}, f"{sizes[0]:,} / {sizes[1]:,}"


SPLITS = {one.__name__: one for one in (wnut17, upos, qnli, qnli_tuning, mnli, codah, squad)}


def _files(output: pathlib.Path) -> Values:
    return {"task.data": output.absolute(), "task.train": "train.tsv", "task.dev": "dev.tsv"}


def _json(path: pathlib.Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _lines(path: pathlib.Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def _write(path: pathlib.Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
