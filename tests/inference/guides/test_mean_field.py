"""`MeanField`: initial params, draws, quantiles, other latent sites, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats
from support import conjugate
from support.helpers import KEY, assert_covariance, assert_mean, regression, start

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl._partition import Call
from dgp_ppl.criticism._curvature import curvature_lines
from dgp_ppl.models import svgp

Z = np.float32([[-1.0], [0.0], [1.0]])


def model(x, y=None):
    """Two layers, with two outputs and one output."""
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    with dgp.minibatch(x, y) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)


def random_params():
    """Return random params, and the mean and covariance of q(v) by site."""
    rng = np.random.default_rng(0)
    params, truth = {}, {}
    for layer, P in (("l1", 2), ("l2", 1)):
        loc = rng.standard_normal((3, P))
        R = 0.4 * np.tril(rng.standard_normal((P, 3, 3)), -1) + 0.6 * np.eye(3)
        params[f"{layer}.v.scale_tril"] = R
        params[f"{layer}.v.loc"] = loc
        truth[f"{layer}.v"] = loc, R @ R.transpose(0, 2, 1)
    return {n: jnp.asarray(a, float) for n, a in params.items()}, truth


def test_params_and_where_they_start():
    """The hidden layer starts nearly deterministic, and the last one at the prior."""
    for covariance, scales in {
        "full": {"l1.v.scale_tril": (2, 3, 3), "l2.v.scale_tril": (1, 3, 3)},
        "diagonal": {"l1.v.scale": (3, 2), "l2.v.scale": (3, 1)},
    }.items():
        guide = dgp.MeanField(model, covariance=covariance, hidden_scale=1e-3)
        params = start(model, guide, *regression(rows=5))
        shapes = {n: a.shape for n, a in params.items()}
        assert shapes == {"l1.v.loc": (3, 2), "l2.v.loc": (3, 1)} | scales
        assert all((params[f"{layer}.v.loc"] == 0).all() for layer in ("l1", "l2"))
        for layer, sd in (("l1", 1e-3), ("l2", 1.0)):
            scale = next(a for n, a in params.items() if n.startswith(f"{layer}.v.scale"))
            unit = np.ones_like(scale) if covariance == "diagonal" else np.eye(3)
            np.testing.assert_allclose(scale, sd * np.broadcast_to(unit, scale.shape), rtol=1e-5)


def test_draws_have_the_moments_of_their_params_and_sites_are_independent():
    params, truth = random_params()
    guide = dgp.MeanField(model)
    guide.setup(jnp.zeros((4, 1)))
    draws = jax.jit(lambda p: guide.sample_posterior(KEY, p, sample_shape=(4000,)))(params)
    (m1, S1), (m2, S2) = truth["l1.v"], truth["l2.v"]
    joined = np.concatenate([np.swapaxes(draws[n], 1, 2).reshape(4000, -1) for n in truth], axis=1)
    cov = np.zeros((9, 9))
    for i, block in enumerate([*S1, *S2]):
        cov[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] = block
    assert_mean(joined, np.concatenate([m1.T.ravel(), m2.ravel()]))
    assert_covariance(joined, cov)


def test_quantiles_of_layers_and_hyperparameters():
    """Where half the draws lie below is the median, and 5 % and 90 % of them below the others."""
    lifted = handlers.lift(svgp, {"noise": dist.LogNormal(-1, 1)})
    guide, levels = dgp.MeanField(lifted), np.array([0.05, 0.5, 0.9])
    x, y = regression(rows=12)
    params = start(lifted, guide, x, y, z=Z)
    params |= {"l1.v.loc": jnp.array([[0.3], [-1.0], [2.0]]), "noise_auto_loc": jnp.array(-0.7)}
    sample = jax.jit(lambda p: guide.sample_posterior(KEY, p, x, z=Z, sample_shape=(4000,)))
    draws = sample(params)
    quantiles = guide.quantiles(params, levels)
    for name in ("l1.v", "noise"):
        below = np.mean(np.asarray(draws[name])[:, None] < quantiles[name], axis=0)
        error = np.sqrt(levels * (1 - levels) / 4000)
        assert (abs(below.T - levels) < 4.5 * error).all()
        np.testing.assert_array_equal(guide.median(params)[name], quantiles[name][1])


def test_unknown_options():
    with pytest.raises(ValueError, match="covariance is 'low rank', wanted 'full', 'diagonal' or"):
        dgp.MeanField(model, covariance="low rank")
    with pytest.raises(ValueError, match=r"hidden_scale is 0\.0, wanted a positive number"):
        dgp.MeanField(model, hidden_scale=0.0)


def test_a_model_without_layers():
    def plain(x):
        numpyro.sample("w", dist.Normal())

    with pytest.raises(ValueError, match=r"no dgp_ppl\.gp layer.*\['w'\]"):
        dgp.MeanField(plain).setup(jnp.zeros(3))


def test_a_coupled_guide_holds_the_exact_posterior():
    """Of a function and an intercept under Gaussian noise: its bound is the log evidence."""

    def with_intercept(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, 3))
        f = dgp.gp("l1", conjugate.KERNEL, jnp.asarray(conjugate.X, float))
        with dgp.minibatch(x, y) as (x, y):
            likelihood = lambda f: dist.Normal(f + b, conjugate.NOISE)  # noqa: E731
            numpyro.sample("y", dgp.observe(f(x), likelihood), obs=y)

    x, y, K = conjugate.X, conjugate.Y, conjugate.gram()
    design = np.column_stack([np.ones(len(y)), np.linalg.cholesky(K)])
    prior = np.diag([1 / 9, *np.ones(len(y))])
    cov = np.linalg.inv(prior + design.T @ design / conjugate.NOISE**2)
    mean = cov @ design.T @ y / conjugate.NOISE**2
    slope = cov[1:, 0] / cov[0, 0]
    given_b = cov[1:, 1:] - cov[0, 0] * np.outer(slope, slope)
    params = conjugate.guide_params(mean[1:], np.linalg.cholesky(given_b)) | {
        "auto_loc": jnp.asarray(mean[:1], float),
        "auto_scale_tril": jnp.sqrt(jnp.asarray(cov[:1, :1], float)),
        "l1.v.slope": jnp.asarray(slope, float)[None, :, None],
    }
    guide = dgp.MeanField(with_intercept, coupled=True)
    bound, error = dgp.evaluate(KEY, with_intercept, guide, params, x, y)
    total = K + conjugate.NOISE**2 * np.eye(len(y)) + 9
    exact = stats.multivariate_normal.logpdf(y, cov=total)
    assert abs(bound - exact) < 0.05
    assert error < 0.02
    for scale, verdict in ((1.0, "good"), (0.5, "bad")):
        narrow = params | {"auto_scale_tril": scale * params["auto_scale_tril"]}
        (line,) = curvature_lines(KEY, guide, narrow, Call((x, y)), ["l1.v"])
        assert (line.verdict, line.value) == (
            verdict,
            f"all: posterior up to {1 / scale:.2g} times q's",
        )
        assert ("5,000 steps" in line.advice) == (scale < 1)
    for values in (guide.distributions, guide.median):
        with pytest.raises(ValueError, match=r"coupled is True, .* sample_posterior"):
            values(params)
    with pytest.raises(TypeError, match=r"transported: guide is coupled, .* without coupled"):
        dgp.transported(with_intercept, guide, params)
    alone = dgp.MeanField(conjugate.conjugate, coupled=True)
    with pytest.raises(ValueError, match=r"coupled is True and .* no joint guide"):
        dgp.evaluate(KEY, conjugate.conjugate, alone, {}, x, y)
