"""The dry run of a recipe on given devices, present or absent: memory, cost and time of each phase."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from bert_jax.batches.masking import data_config_of_phase
from bert_jax.batches.pipeline import ArrayShape, batch_shapes
from bert_jax.checkpoints.architecture import read_architecture
from bert_jax.config import (
    ComputeConfig,
    FinetuneConfig,
    MeshConfig,
    OptimizerConfig,
    PretrainConfig,
    check_choices,
    check_warmup,
    refuse_fields_without_effect,
    with_vocab_size,
)
from bert_jax.console import Console
from bert_jax.corpus.mixture import open_mixture
from bert_jax.dryrun.estimate import Estimate, Machine, estimate_step_time, peak_figures_of_device
from bert_jax.dryrun.hlo_cost import Cost, program_cost
from bert_jax.dryrun.topology import discarded_stderr
from bert_jax.errors import UserError
from bert_jax.finetuning.inputs import (
    learning_rates_to_try,
    objective_of_task,
    plan_training,
    read_task_inputs,
)
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.base import Objective
from bert_jax.parallel import sharding
from bert_jax.parallel.chips import CHIPS, fraction_of_chip, peak_flops
from bert_jax.parallel.memory import (
    BatchSettings,
    Memory,
    bytes_in_memory_error,
    is_out_of_memory,
    overrides_to_fit_memory,
    program_memory,
    usable_memory_fraction,
)
from bert_jax.pretraining.teacher import read_teacher_architecture
from bert_jax.tasks.batching import collate
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate, plan_phases
from bert_jax.training.step import abstract_state, check_divisible_by_mesh, jit_train_step, state_layout

NOTHING_FITS = "a larger slice, a chip with more memory, or a smaller batch"
DEFAULT_VOCAB_SIZE = 30_522  # vocabulary size of the released uncased BERT
NO_TILES = "find output tile sizes"  # part of the message of XLA's error
LOWERED_AS = {"gpu": "cuda"}  # JAX's name of a platform -> the name that lowering takes if no device is present

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileInputs:
    """The inputs that are needed to compile a run, which has one program per phase and batch size."""

    objective: Objective
    phases: tuple[Phase, ...]
    optimizer: OptimizerConfig
    mesh: MeshConfig
    compute: ComputeConfig
    evaluation_batch_size: int | None
    batch_shapes: Callable[[Phase], dict[str, ArrayShape]]  # shape and dtype of each array
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseReport:
    """The results of a phase; the fields `cost` and `estimate` are None if the program does not fit in memory."""

    phase: Phase
    tokens: int  # tokens of a step, over all devices
    parameter_bytes: int  # bytes on one device, a part of memory.arguments
    optimizer_bytes: int  # bytes on one device, with the moving average of the parameters
    memory: Memory
    fits: bool
    changes: tuple[str, ...]  # overrides with which the phase should fit in memory
    model_flops: float  # model FLOPs of a step, on one device
    cost: Cost | None
    estimate: Estimate | None
    compile_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The results of a recipe on devices of one kind. On a TPU v4, each core of a chip may be a device."""

    name: str
    devices: int
    chips: float
    watts: float | None  # typical power of one chip
    machine: Machine
    mesh: dict[str, int]
    parameters: int
    notes: tuple[str, ...]
    phases: tuple[PhaseReport, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Total:
    """The totals of a recipe; a pair is (fastest, slowest), or None if a figure of the chip or a price is unknown."""

    steps: int
    tokens: int
    model_flops: float  # model FLOPs on all devices
    days: tuple[float, float] | None
    chip_hours: tuple[float, float] | None
    cost: tuple[float, float] | None  # cost in the currency of the price
    energy_kwh: tuple[float, float] | None


def pretraining_compile_inputs(config: PretrainConfig) -> CompileInputs:
    """Return the inputs to compile a pretraining recipe.

    A recipe with neither a corpus nor a vocabulary size gets the vocabulary size of `config.init_from`; if these
    initial weights cannot be read, the vocabulary size of BERT is assumed.

    Raises:
        UserError: a field has a value that is not among its choices, a field has no effect, or the corpus cannot be
            read.
    """
    check_choices(config)
    refuse_fields_without_effect(config)
    notes: tuple[str, ...] = ()
    if config.data.corpus:
        config = with_vocab_size(config, open_mixture(config.data.corpus).tokenizer().vocab_size)
    elif not config.model.vocab_size:
        size = DEFAULT_VOCAB_SIZE
        if config.init_from:
            with contextlib.suppress(UserError):  # the weights may be only on the machine of the run
                size = read_architecture(config.init_from).vocab_size or size
        config = with_vocab_size(config, size)
        notes = (f"no corpus and no config.model.vocab_size: assuming a vocabulary of {size:,}",)
    data, phase_settings = config.data, config.train.phases

    def batch_shapes_of_phase(phase: Phase) -> dict[str, ArrayShape]:
        return batch_shapes(phase.batch_size, phase.seq_len, data_config_of_phase(data, phase_settings[phase.index]))

    teacher = config.distillation.teacher if OBJECTIVES[config.objective].has_teacher else None
    return CompileInputs(
        objective=make_objective(config, read_teacher_architecture(teacher, config.model.vocab_size)),
        phases=plan_phases(config.train),
        optimizer=config.optimizer,
        mesh=config.mesh,
        compute=config.compute,
        evaluation_batch_size=config.evaluate.batch_size,
        batch_shapes=batch_shapes_of_phase,
        notes=notes,
    )


def finetuning_compile_inputs(config: FinetuneConfig, console: Console) -> CompileInputs:
    """Return the inputs to compile a fine-tuning recipe, with all sequences padded to the longest length.

    Raises:
        UserError: the weights, the data and the settings of the recipe do not fit together.
    """
    check_choices(config)
    refuse_fields_without_effect(config)
    settings, train, freeze_encoder = config.task, config.train, config.optimizer.freeze_encoder
    inputs = read_task_inputs(config.init_from, settings, train, freeze_encoder, config.seed, console, config.adapter)
    feed, phase, _ = plan_training(inputs, settings, train)
    # The batches have examples of the set whose examples have the most sequences.
    features = max((split.features for split in inputs.train), key=lambda features: len(features[0].sequences))
    check_warmup(config.optimizer, phase.end)

    def batch_shapes_of_phase(phase: Phase) -> dict[str, ArrayShape]:
        first = features[: phase.batch_size]
        batch = collate(first, phase.seq_len, feed.num_token_types, feed.pad_id, phase.batch_size)
        return {name: ArrayShape(x.shape, x.dtype) for name, x in batch.items()}

    notes, sequences = [], len(features[0].sequences)
    trainings = (
        len(learning_rates_to_try(settings.learning_rates, config.optimizer.peak_learning_rate)) * settings.num_seeds
    )
    if sequences > 1:
        notes.append(f"an example is {sequences} sequences")
    if len(feed.buckets) > 1:
        notes.append(
            f"every step is counted at {feed.buckets[-1]} tokens, the longest; steps on shorter texts take less"
        )
    if trainings > 1:
        notes.append(f"the figures are for one of {trainings} trainings")
    return CompileInputs(
        objective=objective_of_task(inputs, settings, config.compute, freeze_encoder, phase.end),
        phases=(phase,),
        optimizer=config.optimizer,
        mesh=config.mesh,
        compute=config.compute,
        evaluation_batch_size=config.evaluate.batch_size,
        batch_shapes=batch_shapes_of_phase,
        notes=tuple(notes),
    )


def dry_run(work: CompileInputs, devices: Sequence[Any] | None, say: Say) -> Report:
    """Compile every phase of a recipe, with each batch size of the phase, and report the cost of a step on one device.

    Args:
        work: the inputs to compile the recipe.
        devices: present or compile-only devices; None: the devices of this machine.
        say: function that prints a line of progress, because a compilation can take minutes.

    Raises:
        UserError: the devices, the model, a batch or a micro-batch cannot be divided over the mesh.
    """
    are_present = devices is None
    devices = jax.devices() if devices is None else devices
    objective, phases, notes = work.objective, work.phases, work.notes
    mesh = sharding.make_mesh(work.mesh, devices)
    check_divisible_by_mesh(mesh, objective, phases, work.evaluation_batch_size)

    kind, chip = devices[0].device_kind, CHIPS.get(devices[0].device_kind)
    fraction = fraction_of_chip(devices[0])
    taken = usable_memory_fraction(devices[0].platform)
    if chip:
        machine = peak_figures_of_device(chip, fraction, taken)
    elif are_present and devices[0].platform == "cpu":
        machine = Machine(peak_flops(), None, None, None, "measured here: a float32 matrix product")
    else:
        machine = Machine(None, None, None, None, "not in the table of chips")
    if chip and fraction != 1:
        notes = (*notes, f"a device is one of the {chip.cores} cores of a {chip.name} chip")
    if chip and taken != 1:
        notes = (
            *notes,
            f"JAX takes {taken:.0%} of a GPU's memory; XLA_CLIENT_MEM_FRACTION in the environment changes it",
        )
    if (slices := sharding.count_slices(devices)) > 1:
        notes = (*notes, f"{slices} slices: the time of the network between them is in no bound")
    reports = []
    for index, phase in enumerate(phases, 1):
        say(
            f"compiling program {index} of {len(phases)} for {len(devices)} x {kind}: "
            f"{phase.batch_size:,} sequences of {phase.seq_len} tokens"
        )
        reports.append(_compile_and_report_phase(work, phase, mesh, machine))
    return Report(
        name=chip.name if chip else kind,
        devices=len(devices),
        chips=len(devices) * fraction,
        watts=chip.watts if chip else None,
        machine=machine,
        mesh=dict(mesh.shape),
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(objective.shapes)),
        notes=notes,
        phases=tuple(reports),
    )


