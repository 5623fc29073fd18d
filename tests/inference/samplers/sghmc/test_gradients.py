"""Control variates of stochastic gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from support.helpers import KEY, assert_mean, one_layer, regression

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers.sghmc._gradients import Gradients
from dgp_ppl.inference.samplers.sghmc._sghmc import SGHMC

X, Y = regression(rows=12)


def slope(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


@pytest.mark.slow
def test_control_variates_take_the_noise_away():
    """Started at a fit to many rows, they reduce the noise and keep the posterior."""
    x = jnp.linspace(-1, 1, 400)
    y = 0.7 * x + 0.5 * random.normal(KEY, x.shape)
    precision = 1 + float(x @ x) / 0.25
    mean, noise = float(x @ y) / 0.25 / precision, {}
    for control in (False, True):
        chains = run_mcmc(
            KEY, SGHMC(slope, control_variates=control), x, y, batch_size=20, num_warmup=2000,
            num_samples=500, thinning=20, num_chains=8, init_params={"w": jnp.full(8, mean)},
            extra_fields=("adaptation.noise_variance",), progress=False,
        )  # fmt: skip
        noise[control] = chains.fields["adaptation.noise_variance"].mean()
        w = chains.samples["w"].astype(np.float64)
        assert_mean(w.mean(axis=1), mean)
        assert_mean(((w - mean) ** 2).mean(axis=1) * precision, 1.0)
    assert noise[True] < 0.2 * noise[False]


@pytest.mark.slow
def test_control_variates_at_the_anchor():
    """At the anchor a minibatch's gradient is the gradient of all rows."""
    kernel, call = (
        SGHMC(one_layer, control_variates=True),
        Call((X, Y), {"z": X[::3], "batch_size": 4}),
    )
    first = kernel.init(KEY, 10, None, *call)
    gradients = Gradients(Potential(one_layer), control_variates=True)
    estimate = lambda k: gradients(k, first.unconstrained, first.anchor, call)[1]  # noqa: E731
    found = np.asarray(jax.vmap(estimate)(random.split(KEY, 20)))
    whole = lambda u: Potential(one_layer)(KEY, u, Call((X, Y), {"z": X[::3]})).value  # noqa: E731
    truth = np.asarray(jax.grad(whole)(first.unconstrained)["l1.v"]).ravel()
    np.testing.assert_allclose(found, np.broadcast_to(truth, found.shape), 1e-3)
