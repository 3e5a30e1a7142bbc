"""The loop around the step: the same for every objective, from one device to many hosts."""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.config import Config, flatten, from_json, to_json
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch, Objective, Params
from bert_jax.objectives.means import Mean, fetched, merge, values
from bert_jax.parallel import sharding
from bert_jax.parallel.chips import peak_flops
from bert_jax.parallel.energy import Meter, find_counters
from bert_jax.parallel.memory import BatchSettings, check_memory, out_of_memory_as_user_error, used_bytes
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.training.checkpoint import Checkpoints, Record, versions
from bert_jax.training.checkpoint_policy import Cadence
from bert_jax.training.evaluation import Evaluate, make_evaluate
from bert_jax.training.metrics import Line, MetricsFile, Stopwatch, read_metrics
from bert_jax.training.optimizers import Optimizer, make_optimizer
from bert_jax.training.resuming import refused_changes
from bert_jax.training.schedules import Phase, batch_keys
from bert_jax.training.step import (
    TrainState,
    abstract_state,
    check_layout,
    evaluated_params,
    init_state,
    jit_step,
    state_shardings,
)


class Data(NamedTuple):
    """Where the loop gets its batches from.

    batches(phase, step) -> an endless generator of this host's part of the batches from `step` on; {}: not there yet
    heldout(phase) -> one pass over the held-out sequences; None: there are none. num_heldout(phase) -> its batches
    fingerprint: what a resumed run must find again (corpus and tokenizer)
    evaluate(params, frozen params, held-out batches) -> what is measured; None: the objective's own means
    should_stop(step, what was measured, params) -> whether the run ends here (early stopping)
    Both get the moving average of the parameters where there is one.
    unigram_entropy: nats per token of the text, which every line of metrics carries; None: the loss is of another kind
    """

    batches: Callable[[Phase, int], Generator[Batch, None, None]]
    heldout: Callable[[Phase], Generator[Batch, None, None]] | None
    fingerprint: dict[str, str]
    evaluate: Evaluate | None = None
    should_stop: Callable[[int, dict[str, float], Params], bool] | None = None
    unigram_entropy: float | None = None
    num_heldout: Callable[[Phase], int] | None = None


class RunContext(NamedTuple):
    """One training run: what is trained, on what, how, and where it is kept."""

    config: Config
    objective: Objective
    phases: tuple[Phase, ...]
    data: Data
    workdir: pathlib.Path
    console: Console
    interrupt: Interrupt | None = None  # those of the whole process, where it has them
    watchdog: Watchdog | None = None
    start: Params | None = None  # float32 parameters of the objective's structure; None: random ones
    frozen: Params = ()
    remarks: Callable[[Line], Iterable[str]] = lambda line: ()  # what the console says about a line of metrics
    root: pathlib.Path | None = None  # the work directory that this one is in; None: itself


def fit(run: RunContext) -> bool:
    """Train from the newest checkpoint of `run.workdir`, or from the start, to the last step of the last phase.

    Every process of a run calls it; process 0 alone writes metrics.

    Returns:
        False where SIGTERM or Ctrl-C ended it early; the state is saved then, and the same call resumes.

    Raises:
        UserError: a config that does not fit the devices or the checkpoints, or `config.train.max_skipped_steps`
            consecutive steps whose loss or gradient is not finite.
    """
    config, objective, console = run.config, run.objective, run.console
    mesh = check_layout(config, objective, run.phases)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.set_mesh(mesh))
        interrupt = run.interrupt or stack.enter_context(Interrupt())
        watchdog = run.watchdog or stack.enter_context(contextlib.closing(Watchdog(config.watchdog)))
        run = run._replace(interrupt=interrupt, watchdog=watchdog)
        watchdog.stage("start")
        watchdog.meet()
        sharding.warm_up_collectives(mesh)
        if interrupt.check():
            console.say(f"{interrupt.name}: stopped before the start")
            return False
        shapes, shardings = state_shardings(config, objective, optimizer, mesh)
        checkpoints = Checkpoints(run.workdir, config.checkpoint)
        saved = abstract_state(shapes._replace(frozen=()), shardings._replace(frozen=()))
        found = checkpoints.newest(saved, console.say, functools.partial(_check_record, run))
        start = _resumed(run, checkpoints, *found) if found else (0, _first_state(run, optimizer, shardings), {})
        step, state, means = start
        state = state._replace(frozen=jax.device_put(run.frozen, shardings.frozen))
        if config.optimizer.ema_decay is not None:
            console.say(
                f"evaluating and exporting the moving average of the weights (ema_decay={config.optimizer.ema_decay:g})"
            )
        more = config.train.tracker, found[2].get("metrics") if found else None, flatten(to_json(config)), run.root
        first = jax.process_index() == 0
        file = MetricsFile(run.workdir, step, console.say, *more, Meter(find_counters()), used_bytes) if first else None
        for line in read_metrics(file.path) if file else ():
            list(run.remarks(line))  # said before the run was stopped
        loop = _Loop(run, mesh, optimizer, shardings, checkpoints, file, means)
        try:
            done = loop.run(state, step)
        except BaseException:
            if jax.process_count() == 1:  # one of several processes cannot end alone what all write together
                loop.close()
            raise
        loop.close()
        return done


