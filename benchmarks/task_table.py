"""Compare ways of fine-tuning on small sets of labels with the Trainer of transformers, seed by seed.

    python benchmarks/task_table.py --data DATA --output tables/
    python benchmarks/task_table.py --output tables/ --table

Trains an encoder of 4 layers x 128 on the paragraphs of SQuAD (if `tables/encoder` is missing), then fine-tunes it:

- topics: the article of a question, for eight articles; the training counts fall from 240 to 14; macro F1.
- entities: which of six types of entities a sentence of WNUT-17 has; micro F1 at the probability 0.5.
- answers: whether the answer of a question is a number, a name or a thing; 64 examples per label; accuracy. The
classification head and the masked-token head are also trained with 16, 256 and all examples per label.

A way is `plain` (classification head), `weighted` (class weights `balanced`), `lora` (rank 8, all linear maps, five
times the rate), `prompt` (masked-token head), `trainer` (the Trainer with the settings of `plain`) or `trainer_lora`
(the Trainer and peft with the settings of `lora`). The seed chooses the training examples, the initial head and the
order, so the differences of two ways are paired by seed. Each fine-tuning appends a line to `tables/rows.jsonl`; a
stopped command continues with the missing lines.
"""

import argparse
import dataclasses
import gzip
import json
import math
import pathlib
import random
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

STEPS, SEEDS, RATE, EPOCHS, BATCH, LENGTH = 700, 5, 1e-3, 4, 16, 40
TOPICS, MOST_EXAMPLES, SKEW, DEV_EXAMPLES = 8, 240, 1.5, 60
WAYS = ("trainer", "plain", "weighted", "trainer_lora", "lora", "prompt")
TRAINER_OF = {"lora": "trainer_lora"}  # way -> the way of the Trainer with equal settings, where not `trainer`
LORA_RANK, LORA_ALPHA, LORA_RATE = 8, 16, 5  # the rate is relative to the rate of the other ways
T_OF_95_PERCENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # number of seeds -> Student's t

Rows = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabeledSet:
    """Labeled texts, and the settings of a way that depend on them."""

    train: Rows
    dev: Rows
    labels: tuple[str, ...]
    metric: str
    kind: str = "sequence_classification"
    template: str = "{text} [MASK]."
    verbalizers: str | None = None


