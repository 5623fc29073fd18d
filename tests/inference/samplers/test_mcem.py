"""Moving-window MCEM finds the params with the largest evidence, and draws there."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro.distributions import biject_to, constraints
from scipy import optimize, stats
from support.helpers import KEY, assert_mean, regression, spread, squared_exponential
from support.mcem_runs import X, Y, slope

import dgp_ppl as dgp
from dgp_ppl import initialize, kernels
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._em import ExpectationMaximization, at_params, with_params
from dgp_ppl.inference.samplers._mcem import fit_mcem
from dgp_ppl.inference.samplers._sghmc import SGHMC
from dgp_ppl.models import deep_gp


def evidence(scale, noise):
    x, y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    cov = scale**2 * np.outer(x, x) + noise**2 * np.eye(len(x))
    return stats.multivariate_normal(np.zeros(len(x)), cov).logpdf(y)


def layer_and_noise(x, y):
    """Noise around a GP whose three inducing values leave some of its variance open."""
    noise = numpyro.param("noise", 0.5, constraint=constraints.positive)
    f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), spread(3))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, noise)), obs=y)


def test_a_step_of_the_params_is_downhill_at_a_recent_state():
    """Each iteration of two chains keeps their last three states, and steps at one of these."""
    (x, y), size, share, rate = regression(rows=10), 3, 0.25, 1e-3
    L = np.linalg.cholesky(squared_exponential(spread(3), spread(3)))
    A = np.linalg.solve(L, squared_exponential(spread(3), x))
    open_var = 1.5 - (A**2).sum(axis=0)

    def slope_at(v, log_noise):
        """Return the derivative of the energy in the log of the noise."""
        s2, square = np.exp(2 * log_noise), (np.asarray(y) - A.T @ v) ** 2
        of_mean_log = 1 - (square + open_var) / s2  # of -E log p(y | f)
        of_log_mean = (1 - square / (s2 + open_var)) * s2 / (s2 + open_var)  # of -log E p(y | f)
        return np.sum(share * of_mean_log + (1 - share) * of_log_mean)

    kernel, call = SGHMC(partial(at_params, layer_and_noise)), Call((x, y), {})
    bijections, free = {"noise": biject_to(constraints.positive)}, {"noise": jnp.log(0.5)}
    em = ExpectationMaximization(kernel, optax.sgd(rate), bijections, call, share)
    first = kernel.init(random.split(KEY, 2), 8, None, *with_params(em.params(free), call))
    state, visited, taken = em.init(KEY, first, size, free), [], set()
    for i in range(8):
        before = float(state.unconstrained["noise"])
        state, _ = em.advance(state, 1)
        visited = [*visited[1 - size :], np.asarray(state.sampler.unconstrained["l1.v"])[..., 0]]
        for age, v in enumerate(reversed(visited)):
            np.testing.assert_array_equal(state.window[(i - age) % size], v)
        step = (before - float(state.unconstrained["noise"])) / rate
        gaps = np.abs([[slope_at(v, before) - step for v in chains] for chains in visited])
        assert gaps.min() < 1e-3 * (1 + abs(step)), f"iteration {i}"
        taken.add(np.unravel_index(gaps.argmin(), gaps.shape))
    assert all(len(set(places)) > 1 for places in zip(*taken, strict=True))


@pytest.mark.slow
def test_it_finds_the_largest_evidence():
    """It climbs a ridge of more than 10 nats to within 0.25 (0.01 to 0.15 for four keys)."""
    options = {"steps": 6000, "num_chains": 4, "batch_size": 10, "progress": False}
    result = fit_mcem(KEY, slope, X, Y, num_samples=200, thinning=20, **options)
    scale, noise = (float(result.params[n]) for n in ("scale", "noise"))
    best = -optimize.minimize(lambda logs: -evidence(*np.exp(logs)), [0.0, 0.0]).fun
    assert evidence(1.0, 1.0) < best - 10
    assert evidence(scale, noise) > best - 0.25
    precision = 1 + (scale / noise) ** 2 * float(X @ X)
    mean = scale / noise**2 * float(X @ Y) / precision
    w = result.chains.samples["w"].astype(np.float64)
    assert w.shape == (4, 200)
    assert_mean(w.mean(axis=1), mean, errors=6)  # of four chains: Student's t
    assert w.std() == pytest.approx(precision**-0.5, rel=0.15)
    assert len(result.losses) == 6000


@pytest.mark.slow
def test_what_v_leaves_open_is_not_a_residual_explained():
    """At the M-step's maximum noise² is the mean of (y - mean)² + variance of f given v.

    Three inducing inputs are too few for this function. With ``expected=0`` noise² would be a
    two-thousandth of that.
    """
    x, y = regression(rows=60)
    z = initialize.inducing_inputs(KEY, x, 3)
    options = {"z": (z,), "noise": 0.3}
    result = fit_mcem(
        KEY, deep_gp, x, y, steps=4000, num_samples=200, expected=1.0, progress=False,
        **options,
    )  # fmt: skip
    params = result.params
    p = dgp.predict(KEY, deep_gp, None, params, x, posterior_samples=result.chains, **options)
    squares = []
    for rows, mixture in p.components():
        num = rows.stop - rows.start  # the last block repeats its last row
        mixed = mixture.components
        loc, sd = (np.asarray(a)[..., :num] for a in (mixed.loc, mixed.scale))
        variance = sd**2 - float(params["noise"]) ** 2
        assert variance.mean() > 0.2 * float(params["noise"]) ** 2  # there is something to explain
        squares.append(np.square(np.asarray(y)[rows] - loc) + variance)
    explained = np.concatenate(squares, axis=-1).mean()
    assert float(params["noise"]) ** 2 == pytest.approx(explained, rel=0.08)
