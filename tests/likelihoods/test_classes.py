"""Likelihoods of classes against integrals of one variable."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support import integrals
from support.helpers import KEY, assert_mean, bound, start

import dgp_ppl as dgp
from dgp_ppl import likelihoods
from dgp_ppl.core import Marginals
from dgp_ppl.likelihoods import RobustMax


@pytest.mark.parametrize("kind", [likelihoods.softmax, likelihoods.robust_max])
def test_classes_may_be_floats(kind):
    """With a guide and without one; NumPyro's classes must be integers."""
    f, y = jnp.ones((3, 3)), jnp.arange(3)

    @jax.jit
    def log_prob(y):
        with numpyro.handlers.seed(rng_seed=0):
            return [
                dgp.observe(Marginals(f, f, guided=guided), kind).log_prob(y)
                for guided in (False, True)
            ]

    np.testing.assert_array_equal(log_prob(y.astype(float)), log_prob(y))


def test_robust_max_with_an_error_rate_of_each_row():
    f, epsilon = jnp.array([[0.0, 2.0, 1.0], [3.0, -1.0, 0.0]]), jnp.array([0.2, 0.01])
    wanted = np.array([[0.1, 0.8, 0.1], [0.99, 0.005, 0.005]])
    given, marginals = RobustMax(f, epsilon), dgp.Marginals(f, jnp.full((2, 3), 1e-12))

    def observed(epsilon):
        with numpyro.handlers.seed(rng_seed=0):
            return dgp.observe(marginals, lambda f: RobustMax(f, epsilon))

    @jax.jit
    def log_probs(y):
        expected = given.expected_log_prob(marginals.var, y, 20)
        return given.log_prob(y), observed(epsilon).log_density(y), expected

    with pytest.raises(ValueError, match=r"batch shape \(2, 2\)"):
        jax.eval_shape(observed, epsilon[:, None])
    probs = jax.jit(lambda: observed(epsilon).predictive().components.probs[0])()
    np.testing.assert_allclose([given.probs, probs], [wanted] * 2, rtol=1e-5)
    assert_mean(jax.nn.one_hot(given.sample(KEY, (20_000,)), 3), wanted)
    for c in range(3):
        for found in log_probs(jnp.full(2, c)):
            np.testing.assert_allclose(found, np.log(wanted)[:, c], atol=1e-4)


def test_robust_max_is_exact():
    """P(argmax f = y) for classes whose variances differ by up to 18 orders, to 1e-4."""
    rng = np.random.default_rng(1)
    for classes in (2, 10):
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
    var, y = jnp.array([[4.0, 1e-8, 1e-8], [1e-4, 1.0, 1.0]]), jnp.array([0, 1])
    likelihood = RobustMax(jnp.array([[0.0, 0.5, -0.5]] * 2))
    found = jax.jit(lambda: likelihood.expected_log_prob(var, y, 20))()
    np.testing.assert_allclose(found, [-4.551, -2.895], atol=1e-3)

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


def test_ordered_classes_beyond_the_digits_of_float32():
    """NumPyro's p of a middle class is 0 below f = -17."""
    means, sds = (0.0, 0.0, 0.0, -40.0), (2.0, 2.5, 3.0, 1.0)
    marginals = dgp.Marginals(jnp.array(means)[:, None], jnp.square(jnp.array(sds))[:, None], True)
    likelihood = lambda f: dist.OrderedLogistic(f, jnp.array([-1.0, 1.0]))  # noqa: E731
    found = jax.jit(lambda y: dgp.observe(marginals, likelihood).log_prob(y))(jnp.ones(4, int))
    log_p = lambda f: np.log1p(-np.exp(-2)) - np.logaddexp(0, f - 1) - np.logaddexp(0, -1 - f)  # noqa: E731
    wanted = [integrals.expectation(log_p, *row, (0.0,)) for row in zip(means, sds, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=3e-3)
    np.testing.assert_allclose(found[:3], wanted[:3], rtol=1e-5)
