"""The dry run: compiles the program that would train, for devices present or not, and reads its costs off it."""

import dataclasses
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from bert_jax.config import PretrainConfig, check_choices, with_vocab_size
from bert_jax.data.mixture import open_mixture
from bert_jax.data.sequences.pipeline import batch_shapes
from bert_jax.dryrun.estimate import Estimate, Machine, estimate, machine
from bert_jax.dryrun.hlo_cost import Cost, cost
from bert_jax.dryrun.topology import quiet
from bert_jax.objectives import make_objective
from bert_jax.objectives.base import Objective
from bert_jax.parallel import sharding
from bert_jax.parallel.chips import CHIPS, peak_flops
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, plan_phases
from bert_jax.training.step import abstract_state, check_layout, jit_step, state_shardings

REMAT_SAVES = 3  # by about what factor recomputing can be hoped to cut the memory
DEFAULT_VOCABULARY = 30_522  # of the released uncased BERT

Say = Callable[[str], None]


class Memory(NamedTuple):
    """Bytes on one device; `total` is what is held at once, `parameters` and `optimizer` are parts of `arguments`."""

    parameters: int
    optimizer: int
    arguments: int
    temporaries: int
    total: int


class PhaseReport(NamedTuple):
    """One phase. `cost` and `estimate` are None where the compiler refused the program for want of memory."""

    phase: Phase
    memory: Memory
    fits: bool
    changes: tuple[str, ...]  # what to do where it does not fit
    model_flops: float
    cost: Cost | None
    estimate: Estimate | None
    compile_seconds: float


class Report(NamedTuple):
    """The whole recipe on `devices` devices of one kind, `chips` chips."""

    name: str
    devices: int
    chips: float
    watts: float | None  # of a chip, typical
    machine: Machine
    mesh: dict[str, int]
    parameters: int
    notes: tuple[str, ...]
    phases: tuple[PhaseReport, ...]


class Total(NamedTuple):
    """Of the recipe; pairs are (fastest, slowest), None where a figure that they need is unknown."""

    steps: int
    tokens: int
    model_flops: float  # on all devices
    days: tuple[float, float] | None
    chip_hours: tuple[float, float] | None
    cost: tuple[float, float] | None  # in the currency of the price
    energy_kwh: tuple[float, float] | None


def dry_run(config: PretrainConfig, devices: Sequence[Any] | None, say: Say) -> Report:
    """Compiles every phase of a recipe for `devices` (None: those present) and reports what a step costs on one.

    `say` is told what happens; a compilation takes from seconds to minutes.
    Raises UserError where devices, model, batches and micro-batches do not divide.
    """
    present = devices is None
    devices = jax.devices() if devices is None else devices
    check_choices(config)
    config, notes = _with_vocabulary(config)
    objective, phases = make_objective(config), plan_phases(config.train)
    mesh = check_layout(config, objective, phases, devices)
    shapes = jax.eval_shape(objective.init, jax.random.PRNGKey(0))

    kind, chip = devices[0].device_kind, CHIPS.get(devices[0].device_kind)
    share = getattr(devices[0], "num_cores", chip.cores) / chip.cores if chip and chip.cores > 1 else 1.0
    figures = machine(chip, share) if chip else _measured(devices[0], present)
    if chip and share != 1:
        notes = (*notes, f"a device is one of the {chip.cores} cores of a {chip.name} chip")
    reports = []
    for number, phase in enumerate(phases, 1):
        say(
            f"compiling phase {number} of {len(phases)} for {len(devices)} x {kind}: "
            f"{phase.batch_size:,} rows of {phase.seq_len} tokens"
        )
        reports.append(_phase(config, objective, phases, number - 1, mesh, figures))
    return Report(
        name=chip.name if chip else kind,
        devices=len(devices),
        chips=len(devices) * share,
        watts=chip.watts if chip else None,
        machine=figures,
        mesh=dict(mesh.shape),
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)),
        notes=notes,
        phases=tuple(reports),
    )


def total(report: Report, price: float | None, watts: float | None) -> Total:
    """The recipe as a whole; `price` of a chip-hour, `watts` a chip (None: the table's, where it has one)."""
    steps = [one.phase.end - one.phase.begin for one in report.phases]
    watts = report.watts if watts is None else watts

    def over_phases(end: str) -> float | None:
        seconds: list[Any] = [getattr(one.estimate, end, None) for one in report.phases]
        return None if None in seconds else sum(s * n for s, n in zip(seconds, steps, strict=True))

    fastest, slowest = over_phases("fastest"), over_phases("slowest")
    known = None if fastest is None or slowest is None else (fastest, slowest)

    def scaled(factor: float | None) -> tuple[float, float] | None:
        return (known[0] * factor, known[1] * factor) if known and factor is not None else None

    return Total(
        steps=sum(steps),
        tokens=sum(n * one.phase.batch_size * one.phase.seq_len for n, one in zip(steps, report.phases, strict=True)),
        model_flops=sum(n * one.model_flops * report.devices for n, one in zip(steps, report.phases, strict=True)),
        days=scaled(1 / 86_400),
        chip_hours=scaled(report.chips / 3600),
        cost=scaled(None if price is None else price * report.chips / 3600),
        energy_kwh=scaled(None if watts is None else watts * report.chips / 3.6e6),
    )


