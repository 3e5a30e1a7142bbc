"""Trackers get the values of metrics.jsonl, under one run when a run resumes, and end no training when they fail."""

import errno
import pathlib
import threading
import traceback
from collections.abc import Mapping

import pytest

from bert_jax.errors import UserError
from bert_jax.training import trackers as sending
from bert_jax.training.metrics import MetricsFile, read_metrics
from bert_jax.training.trackers import TRACKERS, Tracker

SETTINGS = {"seed": 3, "train.phases.0.seq_len": 64}
GONE = "it gets no more metrics, metrics.jsonl has all of them"
LINES = [
    {"step": step, "split": split, "loss": 1.5 / step} for step, split in ((1, "train"), (2, "train"), (2, "heldout"))
]


def written(workdir: pathlib.Path, tracker: str, lines: list[dict] = LINES, step: int = 0) -> list[str]:
    """Write a run's metrics, and return what is said."""
    workdir.mkdir(exist_ok=True)
    said: list[str] = []
    file = MetricsFile(workdir, step, said.append, tracker, settings=SETTINGS)
    for line in lines:
        file.write(line)
    file.close()
    return said


def test_a_tracker_gets_every_number_and_a_resumed_run_is_the_same_there(tmp_path, monkeypatch) -> None:
    opened, sent, closed = [], [], []

    def open_it(workdir: pathlib.Path, name: str, run_id: str | None, settings: Mapping[str, object]) -> Tracker:
        opened.append((name, run_id, settings))
        return Tracker("abc", lambda step, numbers: sent.append((step, numbers)), lambda: closed.append(True))

    monkeypatch.setitem(TRACKERS, "planted", open_it)
    assert written(tmp_path / "run", "planted") == []
    written(tmp_path / "run", "planted", [], step=2)
    assert opened == [("run", None, SETTINGS), ("run", "abc", SETTINGS)]
    assert sent == [(1, {"train/loss": 1.5}), (2, {"train/loss": 0.75}), (2, {"heldout/loss": 0.75})]
    assert closed == [True, True]


def test_a_tracker_that_fails_ends_no_training(tmp_path, monkeypatch) -> None:
    def send(step: int, numbers: Mapping[str, float]) -> None:
        raise ConnectionError("no route\nto the host")

    monkeypatch.setitem(TRACKERS, "planted", lambda *_: Tracker("abc", send, lambda: None))
    said = written(tmp_path / "run", "planted")
    assert said == [f"planted: no route; {GONE}"]
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == len(LINES)


def test_a_tracker_that_hangs_keeps_no_training(tmp_path, monkeypatch) -> None:
    released = threading.Event()

    def send(step: int, numbers: Mapping[str, float]) -> None:
        released.wait(10)

    monkeypatch.setattr(sending, "MAX_WAITING", 2)
    monkeypatch.setattr(sending, "CLOSE_SECONDS", 0.05)
    monkeypatch.setitem(TRACKERS, "planted", lambda *_: Tracker("abc", send, lambda: None))
    few, many = written(tmp_path / "few", "planted", LINES[:1]), written(tmp_path / "many", "planted", LINES * 3)
    released.set()
    assert few == many == [f"planted: no answer; {GONE}"]
    assert len(read_metrics(tmp_path / "many" / "metrics.jsonl")) == len(LINES * 3)


@pytest.mark.parametrize("where", ["run", "runs/another"])
def test_a_tracker_that_was_open_before_ends_no_resumed_training(tmp_path, monkeypatch, where: str) -> None:
    """The password of its URL is not said."""
    place, others = tmp_path / "run", tmp_path / where
    others.mkdir(parents=True)
    (others / "planted.id").write_text("abc\n")

    def open_it(*_: object) -> Tracker:
        raise ConnectionError("Max retries: http://user:SE@SECRET@host:5000/api and https://host/a@b\nmore")

    monkeypatch.setitem(TRACKERS, "planted", open_it)
    place.mkdir(exist_ok=True)
    said: list[str] = []
    root = place if others == place else tmp_path
    file = MetricsFile(place, 0, said.append, "planted", root=root)
    for line in LINES:
        file.write(line)
    file.close()
    assert said == [f"planted: Max retries: http://host:5000/api and https://host/a@b; {GONE}"]
    assert len(read_metrics(place / "metrics.jsonl")) == len(LINES)


def test_a_tracker_whose_id_cannot_be_written_is_refused(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(TRACKERS, "planted", lambda *_: Tracker("abc", lambda *_: None, lambda: None))
    monkeypatch.setattr(sending, "write_text", full)
    with pytest.raises(UserError, match=r"planted\.id: cannot be written \(No space left on device\); make room"):
        written(tmp_path / "run", "planted")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ImportError("No module named 'planted'"), "needs planted: pip install planted"),
        (RuntimeError("no key\nlog in"), "config.train.tracker=planted: no key; leave it out"),
        (RuntimeError("http://user:SE@SECRET@host: no key"), "config.train.tracker=planted: http://host: no key"),
    ],
)
def test_a_tracker_that_cannot_be_opened_is_refused(tmp_path, monkeypatch, error: Exception, says: str) -> None:
    def open_it(*_: object) -> Tracker:
        raise error

    monkeypatch.setitem(TRACKERS, "planted", open_it)
    with pytest.raises(UserError, match=says) as found:
        written(tmp_path / "run", "planted")
    assert "SECRET" not in "".join(traceback.format_exception(found.value))


def test_mlflow_keeps_the_numbers(tmp_path, monkeypatch) -> None:
    """Its file store: a file per metric, a line of time, value and step per number."""
    pytest.importorskip("mlflow", reason="needs pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    written(tmp_path / "run", "mlflow")
    written(tmp_path / "run", "mlflow", [{"step": 3, "split": "train", "loss": 0.5}], step=2)
    (stored,) = (tmp_path / "store").glob("*/*/metrics/train/loss")
    numbers = [line.split()[1:] for line in stored.read_text().splitlines()]
    assert [(float(value), int(step)) for value, step in numbers] == [(1.5, 1), (0.75, 2), (0.5, 3)]
    run = stored.parents[2]
    assert run.name == (tmp_path / "run" / "mlflow.id").read_text().strip()
    assert (run / "params" / "train.phases.0.seq_len").read_text() == "64"


def test_weights_and_biases_keeps_the_numbers(tmp_path, monkeypatch) -> None:
    """Offline: a directory per start, named by the run, with its records in a file."""
    pytest.importorskip("wandb", reason="needs pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    written(tmp_path / "run", "wandb")
    written(tmp_path / "run", "wandb", [{"step": 3, "split": "train", "loss": 0.5}], step=2)
    number = (tmp_path / "run" / "wandb.id").read_text().strip()
    files = list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert {file.name for file in files} == {f"run-{number}.wandb"}
    content = b"".join(file.read_bytes() for file in files)
    assert content.count(b"train/loss") >= 3
    assert b"heldout/loss" in content
    assert b"train.phases.0.seq_len" in content
