"""Implicit guides: draws, the discriminator, the bound on the KL, gradients and fits."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import SVI, TraceMeanField_ELBO
from scipy import stats
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    bound,
    collapsed_bound,
    one_layer,
    regression,
    spread,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.guides.implicit._guide import AdversarialELBO, Implicit
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet
from dgp_ppl.inference.programs._optimizer import adversarial_optimizer

Z = np.float32([[-1.0], [0.0], [1.0]])


def idle(x, y=None):
    """The same layers, with data that do not depend on them, for tests of q(v) alone."""
    dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), 1.0), obs=y)


class Line(eqx.Module):
    """h(s) = s, so q is a Gaussian that correlates the layers."""

    def __init__(self, noise_dim, *, key):
        pass

    def __call__(self, shared):
        return shared


class Fork(eqx.Module):
    """h(s) = 2 tanh(5 s), so q has two modes."""

    def __init__(self, noise_dim, *, key):
        assert noise_dim == 1

    def __call__(self, shared):
        return 2 * jnp.tanh(5 * shared)


single = partial(one_layer, z=Z)

small = {
    "generator": partial(GeneratorNet, width=8),
    "discriminator": partial(DiscriminatorNet, width=8, rank=9),
}


def random_params(guide, *args, **kwargs):
    """Draw params of a guide, away from their initial values."""
    svi = SVI(guide.model, guide, optax.adam(0.01), TraceMeanField_ELBO())
    shapes = jax.eval_shape(lambda key: svi.get_params(svi.init(key, *args, **kwargs)), KEY)
    rng = np.random.default_rng(3)

    def drawn(name, shape):
        a = (0.9 if name.endswith("directions") else 0.3) * rng.standard_normal(shape)
        if name.endswith("scale_tril"):
            return np.tril(a, -1) + 0.5 * np.eye(shape[-1])
        return a

    return {n: jnp.asarray(drawn(n, a.shape), a.dtype) for n, a in shapes.items()}


def dense(guide, params):
    """Return mean and root of all layers' affine parts, with one block per output."""
    from scipy.linalg import block_diag

    affine = guide.adversarial_pair(params).affine
    means = np.concatenate([np.asarray(q.loc, float).T.ravel() for q in affine.values()])
    return means, block_diag(*[np.asarray(R, float) for q in affine.values() for R in q.scale_tril])


def columns(values):
    """Flatten draws to [S, number of values], with a layer's outputs one after the other."""
    flat = [np.swapaxes(np.asarray(v, float), 1, 2).reshape(len(v), -1) for v in values.values()]
    return np.concatenate(flat, axis=1)


def gaussian_kl(mean, cov):
    return 0.5 * (np.trace(cov) - len(mean) + mean @ mean - np.linalg.slogdet(cov)[1])


def line_kl(guide, params):
    """Return the moments of a `Line` guide's q(v), and its KL from the prior."""
    mean, R = dense(guide, params)
    U = columns(guide.adversarial_pair(params).directions)
    cov = R @ (np.eye(len(mean)) + U.T @ U) @ R.T
    return mean, cov, gaussian_kl(mean, cov)


def fork_kl(guide, params):
    """Return the KL of a `Fork` guide's q(v) from the prior, by quadrature."""
    mean, R = dense(guide, params)
    U = columns(guide.adversarial_pair(params).directions)
    s = np.linspace(-8, 8, 2001)
    weights, h = stats.norm.pdf(s) * (s[1] - s[0]), 2 * np.tanh(5 * s)
    cov = R @ (np.eye(len(mean)) + (weights @ h**2) * U.T @ U) @ R.T
    length = np.linalg.norm(U)
    a = np.linspace(-1, 1, 2001) * (2 * length + 8)
    density = stats.norm.pdf(a[:, None], length * h) @ weights
    normal = stats.norm.logpdf(a, 0, np.sqrt(1 + length**2 * weights @ h**2))
    return gaussian_kl(mean, cov) + np.sum(density * (np.log(density) - normal)) * (a[1] - a[0])


def test_draws_have_the_distribution_of_the_generator():
    """The noise that both layers share correlates outputs and layers."""
    x, y = regression(rows=5)
    guide = Implicit(idle, generator=lambda K, key=None: Line(K, key=key), noise_dim=2)
    params = random_params(guide, x, y)
    mean, cov, _ = line_kl(guide, params)
    assert np.abs(cov[:6, 6:]).max() > 0.1
    draws = jax.jit(lambda p: guide.sample_posterior(KEY, p, x, sample_shape=(6000,)))(params)
    flat = columns({n: draws[n] for n in ("l1.v", "l2.v")})
    assert_mean(flat, mean)
    centred = flat - flat.mean(axis=0)
    assert_mean(centred[:, :, None] * centred[:, None, :], cov)


