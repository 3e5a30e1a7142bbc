"""Undisturbed results of all verbs, made once, and verbs in processes that a trial can disturb."""

import ctypes
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.__main__ import run as run_command_line
from bert_jax.training.checkpoint import read_record, saved_steps
from bert_jax.training.metrics import TIMED

SAMPLES = pathlib.Path(__file__).parents[2] / "tests" / "samples"
STEPS = 12
SECONDS = 300.0  # limit of a process; a process that takes longer counts as hung
RECIPE = f"""
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.train.update(steps={STEPS}, batch_size=8, log_every=1)
    config.train.phases = phases({{"seq_len": 24}})
    config.evaluate.update(every=6, num_sequences=16, batch_size=8)
    config.checkpoint.update(every=4, keep=3)
    config.watchdog.update(start_seconds=240, compile_seconds=240, step_seconds=60, save_seconds=240)
    return config
"""


class World(NamedTuple):
    """Paths of the inputs and of the undisturbed outputs of the verbs."""

    directory: pathlib.Path
    texts: pathlib.Path
    recipe: pathlib.Path
    task: pathlib.Path
    tokenizer: pathlib.Path
    corpus: pathlib.Path
    run: pathlib.Path
    model: pathlib.Path
    tuned: pathlib.Path


class Verb(NamedTuple):
    """A verb whose result can be compared.

    Attributes:
        command: function (world, output) -> the arguments of the verb.
        result: function (output) -> digests of everything that must equal the undisturbed result.
        resumes: True: the command continues an unfinished output; False: the verb refuses a finished output.
    """

    output: str  # the field of World that has its output
    command: Callable[[World, pathlib.Path], list[str]]
    result: Callable[[pathlib.Path], dict[str, Any]]
    resumes: bool = False


class Ended(NamedTuple):
    """End of a process: exit status (negative: a signal; None: the process hung), messages and seconds."""

    status: int | None
    text: str
    seconds: float


class Fault(NamedTuple):
    """Failure that the shim causes in the `nth` write (operation 0), fsync (1) or rename (2) of a process; -1: none."""

    operation: int
    nth: int
    kind: int


def tokenizer(world: World, output: pathlib.Path) -> list[str]:
    """Return the arguments of `tokenizer`."""
    return ["tokenizer", "--input", str(world.texts), "--vocab_size", "200", "--output", str(output)]


def prepare(world: World, output: pathlib.Path) -> list[str]:
    """Return the arguments of `prepare`."""
    inputs = ["--input", str(world.texts), "--tokenizer", str(world.tokenizer), "--output", str(output)]
    return ["prepare", *inputs, "--workers", "1", "--heldout_fraction", "0.2"]


def pretrain(world: World, output: pathlib.Path, *overrides: str) -> list[str]:
    """Return the arguments of `pretrain`."""
    data = f"--config.data.corpus={world.corpus}"
    return ["pretrain", "--config", str(world.recipe), "--workdir", str(output), data, *overrides]


def export(world: World, output: pathlib.Path) -> list[str]:
    """Return the arguments of `export`."""
    return ["export", "--workdir", str(world.run), "--output", str(output)]


def finetune(world: World, output: pathlib.Path, *overrides: str) -> list[str]:
    """Return the arguments of `finetune`."""
    task = [
        "name=custom",
        "kind=sequence_classification",
        f"data={world.task}",
        "learning_rates=(1e-3,)",
        "num_seeds=1",
    ]
    task += ["train=train.jsonl", "dev=dev.jsonl", "max_seq_len=24", "epochs=2"]
    words = [f"--config.task.{setting}" for setting in task] + [
        "--config.train.batch_size=8",
        "--config.evaluate.batch_size=8",
    ]
    return [
        "finetune",
        "--config=glue",
        "--workdir",
        str(output),
        f"--config.init_from={world.model}",
        *words,
        *overrides,
    ]


def files_of(directory: pathlib.Path) -> dict[str, Any]:
    """Return the digest of every file of a directory, by file name."""
    return {str(path.relative_to(directory)): digest(path) for path in sorted(directory.rglob("*")) if path.is_file()}


