"""The loop around the step: the same for every objective, from one device to many hosts."""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils

from bert_jax.config import Config, differences, from_json, to_json
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch, Objective, Params
from bert_jax.objectives.means import Mean, fetched, merge, values
from bert_jax.parallel import sharding
from bert_jax.parallel.chips import peak_flops
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.training.checkpoint import Checkpoints, Record, versions
from bert_jax.training.evaluation import Evaluate, make_evaluate
from bert_jax.training.metrics import Line, MetricsFile, Stopwatch
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase
from bert_jax.training.step import TrainState, abstract_state, init_state, jit_step, layout, state_shardings


class Data(NamedTuple):
    """Where the loop gets its batches from.

    batches(phase, step) -> an endless generator of this host's share of the batches from `step` on
    heldout(phase) -> one pass over the held-out rows, or None where there are none
    fingerprint: what a resumed run must find again (corpus and tokenizer)
    evaluate(params, held-out batches) -> what is written of them; None: the objective's own means
    should_stop(step, what was written, params) -> whether the run shall end here (early stopping)
    """

    batches: Callable[[Phase, int], Generator[Batch, None, None]]
    heldout: Callable[[Phase], Generator[Batch, None, None]] | None
    fingerprint: dict[str, str]
    evaluate: Evaluate | None = None
    should_stop: Callable[[int, dict[str, float], Params], bool] | None = None


def fit(
    config: Config,
    objective: Objective,
    data: Data,
    workdir: pathlib.Path,
    console: Console,
    interrupt: Interrupt | None = None,
    watchdog: Watchdog | None = None,
    start: Params | None = None,
) -> bool:
    """Train from the newest checkpoint of `workdir`, or from the beginning, to the last step of the last phase.

    The beginning is `start`, float32 parameters of the objective's structure, or where None its random ones. Every
    process of a run calls it; process 0 alone writes metrics. `interrupt` and `watchdog` are those of the whole
    process, where it has them.

    Returns False where SIGTERM or Ctrl-C ended it before; the state is saved then, and the same call goes on.
    Raises UserError for a config that does not fit the devices or the checkpoints, and after
    `config.train.max_skipped_steps` steps in a row whose loss or gradient is not finite.
    """
    mesh, phases = layout(config, objective)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.set_mesh(mesh))
        interrupt = interrupt or stack.enter_context(Interrupt())
        watchdog = watchdog or stack.enter_context(contextlib.closing(Watchdog(config.watchdog)))
        watchdog.stage("start")
        if interrupt.check():
            console.say(f"{interrupt.name}: stopped before the start")
            return False
        shapes, shardings = state_shardings(config, objective, optimizer, mesh)
        checkpoints = Checkpoints(workdir, config.checkpoint)
        found = checkpoints.newest(abstract_state(shapes, shardings), console.say)
        if found:
            step, state, record = found
            _check_record(config, data, record, checkpoints.directory / str(step), console)
            checkpoints.set_aside(step)
            means = {name: Mean(*parts) for name, parts in record["means"].items()}
            place = checkpoints.directory / str(step)
            if step < phases[-1].end:
                console.say(f"resuming at step {step:,} from {place}, row {record['row']:,}")
            else:
                # A judged training is one of several, whose way on its caller knows.
                way_on = f"; to train on from {place.parents[1]}, give another --workdir and --config.init_from"
                console.say(f"finished: all {step:,} steps are done{'' if data.should_stop else way_on}")
        else:
            step, means = 0, {}
            state = _first_state(config, objective, optimizer, shardings, start)
        file = MetricsFile(workdir, step) if jax.process_index() == 0 else None
        loop = _Loop(config, objective, data, mesh, checkpoints, file, console, interrupt, watchdog, means)
        try:
            done = loop.run(phases, optimizer, shardings, state, step)
        except BaseException:
            if jax.process_count() == 1:  # one of several cannot end alone what all write together
                loop.close()
            raise
        loop.close()
        return done


def _first_state(
    config: Config,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    shardings: TrainState,
    start: Params | None,
) -> TrainState:
    init = functools.partial(init_state, config, objective, optimizer)
    if start is None:
        return jax.jit(init, out_shardings=shardings)()
    params = jax.device_put(start, shardings.params)
    # All but the parameters, which would be copied.
    rest = jax.jit(lambda params: init(params)._replace(params=()), out_shardings=shardings._replace(params=()))
    return rest(params)._replace(params=params)