def main() -> None:
    """Make the encoder and all missing lines, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="directory with squad/ and ner/wnut17/")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--table", action="store_true", help="only print the table of the finished lines")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.output.mkdir(parents=True, exist_ok=True)
        if not (arguments.output / "encoder").exists():
            train_encoder(arguments.data, arguments.output)
        make_rows(arguments.data, arguments.output)
    print_table(arguments.output / "rows.jsonl")


def train_encoder(data: pathlib.Path, output: pathlib.Path) -> None:
    """Train an encoder on the paragraphs of SQuAD, and export it."""
    import bert_jax
    from bert_jax.cli.main import main as bert_jax_main

    text = output / "paragraphs.txt"
    paragraphs = [paragraph["context"] for article in squad(data) for paragraph in article["paragraphs"]]
    text.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    if not (output / "tokenizer").exists():
        bert_jax.train_tokenizer([[str(text)]], 8_192, output / "tokenizer")
    if not (output / "corpus").exists():
        bert_jax.prepare([str(text)], output / "tokenizer", output / "corpus", workers=1)
    values: dict[str, Any] = {
        "model.num_layers": 4,
        "model.hidden_size": 128,
        "model.num_heads": 2,
        "model.mlp_size": 256,
    }
    values |= {"train.steps": STEPS, "evaluate.every": STEPS, "data.corpus": str(output / "corpus")}
    bert_jax.pretrain("small_cpu", output / "run", values)
    assert bert_jax_main(["export", "--workdir", str(output / "run"), "--output", str(output / "encoder")]) == 0


def squad(data: pathlib.Path) -> Rows:
    """Return the articles of the training set of SQuAD 1.1."""
    with gzip.open(data / "squad" / "train-v1.1.recon.json.gz", "rt", encoding="utf-8") as file:
        articles: Rows = json.load(file)["data"]
    return articles


def questions(article: dict[str, Any]) -> Rows:
    """Return the questions of an article."""
    return [question for paragraph in article["paragraphs"] for question in paragraph["qas"]]


def topics(data: pathlib.Path, vocabulary: set[str], seed: int) -> LabeledSet:
    """Return questions of eight articles whose titles are tokens, with a skewed training set and a balanced dev set."""
    named = [article for article in squad(data) if article["title"].lower() in vocabulary]
    chosen = sorted(named, key=lambda article: -len(questions(article)))[:TOPICS]
    train, dev = Rows(), Rows()
    for index, article in enumerate(chosen):
        texts = [question["question"].strip() for question in questions(article)]
        random.Random(0).shuffle(texts)
        label = article["title"].lower()
        dev += [{"text": text, "label": label} for text in texts[:DEV_EXAMPLES]]
        pool = random.Random(seed).sample(texts[DEV_EXAMPLES:], round(MOST_EXAMPLES / SKEW**index))
        train += [{"text": text, "label": label} for text in pool]
    labels = tuple(article["title"].lower() for article in chosen)
    return LabeledSet(train=train, dev=dev, labels=labels, metric="macro_f1", template="Topic: [MASK]. {text}")


def answers(data: pathlib.Path, examples: int | None, seed: int) -> LabeledSet:
    """Return questions with the type of their answer; None: all questions of the training articles."""
    articles, by_label = squad(data), dict[str, list[str]]()
    for article in articles[:-50]:
        for question in questions(article):
            by_label.setdefault(answer_type(question), []).append(question["question"].strip())
    rng, train = random.Random(seed), Rows()
    for label, texts in sorted(by_label.items()):
        # Training on all examples would take hours on a core; 2,000 a label stand for all.
        train += [{"text": text, "label": label} for text in rng.sample(texts, examples or 2_000)]
    held_out = [question for article in articles[-50:] for question in questions(article)]
    sample = random.Random(0).sample(held_out, 1_500)
    dev = [{"text": question["question"].strip(), "label": answer_type(question)} for question in sample]
    labels = ("name", "number", "thing")
    return LabeledSet(train=train, dev=dev, labels=labels, metric="accuracy", template="{text} It is a [MASK].")


def answer_type(question: dict[str, Any]) -> str:
    """Return number if the answer has a digit, name if each long word has a capital letter, else thing."""
    answer = question["answers"][0]["text"]
    if any(character.isdigit() for character in answer):
        return "number"
    return "name" if all(word[0].isupper() for word in answer.split() if len(word) > 3) else "thing"


def entities(data: pathlib.Path, seed: int) -> LabeledSet:
    """Return sentences of WNUT-17 with the types of their entities."""
    train, dev = (wnut(data / "ner" / "wnut17" / name) for name in ("wnut17train.conll.gz", "emerging.dev.conll.gz"))
    random.Random(seed).shuffle(train)
    labels = tuple(sorted({label for row in train for label in row["label"]}))
    return LabeledSet(train=train, dev=dev, labels=labels, metric="micro_f1", kind="multilabel_classification")


def wnut(path: pathlib.Path) -> Rows:
    """Return the sentences of a file with a token and a tag per line."""
    rows, words, types = Rows(), list[str](), set[str]()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in [*file, "\n"]:
            word, _, tag = line.strip().partition("\t")
            if word:
                words.append(word)
                types |= {tag.partition("-")[2]} - {""}
            elif words:
                rows.append({"text": " ".join(words), "label": sorted(types)})
                words, types = [], set()
    return rows


# (data, tokens of the encoder, examples per label, seed) -> the set.
SETS: dict[str, Callable[[pathlib.Path, set[str], int | None, int], LabeledSet]] = {
    "topics": lambda data, vocabulary, examples, seed: topics(data, vocabulary, seed),
    "answers": lambda data, vocabulary, examples, seed: answers(data, examples, seed),
    "entities": lambda data, vocabulary, examples, seed: entities(data, seed),
}


def jobs() -> list[tuple[str, int | None, str, int]]:
    """Return (set, examples per label, way, seed) of all lines: the main table, then the other tables, each by seed."""
    main_table = [("topics", None, way) for way in WAYS] + [("answers", 64, way) for way in WAYS]
    main_table += [("entities", None, way) for way in WAYS[:-1]]  # a mask has a single word
    few = [("answers", examples, way) for examples in (16, 256, None) for way in ("trainer", "plain", "prompt")]
    return [(*row, seed) for rows in (main_table, few) for seed in range(SEEDS) for row in rows]


def make_rows(data: pathlib.Path, output: pathlib.Path) -> None:
    """Fine-tune for each missing line."""
    from bert_jax.tokenizer import load_tokenizer

    vocabulary, path = set(load_tokenizer(output / "encoder").tokens), output / "rows.jsonl"
    done = {key_of(row) for row in read_rows(path)}
    for name, examples, way, seed in jobs():
        if (name, examples, way, seed) in done:
            continue
        labeled = SETS[name](data, vocabulary, examples, seed)
        begin = time.perf_counter()
        fit = fit_trainer if way.startswith("trainer") else fit_ours
        score = fit(labeled, way, seed, output)
        row = {"set": name, "examples": examples, "way": way, "seed": seed, "score": score}
        row["seconds"] = round(time.perf_counter() - begin, 1)
        with path.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file, flush=True)


def fit_ours(labeled: LabeledSet, way: str, seed: int, output: pathlib.Path) -> float:
    """Fine-tune with bert_jax; return the score of the last step."""
    import bert_jax
    from bert_jax.config.recipes import finetuning
    from bert_jax.console import Console

    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name, rows in (("train", labeled.train), ("dev", labeled.dev)):
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = finetuning(EPOCHS, BATCH, RATE * (LORA_RATE if way == "lora" else 1), LENGTH)
    config.seed, config.init_from = seed, str(output / "encoder")
    config.task.update(name="custom", kind=labeled.kind, labels=",".join(labeled.labels), metric=labeled.metric)
    config.task.update(train=str(work / "train.jsonl"), dev=str(work / "dev.jsonl"), buckets=(LENGTH,))
    if labeled.kind == "multilabel_classification":
        config.task.threshold = 0.5
    if way == "weighted":
        config.task.class_weights = "balanced"
    if way == "prompt":
        config.task.template = labeled.template
    if way == "lora":
        config.adapter.update(rank=LORA_RANK, alpha=LORA_ALPHA, targets="all-linear")
    config.evaluate.every = config.checkpoint.every = num_steps(labeled)
    results = bert_jax.finetune(config, work / "run", console=Console(silent=True))
    assert results
    return float(results["best"]["scores"][labeled.metric])


def num_steps(labeled: LabeledSet) -> int:
    """Return the number of steps of a training."""
    return EPOCHS * math.ceil(len(labeled.train) / BATCH)


def fit_trainer(labeled: LabeledSet, way: str, seed: int, output: pathlib.Path) -> float:
    """Fine-tune with the Trainer and the settings of `plain` or `lora`; return the score of the last step."""
    import numpy as np
    import peft
    import torch
    import transformers
    from sklearn import metrics

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    several = labeled.kind == "multilabel_classification"
    transformers.set_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        output / "encoder",
        num_labels=len(labeled.labels),
        problem_type="multi_label_classification" if several else "single_label_classification",
    )
    if way == "trainer_lora":
        # As in bert_jax, the maps of the encoder have an adapter, and the whole head is trained.
        lora = peft.LoraConfig(
            r=LORA_RANK,
            lora_alpha=LORA_ALPHA,
            target_modules=["Wqkv", "Wo", "Wi"],
            modules_to_save=["head", "classifier"],
        )
        model = peft.get_peft_model(model, lora)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output / "encoder")

    def example(row: dict[str, Any]) -> dict[str, Any]:
        chosen = [float(label in row["label"]) for label in labeled.labels]
        label = chosen if several else labeled.labels.index(row["label"])
        return {**tokenizer(row["text"], truncation=True, max_length=LENGTH), "labels": label}

    settings = transformers.TrainingArguments(
        output_dir=str(output / "work_trainer"),
        use_cpu=True,
        seed=seed,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        num_train_epochs=EPOCHS,
        learning_rate=RATE * (LORA_RATE if way == "trainer_lora" else 1),
        weight_decay=0.01,
        warmup_steps=round(0.1 * num_steps(labeled)),
        max_grad_norm=1.0,
        adam_epsilon=1e-6,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    collator = transformers.DataCollatorWithPadding(tokenizer, padding="max_length", max_length=LENGTH)
    trainer = transformers.Trainer(model, settings, collator, [example(row) for row in labeled.train])
    trainer.train()
    dev: Any = [example(row) for row in labeled.dev]
    predicted = trainer.predict(dev)
    logits, gold = np.asarray(predicted.predictions), np.asarray(predicted.label_ids)
    if several:
        return float(metrics.f1_score(gold, logits >= 0, average="micro"))
    if labeled.metric == "accuracy":
        return float(metrics.accuracy_score(gold, logits.argmax(1)))
    return float(metrics.f1_score(gold, logits.argmax(1), average="macro"))


def read_rows(path: pathlib.Path) -> Rows:
    """Return the finished lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def key_of(row: dict[str, Any]) -> tuple[str, int | None, str, int]:
    """Return (set, examples per label, way, seed)."""
    return row["set"], row["examples"], row["way"], row["seed"]