def _resumed(
    run: RunContext, checkpoints: Checkpoints, step: int, state: TrainState, record: Record
) -> tuple[int, TrainState, dict[str, Mean]]:
    """Step, state and unwritten means of a checkpoint, with a line on the console, two where bits may differ."""
    place = checkpoints.directory / str(step)
    saved, present = record["versions"], versions()
    changed = [f"{name} {saved[name]} -> {present[name]}" for name in present if saved.get(name) != present[name]]
    if changed:
        run.console.say(f"saved with other versions ({', '.join(changed)}): resuming, but not bit for bit")
    checkpoints.set_aside(step)
    if step < run.phases[-1].end:
        run.console.say(f"resuming at step {step:,} from {place}, sequence {record['sequence']:,}")
    else:
        # A run with early stopping is one of several; its caller says what comes next.
        advice = f"; to train further from {run.workdir}, use another --workdir and --config.init_from"
        run.console.say(f"finished: all {step:,} steps are done{'' if run.data.should_stop else advice}")
    return step, state, {name: Mean(*parts) for name, parts in record["means"].items()}


def _first_state(run: RunContext, optimizer: Optimizer, shardings: TrainState) -> TrainState:
    init = functools.partial(init_state, run.config, run.objective, optimizer)
    shardings = shardings._replace(frozen=())
    if run.start is None:
        return jax.jit(init, out_shardings=shardings)()
    params = jax.device_put(run.start, shardings.params)
    # All but the parameters, which would be copied.
    rest = jax.jit(lambda params: init(params)._replace(params=()), out_shardings=shardings._replace(params=()))
    return rest(params)._replace(params=params)


def _check_record(run: RunContext, record: Record) -> None:
    """Refuse the checkpoint of another run."""
    different = refused_changes(from_json(record["config"]), run.config, record["step"])
    if record["fingerprint"] != run.data.fingerprint:
        different.append("the corpus or its tokenizer")
    if different:
        place = run.workdir / "checkpoints" / str(record["step"])
        raise UserError(f"{place} belongs to a run that differs ({'; '.join(different)}); choose another --workdir")


class Launched(NamedTuple):
    """A step whose metrics are still on the device."""

    step: int
    phase: Phase
    sequences: int
    seq_len: int
    metrics: Any


