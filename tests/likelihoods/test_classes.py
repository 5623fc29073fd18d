"""Likelihoods of classes against Monte Carlo estimates and the Bayes error."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from scipy import special, stats
from support import integrals
from support.helpers import KEY, assert_mean, bound, start

import dgp_ppl as dgp
from dgp_ppl import initialize, likelihoods, models
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import RobustMax

RNG = np.random.default_rng(0)
MEAN = jnp.asarray(1.5 * RNG.standard_normal((6, 4)), jnp.float32)
VAR = jnp.asarray(RNG.uniform(0.05, 2.0, (6, 4)), jnp.float32)
Y = jnp.asarray([0, 1, 2, 3, 0, 1])
CLASSES = ("robust_max", "softmax")


def latent_draws(num):
    return MEAN + jnp.sqrt(VAR) * random.normal(random.key(1), (num, *MEAN.shape))


def observed(name, guided, **options):
    with numpyro.handlers.seed(rng_seed=0):
        marginals = Marginals(MEAN, VAR, guided)
        return dgp.observe(marginals, getattr(likelihoods, name), **options)


def test_robust_max_given_f():
    distribution = RobustMax(jnp.array([[0.0, 2.0, 1.0], [3.0, -1.0, 0.0]]), 0.1)
    probabilities = [[0.05, 0.9, 0.05], [0.9, 0.05, 0.05]]
    np.testing.assert_allclose(distribution.probs, probabilities, rtol=1e-6)
    for c in range(3):
        found = distribution.log_prob(jnp.full(2, c))
        np.testing.assert_allclose(found, np.log(probabilities)[:, c], rtol=1e-5)
    draws = distribution.sample(KEY, (20_000,))
    assert_mean(jax.nn.one_hot(draws, 3), np.array(probabilities))


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_expected_log_likelihood_is_that_of_draws_of_f(name):
    options = {"num_draws": 200_000} if name == "softmax" else {}
    found = observed(name, True, **options).log_prob(Y)
    brute = getattr(likelihoods, name)(latent_draws(200_000)).log_prob(Y)
    error = np.asarray(brute).std(axis=0) / np.sqrt(len(brute))
    twice = np.sqrt(2) if name == "softmax" else 1.0  # `found` is an estimate too
    assert (np.abs(found - brute.mean(axis=0)) < 4.5 * twice * error + 5e-3).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_predictive_probabilities_are_those_of_draws_of_f(name):
    options = {"num_draws": 50_000} if name == "softmax" else {}
    distribution = observed(name, False, **options)
    found = np.exp([distribution.log_prob(jnp.full(6, c)) for c in range(4)]).T
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    f = latent_draws(200_000)
    probabilities = getattr(likelihoods, name)(f).probs
    brute, error = probabilities.mean(axis=0), probabilities.std(axis=0) / np.sqrt(len(f))
    assert (np.abs(found - brute) < 6 * error + 5e-4).all()


@pytest.mark.usefixtures("x64")
def test_softmax_of_two_classes_against_quadrature():
    """The difference of two values is Gaussian, so both integrals have one dimension."""
    draws = 20_000
    mean, sd = map(
        np.ravel, np.meshgrid([-30.0, -2.0, 0.0, 0.7, 5.0], [1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3])
    )
    both = jnp.stack([jnp.zeros(len(mean)), jnp.asarray(mean)], axis=1)
    var = jnp.stack([jnp.asarray(0.3 * sd**2), jnp.asarray(0.7 * sd**2)], axis=1)
    chosen = jnp.ones(len(mean), int)
    with numpyro.handlers.seed(rng_seed=0):
        bound, density = (
            dgp.observe(Marginals(both, var, guided), likelihoods.softmax, num_draws=draws)
            for guided in (True, False)
        )

    def moments(function):
        powers = (function, lambda d: np.square(function(d)))
        first, second = (
            np.array(
                [integrals.expectation(p, *case, [0.0]) for case in zip(mean, sd, strict=True)]
            )
            for p in powers
        )
        return first, np.sqrt(np.maximum(second - first**2, 0) / draws)

    wanted, error = moments(special.log_expit)
    off = np.abs(bound.log_prob(chosen) - wanted)
    assert (off < 5 * error + 1e-5 * (1 + np.abs(wanted))).all()
    wanted, error = moments(special.expit)
    off = np.abs(np.exp(density.log_prob(chosen)) - wanted)
    assert (off < 5 * error + 1e-5).all()


def test_robust_max_is_exact():
    """P(argmax f = y) for classes whose variances differ by up to 18 orders, to 1e-4."""
    rng = np.random.default_rng(1)
    for classes in (2, 4, 10):
        var = 10 ** rng.uniform(-12, 6, (60, classes))
        var[::3] = 10 ** rng.uniform(-1, 1, (20, classes))
        scale = np.sqrt(var[np.arange(60), rng.integers(classes, size=60)])
        mean = (
            rng.standard_normal((60, classes)) * 10 ** rng.uniform(-2, 1, (60, 1)) * scale[:, None]
        )
        mean, var = np.float32(mean), np.float32(var)
        y = rng.integers(classes, size=60)
        exact = np.array([
            integrals.largest_probability(*map(np.float64, (m, v)), c)
            for m, v, c in zip(mean, var, y, strict=True)
        ])  # fmt: skip
        epsilon = 1e-3
        wanted = exact * np.log1p(-epsilon) + (1 - exact) * np.log(epsilon / (classes - 1))
        likelihood = RobustMax(mean, epsilon)
        found = jax.jit(lambda v, y, d=likelihood: d.expected_log_prob(v, y, 20))(var, y)
        np.testing.assert_allclose(found, wanted, atol=1e-3)
        probabilities = jax.jit(lambda v, d=likelihood: d.predictive(v).probs)(var)[
            np.arange(60), y
        ]
        hits = exact * (1 - epsilon) + (1 - exact) * epsilon / (classes - 1)
        np.testing.assert_allclose(probabilities, hits, atol=1e-4)


def test_the_bound_of_robust_max_is_below_the_evidence():
    """A q(v) whose bound 20 Gauss-Hermite nodes put 30 nats too high, above the evidence."""
    found = [
        RobustMax(jnp.array([[0.0, 0.5, -0.5]])).expected_log_prob(
            jnp.array([v]), jnp.array([c]), 20
        )
        for v, c in (([4.0, 1e-8, 1e-8], 0), ([1e-4, 1.0, 1.0], 1))
    ]
    np.testing.assert_allclose(np.ravel(found), [-4.551, -2.895], atol=1e-3)

    def model(x, y):
        kernel = dgp.kernels.SquaredExponential(1.0, 1.0)
        f = dgp.gp("f", kernel, jnp.zeros((1, 1)), out=3)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), likelihoods.robust_max), obs=y)

    guide = dgp.MeanField(model, covariance="diagonal")
    x, y = jnp.zeros((60, 1)), jnp.repeat(jnp.arange(2), 30)
    params = start(model, guide, x, y)
    q = {"f.v.loc": [[0.58, 0.09, -0.68]], "f.v.scale": [[0.006, 1.449, 0.372]]}
    assert set(q) <= set(params)
    params |= {n: jnp.asarray(a).reshape(params[n].shape) for n, a in q.items()}
    found = bound(model, guide, params, x, y)
    assert found == pytest.approx(-233.9, abs=0.1)
    # Given the largest of the three values, which are independent, the targets are too.
    right, wrong = 30 * np.log(1 - 1e-3), 30 * np.log(1e-3 / 2)
    assert found < np.log((2 * np.exp(right + wrong) + np.exp(2 * wrong)) / 3)


@pytest.mark.slow
@pytest.mark.parametrize("known", [1e-9, 0.0])
def test_robust_max_of_functions_that_are_known(known):
    """If all but one f are known, the probability is a step function of it."""
    mean, var = jnp.array([[0.0, -0.3, 0.2]]), jnp.array([[1.0, known, known]])
    distribution = RobustMax(mean)
    largest = stats.norm.sf(0.2)
    exact = largest * (1 - 1e-3) + (1 - largest) * 1e-3 / 2
    assert distribution.predictive(var).probs[0, 0] == pytest.approx(exact, abs=1e-4)
    gradient = jax.grad(
        lambda m, v: RobustMax(m).expected_log_prob(v, jnp.array([0]), 20).sum(), argnums=(0, 1)
    )(mean, var)
    assert all(np.isfinite(a).all() for a in gradient)


def test_wrong_use():
    with pytest.raises(ValueError, match=r"latent has shape \(3, 1\), wanted \[\.\.\., C\].*out=C"):
        RobustMax(jnp.zeros((3, 1)))


def blobs(rows, seed):
    """Return inputs, classes and class probabilities of three overlapping Gaussians in 2D."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 1.2], [-1.0, -0.6], [1.0, -0.6]])
    y = rng.integers(0, 3, rows)
    x = centres[y] + 0.8 * rng.standard_normal((rows, 2))
    density = np.exp(-0.5 * np.square((x[:, None] - centres) / 0.8).sum(axis=-1))
    return x, y, density / density.sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", CLASSES)
