"""Train with the Trainer of `transformers`, as its example run_mlm.py does, for the time of the race's baseline.

    python benchmarks/speedrun/run_mlm.py --race race/ --model bert_mini --fraction 0.2
    python benchmarks/speedrun/run_mlm.py --race race/ --table

`race/` is the output of race.py, which has the text, the tokenizer and the runs of the baseline. As in run_mlm.py, all
documents are concatenated and cut into sequences of 128 tokens, DataCollatorForLanguageModeling masks 15 % of the
tokens anew in each epoch, and AdamW trains in float32. The first lines of SETTINGS are the defaults of run_mlm.py; the
other lines are settings that a user with experience would choose.

A training has as many steps as fit into the training time of the baseline; the steps of both programs are timed in
turn, in one process. If the command stops, the same command resumes the training. The loss is measured on the masked
sequences of the race's other books, with the weights in `transformers`.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
import transformers
from pace import phase_steps
from race import BASELINE, RECIPES, heldout_losses

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from torch_reference import heldout_loss  # noqa: E402

from bert_jax.config import PretrainConfig, read_config, with_vocab_size  # noqa: E402
from bert_jax.corpus.mixture import open_mixture  # noqa: E402
from bert_jax.parallel.sharding import BatchBlocks  # noqa: E402
from bert_jax.pretraining.data import heldout_batches, sequence_rules  # noqa: E402
from bert_jax.training.schedules import plan_phases  # noqa: E402

SEQ_LEN = 128
ROUNDS = 8  # measurements of a step of both sides
SAVED_EVERY = 100  # steps

# Sizes of BERT-mini (Turc et al. 2019) and of `modern_mini`, the architecture of the baseline.
MODELS: dict[str, Callable[..., transformers.PretrainedConfig]] = {
    "bert_mini": lambda **vocabulary: transformers.BertConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024, **vocabulary
    ),
    "modern_mini": lambda **vocabulary: transformers.ModernBertConfig(
        num_hidden_layers=6, hidden_size=192, num_attention_heads=3, intermediate_size=512, **vocabulary
    ),
}


class Settings(NamedTuple):
    """A row of SETTINGS: batch size in sequences, peak learning rate, warmup as a fraction of the steps, and decay."""

    batch_size: int
    learning_rate: float
    warmup: float
    weight_decay: float


SETTINGS = {"defaults": Settings(8, 5e-5, 0.0, 0.0), "tuned": Settings(32, 1e-3, 0.06, 0.01)}


def main() -> None:
    """Train a model of each setting, unless its result is recorded, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--race", type=pathlib.Path, required=True, help="the output directory of race.py")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--fraction", type=float, default=1.0, help="of the baseline's training time")
    parser.add_argument("--table", action="store_true", help="print the table of the results there are")
    args = parser.parse_args()
    results = args.race / f"run_mlm-{args.fraction:g}"
    if not args.table:
        for seed in args.seeds:
            for name in args.models:
                for setting in args.settings:
                    train(args.race, results / f"{name}-{setting}-{seed}", name, setting, seed, args.fraction)
    print(table(args.race, results, args.fraction))


def train(race: pathlib.Path, workdir: pathlib.Path, name: str, setting: str, seed: int, fraction: float) -> None:
    """Train, or resume the training, and write the result to `workdir`/result.json."""
    if (workdir / "result.json").exists():
        return
    workdir.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.set_verbosity_error()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(race / "tokenizer")
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    sequences = training_sequences(race, tokenizer)
    row = SETTINGS[setting]
    begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    special = {"cls_token_id": begin, "bos_token_id": begin, "sep_token_id": end, "eos_token_id": end}
    special["pad_token_id"] = tokenizer.pad_token_id
    model = transformers.AutoModelForMaskedLM.from_config(MODELS[name](vocab_size=len(tokenizer), **special))
    steps = steps_in_time(race, workdir, model, lambda: collator(sequences[: row.batch_size])) * fraction
    print(f"{name}, {setting}, seed {seed}, {steps:,.0f} steps", flush=True)
    training = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            output_dir=str(workdir / "trainer"),
            use_cpu=True,
            seed=seed,
            max_steps=round(steps),
            per_device_train_batch_size=row.batch_size,
            learning_rate=row.learning_rate,
            warmup_steps=round(row.warmup * steps),
            weight_decay=row.weight_decay,
            save_steps=SAVED_EVERY,
            save_total_limit=1,
            logging_steps=SAVED_EVERY,
            report_to="none",
            disable_tqdm=True,
        ),
        collator,
        sequences,
    )
    training.train(resume_from_checkpoint=any((workdir / "trainer").glob("checkpoint-*")) or None)
    model.eval()
    model.save_pretrained(workdir / "model")
    tokenizer.save_pretrained(workdir / "model")
    result = {"steps": round(steps), "tokens": round(steps) * row.batch_size * SEQ_LEN, **report_loss(race, model)}
    (workdir / "result.json").write_text(json.dumps(result) + "\n", encoding="utf-8")


