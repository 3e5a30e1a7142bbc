"""Compare ways from a small encoder to a retriever, on SQuAD's development paragraphs and on Cranfield.

    pip install sentence-transformers datasets accelerate  # for the row "library"
    python benchmarks/retrieval_table.py --data DATA --encoder my-bert/ --output table/
    python benchmarks/retrieval_table.py --output table/ --table

The rows of the table are:

- before: the mean of the encoder's token vectors, without training.
- pairs: trained on unlabeled pairs of the Wikipedia sample and the books (`bert-jax pairs`).
- questions: `pairs`, then trained on SQuAD's training questions with their paragraphs.
- library: `pairs`, then trained as in `questions` by sentence-transformers, with equal steps, batches and rates.
- mined: as `questions`, with a hard negative for each question, which `bert-jax mine` finds with the model `questions`.
- late_interaction: as `questions`, with a vector for each token.
- sparse: the encoder, trained on the training questions with sparse vectors, which start from a masked-token head.
- bm25: a ranking by shared words.

The collection `squad` has the 10,570 questions and the 2,067 paragraphs of the development set. The measures are the
measures of `bert-jax score --retrieval`. Each scored model appends its lines to `table/rows.jsonl`, and trainings have
checkpoints, so that a stopped command continues when it is repeated. The seconds are CPU seconds of the training.
"""

import argparse
import gzip
import json
import math
import pathlib
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

COLLECTIONS = ("squad", "cranfield")
MEASURES = ("ndcg@10", "recall@100", "mrr@10", "map")
LENGTH, PAIR_LENGTH = 128, 72  # tokens of a text with special tokens: of a paragraph, and of an unlabeled text
PAIR_RULE, PAIR_BATCH, QUESTION_BATCH, MICRO_BATCH = "crop", 128, 64, 64
PAIR_RATE, QUESTION_RATE, WARMUP = 2e-3, 1e-3, 0.1
TEMPERATURE = 0.05
HELD_OUT_ARTICLES, DEV_PAIRS = 20, 200
BM25, BEFORE = "bm25", "before"

Rows = list[dict[str, Any]]


def main() -> None:
    """Train and score all missing rows, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="directory with squad/, retrieval/, books/, enwiki-sample/")
    parser.add_argument("--encoder", type=pathlib.Path, help="model directory of the encoder")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--pairs", type=int, default=61_440, help="unlabeled pairs (default: 61440)")
    parser.add_argument("--questions", type=int, default=20_480, help="training questions (default: 20480)")
    parser.add_argument("--table", action="store_true", help="only print the table of the finished rows")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.output.mkdir(parents=True, exist_ok=True)
        make_collection(arguments.data, arguments.output / "squad")
        make_questions(arguments.data, arguments.output, arguments.questions)
        make_pairs(arguments.data, arguments.encoder, arguments.output, arguments.pairs)
        make_rows(arguments.data, arguments.encoder, arguments.output, arguments.rows, arguments.seeds)
    print_table(arguments.output)


def squad(data: pathlib.Path, name: str) -> Rows:
    """Return the articles of a file of SQuAD 1.1."""
    with gzip.open(data / "squad" / name, "rt", encoding="utf-8") as file:
        articles: Rows = json.load(file)["data"]
    return articles


def question_pairs(articles: Rows) -> Iterator[tuple[str, str]]:
    """Yield each question with its paragraph."""
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question["question"].strip(), paragraph["context"].strip()


def write_lines(path: pathlib.Path, rows: Rows) -> None:
    """Write JSON lines; the file appears when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.rename(path)


def make_collection(data: pathlib.Path, directory: pathlib.Path) -> None:
    """Write the development set of SQuAD as a collection in the layout of BEIR."""
    judgments = directory / "qrels" / "test.tsv"
    if judgments.exists():
        return
    judgments.parent.mkdir(parents=True, exist_ok=True)
    pairs = list(question_pairs(squad(data, "dev-v1.1.recon.json.gz")))
    names = {text: f"p{index}" for index, text in enumerate(dict.fromkeys(text for _, text in pairs))}
    write_lines(directory / "corpus.jsonl", [{"_id": name, "text": text} for text, name in names.items()])
    write_lines(directory / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, (text, _) in enumerate(pairs)])
    judgments.write_text("".join(f"q{n}\t{names[text]}\t1\n" for n, (_, text) in enumerate(pairs)), encoding="utf-8")


