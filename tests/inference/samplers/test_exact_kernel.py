"""NumPyro's interface of kernels on BlackJAX's samplers, in every way that chains are run."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import MCMC, init_to_value
from support.helpers import KEY

from dgp_ppl import AdjustedMCLMC, BlackJAXKernel, run_mcmc

X = random.normal(KEY, (30, 2))
Y = X @ jnp.array([1.0, -0.5]) + 0.3 * random.normal(random.key(1), (30,))


def slope(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    numpyro.deterministic("mean", x @ w)
    numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


def mala(density):
    return blackjax.mala(density, step_size=1e-3)


KERNELS = {
    "adjusted": lambda: AdjustedMCLMC(slope),
    "general": lambda: BlackJAXKernel(slope, mala),
}
SIZES = {"num_warmup": 40, "num_samples": 20}


def test_every_way_to_run_chains(x64):
    """Vectorised chains, sequential chains and chains of `run_mcmc` are the same.

    Tuned trajectories multiply rounding errors by 1e13 in 20 steps of `AdjustedMCLMC`.
    """
    x, y = X.astype(float), Y.astype(float)
    make, runs = KERNELS["general"], []
    for method in ("vectorized", "sequential"):
        mcmc = MCMC(make(), num_chains=2, chain_method=method, progress_bar=False, **SIZES)
        mcmc.run(KEY, x, y, extra_fields=("i", "diverging"))
        runs.append(mcmc.get_samples(group_by_chain=True))
        assert mcmc.get_extra_fields()["i"].max() == 60
    runs.append(run_mcmc(KEY, make(), x, y, num_chains=2, progress=False, **SIZES).samples)
    for found in runs:
        assert set(found) == {"w", "s", "mean"}
        assert found["w"].shape == (2, 20, 2)
        np.testing.assert_allclose(found["mean"], found["w"] @ np.asarray(x).T, rtol=1e-6)
        assert (found["s"] > 0).all()
        for site, draws in runs[0].items():
            np.testing.assert_allclose(found[site], draws, rtol=1e-5, atol=1e-7)


def test_another_data_set_runs_the_same_program():
    calls = []

    def counted(x, y):
        calls.append(1)
        slope(x, y)

    kernel = BlackJAXKernel(counted, lambda density: blackjax.mclmc(density, 1.0, 0.1))
    state = kernel.init(KEY, 0, None, (X, Y), {})
    step = jax.jit(lambda state, x, y: kernel.sample(state, (x, y), {}))
    first = step(state, X, Y)
    calls.clear()
    second = step(state, X, -Y)
    assert not calls
    assert float(abs(first.z["w"] - second.z["w"]).max()) > 0


def test_starts():
    """`init_params` are unconstrained values, one for each chain; strategies set the rest."""
    start = init_to_value(values={"w": jnp.array([1.0, 2.0])})
    state = BlackJAXKernel(slope, mala, init_strategy=start).init(
        random.split(KEY, 3), 0, {"s": jnp.arange(3.0)}, (X, Y), {}
    )
    np.testing.assert_array_equal(state.z["s"], [0, 1, 2])
    np.testing.assert_allclose(state.z["w"], [[1, 2]] * 3)