def _check_record(config: Config, data: Data, record: Record, place: pathlib.Path, console: Console) -> None:
    """Refuse the checkpoint of another run; say where packages differ, since bits may then differ too."""
    different = differences(from_json(record["config"]), config)
    if record["fingerprint"] != data.fingerprint:
        different.append("the corpus or its tokenizer")
    if different:
        raise UserError(f"{place} is of a run that differs ({'; '.join(different)}); choose another --workdir")
    saved, present = record["versions"], versions()
    changed = [f"{name} {saved[name]} -> {present[name]}" for name in present if saved.get(name) != present[name]]
    if changed:
        console.say(f"saved with other versions ({', '.join(changed)}): going on, but not bit for bit")


class Launched(NamedTuple):
    """A step whose metrics are still on the device."""

    step: int
    phase: Phase
    rows: int
    length: int
    metrics: Any


class _Loop:
    """The loop's ends: what is launched but not yet read, what is read but not yet written."""

    def __init__(
        self,
        config: Config,
        objective: Objective,
        data: Data,
        mesh: jax.sharding.Mesh,
        checkpoints: Checkpoints,
        file: MetricsFile | None,
        console: Console,
        interrupt: Interrupt,
        watchdog: Watchdog,
        means: dict[str, Mean],
    ) -> None:
        self.config, self.objective, self.data, self.mesh = config, objective, data, mesh
        self.checkpoints, self.file, self.console = checkpoints, file, console
        self.interrupt, self.watchdog = interrupt, watchdog
        self.means = means  # merged since the last line
        self.launched: Launched | None = None  # the newest step
        self.programs: dict[Any, Callable[[TrainState, Batch], tuple[TrainState, Any]]] = {}  # by phase and shapes
        self.ended = False  # by the should_stop
        self.watch = Stopwatch()
        self.steps_timed, self.tokens_timed, self.flops_timed = 0, 0, 0.0
        self.evaluate = data.evaluate or make_evaluate(objective, mesh)
        self.peak = peak_flops() * mesh.size

    def run(
        self,
        phases: tuple[Phase, ...],
        optimizer: optax.GradientTransformation,
        shardings: TrainState,
        state: TrainState,
        step: int,
    ) -> bool:
        """Through the phases; True at the end, False when interrupted."""
        saved = step
        if step > 0 and self._owes_evaluation(step, phases):
            self._evaluate(step, next(phase for phase in phases if step <= phase.end), state)
        for phase in (phase for phase in phases if step < phase.end):
            if self.interrupt.check():  # before a compilation, which cannot be stopped
                break
            with contextlib.closing(self.data.batches(phase, step)) as batches:
                self.watchdog.stage("step", step + 1)
                batch = self._next(batches)
                compiled_at = step
                while step < phase.end and not self.ended and not self.interrupt.check():
                    rows, length = _size(batch)
                    key = (phase, tuple((name, x.shape) for name, x in sorted(batch.items())))
                    if key not in self.programs:
                        self.programs[key] = self._compile(phase, optimizer, shardings, state, batch)
                        compiled_at = step
                    self._begin(step, compiled_at)
                    state, metrics = self.programs[key](state, batch)
                    self._read()  # the step before, while this one runs
                    step += 1
                    self.launched = Launched(step, phase, rows, length, metrics)
                    last = step == phases[-1].end
                    if last or _due(step, self.config.evaluate.every):
                        self._evaluate(step, phase, state)
                    if last or _due(step, self.config.checkpoint.every):
                        self._save(step, phase, state)
                        saved = step
                    if step < phase.end:
                        self._begin(step, compiled_at)
                        batch = self._next(batches)
            if self.interrupt.stopping or self.ended:
                break
        if (self.interrupt.stopping or self.ended) and saved < step:
            self._save(step, phase, state)
        self.watchdog.stage("save", step)
        self.checkpoints.wait()
        if self.interrupt.stopping:
            self.console.say(f"{self.interrupt.name}: stopped after step {step:,}; the same command goes on there")
        return self.ended or step == phases[-1].end

    def close(self) -> None:
        """Flush and close what is written to."""
        if self.file:
            self.file.close()
        self.checkpoints.close()

    def _compile(
        self,
        phase: Phase,
        optimizer: optax.GradientTransformation,
        shardings: TrainState,
        state: TrainState,
        batch: Batch,
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Any]]:
        """The step of a phase, compiled before its clock starts."""
        self._read()
        self.watchdog.stage("compile")
        began = time.perf_counter()
        step = jit_step(self.config, self.objective, optimizer, phase, self.mesh, shardings)
        compiled = step.lower(state, batch).compile()
        length = _size(batch)[1]
        self.console.say(f"compiled the step for {length} tokens in {time.perf_counter() - began:.1f} s")
        self.watch.pause(time.perf_counter() - began)
        return compiled

    def _begin(self, step: int, compiled_at: int) -> None:
        """Tell the watchdog of the step after `step`; the first of a program, read one later, opens connections too."""
        self.watchdog.stage("compile" if step < compiled_at + 2 else "step", step + 1)

    def _next(self, batches: Generator[Batch, None, None]) -> Batch:
        began = time.perf_counter()
        batch = next(batches)
        self.watch.waited += time.perf_counter() - began
        return sharding.place_batch(batch, self.mesh)

    def _read(self) -> None:
        """Fetch the launched step's metrics, merge them, and write a line where one is due."""
        if self.launched is None:
            return
        step, phase, rows, length, metrics = self.launched
        self.launched = None
        self.means = merge(self.means, fetched(metrics["means"]))
        self.steps_timed += 1
        self.tokens_timed += rows * length
        self.flops_timed += rows * self.objective.flops(length)
        report = {name: value.item() for name, value in jax.device_get(metrics["report"]).items()}
        if report["skipped_in_a_row"] >= self.config.train.max_skipped_steps:
            raise UserError(
                f"step {step:,}: loss or gradient not finite for {report['skipped_in_a_row']} steps in a row; "
                "begin again in another --workdir with a lower config.optimizer.peak_learning_rate"
            )
        if _due(step, self.config.train.log_every) or step == self.config.train.steps:
            self._write(step, phase, length, report)

    def _write(self, step: int, phase: Phase, length: int, report: Line) -> None:
        seconds = self.watch.seconds()
        line: Line = {"step": step, "split": "train"} | values(self.means)
        line |= {"learning_rate": report["learning_rate"], "grad_norm": report["grad_norm"]}
        line |= {"skipped_steps": report["skipped"], "seq_len": length, "batch_size": phase.batch_size}
        line |= {
            "tokens_per_second": self.tokens_timed / seconds,
            "model_flops_utilization": self.flops_timed / seconds / self.peak,
            "input_wait_fraction": self.watch.waited / seconds,
        }
        if self.file:
            self.file.write(line)
        self.console.training(line, self.config.train.steps, seconds / self.steps_timed)
        self.means = {}
        self.steps_timed, self.tokens_timed, self.flops_timed = 0, 0, 0.0
        self.watch.restart()

    def _evaluate(self, step: int, phase: Phase, state: TrainState) -> None:
        self._read()
        if self.data.heldout is None:
            return
        began = time.perf_counter()
        with contextlib.closing(self._unless_interrupted(self.data.heldout(phase), step)) as batches:
            found = self.evaluate(state.params, batches)
        if self.interrupt.stopping:
            return  # a part of the rows measures nothing; the resumed run evaluates this step
        if self.file:
            self.file.write({"step": step, "split": "heldout"} | found | {"seq_len": phase.seq_len})
        self.console.heldout(step, found)
        if self.data.should_stop:
            self.ended = self.data.should_stop(step, found, state.params)
        self.watch.pause(time.perf_counter() - began)

    def _unless_interrupted(self, batches: Iterable[Batch], step: int) -> Generator[Batch, None, None]:
        """The batches of an evaluation, each under the watchdog; they end early where the run is to stop."""
        self.watchdog.stage("compile", step)
        for number, batch in enumerate(batches):
            if self.interrupt.check():
                return
            if number:
                self.watchdog.stage("step", step)
            yield batch

    def _owes_evaluation(self, step: int, phases: tuple[Phase, ...]) -> bool:
        """Whether the run was stopped in the evaluation of `step`: it has no line of it."""
        if self.data.heldout is None or not (step == phases[-1].end or _due(step, self.config.evaluate.every)):
            return False
        missing = self.file is not None and not self.file.has(step, "heldout")
        return bool(multihost_utils.broadcast_one_to_all(np.array(missing)))

    def _save(self, step: int, phase: Phase, state: TrainState) -> None:
        """Metrics first: a checkpoint is never newer than the lines up to its step."""
        self._read()
        self.watchdog.stage("save", step)
        began = time.perf_counter()
        if self.file:
            self.file.flush()
        record = {
            "step": step,
            "row": phase.first_row(step),
            "config": to_json(self.config),
            "means": {name: [mean.total, mean.weight] for name, mean in self.means.items()},
            "fingerprint": self.data.fingerprint,
        }
        self.checkpoints.save(step, state, record)
        self.watch.pause(time.perf_counter() - began)


def _size(batch: Batch) -> tuple[int, int]:
    """Rows and their length; several choices of one example are rows of their own."""
    shape = batch["input_ids"].shape
    return math.prod(shape[:-1]), shape[-1]


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
