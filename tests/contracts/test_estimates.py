"""Bounds stay bounds if the expectations of a likelihood are Monte Carlo estimates.

The likelihood ignores the model's second output, so the exact values are known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from support.helpers import KEY, assert_mean, collapsed_bound, regression, slow, spread
from support.objectives import NOISE, values

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.svi._objectives import ImportanceWeighted
from dgp_ppl.models import optimal_inducing

X, Y = regression(rows=12)


def two_outputs(x, y=None, *, z, masked=False):
    f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), z, out=2)
    seen = handlers.mask(mask=jnp.ones(len(x), bool) if masked else True)
    with dgp.minibatch(x, y) as (x, y), seen:
        distribution = dgp.observe(f(x), lambda f: dist.Normal(f[..., 0], NOISE))
        numpyro.sample("y", distribution, obs=y)


def optimal_params(z):
    """Return params, with the optimal q(v) of the first output, q = p of the second; the bound."""
    fixed = {"l1.z": z, "l1.variance": 1.5, "l1.lengthscale": jnp.array([0.8]), "noise": NOISE}
    best = jax.jit(lambda: optimal_inducing(fixed, X, Y))()
    loc, root = best["l1.v.loc"], best["l1.v.scale_tril"]
    params = {
        "l1.v.loc": jnp.concatenate([loc, 0 * loc], axis=1),
        "l1.v.scale_tril": jnp.concatenate([root, jnp.eye(len(z))[None]]),
    }
    return params, collapsed_bound(X, Y, z)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, slow(True)])
def test_importance_weights_do_not_feed_on_noise(x64, masked):
    """An average of exponentials of noisy estimates would exceed the evidence."""
    z = np.asarray(X)
    params, evidence = optimal_params(z)
    guide = dgp.MeanField(two_outputs)
    for K in (1, 30):
        objective = ImportanceWeighted(K)
        draws = values(objective, two_outputs, guide, params, X, Y, z=z, masked=masked, num=10_000)
        assert_mean(draws, evidence)
        assert jnp.std(draws) < 2.5  # nats; the standard error of the mean is a hundredth of it


@pytest.mark.slow
def test_annealing_averages_them_too():
    """The target is the exponential of an expectation, not an expectation of exponentials."""
    params, bound = optimal_params(spread(5))
    found = dgp.annealed_evidence(
        KEY, two_outputs, dgp.MeanField(two_outputs), params, X, Y, z=spread(5),
        temperatures=50, num_particles=64, progress=False,
    )  # fmt: skip
    assert abs(found.log_evidence - bound) < 4 * found.standard_error
    assert found.standard_error < 0.05
