"""`bert-jax verify`: every byte of a directory against the digests that were written with it."""

import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from bert_jax import files
from bert_jax.config import CheckpointConfig, to_json
from bert_jax.corpus import manifest
from bert_jax.errors import UserError
from bert_jax.tokenizer import load_tokenizer

Progress = Callable[[str, int, int, str], None]


class Verified(NamedTuple):
    """What was compared, and what is wrong."""

    checked: str  # such as "corpus of 7 files"
    damage: list[str]  # a line for each damaged part
    bytes: int  # that were read


def verify(place: pathlib.Path, progress: Progress = lambda what, done, total, unit: None) -> Verified:
    """Read all of a corpus, a tokenizer, a work directory or an export, and compare it with its digests.

    Args:
        place: a directory.
        progress: is called with what is read, how much of it is done and how much it is in all, and the unit of both.

    Raises:
        UserError: no such directory, or none that has digests.
    """
    if not place.is_dir():
        raise UserError(f"{place}: no such directory")
    for pattern, row in KINDS.items():
        if any(place.glob(pattern)):
            try:
                return row.verify(place, progress)
            except UserError as error:
                return Verified(row.name, [str(error)], 0)
    raise UserError(
        f"{place}: nothing to compare with (no {files.SUMS}); seal it where you trust it: "
        f"cd {place} && find . -type f ! -name {files.SUMS} -exec sha256sum {{}} + > {files.SUMS}"
    )


def _sealed(place: pathlib.Path, progress: Progress) -> Verified:
    names = files.read_sums(place)
    size = _size(place, *names)
    found = files.damaged_files(place, on_read=_megabytes(progress, size))
    return Verified(f"{len(names)} files of {files.SUMS}", found, size)


def _corpus(place: pathlib.Path, progress: Progress) -> Verified:
    names, tokenizer = manifest.all_digests(place), manifest.read_manifest(place)["tokenizer"]["sha256"]
    size = _size(place, *names)
    damage = manifest.verify(place, _megabytes(progress, size))
    damage += _tokenizer(place / "tokenizer", tokenizer, "the manifest")
    return Verified(f"corpus of {len(names)} files and tokenizer/", damage, size)


def _work_directory(place: pathlib.Path, progress: Progress) -> Verified:
    """Checkpoints against their records, run.json and tokenizer against these, and the models of a `finetune`."""
    from bert_jax.training import workdir
    from bert_jax.training.checkpoint import Checkpoints, CorruptCheckpointError, saved_steps
    from bert_jax.training.metrics import damaged_lines
    from bert_jax.training.remote_workdir import checkpoints_in

    damage, count, size, run = list[str](), 0, 0, None
    try:
        run = workdir.read_run(place)
        damage += _tokenizer(place / "tokenizer", run[1]["tokenizer"], "run.json")
    except UserError as error:
        damage.append(str(error))
    directories = (place, *sorted(place.glob("runs/*")))
    saved = {directory: saved_steps(checkpoints_in(directory)) for directory in directories}
    total = sum(len(steps) for steps in saved.values())
    for directory, steps in saved.items():
        checkpoints = Checkpoints(directory, CheckpointConfig(), read_only=True) if steps else None
        for step in steps:
            assert checkpoints
            count += 1
            progress("verifying", count - 1, total, "checkpoints")
            try:
                record, read = checkpoints.verify(step)
                size += read
                if run and directory == place:
                    workdir.check_record(place, to_json(run[0]), run[1], record)
                elif run and record["fingerprint"] != run[1]:
                    damage.append(f"{checkpoints_in(directory) / str(step)}: of another run than run.json")
            except CorruptCheckpointError as error:
                damage.append(f"{checkpoints_in(directory) / str(step)}: {error}")
            except UserError as error:
                damage.append(str(error))
        if checkpoints:
            checkpoints.close()
        if lines := damaged_lines(directory / "metrics.jsonl"):
            damage.append(f"{directory / 'metrics.jsonl'}: damaged lines: {len(lines)}")
    for path in (*place.glob("budget.json"), *place.glob("results.json"), *place.glob("runs/*/result.json")):
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            damage.append(f"{path}: {error}")
    for model in (place / "model", *place.glob("runs/*/best-*")):
        try:
            damage += files.damaged_files(model)
            size += _size(model, *files.read_sums(model))
        except UserError as error:
            damage.append(str(error))
    return Verified(f"{count} checkpoints, run.json, tokenizer/", list(dict.fromkeys(damage)), size)


def _tokenizer(place: pathlib.Path, sha256: str, source: str) -> list[str]:
    """What is wrong with a tokenizer of which `source` says the digest."""
    try:
        same = load_tokenizer(place).sha256 == sha256
    except UserError as error:
        return [str(error)]
    return files.damaged_files(place) + ([] if same else [f"{place}: not the tokenizer of {source}"])


def _megabytes(progress: Progress, size: int) -> Callable[[int], None]:
    """What is called with the bytes of each piece that was read, of `size` in all."""
    done = 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        progress("verifying", done // 10**6, size // 10**6, "MB")

    return read


def _size(place: pathlib.Path, *names: str) -> int:
    """Bytes of the files that are there."""
    return sum((place / name).stat().st_size for name in names if (place / name).is_file())


class Kind(NamedTuple):
    """A row of KINDS."""

    name: str
    verify: Callable[[pathlib.Path, Progress], Verified]


# A file that such a directory has -> what it is; the first that fits.
KINDS = {
    files.SUMS: Kind("sealed directory", _sealed),
    "run.json": Kind("work directory", _work_directory),
    "checkpoints": Kind("work directory", _work_directory),
    "manifest.json": Kind("corpus", _corpus),
    "*.arrayrecord": Kind("corpus", _corpus),
}
