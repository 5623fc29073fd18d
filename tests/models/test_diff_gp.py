"""Differential GPs: equality with SVGP, distributions of the flows, and validity of the bound."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer.util import log_density
from support.helpers import KEY, assert_mean, bound, regression, spread, start

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.models import diff_gp, svgp
from dgp_ppl.models._diff_gp import integrate

X, Y = regression(rows=15)
Z = {"z": spread(4), "z_flow": spread(5)}


def test_without_time_it_is_an_svgp():
    """Without a flow the bounds are equal; the field's KL is 0 at its prior."""
    guide = dgp.MeanField(diff_gp, hidden_scale=1.0)
    params = start(diff_gp, guide, X, Y, **Z, horizon=0.0)
    params["out.v.loc"] = random.normal(KEY, (4, 1))
    same = {n.replace("out.", "l1."): a for n, a in params.items() if not n.startswith("flow.")}
    found = bound(diff_gp, guide, params, X, Y, **Z, horizon=0.0)
    wanted = bound(svgp, dgp.MeanField(svgp), same, X, Y, z=Z["z"])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    short = bound(diff_gp, guide, params, X, Y, **Z, horizon=1e-8)
    np.testing.assert_allclose(short, wanted, rtol=1e-3)


def flowed(flow, horizon, num=4000, **options):
    """Draws of x(T) from x(0) = 0.3 under a field at its prior, with standard deviation 0.3."""

    def model(x):
        # The predictor is nearly the identity, so predictions are x(T).
        diff_gp(
            x, **Z, flow=flow, horizon=horizon, mean=lambda x: x, flow_steps=25, **options,
            flow_kernel=lambda n, d, variance: kernels.SquaredExponential(0.09, 2.0),
            kernel=lambda n, d: kernels.SquaredExponential(1e-8, 1.0),
        )  # fmt: skip

    guide = dgp.MeanField(model, hidden_scale=1.0)
    x = jnp.full((1, 1), 0.3)
    params = start(model, guide, x) | {"noise": 1e-4}
    held = dgp.predict(KEY, model, guide, params, x, num_samples=num)
    return np.concatenate([np.asarray(l.components.loc) for _, l in held.components()]).ravel()


@pytest.mark.slow
def test_the_distributions_of_both_flows():
    """At the prior, marginal coefficients act like white noise; a single field's drift persists."""
    for horizon, least, most in ((1.0, 0.9, 1.05), (5.0, 1.8, np.sqrt(5))):
        marginal, sampled = (flowed(f, horizon) for f in ("marginal", "sampled"))
        assert_mean(np.square(marginal - 0.3), 0.09 * horizon)
        assert least < sampled.std() / marginal.std() < most


TINY_X, TINY_Y = jnp.array([[-0.5], [0.1], [0.8]]), jnp.array([0.7, -0.4, 0.5])
TINY = {"z": jnp.array([[-0.6], [0.6]]), "z_flow": jnp.array([[-0.5], [0.5]])}


def tiny(x, y=None):
    """A model in which only the inducing values are latent."""
    program = functools.partial(
        diff_gp, **TINY, flow="sampled", horizon=1.0, flow_steps=3,
        flow_kernel=lambda n, d, variance: kernels.SquaredExponential(0.1, 0.7),
        kernel=lambda n, d: kernels.SquaredExponential(1.0, 0.7),
    )  # fmt: skip
    fixed = handlers.substitute(program, data={"noise": 0.5, "flow.z": TINY["z_flow"]})
    fixed = handlers.substitute(fixed, data={"out.z": TINY["z"]})
    handlers.block(fixed, hide_fn=lambda s: s["type"] == "param")(x, y)


def evidence(num=400_000):
    """log p(y) of `tiny` by draws from the prior, and its standard error."""

    def one(key):
        keys = dict(zip(("flow.v", "out.v", "flow.eps"), random.split(key, 3), strict=True))
        shapes = {"flow.v": (2, 1), "out.v": (2, 1), "flow.eps": (3, 3, 1)}
        latents = {n: random.normal(keys[n], s) for n, s in shapes.items()}
        _, trace = log_density(tiny, (TINY_X, TINY_Y), {}, latents)
        return trace["y"]["fn"].log_prob(TINY_Y).sum()

    terms = jax.lax.map(lambda k: jax.vmap(one)(k), random.split(KEY, num).reshape(40, -1))
    total = logsumexp(terms) - jnp.log(num)
    weights = np.exp(np.asarray(terms, np.float64).ravel() - float(total))
    return float(total), float(weights.std() / np.sqrt(num))