def make_questions(data: pathlib.Path, output: pathlib.Path, num_examples: int) -> None:
    """Write pairs of training questions and paragraphs, only the paragraphs, and pairs of held-out articles."""
    if (output / "questions_dev.jsonl").exists():
        return
    articles = squad(data, "train-v1.1.recon.json.gz")
    pairs = list(question_pairs(articles[:-HELD_OUT_ARTICLES]))
    paragraphs = dict.fromkeys(text for _, text in pairs)
    write_lines(output / "paragraphs.jsonl", [{"_id": f"p{n}", "text": text} for n, text in enumerate(paragraphs)])
    chosen = random.Random(0).sample(pairs, num_examples)
    write_lines(output / "questions.jsonl", [{"text": question, "text_pair": text} for question, text in chosen])
    held_out = random.Random(0).sample(list(question_pairs(articles[-HELD_OUT_ARTICLES:])), 2 * DEV_PAIRS)
    right, wrong = held_out[:DEV_PAIRS], held_out[DEV_PAIRS:]
    dev: Rows = [{"text": question, "text_pair": text, "label": 1} for question, text in right]
    dev += [{"text": right[n][0], "text_pair": text, "label": 0} for n, (_, text) in enumerate(wrong)]
    write_lines(output / "questions_dev.jsonl", dev)


def make_pairs(data: pathlib.Path, encoder: pathlib.Path, output: pathlib.Path, num_examples: int) -> None:
    """Write unlabeled pairs of the Wikipedia sample and the books."""
    import bert_jax
    from bert_jax.batches.text_pairs import TextLimits

    texts = [data / "enwiki-sample" / "enwiki-pages-articles-shortened.xml.bz2"]
    texts.append(data / "books" / "classic-books-md.tar.xz")
    if not (output / "corpus").exists():
        bert_jax.prepare([str(path) for path in texts], encoder, output / "corpus", workers=1)
    if not (output / "pairs").exists():
        limits = TextLimits(query=32, document=64)
        bert_jax.write_unlabeled_pairs(
            str(output / "corpus"), output / "pairs", PAIR_RULE, num_pairs=num_examples, limits=limits
        )


def make_rows(
    data: pathlib.Path, encoder: pathlib.Path, output: pathlib.Path, rows: list[str], seeds: list[int]
) -> None:
    """Train and score each missing row, seed by seed."""
    from bert_jax.checkpoints.load_model import open_model
    from bert_jax.inference.embed import HEADS
    from bert_jax.scoring.retrieval import score_retrieval

    places = {"squad": output / "squad", "cranfield": data / "retrieval" / "cranfield"}
    for seed in seeds:
        for row in rows:
            directory = encoder if row == BEFORE else output / f"{row}-{seed}"
            if row == BEFORE and seed:
                continue
            done = {(line["row"], line["seed"], line["collection"]) for line in read_rows(output)}
            missing = [name for name in COLLECTIONS if (row, seed, name) not in done]
            if not missing:
                continue
            begin = time.process_time()
            MODELS[row](encoder, output, seed)
            seconds = time.process_time() - begin
            model = open_model(directory if row == BEFORE else directory / "model", HEADS)
            for name in missing:
                report = score_retrieval(model, places[name])
                scored = {row: report.queries["model"]}
                if row == BEFORE:
                    scored[BM25] = report.queries["BM25"]
                for system, measures in scored.items():
                    np.save(output / f"{system}-{seed}-{name}.npy", measures["ndcg@10"])
                    line = {"row": system, "seed": seed, "collection": name, "seconds": round(seconds, 1)}
                    line |= {measure: float(values.mean()) for measure, values in measures.items()}
                    with (output / "rows.jsonl").open("a", encoding="utf-8") as file:
                        print(json.dumps(line), file=file, flush=True)


def train_pairs(encoder: pathlib.Path, output: pathlib.Path, seed: int) -> None:
    """Train the encoder on unlabeled pairs."""
    files = (output / "pairs" / "train.jsonl", output / "pairs" / "dev.jsonl")
    train(encoder, files, output / f"pairs-{seed}", seed, PAIR_BATCH, PAIR_RATE, PAIR_LENGTH)


def train_questions(encoder: pathlib.Path, output: pathlib.Path, seed: int) -> None:
    """Train the model `pairs` on questions."""
    files = (output / "questions.jsonl", output / "questions_dev.jsonl")
    start = output / f"pairs-{seed}" / "model"
    train(start, files, output / f"questions-{seed}", seed, QUESTION_BATCH, QUESTION_RATE, LENGTH)


def train_mined(encoder: pathlib.Path, output: pathlib.Path, seed: int) -> None:
    """Train the model `pairs` on questions with negatives that the model `questions` ranks high."""
    from bert_jax.cli.main import main as bert_jax_main

    mined = output / f"mined-{seed}.jsonl"
    if not mined.exists():
        command = ["mine", "--model", str(output / f"questions-{seed}" / "model"), "--corpus"]
        command += [str(output / "paragraphs.jsonl"), "--pairs", str(output / "questions.jsonl")]
        assert bert_jax_main([*command, "--output", str(mined), "--ranks", "10:50", "--margin", "0.05"]) == 0
    files = (mined, output / "questions_dev.jsonl")
    start = output / f"pairs-{seed}" / "model"
    train(start, files, output / f"mined-{seed}", seed, QUESTION_BATCH, QUESTION_RATE, LENGTH)


