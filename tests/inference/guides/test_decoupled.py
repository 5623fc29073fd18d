"""`Decoupled`: KL and moments against dense algebra, the coupled case, optimal bounds, errors."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import stats
from support.decoupled_forms import (
    COVARIANCES,
    FORMS,
    M_B,
    NOISE,
    DenseDecoupled,
    P,
    best_params,
    handovers,
    model,
    points,
    random_params,
)
from support.helpers import (
    bound,
    exact_evidence,
    regression,
    spread,
    squared_exponential,
    two_layer_params,
)

import dgp_ppl as dgp
from dgp_ppl.inference.guides._decoupled import Decoupled
from dgp_ppl.linalg import default_jitter
from dgp_ppl.models import deep_gp, svgp


@pytest.mark.parametrize(("mean", "covariance"), FORMS)
def test_kl_and_moments_of_the_restricted_processes(mean, covariance, x64):
    """The KL is exact at Z_a and Z_b, with or without 20 more points.

    The moments of the function at new points are exact too.
    """
    params, z_b = random_params(mean, covariance), jnp.asarray(points(M_B, 2))
    guide = Decoupled(model, params["l1.v.z_mean"], mean=mean, covariance=covariance)
    x = jnp.asarray(points(7, 3))

    handover = handovers(guide, params, x, z=z_b)["l1.v"]
    posterior, sparse = handover["q"], handover["sparse"]
    kl = posterior.standard_kl()
    (joint_mean, joint_cov), (f_mean, f_var) = (
        sparse.joint(posterior, x),
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


def coupled_params(mean, covariance, params, site="l1.v"):
    """Return params of `Decoupled` with Z_a = Z_b that give the posterior of `MeanField`."""
    p = {n: np.asarray(params[f"{site[:-2]}.{n}"]) for n in ("z", "v.loc", "v.scale_tril")}
    variance = float(params[f"{site[:-2]}.variance"])
    K = squared_exponential(p["z"], p["z"], variance)
    L = np.linalg.cholesky(K + default_jitter(np.float64) * variance * np.eye(len(K)))
    m, R = p["v.loc"], p["v.scale_tril"][0]
    weights = {"cb": np.linalg.solve(L.T, m)}
    S = L @ R @ R.T @ L.T
    precision = np.linalg.inv(S) - np.linalg.inv(L @ L.T)
    # B = T'T with a lower-triangular T: a Cholesky factorisation in reverse order.
    flip = np.eye(len(K))[::-1]
    T = R
    if covariance == "cb":
        T = flip @ np.linalg.cholesky(flip @ precision @ flip).T @ flip
    new = {f"{site}.z_mean": p["z"], f"{site}.{COVARIANCES[covariance]}": T[None]}
    if mean == "orthogonal":
        new |= {f"{site}.loc": m, f"{site}.weights": np.ones_like(m)}
    else:
        new[f"{site}.weights"] = weights[mean]
    return {n: jnp.asarray(a) for n, a in new.items()}


@pytest.mark.parametrize(("mean", "covariance"), FORMS[::3])
def test_with_one_set_for_both_it_is_the_coupled_posterior(mean, covariance, x64):
    """With two layers and the same key, the hidden draws and the bounds are equal."""
    x, y = regression(rows=8)
    params = two_layer_params(variance=0.5)
    for l in (1, 2):  # "cb" cannot exceed the prior's covariance
        params[f"l{l}.v.scale_tril"] = 0.5 * params[f"l{l}.v.scale_tril"]
    z = (spread(5), spread(5))
    ours = {n: a for n, a in params.items() if ".v." not in n}
    for site in ("l1.v", "l2.v"):
        ours |= coupled_params(mean, covariance, params, site)
    guide = Decoupled(deep_gp, spread(5), mean=mean, covariance=covariance)
    expected = bound(deep_gp, dgp.MeanField(deep_gp), params, x, y, z=z)
    assert bound(deep_gp, guide, ours, x, y, z=z) == pytest.approx(float(expected), rel=1e-7)


def test_order_of_the_bounds_at_their_optima(x64):
    """More inducing inputs for the mean raise the bound, but not above the evidence."""
    x, y = regression(rows=40)
    evidence = exact_evidence(x, y)

    def decoupled(z_a, z_b):
        guide = Decoupled(svgp, z_a, mean="cb")
        return float(bound(svgp, guide, best_params(x, y, z_a, z_b), x, y, z=z_b))

    # The coupled optimum is SGPR's bound: log N(y; 0, Q + s² I) - tr(K - Q) / (2 s²).
    z = spread(5)
    Kzx = squared_exponential(z, x)
    Q = Kzx.T @ np.linalg.solve(squared_exponential(z, z), Kzx)
    sgpr = stats.multivariate_normal(np.zeros(40), Q + NOISE**2 * np.eye(40))
    coupled = sgpr.logpdf(y) - (1.5 * 40 - np.trace(Q)) / (2 * NOISE**2)
    assert decoupled(x, x) == pytest.approx(evidence, abs=1e-6)
    assert decoupled(z, z) == pytest.approx(coupled, abs=1e-6)
    assert coupled + 0.1 < decoupled(x, z) < evidence - 1


def two_layers(x, y=None, **kwargs):
    deep_gp(x, y, z=(spread(6), spread(6)), noise=0.2, **kwargs)


def test_errors():
    x, y = regression(rows=5)

    def run(z_mean, model=two_layers, args=(x, y)):
        with handlers.seed(rng_seed=0):
            Decoupled(model, z_mean)(*args)

    with pytest.raises(ValueError, match="mean is 'GP', wanted one of 'orthogonal', 'cb'"):
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
    run(spread(4), lambda y: two_layers(x, y), (y,))  # no x among the arguments
