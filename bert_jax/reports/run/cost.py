"""Time, tokens and energy of a run: measured, or estimated from published figures."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.console import format_seconds
from bert_jax.parallel.chips import CHIPS
from bert_jax.reports.run.record import Run
from bert_jax.training.tensorboard import RunStart

WATTS_PER_CORE = 12.0  # of a CPU without published figures; Lannelongue et al. 2021, "Green Algorithms"
MAX_UNMEASURED = 0.01  # fraction of the time without measured energy that is ignored
JOULES_PER_KWH = 3.6e6
WATTS_OPTION = "bert-jax report --watts takes the power of all devices."
DURATIONS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
MACHINE = ("devices", "device_kind", "processes", "cores")
MACHINE_TEXT = "{devices} x {device_kind}; processes: {processes}; cores per host: {cores}"
NOT_VERSIONS = (*MACHINE, "energy")  # keys of a machine in run.json; the others are versions


class AssumedPower(NamedTuple):
    """Values that a run does not record: the power of all devices, and the CO2 per kWh."""

    watts: float | None = None  # above 0; None: by the table of chips
    grams_per_kwh: float | None = None  # above 0; None: no CO2 is shown


class CostRows(NamedTuple):
    """Names and values of time, tokens, energy and CO2, and a note about their sources."""

    rows: list[tuple[str, str]]
    note: str


def cost_rows(run: Run, assumed: AssumedPower) -> CostRows:
    """Return names and values of time, tokens, energy and CO2, and a note about their sources."""
    sessions = [session for training in run.trainings for session in training.sessions]
    seconds = sum(session.ended - session.began for session in sessions)
    lines = [line for training in run.trainings for line in training.lines if line["split"] == "train"]
    rows = [("wall-clock time", _format_duration(seconds) if sessions else "not recorded")]
    if speeds := [speed for line in lines if (speed := line.get("tokens_per_second")) is not None]:
        rows.append(("tokens per second, median", f"{float(np.median(speeds)):,.0f}"))
    if run.pretraining:
        rows.append(("tokens, padding included", f"{run.pretraining.tokens_read(run.trainings[0].last_step):,}"))
    machine = "not recorded"
    if run.machine:
        machine = MACHINE_TEXT.format_map({name: run.machine.get(name, "?") for name in MACHINE})
    rows.append(("machine", machine))
    joules, energy_note = _estimate_energy(run.machine, sessions, seconds, assumed.watts)
    rows += [(f"energy, {source}", f"{value / JOULES_PER_KWH:.3g} kWh") for source, value in joules.items()]
    if joules and assumed.grams_per_kwh is not None:
        grams = sum(joules.values()) / JOULES_PER_KWH * assumed.grams_per_kwh
        rows.append((f"CO2 at {assumed.grams_per_kwh:g} g per kWh", f"{grams / 1000:.3g} kg"))
    note = f"Time is from the first to the last event of each start, evaluations and saving included. {energy_note}"
    return CostRows(rows, note)


def _format_duration(seconds: float) -> str:
    unit, size = next((unit, size) for unit, size in DURATIONS.items() if seconds >= size or size == 1)
    return f"{seconds / size:,.1f} {unit}"


class _EnergyAndNote(NamedTuple):
    """The measured and the estimated energy, if known, and a note about both."""

    joules_by_source: dict[str, float]
    note: str


def _estimate_energy(
    machine: Mapping[str, str | int], sessions: Sequence[RunStart], seconds: float, watts: float | None
) -> _EnergyAndNote:
    """Return {"measured": joules, "estimated": joules}, without unknown values, and a note about both."""
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
        f"Energy was measured for {format_seconds(measured_seconds)} of that time ({source}), and of all that ran "
        "there, but without cooling and the rest of the machine."
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
