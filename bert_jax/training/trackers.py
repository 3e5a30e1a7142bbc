"""Trackers (Weights & Biases, MLflow), which get a copy of a run's metrics.

If a run resumes, its run in the tracker resumes, too. A tracker that fails gets no more metrics, and the training
continues. To add a tracker, write a function that opens it, and add a row to TRACKERS. Addresses and keys are set by
the environment variables and commands of the tracker, such as WANDB_MODE=offline or MLFLOW_TRACKING_URI=http://...
"""

import os
import pathlib
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax.errors import UserError, writing
from bert_jax.files import read_file, write_text

ANSWER_SECONDS = 60.0  # maximum wait until a service opens a run, and until Weights & Biases has uploaded the rest
CLOSE_SECONDS = 10.0  # maximum wait until a tracker has taken the last lines
MAX_ID_BYTES = 1000
MAX_WAITING = 1000  # maximum number of lines that wait for a tracker
PROJECT = "bert_jax"  # name of the project in Weights & Biases, and of the experiment in MLflow
MAX_PARAMS, MAX_CHARACTERS = 100, 500  # maximum parameters of a request to MLflow, and characters of a parameter


class Tracker(NamedTuple):
    """An open run of a tracker: its id for a resumption, and the functions that send numbers and close the run."""

    run_id: str
    send: Callable[[int, Mapping[str, float]], None]
    close: Callable[[], None]


def open_wandb(workdir: pathlib.Path, name: str, run_id: str | None, settings: Mapping[str, Any]) -> Tracker:
    """Open a run of Weights & Biases; the step is sent as a metric, because a resumed run goes back some steps."""
    import wandb

    quiet = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        init_timeout=ANSWER_SECONDS,
        finish_timeout=ANSWER_SECONDS,  # the default is to wait without a limit
    )
    run = wandb.init(
        project=PROJECT,
        dir=workdir,
        id=run_id,
        resume="allow",
        name=name,
        config=dict(settings),
        settings=quiet,
    )
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    return Tracker(run.id, lambda step, numbers: run.log({"step": step, **numbers}), run.finish)


def open_mlflow(workdir: pathlib.Path, name: str, run_id: str | None, settings: Mapping[str, Any]) -> Tracker:
    """Open a run of MLflow, with the settings as its parameters."""
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient()
    if run_id is None:
        project = client.get_experiment_by_name(PROJECT)
        experiment = project.experiment_id if project else client.create_experiment(PROJECT)
        run_id = str(client.create_run(experiment, run_name=name).info.run_id)
        params = [Param(key.replace("[", ".").replace("]", ""), f"{x}"[:MAX_CHARACTERS]) for key, x in settings.items()]
        for begin in range(0, len(params), MAX_PARAMS):
            client.log_batch(run_id, params=params[begin : begin + MAX_PARAMS])
    else:
        client.update_run(run_id, "RUNNING")
    known = run_id

    def send(step: int, numbers: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        client.log_batch(known, metrics=[Metric(name, value, now, step) for name, value in numbers.items()])

    return Tracker(known, send, lambda: client.set_terminated(known))


# Name of a tracker and of its package -> function (work directory, name of the run, id of the run to resume or None,
# settings by key) that opens a run. The function is not called in the main thread.
TRACKERS: dict[str, Callable[[pathlib.Path, str, str | None, Mapping[str, Any]], Tracker]] = {
    "wandb": open_wandb,
    "mlflow": open_mlflow,
}


class MetricsSender:
    """A sender of a run's metrics to a tracker, in a thread.

    The file `WORKDIR/NAME.id` has the id of the run in the tracker, for a later resumption. If the tracker fails or
    hangs, the training continues, a line is printed, and the tracker gets no more metrics. The thread opens the
    tracker, sends metrics, and closes the tracker. All methods except `close` return immediately.

    Args:
        name: name of the tracker, a key of TRACKERS.
        workdir: work directory of the run.
        root: `workdir`, or the work directory above `workdir`; the path relative to `root` is the name of the run.
        settings: settings of the run by key.
        say: function that prints a line if the tracker fails; only the methods below call it, never the thread.

    Raises:
        UserError: the tracker's package is not installed, the id cannot be written, or the tracker cannot be opened and
            was never opened in `root`.
    """

    def __init__(
        self,
        name: str,
        workdir: pathlib.Path,
        root: pathlib.Path,
        settings: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._name, self._say = name, say
        self._lines = queue.Queue[tuple[int, Mapping[str, float]] | None](MAX_WAITING)  # None marks the end
        self._opened, self._run_id = threading.Event(), ""
        self._error: Exception | None = None
        self._given_up = False
        path = workdir / f"{name}.id"
        known = read_file(path, MAX_ID_BYTES).decode(errors="replace").strip() if path.exists() else None
        title = os.path.relpath(workdir, root / os.pardir)
        self._thread = threading.Thread(
            target=self._send_lines_in_thread, args=(workdir, title, known or None, settings), name=name, daemon=True
        )
        self._thread.start()
        self._opened.wait(ANSWER_SECONDS)
        if isinstance(self._error, ImportError):
            raise UserError(f"config.train.tracker={name} needs {name}: pip install {name} ({self._error})")
        if self._run_id:
            if self._run_id != known:
                with writing(path, "make room, then start again: the run resumes after its last checkpoint"):
                    write_text(path, self._run_id + "\n")
        elif any(root.glob(f"**/{name}.id")):  # the tracker was opened before, so its settings are right
            self._give_up(self._error)
        else:
            raise UserError(
                f"config.train.tracker={name}: {_first_line_without_password(self._error)}; leave it out, or check its "
                "settings"
            )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Send the metrics of a step to the tracker, each under its name."""
        self._queue_line((step, numbers))

    def close(self) -> None:
        """Wait at most CLOSE_SECONDS for unsent lines, and close the run of the tracker, so that it can be resumed."""
        self._queue_line(None)
        if not self._given_up:
            self._thread.join(CLOSE_SECONDS)
            if self._error or self._thread.is_alive():
                self._give_up(self._error)

    def _queue_line(self, line: tuple[int, Mapping[str, float]] | None) -> None:
        """Pass a line of metrics to the thread; None tells the thread to close the tracker."""
        if self._given_up:
            return
        if self._error:
            self._give_up(self._error)
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._give_up(None)

    def _give_up(self, error: Exception | None) -> None:
        """Stop sending metrics, and print the reason; `error` is None if the tracker hangs."""
        self._given_up = True
        self._say(
            f"{self._name}: {_first_line_without_password(error)}; it gets no more metrics, metrics.jsonl has all of "
            "them"
        )

    def _send_lines_in_thread(
        self, workdir: pathlib.Path, title: str, known: str | None, settings: Mapping[str, Any]
    ) -> None:
        """Open the tracker, send lines until the line None, and close the tracker; this method runs in the thread."""
        try:
            tracker = TRACKERS[self._name](workdir, title, known, settings)
            self._run_id = tracker.run_id
            self._opened.set()
            while (line := self._lines.get()) is not None:
                tracker.send(*line)
            tracker.close()
        except Exception as error:  # each tracker raises its own classes of exceptions
            self._error = error
            self._opened.set()


def _first_line_without_password(error: Exception | None) -> str:
    """Return the first line of an error, without passwords in URLs; `error` is None if the tracker hangs."""
    if error is None:
        return "no answer"
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return re.sub(r"(?<=://)[^/\s]+@", "", line)
