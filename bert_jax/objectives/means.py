"""Exact means: sums of values and of weights, which merge over micro-batches, steps, devices and hosts."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Mean(NamedTuple):
    """A weighted mean as its parts: adding two merges them exactly, over micro-batches, steps, devices and hosts."""

    total: Any  # float32 scalar, sum of value x weight
    weight: Any  # float32 scalar, sum of weights

    @classmethod
    def of(cls, values: jax.Array, weights: jax.Array) -> "Mean":
        """Of `values` with `weights`, both float32 of one shape."""
        return cls(jnp.sum(values * weights), jnp.sum(weights))

    def merge(self, other: "Mean") -> "Mean":
        """Of both sets of values together."""
        return Mean(self.total + other.total, self.weight + other.weight)

    def value(self) -> float:
        """total / weight; nan of nothing."""
        return float(self.total) / float(self.weight) if float(self.weight) else float("nan")


def fetched(means: dict[str, Mean]) -> dict[str, Mean]:
    """Off the device, as Python floats: sets are summed in double precision."""
    return {name: Mean(float(mean.total), float(mean.weight)) for name, mean in jax.device_get(means).items()}


def merge(left: dict[str, Mean], right: dict[str, Mean]) -> dict[str, Mean]:
    """Two sets of means with the same names (or an empty one) as one."""
    return {name: left[name].merge(mean) if name in left else mean for name, mean in right.items()}


def values(means: dict[str, Mean]) -> dict[str, float]:
    """Each mean's value, and as `loss` the sum of those named `..._loss`, as a batch's loss is."""
    found = {name: mean.value() for name, mean in means.items()}
    return {"loss": sum(value for name, value in found.items() if name.endswith("_loss"))} | found
