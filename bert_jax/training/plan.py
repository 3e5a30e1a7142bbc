"""The inputs of the training loop: the plan and the data of a run, and the session of a process."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from bert_jax.config import CheckpointConfig, ComputeConfig, FinetuneTrainConfig, OptimizerConfig, WatchdogConfig
from bert_jax.console import Console
from bert_jax.objectives.base import Batch, Objective, Params
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.training.evaluation import Evaluate
from bert_jax.training.metrics import Line
from bert_jax.training.optimizers import Optimizer, make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import LearningRate, StateLayout, state_layout


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run, which `pretrain_in_directory` or `finetune_in_directory` makes once for the loop."""

    workdir: pathlib.Path  # directory of the checkpoints and metrics
    root: pathlib.Path  # work directory of the command: `workdir`, or a directory above it
    recorded_config: dict[str, Any]  # JSON values, as run.json and every checkpoint record them
    fingerprint: dict[str, str]  # digests of the inputs that a resumed run must find again, such as the corpus
    seed: int
    objective: Objective
    phases: tuple[Phase, ...]
    mesh: jax.sharding.Mesh
    optimizer: OptimizerConfig
    compute: ComputeConfig
    train: FinetuneTrainConfig
    evaluate_every: int | None  # steps between two evaluations; None: evaluate only at the end
    evaluate_first: bool  # whether to evaluate before the first step
    checkpoint: CheckpointConfig
    profiled_steps: range | None  # steps that the profiler traces; None: no step

    @property
    def last_step(self) -> int:
        """The number of steps of the run."""
        return self.phases[-1].end

    @functools.cached_property
    def param_optimizer(self) -> Optimizer:
        """The optimizer of the objective's parameters."""
        return make_optimizer(self.optimizer, self.objective.logical_axes, self.objective.sections)

    def optimizer_of_phase(self, phase: Phase) -> Optimizer:
        """Return the optimizer of a phase; the state of `param_optimizer` fits this optimizer."""
        return make_optimizer(self.optimizer, self.objective.logical_axes, self.objective.sections, phase.weight_decay)

    @functools.cached_property
    def learning_rate(self) -> LearningRate:
        """The learning rate as a function of the step, over all phases."""
        return functools.partial(learning_rate, self.optimizer, self.phases)

    @functools.cached_property
    def state_layout(self) -> StateLayout:
        """The shapes and shardings of the training state."""
        return state_layout(self.objective, self.param_optimizer, self.mesh)


class Heldout(NamedTuple):
    """The held-out data of an evaluation; `batches(phase)` yields all `num_batches(phase)` batches once."""

    batches: Callable[[Phase], Generator[Batch, None, None]]
    num_batches: Callable[[Phase], int]


def no_remarks(line: Line) -> Iterable[str]:
    """Return no remarks about a line of metrics."""
    return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """The data of a run: batches, evaluations, frozen parameters and remarks.

    Attributes:
        batches: function (phase, step) -> an endless generator of this host's part of the batches from `step` on; the
            generator yields {} while a batch is not prepared yet.
        heldout: the held-out batches; None: no sequences are held out.
        evaluate: function (params, frozen params, held-out batches) -> metrics by name; None: no evaluation.
        phase_evaluations: index of a phase with a different objective -> `evaluate` for this phase.
        should_stop: function (step, metrics of the evaluation, params) -> whether the run ends now (early stopping);
            without this function, no run ends early. `evaluate` and `should_stop` get the moving average of the
            parameters if the state has an average.
        frozen: parameters that are not trained, such as the parameters of a teacher.
        unigram_losses: split -> loss, in nats, of a model that knows only how often each training token occurs; every
            line of metrics has this loss. The dictionary is empty if the run does not predict tokens.
        remarks: function from a line of metrics to lines for the console.
    """

    batches: Callable[[Phase, int], Generator[Batch, None, None]]
    heldout: Heldout | None = None
    evaluate: Evaluate | None = None
    phase_evaluations: Mapping[int, Evaluate] = dataclasses.field(default_factory=dict)
    should_stop: Callable[[int, dict[str, float], Params], bool] | None = None
    frozen: Params = ()
    unigram_losses: Mapping[str, float] = dataclasses.field(default_factory=dict)
    remarks: Callable[[Line], Iterable[str]] = no_remarks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """The console, the signal handler and the watchdog of a training process."""

    console: Console
    interrupt: Interrupt
    watchdog: Watchdog

    def heartbeat(self) -> bool:
        """Restart the watchdog's time limit, and return whether the run should stop; call this during long work."""
        self.watchdog.restart_clock()
        return self.interrupt.should_stop()


@contextlib.contextmanager
def open_session(console: Console, limits: WatchdogConfig) -> Iterator[Session]:
    """Yield the session of a process that trains without other processes."""
    with Interrupt() as interrupt, contextlib.closing(Watchdog(limits)) as watchdog:
        console.beat = watchdog.restart_clock
        yield Session(console=console, interrupt=interrupt, watchdog=watchdog)
