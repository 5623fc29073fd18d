"""Sums and multiples of layers: moments, exact posteriors of additive models, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats
from support.helpers import bound, regression

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods
from dgp_ppl.core import Marginals

X, Y = (np.asarray(a, np.float64) for a in regression(rows=8))
X_TEST = np.linspace(-2.5, 2.5, 5)[:, None]
NOISE = 0.3
KERNELS = {
    "f": kernels.SquaredExponential(np.float64(1.5), np.float64(1.6)),
    "g": kernels.Matern32(np.float64(0.7), np.float64(0.6)),
}
SCALES = {"f": 1.0, "g": 0.5}


def layers(z=X):
    """Make the layers f and g."""
    return [dgp.gp(name, kernel, z) for name, kernel in KERNELS.items()]


def additive(x, y=None, *, z=X, likelihood=lambda f: dist.Normal(f, NOISE)):
    f, g = layers(z)
    with dgp.minibatch(x, y) as (x, y):
        total = f(x) + SCALES["g"] * g(x)
        numpyro.sample("y", dgp.observe(total, likelihood), obs=y)


def gram(a, b):
    """Return the kernel of the sum, [N, M], in float64."""
    parts = [SCALES[n] ** 2 * np.asarray(k(a, b)) for n, k in KERNELS.items()]
    return sum(parts)


def conditional(v, x, z=X):
    """Return the marginals of the sum given draws of v."""
    with handlers.substitute(data={"f.v": v["f"], "g.v": v["g"]}):
        f, g = layers(z)
    return f(x) + SCALES["g"] * g(x)


@pytest.fixture(scope="module")
def linear():
    """Return the mean of the sum as a linear map of all v, and its variance, at X and X_TEST.

    In float64: the prior of v is N(0, I), so all that follows from the additive model is exact.
    """
    with jax.enable_x64(True):
        zero = {n: jnp.zeros((len(X), 1)) for n in KERNELS}
        at = lambda x: jax.jit(lambda v: conditional(v, x))  # noqa: E731
        maps = {}
        for name, x in (("train", X), ("test", X_TEST)):
            slopes = jax.jacobian(lambda v, x=x: at(x)(v).mean[:, 0])(zero)
            J = np.concatenate([slopes[n][..., 0] for n in KERNELS], axis=1)
            maps[name] = J, np.asarray(at(x)(zero).var[:, 0])
        return maps


@pytest.mark.usefixtures("x64")
def test_the_prior_has_the_sum_of_the_kernels(linear):
    for name, x in (("train", X), ("test", X_TEST)):
        J, var = linear[name]
        total = gram(x, x)
        np.testing.assert_allclose(np.diag(J @ J.T) + var, np.diag(total), atol=1e-9)
        if name == "train":  # z = x determines the functions
            np.testing.assert_allclose(J @ J.T, total, atol=1e-8)


@pytest.mark.usefixtures("x64")
def test_the_best_bound_lacks_the_correlation_of_the_layers(linear):
    """The best q(f) q(g) has the exact posterior's means, and the blocks of its precision.

    Its bound is below the evidence of the one GP by the KL between the two, which is known.
    """
    J, var = linear["train"]
    precision = np.eye(16) + J.T @ J / NOISE**2
    loc, params, gap = np.linalg.solve(precision, J.T @ Y) / NOISE**2, {}, 0.0
    for i, name in enumerate(KERNELS):
        block = slice(8 * i, 8 * (i + 1))
        tril = np.linalg.cholesky(np.linalg.inv(precision[block, block]))
        params |= {f"{name}.v.loc": loc[block, None], f"{name}.v.scale_tril": tril[None]}
        gap -= np.log(np.diag(tril)).sum()
    gap -= np.log(np.diag(np.linalg.cholesky(precision))).sum()
    exact = stats.multivariate_normal(np.zeros(8), gram(X, X) + NOISE**2 * np.eye(8)).logpdf(Y)
    params, z = jax.tree.map(jnp.asarray, params), jnp.asarray(X)
    found = bound(additive, dgp.MeanField(additive), params, z, jnp.asarray(Y), z=z)
    assert 2.2 < gap < 2.4
    np.testing.assert_allclose(found, exact - gap - var.sum() / (2 * NOISE**2), atol=1e-6)


def pair(P=2, guided=False):
    rng = np.random.default_rng(0)
    return [
        Marginals(
            jnp.asarray(rng.standard_normal((3, P)), float),
            jnp.asarray(rng.uniform(0.5, 1, (3, P)), float),
            guided,
            (f"{name}.v",),
        )
        for name in "fg"
    ]


F, G = pair()
ROWS = np.array([1.0, -2.0, 3.0])


def test_moments():
    (f, g), rows = pair(), ROWS[:, None]

    def cases():
        yield F + G, f.mean + g.mean, f.var + g.var
        yield F - G, f.mean - g.mean, f.var + g.var
        yield sum([F, G]), f.mean + g.mean, f.var + g.var
        yield 2 * F - G / 4 + 1, 2 * f.mean - g.mean / 4 + 1, 4 * f.var + g.var / 16
        yield -F, -f.mean, f.var
        yield 3 - F, 3 - f.mean, f.var
        yield ROWS + F, f.mean + rows, f.var
        yield jnp.asarray(ROWS) * F, f.mean * rows, f.var * rows**2
        yield np.float32(2) * F, 2 * f.mean, 4 * f.var
        yield F * np.array([[1, 2]]), f.mean * np.array([[1, 2]]), f.var * np.array([[1, 4]])
        yield np.ones((3, 2)) - F, 1 - f.mean, f.var
        yield F - np.ones((3, 1)), f.mean - 1, f.var

    for found, *wanted in jax.jit(lambda: [((m.mean, m.var), *a) for m, *a in cases()])():
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
            assert a.dtype == jnp.float32


def test_what_the_sum_is_made_of():
    assert (F + 2 * G).layers == ("f.v", "g.v")
    f, g = pair(guided=True)
    assert (f - g).guided
    assert (F + g).guided  # noise of a Gaussian term needs no guide
    assert not (F + G).guided
    with handlers.seed(rng_seed=0):  # closed forms stay
        assert not dgp.observe(f + g, lambda f: dist.Normal(f, 0.2).to_event(1)).estimated
        assert dgp.observe(f + g, likelihoods.heteroscedastic).analytic


def test_rows_without_a_layer_have_finite_gradients():
    """A treatment effect: t is 0 in the rows that are not treated."""
    f = pair(2, guided=True)[0]

    def loss(scale):
        treated = jnp.array([0.0, 1.0, 0.0]) * (scale * f)
        with handlers.seed(rng_seed=0):
            observed = dgp.observe(treated, likelihoods.heteroscedastic)
        return (observed.log_prob(jnp.ones(3)) + observed.log_density(jnp.ones(3))).sum()

    with jax.numpy_rank_promotion("allow"):  # likelihoods promote f at the nodes
        assert np.isfinite(jax.jit(jax.grad(loss))(1.3))


@pytest.mark.wrong_types
def test_errors():
    for function, error, message in (
        (lambda: F + F, ValueError, r"layer 'f' in two of its terms.*2 \* f\(x\).*joint=True"),
        (lambda: F + (G - F), ValueError, "layer 'f' in two of its terms"),
        (lambda: F * G, TypeError, r"product of two layers is not Gaussian.*f\.sample"),
        (lambda: F / G, TypeError, r"quotient of two layers is not Gaussian.*f\.sample"),
        (lambda: F + np.ones(4), ValueError, r"shape \(4,\), wanted a number, \(3,\) or \(3, 2\)"),
        (lambda: np.ones((2, 3)) * F, ValueError, r"shape \(2, 3\), wanted a number"),
        (lambda: F + np.ones((1, 3, 2)), ValueError, r"shape \(1, 3, 2\), wanted a number"),
        (lambda: F + len, TypeError, r"got a builtin_function.*, wanted a number, an array"),
        (lambda: F + pair(1)[1], ValueError, r"shapes \(3, 2\) and \(3, 1\), wanted the same"),
    ):
        with pytest.raises(error, match=message):
            function()
