"""How long a compiled step takes at least and at most on a chip of which the vendor's figures are known."""

from typing import NamedTuple

from bert_jax.dryrun.hlo_cost import Cost
from bert_jax.parallel.chips import Chip

# The share of its peak at which the slow end of the range lets the matrix unit run. Published runs of BERT on TPUs and
# GPUs reach 0.4 to 0.6 of the peak in all; this is for the compute alone, with memory and interconnect added on top.
SLOW_COMPUTE = 0.5


class Machine(NamedTuple):
    """The figures of one device; None where unknown."""

    flops: float | None  # FLOP/s
    hbm_bandwidth: float | None  # bytes/s
    interconnect: float | None  # bytes/s sent
    capacity: int | None  # bytes
    source: str


class Estimate(NamedTuple):
    """Seconds of a step: each bound at the vendor's figure, which of them is largest, and the range.

    fastest: the largest bound: all three at their peak and perfectly overlapped
    slowest: nothing overlapped, the compute at SLOW_COMPUTE of its peak, every byte accessed going through HBM
    """

    compute: float | None
    memory: float | None
    interconnect: float | None
    bound: str | None
    fastest: float | None
    slowest: float | None


def machine(chip: Chip, share: float) -> Machine:
    """A device that is `share` of a chip."""
    return Machine(
        chip.flops * share,
        chip.hbm_bandwidth * share,
        chip.interconnect * share,
        int(chip.hbm_bytes * share),
        chip.source,
    )


def estimate(cost: Cost, machine: Machine) -> Estimate:
    """The bounds of one step on one device; those whose figure is unknown are left out."""
    sent = sum(collective.sent for collective in cost.collectives)
    parts = {
        "compute": _over(cost.flops, machine.flops),
        "memory": _over(cost.hbm_bytes, machine.hbm_bandwidth),
        "interconnect": _over(sent, machine.interconnect),
    }
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    bound = max(known, key=lambda name: known[name]) if known else None
    slow = [
        known.get("compute", 0.0) / SLOW_COMPUTE,
        _over(cost.bytes, machine.hbm_bandwidth),
        known.get("interconnect"),
    ]
    return Estimate(
        **parts,
        bound=bound,
        fastest=known[bound] if bound else None,
        slowest=sum(seconds or 0.0 for seconds in slow) if bound else None,
    )


def _over(amount: float, rate: float | None) -> float | None:
    return None if rate is None else amount / rate
