"""`gp`: moments against dense algebra, distributions of draws, sites, errors."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import tinygp
from jax import random
from numpyro import handlers
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    regression,
    slow,
    spread,
    two_layers,
)

import dgp_ppl as dgp
from dgp_ppl import kernels, means
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.core._inducing import DiagonalInducing, FullInducing
from dgp_ppl.linalg import default_jitter

M, P, N = 4, 2, 5
Z = np.linspace(-1.5, 1.5, M)[:, None]
X = np.float32([-2.0, -0.7, 0.1, 0.2, 1.3])[:, None]
V = np.random.default_rng(0).standard_normal((M, P))
TRIL = np.tril(np.random.default_rng(1).standard_normal((P, M, M)), -1) + 0.8 * np.eye(M)
SCALE = np.random.default_rng(2).uniform(0.2, 1.0, (M, P))

KERNEL = kernels.SquaredExponential(1.3, 0.9)
PER_OUTPUT = kernels.PerOutput(
    kernels.SquaredExponential(np.float32([0.7, 1.4]), np.float32([[0.8], [1.3]]))
)
# The outputs share kernel and inducing inputs, or each has its own kernel, inputs or both.
LAYERS = {
    "shared": (KERNEL, Z),
    "kernels": (PER_OUTPUT, Z),
    "inputs": (KERNEL, np.stack([Z, Z + 0.2])),
    "both": (PER_OUTPUT, np.stack([Z, Z + 0.2])),
}


def single(kernel, z, p):
    """Return kernel and inducing inputs of output p."""
    if isinstance(kernel, kernels.PerOutput):
        kernel = jax.tree.map(lambda a: a[p], kernel.kernel)
    return kernel, np.asarray(z[p] if np.ndim(z) == 3 else z)


def inducing(posterior):
    """Return a guide's q(v), or None if the layer is given a draw."""
    if posterior == "full":
        return FullInducing(jnp.asarray(V, float), jnp.asarray(TRIL, float))
    if posterior == "diagonal":
        return DiagonalInducing(jnp.asarray(V, float), jnp.asarray(SCALE, float))
    return None


def handed_over(q):
    """Return the trace of a guide that hands over q and draws its mean."""
    return {"f.v": guide_site("f.v", Handover(q), q.loc)}


@contextlib.contextmanager
def given(posterior="draw", key=KEY):
    """Run layers with V as the draw of v, or under a guide's q(v)."""
    q = inducing(posterior)
    if q is None:
        with handlers.seed(rng_seed=key), handlers.substitute(data={"f.v": jnp.asarray(V, float)}):
            yield
        return
    with handlers.seed(rng_seed=key), handlers.replay(trace=handed_over(q)):
        yield


def layer(name="shared", posterior="draw", key=KEY, kernel=None, mean=means.zero):
    with given(posterior, key):
        return dgp.gp("f", kernel or LAYERS[name][0], LAYERS[name][1], out=P, mean=mean)


def dense(kernel, z, x, p, posterior):
    """Return mean and covariance of f(x), by dense algebra on unwhitened values."""
    kernel, z = single(kernel, z, p)
    Kzz, Kzx, Kxx = (np.asarray(kernel(a, b)) for a, b in ((z, z), (z, x), (x, x)))
    L = np.linalg.cholesky(Kzz + default_jitter(Kzz.dtype) * np.trace(Kzz) / M * np.eye(M))
    u = L @ V[:, p]
    R = {"draw": np.zeros((M, M)), "full": TRIL[p], "diagonal": np.diag(SCALE[:, p])}[posterior]
    alpha = np.linalg.inv(L @ L.T) @ Kzx  # K⁻¹ k(Z, x)
    return alpha.T @ u, Kxx - alpha.T @ (L @ L.T - L @ R @ R.T @ L.T) @ alpha


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("posterior", ["draw", "full", "diagonal"])
def test_moments_are_the_dense_ones_of_each_output(posterior):
    """Each output equals a single-output layer, in marginals and joint moments."""
    for name in LAYERS if posterior == "draw" else ("shared", "both"):
        kernel, z = jax.tree.map(np.float64, LAYERS[name])

        @jax.jit
        def moments(x, name=name, kernel=kernel):
            f = layer(name, posterior, kernel=kernel, mean=means.pad(1, P))
            return f(x), f.joint(x)

        marginals, (mean, cov) = moments(X.astype(np.float64))
        for p in range(P):
            expected_mean, expected_cov = dense(kernel, z, X, p, posterior)
            expected_mean = expected_mean + (X[:, 0] if p == 0 else 0)
            np.testing.assert_allclose(mean[:, p], expected_mean, atol=1e-6)
            np.testing.assert_allclose(cov[p], expected_cov, atol=1e-6)
            np.testing.assert_allclose(marginals.mean[:, p], mean[:, p], atol=1e-12)
            np.testing.assert_allclose(marginals.var[:, p], np.diag(cov[p]), rtol=1e-9)