def recipe_total(report: Report, price_per_chip_hour: float | None, watts_per_chip: float | None) -> Total:
    """Return the steps, tokens, FLOPs, time, cost and energy of a whole recipe.

    Args:
        report: the report of all phases.
        price_per_chip_hour: price of a chip for an hour; None if the price is unknown.
        watts_per_chip: power of a chip; None: the power in the table of chips, if it is known.
    """
    steps = [phase.phase.end - phase.phase.begin for phase in report.phases]
    watts_per_chip = report.watts if watts_per_chip is None else watts_per_chip

    def seconds_of_all_steps(bound: str) -> float | None:
        """Return the time of all steps in seconds, by the estimate that `bound` selects: `fastest` or `slowest`."""
        seconds: list[Any] = [getattr(phase.estimate, bound, None) for phase in report.phases]
        return None if None in seconds else sum(s * n for s, n in zip(seconds, steps, strict=True))

    fastest, slowest = seconds_of_all_steps("fastest"), seconds_of_all_steps("slowest")
    known = None if fastest is None or slowest is None else (fastest, slowest)

    def scaled_time_range(factor: float | None) -> tuple[float, float] | None:
        return (known[0] * factor, known[1] * factor) if known and factor is not None else None

    return Total(
        steps=sum(steps),
        tokens=sum(n * phase.tokens for n, phase in zip(steps, report.phases, strict=True)),
        model_flops=sum(n * phase.model_flops * report.devices for n, phase in zip(steps, report.phases, strict=True)),
        days=scaled_time_range(1 / 86_400),
        chip_hours=scaled_time_range(report.chips / 3600),
        cost=scaled_time_range(None if price_per_chip_hour is None else price_per_chip_hour * report.chips / 3600),
        energy_kwh=scaled_time_range(None if watts_per_chip is None else watts_per_chip * report.chips / 3.6e6),
    )


