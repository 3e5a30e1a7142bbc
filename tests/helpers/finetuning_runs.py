"""Small tasks of each kind, a small model to fine-tune, and the command line in this process."""

import json
import os
import pathlib
import random
import signal

import safetensors.numpy

from bert_jax.cli.main import main
from bert_jax.console import Console
from tests.helpers.tiny_models import LETTERS, save

MAX_LENGTH = 24
RECIPE = f"""
from bert_jax.config.recipes import finetuning


def get_config():
    config = finetuning(epochs=2, batch_size=8, learning_rate=3e-3, max_seq_len={MAX_LENGTH})
    config.task.update(buckets=({MAX_LENGTH},))
    config.train.log_every = 1
    config.evaluate.batch_size = 16
    return config
"""
SHORT_WINDOWS = ["task.doc_stride=6", "task.max_query_length=6"]  # for MAX_LENGTH
LABELS = {"sequence_classification": "yes,no,perhaps", "token_classification": "O,B-X,I-X"}


def words(rng, low, high):
    return "".join(rng.choices(LETTERS, k=rng.randint(low, high)))


def question(rng):
    context = " ".join(words(rng, 1, 3) for _ in range(rng.randint(2, 5)))
    answer = rng.choice(context.split())
    answers = [{"text": answer, "answer_start": context.index(answer)}] if rng.random() < 0.8 else []
    return {"question": words(rng, 2, 5), "context": context, "answers": answers}


def choice(rng):
    label = rng.randrange(3)
    return {"text": words(rng, 2, 9), "choices": [("j" if n == label else "b") * 6 for n in range(3)], "label": label}


def sentence(rng):
    tokens = [words(rng, 1, 3) for _ in range(rng.randint(2, 6))]
    return {"tokens": tokens, "labels": [("O", "B-X")[token[0] in "abc"] for token in tokens]}


# Kind -> an example as a line of the user's file.
EXAMPLE = {
    "sequence_classification": lambda rng: {
        "text": (text := words(rng, 2, 12)),
        "text_pair": words(rng, 1, 6),
        "label": ("yes", "no", "perhaps")[LETTERS.index(text[0]) % 3],
    },
    "regression": lambda rng: {"text": (text := words(rng, 2, 14)), "label": text.count("a") - 0.3 * len(text)},
    "token_classification": sentence,
    "question_answering": question,
    "multiple_choice": choice,
}


def lines(kind, count, seed):
    rng = random.Random(seed)
    return [EXAMPLE[kind](rng) for _ in range(count)]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def tensors(directory):
    """The weights of a model directory by name."""
    return safetensors.numpy.load_file(directory / "model.safetensors")


def heldout(run):
    """The lines of metrics about held-out data, by step."""
    return {line["step"]: line for line in read_lines(run / "metrics.jsonl") if line["split"] == "heldout"}


def make_world(place):
    """Write a recipe, a pretrained model, and for each kind a task: train, dev, and a test set without labels."""
    (place / "recipe.py").write_text(RECIPE)
    save(place / "start", "bert", "ForPreTraining")
    save(place / "modern", "modernbert")
    for kind in EXAMPLE:
        (place / kind).mkdir()
        for seed, (split, count) in enumerate({"train": 37, "dev": 20, "test": 5}.items()):
            records = lines(kind, count, seed)
            if split == "test":
                records = [{k: v for k, v in one.items() if k not in ("label", "labels", "answers")} for one in records]
            write_lines(place / kind / f"{split}.jsonl", records)
    return place


def finetune_command(world, workdir, kind, *more, start=None):
    """Return argv; `more` are overrides without their `--config.`."""
    settings = [f"init_from={start or world / 'start'}", "task.name=custom", f"task.kind={kind}"]
    settings += [f"task.data={world / kind}", "task.train=train.jsonl", "task.dev=dev.jsonl"]
    settings += [f"task.labels={LABELS[kind]}"] if kind in LABELS else []
    settings += SHORT_WINDOWS if kind == "question_answering" else []
    changed = {setting.partition("=")[0] for setting in more}
    settings = [setting for setting in settings if setting.partition("=")[0] not in changed]
    return [
        "finetune",
        f"--config={world / 'recipe.py'}",
        f"--workdir={workdir}",
        "--json",
        *(f"--config.{setting}" for setting in (*settings, *more)),
    ]


def finetune(*arguments, **keywords):
    """Run a fine-tuning that must succeed; return the content of `results.json`."""
    argv = finetune_command(*arguments, **keywords)
    assert main(argv) == 0
    path = pathlib.Path(arguments[1]) / "results.json"
    return json.loads(path.read_text()) if path.exists() else None


def stop_after(monkeypatch, steps, how=signal.SIGTERM):
    """Send this process a signal, or raise an exception, when its `steps`-th line of training metrics is printed."""
    printed = Console.print_training_step
    left = [steps]

    def training(self, *arguments):
        printed(self, *arguments)
        left[0] -= 1
        if left[0] == 0 and isinstance(how, int):
            os.kill(os.getpid(), how)
        elif left[0] == 0:
            raise how

    monkeypatch.setattr(Console, "print_training_step", training)
