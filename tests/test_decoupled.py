"""Decoupled inducing inputs: exact KLs and laws, the coupled case, orderings, and training."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    bound,
    exact_evidence,
    regression,
    spread,
    squared_exponential,
    start,
    two_layer_params,
)
from jax import random
from numpyro import handlers
from scipy import stats

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.gp import RandomFunction
from dgp_ppl.inference.decoupled import Decoupled, DecoupledInducing
from dgp_ppl.linalg import default_jitter
from dgp_ppl.models import deep_gp, svgp

MEANS = ("gp_centred", "gp", "cb", "orthogonal")
COVARIANCES = {"whitened": "scale_tril", "gp": "value_tril", "cb": "precision_tril"}
FORMS = list(itertools.product(MEANS, COVARIANCES))
NOISE = 0.3
M_A, M_B, P = 9, 5, 2


def points(num, seed):
    return np.random.default_rng(seed).uniform(-2, 2, (num, 2))


KERNEL = kernels.SquaredExponential(1.5, 0.8)


def model(x, y=None, *, z, kernel=KERNEL):
    """One layer of two outputs and two inputs."""
    f = dgp.gp("l1", kernel, z, out=P)
    with dgp.minibatch(x, y) as (x, y):
        law = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE).to_event(1))
        numpyro.sample("y", law, obs=y)


def random_params(mean, covariance, seed=0):
    rng = np.random.default_rng(seed)
    tril = np.tril(0.4 * rng.standard_normal((P, M_B, M_B)), -1) + 0.7 * np.eye(M_B)
    params = {"l1.v.z_mean": points(M_A, 1), "l1.v.weights": rng.standard_normal((M_A, P))}
    params[f"l1.v.{COVARIANCES[covariance]}"] = tril
    if mean == "orthogonal":
        params["l1.v.loc"] = rng.standard_normal((M_B, P))
    return {n: jnp.asarray(a, float) for n, a in params.items()}


def handed(guide, params, *args, **kwargs):
    """What the guide hands to its layers, by site."""
    program = handlers.substitute(handlers.seed(guide, KEY), data=params)
    sites = handlers.trace(program).get_trace(*args, **kwargs)
    return {n: s["infer"] for n, s in sites.items() if s["type"] == "sample"}


class Brute:
    """The same law in NumPy, at any points: of the values at W, one output at a time.

    The points' values carry independent noise of the jitter's variance, as the library has it.
    """

    def __init__(self, mean, covariance, params, kernel=squared_exponential):
        self.p = {n[5:]: np.asarray(a, np.float64) for n, a in params.items()}
        self.mean_form, self.covariance, self.kernel = mean, covariance, kernel
        self.z_b = points(M_B, 2)

    def at(self, extra, output):
        """Prior covariance, mean and covariance of q at Z_a, Z_b and the extra points."""
        a, b = slice(0, M_A), slice(M_A, M_A + M_B)
        W = np.concatenate([self.p["z_mean"], self.z_b, extra])
        K = self.kernel(W, W)
        K = K + default_jitter(np.float64) * K[0, 0] * np.eye(len(W))
        L_b = np.linalg.cholesky(K[b, b])
        m, R = self.p["weights"][:, output], self.p[COVARIANCES[self.covariance]][output]
        if self.mean_form == "gp_centred":
            mean = K[:, a] @ np.linalg.solve(np.linalg.cholesky(K[a, a]).T, m)
        elif self.mean_form == "gp":
            mean = K[:, a] @ np.linalg.solve(K[a, a], m)
        elif self.mean_form == "cb":
            mean = K[:, a] @ m
        else:
            orthogonal = K[:, a] - K[:, b] @ np.linalg.solve(K[b, b], K[b, a])
            mean = orthogonal @ m + K[:, b] @ np.linalg.solve(L_b.T, self.p["loc"][:, output])
        if self.covariance == "whitened":
            S = L_b @ R @ R.T @ L_b.T
        elif self.covariance == "gp":
            S = R @ R.T
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


@pytest.mark.parametrize(("mean", "covariance"), FORMS)
def test_kl_and_law_are_those_of_the_restricted_processes(mean, covariance, x64):
    """At Z_a and Z_b alone, with 20 points more; and the law of the function at new points."""
    params, z_b = random_params(mean, covariance), jnp.asarray(points(M_B, 2))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean, covariance=covariance)
    x = jnp.asarray(points(7, 3))

    infer = handed(guide, params, x, z=z_b)["l1.v"]
    law, sparse = infer["q"], infer["sparse"]
    kl = law.standard_kl()
    (joint_mean, joint_cov), (f_mean, f_var) = sparse.joint(law, x), sparse.marginals(law, x)
    brute = Brute(mean, covariance, params)
    assert kl == pytest.approx(brute.kl(points(0, 0)), rel=1e-8)
    assert kl == pytest.approx(brute.kl(points(20, 4)), rel=1e-8)
    for output in range(P):
        _, at_w, cov = brute.at(x, output)
        np.testing.assert_allclose(joint_mean[:, output], at_w[-7:], atol=1e-8)
        np.testing.assert_allclose(joint_cov[output], cov[-7:, -7:], atol=1e-8)
        np.testing.assert_allclose(f_mean[:, output], at_w[-7:], atol=1e-8)
        np.testing.assert_allclose(f_var[:, output], np.diag(cov)[-7:], atol=1e-8)


def coupled_params(mean, covariance, params, site="l1.v"):
    """Params of `Decoupled` with Z_a = Z_b that make the law of `MeanField`'s params."""
    p = {n: np.asarray(params[f"{site[:-2]}.{n}"]) for n in ("z", "v.loc", "v.scale_tril")}
    variance = float(params[f"{site[:-2]}.variance"])
    K = squared_exponential(p["z"], p["z"], variance)
    L = np.linalg.cholesky(K + default_jitter(np.float64) * variance * np.eye(len(K)))
    m, R = p["v.loc"], p["v.scale_tril"][0]
    weights = {"gp_centred": m, "gp": L @ m, "cb": np.linalg.solve(L.T, m)}
    S = L @ R @ R.T @ L.T
    precision = np.linalg.inv(S) - np.linalg.inv(L @ L.T)
    # B = T'T with T lower-triangular: a Cholesky factorisation from the other end.
    flip = np.eye(len(K))[::-1]
    T = {"whitened": lambda: R, "gp": lambda: np.linalg.cholesky(S)}.get(
        covariance, lambda: flip @ np.linalg.cholesky(flip @ precision @ flip).T @ flip
    )()
    new = {f"{site}.z_mean": p["z"], f"{site}.{COVARIANCES[covariance]}": T[None]}
    if mean == "orthogonal":
        new |= {f"{site}.loc": m, f"{site}.weights": np.ones_like(m)}
    else:
        new[f"{site}.weights"] = weights[mean]
    return {n: jnp.asarray(a) for n, a in new.items()}


