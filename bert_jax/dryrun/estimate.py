"""Bounds on the time of a compiled step, computed from the cost of the step and the vendor's figures for a chip."""

from typing import NamedTuple

from bert_jax.dryrun.hlo_cost import Cost
from bert_jax.parallel.chips import Chip

# Fraction of the peak FLOP/s that the slowest estimate assumes. Published runs of BERT on TPUs and GPUs reach 0.4 to
# 0.6 of the peak overall; this fraction is only for compute; the times of memory and interconnect are added.
SLOW_COMPUTE = 0.5


class Machine(NamedTuple):
    """The peak figures of a device; an unknown figure is None."""

    flops: float | None  # FLOP/s
    hbm_bandwidth: float | None  # bytes/s
    interconnect: float | None  # bytes/s sent
    capacity: int | None  # bytes
    source: str


class Estimate(NamedTuple):
    """The time of a step in seconds: a bound for each resource, the name of the largest bound, and a range.

    Attributes:
        fastest: the largest bound, if compute, memory and interconnect reach their peaks with perfect overlap
        slowest: the sum of the bounds, without overlap, if compute reaches only SLOW_COMPUTE of its peak and every
            accessed byte is in HBM
    """

    compute: float | None
    memory: float | None
    interconnect: float | None
    bound: str | None
    fastest: float | None
    slowest: float | None


def peak_figures_of_device(chip: Chip, fraction_of_chip: float, usable_memory_fraction: float = 1.0) -> Machine:
    """Return the peak figures of a device that is a fraction of a chip, with the memory that JAX can use."""
    return Machine(
        chip.flops * fraction_of_chip,
        chip.hbm_bandwidth * fraction_of_chip,
        chip.interconnect * fraction_of_chip,
        int(chip.hbm_bytes * fraction_of_chip * usable_memory_fraction),
        chip.source,
    )


def estimate_step_time(cost: Cost, machine: Machine) -> Estimate:
    """Return the bounds on the time of a step on a device; a bound is None if its peak figure is unknown."""
    sent = sum(collective.sent for collective in cost.collectives)
    parts = {
        "compute": _seconds_at_rate(cost.flops, machine.flops),
        "memory": _seconds_at_rate(cost.hbm_bytes, machine.hbm_bandwidth),
        "interconnect": _seconds_at_rate(sent, machine.interconnect),
    }
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    bound = max(known, key=lambda name: known[name]) if known else None
    slow = [
        known.get("compute", 0.0) / SLOW_COMPUTE,
        _seconds_at_rate(cost.bytes, machine.hbm_bandwidth),
        known.get("interconnect"),
    ]
    return Estimate(
        **parts,
        bound=bound,
        fastest=known[bound] if bound else None,
        slowest=sum(seconds or 0.0 for seconds in slow) if bound else None,
    )


def _seconds_at_rate(amount: float, rate: float | None) -> float | None:
    """Return amount / rate; None if the rate is unknown."""
    return None if rate is None else amount / rate
