"""`Decoupled`: draws, predictions, kernels and inducing inputs per output, rescaled posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import Predictive
from support.decoupled_forms import (
    M_B,
    MEANS,
    DenseDecoupled,
    P,
    handovers,
    model,
    points,
    random_params,
)
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    squared_exponential,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.core import Handover
from dgp_ppl.core._gp import RandomFunction
from dgp_ppl.inference.guides._decoupled import Decoupled, DecoupledInducing


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


@pytest.mark.parametrize(("mean", "z_per_output"), list(zip(MEANS, (True, False), strict=True)))
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
    expected = 0.0
    for output, (variance, lengthscale) in enumerate(((1.5, 0.8), (0.7, 1.1))):
        dense = DenseDecoupled(
            mean,
            "whitened",
            params,
            lambda a, b, v=variance, s=lengthscale: squared_exponential(a, b, v, s),
        )
        K, at_w, cov = dense.at(x, output)
        np.testing.assert_allclose(f_mean[:, output], at_w[-7:], atol=1e-7)
        np.testing.assert_allclose(f_var[:, output], np.diag(cov)[-7:], atol=1e-7)
        logs = np.linalg.slogdet(K)[1] - np.linalg.slogdet(cov)[1]
        quadratic = at_w @ np.linalg.solve(K, at_w)
        expected += 0.5 * (np.trace(np.linalg.solve(K, cov)) - len(K) + quadratic + logs)
    assert kl == pytest.approx(expected, rel=1e-7)


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
