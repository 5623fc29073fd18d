"""Joint draws in float32 where the inducing inputs determine the function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from support.helpers import KEY, assert_covariance, assert_mean, squared_exponential

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.core import FullInducing, Handover, guide_site
from dgp_ppl.linalg import default_jitter

Z, X = (np.linspace(-2, 2, n, dtype=np.float32)[:, None] for n in (12, 5))
LENGTHSCALES = np.float32([0.6, 1.1, 2.0, 3.0])
LOC = np.random.default_rng(0).standard_normal((12, 1))
TRIL = np.tril(np.random.default_rng(1).standard_normal((1, 12, 12)), -1) + 0.8 * np.eye(12)
Q = FullInducing(jnp.asarray(LOC, float), jnp.asarray(TRIL, float))


def draw(key, lengthscale, mode, variance=1.0, x=X, q=None):
    """Draw the function at x, [N], from the prior or from q(v)."""
    trace = {} if q is None else {"f.v": guide_site("f.v", Handover(q), q.loc)}
    kernel = kernels.SquaredExponential(variance, lengthscale)
    with handlers.seed(rng_seed=key), handlers.replay(trace=trace):
        if mode == "sample":
            return dgp.gp("f", kernel, Z).sample(x, joint=True)[:, 0]
        with dgp.function_draws(mode=mode):
            f = dgp.gp("f", kernel, Z)
        return f(x).mean[:, 0]


@jax.jit
def many(lengthscales, variance=1.0, q=None):
    """Draw once with each lengthscale, by `sample` and under `function_draws`: [2, S, N]."""
    keys = random.split(KEY, len(lengthscales))
    return jnp.stack(
        [
            jax.vmap(lambda k, l, mode=mode: draw(k, l, mode, variance, q=q))(keys, lengthscales)
            for mode in ("sample", "joint")
        ]
    )


def test_draws_are_finite():
    lengthscales = jnp.exp(0.5 * random.normal(KEY, (400,)))
    lengthscales = lengthscales.at[:80].set(jnp.repeat(LENGTHSCALES, 20))
    for variance in (1e-8, 1.0, 1e8):
        draws = np.asarray(many(lengthscales, variance))
        assert np.isfinite(draws).all()
        assert (np.abs(draws) < 6 * np.sqrt(variance)).all()


def test_draws_have_the_moments_of_dense_algebra():
    """Of the prior, and mean A'm and covariance k(x, x) - A'A + A'R R'A of q(v).

    In float64, with the jitter of float32.
    """
    lengthscale = LENGTHSCALES[3]
    Kzz, Kzx, Kxx = (
        squared_exponential(a, b, 1.0, lengthscale) for a, b in ((Z, Z), (Z, X), (X, X))
    )
    A = np.linalg.solve(np.linalg.cholesky(Kzz + default_jitter(np.float32) * np.eye(12)), Kzx)
    root = A.T @ TRIL[0]
    for draws in many(jnp.full(3000, lengthscale)):
        assert_mean(draws, np.zeros(5))
        assert_covariance(draws, Kxx)
    for draws in many(jnp.full(3000, lengthscale), q=Q):
        assert_mean(draws, A.T @ LOC[:, 0])
        assert_covariance(draws, Kxx - A.T @ A + root @ root.T)


def test_draws_of_each_output_take_the_scale_of_its_kernel():
    """An output whose variance is 1e-8 of its neighbour's is drawn as precisely."""
    kernel = kernels.PerOutput(
        kernels.SquaredExponential(np.float32([1e4, 1e-4]), np.float32([[2.0], [2.0]]))
    )

    def two(key):
        with handlers.seed(rng_seed=key), handlers.substitute(data={"f.v": jnp.zeros((12, 2))}):
            return dgp.gp("f", kernel, Z, out=2).sample(X, joint=True)

    draws = np.asarray(jax.jit(jax.vmap(two))(random.split(KEY, 100)))
    assert (draws.std(axis=(0, 1)) < [0.3, 3e-5]).all()  # 0.003 of the prior's


def test_parts_of_a_sum_of_kernels_have_the_moments_of_dense_algebra():
    """Of f1, given q of f1 + f2 at Z. The means of all parts add up to the mean of the sum."""
    one, two = kernels.SquaredExponential(1.0, 2.0), kernels.SquaredExponential(0.5, 0.5)

    def layer():
        site = guide_site("f.v", Handover(Q), Q.loc)
        with handlers.seed(rng_seed=KEY), handlers.replay(trace={"f.v": site}):
            return dgp.gp("f", one + two, Z)

    @jax.jit
    def moments():
        f = layer()
        part = f.part("one", one)(X)
        return part.mean, part.var, f.part("two", two)(X).mean, f(X).mean, f.jitter

    mean, var, rest, whole, jitter = moments()
    K = np.asarray((one + two)(Z, Z), np.float64) + float(jitter) * np.eye(len(Z))
    A = np.linalg.solve(np.linalg.cholesky(K), np.asarray(one(Z, X), np.float64))
    wanted = 1.0 - (A**2).sum(axis=0) + ((TRIL[0].T @ A) ** 2).sum(axis=0)
    np.testing.assert_allclose(mean[:, 0], (A.T @ LOC)[:, 0], atol=1e-3)
    np.testing.assert_allclose(var[:, 0], wanted, atol=1e-3)
    np.testing.assert_allclose(mean + rest, whole, atol=1e-3)
    same = jax.jit(lambda s: layer().part("same", kernels.SquaredExponential(s, 2.0))(X).mean)
    np.testing.assert_allclose(same(1.0), mean, atol=1e-5)
    for other in (kernels.SquaredExponential(1.0, 1.0), kernels.Matern32(1.0, 2.0)):
        wrong = r"part\('no'\): kernel is .* wanted a term of the layer"
        with pytest.raises(ValueError, match=wrong):
            jax.eval_shape(lambda other=other: layer().part("no", other)(X).mean)

    def of_each_output():
        per_output = kernels.PerOutput(kernels.Matern32(np.ones(2), np.ones((2, 1))))
        with handlers.seed(rng_seed=KEY):
            f = dgp.gp("f", per_output + one, Z, out=2)
        return f.part("own", per_output)(X).mean, f.part("all", one)(X).mean

    assert [a.shape for a in jax.eval_shape(of_each_output)] == [(5, 2)] * 2
