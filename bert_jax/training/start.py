"""The initial state of a run: the newest checkpoint of its work directory, or a new state."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator

import jax

from bert_jax.config import from_json, to_json
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.objectives.base import Params
from bert_jax.objectives.losses import Mean
from bert_jax.parallel import sharding
from bert_jax.parallel.preemption import STOPPED_BEFORE_STEP
from bert_jax.training.checkpoint import Checkpoints, Record, package_versions
from bert_jax.training.plan import Plan, Session
from bert_jax.training.resuming import refused_changes
from bert_jax.training.step import TrainState, abstract_state, init_state


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The step and the state from which a run continues."""

    step: int
    state: TrainState  # state without frozen parameters
    means: dict[str, Mean]  # means of the metrics over the steps since the last line of metrics
    metrics_digest: str | None  # digest of the lines of metrics so far


@contextlib.contextmanager
def open_checkpoints(plan: Plan, session: Session) -> Iterator[Checkpoints | None]:
    """Wait for every process, and yield the checkpoints of a run; yield None if a signal has already arrived.

    If an error leaves the `with` block, the checkpoints are closed only if the run has a single process. All processes
    of a run write a checkpoint together, so a process that ends with an error cannot finish the checkpoint.
    """
    with jax.set_mesh(plan.mesh):
        session.watchdog.enter_stage("start")
        if jax.process_count() > 1:
            session.watchdog.wait_for_all()
            sharding.warm_up_collectives(plan.mesh)
        if session.interrupt.should_stop():
            session.console.say(f"{session.interrupt.name}: {STOPPED_BEFORE_STEP}")
            yield None
            return
        checkpoints = Checkpoints(plan.workdir, plan.checkpoint)
        try:
            yield checkpoints
        except BaseException:
            if jax.process_count() == 1:
                checkpoints.close()
            raise
        checkpoints.close()


def restore_start(plan: Plan, checkpoints: Checkpoints, console: Console) -> Start | None:
    """Restore the newest undamaged checkpoint of a run, and print a line; return None if there is no checkpoint.

    Raises:
        UserError: every checkpoint is damaged, or the newest checkpoint belongs to a different run.
    """

    def check_same_run(record: Record) -> None:
        """Raise UserError if the record of a checkpoint belongs to a different run."""
        different = refused_changes(to_json(from_json(record["config"])), plan.recorded_config, record["step"])
        if record["fingerprint"] != plan.fingerprint:
            different.append("the corpus or its tokenizer")
        if different:
            path = plan.workdir / "checkpoints" / str(record["step"])
            raise UserError(f"{path} belongs to a run that differs ({'; '.join(different)}); choose another --workdir")

    shapes, shardings = plan.state_layout
    abstract = abstract_state(shapes._replace(frozen=()), shardings._replace(frozen=()))
    newest = checkpoints.restore_newest(lambda step: checkpoints.restore(step, abstract, check_same_run), console.say)
    if newest is None:
        return None
    step, state, record = newest
    saved, present = record["versions"], package_versions()
    changed = [f"{name} {saved[name]} -> {present[name]}" for name in present if saved.get(name) != present[name]]
    if changed:
        console.say(f"saved with other versions ({', '.join(changed)}): resuming, but not bit for bit")
    checkpoints.set_later_checkpoints_aside(step)
    if step < plan.last_step:
        path = checkpoints.directory / str(step)
        console.say(f"resuming at step {step:,} from {path}, sequence {record['sequence']:,}")
    else:
        # If a task has several trainings, their caller prints the advice.
        is_training_of_many = plan.root != plan.workdir
        advice = f"; to train further from {plan.workdir}, use another --workdir and --config.init_from"
        console.say(f"finished: all {step:,} steps are done{'' if is_training_of_many else advice}")
    if plan.profiled_steps and step >= plan.profiled_steps.stop:
        steps = f"{plan.profiled_steps.start}:{plan.profiled_steps.stop}"
        console.say(f"warning: no effect of config.profile.steps={steps}, as these steps are done")
    means = {name: Mean(*parts) for name, parts in record["means"].items()}
    return Start(step=step, state=state, means=means, metrics_digest=record["metrics"])


def initial_state(plan: Plan, params: Params | None) -> Start:
    """Return the start of a new run from the float32 parameters `params`; None: from random parameters."""
    init = functools.partial(init_state, plan.seed, plan.objective, plan.param_optimizer)
    shardings = plan.state_layout.shardings._replace(frozen=())
    if params is None:
        state = jax.jit(init, out_shardings=shardings)()
    else:
        params = jax.device_put(params, shardings.params)
        # The compiled program makes all parts of the state except the parameters, because the program would copy the
        # parameters.
        without_params = jax.jit(
            lambda params: init(params)._replace(params=()), out_shardings=shardings._replace(params=())
        )
        state = without_params(params)._replace(params=params)
    return Start(step=0, state=state, means={}, metrics_digest=None)