def digest(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_of(workdir: pathlib.Path) -> dict[str, Any]:
    """Return the digests of the last checkpoint's parameters and optimizer state, the metrics, and the tokenizer."""
    checkpoints = workdir / "checkpoints"
    record = read_record(checkpoints, saved_steps(checkpoints)[0])
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    metrics = [{name: value for name, value in line.items() if name not in TIMED} for line in lines]
    return {"step": record["step"], "digests": record["digests"], "metrics": metrics} | files_of(workdir / "tokenizer")


def model_of(directory: pathlib.Path) -> dict[str, Any]:
    """Return the digests of a model's files, without the model card's cost, because no checkpoint records the cost."""
    card, sums = (directory / name for name in ("README.md", "SHA256SUMS"))
    sealed = [line for line in sums.read_text().splitlines() if not line.endswith(card.name)]
    return files_of(directory) | {card.name: card.read_text().partition("\n## Cost\n")[0], sums.name: sealed}


def tuned_of(workdir: pathlib.Path) -> dict[str, Any]:
    """Return digests of the best model's weights and of the predictions, and the scores."""
    best = json.loads((workdir / "results.json").read_text())["best"]
    weights = digest(workdir / "model" / "model.safetensors")
    # A trial may rename a file, and bert_jax keeps files with names of others.
    predictions = {path.name: digest(path) for path in (workdir / "predictions").glob("custom-*")}
    return {"scores": best["scores"], "step": best["step"], "weights": weights} | predictions


VERBS = {
    "tokenizer": Verb("tokenizer", tokenizer, files_of),
    "prepare": Verb("corpus", prepare, files_of),
    "pretrain": Verb("run", pretrain, run_of, resumes=True),
    "export": Verb("model", export, model_of),
    "finetune": Verb("tuned", finetune, tuned_of, resumes=True),
}


def make_world(directory: pathlib.Path) -> World:
    """Write the texts, and run every verb."""
    world = World(directory, *(directory / name for name in World._fields[1:]))
    world.texts.mkdir()
    lines = []
    with tarfile.open(SAMPLES / "books" / "classic-books-md.tar.xz") as archive:
        books = {info.name: archive.extractfile(info) for info in archive if info.isfile()}
        texts = {pathlib.Path(name).stem: file.read().decode() for name, file in sorted(books.items()) if file}
    for name, text in texts.items():
        for part in range(8):  # number of documents; some are held out
            (world.texts / f"{name}{part}.txt").write_text(text[2_000 * part :][:2_000])
        sentences = [line for line in text.splitlines() if 40 < len(line) < 200][5:30]
        lines += [json.dumps({"text": line, "label": name[0]}) for line in sentences]
    world.recipe.write_text(RECIPE)
    world.task.mkdir()
    (world.task / "train.jsonl").write_text("\n".join(lines[::2]) + "\n")
    (world.task / "dev.jsonl").write_text("\n".join(lines[1::4]) + "\n")
    for name, verb in VERBS.items():
        ended = start(verb.command(world, getattr(world, verb.output)), directory).wait()
        if ended.status != 0:
            raise SystemExit(f"{name} failed without a fault:\n{ended.text}")
    return world


class Running:
    """Verb in a fork of this process, which has imported all modules and started no threads."""

    def __init__(self, pid: int, log: pathlib.Path) -> None:
        self.pid, self.log, self.began = pid, log, time.monotonic()

    def wait(self, seconds: float = SECONDS) -> Ended:
        """Wait until the process ends; after `seconds`, kill the process and its children."""
        status: int | None = None
        while status is None and time.monotonic() - self.began < seconds:
            pid_ended, code = os.waitpid(self.pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if pid_ended else None
            time.sleep(0 if pid_ended else 0.005)
        if status is None:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        text = self.log.read_text(errors="replace")
        self.log.unlink()
        return Ended(status, text, time.monotonic() - self.began)

    def is_running(self) -> bool:
        """Return whether the process has not ended; a stopped process is running."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def signal(self, signum: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_running():
            os.kill(self.pid, signum)


def start(
    argv: list[str],
    scratch: pathlib.Path,
    fault: Fault | None = None,
    memory: int = 0,
    clock: Callable[[], float] | None = None,
    new_python: bool = False,
    **environment: str,
) -> Running:
    """Start a verb in a new process and session; its messages go to a file next to `scratch`.

    `clock` replaces `time.time` in the process. With `new_python`, the process starts Python again, as a shell would.
    """
    log = scratch.with_name(f"{scratch.name}.{time.monotonic_ns()}.log")  # not in `scratch`: its writes never fail
    log.touch()  # the file exists even if the process is killed at once
    sys.stdout.flush()
    if pid := os.fork():
        return Running(pid, log)
    status = 70
    try:
        os.setsid()
        os.chdir(scratch)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if clock:
            time.time = clock
        if fault:
            arm(scratch, fault)
        if new_python:
            os.environ["PYTHONPATH"] = str(SAMPLES.parents[1])
            os.execv(sys.executable, [sys.executable, "-P", "-m", "bert_jax", *argv])
        sys.argv = ["bert-jax", *argv]
        status = run_command_line()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt as error:
        status = 130
        if any("bert_jax/cli" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
            traceback.print_exc()  # an interrupt in these lines is not a failure of the verb
    except BaseException:  # the process of a verb ends here, and the suite looks for its traceback
        traceback.print_exc()
    finally:
        if fault:
            counts = [ctypes.CDLL(None).fault_count(operation) for operation in range(3)]
            arm(scratch, Fault(-1, 0, 0))
            (scratch / "counts").write_text(json.dumps(counts))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def arm(directory: pathlib.Path, fault: Fault) -> None:
    """Tell the shim of this process which operation must fail."""
    ctypes.CDLL(None).fault_arm(f"{directory}/".encode(), fault.operation, ctypes.c_long(fault.nth), fault.kind)


def has_shim() -> bool:
    """Return whether the shim is loaded."""
    return hasattr(ctypes.CDLL(None), "fault_arm")


def copy(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Copy a file or a directory to `target`, and return `target`."""
    return pathlib.Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))
