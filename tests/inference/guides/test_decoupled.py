"""`Decoupled`: KL and moments against dense algebra, the coupled case, optimal bounds, errors."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import Predictive
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    bound,
    collapsed_bound,
    exact_evidence,
    regression,
    slow,
    spread,
    squared_exponential,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.core import Handover
from dgp_ppl.core._gp import RandomFunction
from dgp_ppl.core._handover import handover_of
from dgp_ppl.inference.guides._decoupled import Decoupled, DecoupledInducing
from dgp_ppl.linalg import default_jitter
from dgp_ppl.models import deep_gp, svgp

MEANS = ("orthogonal", "cb")
COVARIANCES = {"whitened": "scale_tril", "cb": "precision_tril"}
FORMS = list(itertools.product(MEANS, COVARIANCES))
NOISE = 0.3
M_A, M_B, P = 9, 5, 2


def points(num, seed):
    return np.random.default_rng(seed).uniform(-2, 2, (num, 2))


KERNEL = kernels.SquaredExponential(1.5, 0.8)


def model(x, y=None, *, z, kernel=KERNEL):
    """One layer with two inputs and two outputs."""
    f = dgp.gp("l1", kernel, z, out=P)
    with dgp.minibatch(x, y) as (x, y):
        observed = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE).to_event(1))
        numpyro.sample("y", observed, obs=y)


def random_params(mean, covariance, seed=0):
    rng = np.random.default_rng(seed)
    tril = np.tril(0.4 * rng.standard_normal((P, M_B, M_B)), -1) + 0.7 * np.eye(M_B)
    params = {"l1.v.z_mean": points(M_A, 1), "l1.v.weights": rng.standard_normal((M_A, P))}
    params[f"l1.v.{COVARIANCES[covariance]}"] = tril
    if mean == "orthogonal":
        params["l1.v.loc"] = rng.standard_normal((M_B, P))
    return {n: jnp.asarray(a, float) for n, a in params.items()}


def handovers(guide, params, *args, **kwargs):
    """Return the q and sparse GP that the guide hands over, by site."""
    program = handlers.substitute(handlers.seed(guide, KEY), data=params)
    sites = handlers.trace(program).get_trace(*args, **kwargs)
    found = {n: handover_of(s) for n, s in sites.items() if s["type"] == "sample"}
    return {n: {"q": h.q, "sparse": h.sparse} for n, h in found.items()}


class DenseDecoupled:
    """The same posterior in NumPy, at any points W and for one output at a time.

    The values at W have independent noise with the variance of the jitter, as in the library.
    """

    def __init__(self, mean, covariance, params, kernels=P * (squared_exponential,)):
        self.p = {n[5:]: np.asarray(a, np.float64) for n, a in params.items()}
        self.mean_form, self.covariance, self.kernels = mean, covariance, kernels
        self.z_b = points(M_B, 2)

    def at(self, extra, output):
        """Return prior covariance, mean and covariance of q at Z_a, Z_b and the extra points."""
        a, b = slice(0, M_A), slice(M_A, M_A + M_B)
        W = np.concatenate([self.p["z_mean"], self.z_b, extra])
        K = self.kernels[output](W, W)
        K = K + default_jitter(np.float64) * K[0, 0] * np.eye(len(W))
        L_b = np.linalg.cholesky(K[b, b])
        m, R = self.p["weights"][:, output], self.p[COVARIANCES[self.covariance]][output]
        if self.mean_form == "cb":
            mean = K[:, a] @ m
        else:
            orthogonal = K[:, a] - K[:, b] @ np.linalg.solve(K[b, b], K[b, a])
            mean = orthogonal @ m + K[:, b] @ np.linalg.solve(L_b.T, self.p["loc"][:, output])
        if self.covariance == "whitened":
            S = L_b @ R @ R.T @ L_b.T
        else:
            S = np.linalg.inv(np.linalg.inv(K[b, b]) + R.T @ R)
        half = np.linalg.solve(K[b, b], K[b, :])
        return K, mean, K - half.T @ (K[b, b] - S) @ half

    def kl(self, extra):
        total = 0.0
        for output in range(P):
            K, mean, cov = self.at(extra, output)
            quadratic = mean @ np.linalg.solve(K, mean)
            logs = np.linalg.slogdet(K)[1] - np.linalg.slogdet(cov)[1]
            total += 0.5 * (np.trace(np.linalg.solve(K, cov)) - len(K) + quadratic + logs)
        return total


def best_params(x, y, z_a, z_b):
    """Return the optimal "cb" mean and "whitened" covariance, in closed form."""
    jitter = default_jitter(np.float64) * 1.5
    K_a = squared_exponential(z_a, z_a) + jitter * np.eye(len(z_a))
    K_b = squared_exponential(z_b, z_b) + jitter * np.eye(len(z_b))
    L_a, L_b = np.linalg.cholesky(K_a), np.linalg.cholesky(K_b)
    A_a = np.linalg.solve(L_a, squared_exponential(z_a, x))
    A_b = np.linalg.solve(L_b, squared_exponential(z_b, x))
    m = np.linalg.solve(NOISE**2 * np.eye(len(z_a)) + A_a @ A_a.T, A_a @ np.asarray(y))
    S = np.linalg.inv(np.eye(len(z_b)) + A_b @ A_b.T / NOISE**2)
    params = {
        "l1.v.z_mean": z_a,
        "l1.v.weights": np.linalg.solve(L_a.T, m)[:, None],
        "l1.v.scale_tril": np.linalg.cholesky(S)[None],
        "l1.z": z_b,
        "l1.variance": 1.5,
        "l1.lengthscale": np.array([0.8]),
        "noise": NOISE,
    }
    return {n: jnp.asarray(a, float) for n, a in params.items()}


@pytest.mark.parametrize(
    ("mean", "covariance"), [FORMS[0], slow(*FORMS[1]), slow(*FORMS[2]), FORMS[3]]
)
def test_kl_and_moments_of_the_restricted_processes(mean, covariance, x64):
    """The KL is exact, at Z_a and Z_b or at 20 more points, and so are moments at new points."""
    params, z_b = random_params(mean, covariance), jnp.asarray(points(M_B, 2))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean, covariance=covariance)
    x = jnp.asarray(points(7, 3))

    handover = handovers(guide, params, x, z=z_b)["l1.v"]
    posterior, sparse = handover["q"], handover["sparse"]
    kl = posterior.standard_kl()
    (joint_mean, (joint_cov,)), (f_mean, f_var) = (
        sparse.joint(posterior, x, len(x)),
        sparse.marginals(posterior, x),
    )
    dense = DenseDecoupled(mean, covariance, params)
    assert kl == pytest.approx(dense.kl(points(0, 0)), rel=1e-8)
    assert kl == pytest.approx(dense.kl(points(20, 4)), rel=1e-8)
    for output in range(P):
        _, at_w, cov = dense.at(x, output)
        np.testing.assert_allclose(joint_mean[:, output], at_w[-7:], atol=1e-8)
        np.testing.assert_allclose(joint_cov[output], cov[-7:, -7:], atol=1e-8)
        np.testing.assert_allclose(f_mean[:, output], at_w[-7:], atol=1e-8)
        np.testing.assert_allclose(f_var[:, output], np.diag(cov)[-7:], atol=1e-8)


def test_order_of_the_bounds_at_their_optima(x64):
    """More inducing inputs for the mean raise the bound, but not above the evidence."""
    x, y = regression(rows=40)
    evidence = exact_evidence(x, y)

    def decoupled(z_a, z_b):
        guide = Decoupled(svgp, z_a, mean="cb")
        return float(bound(svgp, guide, best_params(x, y, z_a, z_b), x, y, z=z_b))

    z = spread(5)
    coupled = collapsed_bound(x, y, z)
    assert decoupled(x, x) == pytest.approx(evidence, abs=1e-6)
    assert decoupled(z, z) == pytest.approx(coupled, abs=1e-6)
    assert coupled + 0.1 < decoupled(x, z) < evidence - 1


def two_layers(x, y=None, **kwargs):
    deep_gp(x, y, z=(spread(6), spread(6)), noise=0.2, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("mean", MEANS)
def test_paths_have_the_mean_and_the_covariance_of_q(mean):
    params = random_params(mean, "whitened")
    z_b, x = jnp.float32(points(M_B, 2)), jnp.float32(points(6, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean)
    handover = jax.jit(lambda p: handovers(guide, p, x, z=z_b)["l1.v"])(params)
    kernel, v, handed = handover["sparse"].kernel, jnp.zeros((M_B, P)), Handover(**handover)
    f = RandomFunction("l1", kernel, z_b, P, dgp.means.zero, v, handed, None, "l1.v")
    draws = jax.jit(jax.vmap(lambda key: f.path(key, 500)(x)))(random.split(KEY, 3000))
    _, at_w, cov = DenseDecoupled(mean, "whitened", params).at(np.asarray(x), 1)
    assert_mean(draws[..., 1], at_w[-6:])
    assert_covariance(draws[..., 1], cov[-6:, -6:])


@pytest.mark.slow
def test_predictive_has_the_means_own_inducing_inputs_under_the_guide():
    """The mean's 30 inducing inputs can follow the function; the covariance's 4 cannot."""
    x = np.linspace(-2, 2, 60)[:, None]

    def waves(x, y=None):
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 0.4), np.linspace(-2, 2, 4)[:, None])
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.1)), obs=y)

    guide = Decoupled(waves, x[::2])
    y = np.sin(4 * x[:, 0])
    result = dgp.fit(KEY, waves, guide, x, y, steps=300, learning_rate=0.1, progress=False)
    whole = Predictive(dgp.guided(waves, guide, result.params), num_samples=300)(KEY, x)
    without_basis = Predictive(waves, guide=guide, params=result.params, num_samples=300)(KEY, x)
    off = [np.sqrt(np.mean((d["y"].mean(axis=0) - y) ** 2)) for d in (whole, without_basis)]
    assert off[0] < 0.2 < 0.6 < off[1]


@pytest.mark.parametrize(("mean", "z_per_output"), [("orthogonal", True), slow("cb", False)])
def test_outputs_with_kernels_and_inducing_inputs_of_their_own(mean, z_per_output, x64):
    """Each output equals the output of a model with one output."""
    params = random_params(mean, "whitened")
    variances, z_b = jnp.array([1.5, 0.7]), jnp.asarray(points(M_B, 2))
    kernel = kernels.PerOutput(kernels.SquaredExponential(variances, jnp.array([0.8, 1.1])))
    z = jnp.stack([z_b, z_b]) if z_per_output else z_b
    x = jnp.asarray(points(7, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean)

    handover = handovers(guide, params, x, z=z, kernel=kernel)["l1.v"]
    kl, (f_mean, f_var) = (
        handover["q"].standard_kl(),
        handover["sparse"].marginals(handover["q"], x),
    )
    own = (squared_exponential, partial(squared_exponential, variance=0.7, lengthscale=1.1))
    dense = DenseDecoupled(mean, "whitened", params, own)
    for output in range(P):
        _, at_w, cov = dense.at(x, output)
        np.testing.assert_allclose(f_mean[:, output], at_w[-7:], atol=1e-7)
        np.testing.assert_allclose(f_var[:, output], np.diag(cov)[-7:], atol=1e-7)
    assert kl == pytest.approx(dense.kl(x), rel=1e-7)


def test_a_rescaled_distribution_keeps_its_shift(x64):
    """m + R (t + s e) has the moments and the KL of a Gaussian with mean m + R t and root R s."""
    params = random_params("cb", "whitened")
    z_b, x = jnp.asarray(points(M_B, 2)), jnp.asarray(points(7, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean="cb")
    handover = handovers(guide, params, x, z=z_b)["l1.v"]
    posterior, rng = handover["q"], np.random.default_rng(5)
    t, s = jnp.asarray(rng.standard_normal((M_B, P))), jnp.asarray(rng.uniform(0.5, 1, (M_B, P)))
    new = posterior.scaled(t, s)
    assert isinstance(new, DecoupledInducing)
    R = np.asarray(posterior.scale_tril)
    loc = np.asarray(posterior.loc) + np.einsum("pij,jp->ip", R, t)
    # These params give the same posterior in the orthogonal form.
    orthogonal = Decoupled(model, params["l1.v.z_mean"], mean="orthogonal")
    same = params | {
        "l1.v.loc": jnp.asarray(loc),
        "l1.v.scale_tril": jnp.asarray(R * np.asarray(s).T[:, None, :]),
    }
    truth = handovers(orthogonal, same, x, z=z_b)["l1.v"]["q"]
    assert new.standard_kl() == pytest.approx(float(truth.standard_kl()), rel=1e-8)
    for ours, theirs in zip(
        handover["sparse"].marginals(new, x), handover["sparse"].marginals(truth, x), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_errors():
    x, y = regression(rows=5)

    def run(z_mean, model=two_layers, args=(x, y)):
        with handlers.seed(rng_seed=0):
            Decoupled(model, z_mean)(*args)

    for message, call in (
        ("mean is 'GP', wanted 'orthogonal' or 'cb'",
         lambda: Decoupled(two_layers, spread(4), mean="GP")),
        ("covariance is 'full', wanted 'whitened'",
         lambda: Decoupled(two_layers, spread(4), covariance="full")),
        (r"hidden_scale is 0, wanted a positive number, at most 1",
         lambda: Decoupled(two_layers, spread(4), hidden_scale=0)),
        (r"layer 'l1' has shape \(4, 2\), wanted \[M_a, 1\]", lambda: run(jnp.zeros((4, 2)))),
        (r"z_mean has 1 entries.*\['l1', 'l2'\]", lambda: run([spread(4)])),
        (r"for the layers \['l1'\], wanted.*\['l1', 'l2'\]", lambda: run({"l1": spread(4)})),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
    run(spread(4), lambda y: two_layers(x, y), (y,))  # no x among the arguments
