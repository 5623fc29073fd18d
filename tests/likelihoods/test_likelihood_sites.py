"""Params and latent sites inside a likelihood count as if they were in the model's body."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro import handlers
from numpyro.distributions import constraints
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import Marginals, likelihoods, models

X = np.linspace(-2, 2, 40)[:, None]
Y = np.sin(3 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_t(3, 40)
Z = X[::5]
F = Marginals(mean=jnp.linspace(-1, 1, 6)[:, None], var=jnp.full((6, 1), 0.3), guided=True)


def inside(f):
    scale = numpyro.param("scale", 0.5, constraint=constraints.positive)
    return likelihoods.StudentT(4.0, f, scale)


def outside(scale):
    return lambda f: likelihoods.StudentT(4.0, f, scale)


def test_densities_have_the_value_and_the_gradient_of_a_param():
    @partial(jax.jit, static_argnums=1)
    def total(scale, make):
        with handlers.substitute(data={"scale": scale}):
            observed = dgp.observe(F, make(scale))
        # As objectives do, after the model.
        terms = observed.log_prob(jnp.arange(6.0)) + observed.log_density(jnp.arange(6.0))
        return terms.sum()

    found = jax.value_and_grad(total)(0.2, lambda scale: inside)
    expected = jax.value_and_grad(total)(0.2, outside)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert abs(found[1]) > 1


def test_a_deterministic_site_has_the_value_at_the_mean():
    def likelihood(f):
        return dist.Poisson(numpyro.deterministic("rate", jnp.exp(f)))

    with handlers.trace() as found:
        dgp.observe(F, likelihood)
    np.testing.assert_allclose(found["rate"]["value"], jnp.exp(F.mean[:, 0]), rtol=1e-6)


def test_a_fit_learns_them_and_predictions_use_them():
    guide = dgp.MeanField(models.svgp)
    options = {"z": Z, "likelihood": inside}
    fit = dgp.fit(KEY, models.svgp, guide, X, Y, steps=200, progress=False, **options)
    assert fit.params["scale"] < 0.3
    found = dgp.predict(KEY, models.svgp, guide, fit, X, **options)
    expected = dgp.predict(
        KEY, models.svgp, guide, {n: a for n, a in fit.params.items() if n != "scale"}, X,
        z=Z, likelihood=outside(fit.params["scale"]),
    )  # fmt: skip
    np.testing.assert_allclose(found.log_prob(Y), expected.log_prob(Y), rtol=1e-5)
    np.testing.assert_allclose(found.var, expected.var, rtol=1e-5)
    np.testing.assert_array_equal(found.sample(KEY, 3), expected.sample(KEY, 3))


def test_a_latent_site_may_be_one_and_a_scope_may_rename_it():
    def model(x, y=None):
        f = Marginals(mean=jnp.asarray(x), var=jnp.full(x.shape, 0.1), guided=False)

        def likelihood(f):
            return outside(numpyro.sample("scale", dist.HalfNormal(1.0)))(f)

        with handlers.scope(prefix="noise"):
            observed = dgp.observe(f, likelihood)
        numpyro.sample("y", observed, obs=y)

    @jax.jit
    def run():
        trace = handlers.trace(handlers.seed(model, KEY)).get_trace(X, Y)
        scale, y = trace["noise/scale"]["value"], trace["y"]["fn"]
        f = Marginals(mean=jnp.asarray(X), var=jnp.full(X.shape, 0.1), guided=False)
        expected = dgp.observe(f, outside(scale)).log_prob(Y)
        return y.log_prob(Y), expected, y.sample(random.key(1))

    found, expected, draw = run()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert draw.shape == (40,)