def _measured(device: Any, present: bool) -> Machine:
    """The figures of a device that is not in the table: of a CPU that is here, its measured speed."""
    if present and device.platform == "cpu":
        return Machine(peak_flops(), None, None, None, "measured here: a float32 matrix product")
    return Machine(None, None, None, None, "not in the table of chips")


def _with_vocabulary(config: PretrainConfig) -> tuple[PretrainConfig, tuple[str, ...]]:
    """The config with a vocabulary size: its own, its corpus's, or BERT's."""
    if config.data.corpus:
        return with_vocab_size(config, open_mixture(config.data.corpus).tokenizer().vocab_size), ()
    if config.model.vocab_size:
        return config, ()
    model = dataclasses.replace(config.model, vocab_size=DEFAULT_VOCABULARY)
    note = f"no corpus and no config.model.vocab_size: a vocabulary of {DEFAULT_VOCABULARY:,} is taken"
    return dataclasses.replace(config, model=model), (note,)


def _phase(
    config: PretrainConfig,
    objective: Objective,
    phases: tuple[Phase, ...],
    number: int,
    mesh: jax.sharding.Mesh,
    figures: Machine,
) -> PhaseReport:
    phase = phases[number]
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    rows = sharding.batch_sharding(mesh)
    shapes = batch_shapes(phase.batch_size, phase.seq_len, config.data)
    batch = {k: jax.ShapeDtypeStruct(shape, dtype, sharding=rows) for k, (shape, dtype) in shapes.items()}
    platform = mesh.devices.flat[0].platform
    began = time.monotonic()
    # Outside of the mesh: nothing may run on devices that are not there.
    state_shapes, shardings = state_shardings(config, objective, optimizer, mesh)
    state = abstract_state(state_shapes, shardings)
    with jax.set_mesh(mesh):
        traced = jit_step(config, objective, optimizer, phases, phase, mesh, shardings).trace(state, batch)
        compiled, used = _compile(traced.lower(lowering_platforms=(platform,)))
    seconds = time.monotonic() - began
    parameters, moments = _bytes(state.params), _bytes(state.opt_state)
    if compiled is None:
        arguments = _bytes((state, batch))
        memory = Memory(parameters, moments, arguments, max(0, used - arguments), used)
    else:
        sizes = compiled.memory_analysis()
        live = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + sizes.generated_code_size_in_bytes
        live += sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        memory = Memory(parameters, moments, sizes.argument_size_in_bytes, sizes.temp_size_in_bytes, live)
    costs = _cost(compiled) if compiled else None
    fits = compiled is not None and (figures.capacity is None or memory.total <= figures.capacity)
    return PhaseReport(
        phase=phase,
        memory=memory,
        fits=fits,
        changes=() if fits else _changes(config, phase, number, mesh, memory, figures.capacity),
        model_flops=phase.batch_size * objective.flops(phase.seq_len) / mesh.size,
        cost=costs,
        estimate=estimate(costs, figures) if costs else None,
        compile_seconds=seconds,
    )


def _cost(compiled: Any) -> Cost:
    """XLA's own count of FLOPs and bytes, which takes the body of a loop once, by how often our count says it runs."""
    text, counted = compiled.as_text(), compiled.cost_analysis()
    full, once = cost(text), cost(text, loops=False)
    return full._replace(
        flops=counted["flops"] * full.flops / once.flops,
        bytes=counted["bytes accessed"] * full.bytes / once.bytes,
    )


def _compile(lowered: Any) -> tuple[Any, int]:
    """The compiled program and 0, or None and the bytes that it would have needed."""
    try:
        with quiet():
            return lowered.compile(), 0
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        needed = re.search(r"Used ([\d.]+)([KMGT]?) of|temporaries \(([\d.]+)([KMGT]?)\)", text)
        if "RESOURCE_EXHAUSTED" not in text or not needed:
            raise
        number, unit = needed[1] or needed[3], needed[2] or needed[4]
        return None, int(float(number) * 1024 ** " KMGT".index(unit or " "))


def _bytes(tree: Any) -> int:
    """Bytes that one device holds of a tree of shapes with shardings."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _changes(
    config: PretrainConfig, phase: Phase, number: int, mesh: jax.sharding.Mesh, memory: Memory, capacity: int | None
) -> tuple[str, ...]:
    """What would make it fit, by how sizes scale: temporaries with rows, arguments with shards; each is an estimate."""
    if capacity is None:
        return ()
    found = []
    if not config.compute.remat and memory.total <= REMAT_SAVES * capacity:
        found.append("--config.compute.remat=True (recompute each block: a third more FLOPs)")
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    rows = phase.batch_size // (shards * phase.grad_accum_steps)
    gradients = memory.parameters if phase.grad_accum_steps == 1 else 0  # a scan keeps a sum of them
    for times in range(2, rows + 1):
        if rows % times == 0 and memory.arguments + gradients + memory.temporaries / times <= capacity:
            found.append(
                f"--config.train.phases[{number}].grad_accum_steps={phase.grad_accum_steps * times} "
                f"({rows // times} rows a device at a time instead of {rows})"
            )
            break
    for times in range(2, mesh.shape["data"] + 1):
        if mesh.shape["data"] % times == 0 and memory.arguments / times + memory.temporaries <= capacity:
            found.append(
                f"--config.mesh.data={mesh.shape['data'] // times} "
                f"--config.mesh.fsdp={mesh.shape['fsdp'] * times} (shard parameters and optimizer)"
            )
            break
    return tuple(found) or ("a larger slice, a chip with more memory, or a smaller batch",)