@pytest.mark.parametrize(("mean", "covariance"), [FORMS[i] for i in (0, 4, 8, 9)])
def test_with_one_set_for_both_it_is_the_coupled_posterior(mean, covariance, x64):
    """Two layers at one key: the draws of the hidden layer are the same, and so are the bounds."""
    x, y = regression(rows=8)
    params = two_layer_params(variance=0.5)
    for l in (1, 2):  # below the prior's covariance, which "cb" cannot exceed
        params[f"l{l}.v.scale_tril"] = 0.5 * params[f"l{l}.v.scale_tril"]
    z = (spread(5), spread(5))
    ours = {n: a for n, a in params.items() if ".v." not in n}
    for site in ("l1.v", "l2.v"):
        ours |= coupled_params(mean, covariance, params, site)
    guide = Decoupled(deep_gp, spread(5), mean=mean, covariance=covariance)
    expected = bound(deep_gp, dgp.MeanField(deep_gp), params, x, y, z=z)
    assert bound(deep_gp, guide, ours, x, y, z=z) == pytest.approx(float(expected), rel=1e-7)


def best_params(x, y, z_a, z_b):
    """The optimal "gp_centred" mean and "whitened" covariance, in closed form (NumPy)."""
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
        "l1.v.weights": m[:, None],
        "l1.v.scale_tril": np.linalg.cholesky(S)[None],
        "l1.z": z_b,
        "l1.variance": 1.5,
        "l1.lengthscale": np.array([0.8]),
        "noise": NOISE,
    }
    return {n: jnp.asarray(a, float) for n, a in params.items()}