class Shifted(FullInducing):
    """A posterior of a user's, with a mean that v does not determine."""

    determines_mean = False
    moment_root = None

    def shift(self, A, x):
        return jnp.full((len(x), P), 2.0)


def test_a_posterior_of_ones_own_adds_its_shift():
    tril = jnp.asarray(TRIL, float)
    for name in ("shared", "both"):
        f = layer(name)
        own, full = (q(jnp.asarray(V, float), tril) for q in (Shifted, FullInducing))
        a, b = (f.sparse.marginals(q, X) for q in (own, full))
        np.testing.assert_allclose(a[0], b[0] + 2, rtol=1e-4)
        np.testing.assert_allclose(a[1], b[1], rtol=2e-5, atol=1e-6)


def test_kernels_of_tinygp_and_plain_functions_fit():
    ours = layer().joint(X)
    for kernel in (1.3 * tinygp.kernels.ExpSquared(jnp.float32(0.9)), lambda *x: KERNEL(*x)):
        for a, b in zip(ours, layer(kernel=kernel).joint(X), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4)


def check_moments(draws, moments):
    """Assert that draws [S, N, P] have these means and covariances, and independent outputs."""
    mean, cov = moments
    assert_mean(draws, mean)
    joined = np.zeros((N * P, N * P))
    for p in range(P):
        joined[np.ix_(np.arange(N) * P + p, np.arange(N) * P + p)] = cov[p]
    assert_covariance(np.asarray(draws).reshape(len(draws), N * P), joined)


def drawn(function, count=6000):
    return jax.jit(jax.vmap(function))(random.split(KEY, count))


@pytest.mark.parametrize("posterior", [slow("draw"), "full"])
def test_samples_have_the_marginal_or_the_joint_distribution(posterior):
    def draw(key):
        with handlers.seed(rng_seed=key):
            f = layer(posterior=posterior, key=key)
            return f.sample(X), f.sample(X, joint=True)

    f = layer(posterior=posterior)
    (apart, joint), f_x = drawn(draw), f(X)
    check_moments(apart, (f_x.mean, np.stack([np.diag(v) for v in f_x.var.T])))
    check_moments(joint, f.joint(X))


@pytest.mark.parametrize(("name", "posterior"), [("shared", "draw"), slow("both", "full")])
def test_paths_have_the_joint_distribution(name, posterior):
    f = layer(name, posterior, mean=means.pad(1, P))
    draws = drawn(lambda key: f.path(key, 200)(X))
    check_moments(draws, f.joint(X))


@pytest.mark.parametrize("mode", ["joint", slow("path")])
def test_function_draws_have_the_joint_distribution(mode):
    def draw(key):
        with dgp.function_draws(mode=mode), given("full", key):
            f = dgp.gp("f", KERNEL, Z, out=P)
            f_x = f(X)
        return f_x.mean, f_x.var

    draws, var = drawn(draw, 2000)
    assert (var == 0).all()
    check_moments(draws, layer(posterior="full").joint(X))


def test_a_path_draw_is_one_function_through_all_calls():
    @jax.jit
    def values():
        with dgp.function_draws(mode="path"), given("full"):
            f = dgp.gp("f", KERNEL, Z, out=P)
            drawn = f(X).mean, f(X[:2]).mean, f.sample(X)
        return *drawn, layer(posterior="full").path(random.key(1), 50)(X)

    whole, part, sampled, other = values()
    np.testing.assert_allclose(part, whole[:2], atol=1e-5)
    np.testing.assert_array_equal(sampled, whole)
    assert np.abs(other - whole).max() > 0.01


def test_noise_is_an_auxiliary_site_without_a_guide_and_none_with_one():
    def sites(posterior):
        def drawn():
            f = dgp.gp("f", KERNEL, Z, out=P)
            return f.sample(X), f.sample(X[:2], joint=True)

        with handlers.trace() as trace, given(posterior):
            jax.eval_shape(drawn)
        return {n: s for n, s in trace.items() if s["type"] == "sample"}

    trace = sites("draw")
    assert list(trace) == ["f.v", "f.eps", "f.eps_1"]
    assert trace["f.eps"]["infer"]["is_auxiliary"]
    assert trace["f.eps"]["value"].shape == (N, P)
    assert trace["f.eps_1"]["value"].shape == (2, P)
    assert trace["f.v"]["fn"].event_shape == (M, P)
    assert list(sites("full")) == ["f.v"]


