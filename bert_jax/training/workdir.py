"""A work directory: one run, one process at a time, its config and tokenizer beside its checkpoints."""

import contextlib
import fcntl
import json
import os
import pathlib
import platform
from collections.abc import Iterator

import jax

from bert_jax import __version__
from bert_jax.config import Config, flatten, from_json, to_json
from bert_jax.data.tokenizer import copy_tokenizer
from bert_jax.errors import UserError, writing
from bert_jax.training.checkpoint import versions
from bert_jax.training.resuming import refused_changes

ELSEWHERE = "make room, or choose another --workdir"
# Part of the fingerprint -> the key of the config that says where it is.
PATH_KEYS = {"corpus": "data.corpus", "task": "task.data", "weights": "init_from"}


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
    """Create the directory and lock it against a second process.

    Raises UserError where that is not possible, and for the directory of a corpus.
    """
    with writing(workdir, ELSEWHERE):
        if (workdir / "manifest.json").exists():
            raise UserError(f"{workdir} holds a corpus (its manifest.json); choose another --workdir")
        workdir.mkdir(parents=True, exist_ok=True)
        file = open(workdir / ".lock", "w")  # noqa: SIM115 (closed by the ExitStack below)
    with contextlib.ExitStack() as stack:
        stack.enter_context(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{workdir}: another process is training here; choose another --workdir") from error
        yield


def claim(workdir: pathlib.Path, config: Config, fingerprint: dict[str, str], tokenizer: pathlib.Path) -> None:
    """Write config and tokenizer of a new run; UserError where the directory holds a run with other ones."""
    run = {"config": to_json(config), "fingerprint": fingerprint, "machine": machine()}
    path = workdir / "run.json"
    if path.exists():
        saved, old = read_run(workdir)
        steps = [int(place.name) for place in (workdir / "checkpoints").glob("*") if place.name.isdigit()]
        different = refused_changes(saved, config, max(steps, default=0))
        different += [
            f"{key}: {_named(saved, key, old)} -> {_named(config, key, fingerprint)}"
            for key in fingerprint
            if old.get(key) != fingerprint[key]
        ]
        if different:
            raise UserError(
                f"{workdir} holds a run that differs ({'; '.join(different)}); "
                "resume with the same settings, or choose another --workdir"
            )
    elif (workdir / "checkpoints").exists():
        raise UserError(f"{workdir} holds checkpoints without their run.json; choose another --workdir")
    with writing(workdir, ELSEWHERE):
        if not (workdir / "tokenizer").exists():
            (workdir / "tokenizer.tmp").mkdir(exist_ok=True)
            copy_tokenizer(tokenizer, workdir / "tokenizer.tmp")
            os.replace(workdir / "tokenizer.tmp", workdir / "tokenizer")
        fresh = workdir / "run.json.tmp"
        fresh.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)


def _named(config: Config, key: str, fingerprint: dict[str, str]) -> str:
    """The path, if the config knows it, and enough of the digest to distinguish it from another."""
    path = flatten(to_json(config)).get(PATH_KEYS.get(key, "")) or ""
    return f"{path} {str(fingerprint.get(key))[:12]}".strip()


def read_run(workdir: pathlib.Path) -> tuple[Config, dict[str, str]]:
    """Return config and data fingerprint of the run in `workdir`; UserError where there is none."""
    path = workdir / "run.json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        values, fingerprint = run["config"], run["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{workdir}: no run here (no readable run.json); train one with `bert-jax pretrain`") from error
    try:
        return from_json(values), fingerprint
    except UserError as error:
        raise UserError(
            f"{path} is of another version of bert_jax ({error}); train again in another --workdir"
        ) from None


def machine() -> dict[str, str | int]:
    """Return devices and versions of this run, for its report; nothing that a resumed run must find again."""
    return {
        "devices": jax.device_count(),
        "device_kind": jax.devices()[0].device_kind,
        "processes": jax.process_count(),
        "cores": os.cpu_count() or 1,  # of this host
        "bert_jax": __version__,
        "python": platform.python_version(),
        **versions(),
    }


def read_machine(workdir: pathlib.Path) -> dict[str, str | int]:
    """Return what `machine` said when the run in `workdir` last began; {} for a run of an older version."""
    try:
        found = json.loads((workdir / "run.json").read_text(encoding="utf-8")).get("machine", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, str | int)}


def model_in(directory: pathlib.Path) -> pathlib.Path:
    """Return where the model of a directory is: the best one of a `finetune` work directory, else the directory."""
    best = directory / "model"
    return best if (best / "config.json").is_file() else directory
