"""Parallel tempering on posteriors with known modes, weights and moments."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import MCMC
from support.foreign_models import FOREIGN, assert_same_posterior, nuts
from support.helpers import KEY, assert_mean

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers.tempering import ParallelTempering

CENTRES, SHARES, SD = jnp.array([[-4.0, 0.0], [4.0, 2.0]]), jnp.array([0.2, 0.8]), 0.2


def two_modes(scale=3.0):
    """Two narrow modes, forty of their sds apart, that the prior covers."""
    x = numpyro.sample("x", dist.Normal(0, scale).expand([2]).to_event(1))
    logs = dist.Normal(CENTRES, SD).to_event(1).log_prob(x) + jnp.log(SHARES)
    numpyro.factor("data", jnp.logaddexp(*logs))


def weights():
    """Posterior probability of the second mode: a product of Gaussians, in closed form."""
    marginal = np.prod(
        np.exp(dist.Normal(0, np.sqrt(9 + SD**2)).log_prob(np.asarray(CENTRES))), axis=1
    )
    joint = np.asarray(SHARES) * marginal
    return joint[1] / joint.sum()


def run(model, *args, chains=8, warmup=600, samples=1000, thinning=2, **options):
    return run_mcmc(
        KEY, ParallelTempering(model, **options), *args, num_warmup=warmup, num_samples=samples,
        thinning=thinning, num_chains=chains, progress=False,
    )  # fmt: skip


def test_two_modes_have_their_weights():
    """Within five percent, and within the error over chains, from one mode."""
    chains = run_mcmc(
        KEY, ParallelTempering(two_modes, num_temperatures=12), num_warmup=600, num_samples=1500,
        num_chains=8, init_params={"x": jnp.tile(CENTRES[0], (8, 1))}, progress=False,
    )  # fmt: skip
    right = (chains.samples["x"][..., 0] > 0).mean(axis=1)
    assert_mean(right, weights())
    assert abs(right.mean() - weights()) < 0.05
    trips = chains.fields["round_trips"][:, -1]
    assert (trips > 50).all()
    assert (chains.fields["round_trips"][:, 0] <= 1).all()  # those of warm-up are not counted
    # Within a mode the spread is the mode's.
    x = chains.samples["x"][..., 0]
    inside = [np.where(x > 0, (x - x[x > 0].mean()) ** 2, np.nan)]
    assert np.nanmean(inside) == pytest.approx(1 / (1 / SD**2 + 1 / 9), rel=0.1)


def test_without_a_ladder_the_modes_stay_apart():
    """What the test above would show if replicas did not move: HMC never crosses."""
    from numpyro.infer import HMC

    start = {"x": jnp.tile(CENTRES[0], (8, 1))}
    chains = run_mcmc(
        KEY, HMC(two_modes), num_warmup=100, num_samples=100, num_chains=8, init_params=start,
        progress=False,
    )  # fmt: skip
    assert (chains.samples["x"][..., 0] < 0).all()


@pytest.mark.slow
def test_stationary_at_a_condition_of_ten_thousand():
    """Variances of a Gaussian whose sds range over a factor of 100."""
    sds = np.geomspace(0.01, 1.0, 8)
    noise = 1 / np.sqrt(1 / sds**2 - 1 / 1.1**2)  # so that the posterior's sd is `sds`

    def gaussian():
        x = numpyro.sample("x", dist.Normal(0, 1.1).expand([8]).to_event(1))
        numpyro.sample("y", dist.Normal(x, noise).to_event(1), obs=jnp.zeros(8))

    chains = run(gaussian, warmup=1000, samples=1500, thinning=3)
    assert_mean((chains.samples["x"] ** 2).mean(axis=1) / sds**2, 1.0, errors=6)
    assert (chains.samples["x"] ** 2).mean(axis=(0, 1)) / sds**2 == pytest.approx(1.0, rel=0.1)
    assert chains.fields["diverging"].mean() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two groups", "eight schools", "logistic"])
def test_models_that_are_not_ours(name):
    model, args = FOREIGN[name]
    assert_same_posterior(run(model, *args, samples=1500), nuts(model, *args))


def test_deterministic_sites_and_fields_through_numpyros_mcmc():
    model, args = FOREIGN["eight schools"]
    mcmc = MCMC(
        ParallelTempering(model, num_temperatures=4), num_warmup=20, num_samples=10, num_chains=2,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(KEY, *args, extra_fields=("round_trips", "swap_prob", "ladder.betas"))
    draws, fields = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(True)
    assert draws["effect"].shape == (2, 10, 8)
    assert (draws["tau"] > 0).all()
    np.testing.assert_allclose(
        draws["effect"], draws["mu"][..., None] + draws["tau"][..., None] * draws["unit"], rtol=1e-5
    )
    betas = np.asarray(fields["ladder.betas"])[0, -1]
    assert betas[0] == 1
    assert betas[-1] == 0
    assert (np.diff(betas) < 0).all()
    assert ((fields["swap_prob"] >= 0) & (fields["swap_prob"] <= 1)).all()


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    model, args = FOREIGN["logistic"]
    options = {"num_warmup": 20, "num_samples": 20, "num_chains": 2, "progress": False}
    kernel = ParallelTempering(model, num_temperatures=3)
    whole = run_mcmc(KEY, kernel, *args, **options)
    kept = run_mcmc(KEY, kernel, *args, checkpoint=tmp_path / "run", every=10, **options)
    again = run_mcmc(KEY, kernel, *args, checkpoint=tmp_path / "run", every=10, **options)
    for name, draws in whole.samples.items():
        np.testing.assert_array_equal(kept.samples[name], draws)
        np.testing.assert_array_equal(again.samples[name], draws)


def test_arviz_has_its_statistics():
    model, args = FOREIGN["logistic"]
    chains = run(model, *args, chains=2, warmup=20, samples=20, num_temperatures=3)
    data = dgp.to_inferencedata(KEY, model, None, {}, *args, posterior_samples=chains)
    assert data["posterior"]["w"].shape[:2] == (2, 20)
    assert {"round_trips", "diverging"} <= set(data["sample_stats"])


def test_wrong_options_and_models():
    with pytest.raises(ValueError, match="num_temperatures is 2, wanted at least 3"):
        ParallelTempering(two_modes, num_temperatures=2)
    with pytest.raises(TypeError, match="leapfrogs is 'a', wanted an integer"):
        ParallelTempering(two_modes, leapfrogs="a")

    def improper():
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(x, 1), obs=0.0)

    with pytest.raises(ValueError, match=r"ParallelTempering: .* improper prior, .* proper one"):
        run(improper, chains=1, warmup=1, samples=1)

    def part(y):
        x = numpyro.sample("x", dist.Normal(0, 1))
        with numpyro.plate("data", 10, subsample_size=5):
            numpyro.sample("y", dist.Normal(x, 1), obs=y[:5])

    with pytest.raises(ValueError, match="ParallelTempering: the plate 'data' takes 5 of 10 rows"):
        run(part, jnp.zeros(10), chains=1, warmup=1, samples=1)


def test_the_diagnostics_say_what_matters():
    kernel = ParallelTempering(two_modes, num_temperatures=4)
    state = kernel.init(random.split(KEY, 2), 10, None, (), {})
    for _ in range(3):
        state = kernel.sample(state, (), {})
    assert "round trips, " in kernel.get_diagnostics_str(state)
    assert "% of swaps" in kernel.get_diagnostics_str(state)
