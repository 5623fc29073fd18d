"""Deep GPs without inducing inputs, against dense algebra in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats

import dgp_ppl as dgp
from dgp_ppl import models

KEY = jax.random.key(0)


def rows():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (12, 2))
    return x, np.sin(3 * x[:, 0]) + x[:, 1]


def kernel(a, b, lengthscale, variance):
    square = np.square((a[:, None] - b[None]) / lengthscale).sum(axis=-1)
    return variance * np.exp(-0.5 * square)


def draws_of_one():
    """Return values of all latent sites of two layers on 12 rows of two inputs."""
    rng = np.random.default_rng(1)
    return {
        "l1.variance": np.array(0.3),
        "l1.lengthscale": np.array([0.8, 1.2]),
        "l1.v": rng.standard_normal((12, 2)),
        "l2.variance": np.array(1.7),
        "l2.lengthscale": np.array([0.7, 0.9]),
        "noise": np.array(0.05),
    }


def dense(x, y, values, hidden_new, new):
    """Return the log evidence of the last layer, and its mean and variance at hidden values."""
    hidden = hidden_of(x)
    last = [values["l2.lengthscale"], values["l2.variance"]]
    rough = [
        (values[f"{name}.variance"], values[f"{name}.lengthscale"])
        for name in ("g", "g.short") if "g.variance" in values
    ]  # fmt: skip

    def total(h, h_new, a, b):
        r = lambda scale: np.sqrt(np.square((a[:, None] - b) / scale).sum(axis=-1) + 2.2e-16)  # noqa: E731
        return kernel(h, h_new, *last) + sum(v * np.exp(-r(scale)) for v, scale in rough)

    var = last[1] + sum(v for v, _ in rough)
    noise = values["noise"] ** 2 + 1e-8 * var
    K = total(hidden, hidden, x, x) + noise * np.eye(len(x))
    evidence = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2 * np.pi * K)[1])
    k = total(hidden, hidden_new, x, new)
    mean = k.T @ np.linalg.solve(K, y)
    return evidence, mean, var - np.sum(k * np.linalg.solve(K, k), axis=0) + noise


G = {"g.variance": np.array(0.4), "g.lengthscale": np.array([0.5, 0.3])}
G |= {"g.short.variance": np.array(0.1), "g.short.lengthscale": np.array([0.2, 0.1])}
NONE = G | dict.fromkeys(["g.variance", "g.short.variance"], np.array(1e-13))  # 0 has no density


@pytest.mark.parametrize(("rough", "same"), [({}, {}), (G, G), (NONE, {})])
def test_density_and_prediction_equal_dense_algebra(rough, same):
    """Also with a rough process of x, which without variance changes nothing."""
    x, y = rows()
    drawn, wanted, model = draws_of_one() | rough, draws_of_one() | same, models.exact
    model = partial(model, local=True) if rough else model
    with jax.enable_x64(True):
        values = jax.tree.map(jnp.asarray, drawn)
        with handlers.trace() as sites, handlers.substitute(data=values):
            model(jnp.asarray(x), jnp.asarray(y))
        found = float(sites["y"]["fn"].log_prob(jnp.asarray(y)))
        joint = float(log_density(model, (jnp.asarray(x), jnp.asarray(y)), {}, values)[0])
        others = sum(
            float(np.sum(site["fn"].log_prob(site["value"])))
            for name, site in sites.items()
            if site["type"] == "sample" and name != "y"
        )
    # In float32 a prediction would miss by the rounding of the rows.
    draws = {n: np.stack([a, a]) for n, a in drawn.items()}
    p = dgp.predict(KEY, model, None, {}, x, given=(x, y), posterior_samples=draws)
    evidence, mean, var = dense(x, y, wanted, hidden_of(x), x)
    np.testing.assert_allclose(found, evidence, rtol=1e-8)
    np.testing.assert_allclose(joint - others, evidence, rtol=1e-8)
    np.testing.assert_allclose(p.mean, mean, atol=3e-6)
    np.testing.assert_allclose(p.var, var, rtol=1e-4)


def test_log_likelihoods_leave_each_row_out():
    """Of rows that count; others have none. Draws of y are given all others too."""
    (x, y), counts, num = rows(), np.arange(12) < 10, 1000
    draws = {n: a for n, a in draws_of_one().items() if n == "noise"}
    draws |= {f"l1.{n}": draws_of_one()[f"l2.{n}"] for n in ("variance", "lengthscale")}
    draws = {n: np.stack([a] * num) for n, a in draws.items()}
    options = {"posterior_samples": draws, "depth": 1, "counts": counts, "num_samples": num}

    def tree_of(y, scale=None, x=x):
        options["standardizer"] = scale
        with jax.enable_x64(True):
            return dgp.to_inferencedata(KEY, models.exact, None, {}, x, y, **options)

    scale = dgp.Standardizer(np.zeros(x.shape[1]), np.ones(x.shape[1]), y_scale=4.0)
    tree, scaled = tree_of(y), tree_of(4 * y, scale)
    x, y = x[counts], y[counts]
    K = kernel(x, x, draws["l1.lengthscale"][0], 1.7) + (0.05**2 + 1.7e-8) * np.eye(10)
    density = lambda i: stats.multivariate_normal(cov=K[np.ix_(i, i)]).logpdf(y[i])  # noqa: E731
    every = np.arange(10)
    wanted = [density(every) - density(np.delete(every, i)) for i in every]
    found = tree["log_likelihood"]["y"].values[0, 0]
    np.testing.assert_allclose(found, [*wanted, 0, 0], rtol=1e-6)
    precision, drawn = np.linalg.inv(K), tree["posterior_predictive"]["y"].values[0, :, :10]
    mean, sd = y - precision @ y / np.diag(precision), np.diag(precision) ** -0.5
    assert (abs(drawn.mean(axis=0) - mean) < 4 * sd / num**0.5).all()
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=4 / (2 * num) ** 0.5)
    assert tree["prior_predictive"]["y"].values[0, :, :10].std(axis=0).min() > 1  # not given y
    found = scaled["log_likelihood"]["y"].values[0, 0, :10]
    np.testing.assert_allclose(found, np.array(wanted) - np.log(4), rtol=1e-6)  # in units of y


def hidden_of(x):
    values = draws_of_one()
    order = np.lexsort(x.T)
    x, hidden = x[order], np.empty_like(x)
    K = kernel(x, x, values["l1.lengthscale"], values["l1.variance"])
    hidden[order] = x + np.linalg.cholesky(K + 0.3 * 2.3e-12 * np.eye(len(x))) @ values["l1.v"]
    return hidden


def test_the_order_of_the_given_rows_does_not_matter():
    x, y = rows()
    draws = {n: np.stack([a, a]) for n, a in draws_of_one().items()}
    options = {"posterior_samples": draws, "num_samples": 2}
    at = lambda *given: dgp.predict(KEY, models.exact, None, {}, x + 0.1, given=given, **options)  # noqa: E731
    np.testing.assert_allclose(at(x[::-1], y[::-1]).f.mean, at(x, y).f.mean, atol=1e-4)


def test_rows_that_do_not_count_change_nothing():
    """Neither the density of the others, nor predictions; whatever they are."""
    x, y = rows()
    spare, counts = 10 + 3 * np.arange(8.0).reshape(4, 2), np.arange(16) < 12
    longer, values = np.concatenate([spare, x])[::-1], np.concatenate([np.full(4, np.nan), y])[::-1]
    draws, found = {n: np.stack([a, a]) for n, a in draws_of_one().items()}, []
    for own, given, options in ((x, (x, y), {}), (longer, (longer, values), {"counts": counts})):
        size = (2, len(own) - 12, 2)
        draws["l1.v"] = np.concatenate([draws["l1.v"], np.ones(size)], axis=1)
        with jax.enable_x64(True), handlers.trace() as sites:
            one = {n: jnp.asarray(a[0]) for n, a in draws.items()}
            with handlers.substitute(data=one):
                models.exact(*map(jnp.asarray, given), **options)
            evidence = sites["y"]["fn"].log_prob(jnp.asarray(given[1]))
        p = dgp.predict(
            KEY, models.exact, None, {}, x + 0.1, given=given, posterior_samples=draws, **options
        )
        found.append((float(evidence), np.asarray(p.f.mean), np.asarray(p.f.var)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(ValueError, match=r"counts has shape \(3,\).*wanted \(12,\) of bool"):
        models.exact(x, y, counts=np.ones(3, bool))


@pytest.mark.parametrize("noise", [None, 0])
def test_without_noise_the_last_layer_interpolates(noise):
    x, y = rows()
    values = {"l1.variance": 1.0, "l1.lengthscale": np.ones(x.shape[1])}
    with jax.enable_x64(True):
        draws = {n: np.asarray(a)[None, None] for n, a in values.items()}
        p = dgp.predict(
            KEY, models.exact, None, {}, x, given=(x, y), posterior_samples=dgp.Chains(draws),
            depth=1, noise=noise,
        )  # fmt: skip
        np.testing.assert_allclose(p.mean, y, atol=1e-3)


def test_hidden_layers_are_one_function_at_the_rows_and_at_others():
    """Under a guide that hands over q(v), too, a pass is of one draw of v."""
    x, y = rows()
    model = partial(models.exact, priors=False, noise=0.05)
    guide = dgp.MeanField(model)
    with jax.enable_x64(True):
        x, y = jnp.asarray(x), jnp.asarray(y)
        params = dgp.fit(KEY, model, guide, x, y, steps=1, progress=False).params
        params |= {"l1.v.scale_tril": jnp.tile(jnp.eye(12), (2, 1, 1)), "l1.variance": 1.0}
        p = dgp.predict(KEY, model, guide, params, x, given=(x, y), num_samples=50)
        assert np.sqrt(np.mean(np.square(p.f.mean - y))) < 0.15