def test_a_gaussian_generator_has_the_mean_field_bound():
    """Exactly: by the KL's upper bound, which `evaluate` takes, or a discriminator of zero."""
    x, y = regression(rows=5)
    guide = Implicit(single, generator=None, discriminator=small["discriminator"])
    params = random_params(guide, x, y)
    q = guide.adversarial_pair(params).affine["l1.v"]
    given = {"l1.v.loc": q.loc, "l1.v.scale_tril": q.scale_tril}
    truth = bound(single, dgp.MeanField(single), given, x, y)
    zero = {n: jnp.zeros_like(a) if "discr" in n else a for n, a in params.items()}
    assert guide.bound_loss.certified
    for certified, at in ((True, params), (False, zero)):
        loss = AdversarialELBO(2, 2, certified=certified)
        value = jax.jit(lambda p, loss=loss: loss.loss(KEY, p, single, guide, x, y))(at)
        np.testing.assert_allclose(-value, truth, rtol=1e-5)


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


def test_errors():
    x, y = regression(rows=5)
    mean_field, guide = dgp.MeanField(idle), Implicit(idle, **small)
    with pytest.raises(ValueError, match="call the guide once"):
        guide.adversarial_pair({})
    guide.setup(x, y)
    params = random_params(guide, x, y)
    for error, message, make in (
        (TypeError, "guide is a MeanField, wanted a dgp_ppl.Implicit",
         lambda: AdversarialELBO().loss(KEY, {}, idle, mean_field, x, y)),
        (ValueError, "kl_draws is 2, wanted at least num_draws, 4", lambda: AdversarialELBO(4, 2)),
        (ValueError, "noise_dim is 0, wanted at least 1", lambda: Implicit(idle, noise_dim=0)),
        (TypeError, "generator is 'net', wanted", lambda: Implicit(idle, generator="net")),
        (TypeError, "discriminator is None", lambda: Implicit(idle, discriminator=None)),
        (ValueError, "direction_scale is 0", lambda: Implicit(idle, direction_scale=0)),
        (ValueError, r"params lack some of implicit\.generator\.\*",
         lambda: guide.adversarial_pair({})),
        (ValueError, "Implicit needs a random key",
         lambda: handlers.substitute(guide, data=params)(x, y)),
        (ValueError, "base is .*Implicit.*, wanted MeanField",
         lambda: dgp.Diffusion(guide.model, base=guide)),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            make()


@pytest.mark.slow
def test_the_discriminator_tracks_the_kl():
    """It starts at zero and comes within 6 % of the truth for a q(v) of two modes."""
    x, y = regression(rows=5)
    guide = Implicit(idle, generator=Fork, noise_dim=1, discriminator=small["discriminator"])
    params = random_params(guide, x, y)
    truth = fork_kl(guide, params)
    untrained = {n: a for n, a in params.items() if "implicit.discriminator" not in n}
    adam = optax.adam(optax.cosine_decay_schedule(0.02, 1000, 0.03), b1=0.5)
    alone = optax.partition(  # it trains the discriminator alone
        {"free": adam, "fixed": optax.set_to_zero()},
        lambda params: {n: "free" if "implicit.discriminator." in n else "fixed" for n in params},
    )
    fitted = dgp.fit(
        KEY, idle, guide, x, y, start=untrained, steps=1000, loss=AdversarialELBO(1, 256),
        optimizer=alone, progress=False,
    )  # fmt: skip
    pair, keys = guide.adversarial_pair(fitted.params), random.split(KEY, 3)
    h, others = pair.features(keys[0], 8000), pair.features(keys[2], 4000)[::2]
    draws = (
        pair.log_ratio(h, pair.discriminator_inputs(keys[1], h)),
        pair.kl_bound(keys[1], h, others),
    )
    estimate, upper = (a.reshape(-1, 2).mean(axis=1) for a in draws)  # pairs are antithetic
    error = 4 * estimate.std() / np.sqrt(len(estimate))
    assert abs(estimate.mean() - truth) < 0.06 * truth + error
    assert truth - error < upper.mean() < truth + 0.1 + error


def test_the_upper_bound_on_the_kl():
    """It closes in on the KL with the number of draws."""
    guide = Implicit(idle, generator=Line, discriminator=small["discriminator"], noise_dim=2)
    params = random_params(guide, *regression(rows=5))
    pair, (mean, R) = guide.adversarial_pair(params), dense(guide, params)
    truth = line_kl(guide, params)[2]

    @jax.jit
    def at_draws():
        h = pair.features(KEY, 2000)
        others = (pair.features(random.key(1), 2 * n)[::2] for n in (5, 1000))
        away = h + jnp.array([0.5, -0.3])
        inputs = pair.discriminator_inputs(random.key(2), away)["shared"]
        return [pair.kl_bound(KEY, h, o) for o in others], away, pair.gaussian_kl(away), inputs

    (few, many), h, found, inputs = at_draws()
    error = 4.5 * np.std(many) / np.sqrt(1000)
    assert truth - error < many.mean() < truth + error
    assert many.mean() < few.mean()
    # q is Gaussian, so the KL of the Gaussian with the draws' moments is a closed form.
    U = columns(pair.directions)
    mean = mean + R @ U.T @ np.mean(np.asarray(h, float), axis=0)
    cov = R @ (np.eye(len(mean)) + U.T @ np.cov(np.asarray(h, float).T, bias=True) @ U) @ R.T
    np.testing.assert_allclose(found.mean(), gaussian_kl(mean, cov), rtol=1e-3)
    assert_covariance(np.asarray(inputs[::2, :, 0], float), np.eye(2))  # of antithetic pairs


def test_gradients_of_generator_and_discriminator(x64):
    """Each gets the gradient of its objective only."""
    x, y = regression(rows=5)
    networks = {"generator": partial(GeneratorNet, width=3)}
    networks["discriminator"] = partial(DiscriminatorNet, width=3, rank=2)
    guide, loss = Implicit(single, **networks, noise_dim=2), AdversarialELBO(2, 8)
    params = random_params(guide, x, y)
    discriminator = {n: a for n, a in params.items() if n.startswith("implicit.discriminator.")}
    others = {n: a for n, a in params.items() if n not in discriminator and "scale_tril" not in n}

    def value(others, discriminator):
        return loss.loss(KEY, params | others | discriminator, single, guide, x, y)

    # The value is the data term and the KL's estimate, so its differences give the generator's
    # gradient.
    both = jax.jit(jax.value_and_grad(value, (0, 1)))
    _, (gradient, found) = both(others, discriminator)
    flat, unravel = ravel_pytree(others)
    u = 1e-5 * np.random.default_rng(1).standard_normal(flat.size)
    above, below = (both(unravel(flat + step), discriminator)[0] for step in (u, -u))
    assert ravel_pytree(gradient)[0] @ u == pytest.approx(float(above - below) / 2, rel=1e-6)

    def cross_entropy(discriminator):
        key_s, _, key_z, key_p, _ = random.split(KEY, 5)
        pair = guide.adversarial_pair(params | discriminator)
        t = jax.vmap(pair.discriminator)
        of_q = t(pair.discriminator_inputs(key_z, pair.features(key_s, 8)))
        of_reference = t(pair.reference_inputs(key_p, 8))
        is_q, is_reference = jax.nn.sigmoid(of_q), jax.nn.sigmoid(-of_reference)
        return -jnp.mean(jnp.log(is_q)) - jnp.mean(jnp.log(is_reference))

    wanted = jax.jit(jax.grad(cross_entropy))(discriminator)
    for n in discriminator:
        np.testing.assert_allclose(found[n], wanted[n], rtol=1e-7, atol=1e-10)
    assert max(np.abs(g).max() for g in found.values()) > 0.01


@pytest.mark.slow
def test_a_posterior_of_two_modes():
    """y = f² + noise leaves the sign of f open: one mode, as in mean field, loses log 2 nats."""

    def squared(x, y=None):
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), np.zeros((1, 1), np.float32))
        with dgp.minibatch(x, y) as (x, y):
            likelihood = lambda f: dist.Normal(jnp.square(f), 0.3)  # noqa: E731
            numpyro.sample("y", dgp.observe(f(x), likelihood), obs=y)

    x, y = jnp.zeros((1, 1)), jnp.array([1.5])
    v = np.linspace(-6, 6, 4001)
    evidence = np.log(np.sum(stats.norm.pdf(v) * stats.norm.pdf(1.5, v**2, 0.3)) * (v[1] - v[0]))
    generator = partial(GeneratorNet, scale=3.0)
    discriminator = partial(DiscriminatorNet, width=16, rank=4)
    options = {"generator": generator, "discriminator": discriminator, "direction_scale": 1.0}
    guide = Implicit(squared, **options, noise_dim=2)
    guide.setup(x, y)
    optimizer = adversarial_optimizer(0.03, 1000, generator=0.3, discriminator=1.0)
    svi = SVI(squared, guide, optimizer, AdversarialELBO(16, 128))

    @jax.jit
    @jax.vmap
    def certified(key):
        """Return the certified bound, and the share of draws above 0."""
        state = svi.init(key, x, y)
        state = jax.lax.fori_loop(0, 1000, lambda i, s: svi.update(s, x, y)[0], state)
        params = svi.get_params(state)
        loss = AdversarialELBO(1000, 1000, certified=True)
        pair = guide.adversarial_pair(params)
        values = pair.values(key, pair.features(key, 2000))
        return -loss.loss(key, params, squared, guide, x, y), jnp.mean(values["l1.v"] > 0)

    values, above = certified(random.split(KEY, 6))
    assert (values < evidence + 0.1).all()
    assert ((above > 0.2) & (above < 0.8)).all()
    gains = values - (evidence - np.log(2))
    assert (gains > 0.2).all()
    assert jnp.median(gains) > 0.35