def test_a_toy_is_fitted_to_the_bayes_error(name, depth):
    """The test error is near the Bayes error, and softmax's probabilities are near the true ones.

    Robust-max explains overlapping classes by rare errors, so its probabilities are not.
    """
    (x, y, _), (x_test, y_test, truth) = blobs(3000, 0), blobs(4000, 1)
    options = initialize.deep_gp(KEY, x, num_inducing=20, depth=depth)
    options |= {"likelihood": getattr(likelihoods, name), "out": 3}
    guide = dgp.MeanField(models.deep_gp)
    fit = {"steps": 1500, "learning_rate": 0.05, "batch_size": 200, "progress": False}
    result = dgp.fit(KEY, models.deep_gp, guide, x, y, **fit, **options)
    held = dgp.predict(KEY, models.deep_gp, guide, result.params, x_test, num_samples=20, **options)
    found = held.probabilities
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    wrong, least = (p.argmax(axis=1) != y_test for p in (found, truth))
    excess = wrong.astype(float) - least
    assert excess.mean() < 0.005 + 2 * excess.std() / np.sqrt(len(excess))
    if name == "softmax":
        assert dgp.metrics.log_loss(y_test, found) < dgp.metrics.log_loss(y_test, truth) + 0.05


def test_probabilities_are_of_classes():
    def model(x, y=None):
        f = dgp.gp("f", dgp.kernels.SquaredExponential(1.0, 1.0), x)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Poisson(jnp.exp(f))), obs=y)

    counts = dgp.predict(KEY, model, None, {}, np.zeros((2, 1)), num_samples=3)
    with pytest.raises(ValueError, match=r"y is Poisson, wanted a class 0 \.\.\. C-1"):
        _ = counts.probabilities