def training_sequences(race: pathlib.Path, tokenizer: transformers.PreTrainedTokenizerBase) -> list[dict[str, Any]]:
    """Return the training text as sequences of SEQ_LEN tokens: each document has [CLS] before it and [SEP] after it."""
    split = open_mixture(str(race / "corpus")).split("train")
    tokens = split.read(np.arange(split.num_records)).tokens.astype(np.int64)
    ends = np.cumsum(split.tokens_per_record)[split.first_record[1:] - 1]
    documents = np.split(tokens, ends[:-1])
    begin, end = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    stream = np.concatenate([part for document in documents for part in (begin, document, end)])
    whole = stream[: len(stream) // SEQ_LEN * SEQ_LEN].reshape(-1, SEQ_LEN)
    return [{"input_ids": sequence} for sequence in torch.tensor(whole)]


def baseline_config(race: pathlib.Path) -> PretrainConfig:
    """Return the recipe of the baseline on the corpus of the race."""
    options = [f"--config.data.corpus={race / 'corpus'}", f"--config.evaluate.corpus={race / 'report'}"]
    config = read_config(PretrainConfig, f"{RECIPES}:{BASELINE}", options)
    return with_vocab_size(config, open_mixture(str(race / "corpus")).vocab_size)


def steps_in_time(
    race: pathlib.Path, workdir: pathlib.Path, model: torch.nn.Module, batch: Callable[[], dict[str, torch.Tensor]]
) -> float:
    """Return the number of steps of `model` in the training time of the baseline; the file pace.json keeps the result.

    The model of the measurement is the model to train, whose weights do not change here.
    """
    file = workdir / "pace.json"
    if not file.exists():
        phases = phase_steps(baseline_config(race), open_mixture(str(race / "corpus")))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)

        def torch_step() -> None:
            optimizer.zero_grad()
            model(**batch()).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        torch_step()
        ratios = list[float]()
        for _ in range(ROUNDS):
            baseline = sum(num_steps * statistics.mean(seconds_of(step, 3)) for num_steps, step in phases)
            ratios.append(baseline / statistics.mean(seconds_of(torch_step, 6)))
        file.write_text(json.dumps({"steps": ratios}) + "\n", encoding="utf-8")
    return float(statistics.median(json.loads(file.read_text(encoding="utf-8"))["steps"]))


def seconds_of(step: Callable[[], None], times: int) -> Iterator[float]:
    """Yield the seconds of each call of `step`."""
    for _ in range(times):
        began = time.perf_counter()
        step()
        yield time.perf_counter() - began


def report_loss(race: pathlib.Path, model: transformers.PreTrainedModel) -> dict[str, float]:
    """Return the loss in nats and the accuracy on the sequences by which the race compares its entries."""
    config, report = baseline_config(race), open_mixture(str(race / "report"))
    batches = heldout_batches(
        report.split("train"),
        sequence_rules(config, report.tokenizer()),
        BatchBlocks((0,), 1),
        num_sequences=config.evaluate.num_sequences,
        batch_size=config.evaluate.batch_size or 64,
        eval_uses_training_masks=False,
    ).batches(plan_phases(config.train)[-1])
    measured: dict[str, float] = heldout_loss(
        model, ({name: np.asarray(value) for name, value in batch.items()} for batch in batches)
    )
    return measured


def table(race: pathlib.Path, results: pathlib.Path, fraction: float) -> str:
    """Return a Markdown table of the results and of the baseline's runs of equal time."""
    rows = ["| training | steps | million tokens | loss (nats) | accuracy |", "| --- | --- | --- | --- | --- |"]
    for file in sorted(results.glob("*/result.json")):
        x = json.loads(file.read_text(encoding="utf-8"))
        name = file.parent.name
        cells = f"{x['steps']:,} | {x['tokens'] / 1e6:.1f} | {x['loss']:.3f} | {x['accuracy']:.1%}"
        rows.append(f"| transformers, {name} | {cells} |")
    runs = race / ("runs" if fraction == 1.0 else f"runs-{fraction:g}")
    ours = {file.parent.name: heldout_losses(file.parent) for file in sorted(runs.glob("*/metrics.jsonl"))}
    rows += [f"| bert_jax, {name} | {x[-1][0]:,} | | {x[-1][1]:.3f} | |" for name, x in ours.items() if x]
    return "\n".join(rows)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()
