"""Guides of NumPyro's for the latent sites that are no layers, joint ones among them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from helpers import KEY, assert_mean, start
from jax import random
from numpyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoMultivariateNormal

import dgp_ppl as dgp
from dgp_ppl import kernels

X = np.linspace(-1, 1, 6)[:, None]
Y = np.sin(3 * X[:, 0])
DRAWS = 8000


def plain(x, y=None):
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), X[::2])
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 1.0)), obs=y)


def idle(x, y=None):
    """The same with sites that say nothing of the data: a bound loses their KL, and no more."""
    numpyro.sample("a", dist.LogNormal(0, 1))
    numpyro.sample("b", dist.LogNormal(0, 1))
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), X[::2])
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 1.0)), obs=y)


def losses(model, guide, params):
    one = lambda key: guide.default_loss.loss(key, params, model, guide, X, Y)  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(one))(random.split(KEY, DRAWS)))


LOC = jnp.asarray([0.4, -0.3])
ROOT = jnp.asarray([[0.8, 0.0], [0.5, 0.4]])


@pytest.mark.parametrize("base", ["mean_field", "diffusion"])
def test_a_joint_guide_pays_its_kl(base):
    guide = dgp.MeanField(idle, rest=AutoMultivariateNormal)
    without = dgp.MeanField(plain)
    if base == "diffusion":
        guide, without = (dgp.Diffusion(g.model, steps=2, base=g) for g in (guide, without))
    params = start(idle, guide, X, Y)
    assert {n for n in params if "auto" in n} == {
        "auto_loc", "auto_scale_tril", "auto_w_loc", "auto_w_scale_tril",
    }  # fmt: skip
    params |= {"auto_loc": LOC, "auto_scale_tril": ROOT}
    params |= {"auto_w_loc": jnp.zeros(6), "auto_w_scale_tril": jnp.eye(6)}  # w's prior: no KL
    normal = dist.MultivariateNormal(LOC, scale_tril=ROOT)
    kl = dist.kl_divergence(normal, dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
    exact = {n: a for n, a in params.items() if "auto" not in n}
    found = losses(idle, guide, params), losses(plain, without, exact)
    error = np.hypot(*(np.std(a) / np.sqrt(DRAWS) for a in found))
    assert abs(found[0].mean() - found[1].mean() - kl) < 5 * error
    assert kl > 10 * error


def test_draws_are_the_joint_guides():
    guide = dgp.MeanField(idle, rest=AutoMultivariateNormal)
    params = start(idle, guide, X, Y) | {"auto_loc": LOC, "auto_scale_tril": ROOT}
    draws = guide.sample_posterior(KEY, params, X, sample_shape=(4000,))
    assert set(draws) == {"a", "b", "l1.v", "w"}
    both = np.log(np.stack([draws["a"], draws["b"]], axis=1))
    assert_mean(both - np.asarray(LOC), 0.0)
    products = np.prod(both - np.asarray(LOC), axis=1)
    assert_mean(products, float((ROOT @ ROOT.T)[0, 1]))


def test_a_joint_guide_does_not_collapse():
    """Fitted, it finds the priors of what the data say nothing of."""
    guide = dgp.MeanField(idle, rest=AutoLowRankMultivariateNormal)
    params = dgp.fit(KEY, idle, guide, X, Y, steps=600, learning_rate=0.05, progress=False).params
    draws = guide.sample_posterior(KEY, params, X, sample_shape=(2000,))
    assert 0.7 < np.std(np.log(draws["a"])) < 1.3