def test_a_layer_factorises_once_however_often_it_is_called():
    def count(calls):
        def total(x):
            f = layer(posterior="full")
            return sum(jnp.sum(f(x + i).var) + jnp.sum(f.joint(x - i)[1]) for i in range(calls))

        return str(jax.make_jaxpr(jax.grad(total))(X)).count("cholesky")

    assert count(1) == count(3) > 0


@pytest.mark.wrong_types
def test_errors():
    def in_a_plate():
        with numpyro.plate("data", N):
            dgp.gp("f", KERNEL, Z)

    wide, wrong_z = np.zeros((M, 3)), r"z has shape .*wanted \[M, D\].*z\[:, None\]"
    wrong_x = r"x has shape .*wanted \[N, 1\].*x\[:, None\]"
    for error, message, call in (
        (ValueError, "gp\\('f'\\) was called inside the plate 'data'.*before", in_a_plate),
        (ValueError, wrong_z, lambda: dgp.gp("f", KERNEL, Z[:, 0], out=P)),
        (ValueError, wrong_z, lambda: dgp.gp("f", KERNEL, np.zeros((3, M, 1)), out=P)),
        (ValueError, r"mean gives shape \(4, 3\) for .* \(4, 3\), wanted \(4, 2\).*pad\(3, 2\)",
         lambda: dgp.gp("f", KERNEL, wide, out=2, mean=means.identity)),
        (ValueError, r"mean fails \(TypeError: dot_general.*wanted \(4, 1\)",
         lambda: dgp.gp("f", KERNEL, wide, mean=means.linear(np.ones((2, 1))))),
        (TypeError, "kernel is 'Matern52', wanted one such as",
         lambda: dgp.gp("f", kernels.Matern52, Z)),
        (TypeError, "out is a function", lambda: dgp.gp("f", KERNEL, Z, means.identity)),  # pyright: ignore[reportArgumentType]
        (ValueError, wrong_x, lambda: layer()(X[:, 0])),
        (ValueError, wrong_x, lambda: layer().sample(np.zeros((N, 2)))),
        (ValueError, wrong_x, lambda: layer().joint(X[:, 0])),
        (TypeError, "x is Marginals, wanted an array", lambda: layer()(layer()(X))),
        (ValueError, "mode is 'exact', wanted 'joint'", lambda: dgp.function_draws(mode="exact")),
        (TypeError, "ExpSquared has no random features",
         lambda: layer(kernel=tinygp.kernels.ExpSquared(1.0)).path(KEY)),
    ):  # fmt: skip
        with handlers.seed(rng_seed=0), pytest.raises(error, match=message):
            jax.eval_shape(call)


@pytest.mark.parametrize(("points", "shape"), [(2 * N, (N, 2, P)), (7, (7, P))])
def test_draws_of_several_points_for_each_row_of_a_plate(points, shape):
    """Pairs and regions: the noise of a row's points is in its plate; shared points have none."""

    def model(noise):
        f = dgp.gp("f", KERNEL, Z, out=P)
        with dgp.minibatch(X), handlers.substitute(data={"f.eps": noise}):
            return f.sample(jnp.linspace(-1, 1, points)[:, None], joint=True)

    @jax.jit
    def run(noise):
        with handlers.trace() as trace:
            drawn = handlers.seed(model, KEY)(noise)
        assert trace["f.eps"]["fn"].shape() == shape
        return drawn

    one = jnp.zeros(shape).at[(1, 1, 0)[-len(shape) :]].set(1.0)  # point N + 1, or point 1
    moved = np.asarray(run(one)) - run(jnp.zeros(shape))
    at = N + 1 if len(shape) == 3 else 1
    assert np.flatnonzero(moved[:, 0])[0] == at
    assert not moved[:, 1].any()


def test_noise_without_a_key():
    with handlers.replay(trace=handed_over(inducing("full"))):
        f = dgp.gp("f", KERNEL, Z, out=P)
        assert f.guided
        with pytest.raises(ValueError, match=r"f\.eps needs a random key.*seed"):
            f.sample(X)


def test_a_layer_is_hidden_if_it_is_sampled_from():
    """A site of the user's whose name looks like a layer's noise does not count."""

    def model(x, y=None, *, z):
        numpyro.sample("l2.epsilon", dist.Normal(0, 1))
        two_layers(x, y, z=z)

    guide = dgp.MeanField(model)
    guide.setup(*regression(rows=5), z=spread(4))
    assert {n: layer.hidden for n, layer in guide.layers.items()} == {"l1.v": True, "l2.v": False}
