"""The potential energy: control flow, minibatches, noise and deterministic sites."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.contrib.control_flow import cond, scan
from numpyro.infer.util import potential_energy
from support.helpers import KEY, assert_mean, regression, two_layers

from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers._sghmc import SGHMC

SERIES = jnp.array([1.0, 2.0, 1.5, 3.0, 2.5])


def state_space(y):
    """Supports and scales depend on the state, and a step has two sites."""
    scale = numpyro.sample("scale", dist.LogNormal(-1, 0.3))

    def step(x, y):
        with numpyro.plate("two", 2):
            width = numpyro.sample("width", dist.Uniform(0.0, 1 + x**2))
        x = numpyro.sample("x", dist.Normal(x, scale * width.sum()))
        numpyro.deterministic("double", 2 * x)
        numpyro.sample("y", dist.Normal(x, 0.3), obs=y)
        return x, None

    scan(step, jnp.zeros(()), y)


def branches(y):
    z = numpyro.sample("z", dist.Normal(0, 1))
    wide = lambda _: numpyro.sample("rate", dist.LogNormal(z, 1.0))  # noqa: E731
    narrow = lambda _: numpyro.sample("rate", dist.LogNormal(-z, 0.5))  # noqa: E731
    rate = cond(z > 0, wide, narrow, None)
    numpyro.sample("y", dist.Normal(rate, 1).expand([5]), obs=y)


@pytest.mark.parametrize("model", [state_space, branches])
def test_sites_within_control_flow(model):
    """The energy and its gradient are NumPyro's; deterministic sites match the latents."""
    potential = Potential(model)
    at = SGHMC(model).init(KEY, 0, None, (SERIES,), {}).unconstrained
    at = {n: u + 0.3 * random.normal(KEY, u.shape) for n, u in at.items()}
    ours = lambda u: potential(KEY, u, Call((SERIES,))).value  # noqa: E731
    theirs = lambda u: potential_energy(model, (SERIES,), {}, u)  # noqa: E731
    ours, theirs = jax.jit(lambda u: [jax.value_and_grad(f)(u) for f in (ours, theirs)])(at)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-4), ours, theirs)
    if model is state_space:
        latents = lambda u: potential(KEY, u, Call((SERIES,))).latents  # noqa: E731
        found = jax.jit(lambda u: potential.deterministic(Call((SERIES,)))(latents(u)))(at)
        np.testing.assert_allclose(found["double"], 2 * at["x"], rtol=1e-6)


def test_draws_have_noise_of_their_own():
    """Every draw has its own value of an auxiliary site, from the prior."""

    def model():
        w = numpyro.sample("w", dist.Normal(0, 1))
        e: object = numpyro.sample("e", dist.Normal(0, 1), infer={"is_auxiliary": True})
        numpyro.deterministic("sum", w + e)

    w = random.normal(KEY, (2000,))
    found = jax.jit(jax.vmap(Potential(model).deterministic(Call())))
    e = np.asarray(found({"w": w})["sum"] - w, np.float64)
    np.testing.assert_array_equal(found({"w": w})["sum"], found({"w": w})["sum"])
    for moment, truth in ((e, 0.0), (e**2, 1.0), (e * np.asarray(w), 0.0), (e[1:] * e[:-1], 0.0)):
        assert_mean(moment, truth)


def test_minibatches_and_unit_noise_are_unbiased():
    """The mean gradient over keys is the gradient of all rows, averaged over the noise."""
    potential, z = Potential(two_layers), jnp.linspace(-1.5, 1.5, 4)[:, None]
    x, y = regression(rows=12)
    at = SGHMC(two_layers).init(KEY, 0, None, (x, y), {"z": z}).unconstrained
    gradient = jax.grad(lambda u, k, **b: potential(k, u, Call((x, y), {"z": z, **b})).value)
    many = lambda n, **b: jax.vmap(lambda k: gradient(at, k, **b))(random.split(KEY, n))  # noqa: E731
    part, whole = jax.jit(lambda: (many(4000, batch_size=3), many(4000)))()
    for site in at:
        assert_mean(np.asarray(part[site]) - np.asarray(whole[site]), 0.0)
        assert np.asarray(part[site]).std(axis=0).min() > 0


def test_latents_of_the_rows_of_a_minibatch_count_for_all_rows():
    """The density, its data and the Jacobian of a row that is drawn count N times."""

    def model(y, size=None):
        with numpyro.plate("data", len(y), subsample_size=size) as rows:
            own = numpyro.sample("own", dist.Gamma(2.0, 1.0))
            numpyro.sample("y", dist.Normal(own, 0.5), obs=y[rows])

    y, at = jnp.array([1.0, 0.5, 2.0]), {"own": jnp.array([0.3, -0.4, 0.8])}
    slope = jax.grad(lambda u, size: Potential(model)(KEY, u, Call((y, size))).value)
    whole, part = jax.jit(lambda u: [slope(u, size)["own"] for size in (None, 1)])(at)
    assert np.count_nonzero(part) == 1
    np.testing.assert_allclose(part, np.where(part == 0, 0, 3 * whole), rtol=1e-5)