def _compile_and_report_phase(
    work: CompileInputs, phase: Phase, mesh: jax.sharding.Mesh, machine: Machine
) -> PhaseReport:
    """Compile the step of a phase, and return its memory, cost and estimated time."""
    objective = work.objective
    optimizer = make_optimizer(work.optimizer, objective.logical_axes, objective.sections, phase.weight_decay)
    schedule = functools.partial(learning_rate, work.optimizer, work.phases)
    split = sharding.batch_sharding(mesh)
    shapes = work.batch_shapes(phase)
    batch = {k: jax.ShapeDtypeStruct(shape, dtype, sharding=split) for k, (shape, dtype) in shapes.items()}
    sequences = math.prod(batch["input_ids"].shape[:-1])  # an example with choices has several sequences
    platform = LOWERED_AS.get(mesh.devices.flat[0].platform, mesh.devices.flat[0].platform)
    began = time.monotonic()
    # This is outside of `jax.set_mesh`, because no computation may run on absent devices.
    state_shapes, shardings = state_layout(objective, optimizer, mesh)
    state = abstract_state(state_shapes, shardings)
    with jax.set_mesh(mesh):
        step = jit_train_step(
            objective.of_phase(phase.index),
            optimizer,
            schedule,
            phase.grad_accum_steps,
            mesh=mesh,
            shardings=shardings,
            deterministic=work.compute.deterministic,
        )
        compiled, needed = _compile_or_needed_bytes(step.trace(state, batch).lower(lowering_platforms=(platform,)))
    seconds = time.monotonic() - began
    memory = program_memory(compiled) if compiled else None
    if memory is None:
        arguments = _bytes_per_device((state, batch))
        memory = Memory(arguments, max(0, needed - arguments), needed)
    cost = _cost_corrected_for_loops(compiled) if compiled else None
    fits = compiled is not None and (machine.capacity is None or memory.total <= machine.capacity)
    parameter_bytes = _bytes_per_device(state.params)
    changes: tuple[str, ...] = ()
    if not fits and machine.capacity is not None:
        remat, taken = work.compute.remat, usable_memory_fraction(mesh.devices.flat[0].platform)
        settings = BatchSettings(phase.batch_size, phase.seq_len, phase.grad_accum_steps, remat, phase.batch_keys)
        changes = overrides_to_fit_memory(memory, machine.capacity, mesh, settings, parameter_bytes, taken) or (
            NOTHING_FITS,
        )
    return PhaseReport(
        phase=phase,
        tokens=sequences * phase.seq_len,
        parameter_bytes=parameter_bytes,
        optimizer_bytes=_bytes_per_device(state.opt_state),
        memory=memory,
        fits=fits,
        changes=changes,
        model_flops=sequences * objective.of_phase(phase.index).flops(phase.seq_len, phase.index) / mesh.size,
        cost=cost,
        estimate=estimate_step_time(cost, machine) if cost else None,
        compile_seconds=seconds,
    )