def test_order_of_the_bounds_at_their_optima(x64):
    """More points for the mean alone: above the coupled bound and below the evidence."""
    x, y = regression(rows=40)
    evidence = exact_evidence(x, y)

    def decoupled(z_a, z_b):
        guide = Decoupled(svgp, z_a, mean="gp_centred")
        return float(bound(svgp, guide, best_params(x, y, z_a, z_b), x, y, z=z_b))

    # The coupled optimum is SGPR's bound: log N(y; 0, Q + s² I) - tr(K - Q) / (2 s²).
    z = spread(5)
    Kzx = squared_exponential(z, x)
    Q = Kzx.T @ np.linalg.solve(squared_exponential(z, z), Kzx)
    law = stats.multivariate_normal(np.zeros(40), Q + NOISE**2 * np.eye(40))
    coupled = law.logpdf(y) - (1.5 * 40 - np.trace(Q)) / (2 * NOISE**2)
    assert decoupled(x, x) == pytest.approx(evidence, abs=1e-6)
    assert decoupled(z, z) == pytest.approx(coupled, abs=1e-6)
    assert coupled + 0.1 < decoupled(x, z) < evidence - 1


def test_the_optimum_is_one(x64):
    """The bound falls in any direction from the closed form's params."""
    x, y = regression(rows=20)
    z_a, z_b = spread(7), spread(4)
    best = best_params(x, y, z_a, z_b)
    names = ("l1.v.weights", "l1.v.scale_tril")
    guide = Decoupled(svgp, z_a, mean="gp_centred")
    gradient = jax.jit(
        jax.grad(lambda q: bound(svgp, guide, best | q, x, y, z=z_b)),
    )({n: best[n] for n in names})
    np.testing.assert_allclose(gradient["l1.v.weights"], 0, atol=1e-6)
    np.testing.assert_allclose(np.tril(gradient["l1.v.scale_tril"]), 0, atol=1e-6)


@pytest.mark.parametrize("mean", MEANS)
def test_the_prior_has_no_kl(mean, x64):
    z_b, x = jnp.asarray(points(M_B, 2)), jnp.asarray(points(4, 3))
    tiny = 1e-9 * jnp.tile(jnp.eye(M_B), (P, 1, 1))  # "cb" starts near the prior

    @jax.jit
    def kls():
        guides = [Decoupled(model, points(M_A, 1), mean=mean, covariance=c) for c in COVARIANCES]
        laws = [handed(g, {"l1.v.precision_tril": tiny}, x, z=z_b)["l1.v"]["q"] for g in guides]
        return jnp.stack([law.standard_kl() for law in laws])

    np.testing.assert_allclose(kls(), 0, atol=1e-10)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_params_and_where_they_start(covariance):
    """The hidden layer nearly deterministic, the last one at its prior, the mean at zero."""
    x, y = regression(rows=6)
    options = {"mean": "gp_centred", "covariance": covariance, "hidden_scale": 1e-3}
    guide = Decoupled(deep_gp, [spread(7), spread(6)], **options)
    z = (spread(4), spread(4))
    params = start(deep_gp, guide, x, y, z=z)
    name = COVARIANCES[covariance]
    own = {n: a.shape for n, a in params.items() if ".v." in n}
    assert own == {
        **{"l1.v.z_mean": (7, 1), "l1.v.weights": (7, 1), f"l1.v.{name}": (1, 4, 4)},
        **{"l2.v.z_mean": (6, 1), "l2.v.weights": (6, 1), f"l2.v.{name}": (1, 4, 4)},
    }
    np.testing.assert_array_equal(params["l1.v.z_mean"], spread(7))
    laws = handed(guide, params, x, y, z=z)
    nearly = 0.995 if covariance == "cb" else 1.0
    for site, scale in (("l1.v", 1e-3), ("l2.v", nearly)):
        law = laws[site]["q"]
        assert (law.loc == 0).all()
        cov = law.scale_tril @ law.scale_tril.swapaxes(-1, -2)
        np.testing.assert_allclose(cov[0], scale**2 * np.eye(4), atol=2e-3 * scale**2)


