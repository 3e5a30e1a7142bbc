"""The command line under test: a small text and the commands on it, refusals, and disks that are full."""

import contextlib
import json
import pathlib
import random
import resource
import subprocess
import sys
from typing import NamedTuple

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.model.update(dropout=0.0, attention_dropout=0.0)
    config.train.update(steps=4, batch_size=8, log_every=1)
    config.train.phases = phases({"seq_len": 24})
    config.evaluate.update(num_sequences=16, batch_size=8)
    config.checkpoint.every = 2
    return config
"""


class World(NamedTuple):
    """What the verbs make of a small text, in order."""

    texts: pathlib.Path
    tokenizer: pathlib.Path
    corpus: pathlib.Path
    recipe: pathlib.Path
    run: pathlib.Path
    model: pathlib.Path


def vocabulary(seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 7))) for _ in range(300)]


def prose(seed: int, sentences: int) -> str:
    rng, words = random.Random(seed), vocabulary()
    return " ".join(" ".join(rng.choices(words, k=rng.randint(4, 12))).capitalize() + "." for _ in range(sentences))


def prepare_command(world: World, output: pathlib.Path, *more: str, texts: pathlib.Path | None = None) -> list[str]:
    inputs = ["--input", str(texts or world.texts), "--tokenizer", str(world.tokenizer)]
    return ["prepare", *inputs, "--output", str(output), "--workers", "1", *more]


def pretrain_command(world: World, place: pathlib.Path, *more: str, corpus: pathlib.Path | None = None) -> list[str]:
    data = f"--config.data.corpus={corpus or world.corpus}"
    return ["pretrain", "--config", str(world.recipe), "--workdir", str(place), data, *more]


def make_world(place: pathlib.Path, *more: str) -> World:
    """Texts, tokenizer, corpus, recipe and run, of a recipe with these words; no model yet."""
    from bert_jax.cli.main import main

    made = World(*(place / name for name in ("texts", "tokenizer", "corpus", "recipe.py", "run", "model")))
    made.texts.mkdir()
    for number in range(40):
        (made.texts / f"{number:02}.txt").write_text(prose(number, 20))
    made.recipe.write_text(RECIPE)
    assert main(["tokenizer", "--input", str(made.texts), "--vocab_size", "200", "--output", str(made.tokenizer)]) == 0
    assert main(prepare_command(made, made.corpus, "--heldout_fraction", "0.2")) == 0
    assert main(pretrain_command(made, made.run, *more)) == 0
    return made


def command(*arguments: object) -> subprocess.Popen:
    """The same verbs as a process of their own."""
    argv = [sys.executable, "-m", "bert_jax", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_refusal(status: int | None, err: str, says: tuple[str, ...], after: int = 0) -> None:
    print(err)
    assert status == (1 if "No space left" in err else 2), err  # launchers start a run again after status 1
    assert "Traceback" not in err
    lines = err.splitlines()
    assert 1 <= len(lines) <= 2 + after, err
    message = "\n".join(lines[after:])
    assert message.startswith("bert-jax"), err
    for words in says:
        assert words in message


def is_empty(place: pathlib.Path) -> bool:
    """Whether a directory holds nothing at all, hidden leftovers included."""
    return not list(place.iterdir())


@contextlib.contextmanager
def no_file_beyond(size: int):
    """What a full disk is like: no file grows beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def losses(place: pathlib.Path) -> list[tuple[int, str, float]]:
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["split"], line["loss"]) for line in lines]
