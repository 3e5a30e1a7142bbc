"""Exact means, kept as sums of values and of weights, which add up over micro-batches, steps, devices and hosts."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Mean(NamedTuple):
    """A weighted mean, kept as two sums that add up exactly over micro-batches, steps, devices and hosts."""

    total: Any  # float32 scalar, sum of value x weight
    weight: Any  # float32 scalar, sum of weights

    @classmethod
    def of(cls, values: jax.Array, weights: jax.Array) -> "Mean":
        """Return the mean of `mean_values` with `weights`, both float32 of one shape."""
        return cls(jnp.sum(values * weights), jnp.sum(weights))

    def value(self) -> float:
        """Return total / weight; nan if nothing was added."""
        return float(self.total) / float(self.weight) if float(self.weight) else float("nan")


def to_host(means: dict[str, Mean]) -> dict[str, Mean]:
    """Return the means as Python floats, fetched from the device, so that later sums are in double precision."""
    return {name: Mean(float(mean.total), float(mean.weight)) for name, mean in jax.device_get(means).items()}


def merge_means(left: dict[str, Mean], right: dict[str, Mean]) -> dict[str, Mean]:
    """Return the sum of two dictionaries of means with the same names; `left` may be empty."""
    return {
        name: Mean(left[name].total + mean.total, left[name].weight + mean.weight) if name in left else mean
        for name, mean in right.items()
    }


def mean_values(means: dict[str, Mean]) -> dict[str, float]:
    """Return the value of each mean, and as `loss` the sum of the means named `..._loss`."""
    by_name = {name: mean.value() for name, mean in means.items()}
    return {"loss": sum(value for name, value in by_name.items() if name.endswith("_loss"))} | by_name
