"""Importance-weighted and predictive objectives against quadrature and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from scipy import stats
from scipy.special import logsumexp
from support.helpers import (
    KEY,
    assert_mean,
    collapsed_bound,
    hidden_nodes,
    layer_moments,
    no_guide,
    regression,
    spread,
    squared_exponential,
    start,
    two_layer_params,
)
from support.objectives import LOG_WEIGHTS, NODES, NOISE, Z, kl, kls, log_mean_exp_of_pairs, values
from support.tiny import TINY, Q, X, Y, given, hidden, tiny, tiny_evidence

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.guides._decoupled import Decoupled
from dgp_ppl.inference.guides.diffusion._guide import Diffusion
from dgp_ppl.inference.guides.implicit._guide import Implicit
from dgp_ppl.inference.svi._objectives import ImportanceWeighted, PredictiveELBO
from dgp_ppl.models import deep_gp, optimal_inducing, svgp


def tiny_bounds():
    """Return the local bound of `tiny` for K = 1, 2 and infinity, by quadrature."""
    m2, r2 = Q[2]
    bounds = np.zeros(3)
    for node, weight in zip(NODES, np.exp(LOG_WEIGHTS), strict=True):
        h = hidden(Q[1][0] + Q[1][1] * node, NODES)
        mean, var = given(m2, h)
        var = var + given(r2, h)[0] ** 2
        terms = stats.norm(mean, NOISE).logpdf(Y) - var / (2 * NOISE**2)
        one = np.exp(LOG_WEIGHTS) @ terms
        two = log_mean_exp_of_pairs(terms, LOG_WEIGHTS)
        limit = logsumexp(terms + LOG_WEIGHTS[:, None], axis=0)
        bounds += weight * np.array([one.sum(), two.sum(), limit.sum()])
    return bounds - sum(kl(np.array([m]), np.array([[r]])) for m, r in Q.values())


def test_local_particles_share_v_and_not_the_noise():
    """The bound for K = 2 agrees with quadrature."""
    one, two, limit = tiny_bounds()
    assert one < two - 0.5 < two < limit < tiny_evidence()
    guide, data = dgp.MeanField(tiny), (jnp.float32(X), jnp.float32(Y))
    assert_mean(values(ImportanceWeighted(2), tiny, guide, TINY, *data, num=8000), two)


def test_local_minibatches_are_unbiased():
    """They are biased if particles have separate minibatches."""
    guide = dgp.MeanField(tiny)
    x, y = jnp.float32(X), jnp.float32(Y)
    objective = ImportanceWeighted(3)
    full = values(objective, tiny, guide, TINY, x, y, num=8000)
    key = random.key(1)
    batches = values(objective, tiny, guide, TINY, x, y, num=8000, key=key, batch_size=1)
    assert_mean(batches - full, 0.0)


def test_the_models_noise_is_not_the_guides():
    def program(is_model):
        noise = random.normal(numpyro.prng_key()) if is_model else None
        w = numpyro.sample("w", dist.Normal(0, 1))
        if is_model:
            with numpyro.plate("data", 1):
                numpyro.sample("y", dist.Normal(w - noise, 1), obs=jnp.zeros(1))

    model, guide = lambda: program(True), lambda: program(False)
    loss = jax.jit(jax.vmap(lambda k: ImportanceWeighted(1, "global").loss(k, {}, model, guide)))
    variance = 2.0  # of w - noise, if they are independent
    assert_mean(-loss(random.split(KEY, 2000)), -0.5 * (variance + np.log(2 * np.pi)))


@pytest.mark.slow
def test_with_one_particle_it_is_the_elbo():
    """For two layers both agree in expectation, also with the cost of diffusion paths."""
    x, y = regression(rows=8)
    params = two_layer_params()
    for guide in (dgp.MeanField(deep_gp), Diffusion(deep_gp, steps=2)):
        guide.setup(x, y, z=Z)
        elbo = values(TraceMeanField_ELBO(), deep_gp, guide, params, x, y, z=Z, num=4000)
        ours = values(ImportanceWeighted(1), deep_gp, guide, params, x, y, z=Z, num=4000)
        assert_mean(np.asarray(ours) - np.asarray(elbo), 0.0)


X2, Y2 = np.array([[-0.5], [0.6]]), np.array([0.8, -0.7])
Z2 = np.array([[a, b] for a in (-1.0, 0.0, 1.0) for b in (-1.2, 0.0, 1.2)])


def with_latent(x, y=None):
    """One layer, whose inputs are x and a latent value per row."""
    f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), jnp.asarray(Z2))
    with dgp.minibatch(x, y) as (x, y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        observed = dgp.observe(f(jnp.column_stack([x, w])), lambda f: dist.Normal(f, NOISE))
        numpyro.sample("y", observed, obs=y)


def test_latent_inputs_have_weights(x64):
    """The bound of two particles agrees with quadrature; q(w) is not p(w)."""
    rng = np.random.default_rng(0)
    m, R = 0.3 * rng.standard_normal((9, 1)), 0.5 * np.eye(9)
    loc, sd = np.array([0.3, -0.4]), np.array([0.7, 0.8])
    q = {"l1.v.loc": m, "l1.v.scale_tril": R[None], "w_auto_loc": loc, "w_auto_scale": sd}
    params = jax.tree.map(jnp.asarray, q)
    guide = dgp.MeanField(with_latent)
    start(with_latent, guide, jnp.asarray(X2), jnp.asarray(Y2))

    L = np.linalg.cholesky(squared_exponential(Z2, Z2))
    w = loc + sd * NODES[:, None]  # [S, N]
    rows = np.stack([np.broadcast_to(X2[:, 0], w.shape), w], axis=-1).reshape(-1, 2)
    A = np.linalg.solve(L, squared_exponential(Z2, rows))
    var = 1.5 - (A**2).sum(axis=0) + ((R.T @ A) ** 2).sum(axis=0)
    mean, var = (a.reshape(w.shape) for a in (A.T @ m[:, 0], var))
    terms = stats.norm(mean, NOISE).logpdf(Y2) - var / (2 * NOISE**2)
    terms = terms + stats.norm(0, 1).logpdf(w) - stats.norm(loc, sd).logpdf(w)
    expected = log_mean_exp_of_pairs(terms, LOG_WEIGHTS).sum() - kl(m, R)
    data = jnp.asarray(X2), jnp.asarray(Y2)
    draws = values(ImportanceWeighted(2), with_latent, guide, params, *data, num=6000)
    assert_mean(draws, expected)


@pytest.mark.slow
def test_global_weights_at_the_posterior_are_all_the_collapsed_bound(x64):
    """At the optimal q(v) all weights equal SGPR's bound; at others the bound is lower."""
    x, y = regression(rows=12)
    z = spread(4)
    given = {"l1.z": z, "l1.variance": 1.5, "l1.lengthscale": jnp.array([0.8]), "noise": NOISE}
    best = jax.jit(lambda: optimal_inducing(given, x, y))()
    collapsed, guide = collapsed_bound(x, y, z), dgp.MeanField(svgp)

    def run(K, params, num):
        objective = ImportanceWeighted(K, "global")
        return np.asarray(values(objective, svgp, guide, params, x, y, z=z, num=num))

    np.testing.assert_allclose(run(3, best, 5), collapsed, rtol=1e-7)
    other = best | {"l1.v.scale_tril": 2 * best["l1.v.scale_tril"]}
    elbo = float(values(TraceMeanField_ELBO(), svgp, guide, other, x, y, z=z))
    assert_mean(run(1, other, 4000), elbo)
    means = [run(K, other, 4000).mean() for K in (2, 16)]
    assert elbo + 0.1 < means[0] < means[1] < collapsed


