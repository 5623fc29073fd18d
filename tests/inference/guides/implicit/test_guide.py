import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from scipy import stats
from support.adversarial import (
    Line,
    Z,
    columns,
    dense,
    idle,
    line_kl,
    random_params,
    small,
)
from support.helpers import (
    KEY,
    assert_mean,
    bound,
    one_layer,
    regression,
    spread,
    squared_exponential,
)

import dgp_ppl as dgp
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.guides.implicit._elbo import AdversarialELBO
from dgp_ppl.inference.guides.implicit._guide import Implicit


@pytest.mark.parametrize("make", [Line, None])
def test_draws_have_the_distribution_of_the_generator(make):
    """The noise that both layers share correlates outputs and layers."""
    x, y = regression(rows=5)
    guide = Implicit(idle, generator=make, noise_dim=2)
    params = random_params(guide, x, y)
    mean, R = dense(guide, params)
    cov = R @ R.T
    if make is Line:
        mean, cov, _ = line_kl(guide, params)
        assert np.abs(cov[:6, 6:]).max() > 0.1
    draws = jax.jit(lambda p: guide.sample_posterior(KEY, p, x, sample_shape=(6000,)))(params)
    flat = columns({n: draws[n] for n in ("l1.v", "l2.v")})
    assert_mean(flat, mean)
    centred = flat - flat.mean(axis=0)
    assert_mean(centred[:, :, None] * centred[:, None, :], cov)


def test_a_gaussian_generator_has_the_mean_field_bound():
    """Exactly, where the discriminator is zero."""
    x, y = regression(rows=8)
    guide = Implicit(one_layer, generator=None)
    params = random_params(guide, x, y, z=spread(4))
    params = {n: jnp.zeros_like(a) if "discr" in n else a for n, a in params.items()}
    q = guide.adversarial_pair(params).affine["l1.v"]
    given = {"l1.v.loc": q.loc, "l1.v.scale_tril": q.scale_tril}
    truth = bound(one_layer, dgp.MeanField(one_layer), given, x, y, z=spread(4))
    one = lambda k: -AdversarialELBO(2, 2).loss(k, params, one_layer, guide, x, y, z=spread(4))  # noqa: E731
    values = jax.jit(jax.vmap(one))(random.split(KEY, 50))
    np.testing.assert_allclose(values, truth, rtol=1e-5)


def collapsed_bound(x, y, z, noise=0.3, variance=1.5):
    """Return Titsias's bound of `one_layer`, that of the best q(v), in NumPy."""
    cross, eye = squared_exponential(z, x), np.eye(len(z))
    Q = cross.T @ np.linalg.solve(squared_exponential(z, z) + 1e-6 * eye, cross)
    marginal = stats.multivariate_normal(np.zeros(len(x)), Q + noise**2 * np.eye(len(x)))
    trace = variance * len(x) - np.trace(Q)
    return marginal.logpdf(np.asarray(y, float)) - 0.5 * trace / noise**2


@pytest.mark.slow
def test_one_layer_with_gaussian_noise_converges_to_the_svgp_optimum():
    """Within 0.05 nats per datum, both as reported and with the KL's upper bound."""
    x, y = regression(rows=40)
    z = spread(6)
    guide = Implicit(one_layer, **small)
    fitted = dgp.fit(KEY, one_layer, guide, x, y, z=z, steps=800, progress=False)
    best = collapsed_bound(x, y, z) / len(y)
    reported = fitted.elbo_per_datum[-100:].mean()
    certified = evaluate(KEY, one_layer, guide, fitted.params, x, y, z=z)[0] / len(y)
    assert best - 0.05 < reported < best + 0.05
    assert best - 0.05 < certified < best + 0.01


def test_other_latent_sites_pay_their_own_kl():
    """The loss moves by exactly that KL where the data do not depend on the site."""

    def apart(x, y=None):
        numpyro.sample("w", dist.Normal(0, 1))
        one_layer(x, y, z=Z)

    x, y = regression(rows=5)
    guide = Implicit(apart, generator=None)
    params = random_params(guide, x, y) | {
        "w_auto_loc": jnp.array(0.0),
        "w_auto_scale": jnp.array(1.0),
    }
    moved = params | {"w_auto_loc": jnp.array(1.5), "w_auto_scale": jnp.array(0.5)}
    loss = jax.jit(lambda p: AdversarialELBO(2, 2).loss(KEY, p, apart, guide, x, y))
    losses = [loss(p) for p in (params, moved)]
    kl = 0.5 * (0.25 + 1.5**2 - 1 - np.log(0.25))
    np.testing.assert_allclose(losses[1] - losses[0], kl, rtol=1e-4)
    draws = jax.jit(lambda p: guide.sample_posterior(KEY, p, x, sample_shape=(3000,)))(moved)
    assert draws["l1.v"].shape == (3000, 3, 1)
    assert_mean(draws["w"], 1.5)


def test_errors():
    x, y = regression(rows=5)
    mean_field, guide = dgp.MeanField(idle), Implicit(idle, **small)
    with pytest.raises(ValueError, match="call the guide once"):
        guide.adversarial_pair({})
    guide.setup(x, y)
    params = random_params(guide, x, y)
    of_mean_field = random_params(mean_field, x, y)
    for error, message, make in (
        (
            TypeError,
            "guide is MeanField, wanted one with a discriminator",
            lambda: AdversarialELBO().loss(KEY, of_mean_field, idle, mean_field, x, y),
        ),
        (ValueError, "kl_draws is 2, wanted at least num_draws, 4", lambda: AdversarialELBO(4, 2)),
        (ValueError, "noise_dim is 0, wanted at least 1", lambda: Implicit(idle, noise_dim=0)),
        (TypeError, "generator is 'net', wanted", lambda: Implicit(idle, generator="net")),
        (TypeError, "discriminator is None", lambda: Implicit(idle, discriminator=None)),
        (ValueError, "direction_scale is 0", lambda: Implicit(idle, direction_scale=0)),
        (
            ValueError,
            r"params lack some of implicit\.generator\.\*",
            lambda: guide.adversarial_pair({}),
        ),
        (
            ValueError,
            "Implicit needs a random key",
            lambda: handlers.substitute(guide, data=params)(x, y),
        ),
        (
            ValueError,
            "base is .*Implicit.*, wanted MeanField",
            lambda: dgp.Diffusion(guide.model, base=guide),
        ),
    ):
        with pytest.raises(error, match=message):
            make()
