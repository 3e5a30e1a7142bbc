"""The report of a dry run as text and as JSON values."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_jax.console import text_table
from bert_jax.dryrun.dry_run import PhaseReport, Report, Total

UNKNOWN = "unknown"


def report_json(report: Report, total: Total) -> dict[str, Any]:
    """Return the report of a dry run as JSON values, in bytes, FLOPs and seconds.

    Unknown values are None, and ranges are [low, high]. If each core of a chip is a device (TPU v4), the suffix
    `per_chip` in the name of a value means "per device".
    """
    return {
        "chip": report.name,
        "devices": report.devices,
        "chips": report.chips,
        "mesh": report.mesh,
        "parameters": report.parameters,
        "peak": {
            "flops_per_second": report.machine.flops,
            "hbm_bytes_per_second": report.machine.hbm_bandwidth,
            "interconnect_bytes_per_second": report.machine.interconnect,
            "source": report.machine.source,
        },
        "notes": list(report.notes),
        "phases": [_phase_json(report, phase) for phase in report.phases],
        "total": dataclasses.asdict(total),
    }


def _phase_json(report: Report, result: PhaseReport) -> dict[str, Any]:
    """Return the results of a phase as JSON values."""
    phase, memory, cost, estimate = result.phase, result.memory, result.cost, result.estimate
    return {
        "seq_len": phase.seq_len,
        "batch_size": phase.batch_size,
        "grad_accum_steps": phase.grad_accum_steps,
        "steps": phase.end - phase.begin,
        "flops_per_chip": cost and cost.flops,
        "model_flops_per_chip": result.model_flops,
        "bytes_accessed_per_chip": cost and cost.bytes,
        "hbm_bytes_per_chip": cost and cost.hbm_bytes,
        "parameter_bytes_per_chip": result.parameter_bytes,
        "optimizer_bytes_per_chip": result.optimizer_bytes,
        "temporary_bytes_per_chip": memory.temporaries,
        "argument_bytes_per_chip": memory.arguments,
        "total_bytes_per_chip": memory.total,
        "capacity_bytes_per_chip": report.machine.capacity,
        "fits": result.fits,
        "changes": list(result.changes),
        "collectives": [dataclasses.asdict(collective) for collective in cost.collectives] if cost else [],
        "dcn_bytes_per_chip": cost and cost.dcn_bytes,
        "kernels": cost.kernels if cost else {},
        "bound": estimate and estimate.bound,
        "bound_seconds": estimate
        and {"compute": estimate.compute, "memory": estimate.memory, "interconnect": estimate.interconnect},
        "seconds": [estimate.fastest, estimate.slowest] if estimate and estimate.bound else None,
        "compile_seconds": result.compile_seconds,
    }


def report_text(report: Report, total: Total) -> str:
    """Return the report of a dry run as text: a column for each phase and batch size, then the totals of the recipe."""
    indices = [result.phase.index for result in report.phases]
    numbers = [1 + sorted(set(indices)).index(index) for index in indices]
    mesh = " x ".join(f"{axis} {size:,}" for axis, size in report.mesh.items())
    figures = report.machine
    bandwidth = f" at {_text_in_unit(figures.hbm_bandwidth, 1e9, 'GB/s')}" if figures.hbm_bandwidth else ""
    lines = [
        f"{report.devices:,} x {report.name}, mesh {mesh}; {report.parameters:,} parameters",
        f"peak per device: {_text_in_unit(figures.flops, 1e12, 'TFLOP/s')}, "
        f"memory {_text_in_unit(figures.capacity, 2**30, 'GiB')}{bandwidth}, "
        f"interconnect {_text_in_unit(figures.interconnect, 1e9, 'GB/s')} sent ({figures.source})",
        *(f"note: {note}" for note in report.notes),
        "",
        *_lines_with_phase_columns(
            [
                _phase_rows(report, result, phase_number)
                for phase_number, result in zip(numbers, report.phases, strict=True)
            ]
        ),
        "",
        *_total_lines(report, total),
    ]
    for phase_number, result in zip(numbers, report.phases, strict=True):
        if not result.fits:
            lines += ["", f"phase {phase_number} does not fit in memory; changes that should make it fit:"]
            lines += [f"  {change}" for change in result.changes]
    return "\n".join(lines)


Rows = list[tuple[str, str]]


def _phase_rows(report: Report, result: PhaseReport, phase_number: int) -> Rows:
    """Return the labels and values of a phase in the report; a label without leading spaces starts a section."""
    phase, memory, cost, estimate = result.phase, result.memory, result.cost, result.estimate
    rows = [
        ("phase", f"{phase_number}"),
        ("  tokens per sequence", f"{phase.seq_len:,}"),
        ("  sequences per step", f"{phase.batch_size:,}"),
        ("  micro-batches", f"{phase.grad_accum_steps:,}"),
        ("  steps", f"{phase.end - phase.begin:,}"),
        ("memory per device", ""),
        ("  parameters", _gib_text(result.parameter_bytes)),
        ("  optimizer", _gib_text(result.optimizer_bytes)),
        ("  activations, gradients", _gib_text(memory.temporaries)),
        ("  total", _gib_text(memory.total)),
        ("  capacity", _gib_text(report.machine.capacity)),
        ("  fits", UNKNOWN if result.fits and report.machine.capacity is None else "yes" if result.fits else "NO"),
        ("one step, per device", ""),
        ("  model FLOPs", _text_in_unit(result.model_flops, 1e12, "TFLOP")),
    ]
    if cost and estimate:
        rows += [
            ("  FLOPs", f"{_text_in_unit(cost.flops, 1e12, 'TFLOP')}"),
            ("  FLOPs / model FLOPs", f"{cost.flops / result.model_flops:.3f}"),
            ("  bytes accessed", _text_in_unit(cost.bytes, 1e9, "GB")),
            ("  in HBM", _text_in_unit(cost.hbm_bytes, 1e9, "GB")),
            *((f"  {kind} kernels", f"{count:,}") for kind, count in cost.kernels.items()),
            *((f"  {c.kind}", f"{c.count:,}, together {_text_in_unit(c.bytes, 1e9, 'GB')}") for c in cost.collectives),
            *([("  to other slices", _text_in_unit(cost.dcn_bytes, 1e9, "GB"))] if cost.dcn_bytes else []),
            ("time of a step, lower bounds", ""),
            ("  compute", _milliseconds_text(estimate.compute)),
            ("  memory", _milliseconds_text(estimate.memory)),
            ("  interconnect", _milliseconds_text(estimate.interconnect)),
            ("  limited by", estimate.bound or UNKNOWN),
            ("  range", _range_text((estimate.fastest, estimate.slowest), 1e3, "ms")),
        ]
    return rows


def _lines_with_phase_columns(phases: Sequence[Rows]) -> list[str]:
    """Return a line for each label that a phase has, in the order of first appearance, with right-aligned values."""
    labels: list[str] = []
    for rows in phases:
        for index, (label, _) in enumerate(rows):
            if label not in labels:
                before = rows[index - 1][0] if index else None
                labels.insert(labels.index(before) + 1 if before in labels else len(labels), label)
    values = [dict(rows) for rows in phases]
    return text_table([[label, *(column.get(label, "") for column in values)] for label in labels])


def _total_lines(report: Report, total: Total) -> list[str]:
    """Return the lines of the report about the whole recipe."""
    rows = [
        ("the whole recipe", ""),
        ("  steps", f"{total.steps:,}"),
        ("  tokens", f"{total.tokens:,}"),
        ("  model FLOPs, all devices", f"{total.model_flops:.3g}"),
        ("  time", _duration_text(total.days)),
        (
            "  chip-hours",
            _range_text(total.chip_hours, 1, f"on {report.chips:g} {'chip' if report.chips == 1 else 'chips'}"),
        ),
    ]
    if total.cost:
        rows.append(("  cost", _range_text(total.cost, 1, "in the currency of the price")))
    if total.energy_kwh:
        rows.append(("  energy", _range_text(total.energy_kwh, 1, "kWh, chips only")))
    return text_table(rows, left=(0, 1))


def _gib_text(value: int | None) -> str:
    return _text_in_unit(value, 2**30, "GiB")


def _text_in_unit(value: float | None, unit: float, name: str) -> str:
    """Return `value` as text in a unit, with the name of the unit."""
    if value is None:
        return UNKNOWN
    return f"{_three_digits_text(value / unit)} {name}"


def _three_digits_text(value: float) -> str:
    """Return a number as text with at least three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _milliseconds_text(seconds: float | None) -> str:
    return _text_in_unit(seconds, 1e-3, "ms")


def _duration_text(days: tuple[float, float] | None) -> str:
    """Return a range of time as text, in the largest unit (such as days) in which the upper end is at least 2."""
    units = [(1, "days"), (24, "hours"), (24 * 60, "minutes")]
    unit, name = next((each for each in units if days and days[1] * each[0] >= 2), units[-1])
    return _range_text(days, unit, name)


def _range_text(pair: tuple[float | None, float | None] | None, factor: float, name: str) -> str:
    """Return "low to high name", with both values multiplied by `factor`; "unknown" if a value is None."""
    if pair is None or pair[0] is None or pair[1] is None:
        return UNKNOWN
    return f"{_three_digits_text(pair[0] * factor)} to {_three_digits_text(pair[1] * factor)} {name}"