def test_guides_that_make_no_weights():
    x, y = regression(rows=6)

    def trace(objective, guide):
        guide.setup(x, y, z=Z)
        one = lambda key: objective.loss(key, {}, deep_gp, guide, x, y, z=Z)  # noqa: E731
        return jax.eval_shape(one, KEY)

    with pytest.raises(TypeError, match=r"q of 'l1\.v' has a mean with separate inducing inputs"):
        trace(ImportanceWeighted(2), Decoupled(deep_gp, spread(7)))
    diffusion = Diffusion(deep_gp, steps=2)
    with pytest.raises(TypeError, match=r"make no importance weights.*guide\.drawn\(\)"):
        trace(ImportanceWeighted(2, "global"), diffusion)
    assert trace(ImportanceWeighted(2, "global"), diffusion.drawn()).shape == ()
    for objective in (ImportanceWeighted(2), PredictiveELBO()):
        with pytest.raises(NotImplementedError, match="no density"):
            trace(objective, Implicit(deep_gp))


def test_errors():
    x, y = regression(rows=6)
    guide, params = dgp.MeanField(deep_gp), two_layer_params()

    def run(objective, model=deep_gp, guide=guide, **kwargs):
        values(objective, model, guide, params, x, y, z=Z, **kwargs)

    def plain(x, y, *, z):
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), z[0])
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dist.Normal(f.sample(x)[:, 0], NOISE), obs=y)

    def scaled(x, y, *, z):
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), z[0]).sample(x)
        entries = numpyro.plate("entries", 2, dim=-1), handlers.scale(scale=np.ones((6, 2)))
        with numpyro.plate("data", 6, dim=-2), entries[0], entries[1]:
            numpyro.sample("y", dist.Normal(f, NOISE), obs=jnp.stack([y, y], axis=1))

    weighted = ImportanceWeighted(2)
    for message, call in (
        ("over is 'rows', wanted 'local' or 'global'", lambda: ImportanceWeighted(2, "rows")),
        ("num_particles is 0, wanted at least 1", lambda: ImportanceWeighted(0)),
        ("beta is -1, wanted", lambda: PredictiveELBO(-1)),
        *(("elbo_share is .*, wanted a number from 0", lambda s=s: PredictiveELBO(elbo_share=s))
          for s in (-0.1, 1.5, "half")),
        (r"in a plate 'rows'; its plates are \['data'\]",
         lambda: run(ImportanceWeighted(2, plate="rows"))),
        (r"lacks the model's latent sites \['l1\.v', 'l2\.v'",
         lambda: run(weighted, guide=no_guide)),
        (r"sites \['y'\], wanted one from observe",
         lambda: run(PredictiveELBO(), plain, dgp.MeanField(plain))),
        (r"site 'y' is scaled by an array of shape \(6, 2\), wanted one factor for each row",
         lambda: run(weighted, scaled, dgp.MeanField(scaled))),
        (r"takes 2 of 6 rows.*noisy weights is no bound",
         lambda: run(ImportanceWeighted(4, "global"), batch_size=2)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


def test_predictive_of_one_layer_is_its_closed_form(x64):
    """Its value is sum log N(y; mu, s² + v) - beta KL for any K; and a share of the bound.

    The KL's weight is shared too, and minibatches are unbiased.
    """
    x, y = regression(rows=9)
    q = {n: a for n, a in two_layer_params().items() if not n.startswith("l2")}
    mean, var = layer_moments(q, 1, np.asarray(x))
    log_p = stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(y).sum()
    expected = (stats.norm(mean, NOISE).logpdf(y) - var / (2 * NOISE**2)).sum()
    penalty = kl(np.asarray(q["l1.v.loc"]), np.asarray(q["l1.v.scale_tril"][0]))
    guide = dgp.MeanField(svgp)
    for beta, K, share in ((1.0, 1, 0.0), (0.3, 4, 0.0), (0.5, 2, 0.3), (0.5, 2, 1.0)):
        value = values(PredictiveELBO(beta, K, elbo_share=share), svgp, guide, q, x, y, z=Z[0])
        wanted = share * (expected - penalty) + (1 - share) * (log_p - beta * penalty)
        assert value == pytest.approx(wanted, rel=1e-9)
    batches = values(PredictiveELBO(0.3, 2), svgp, guide, q, x, y, z=Z[0], batch_size=2, num=3000)
    assert_mean(batches, log_p - 0.3 * penalty)


def test_rows_count_as_often_as_their_weights_say(x64):
    """`handlers.scale` multiplies the logarithm of a row's mean, in minibatches too."""

    def weighted(x, y=None, w=None, *, z, batch_size=None):
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), z)
        with dgp.minibatch(x, y, w, batch_size=batch_size) as (x, y, w), handlers.scale(scale=w):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, NOISE)), obs=y)

    x, y = regression(rows=9)
    w = np.arange(1, 10) / 4
    q = {n: a for n, a in two_layer_params().items() if n.startswith("l1.v")}
    repeated = [np.repeat(a, [1, 2, 3] * 3, axis=0) for a in (x, y)]
    run = lambda loss, *data, **kwargs: values(  # noqa: E731
        loss, weighted, dgp.MeanField(weighted), q, *data, z=Z[0], **kwargs
    )
    for loss in (ImportanceWeighted(2), PredictiveELBO(0.5, 2), PredictiveELBO(elbo_share=0.3)):
        counted = run(loss, x, y, np.array([1.0, 2.0, 3.0] * 3))
        assert counted == pytest.approx(float(run(loss, *repeated, np.ones(18))), rel=1e-9)
    full = run(PredictiveELBO(), x, y, w)
    assert_mean(run(PredictiveELBO(), x, y, w, batch_size=3, num=3000), full)
    bound = -TraceMeanField_ELBO().loss(KEY, q, weighted, dgp.MeanField(weighted), x, y, w, z=Z[0])
    assert run(ImportanceWeighted(1), x, y, w) == pytest.approx(float(bound), rel=1e-9)


