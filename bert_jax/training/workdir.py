"""The lock of a work directory, and the recorded config and tokenizer of its run."""

import contextlib
import fcntl
import json
import os
import pathlib
import platform
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from bert_jax import __version__, strict_json
from bert_jax.config import Config, PretrainConfig, flatten, from_json, to_json
from bert_jax.corpus.manifest import parse_corpus_and_snapshot
from bert_jax.errors import UserError, with_message, writing
from bert_jax.files import new_directory, read_file, remove_partial_files, write_text
from bert_jax.parallel.energy import find_energy_counters
from bert_jax.readers.hub import local_or_downloaded_model, parse_hub_name
from bert_jax.tokenizer import copy_tokenizer, load_tokenizer
from bert_jax.training.checkpoint import CorruptCheckpointError, Record, package_versions, read_record, saved_steps
from bert_jax.training.remote_workdir import checkpoints_directory, local_copy, mirror_of
from bert_jax.training.resuming import refused_changes

LOCK = ".lock"  # file that is locked during a run
ELSEWHERE = "make room, or choose another --workdir"
RESTORE = "restore this run's copy, or delete the file and repeat the training command"
# Files and directories that a process writes while it holds the lock.
WRITTEN = ("run.json", "tokenizer", "*.lock", "metrics.jsonl", "result.json", "results.json", "model", "best-*", "*.id")
SHA256_DIGITS = 64
MAX_NAMED = 3  # maximum number of differences in a message; if there are more, the message has two and their number
# Part of the fingerprint -> config keys for the path of the part; the first key that is set counts.
PATH_KEYS = {
    "corpus": ("data.corpus",),
    "task": ("task.data", "task.train"),
    "weights": ("init_from",),
    "retrieval": ("task.retrieval",),
}

Values = dict[str, Any]  # a config as `to_json` writes it
Fingerprint = dict[str, str]  # digests of the inputs that a resumed run must find again: corpus, tokenizer, ...