@pytest.mark.slow
def test_the_bound_of_the_sampled_flow_is_one():
    value, error = evidence()
    assert error < 0.05
    guide = dgp.MeanField(tiny)
    options = {"steps": 1500, "learning_rate": 0.02, "progress": False}
    params = dgp.fit(KEY, tiny, guide, TINY_X, TINY_Y, **options).params
    draws = bound(tiny, guide, params, TINY_X, TINY_Y, keys=random.split(KEY, 4000))
    mean, noise = draws.mean(), draws.std() / np.sqrt(len(draws))
    assert mean < value + 3 * np.hypot(error, noise)
    assert mean > value - 3  # and the bound is not trivial


@pytest.mark.slow
def test_a_field_that_changes_with_time():
    """Its inducing inputs are a grid. One time and a long time scale give a constant field."""
    guide, options = dgp.MeanField(diff_gp), {**Z, "horizon": 2.0, "flow_steps": 4}
    params = start(diff_gp, guide, X, Y, **options, z_time=jnp.array([0.0, 1.0, 2.0]))
    assert params["flow.v.loc"].shape == (15, 1)
    np.testing.assert_allclose(params["flow.timescale"], 2.0, rtol=1e-5)
    guide = dgp.MeanField(diff_gp)
    still = start(diff_gp, guide, X, Y, **options)
    wanted = bound(diff_gp, guide, still, X, Y, **options)
    timed = {**still, "flow.timescale": 1e4}
    one_time = dgp.MeanField(diff_gp)
    found = bound(diff_gp, one_time, timed, X, Y, **options, z_time=jnp.array([0.0]))
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


COARSE = np.array([8, 16, 32, 64, 128])


def order(values):
    """Slope of log error against log step."""
    return -np.polyfit(np.log(COARSE), np.log(values), 1)[0]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_orders_with_noise():
    """Strong order 1/2, and weak order 1 of the mean square, of dx = a x dt + b x dW."""
    fine, points, growth, spread = 256, 40_000, 0.5, 0.7
    noise = random.normal(KEY, (points, fine, 1))
    path = noise.sum(axis=1) / np.sqrt(fine)
    exact = jnp.exp((growth - 0.5 * spread**2) + spread * path)
    geometric = lambda x, t: (growth * x, jnp.square(spread * x))  # noqa: E731
    strong, weak, errors = [], [], []
    for steps in COARSE:
        coarse = noise.reshape(points, steps, -1, 1).sum(axis=2) / np.sqrt(fine / steps)
        end, _ = integrate(geometric, jnp.ones((points, 1)), coarse, 1.0)
        strong.append(jnp.abs(end - exact).mean())
        weak.append(abs((end**2 - exact**2).mean()))
        errors.append((end**2 - exact**2).std() / np.sqrt(points))
    assert order(strong) == pytest.approx(0.5, abs=0.1)
    assert all(w > 3 * e for w, e in zip(weak[:4], errors[:4], strict=True))
    assert order(weak) == pytest.approx(1.0, abs=0.25)


@pytest.mark.usefixtures("x64")
def test_order_and_path_without_noise():
    def turn(x, t):
        return jnp.stack([x[:, 1], -x[:, 0]], axis=1) * (1 + t), jnp.zeros_like(x)

    first, angle = jnp.array([[1.0, 0.0]]), 1.5  # the integral of 1 + t
    ends = [integrate(turn, first, jnp.zeros((1, k, 2)), 1.0)[0][0] for k in COARSE]
    exact = np.array([np.cos(angle), -np.sin(angle)])
    assert order([np.linalg.norm(e - exact) for e in ends]) == pytest.approx(1.0, abs=0.15)

    def total(rate):  # noise that a variance of 0 leaves without effect
        still = lambda x, t: (rate * x, jnp.zeros_like(x))  # noqa: E731
        end, path = integrate(still, jnp.ones((2, 1)), jnp.ones((2, 5, 1)), 1.0)
        return end.sum(), path

    gradient, path = jax.jit(jax.grad(total, has_aux=True))(1.0)
    assert gradient == pytest.approx(2 * 1.2**4, rel=1e-5)
    np.testing.assert_allclose(path[:, 0, 0], 1.2 ** np.arange(1, 6), rtol=1e-5)


@pytest.mark.wrong_types
def test_errors():
    for options, text in (
        ({"flow": "ode"}, "diff_gp: flow is 'ode', wanted 'marginal' or 'sampled'"),
        ({"z_time": jnp.zeros((2, 1))}, r"diff_gp: z_time has shape \(2, 1\), wanted \[M_t\]"),
        ({"flow_steps": 0}, "flow_steps is 0, wanted at least 1"),
        ({"horizon": -1.0}, "horizon is -1.0, wanted at least 0"),
        (
            {"z_time": jnp.zeros(2), "share_kernel": False},
            "share_kernel is False, but a field on a grid",
        ),
    ):
        with handlers.seed(rng_seed=0), handlers.trace(), pytest.raises(ValueError, match=text):
            diff_gp(X, Y, **(Z | options))
