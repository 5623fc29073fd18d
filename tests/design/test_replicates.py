"""Runs at the same inputs: the bound is that of all rows."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.design import replicates


def test_the_bound_is_that_of_all_runs(x64):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (6, 2))[rng.integers(0, 6, 40)]
    y, z = x.sum(axis=1) + 0.3 * rng.standard_normal(40), np.linspace(-1, 1, 8).reshape(4, 2)
    runs = replicates(x, y)

    def model(x, y=None, n=None):
        noise = numpyro.param("noise", 0.4, constraint=dist.constraints.positive)
        f = dgp.gp("f", kernels.SquaredExponential(1.0, 0.7), z)
        if n is not None:
            numpyro.factor("within", runs.log_factor(noise))
        with dgp.minibatch(x, y, 1.0 if n is None else n) as (x, y, n):
            scale = noise / jnp.sqrt(n)
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, scale)), obs=y)

    guide = dgp.MeanField(model)
    fit = dgp.fit(KEY, model, guide, x, y, steps=20, progress=False)
    wanted = dgp.evaluate(KEY, model, guide, fit, x, y)[0]
    found = dgp.evaluate(KEY, model, guide, fit, runs.x, runs.mean, runs.counts)[0]
    assert len(runs.x) == 6
    assert found == pytest.approx(wanted, rel=1e-10)


def test_errors():
    for x, y, message in (
        ([1.0, 2.0], [1.0, 2.0], r"x and y have shapes \(2,\) and \(2,\), wanted \[N, D\], \[N\]"),
        ([[1.0], [2.0]], [1.0], "x and y have shapes"),
        ([[1.0], [np.nan]], [1.0, 2.0], "x or y is not finite, wanted the runs"),
        ([["a"]], [1.0], "x "),
    ):
        with pytest.raises((dgp.DataError, TypeError), match=f"replicates: {message}"):
            replicates(x, y)
