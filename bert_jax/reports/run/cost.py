"""Time, tokens and energy of a run: measured, or estimated from published figures."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.console import format_number, format_seconds
from bert_jax.parallel.chips import CHIPS
from bert_jax.reports.run.record import Run
from bert_jax.training.tensorboard import RunStart

WATTS_PER_CORE = 12.0  # power of a CPU without published power; Lannelongue et al. 2021, "Green Algorithms"
MAX_UNMEASURED = 0.01  # fraction of the time without measured energy that is ignored
JOULES_PER_KWH = 3.6e6
MIN_KWH = 0.1  # energies below this limit are shown in Wh
WATTS_OPTION = "bert-jax report --watts takes the power of all devices."
DURATIONS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
MACHINE = ("devices", "device_kind", "processes", "cores")
MACHINE_TEXT = "{devices} x {device_kind}; processes: {processes}; cores per host: {cores}"
NOT_VERSIONS = (*MACHINE, "energy")  # keys of a machine in run.json; all other keys are versions


class AssumedPower(NamedTuple):
    """Assumed values that a run does not record: the power of all devices, and the CO2 per kWh."""

    watts: float | None = None  # above 0; None: by the table of chips
    grams_per_kwh: float | None = None  # above 0; None: no CO2 is shown


class CostRows(NamedTuple):
    """The time, tokens, energy and CO2 of a run as names and values, and a note about their sources."""

    rows: list[tuple[str, str]]
    note: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCost:
    """Time, tokens and energy of a run; a value that is not recorded is None."""

    seconds: float | None  # from the first to the last event of each start, evaluations and saving included
    tokens_per_second: float | None  # median
    tokens: int | None  # padding included; None for a fine-tuning
    joules: dict[str, float]  # "measured" and "estimated", without unknown values
    energy_note: str  # source of the energy, or the reason for its absence
    grams: float | None  # CO2; None if --grams_per_kwh or the energy is unknown


def compute_run_cost(run: Run, assumed: AssumedPower) -> RunCost:
    """Return the time, the tokens and the energy of a run."""
    sessions = [session for training in run.trainings for session in training.sessions]
    seconds = sum(session.ended - session.began for session in sessions)
    lines = [line for training in run.trainings for line in training.lines if line["split"] == "train"]
    speeds = [speed for line in lines if (speed := line.get("tokens_per_second")) is not None]
    joules, energy_note = _estimate_energy(run.machine, sessions, seconds, assumed.watts)
    has_grams = joules and assumed.grams_per_kwh is not None
    return RunCost(
        seconds=seconds if sessions else None,
        tokens_per_second=float(np.median(speeds)) if speeds else None,
        tokens=run.pretraining.tokens_read(run.trainings[0].last_step) if run.pretraining else None,
        joules=joules,
        energy_note=energy_note,
        grams=sum(joules.values()) / JOULES_PER_KWH * (assumed.grams_per_kwh or 0.0) if has_grams else None,
    )


def cost_rows(run: Run, assumed: AssumedPower) -> CostRows:
    """Return the time, tokens, energy and CO2 of a run as names and values, and a note about their sources."""
    cost = compute_run_cost(run, assumed)
    rows = [("wall-clock time", "not recorded" if cost.seconds is None else format_duration(cost.seconds))]
    if cost.tokens_per_second is not None:
        rows.append(("tokens per second, median", f"{cost.tokens_per_second:,.0f}"))
    if cost.tokens is not None:
        rows.append(("tokens, padding included", f"{cost.tokens:,}"))
    machine = "not recorded"
    if run.machine:
        machine = MACHINE_TEXT.format_map({name: run.machine.get(name, "?") for name in MACHINE})
    rows.append(("machine", machine))
    rows += [(f"energy, {source}", format_energy(value)) for source, value in cost.joules.items()]
    if cost.grams is not None:
        rows.append((f"CO2 at {assumed.grams_per_kwh:g} g per kWh", format_grams(cost.grams)))
    note = (
        f"Time is from the first to the last event of each start, evaluations and saving included. {cost.energy_note}"
    )
    return CostRows(rows, note)


def format_energy(joules: float) -> str:
    """Return an energy as text, in kWh, or in Wh for a small energy."""
    kilowatt_hours = joules / JOULES_PER_KWH
    if kilowatt_hours >= MIN_KWH:
        return f"{format_number(kilowatt_hours)} kWh"
    return f"{format_number(1000 * kilowatt_hours, 2)} Wh"


def format_grams(grams: float) -> str:
    """Return a mass as text, in kg, or in g below 100 g."""
    return f"{format_number(grams / 1000)} kg" if grams >= 100 else f"{format_number(grams, 2)} g"


def format_duration(seconds: float) -> str:
    """Return a time as text in the largest fitting unit, such as "2.5 hours"."""
    unit, size = next((unit, size) for unit, size in DURATIONS.items() if seconds >= size or size == 1)
    return f"{seconds / size:,.1f} {unit}"


class _EnergyAndNote(NamedTuple):
    """The measured and the estimated energy, as far as they are known, and a note about both energies."""

    joules_by_source: dict[str, float]
    note: str


def _estimate_energy(
    machine: Mapping[str, str | int], sessions: Sequence[RunStart], seconds: float, watts: float | None
) -> _EnergyAndNote:
    """Return {"measured": joules, "estimated": joules}, without unknown values, and a note about both energies."""
    measured_seconds = sum(session.measured - session.began for session in sessions if session.measured is not None)
    source = str(machine.get("energy", ""))
    power, power_note = _estimate_power(machine, watts)
    if not measured_seconds:
        unmeasured = f" It was not measured: {source}." if source else ""
        return _EnergyAndNote(
            {"estimated": power * seconds} if sessions and power is not None else {}, power_note + unmeasured
        )
    joules = {"measured": sum(session.joules for session in sessions)}
    note = (
        f"Energy was measured for {format_seconds(measured_seconds)} of that time ({source}), including other "
        "programs that ran there, but without cooling and the rest of the machine."
    )
    if (rest := seconds - measured_seconds) < MAX_UNMEASURED * seconds:
        return _EnergyAndNote(joules, note)
    if power is not None:
        joules["estimated"] = power * rest
    return _EnergyAndNote(joules, f"{note} For the other {format_seconds(rest)}: {power_note}")


class _PowerAndNote(NamedTuple):
    """The power of all devices, if known, and a note about the source of the number."""

    watts: float | None
    note: str


def _estimate_power(machine: Mapping[str, str | int], watts: float | None) -> _PowerAndNote:
    """Return the watts of all devices (None if unknown), and a note about the source of the number."""
    if watts is not None:
        return _PowerAndNote(watts, f"Energy is an estimate: that time at {watts:g} W (--watts).")
    kind, devices, cores = str(machine.get("device_kind", "")), machine.get("devices"), machine.get("cores")
    if not isinstance(devices, int):
        return _PowerAndNote(None, f"Energy is not estimated, as the machine is not recorded. {WATTS_OPTION}")
    if (chip := CHIPS.get(kind)) and chip.watts is not None:
        power = chip.watts * devices
        source = f"the figure of {chip.source}"
    elif kind == "cpu" and isinstance(cores, int):
        power = WATTS_PER_CORE * cores
        source = f"which is {WATTS_PER_CORE:g} W for each of {cores} cores (Lannelongue et al. 2021)"
    else:
        return _PowerAndNote(
            None, f"Energy is not estimated: no published power of {kind} is known here. {WATTS_OPTION}"
        )
    return _PowerAndNote(
        power,
        (
            f"Energy is an estimate: that time at {power:g} W, {source}, without cooling, memory and the rest of the "
            "machine."
        ),
    )