@contextlib.contextmanager
def locked_workdir(workdir: pathlib.Path) -> Iterator[None]:
    """Create the work directory and lock it during the `with` block; on object storage, become the owner of the run.

    If the block raises UserError and has written nothing, a directory that did not exist before is removed. Raise
    UserError if another process holds the lock, or if the directory is a corpus.
    """
    is_new = not workdir.exists()
    with writing(workdir, ELSEWHERE):
        if (workdir / "manifest.json").exists():
            raise UserError(f"{workdir} holds a corpus (its manifest.json); choose another --workdir")
        workdir.mkdir(parents=True, exist_ok=True)
        file = open(workdir / LOCK, "w")  # noqa: SIM115 (closed by the ExitStack below)
    with contextlib.ExitStack() as stack:
        stack.enter_context(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{workdir}: another process is training here; choose another --workdir") from error
        with writing(workdir, ELSEWHERE):
            for directory in (workdir, *workdir.glob("runs/lr*_seed*")):
                remove_partial_files(directory, WRITTEN)
                remove_partial_files(directory / "predictions", ("*",))
        mirror = mirror_of(workdir)
        try:
            with mirror.as_owner() if mirror else contextlib.nullcontext():
                yield
        except UserError:
            if is_new and [path.name for path in workdir.iterdir()] == [LOCK]:
                (workdir / LOCK).unlink()
                workdir.rmdir()
            raise


def write_or_check_run(
    workdir: pathlib.Path, config: Values, fingerprint: Fingerprint, tokenizer: pathlib.Path
) -> None:
    """Write the config and the tokenizer of a new run; raise UserError if the directory has a different run.

    If run.json was removed, the config and the fingerprint are compared with the newest checkpoint.
    """
    path, record = workdir / "run.json", _newest_record(workdir)
    if path.exists() or record:
        _refuse_different_run(workdir, config, fingerprint, record)
    elif has_checkpoints(workdir):
        raise UserError(f"{workdir} holds damaged checkpoints and no run.json; choose another --workdir")
    with writing(workdir, ELSEWHERE):
        if (workdir / "tokenizer").exists():
            _check_tokenizer(workdir, fingerprint["tokenizer"])
        else:
            with new_directory(workdir / "tokenizer") as partial:
                copy_tokenizer(tokenizer, partial)
        run = {"config": config, "fingerprint": fingerprint, "machine": machine_info()}
        write_text(path, json.dumps(run, indent=1) + "\n")
    if mirror := mirror_of(workdir):
        mirror.upload_changed_files()


def _refuse_different_run(
    workdir: pathlib.Path, config: Values, fingerprint: Fingerprint, record: Record | None
) -> None:
    """Raise UserError if run.json or, without run.json, the newest record of a checkpoint has a different run."""
    if has_run_file := (workdir / "run.json").exists():
        saved_config, saved_fingerprint = read_run(workdir)
        saved = to_json(saved_config), saved_fingerprint
    else:
        assert record
        saved = to_json(from_json(record["config"])), record["fingerprint"]
    step = max(saved_steps(checkpoints_directory(workdir)), default=0)
    changed = _run_differences(*saved, config, fingerprint, step)
    if changed and record and has_run_file:
        _check_run_file(workdir, *saved, record)
    if changed:
        named = changed if len(changed) <= MAX_NAMED else [*changed[:2], f"and {len(changed) - 2} more"]
        raise UserError(
            f"{workdir} holds a run that differs ({'; '.join(named)}); restore them, or use another --workdir"
        )


def check_run_matches_record(workdir: pathlib.Path, config: Values, fingerprint: Fingerprint, record: Record) -> None:
    """Raise UserError if the config, the fingerprint or the tokenizer of a run differs from the record of a checkpoint.

    The message names the part that belongs to a different run.
    """
    checkpoint, sealed = workdir / "checkpoints" / str(record["step"]), record["fingerprint"]
    if sealed["tokenizer"] != fingerprint["tokenizer"] == load_tokenizer(workdir / "tokenizer").sha256:
        raise UserError(
            f"{checkpoint} is the checkpoint of another run: its tokenizer differs from run.json and tokenizer/; "
            "remove it"
        )
    _check_run_file(workdir, config, fingerprint, record)
    _check_tokenizer(workdir, sealed["tokenizer"])


def _check_run_file(workdir: pathlib.Path, config: Values, fingerprint: Fingerprint, record: Record) -> None:
    """Raise UserError if run.json differs from the record of a checkpoint."""
    saved = to_json(from_json(record["config"]))
    changed = _run_differences(saved, record["fingerprint"], config, fingerprint, record["step"])
    if changed:
        raise UserError(
            f"{workdir / 'run.json'} was changed: it differs from the record in checkpoints/{record['step']} "
            f"({'; '.join(changed)}); {RESTORE}"
        )


def _check_tokenizer(workdir: pathlib.Path, sha256: str) -> None:
    """Raise UserError if the digest of the work directory's tokenizer is not `sha256`, the recorded digest."""
    directory = workdir / "tokenizer"
    present = load_tokenizer(directory).sha256
    if present != sha256:
        raise UserError(
            f"{directory} is not the tokenizer of this run (digest {present[:12]}, of the run {sha256[:12]}); "
            "remove it, and repeat the training command, which copies the right tokenizer"
        )


def _newest_record(workdir: pathlib.Path) -> Record | None:
    """Return the newest undamaged record of a checkpoint in a work directory; None if there is no such record."""
    directory = checkpoints_directory(workdir)
    for step in saved_steps(directory):
        with contextlib.suppress(CorruptCheckpointError):
            return read_record(directory, step)
    return None


def _run_differences(saved: Values, saved_data: Fingerprint, config: Values, data: Fingerprint, step: int) -> list[str]:
    """Return a line for each difference (settings, fingerprint) between a saved run of `step` steps and a new run."""

    def difference(name: str) -> str:
        values = [str(fingerprint.get(name)) for fingerprint in (saved_data, data)]
        before, after = (text[:12] if len(text) == SHA256_DIGITS else text for text in values)  # 12 digits suffice
        old, new = (_path_of_part(name, settings) for settings in (saved, config))
        if old == new and min(map(len, values)) == SHA256_DIGITS:
            return " ".join(filter(None, (f"{name}:", new, f"has other content, {before} -> {after}")))
        old, new = (",".join(parse_corpus_and_snapshot(path)[0] for path in each.split(",")) for each in (old, new))
        return f"{name}: {f'{old} {before}'.strip()} -> {f'{new} {after}'.strip()}"

    return refused_changes(saved, config, step) + [
        difference(name) for name in saved_data | data if saved_data.get(name) != data.get(name)
    ]


def _path_of_part(name: str, values: Values) -> str:
    """Return the path that the settings `values` give for a part of the fingerprint; '' without a path."""
    flat = flatten(values)
    return next((str(flat[key]) for key in PATH_KEYS.get(name, ()) if flat.get(key)), "")


class RecordedRun(NamedTuple):
    """The config and the data fingerprint of run.json."""

    config: Config
    fingerprint: Fingerprint


def read_run(workdir: pathlib.Path) -> RecordedRun:
    """Return config and fingerprint of the run in `workdir`; raise UserError if run.json is absent or damaged."""
    path = workdir / "run.json"
    if not path.exists():
        if (workdir / "config.json").exists():
            raise UserError(
                f"{workdir}: a model, but no run here (no run.json); give the work directory that `pretrain` or "
                "`finetune` wrote"
            )
        runs = sorted(run.parent.name for run in workdir.parent.glob("*/run.json"))
        known = f"; the runs of {workdir.parent} are {', '.join(map(repr, runs[:MAX_NAMED]))}" if runs else ""
        absent = "no run.json" if workdir.is_dir() else "no such directory"
        raise UserError(f"{workdir}: no run here ({absent}){known or '; `bert-jax pretrain` trains a run'}")
    try:
        run = strict_json.parse(read_file(path, strict_json.MAX_BYTES).decode())
        values, fingerprint = run["config"], run["fingerprint"]
        if not isinstance(values, dict) or "tokenizer" not in fingerprint:
            raise ValueError("no config or no fingerprint")
        if not all(isinstance(digest, str) for digest in fingerprint.values()):
            raise ValueError("a fingerprint that is no text")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: damaged ({error}); {RESTORE}") from None
    try:
        return RecordedRun(from_json(values), fingerprint)
    except UserError as error:
        raise with_message(
            error, f"{path}: damaged, or written by another version of bert_jax ({error}); {RESTORE}"
        ) from None


def recorded_config(workdir: pathlib.Path) -> PretrainConfig | None:
    """Return the config of the pretraining in `workdir`; None if no pretraining has begun."""
    config: Config | None = None
    with contextlib.suppress(UserError):  # `write_or_check_run` reports damaged files
        if (workdir / "run.json").exists():
            config, _ = read_run(workdir)
        elif record := _newest_record(workdir):
            config = from_json(record["config"])
    return config if isinstance(config, PretrainConfig) else None


def has_checkpoints(workdir: pathlib.Path) -> bool:
    """Return whether the run in `workdir` has a checkpoint, from which it can resume."""
    return bool(saved_steps(checkpoints_directory(workdir)))


def machine_info() -> dict[str, str | int]:
    """Return the devices and package versions of this start of a run, for its report."""
    return {
        "devices": jax.device_count(),
        "device_kind": jax.devices()[0].device_kind,
        "processes": jax.process_count(),
        "cores": os.cpu_count() or 1,  # number of cores of this host
        "energy": find_energy_counters().text,  # the kind of measurement, or why there is none
        "bert_jax": __version__,
        "python": platform.python_version(),
        **package_versions(),
    }


def read_recorded_machine_info(workdir: pathlib.Path) -> dict[str, str | int]:
    """Return the devices and package versions at the last start of the run in `workdir`; {} if run.json has none."""
    try:
        machine = strict_json.parse(read_file(workdir / "run.json", strict_json.MAX_BYTES).decode())["machine"]
        return {str(name): value for name, value in machine.items() if isinstance(value, str | int)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def resolve_model_dir(path_or_url: str | os.PathLike[str]) -> pathlib.Path:
    """Return the local model directory of a path, a URL or a name on the Hugging Face Hub.

    For a work directory of `finetune`, return its subdirectory `model/`; for any other directory, return the directory
    itself.
    """
    directory = local_copy(local_or_downloaded_model(path_or_url) if parse_hub_name(path_or_url) else path_or_url)
    best = directory / "model"
    return best if (best / "config.json").is_file() else directory