def train_late_interaction(encoder: pathlib.Path, output: pathlib.Path, seed: int) -> None:
    """Train the model `pairs` on questions with a vector for each token."""
    start, workdir = output / f"pairs-{seed}" / "model", output / f"late_interaction-{seed}"
    files = (output / "questions.jsonl", output / "questions_dev.jsonl")
    head = {"vector_head": "late_interaction", "temperature": None}
    train(start, files, workdir, seed, QUESTION_BATCH, QUESTION_RATE, LENGTH, head)


def train_sparse(encoder: pathlib.Path, output: pathlib.Path, seed: int) -> None:
    """Train the encoder on questions with sparse vectors."""
    files = (output / "questions.jsonl", output / "questions_dev.jsonl")
    head = {"vector_head": "sparse", "temperature": None}
    train(encoder, files, output / f"sparse-{seed}", seed, QUESTION_BATCH, QUESTION_RATE, LENGTH, head)


def train(
    start: pathlib.Path,
    files: tuple[pathlib.Path, pathlib.Path],
    workdir: pathlib.Path,
    seed: int,
    batch_size: int,
    rate: float,
    length: int,
    head: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Train sentence vectors with bert_jax for an epoch; continue a stopped training.

    `head` has the fields of the task for another head than dense vectors.
    """
    import bert_jax
    from bert_jax.config.recipes import finetuning
    from bert_jax.console import Console

    config = finetuning(1, batch_size, rate, length, WARMUP)
    config.seed, config.init_from = seed, str(start)
    config.train.grad_accum_steps = batch_size // MICRO_BATCH
    config.task.update(name="custom", kind="similarity", temperature=TEMPERATURE)
    config.task.update(train=str(files[0]), dev=str(files[1]), **head)
    config.checkpoint.every = 40
    if bert_jax.finetune(config, workdir, console=Console()) is None:
        raise SystemExit(f"{workdir}: stopped; the same command continues the training")


def train_library(encoder: pathlib.Path, output: pathlib.Path, seed: int) -> None:
    """Train the model `pairs` on questions with sentence-transformers."""
    import datasets
    import sentence_transformers
    import torch
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.training_args import BatchSamplers

    target = output / f"library-{seed}"
    if (target / "model").exists():
        return
    torch.set_num_threads(1)
    model = sentence_transformers.SentenceTransformer(str(output / f"pairs-{seed}" / "model"), device="cpu")
    model.max_seq_length = LENGTH
    lines = [json.loads(line) for line in (output / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    settings = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=str(target / "work"),
        use_cpu=True,
        seed=seed,
        per_device_train_batch_size=QUESTION_BATCH,
        max_steps=math.ceil(len(lines) / QUESTION_BATCH),
        learning_rate=QUESTION_RATE,
        warmup_steps=round(WARMUP * math.ceil(len(lines) / QUESTION_BATCH)),
        weight_decay=0.01,
        max_grad_norm=1.0,
        adam_epsilon=1e-6,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        save_strategy="no",
        logging_steps=20,
        report_to="none",
    )
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model,
        args=settings,
        train_dataset=datasets.Dataset.from_list(lines),
        loss=losses.MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE),
    )
    trainer.train()
    model.save_pretrained(str(target / "model"))


# Row -> function of the encoder, the output directory and the seed, which makes the model `ROW-SEED/model`.
MODELS: dict[str, Callable[[pathlib.Path, pathlib.Path, int], None]] = {
    BEFORE: lambda encoder, output, seed: None,
    "pairs": train_pairs,
    "questions": train_questions,
    "library": train_library,
    "mined": train_mined,
    "late_interaction": train_late_interaction,
    "sparse": train_sparse,
}


def read_rows(output: pathlib.Path) -> Rows:
    """Return the finished lines."""
    path = output / "rows.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def print_table(output: pathlib.Path) -> None:
    """Print the means over the seeds, and the mean difference of nDCG@10 from BM25 with its standard error."""
    rows = read_rows(output)
    for name in COLLECTIONS:
        print(f"\n{name}\n\n| row | seeds | {' | '.join(MEASURES)} | nDCG@10 minus BM25 | CPU seconds |")
        print("| --- " * (4 + len(MEASURES)) + "|")
        for row in dict.fromkeys(line["row"] for line in rows):
            lines = [line for line in rows if (line["row"], line["collection"]) == (row, name)]
            cells = [f"{statistics.fmean(line[measure] for line in lines):.3f}" for measure in MEASURES]
            seconds = statistics.fmean(line["seconds"] for line in lines)
            values = np.mean([np.load(output / f"{row}-{line['seed']}-{name}.npy") for line in lines], axis=0)
            paired = values - np.load(output / f"{BM25}-0-{name}.npy")
            error = paired.std(ddof=1) / math.sqrt(len(paired))
            cells = [row, str(len(lines)), *cells, f"{paired.mean():+.3f} ± {error:.3f}", f"{seconds:.0f}"]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
