"""A rough process of near rows: exact algebra, unbiased minibatches, predictions, and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax import random
from numpyro import handlers
from scipy import stats
from support.exports import call
from support.helpers import KEY, assert_mean, regression

import dgp_ppl as dgp
from dgp_ppl import kernels, models
from dgp_ppl.core._minibatch import _in_runs
from dgp_ppl.inference import minimize
from dgp_ppl.linalg import default_jitter
from dgp_ppl.models._local import nearest
from dgp_ppl.prediction import _tune_local

ROWS = 20
x64 = pytest.mark.usefixtures("x64")
with jax.enable_x64(True):
    X, Y = regression(rows=ROWS)
    V = random.normal(random.key(3), (ROWS, 1))
    NEAR = dgp.NearRows(X, Y, block=ROWS)
G = kernels.Matern32(0.4, 0.7)  # of Matern12 a distance of 0 loses half of the digits
F = kernels.Matern32(1.5, 0.8)


def noise(x):
    return 0.3 + 0.02 * x[:, 0]


def model(x, y=None, *, near, batch_size=None, noise=noise):
    """A GP with fixed hyperparameters, inducing inputs at all rows, and a rough part."""
    f = dgp.gp("f", F, X)
    g = dgp.local("g", near, lambda name, dim: G)
    with dgp.minibatch(x, y, batch_size=batch_size, near=near) as (x, y):
        numpyro.sample("y", g.observe(f, x, y, noise), obs=y)


def gram(kernel, a, b=X):
    with jax.enable_x64(True):
        return np.asarray(kernel(a, b))


@x64
def test_rows_that_repeat_have_the_neighbours_of_their_own_search():
    x = jnp.concatenate([X[:10] + 0.1, jnp.broadcast_to(X[9] + 0.1, (12, 1)), X[:1]])
    index = jax.jit(lambda x: nearest(G, X, x, 4))(x)
    np.testing.assert_array_equal(index, np.argsort(-gram(G, x), axis=1, stable=True)[:, :4])


def terms(near, params=None, of=lambda fn: fn.log_prob(Y)):
    """Return the terms of the rows in the model, or under a guide with params."""

    def run():
        program = handlers.seed(model, KEY)
        if params is None:
            program = handlers.substitute(program, {"f.v": V})
        else:
            guide = dgp.MeanField(model)
            guide.setup(X, Y, near=near)
            drawn = handlers.trace(handlers.substitute(handlers.seed(guide, KEY), params))
            program = handlers.replay(program, drawn.get_trace(X, Y, near=near))
        site = handlers.trace(program).get_trace(X, Y, near=near)["y"]
        return of(site["fn"])

    return np.asarray(jax.jit(run)(), np.float64)


L = np.linalg.cholesky(gram(F, X) + 1.5 * default_jitter(np.float64) * np.eye(ROWS))
A = np.linalg.solve(L, gram(F, X))
MEAN = A.T @ np.asarray(V[:, 0])  # of f at the rows, given v
REST = gram(F, X) - A.T @ A  # its covariance, which the jitter makes
SD = noise(np.asarray(X))
K = gram(G, X) + np.diag(SD**2)
KNOWN = K + REST  # of y, given v


@x64
def test_one_block_is_the_dense_density():
    wanted = stats.multivariate_normal(MEAN, KNOWN).logpdf(Y)
    np.testing.assert_allclose(terms(NEAR).sum(), wanted, rtol=1e-8)


@x64
def test_rows_are_left_out_as_by_brute_force():
    found = terms(NEAR, of=lambda fn: fn.left_out(Y).log_prob(Y))
    for i in (0, 7):
        rest = np.arange(ROWS) != i
        a = np.linalg.solve(KNOWN[np.ix_(rest, rest)], KNOWN[rest, i])
        mean = MEAN[i] + a @ (np.asarray(Y) - MEAN)[rest]
        wanted = stats.norm(mean, np.sqrt(KNOWN[i, i] - a @ KNOWN[rest, i])).logpdf(Y[i])
        np.testing.assert_allclose(found[i], wanted, atol=1e-8)


@x64
def test_draws_have_no_log_weights():
    """The log-likelihood is of rows given all others, of which no sum is the joint density."""
    guide = dgp.MeanField(model)
    sites = handlers.trace(handlers.seed(guide, KEY)).get_trace(X, Y, near=NEAR)
    params = {n: s["value"] for n, s in sites.items() if s["type"] == "param"} | {"g.df": 9.0}
    sizes = {"num_samples": 25, "num_prior_samples": 0, "test": (X[:5] + 0.1, Y[:5])}
    tree = dgp.to_inferencedata(KEY, model, guide, params, X, Y, near=NEAR, **sizes)
    assert tree["predictions"].y.shape == (1, 25, 5)  # whose targets are no near rows
    assert dgp.criticism.weights_khat(tree) is None
    with pytest.raises(ValueError, match="rows are independent given a draw"):
        dgp.criticism.loo(tree, correct=True)


@x64
def test_the_bound_takes_the_joint_covariance_of_f():
    """E log N(y; f, K) = log N(y; E f, K) - tr(K⁻¹ cov f) / 2, and lies below the evidence."""
    root = 0.2 * np.tril(np.asarray(random.normal(KEY, (ROWS, ROWS)))) + 0.3 * np.eye(ROWS)
    params = {"f.v.loc": V, "f.v.scale_tril": jnp.asarray(root)[None]}
    cov = A.T @ root @ root.T @ A + REST
    wanted = stats.multivariate_normal(MEAN, K).logpdf(Y) - 0.5 * np.trace(np.linalg.solve(K, cov))
    found = terms(NEAR, params).sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    loc = np.asarray(V[:, 0])
    kl = 0.5 * (np.sum(root**2) + loc @ loc - ROWS) - np.log(np.abs(np.diag(root))).sum()
    assert found - kl < stats.multivariate_normal(np.zeros(ROWS), K + gram(F, X)).logpdf(Y)


@x64
def test_without_variance_g_changes_nothing(monkeypatch):
    monkeypatch.setitem(globals(), "G", kernels.Matern32(0.0, 0.7))
    root = 0.3 * np.eye(ROWS)
    found = terms(NEAR, {"f.v.loc": V, "f.v.scale_tril": jnp.asarray(root)[None]})
    spread = np.diag(A.T @ root @ root.T @ A + REST)
    wanted = stats.norm(MEAN, SD).logpdf(Y) - 0.5 * spread / SD**2
    np.testing.assert_allclose(found, wanted, atol=1e-8)


@x64
def test_rows_that_repeat_keep_a_least_noise():
    """At no noise: what rounding needs, as for inducing inputs, so that no more is added."""
    x, y = jnp.repeat(X[:4], 2, axis=0), jnp.repeat(Y[:4], 2)
    program = handlers.substitute(handlers.seed(model, KEY), {"f.v": V})
    site = handlers.trace(program).get_trace(x, y, near=dgp.NearRows(x, y), noise=jnp.zeros(1))["y"]
    noisy = site["fn"].noisy[0]
    least = 0.4 * default_jitter(np.float64)
    found = noisy.diagonal() - noisy[::2, 1::2].diagonal().repeat(2)
    np.testing.assert_allclose(found, least, rtol=1e-3)
    assert np.isfinite(site["fn"].log_prob(y)).all()


@x64
def test_blocks_are_independent_and_terms_have_the_order_of_the_rows():
    near = dgp.NearRows(X, Y, block=8)  # the last block has four rows
    found = terms(near)
    for block in np.split(near.order, [8, 16]):
        wanted = stats.multivariate_normal(MEAN[block], KNOWN[np.ix_(block, block)])
        np.testing.assert_allclose(found[block].sum(), wanted.logpdf(Y[block]), rtol=1e-8)


@x64
def test_draws_have_the_covariance_of_the_block():
    site = handlers.trace(handlers.substitute(handlers.seed(model, KEY), {"f.v": V})).get_trace(
        X, Y, near=NEAR
    )["y"]
    draws = np.asarray(site["fn"].sample(KEY, (20_000,)), np.float64) - MEAN
    assert_mean(draws, 0.0)
    i, j = np.asarray(NEAR.order)[:2]
    assert_mean(draws[:, i] * draws[:, j], K[i, j])


@x64
def test_every_row_is_equally_likely_in_a_minibatch():
    order = np.asarray(dgp.NearRows(X, Y).order)
    draw = lambda k: jnp.zeros(ROWS).at[_in_runs(order, 4)._draw(ROWS, 8, k)].add(1.0)  # noqa: E731
    assert_mean(jax.jit(jax.vmap(draw))(random.split(KEY, 50_000)), 8 / ROWS)


NEW = np.asarray([[-1.3], [0.2], [float(X[3, 0])], [5.0]])


@x64
def test_predictions_are_exact_with_all_rows_as_neighbours():
    """With q(v) = p(v | y): those of a GP whose kernel is the sum of both."""
    near = dgp.NearRows(X, Y, neighbours=ROWS)
    cov = np.linalg.inv(np.eye(ROWS) + L.T @ np.linalg.solve(K, L))
    loc = cov @ L.T @ np.linalg.solve(K, Y)
    params = {"f.v.loc": loc[:, None], "f.v.scale_tril": np.linalg.cholesky(cov)[None]}
    params = {n: jnp.asarray(a) for n, a in params.items()} | {"g.df": jnp.asarray(3.0)}
    p = dgp.predict(KEY, model, dgp.MeanField(model), params, NEW, near=near, num_samples=2)
    k = gram(F, X, NEW) + gram(G, X, NEW)
    a = np.linalg.solve(K + gram(F, X), k)
    np.testing.assert_allclose(p.mean, a.T @ np.asarray(Y), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(p.var, 1.9 + noise(NEW) ** 2 - (a * k).sum(0), rtol=1e-8)
    # Each row given all others is Student t of the Gaussian's variance.
    wanted = stats.t(3.0, p.mean, np.sqrt(p.var / 3))
    np.testing.assert_allclose(p.log_prob(p.mean + 0.5), wanted.logpdf(p.mean + 0.5), atol=1e-6)
    np.testing.assert_allclose(p.quantile(0.99), wanted.ppf(0.99), rtol=1e-5)
    drawn = handlers.trace(handlers.seed(dgp.guided(model, dgp.MeanField(model), params), KEY))
    draws = drawn.get_trace(NEW, near=near)["y"]["fn"].sample(KEY, (20_000,))
    far = 3 * np.sqrt(p.var)
    assert_mean(np.abs(draws - p.mean[None]) > far[None], 2 * wanted.sf(p.mean + far))


@x64
def test_predictions_given_a_draw_are_exact():
    near = dgp.NearRows(X, Y, neighbours=ROWS)
    p = dgp.predict(KEY, model, None, {}, NEW, near=near, posterior_samples={"f.v": V[None]})
    at_new = np.linalg.solve(L, gram(F, X, NEW))
    a = np.linalg.solve(K, gram(G, X, NEW))
    mean = at_new.T @ np.asarray(V[:, 0]) + a.T @ (np.asarray(Y) - MEAN)
    var = 1.5 - (at_new**2).sum(0) + 0.4 - (a * gram(G, X, NEW)).sum(0) + noise(NEW) ** 2
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(p.var, var, rtol=1e-8)
    with pytest.raises(ValueError, match="draws of functions are wanted"):
        p.function_draws(KEY, 2)


@pytest.mark.wrong_types  # rows are hidden from the model to see what it does with them
def test_a_deep_gp_finds_what_inducing_inputs_smooth_away(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 1))
    truth = lambda x: np.sin(2 * x[:, 0]) + 0.5 * np.sign(np.sin(25 * x[:, 0]))  # noqa: E731
    x, y = x.astype(np.float32), truth(x).astype(np.float32)
    z = np.linspace(-2, 2, 6)[:, None]
    guide, kwargs = dgp.MeanField(models.deep_gp), {"z": (z, z), "local": dgp.NearRows(x, y)}
    fit = dgp.fit(
        KEY, models.deep_gp, guide, x, y, steps=150, batch_size=128, progress=False, **kwargs
    )
    new = rng.uniform(-2, 2, (100, 1))
    p = dgp.predict(KEY, models.deep_gp, guide, fit, new, num_samples=10, **kwargs)
    assert np.sqrt(np.mean((p.mean - truth(new)) ** 2)) < 0.25  # .5 without
    assert p.chunk_size == 32  # each row is seen to be alone: all numbers of rows share programs
    dgp.save(tmp_path / "a.dgp", models.deep_gp, guide, fit, **kwargs)
    kept = dgp.load(tmp_path / "a.dgp").predict(KEY, new, num_samples=10)
    np.testing.assert_array_equal(kept.mean, p.mean)
    dgp.export(tmp_path / "a.jaxprogram", p)  # with the rows that it needs
    found = call(tmp_path / "a.jaxprogram", new.astype(np.float32))["mean"]
    np.testing.assert_allclose(found, p.mean[: len(found)], atol=0.02)  # of other passes


def test_tuning_makes_rows_likely_given_their_nearest(monkeypatch):
    """The rough function that it is given has lengthscale 0.3 and variance 1, and f is near 0."""
    x = np.random.default_rng(0).uniform(-2, 2, (300, 2)).astype(np.float32)
    K = gram(kernels.Matern12(1.0, 0.5), x, x) + 0.01 * np.eye(300)
    y = (np.linalg.cholesky(K) @ np.random.default_rng(1).normal(size=300)).astype(np.float32)
    near = dgp.NearRows(x[:200], y[:200])
    guide, kwargs = dgp.MeanField(models.deep_gp), {"z": (x[:5],), "local": near}
    fit = dgp.fit(
        KEY, models.deep_gp, guide, x[:200], y[:200], steps=1, progress=False, noise=0.1, **kwargs
    )
    tuned = dgp.tune_local(KEY, models.deep_gp, guide, fit, **kwargs)
    assert {n for n in tuned if not np.array_equal(tuned[n], fit.params[n])} == {
        "g.variance", "g.lengthscale", "g.short.variance", "g.short.lengthscale", "g.df"
    }  # fmt: skip

    def density(params):
        p = dgp.predict(KEY, models.deep_gp, guide, params, x[200:], **kwargs)
        return p.log_prob(y[200:]).mean()

    true = fit.params | {"g.variance": jnp.ones(()), "g.lengthscale": jnp.full(2, 0.5)}
    assert density(tuned) > max(density(true) - 0.05, density(fit.params) + 0.5)
    with pytest.raises(ValueError, match=r"wanted h\.df: pass"):
        dgp.tune_local(KEY, models.deep_gp, guide, fit, name="h", **kwargs)
    other = kernels.SquaredExponential.learned
    with pytest.raises(ValueError, match="wanted the kernel of local"):
        dgp.tune_local(KEY, models.deep_gp, guide, fit, local_kernel=other, **kwargs)
    with pytest.raises(TypeError, match="0 arguments of the model are NearRows, wanted one"):
        dgp.tune_local(KEY, models.deep_gp, guide, fit, z=(x[:5],))
    with pytest.raises(ValueError, match="is of no local process"):
        dgp.tune_local(
            KEY, lambda x, y=None, *, local, z: models.deep_gp(x, y, z=z), guide, fit, **kwargs
        )

    def at_bound(*args, **options):  # to which float32 rounds the df of heavy tails
        found = minimize(*args, **options)
        found.params["g.df"] = jnp.float32(3.0)
        return found

    monkeypatch.setattr(_tune_local, "minimize", at_bound)
    assert dgp.tune_local(KEY, models.deep_gp, guide, fit, **kwargs)["g.df"] > 3


@x64
def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="NearRows: x and y have shapes"):
        dgp.NearRows(X, Y[:5])
    with pytest.raises(ValueError, match="not finite"):
        dgp.NearRows(X, Y.at[0].set(jnp.nan))
    for near in (dgp.NearRows(X[:9], Y[:9]), dgp.NearRows(X, Y + 1)):
        with pytest.raises(ValueError, match="wanted the NearRows"):
            handlers.seed(model, KEY)(X, Y, near=near)
    data = np.asarray(X), np.asarray(Y)
    site = handlers.trace(handlers.seed(model, KEY)).get_trace(*data, near=NEAR)["y"]
    with pytest.raises(ValueError, match="local: a mask is over y"):
        site["fn"].mask(Y > 0)
    params = {"f.v.loc": V, "f.v.scale_tril": jnp.eye(ROWS)[None], "g.df": 9.0}
    arguments, loss = (KEY, model, dgp.MeanField(model), params, X, Y), dgp.ImportanceWeighted(2)
    with pytest.raises(TypeError, match="wanted over='global'"):
        dgp.evaluate(*arguments, near=NEAR, loss=loss)
    with pytest.raises(ValueError, match="observe is outside of a minibatch of near rows"):
        handlers.seed(lambda: dgp.local("g", NEAR).observe(dgp.gp("f", F, X), X, Y, 0.3), KEY)()
    for bad in (SD, lambda x: jnp.array(0.3)):
        with pytest.raises(ValueError, match=r"noise has shape \(.*, wanted \[\], or a function"):
            handlers.seed(model, KEY)(X, Y, near=NEAR, noise=bad)
    with pytest.raises(TypeError, match="kernel makes a NoneType"):
        dgp.local("g", NEAR, lambda name, dim: None)
    with pytest.raises(
        ValueError,
        match="local is given with out, wanted one output with Gaussian noise: leave out local",
    ):
        handlers.seed(models.deep_gp, KEY)(X, Y, z=(X, X), out=2, local=NEAR)
