"""`run_mcmc`: warnings about unreliable draws."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import init_to_value
from support.kernel_runs import short

from dgp_ppl.inference.samplers.sghmc import SGHMC


def hills(x, y):
    """Ten normal values."""
    numpyro.sample("w", dist.Normal(0, 1).expand([10]).to_event(1))


def test_draws_that_are_too_hot_are_said():
    """Euler steps that are too large heat the momentum; there is one warning."""
    hot = SGHMC(hills, step_size=1.0, preconditioner=None, integrator="euler", friction=0.5)
    options = {"num_warmup": 200, "num_samples": 200, "num_chains": 4}
    with pytest.warns(
        UserWarning, match="mean kinetic temperature is .*longer num_warmup"
    ) as warned:
        chains = short(hot, **options)
    assert len(warned) == 1
    assert chains.fields["temperature"].mean() > 1.25
    sound = short(SGHMC(hills, step_size=0.2, preconditioner=None), **options)
    assert sound.fields["temperature"].mean() == pytest.approx(1, abs=0.1)


def test_divergences_are_said():
    """A chain diverges from far out without warm-up."""
    start = init_to_value(values={"w": 100 * jnp.ones(10)})
    far = SGHMC(hills, step_size=1.0, preconditioner=None, init_strategy=start)
    with pytest.warns(UserWarning, match="1 of the draws diverge"):
        chains = short(far, num_samples=20)
    assert chains.fields["diverging"].all()