def _cost_corrected_for_loops(compiled: Any) -> Cost:
    """Return XLA's counts of FLOPs and bytes, corrected for loops, whose bodies XLA counts only once.

    Without a GPU, the CUDA compiler gives no counts, so only the counts of `program_cost` are returned.
    """
    text, counted = compiled.as_text(), compiled.cost_analysis()
    if not counted:
        return program_cost(text)
    full, once = program_cost(text), program_cost(text, multiply_loops=False)
    return full._replace(
        flops=counted["flops"] * full.flops / once.flops,
        bytes=counted["bytes accessed"] * full.bytes / once.bytes,
    )


class _CompiledOrBytes(NamedTuple):
    """The pair (compiled program, 0), or (None, needed bytes) if the program does not fit in memory."""

    compiled: Any
    needed_bytes: int


def _compile_or_needed_bytes(lowered: Any) -> _CompiledOrBytes:
    """Return (compiled program, 0), or (None, needed bytes) if the program does not fit in memory.

    Without a GPU, XLA cannot try tile sizes, and its first choice may fail to compile (A100, L40S, B200). After a
    failure, the program is compiled again, with cuBLAS for all matrix products.
    """
    try:
        with discarded_stderr():
            try:
                return _CompiledOrBytes(lowered.compile(), 0)
            except jax.errors.JaxRuntimeError as error:
                if NO_TILES not in str(error):
                    raise
                return _CompiledOrBytes(lowered.compile(compiler_options={"xla_gpu_enable_triton_gemm": False}), 0)
    except jax.errors.JaxRuntimeError as error:
        needed = bytes_in_memory_error(error)
        if not is_out_of_memory(error) or needed is None:
            raise
        return _CompiledOrBytes(None, needed)


def _bytes_per_device(tree: Any) -> int:
    """Return the number of bytes per device of a tree of array shapes with shardings."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))
