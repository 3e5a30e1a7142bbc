"""Damage a random file that the verbs write, in a random way, and let a verb read it."""

import os
import pathlib
import random
import re
import shutil
from collections.abc import Callable

from benchmarks.faults.outcome import Outcome, compared, same_result
from benchmarks.faults.world import VERBS, Ended, World, copy, start

Damage = Callable[[random.Random, pathlib.Path], None]


def flip(rng: random.Random, path: pathlib.Path) -> None:
    """Flip one bit of the file."""
    data = bytearray(path.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(rng: random.Random, path: pathlib.Path) -> None:
    """Cut off the end of the file."""
    os.truncate(path, rng.randrange(max(1, path.stat().st_size)))


def zero(rng: random.Random, path: pathlib.Path) -> None:
    """Overwrite a block of up to 4 KiB with zeros."""
    data = bytearray(path.read_bytes())
    begin = rng.randrange(max(1, len(data)))
    data[begin : begin + 4096] = bytes(len(data[begin : begin + 4096]))
    path.write_bytes(data)


def delete(rng: random.Random, path: pathlib.Path) -> None:
    """Remove the file."""
    path.unlink()


def swap(rng: random.Random, path: pathlib.Path) -> None:
    """Exchange the file with another file of the directory."""
    if others := [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]:
        other, content = rng.choice(others), path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)


def edit(rng: random.Random, path: pathlib.Path) -> None:
    """Change a digit of the file, as a person with an editor might; if the file has no digit, change a letter."""
    data = path.read_bytes()
    offsets = [match.start() for match in re.finditer(rb"\d", data)] or list(range(len(data)))
    if offsets:
        offset = rng.choice(offsets)
        path.write_bytes(data[:offset] + (b"7" if data[offset : offset + 1] != b"7" else b"3") + data[offset + 1 :])


def rename(rng: random.Random, path: pathlib.Path) -> None:
    """Give the file another name."""
    path.rename(path.with_name(f"x{path.name}"))


DAMAGES: tuple[Damage, ...] = (flip, truncate, zero, delete, swap, edit, rename)


def _victim(rng: random.Random, artifact: pathlib.Path) -> pathlib.Path:
    return rng.choice(sorted(path for path in artifact.rglob("*") if path.is_file() and path.name != ".lock"))


def _damage(rng: random.Random, artifact: pathlib.Path) -> str:
    victim, damage = _victim(rng, artifact), rng.choice(DAMAGES)
    damage(rng, victim)
    return f"{damage.__name__} {victim.relative_to(artifact.parent)}"


def _verb(name: str, world: World, output: pathlib.Path, harm: str) -> Outcome:
    ended = start(VERBS[name].command(world, output), output.parent).wait()
    return compared(ended, f"{harm}, {name}", ended.status == 0 and same_result(VERBS[name], world, output))


def tokenizers(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Damage a tokenizer, and let `prepare` read it."""
    artifact = copy(world.tokenizer, scratch / "tokenizer")
    harm = _damage(rng, artifact)
    return _verb("prepare", world._replace(tokenizer=artifact), scratch / "out", harm)


def corpora(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Damage a corpus, and let `pretrain` read it."""
    artifact = copy(world.corpus, scratch / "corpus")
    harm = _damage(rng, artifact)
    return _verb("pretrain", world._replace(corpus=artifact), scratch / "out", harm)


def unfinished_runs(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Damage a work directory without its last checkpoint, and let `pretrain` resume it."""
    artifact = copy(world.run, scratch / "out")
    shutil.rmtree(max((artifact / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name)))
    harm = _damage(rng, artifact)
    return _verb("pretrain", world, artifact, harm)


def runs(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Damage a work directory, and let `export` read it."""
    artifact = copy(world.run, scratch / "run")
    harm = _damage(rng, artifact)
    return _verb("export", world._replace(run=artifact), scratch / "out", harm)


def tunings(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Damage a work directory of `finetune`, and repeat the command."""
    artifact = copy(world.tuned, scratch / "out")
    if rng.random() < 0.5:
        shutil.rmtree(artifact / "model")
        (artifact / "results.json").unlink()
    harm = _damage(rng, artifact)
    return _verb("finetune", world, artifact, harm)


def exports(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Damage an exported model, and let `fill-mask` read it."""
    artifact = copy(world.model, scratch / "model")
    harm = _damage(rng, artifact)
    ended = fill_mask(world, artifact, scratch)
    right = world.directory / "fill_mask.json"
    return compared(ended, f"{harm}, fill-mask", ended.text == right.read_text())


def fill_mask(world: World, model: pathlib.Path, scratch: pathlib.Path) -> Ended:
    """Run `fill-mask` with a model."""
    return start(["fill-mask", "--model", str(model), "--json", "the [MASK] of the house"], scratch).wait()