def print_table(path: pathlib.Path) -> None:
    """Print the mean scores in percent, and the mean difference from the Trainer with its 95 % interval."""
    rows = read_rows(path)
    by_key = {key_of(row): row for row in rows}
    columns = ("set", "examples per label", "way", "seeds", "score, %", "difference from the Trainer (95 % interval)")
    print(f"| {' | '.join(columns)} | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, examples, way in dict.fromkeys((row["set"], row["examples"], row["way"]) for row in rows):
        of_way = {
            seed: by_key[name, examples, way, seed] for seed in range(SEEDS) if (name, examples, way, seed) in by_key
        }
        trainer = TRAINER_OF.get(way, "trainer")
        pairs = [
            100 * (row["score"] - by_key[name, examples, trainer, seed]["score"])
            for seed, row in of_way.items()
            if not way.startswith("trainer") and (name, examples, trainer, seed) in by_key
        ]
        scores = [100 * row["score"] for row in of_way.values()]
        seconds = statistics.median(row["seconds"] for row in of_way.values())
        cells = (name, examples or "all", way, len(of_way), spread(scores), interval(pairs), f"{seconds:.0f}")
        print(f"| {' | '.join(map(str, cells))} |")


def spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def interval(differences: Sequence[float]) -> str:
    """Return the mean of paired differences with its interval by Student's t."""
    if len(differences) < 2:
        return f"{differences[0]:+.1f}" if differences else ""
    half = T_OF_95_PERCENT[len(differences)] * statistics.stdev(differences) / math.sqrt(len(differences))
    mean = statistics.fmean(differences)
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


if __name__ == "__main__":
    main()
