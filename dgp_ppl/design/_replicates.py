"""Runs of a noisy simulator at the same inputs, as one row each."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._checks import as_array
from dgp_ppl._errors import DataError


class Replicates(NamedTuple):
    """The runs at each distinct row of inputs; `replicates` makes it.

    Attributes:
        x: distinct inputs, [U, D].
        mean: mean of y at each, [U].
        counts: number of runs at each, [U].
        squares: sum of squared distances of the runs from their means, over all inputs, in the
            units of y squared.
    """

    x: np.ndarray
    mean: np.ndarray
    counts: np.ndarray
    squares: float

    def log_factor(self, noise: ArrayLike) -> Array:
        """Return what the runs say of Gaussian noise beside their means, in nats.

        The density of all runs given f is that of the means, N(f, noise² / counts), times this.

        Args:
            noise: standard deviation of one run, in the units of y.
        """
        log_var, spare = jnp.log(2 * jnp.pi * jnp.square(noise)), np.sum(self.counts - 1)
        within = spare * log_var + self.squares / jnp.square(noise)
        return -0.5 * (within + np.sum(np.log(self.counts)))


def replicates(x: ArrayLike, y: ArrayLike) -> Replicates:
    """Gather runs with equal inputs: the same likelihood at the cost of the distinct inputs.

    ::

        runs = dgp.design.replicates(x, y)

        def model(x, y=None, n=1.0, *, z):
            noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
            f = dgp.gp("f", kernels.Matern52.learned("f", x.shape[-1]), z)(x)
            if y is not None:
                numpyro.factor("within", runs.log_factor(noise))
            with numpyro.plate("data", len(x)):
                likelihood = lambda f: dist.Normal(f, noise / jnp.sqrt(n))
                numpyro.sample("y", dgp.observe(f, likelihood), obs=y)

        fit = dgp.fit(key, model, dgp.MeanField(model), runs.x, runs.mean, runs.counts, z=z)

    >>> from dgp_ppl.design import replicates
    >>> runs = replicates([[1.0], [2.0], [1.0]], [3.0, 5.0, 4.0])
    >>> runs.mean.tolist(), runs.counts.tolist(), runs.squares
    ([3.5, 5.0], [2, 1], 0.5)

    Args:
        x: inputs of the runs, [N, D].
        y: results, [N], with Gaussian noise.

    Raises:
        DataError: if the shapes differ, or a value is not finite.

    Source: Binois, Gramacy & Ludkovski (2018), section 3.
    """
    rows, values = (np.asarray(as_array("replicates", n, a)) for n, a in (("x", x), ("y", y)))
    if rows.ndim != 2 or values.shape != rows.shape[:1]:
        raise DataError(
            f"replicates: x and y have shapes {rows.shape} and {values.shape}, wanted [N, D], [N]"
        )
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise DataError("replicates: x or y is not finite, wanted the runs that did not fail")
    distinct, place, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    mean = np.bincount(place, values) / counts
    return Replicates(distinct, mean, counts, float(np.sum(np.square(values - mean[place]))))
