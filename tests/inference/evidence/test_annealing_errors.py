"""The standard error of the evidence, by repetition; errors and warnings."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from support.helpers import KEY, one_layer, regression
from support.tiny import X, Y, tiny, tiny_evidence

import dgp_ppl as dgp
from dgp_ppl import kernels, means
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.evidence._annealing import annealed_evidence
from dgp_ppl.inference.evidence._weights import log_mean

DATA = jnp.asarray(X, float), jnp.asarray(Y, float)
QUIET: dict[str, Any] = {"progress": False}


@functools.cache
def fitted_tiny():
    guide = dgp.MeanField(tiny)
    fit = dgp.fit(KEY, tiny, guide, *DATA, steps=600, learning_rate=0.03, **QUIET)
    return guide, fit.params


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:annealed_evidence")
def test_the_error_knows_of_the_noise():
    """Two layers: every group of eight particles is an estimate of a known evidence."""
    guide, params = fitted_tiny()
    found = annealed_evidence(
        KEY, tiny, guide, params, *DATA, temperatures=100, num_particles=96, num_noise=16, **QUIET
    )
    truth = tiny_evidence(bound=True)
    assert abs(found.log_evidence - truth) < 4 * found.standard_error
    assert found.standard_error < 0.2
    groups = [log_mean(w)[:2] for w in found.log_weights.reshape(12, 8)]
    z = np.array([(value - truth) / error for value, error in groups])
    assert np.mean(z**2) < 3.5  # of Student's t with 7 degrees: 1.4, with a standard error of 0.8


def sine(x, y=None):
    """Two layers of eight inducing values."""
    kernel = kernels.SquaredExponential(1.0, 0.8)
    f1 = dgp.gp("l1", kernel, np.linspace(-2.2, 2.2, 8)[:, None], mean=means.identity)
    f2 = dgp.gp("l2", kernel, np.linspace(-2.5, 2.5, 8)[:, None])
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f2(f1.sample(x)), lambda f: dist.Normal(f, 0.1)), obs=y)


@functools.cache
def fitted():
    """Data, a guide and its params.

    With 40 rows the particles are worth down to 3 equal weights, too few for a standard error.
    """
    x, y = regression(rows=20)
    guide = dgp.MeanField(sine)
    params = dgp.fit(KEY, sine, guide, x, y, steps=1500, learning_rate=0.03, **QUIET).params
    return (x, y), guide, params


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:annealed_evidence")
def test_the_error_by_repetition():
    """Estimates agree between keys and temperatures, and are not below the bound."""
    data, guide, params = fitted()
    bound, noise = evaluate(KEY, sine, guide, params, *data, num_draws=1000)
    runs = [(s, 300) for s in range(5)] + [(5, 600)]
    found = [
        annealed_evidence(
            random.key(s), sine, guide, params, *data, temperatures=number, num_particles=16,
            num_noise=4, **QUIET,
        )
        for s, number in runs
    ]  # fmt: skip
    value = np.array([f.log_evidence for f in found])
    error = np.array([f.standard_error for f in found])
    z = (value[:, None] - value) / np.hypot(error[:, None], error)
    assert np.mean(z[np.triu_indices(6, 1)] ** 2) < 3.5
    assert np.all(value > bound - np.hypot(error, noise))
    assert np.median(error) < 0.6


def test_few_temperatures_are_warned_of():
    x, y = regression(rows=20)
    guide = dgp.MeanField(one_layer)
    params = dgp.fit(KEY, one_layer, guide, x, y, z=x, steps=1, **QUIET).params
    options = {"z": x, "temperatures": 2, **QUIET}
    with pytest.warns(UserWarning, match="annealed_evidence: ") as warned:
        found = annealed_evidence(KEY, one_layer, guide, params, x, y, **options)
    assert [str(w.message).split(": ", 1)[1] for w in warned] == list(found.warnings)
    assert "64 particles are worth" in found.warnings[0]
    assert found.effective_particles < 32