class _Loop:
    """The loop's ends: what is launched but not yet read, what is read but not yet written."""

    def __init__(
        self,
        run: RunContext,
        mesh: jax.sharding.Mesh,
        optimizer: Optimizer,
        shardings: TrainState,
        checkpoints: Checkpoints,
        file: MetricsFile | None,
        means: dict[str, Mean],
    ) -> None:
        assert run.interrupt
        assert run.watchdog
        self.context, self.mesh, self.optimizer, self.shardings = run, mesh, optimizer, shardings
        self.config, self.data, self.phases = run.config, run.data, run.phases
        self.console, self.interrupt, self.watchdog = run.console, run.interrupt, run.watchdog
        self.checkpoints, self.cadence, self.file = checkpoints, Cadence(run.config.checkpoint), file
        self.means = means  # merged since the last line
        self.launched: Launched | None = None  # the newest step
        self.programs: dict[Any, Callable[[TrainState, Batch], tuple[TrainState, Any]]] = {}  # by phase and shapes
        self.stopped = False  # by data.should_stop
        self.watch = Stopwatch()
        self.norms, self.tokens_timed, self.flops_timed = list[float](), 0, 0.0  # since the last line; of gradients
        self.evaluate = run.data.evaluate or make_evaluate(run.objective, mesh)
        self.peak = (peak_flops() or 0.0) * mesh.size  # 0: unknown

    def run(self, state: TrainState, step: int) -> bool:
        """Train from `step` on; whether the last step was reached."""
        saved, compiled_at, last_step = step, step, self.phases[-1].end
        if step > 0 and self._owes_evaluation(step):
            self._evaluate(step, next(phase for phase in self.phases if step <= phase.end), state)
        for phase in (phase for phase in self.phases if step < phase.end):
            if self.interrupt.check():  # before a compilation, which cannot be stopped
                break
            with contextlib.closing(self.data.batches(phase, step)) as batches:
                self.watchdog.stage("step", step + 1)
                batch = self._next(batches)
                compiled_at = step
                while step < phase.end and not self.stopped and not self.interrupt.check():
                    sequences, seq_len = _size(batch)
                    key = (phase, tuple((name, x.shape) for name, x in sorted(batch.items())))
                    if key not in self.programs:
                        self.programs[key] = self._compile(phase, state, batch)
                        compiled_at = step
                    self._begin(step, compiled_at)
                    with out_of_memory_as_user_error(self._settings(phase, seq_len)):
                        state, metrics = self.programs[key](state, batch)
                    self._read()  # the step before, while this one runs
                    step += 1
                    self.launched = Launched(step, phase, sequences, seq_len, metrics)
                    last = step == last_step
                    if last or _due(step, self.config.evaluate.every):
                        self._evaluate(step, phase, state)
                    if last or self.cadence.due(step):
                        self._save(step, phase, state)
                        saved = step
                    if step < phase.end:
                        self._begin(step, compiled_at)
                        batch = self._next(batches)
            if self.interrupt.stopping or self.stopped:
                break
        if (self.interrupt.stopping or self.stopped) and saved < step:
            self._save(step, phase, state)
        self.watchdog.stage("save", step)
        self.console.progress("saving the last checkpoint")
        self.checkpoints.wait()
        if self.interrupt.stopping:
            self.console.say(f"{self.interrupt.name}: stopped after step {step:,}; the same command resumes there")
        return self.stopped or (step == last_step and not self.interrupt.stopping)

    def close(self) -> None:
        """Flush and close all files."""
        if self.file:
            self.file.close()
        self.checkpoints.close()

    def _compile(
        self, phase: Phase, state: TrainState, batch: Batch
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Any]]:
        """The step of a phase, compiled before its clock starts."""
        self._read()
        self.watchdog.stage("compile")
        began, objective = time.perf_counter(), self.context.objective
        step = jit_step(self.config, objective, self.optimizer, self.phases, phase, self.mesh, self.shardings)
        settings = self._settings(phase, _size(batch)[1])
        self.console.progress(f"compiling the step for {settings.seq_len} tokens (usually less than a minute)")
        with out_of_memory_as_user_error(settings):
            compiled = step.lower(state, batch).compile()
        check_memory(compiled, self.mesh, settings)
        self.console.say(f"compiled the step for {settings.seq_len} tokens in {time.perf_counter() - began:.1f} s")
        self.watch.pause(time.perf_counter() - began)
        return compiled

    def _settings(self, phase: Phase, seq_len: int) -> BatchSettings:
        """What the memory of a step follows from."""
        keys = batch_keys(self.config, phase)
        return BatchSettings(phase.batch_size, seq_len, phase.grad_accum_steps, self.config.compute.remat, keys)

    def _begin(self, step: int, compiled_at: int) -> None:
        """Start the watchdog's clock of the step after `step`; the first run of a program opens connections as well."""
        self.watchdog.stage("compile" if step < compiled_at + 2 else "step", step + 1)

    def _next(self, batches: Generator[Batch, None, None]) -> Batch:
        began = time.perf_counter()
        while not (batch := next(batches)) and not self.interrupt.check():
            self.watchdog.stage("step")
        self.watch.waited += time.perf_counter() - began
        return sharding.place_batch(batch, self.mesh)

    def _read(self) -> None:
        """Fetch the launched step's metrics, merge them, and write a line where one is due."""
        if self.launched is None:
            return
        (step, phase, sequences, seq_len, metrics), self.launched = self.launched, None
        with out_of_memory_as_user_error(self._settings(phase, seq_len)):  # a step ends after it was launched
            self.means = merge(self.means, fetched(metrics["means"]))
        self.tokens_timed += sequences * seq_len
        self.flops_timed += sequences * self.context.objective.flops(seq_len, phase.number)
        report = {name: value.item() for name, value in jax.device_get(metrics["report"]).items()}
        self.norms.append(report["grad_norm"])
        if report["skipped_in_a_row"] >= self.config.train.max_skipped_steps:
            raise UserError(
                f"step {step:,}: loss or gradient not finite for {report['skipped_in_a_row']} consecutive steps; "
                "start again in another --workdir with a lower config.optimizer.peak_learning_rate, or the phase's own"
            )
        if _due(step, self.config.train.log_every) or step == self.phases[-1].end:
            self._write(step, phase, seq_len, report)

    def _write(self, step: int, phase: Phase, seq_len: int, report: Line) -> None:
        seconds = self.watch.seconds()
        line: Line = {"step": step, "split": "train"} | values(self.means)
        line |= {"learning_rate": report["learning_rate"], "grad_norm": report["grad_norm"]}
        line |= {"skipped_steps": report["skipped"], "seq_len": seq_len, "batch_size": phase.batch_size}
        line["tokens_per_second"] = self.tokens_timed / seconds
        if self.peak:
            line["model_flops_utilization"] = self.flops_timed / seconds / self.peak
        line["input_wait_fraction"] = self.watch.waited / seconds
        self.console.training(line, self.phases[-1].end, seconds / len(self.norms))
        self._keep(line, self.norms)
        self.means, self.norms, self.tokens_timed, self.flops_timed = {}, [], 0, 0.0
        self.watch.restart()

    def _keep(self, line: Line, norms: Sequence[float] = ()) -> None:
        """Write a line of metrics and the norms of its gradients, and say what there is to say about it."""
        if self.data.unigram_entropy is not None:
            line["unigram_entropy"] = self.data.unigram_entropy
        if self.file:
            self.file.write(line, norms)
        for remark in self.context.remarks(line):
            self.console.say(remark)

    def _evaluate(self, step: int, phase: Phase, state: TrainState) -> None:
        self._read()
        if self.data.heldout is None:
            return
        began = time.perf_counter()
        with contextlib.closing(self._heldout(phase, step)) as batches:
            found = self.evaluate(evaluated_params(state), state.frozen, batches)
        if self.interrupt.stopping:
            return  # a part of the set measures nothing; the resumed run evaluates this step
        self.console.heldout(step, found, self.data.unigram_entropy)
        averaged = {} if (decay := self.config.optimizer.ema_decay) is None else {"ema_decay": decay}
        self._keep({"step": step, "split": "heldout"} | found | {"seq_len": phase.seq_len} | averaged)
        if self.data.should_stop:
            self.stopped = self.data.should_stop(step, found, evaluated_params(state))
        self.watch.pause(time.perf_counter() - began)

    def _heldout(self, phase: Phase, step: int) -> Generator[Batch, None, None]:
        """The batches of an evaluation, each under the watchdog; they end early where the run is to stop."""
        assert self.data.heldout
        total = self.data.num_heldout(phase) if self.data.num_heldout else None
        self.watchdog.stage("compile", step)
        for number, batch in enumerate(self.data.heldout(phase)):
            if self.interrupt.check():
                return
            if number:
                self.watchdog.stage("step", step)
                self.console.progress("evaluating", number, total, "batches")
            yield batch

    def _owes_evaluation(self, step: int) -> bool:
        """Whether the run was stopped in the evaluation of `step`, and so has no line of it."""
        due = step == self.phases[-1].end or _due(step, self.config.evaluate.every)
        if self.data.heldout is None or not due:
            return False
        missing = self.file is not None and not self.file.has(step, "heldout")
        return bool(multihost_utils.broadcast_one_to_all(np.array(missing)))

    def _save(self, step: int, phase: Phase, state: TrainState) -> None:
        """Metrics first: a checkpoint is never newer than the lines up to its step."""
        self._read()
        self.watchdog.stage("save", step)
        began = time.perf_counter()
        record = {
            "step": step,
            "sequence": phase.first_sequence(step),
            "config": to_json(self.config),
            "means": {name: [mean.total, mean.weight] for name, mean in self.means.items()},
            "fingerprint": self.data.fingerprint,
            "metrics": self.file.digest() if self.file else None,
        }
        size = self.checkpoints.save(step, state._replace(frozen=()), record)
        self.cadence.saved(step, seconds := time.perf_counter() - began, size)
        self.watch.pause(seconds)


def _size(batch: Batch) -> tuple[int, int]:
    """The number of sequences and their length; several choices of one example are sequences of their own."""
    shape = batch["input_ids"].shape
    return math.prod(shape[:-1]), shape[-1]


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
