"""NumPyro's interface of kernels on BlackJAX's samplers, in every way that chains are run."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import MCMC, init_to_value
from numpyro.infer.util import initialize_model
from support.helpers import KEY, slow

from dgp_ppl import BlackJAXKernel, ParallelTempering, run_mcmc
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._kernel import FlatDensity

X = random.normal(KEY, (30, 2))
Y = X @ jnp.array([1.0, -0.5]) + 0.3 * random.normal(random.key(1), (30,))


def slope(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    numpyro.deterministic("mean", x @ w)
    numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


def mala(density):
    return blackjax.mala(density, step_size=1e-3)


def test_every_way_to_run_chains(tmp_path, x64):
    """NumPyro's `MCMC` makes the same draws as `run_mcmc`, which resumes a run bit for bit."""
    x, y = X.astype(float), Y.astype(float)
    sizes = {"num_warmup": 40, "num_samples": 20, "num_chains": 2}
    mcmc = MCMC(BlackJAXKernel(slope, mala), chain_method="vectorized", progress_bar=False, **sizes)
    mcmc.run(KEY, x, y, extra_fields=("i", "diverging"))
    assert mcmc.get_extra_fields()["i"].max() == 60
    wanted = mcmc.get_samples(group_by_chain=True)

    def run(**more):
        return run_mcmc(KEY, BlackJAXKernel(slope, mala), x, y, progress=False, **(sizes | more))

    found, first = run().samples, run(num_samples=5, checkpoint=tmp_path)
    second = run(num_samples=15, num_warmup=0, start=first.state).samples
    resumed = run(checkpoint=tmp_path).samples
    assert set(found) == set(wanted) == {"w", "s", "mean"}
    assert found["w"].shape == (2, 20, 2)
    np.testing.assert_allclose(found["mean"], found["w"] @ np.asarray(x).T, rtol=1e-6)
    assert (found["s"] > 0).all()
    for site, draws in found.items():
        np.testing.assert_allclose(draws, wanted[site], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(resumed[site], draws)
        np.testing.assert_array_equal(second[site], draws[:, 5:])


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


SD = jnp.array([0.5, 1.0, 2.0])


def gaussian():
    numpyro.sample("a", dist.Normal(1, SD[:2]).to_event(1))
    numpyro.sample("b", dist.Normal(1, SD[2]))


def slices(density):
    likelihood = lambda u: density(u) + 0.5 * u @ u  # noqa: E731
    return blackjax.elliptical_slice(likelihood, mean=jnp.zeros(3), cov=jnp.ones(3))


def adaptation(density):
    return blackjax.window_adaptation(blackjax.hmc, density, num_integration_steps=5)


SAMPLERS = {
    "hmc": lambda: BlackJAXKernel(
        gaussian,
        lambda d: blackjax.hmc(
            d, step_size=0.3, inverse_mass_matrix=SD**2, num_integration_steps=5
        ),
    ),
    "elliptical slice": lambda: BlackJAXKernel(gaussian, slices),
    "adapted": lambda: BlackJAXKernel(gaussian, blackjax.hmc, adaptation=adaptation),
}


@pytest.mark.parametrize("names", [["hmc"], slow([n for n in SAMPLERS if n != "hmc"])])
def test_moments_of_a_gaussian(names):
    """Means and variances over 16 chains are within 5 standard errors."""
    for name in names:
        chains = run_mcmc(
            KEY, SAMPLERS[name](), num_warmup=200, num_samples=400, thinning=10, num_chains=16,
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
        KEY, SAMPLERS["adapted"](), num_warmup=30, num_samples=5, num_chains=2, progress=False,
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


def noisy(y):
    """A model with an auxiliary site, as the unit noise of a hidden layer is one."""
    w = numpyro.sample("w", dist.HalfNormal(1))
    with numpyro.plate("rows", len(y)):
        unit: object = numpyro.sample("unit", dist.Normal(0, 1), infer={"is_auxiliary": True})
        mean = numpyro.deterministic("mean", w * unit)
        numpyro.sample("y", dist.Normal(mean, 0.3), obs=y)


def scaled_and_masked():
    with handlers.scale(scale=2.0):
        a = numpyro.sample("a", dist.Normal(1, 0.5))
    b = numpyro.sample("b", dist.HalfNormal(1).mask(False))
    numpyro.sample("y", dist.Normal(a, 1), obs=0.0)
    numpyro.factor("c", -b)


def test_the_prior_part_is_the_density_of_prior_draws():
    """Scales and masks of latent sites belong to the other part, whose power is the temperature."""
    position = jnp.array([0.3, -0.7])  # of a, and of log b
    density = FlatDensity(
        ParallelTempering(scaled_and_masked).potential, {"a": 0.3, "b": -0.7}, Call()
    )
    prior, rest = density.parts(position)
    wanted = dist.Normal(1, 0.5).log_prob(0.3) + dist.HalfNormal(1).log_prob(jnp.exp(-0.7)) - 0.7
    np.testing.assert_allclose(prior, wanted, rtol=1e-5)
    np.testing.assert_allclose(prior + rest, density(position), rtol=1e-5)


def test_density_and_values_equal_what_nuts_sees():
    """Auxiliary sites are latent."""
    found = initialize_model(KEY, noisy, model_args=(Y[:3],), dynamic_args=True)
    kernel, z, call = ParallelTempering(noisy), dict(found.param_info.z), Call((Y[:3],))
    density, position = FlatDensity(kernel.potential, z, call), ravel_pytree(z)[0]
    energy = found.potential_fn(*call.args)(z)
    np.testing.assert_allclose(density(position), -energy, rtol=1e-5)
    np.testing.assert_allclose(sum(density.parts(position)), -energy, rtol=1e-5)
    wanted = found.postprocess_fn(*call.args)(z)
    values = kernel.postprocess_fn(*call)(z)
    assert set(values) == set(wanted) == {"w", "unit", "mean"}
    for name, value in wanted.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-6)