@pytest.mark.slow
def test_predictive_of_two_layers_is_a_mixture():
    """The value for two particles agrees with quadrature over the hidden layer."""
    x, y = regression(rows=4)
    params = two_layer_params(variance=0.5)
    weights, terms = [], []
    for weight, h in hidden_nodes(params, x, num=40):
        mean, var = layer_moments(params, 2, h[:, None])
        weights.append(weight)
        terms.append(stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(y))
    mixed = log_mean_exp_of_pairs(np.array(terms), np.log(weights)).sum()
    guide, objective = dgp.MeanField(deep_gp), PredictiveELBO(0.5, 2)
    draws = values(objective, deep_gp, guide, params, x, y, z=Z, num=6000)
    assert_mean(draws, mixed - 0.5 * kls(params))


def test_predictive_does_not_see_what_a_mask_hides(x64):
    """Masked rows do not affect the value."""
    x, y = regression(rows=9)
    seen = np.arange(9) < 6

    def model(x, y, seen):
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), spread(4))
        with dgp.minibatch(x, y) as (x, y), handlers.mask(mask=seen):
            observed = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE))
            numpyro.sample("y", observed, obs=y)

    params = {"l1.v.loc": np.ones((4, 1)), "l1.v.scale_tril": 0.5 * np.eye(4)[None]}
    guide = dgp.MeanField(model)
    hidden = np.where(seen, y, 50.0)
    found = values(PredictiveELBO(0.3, 2), model, guide, params, x, hidden, seen)
    whole = np.ones(6, bool)
    wanted = values(PredictiveELBO(0.3, 2), model, guide, params, x[:6], y[:6], whole)
    assert found == pytest.approx(float(wanted), rel=1e-9)


def test_predictive_does_not_see_missing_entries():
    x, y = regression(rows=6)
    y = np.stack([y, -y], axis=1)
    seen = np.arange(12).reshape(6, 2) % 3 > 0

    def model(x, y):
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), spread(4), out=2)
        with dgp.minibatch(x, y, seen) as (x, y, mask):
            observed = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE).to_event(1), mask=mask)
            numpyro.sample("y", observed, obs=y)

    found = [
        values(PredictiveELBO(), model, dgp.MeanField(model), {}, x, np.where(seen, y, hidden))
        for hidden in (0.0, np.nan)
    ]
    assert np.isfinite(found[0])
    assert found[0] == found[1]
