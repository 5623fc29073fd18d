"""SGHMC as a NumPyro kernel: NumPyro's and ArviZ's interfaces, and errors."""

import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import MCMC
from support.helpers import KEY, one_layer, regression

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers.sghmc._sghmc import SGHMC

X, Y = regression(rows=12)


PARALLEL = """
import numpyro
numpyro.set_host_device_count(2)
import sys
sys.path.insert(0, {tests!r})
import jax, numpy as np
from numpyro.infer import MCMC
from test_sghmc_kernel import KEY, SGHMC, X, Y, one_layer
assert jax.local_device_count() == 2
draws = []
for method in ("parallel", "vectorized", "sequential"):
    mcmc = MCMC(SGHMC(one_layer), num_warmup=50, num_samples=20, num_chains=2,
                chain_method=method, progress_bar=False)
    mcmc.run(KEY, X, Y, z=X[::3])
    draws.append(np.asarray(mcmc.get_samples()["l1.v"]))
    assert draws[-1].shape == (40, 4, 1)
for other in draws[1:]:
    np.testing.assert_allclose(draws[0], other, rtol=1e-2, atol=1e-3)
"""


@pytest.mark.slow
def test_every_way_to_run_chains():
    """Parallel, vectorized and sequential chains have the same draws."""
    program = PARALLEL.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_deterministic_sites_come_along():
    """Draws have the deterministic sites of all rows, such as a transported model's layers."""

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.deterministic("double", 2 * w)
        with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
            mean = numpyro.deterministic("mean", w * x)
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    options = {"num_warmup": 20, "num_samples": 5, "progress": False}
    for chains in (
        run_mcmc(KEY, SGHMC(model), X[:, 0], Y, batch_size=4, **options),
        dgp.Chains.from_mcmc(stock(SGHMC(model), X[:, 0], Y, batch_size=4)),
    ):
        w = chains.samples["w"]
        np.testing.assert_allclose(chains.samples["double"], 2 * w)
        np.testing.assert_allclose(
            chains.samples["mean"], w[..., None] * np.asarray(X[:, 0]), rtol=1e-5
        )
    guide = dgp.MeanField(one_layer)
    fit = dgp.fit(KEY, one_layer, guide, X, Y, z=X[::3], steps=20, progress=False)
    program = dgp.transported(one_layer, guide, fit.params)
    chains = run_mcmc(KEY, SGHMC(program), X, Y, z=X[::3], **options)
    assert chains.samples["l1.v"].shape == (1, 5, 4, 1)


def stock(kernel, *args, **kwargs):
    mcmc = MCMC(kernel, num_warmup=20, num_samples=5, progress_bar=False)
    mcmc.run(KEY, *args, **kwargs)
    return mcmc


def test_params_with_a_random_start_stay_as_they_are():
    def model():
        b = numpyro.param("b", lambda key: 3 * random.normal(key))
        numpyro.factor("p", b * numpyro.sample("w", dist.Normal(0, 1)))

    energy = lambda k: Potential(model)(k, {"w": jnp.ones(())}, Call()).value  # noqa: E731
    assert len({float(energy(k)) for k in random.split(KEY, 5)}) == 1


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_moves_nothing():
    def model():
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("cliff", jnp.where(x > 0.5, jnp.nan, 0.0) * x)

    with pytest.warns(UserWarning, match="of the draws diverge"):
        chains = run_mcmc(
            KEY, SGHMC(model, step_size=0.5), num_warmup=200, num_samples=500, progress=False
        )
    assert chains.fields["diverging"].any()
    assert not chains.fields["diverging"].all()
    assert (chains.samples["x"] < 0.6).all()
