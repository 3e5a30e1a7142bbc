"""The training loop, for every objective, from one device to many hosts."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.config import flatten
from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch
from bert_jax.objectives.losses import Mean, fetch_means, mean_values, merge_means
from bert_jax.parallel import sharding
from bert_jax.parallel.chips import peak_flops
from bert_jax.parallel.energy import Meter, find_energy_counters
from bert_jax.parallel.memory import BatchSettings, check_memory, out_of_memory_as_user_error, used_memory_bytes
from bert_jax.parallel.preemption import STOPPED_BEFORE_STEP
from bert_jax.training.checkpoint import CheckpointPolicy, Checkpoints
from bert_jax.training.metrics import Line, MetricsFile
from bert_jax.training.plan import Data, Plan, Session
from bert_jax.training.profile import Profile
from bert_jax.training.schedules import Phase, phase_after_step
from bert_jax.training.start import Start
from bert_jax.training.step import TrainState, evaluated_params, jit_train_step

Programs = dict[Any, jax.stages.Compiled]  # (phase, shapes of a batch) -> compiled step


def fit(
    plan: Plan,
    data: Data,
    start: Start,
    checkpoints: Checkpoints,
    session: Session,
    programs: Programs | None = None,
) -> bool:
    """Train from `start` to the last step of the last phase.

    Every process of a run must call this function; only process 0 writes metrics. Trainings whose plans differ only in
    the seed and the directory may share `programs`, to which new steps are added.

    Returns:
        True if the training is complete; False if SIGTERM, Ctrl-C or SIGHUP ended the training early. After an early
            end, the state is saved, and the same command resumes the run.

    Raises:
        UserError: a step does not fit in the memory of a device, or `config.train.max_skipped_steps` consecutive steps
            had a loss or gradient that was not finite.
    """
    console = session.console
    if (decay := plan.optimizer.ema_decay) is not None:
        console.say(f"evaluating and exporting the moving average of the weights (ema_decay={decay:g})")
    file = None
    if jax.process_index() == 0:
        file = MetricsFile(
            plan.workdir,
            start.step,
            console.say,
            tracker=plan.train.tracker,
            digest=start.metrics_digest,
            settings=flatten(plan.recorded_config),
            root=plan.root,
            meter=Meter(find_energy_counters()),
            used_memory_bytes=used_memory_bytes,
        )
        for line in file.earlier_lines:
            list(data.remarks(line))  # the remarks were printed before the run was stopped
    loop = _TrainingLoop(plan, data, checkpoints, session, file, start.means, {} if programs is None else programs)
    state = start.state._replace(frozen=jax.device_put(data.frozen, plan.state_layout.shardings.frozen))
    try:
        is_done = loop.train_from(state, start.step)
    except BaseException:
        if jax.process_count() == 1:  # one of several processes cannot finish a checkpoint that all processes write
            loop.close()
        raise
    loop.close()
    return is_done


@dataclasses.dataclass(frozen=True, kw_only=True)
class PendingStep:
    """A launched step whose metrics are still on the device."""

    step: int
    phase: Phase
    num_sequences: int
    settings: BatchSettings
    metrics: Any


class MetricsInterval:
    """Sums of metrics over the steps since the last line of metrics, and the time of the steps without pauses."""

    def __init__(self, means: dict[str, Mean]) -> None:
        self.means, self.grad_norms = means, list[float]()
        self.num_tokens, self.flops = 0, 0.0
        self.waited = 0.0  # seconds of waiting for input
        self._began, self._paused = time.perf_counter(), 0.0

    def count_pause_since(self, began: float) -> float:
        """Count the time since `began`, a time of time.perf_counter, as a pause; return the seconds of the pause."""
        seconds = time.perf_counter() - began
        self._paused += seconds
        return seconds

    def seconds_without_pauses(self) -> float:
        """Return the seconds since the last line of metrics, without pauses."""
        return time.perf_counter() - self._began - self._paused


class _TrainingLoop:
    """The training loop with its state: the launched step, and the collected metrics that are not written yet."""

    def __init__(
        self,
        plan: Plan,
        data: Data,
        checkpoints: Checkpoints,
        session: Session,
        file: MetricsFile | None,
        means: dict[str, Mean],
        programs: Programs,
    ) -> None:
        self.plan, self.data, self.session = plan, data, session
        self.checkpoints, self.policy, self.file = checkpoints, CheckpointPolicy(plan.checkpoint), file
        self.programs = programs
        self.profile: Profile | None = None
        if plan.profiled_steps:
            self.profile = Profile(plan.profiled_steps, plan.workdir, session.console.say)
        self.pending: PendingStep | None = None  # the newest launched step
        self.interval = MetricsInterval(means)
        self.newest_report: tuple[PendingStep, Mapping[str, float]] | None = None  # of a step without a line of metrics
        self.is_stopped = False  # whether data.should_stop has stopped the run
        self.peak_flops = (peak_flops() or 0.0) * plan.mesh.size  # 0: unknown

    def train_from(self, state: TrainState, step: int) -> bool:
        """Train from `step` on; return whether the run is complete."""
        plan, interrupt, watchdog = self.plan, self.session.interrupt, self.session.watchdog
        saved_step, compiled_at = step, step
        if self._is_evaluation_missing(step):
            self._evaluate(step, phase_after_step(plan.phases, step), state)
        for phase in (phase for phase in plan.phases if step < phase.end):
            if interrupt.should_stop():  # checked before a compilation, which cannot be stopped
                break
            with contextlib.closing(self.data.batches(phase, step)) as batches:
                watchdog.enter_stage("step", step + 1)
                batch = self._next_batch(batches)
                compiled_at = step
                while step < phase.end and not self.is_stopped and not interrupt.should_stop():
                    # The choices of an example are separate sequences, unless the encoder reads rows of sequences.
                    *shape, seq_len = (batch["row_tokens"] if "row_tokens" in batch else batch["input_ids"]).shape
                    remat = plan.compute.remat
                    settings = BatchSettings(phase.batch_size, seq_len, phase.grad_accum_steps, remat, phase.batch_keys)
                    key = (phase, tuple((name, x.shape) for name, x in sorted(batch.items())))
                    if key not in self.programs:
                        self.programs[key] = self._compile(phase, settings, state, batch)
                        compiled_at = step
                    self._arm_watchdog(step, compiled_at)
                    if self.profile and self.profile.begins_at(step):
                        self._begin_or_end_trace(functools.partial(self.profile.begin, step))
                    named = self.profile.annotation(step) if self.profile else contextlib.nullcontext()
                    with named, out_of_memory_as_user_error(settings):
                        state, metrics = self.programs[key](state, batch)
                    self._collect_pending_step()  # the pending step is the previous step, while the new step runs
                    step += 1
                    self.pending = PendingStep(
                        step=step, phase=phase, num_sequences=math.prod(shape), settings=settings, metrics=metrics
                    )
                    if self.profile and self.profile.ends_at(step):
                        self._begin_or_end_trace(self.profile.end)
                    is_last = step == plan.last_step
                    if is_last or _is_multiple(step, plan.evaluate_every):
                        self._evaluate(step, phase, state)
                    if is_last or self.policy.is_due(step):
                        self._save(step, phase, state)
                        saved_step = step
                    if step < phase.end:
                        self._arm_watchdog(step, compiled_at)
                        batch = self._next_batch(batches)
            if interrupt.stopping or self.is_stopped:
                break
        # After early stopping, no resumed run would write the metrics of the last steps.
        if self.is_stopped and self.newest_report:
            self._write_training_line(*self.newest_report)
        if (interrupt.stopping or self.is_stopped) and saved_step < step:
            self._save(step, phase, state)
        watchdog.enter_stage("save", step)
        self.session.console.progress("saving the last checkpoint")
        self.checkpoints.wait()
        if interrupt.stopping:
            stopped = f"stopped after step {step:,}; the same command resumes there" if step else STOPPED_BEFORE_STEP
            self.session.console.say(f"{interrupt.name}: {stopped}")
        return self.is_stopped or (step == plan.last_step and not interrupt.stopping)

    def close(self) -> None:
        """End the profile, and close the file of metrics."""
        if self.profile:
            self.profile.end()
        if self.file:
            self.file.close()

    def _compile(self, phase: Phase, settings: BatchSettings, state: TrainState, batch: Batch) -> jax.stages.Compiled:
        """Compile and return the step of a phase; the time of the compilation counts as a pause."""
        self._collect_pending_step()
        self.session.watchdog.enter_stage("compile")
        plan, console, began = self.plan, self.session.console, time.perf_counter()
        step = jit_train_step(
            plan.objective.of_phase(phase.index),
            plan.optimizer_of_phase(phase),
            plan.learning_rate,
            settings.grad_accum_steps,
            mesh=plan.mesh,
            shardings=plan.state_layout.shardings,
            deterministic=plan.compute.deterministic,
        )
        console.progress(f"compiling the step for {settings.seq_len} tokens (usually less than a minute)")
        with out_of_memory_as_user_error(settings):
            compiled: jax.stages.Compiled = step.lower(state, batch).compile()
        check_memory(compiled, plan.mesh, settings)
        seconds = self.interval.count_pause_since(began)
        console.say(f"compiled the step for {settings.seq_len} tokens in {seconds:.1f} s")
        return compiled

    def _arm_watchdog(self, step: int, compiled_at: int) -> None:
        """Start the watchdog's time limit for the step after `step`.

        The first steps of a compiled program get the longer time limit of a compilation, because these steps also open
        connections.
        """
        self.session.watchdog.enter_stage("compile" if step < compiled_at + 2 else "step", step + 1)

    def _begin_or_end_trace(self, switch: Callable[[], None]) -> None:
        """Wait for all launched steps, then begin or end the trace."""
        self._collect_pending_step()
        began = time.perf_counter()
        switch()
        self.interval.count_pause_since(began)

    def _next_batch(self, batches: Generator[Batch, None, None]) -> Batch:
        """Return the next batch, placed on the devices; if the batch is not prepared yet, wait, and count the time."""
        began = time.perf_counter()
        while not (batch := next(batches)) and not self.session.interrupt.should_stop():
            self.session.watchdog.enter_stage("step")
        self.interval.waited += time.perf_counter() - began
        return sharding.place_batch(batch, self.plan.mesh)

    def _collect_pending_step(self) -> None:
        """Fetch the metrics of the launched step, merge them, and write a line of metrics if it is due."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        step, seq_len, interval = pending.step, pending.settings.seq_len, self.interval
        objective = self.plan.objective.of_phase(pending.phase.index)
        # A launched step is computed asynchronously, and may still run out of memory.
        with out_of_memory_as_user_error(pending.settings):
            interval.means = merge_means(interval.means, fetch_means(pending.metrics["means"]))
        interval.num_tokens += pending.num_sequences * seq_len
        interval.flops += pending.num_sequences * objective.flops(seq_len, pending.phase.index)
        report = {name: value.item() for name, value in jax.device_get(pending.metrics["report"]).items()}
        interval.grad_norms.append(report["grad_norm"])
        if report["skipped_in_a_row"] >= self.plan.train.max_skipped_steps:
            raise UserError(
                f"step {step:,}: loss or gradient not finite for {report['skipped_in_a_row']} consecutive steps; "
                "start again in another --workdir with a lower config.optimizer.peak_learning_rate, or the phase's own"
            )
        ends_phase = step == pending.phase.end  # a line of metrics has the means of only one phase
        self.newest_report = (pending, report)
        if _is_multiple(step, self.plan.train.log_every) or step == self.plan.last_step or ends_phase:
            self._write_training_line(pending, report)

    def _write_training_line(self, newest: PendingStep, report: Mapping[str, float]) -> None:
        """Write a line of metrics about the steps since the last line; `report` is the report of the newest step."""
        interval = self.interval
        seconds = interval.seconds_without_pauses()
        line: Line = {"step": newest.step, "split": "train"} | mean_values(interval.means)
        line |= {"learning_rate": report["learning_rate"], "grad_norm": report["grad_norm"]}
        line |= {"skipped_steps": report["skipped"], "seq_len": newest.settings.seq_len}
        line |= {"batch_size": newest.phase.batch_size, "tokens_per_second": interval.num_tokens / seconds}
        if self.peak_flops:
            line["model_flops_utilization"] = interval.flops / seconds / self.peak_flops
        line["input_wait_fraction"] = interval.waited / seconds
        self.session.console.print_training_step(line, self.plan.last_step, seconds / len(interval.grad_norms))
        self._record_metrics(line, interval.grad_norms)
        self.interval, self.newest_report = MetricsInterval({}), None

    def _record_metrics(self, line: Line, grad_norms: Sequence[float] = ()) -> None:
        """Write a line of metrics and the gradient norms, and print remarks about the line."""
        if line["split"] in self.data.unigram_losses:
            line["unigram_loss"] = self.data.unigram_losses[line["split"]]
        if self.file:
            self.file.write(line, grad_norms)
        for remark in self.data.remarks(line):
            self.session.console.say(remark)

    def _evaluate(self, step: int, phase: Phase, state: TrainState) -> None:
        """Evaluate on the held-out data after `step` and record the metrics; early stopping may end the run."""
        self._collect_pending_step()
        if not (self.data.heldout and self.data.evaluate):
            return
        began = time.perf_counter()
        with contextlib.closing(self._heldout_batches(phase, step)) as batches:
            evaluate = self.data.phase_evaluations.get(phase.index, self.data.evaluate)
            metrics = evaluate(evaluated_params(state), state.frozen, batches)
        if self.session.interrupt.stopping:
            return  # metrics of a part of the set are dropped; the resumed run evaluates this step
        self.session.console.print_heldout_metrics(step, metrics, self.data.unigram_losses.get("heldout"))
        averaged = {} if (decay := self.plan.optimizer.ema_decay) is None else {"ema_decay": decay}
        self._record_metrics({"step": step, "split": "heldout"} | metrics | {"seq_len": phase.seq_len} | averaged)
        if self.data.should_stop:
            self.is_stopped = self.data.should_stop(step, metrics, evaluated_params(state))
        self.interval.count_pause_since(began)

    def _heldout_batches(self, phase: Phase, step: int) -> Generator[Batch, None, None]:
        """Yield the batches of an evaluation, each under the watchdog's limit; stop early if the run should stop."""
        assert self.data.heldout
        total = self.data.heldout.num_batches(phase)
        self.session.watchdog.enter_stage("compile", step)
        for index, batch in enumerate(self.data.heldout.batches(phase)):
            if self.session.interrupt.should_stop():
                return
            if index:
                self.session.watchdog.enter_stage("step", step)
                self.session.console.progress("evaluating", index, total, "batches")
            yield batch

    def _is_evaluation_missing(self, step: int) -> bool:
        """Return whether the evaluation after `step` is due but has no line of metrics.

        Either no step has been trained, or the run was stopped before or during this evaluation.
        """
        is_due = step == self.plan.last_step or _is_multiple(step, self.plan.evaluate_every)
        if step == 0:
            is_due = self.plan.evaluate_first
        if self.data.heldout is None or not is_due:
            return False
        evaluated = (
            [line["step"] for line in self.file.earlier_lines if line["split"] == "heldout"] if self.file else []
        )
        return bool(multihost_utils.broadcast_one_to_all(np.array(step not in evaluated)))

    def _save(self, step: int, phase: Phase, state: TrainState) -> None:
        """Write the metrics to disk, then save a checkpoint, so that no checkpoint is newer than its metrics."""
        self._collect_pending_step()
        self.session.watchdog.enter_stage("save", step)
        began = time.perf_counter()
        record = {
            "step": step,
            "sequence": phase.first_sequence(step),
            "config": self.plan.recorded_config,
            "means": {name: [mean.total, mean.weight] for name, mean in self.interval.means.items()},
            "fingerprint": self.plan.fingerprint,
            "metrics": self.file.digest() if self.file else None,
        }
        size = self.checkpoints.save(step, state._replace(frozen=()), record)
        self.policy.record_save(step, self.interval.count_pause_since(began), size)


def _is_multiple(step: int, every: int | None) -> bool:
    """Return whether `step` is a multiple of `every`; False if `every` is None."""
    return every is not None and step % every == 0
