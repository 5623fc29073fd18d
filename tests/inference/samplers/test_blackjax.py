"""Any sampler of BlackJAX as a NumPyro kernel."""

import blackjax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY, slow

from dgp_ppl import BlackJAXKernel, run_mcmc

SD = jnp.array([0.5, 1.0, 2.0])


def gaussian():
    numpyro.sample("a", dist.Normal(1, SD[:2]).to_event(1))
    numpyro.sample("b", dist.Normal(1, SD[2]))


def slices(density):
    likelihood = lambda u: density(u) + 0.5 * u @ u  # noqa: E731
    return blackjax.elliptical_slice(likelihood, mean=jnp.zeros(3), cov=jnp.ones(3))


def adaptation(density):
    return blackjax.window_adaptation(blackjax.nuts, density)


KERNELS = {
    "mala": lambda: BlackJAXKernel(gaussian, lambda d: blackjax.mala(d, step_size=0.1)),
    "hmc": lambda: BlackJAXKernel(
        gaussian,
        lambda d: blackjax.hmc(
            d, step_size=0.3, inverse_mass_matrix=SD**2, num_integration_steps=5
        ),
    ),
    "barker": lambda: BlackJAXKernel(gaussian, lambda d: blackjax.barker(d, step_size=0.8)),
    "elliptical slice": lambda: BlackJAXKernel(gaussian, slices),
    "adapted nuts": lambda: BlackJAXKernel(gaussian, blackjax.nuts, adaptation=adaptation),
}


@pytest.mark.parametrize("names", [["hmc"], slow([n for n in KERNELS if n != "hmc"])])
def test_moments_of_a_gaussian(names):
    """Means and variances over 16 chains are within 5 standard errors."""
    for name in names:
        chains = run_mcmc(
            KEY, KERNELS[name](), num_warmup=200, num_samples=400, thinning=10, num_chains=16,
            progress=False,
        )  # fmt: skip
        draws = np.concatenate([chains.samples["a"], chains.samples["b"][..., None]], axis=-1)
        draws = (draws.astype(np.float64) - 1) / np.asarray(SD)
        for values, wanted in ((draws.mean(axis=1), 0), (np.square(draws).mean(axis=1), 1)):
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            assert error.max() < 0.12
            assert (np.abs(values.mean(axis=0) - wanted) < 5 * error).all()
        assert not chains.fields["diverging"].any()


def test_information_and_settings_are_fields():
    chains = run_mcmc(
        KEY, KERNELS["adapted nuts"](), num_warmup=30, num_samples=5, num_chains=2, progress=False,
        extra_fields=("info.acceptance_rate", "chain.logdensity", "parameters.step_size"),
    )  # fmt: skip
    rate = chains.fields["info.acceptance_rate"]
    assert rate.shape == (2, 5)
    assert ((rate >= 0) & (rate <= 1)).all()
    z = np.concatenate([chains.samples["a"], chains.samples["b"][..., None]], axis=-1)
    wanted = (-0.5 * ((z - 1) / SD) ** 2 - jnp.log(SD) - 0.5 * np.log(2 * np.pi)).sum(axis=-1)
    np.testing.assert_allclose(chains.fields["chain.logdensity"], wanted, rtol=1e-4, atol=1e-4)
    sizes = chains.fields["parameters.step_size"]
    assert (sizes[:, :1] == sizes).all()
    assert sizes[0, 0] != sizes[1, 0]