def test_draws_of_the_inducing_values_have_the_law():
    params = random_params("gp_centred", "cb")
    z_b, x = jnp.float32(points(M_B, 2)), jnp.float32(points(4, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean="gp_centred", covariance="cb")
    law = jax.jit(lambda p: handed(guide, p, x, z=z_b)["l1.v"]["q"])(params)

    @jax.jit
    def draw(p):
        return guide.sample_posterior(KEY, p, x, z=z_b, sample_shape=(4000,))["l1.v"]

    draws = draw(params)
    assert draws.shape == (4000, M_B, P)
    assert_mean(draws, law.loc)
    for output in range(P):
        R = np.asarray(law.scale_tril[output], float)
        assert_covariance(draws[..., output], R @ R.T)
    brute = Brute("gp_centred", "cb", params)
    L = np.linalg.cholesky(squared_exponential(brute.z_b, brute.z_b))
    mean_at_z = brute.at(points(0, 0), 0)[1][M_A:]
    np.testing.assert_allclose(L @ law.loc[:, 0], mean_at_z, atol=1e-4)


@pytest.mark.parametrize("mean", ["gp_centred", "orthogonal"])
def test_paths_have_the_mean_and_the_variance_of_the_law(mean):
    params = random_params(mean, "whitened")
    z_b, x = jnp.float32(points(M_B, 2)), jnp.float32(points(6, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean)
    infer = jax.jit(lambda p: handed(guide, p, x, z=z_b)["l1.v"])(params)
    f = RandomFunction(
        "l1", infer["sparse"].kernel, z_b, P, dgp.means.zero, jnp.zeros((M_B, P)), infer, None
    )
    draws = jax.jit(jax.vmap(lambda key: f.path(key, 500)(x)))(random.split(KEY, 3000))
    _, at_w, cov = Brute(mean, "whitened", params).at(np.asarray(x), 1)
    assert_mean(draws[..., 1], at_w[-6:])
    assert_covariance(draws[..., 1], cov[-6:, -6:])


def test_draws_of_functions_through_predict():
    """Whole draws of a one-layer model: their mean is the decoupled one, in both modes."""
    x, y = regression(rows=40)
    z_a, z_b = spread(12), spread(4)
    params = best_params(x, y, z_a, z_b)
    guide = Decoupled(svgp, z_a, mean="gp_centred")
    law = jax.jit(lambda p: handed(guide, p, x, z=z_b)["l1.v"])(params)
    mean = law["sparse"].marginals(law["q"], x[:6])[0][:, 0]
    p = dgp.predict(KEY, svgp, guide, params, x[:6], z=z_b)
    for kind in ("joint", "path"):
        draws = p.function_draws(random.key(1), 600, mode=kind)
        assert_mean(np.asarray(draws).reshape(600, 6), mean)


def two_layers(x, y=None, **kwargs):
    deep_gp(x, y, z=(spread(6), spread(6)), noise=0.2, **kwargs)


def test_a_mean_field_fit_is_a_start_of_the_orthogonal_form():
    """With zero weights it is `MeanField`: same params, same bound at the same key."""
    x, y = regression(rows=20)
    q = two_layer_params()
    params = {"noise": 0.2} | {n: a for n, a in q.items() if n != "noise"}
    z = (spread(5), spread(5))
    guide = Decoupled(deep_gp, spread(9), mean="orthogonal")
    ours = start(deep_gp, guide, x, y, z=z) | params
    expected = bound(deep_gp, dgp.MeanField(deep_gp), params, x, y, z=z)
    assert bound(deep_gp, guide, ours, x, y, z=z) == pytest.approx(float(expected), rel=1e-5)


def with_latents(y, *, batch_size=None):
    """A GPLVM with a hyperprior: a global and a local latent site besides the layer."""
    scale = numpyro.sample("scale", dist.LogNormal(0, 0.1))
    f = dgp.gp("l1", kernels.SquaredExponential(scale, 1.0), spread(4), out=2)
    with dgp.minibatch(y, batch_size=batch_size) as y:
        h = numpyro.sample("h", dist.Normal(0, 1))
        law = dgp.observe(f(h[:, None]), lambda f: dist.Normal(f, 0.3).to_event(1))
        numpyro.sample("y", law, obs=y)


def test_other_latent_sites_are_covered():
    y = jnp.stack([regression(rows=12)[1]] * 2, axis=1)
    guide = Decoupled(with_latents, spread(7))
    params = start(with_latents, guide, y)
    assert {"scale_auto_loc", "h_auto_loc", "l1.v.weights"} <= set(params)
    gradient = jax.jit(jax.grad(lambda p: bound(with_latents, guide, p, y)))(params)
    for name, value in gradient.items():
        assert np.isfinite(value).all(), name
        if name not in ("l1.v.z_mean", "l1.v.scale_tril"):
            assert (value != 0).any(), name
    draws = jax.jit(lambda p: guide.sample_posterior(KEY, p, y))(params)
    assert {n: a.shape for n, a in draws.items()} == {"l1.v": (4, 2), "scale": (), "h": (12,)}


@pytest.mark.parametrize(
    ("mean", "own_inputs"), list(zip(MEANS, (True, False, False, True), strict=True))
)
def test_outputs_with_kernels_and_inducing_inputs_of_their_own(mean, own_inputs, x64):
    """Each output is as in a model of its own."""
    params = random_params(mean, "whitened")
    variances, z_b = jnp.array([1.5, 0.7]), jnp.asarray(points(M_B, 2))
    kernel = kernels.PerOutput(kernels.SquaredExponential(variances, jnp.array([0.8, 1.1])))
    z = jnp.stack([z_b, z_b]) if own_inputs else z_b
    x = jnp.asarray(points(7, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean)

    infer = handed(guide, params, x, z=z, kernel=kernel)["l1.v"]
    kl, (f_mean, f_var) = infer["q"].standard_kl(), infer["sparse"].marginals(infer["q"], x)
    expected = 0.0
    for output, (variance, lengthscale) in enumerate(((1.5, 0.8), (0.7, 1.1))):
        brute = Brute(
            mean,
            "whitened",
            params,
            lambda a, b, v=variance, s=lengthscale: squared_exponential(a, b, v, s),
        )
        K, at_w, cov = brute.at(x, output)
        np.testing.assert_allclose(f_mean[:, output], at_w[-7:], atol=1e-7)
        np.testing.assert_allclose(f_var[:, output], np.diag(cov)[-7:], atol=1e-7)
        logs = np.linalg.slogdet(K)[1] - np.linalg.slogdet(cov)[1]
        quadratic = at_w @ np.linalg.solve(K, at_w)
        expected += 0.5 * (np.trace(np.linalg.solve(K, cov)) - len(K) + quadratic + logs)
    assert kl == pytest.approx(expected, rel=1e-7)


def test_a_law_rescaled_keeps_its_shift(x64):
    """The law of m + R (t + s e): mean and covariance move, and the KL is that of the new law."""
    params = random_params("gp_centred", "whitened")
    z_b, x = jnp.asarray(points(M_B, 2)), jnp.asarray(points(7, 3))
    guide = Decoupled(model, params["l1.v.z_mean"], mean="gp_centred")
    infer = handed(guide, params, x, z=z_b)["l1.v"]
    law, rng = infer["q"], np.random.default_rng(5)
    t, s = jnp.asarray(rng.standard_normal((M_B, P))), jnp.asarray(rng.uniform(0.5, 1, (M_B, P)))
    new = law.scaled(t, s)
    assert isinstance(new, DecoupledInducing)
    R = np.asarray(law.scale_tril)
    loc = np.asarray(law.loc) + np.einsum("pij,jp->ip", R, t)
    # In the orthogonal form the same law has these params.
    orthogonal = Decoupled(model, params["l1.v.z_mean"], mean="orthogonal")
    L_a = np.linalg.cholesky(
        squared_exponential(points(M_A, 1), points(M_A, 1))
        + default_jitter(np.float64) * 1.5 * np.eye(M_A)
    )
    same = params | {
        "l1.v.weights": jnp.asarray(np.linalg.solve(L_a.T, params["l1.v.weights"])),
        "l1.v.loc": jnp.asarray(loc),
        "l1.v.scale_tril": jnp.asarray(R * np.asarray(s).T[:, None, :]),
    }
    truth = handed(orthogonal, same, x, z=z_b)["l1.v"]["q"]
    assert new.standard_kl() == pytest.approx(float(truth.standard_kl()), rel=1e-8)
    for ours, theirs in zip(
        infer["sparse"].marginals(new, x), infer["sparse"].marginals(truth, x), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_errors():
    x, y = regression(rows=5)

    def run(z_mean, model=two_layers, args=(x, y)):
        with handlers.seed(rng_seed=0):
            Decoupled(model, z_mean)(*args)

    with pytest.raises(ValueError, match="mean is 'GP', wanted one of 'gp_centred', 'gp'"):
        Decoupled(two_layers, spread(4), mean="GP")
    with pytest.raises(ValueError, match="covariance is 'full', wanted one of 'whitened'"):
        Decoupled(two_layers, spread(4), covariance="full")
    with pytest.raises(ValueError, match=r"hidden_scale is 0, wanted one in \(0, 1\]"):
        Decoupled(two_layers, spread(4), hidden_scale=0)
    with pytest.raises(ValueError, match=r"layer 'l1' has shape \(4, 2\), wanted \[M_a, 1\]"):
        run(jnp.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"z_mean has 1 entries.*\['l1', 'l2'\]"):
        run([spread(4)])
    with pytest.raises(ValueError, match=r"for the layers \['l1'\], wanted.*\['l1', 'l2'\]"):
        run({"l1": spread(4)})
    with pytest.raises(ValueError, match=r"first argument has shape \(5,\), wanted \[N, D\]"):
        run(spread(4), lambda y: two_layers(x, y), (y,))
