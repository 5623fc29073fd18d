"""`GlobalInducing`: q(v) of later layers, its bound, starts and errors."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import SVI, TraceMeanField_ELBO
from scipy import stats
from support.helpers import KEY, bound, exact_evidence, regression, spread, start, two_layer_params

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.linalg import default_jitter
from dgp_ppl.models import deep_gp

PSEUDO = np.linspace(-1.5, 1.5, 4)[:, None]
Z = 2 * (spread(5),)


def coupled_params(precision=(0.5, 2.0, 1.0, 4.0)):
    """Return params of two layers and the guide, none at its initial value."""
    params = {n: a for n, a in two_layer_params().items() if not n.startswith("l2.v.")}
    target = np.random.default_rng(2).standard_normal((4, 1))
    guide = {"pseudo_inputs": PSEUDO, "l2.v.target": target}
    guide["l2.v.precision"] = np.broadcast_to(np.reshape(precision, (-1, 1)), (4, 1))
    return params | {n: jnp.asarray(a, float) for n, a in guide.items()}


def kernel(params, l, a, b):
    p = {n[3:]: np.asarray(v, float) for n, v in params.items() if n.startswith(f"l{l}.")}
    square = ((a[:, None] - b[None]) / p["lengthscale"]) ** 2
    return p["variance"] * np.exp(-0.5 * square.sum(axis=-1))


@pytest.mark.usefixtures("x64")
def test_the_second_layer_follows_the_first():
    """By dense algebra: the first layer's draw maps the pseudo-inputs to the second's inputs."""
    params = coupled_params()
    guide = handlers.seed(dgp.GlobalInducing(deep_gp, PSEUDO), KEY)
    trace = handlers.trace(handlers.substitute(guide, params)).get_trace(regression()[0], z=Z)
    v1, posterior = np.asarray(trace["l1.v"]["value"]), trace["l2.v"]["fn"]
    z = np.asarray(spread(5))

    def project(l, h):
        K = kernel(params, l, z, z)
        L = np.linalg.cholesky(K + default_jitter(np.float64) * K[0, 0] * np.eye(5))
        return np.linalg.solve(L, kernel(params, l, z, h))

    h = PSEUDO + project(1, PSEUDO).T @ v1  # identity mean, no noise
    A, lam = project(2, h), np.asarray(params["l2.v.precision"])[:, 0]
    cov = np.linalg.inv(np.eye(5) + (A * lam) @ A.T)
    mean = cov @ (A * lam) @ np.asarray(params["l2.v.target"])
    np.testing.assert_allclose(posterior.loc, mean, rtol=1e-6, atol=1e-9)
    root = np.asarray(posterior.scale_tril[0])
    np.testing.assert_allclose(root @ root.T, cov, rtol=1e-6, atol=1e-9)
    kl = 0.5 * (np.trace(cov) + (mean**2).sum() - 5 - np.linalg.slogdet(cov)[1])
    np.testing.assert_allclose(posterior.standard_kl(), kl, rtol=1e-8)
    value = np.random.default_rng(3).standard_normal((5, 1))
    density = stats.multivariate_normal(mean[:, 0], cov).logpdf(value[:, 0])
    np.testing.assert_allclose(posterior.log_prob(jnp.asarray(value)), density, rtol=1e-8)
    of_first, of_second = (s["fn"].to_white(s["value"]) for s in map(trace.get, ("l1.v", "l2.v")))
    assert np.abs(of_first - of_second).min() > 1e-3  # each layer has its own noise


@pytest.mark.usefixtures("x64")
def test_the_mean_of_bounds_is_below_the_evidence_where_that_is_known():
    """The first layer is fixed at the identity, so the model is one GP, with Z = X.

    If the second layer's pseudo-likelihood equals the likelihood, q is the exact posterior.
    """
    x, y = regression(rows=5)
    params = coupled_params() | {
        "l1.variance": 1e-16, "noise": 0.3, "l2.variance": 1.5, "l2.lengthscale": jnp.full(1, 0.8),
        "l1.v.loc": jnp.zeros((5, 1)), "l1.v.scale_tril": jnp.eye(5)[None],
        "pseudo_inputs": x, "l2.z": x, "l2.v.target": y[:, None],
        "l2.v.precision": jnp.full((5, 1), 0.3**-2),
    }  # fmt: skip
    guide = dgp.GlobalInducing(deep_gp, x)
    value = bound(deep_gp, guide, params, x, y, z=(spread(5), x))
    assert value == pytest.approx(exact_evidence(x, y), abs=1e-5)
    worse = params | {"l2.v.precision": jnp.full((5, 1), 2.0)}
    assert bound(deep_gp, guide, worse, x, y, z=(spread(5), x)) < value - 0.1


@pytest.mark.slow
def test_starting_from_a_mean_field_fit():
    """`start_from` finds a posterior whose bound is almost as high as the fit's."""
    x, y = regression(rows=60)
    z, mean_field = (x[:8], x[:8]), dgp.MeanField(deep_gp)
    key = random.key(3)
    first = dgp.fit(key, deep_gp, mean_field, x, y, z=z, steps=400, progress=False)
    guide = dgp.GlobalInducing(deep_gp, x[:8])
    begin = guide.start_from(key, mean_field, first.params, x, z=z)
    keys = random.split(KEY, 200)
    before = bound(deep_gp, mean_field, first.params, x, y, keys=keys, z=z)
    after = bound(deep_gp, guide, begin, x, y, keys=keys, z=z)
    assert after.mean() > before.mean() - 6  # 0.1 per row
    cold = start(deep_gp, guide, x, y, z=z)
    assert set(begin) == set(cold)
    assert after.mean() > bound(deep_gp, guide, cold, x, y, z=z) + 20
    result = dgp.fit(key, deep_gp, guide, x, y, z=z, start=begin, steps=50, progress=False)
    assert np.isfinite(result.losses).all()


def test_errors():
    x, y = regression()
    for message, pseudo_inputs, options in (
        (r"pseudo_inputs has shape \(3,\), wanted \[R, D\]", np.zeros(3), {}),
        ("precision is 0.0, wanted a positive number", PSEUDO, {"precision": 0.0}),
        ("hidden_scale is -1.0", PSEUDO, {"hidden_scale": -1.0}),
        (r"shape \(4, 2\).*first argument.*shape \(20, 1\)", np.zeros((4, 2)), {}),
    ):
        with pytest.raises(ValueError, match=message):
            start(deep_gp, dgp.GlobalInducing(deep_gp, pseudo_inputs, **options), x, y, z=Z)


def test_its_own_run_leaves_the_models_start_alone():
    """Params that depend on the data start at values from all rows, also if y is NumPy's."""

    def model(x, y=None):
        level = numpyro.param("level", jnp.mean(x))
        z = numpyro.param("z", x[:5])
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), z)
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + level, 0.3)), obs=y)

    x, y = regression(rows=30)
    svi = SVI(model, dgp.GlobalInducing(model, spread(4)), optax.adam(0.1), TraceMeanField_ELBO())
    params = svi.get_params(svi.init(KEY, x, y=np.asarray(y)))
    np.testing.assert_allclose(params["level"], x.mean(), rtol=1e-6)
    np.testing.assert_array_equal(params["z"], x[:5])
