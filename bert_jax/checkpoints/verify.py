"""`bert-jax verify`: the comparison of every byte of a directory with its digests."""

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
    """The result of comparing a directory with its digests."""

    checked: str  # name of the compared files, such as "corpus of 7 files"
    damage: list[str]  # a line for each damaged part
    bytes: int  # number of bytes that were read


def verify_directory(path: pathlib.Path, progress: Progress = lambda activity, done, total, unit: None) -> Verified:
    """Compare every byte of a corpus, a tokenizer, a work directory or an export with its digests.

    Args:
        path: a directory.
        progress: called with the activity, the finished amount, the total amount, and their unit.

    Raises:
        UserError: the directory does not exist, or has no digests.
    """
    if not path.is_dir():
        reason = "a file; give the directory that holds it" if path.exists() else "no such directory"
        raise UserError(f"{path}: {reason}")
    for pattern, row in KINDS.items():
        if any(path.glob(pattern)):
            try:
                return row.verify(path, progress)
            except UserError as error:
                return Verified(row.name, [str(error)], 0)
    raise UserError(
        f"{path}: nothing to compare with (no {files.SUMS}); where you trust the files, write their digests: "
        f"cd {path} && find . -type f ! -name {files.SUMS} -exec sha256sum {{}} + > {files.SUMS}"
    )


def _verify_sha256sums(path: pathlib.Path, progress: Progress) -> Verified:
    """Compare the files of a directory with its SHA256SUMS."""
    names = files.read_sums(path)
    size = _total_bytes(path, *names)
    damage = files.damaged_files(path, on_read=_megabyte_progress(progress, size))
    return Verified(f"{len(names)} files of {files.SUMS}", damage, size)


def _verify_corpus(path: pathlib.Path, progress: Progress) -> Verified:
    """Compare the files and the tokenizer of a corpus with its manifest."""
    names, tokenizer = manifest.digests_of_all_files(path), manifest.read_manifest(path)["tokenizer"]["sha256"]
    size = _total_bytes(path, *names)
    damage = manifest.verify_corpus(path, _megabyte_progress(progress, size))
    damage += _tokenizer_damage(path / "tokenizer", tokenizer, "the manifest")
    return Verified(f"corpus of {len(names)} files and tokenizer/", damage, size)


def _verify_work_directory(path: pathlib.Path, progress: Progress) -> Verified:
    """Compare checkpoints, run.json and tokenizer of a run with their digests; check the models of `finetune`."""
    from bert_jax.training import workdir
    from bert_jax.training.checkpoint import Checkpoints, CorruptCheckpointError, saved_steps
    from bert_jax.training.metrics import damaged_lines
    from bert_jax.training.remote_workdir import checkpoints_directory

    damage, count, size, run = list[str](), 0, 0, None
    try:
        run = workdir.read_run(path)
        damage += _tokenizer_damage(path / "tokenizer", run[1]["tokenizer"], "run.json")
    except UserError as error:
        damage.append(str(error))
    directories = (path, *sorted(path.glob("runs/*")))
    saved = {directory: saved_steps(checkpoints_directory(directory)) for directory in directories}
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
                if run and directory == path:
                    workdir.check_run_matches_record(path, to_json(run[0]), run[1], record)
                elif run and record["fingerprint"] != run[1]:
                    damage.append(f"{checkpoints_directory(directory) / str(step)}: of another run than run.json")
            except CorruptCheckpointError as error:
                damage.append(f"{checkpoints_directory(directory) / str(step)}: {error}")
            except UserError as error:
                damage.append(str(error))
        if checkpoints:
            checkpoints.close()
        if lines := damaged_lines(directory / "metrics.jsonl"):
            damage.append(f"{directory / 'metrics.jsonl'}: damaged lines: {len(lines)}")
    for json_path in (*path.glob("budget.json"), *path.glob("results.json"), *path.glob("runs/*/result.json")):
        try:
            json.loads(files.read_file(json_path))
        except ValueError as error:
            damage.append(f"{json_path}: {error}")
    for model in (path / "model", *path.glob("runs/*/best-*")):
        try:
            damage += files.damaged_files(model)
            size += _total_bytes(model, *files.read_sums(model))
        except UserError as error:
            damage.append(str(error))
    return Verified(f"{count} checkpoint{'s' * (count != 1)}, run.json, tokenizer/", list(dict.fromkeys(damage)), size)


def _tokenizer_damage(path: pathlib.Path, sha256: str, source: str) -> list[str]:
    """Return a line for each damaged part of a tokenizer; `source` names the file that holds the digest `sha256`."""
    try:
        is_same = load_tokenizer(path).sha256 == sha256
    except UserError as error:
        return [str(error)]
    return files.damaged_files(path) + ([] if is_same else [f"{path}: not the tokenizer of {source}"])


def _megabyte_progress(progress: Progress, size: int) -> Callable[[int], None]:
    """Return a function that takes the size of each piece read, and reports the megabytes read, out of `size` bytes."""
    done = 0

    def add_read_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress("verifying", done // 10**6, size // 10**6, "MB")

    return add_read_bytes


def _total_bytes(path: pathlib.Path, *names: str) -> int:
    """Return the total size in bytes of the named files that exist."""
    return sum((path / name).stat().st_size for name in names if (path / name).is_file())


class DirectoryKind(NamedTuple):
    """A row of KINDS: the name of a kind of directory, and its check."""

    name: str
    verify: Callable[[pathlib.Path, Progress], Verified]


# Pattern of a file in the directory -> the kind of directory; the first pattern that matches decides.
KINDS = {
    files.SUMS: DirectoryKind("sealed directory", _verify_sha256sums),
    "run.json": DirectoryKind("work directory", _verify_work_directory),
    "checkpoints": DirectoryKind("work directory", _verify_work_directory),
    "manifest.json": DirectoryKind("corpus", _verify_corpus),
    "*.arrayrecord": DirectoryKind("corpus", _verify_corpus),
}
