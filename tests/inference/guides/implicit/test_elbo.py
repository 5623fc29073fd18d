"""The objective of implicit posteriors: gradients, fits, and values."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro.infer import SVI
from scipy import special, stats
from support.adversarial import (
    Fork,
    Line,
    columns,
    dense,
    fork_kl,
    gaussian_kl,
    idle,
    line_kl,
    random_params,
    single,
    small,
)
from support.helpers import (
    KEY,
    assert_derivatives,
    assert_mean,
    exact_evidence,
    one_layer,
    regression,
    start,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.guides.implicit._elbo import AdversarialELBO
from dgp_ppl.inference.guides.implicit._guide import Implicit
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet
from dgp_ppl.inference.guides.implicit._optimizer import adversarial_optimizer


def discriminator_only(steps, learning_rate):
    """Make an optimiser that trains the discriminator alone."""

    def label(params):
        return {n: "free" if n.startswith("implicit.discriminator.") else "fixed" for n in params}

    rate = optax.cosine_decay_schedule(learning_rate, steps, 0.03)
    return optax.partition({"free": optax.adam(rate, b1=0.5), "fixed": optax.set_to_zero()}, label)


def estimates(guide, params):
    """Return draws of the discriminator's KL estimate and of the upper bound, [S / 2] each."""
    pair = guide.adversarial_pair(params)
    key_s, key_e, key_others = random.split(KEY, 3)
    h, others = pair.features(key_s, 8000), pair.features(key_others, 4000)[::2]
    estimate = pair.log_ratio(h, pair.discriminator_inputs(key_e, h))
    terms = (estimate, pair.kl_bound(key_e, h, others))
    return [a.reshape(-1, 2).mean(axis=1) for a in terms]  # pairs are antithetic


@pytest.mark.slow
def test_the_discriminator_tracks_the_kl():
    """It starts at zero and comes within 6 % of the truth for a q(v) of two modes."""
    x, y = regression(rows=5)
    guide = Implicit(idle, generator=Fork, noise_dim=1, discriminator=small["discriminator"])
    params = random_params(guide, x, y)
    truth = fork_kl(guide, params)
    untrained = {n: a for n, a in params.items() if "implicit.discriminator" not in n}
    fitted = dgp.fit(
        KEY, idle, guide, x, y, start=untrained, steps=1000, loss=AdversarialELBO(1, 256),
        optimizer=discriminator_only(1000, 0.02), progress=False,
    )  # fmt: skip
    estimate, upper = estimates(guide, fitted.params)
    error = 4 * estimate.std() / np.sqrt(len(estimate))
    assert abs(estimate.mean() - truth) < 0.06 * truth + error
    assert truth - error < upper.mean() < truth + 0.1 + error


@pytest.mark.parametrize("make", [Line, None])
def test_the_upper_bound_on_the_kl(make):
    """It closes in on the KL with the number of draws; for a Gaussian generator it is exact."""
    guide = Implicit(idle, generator=make, noise_dim=2)
    params = random_params(guide, *regression(rows=5))
    pair, (mean, R) = guide.adversarial_pair(params), dense(guide, params)
    truth = gaussian_kl(mean, R @ R.T) if make is None else line_kl(guide, params)[2]
    h = pair.features(KEY, 4000)
    if make is None:
        np.testing.assert_allclose(pair.kl_bound(KEY, h, h), truth, rtol=1e-4)
        return
    few, many = (pair.kl_bound(KEY, h, pair.features(random.key(1), 2 * n)[::2]) for n in (5, 2000))
    error = 4.5 * np.std(many) / np.sqrt(2000)
    assert truth - error < many.mean() < truth + error
    assert many.mean() < few.mean()
    # q is Gaussian, so the KL of the Gaussian with the draws' moments is a closed form.
    U = columns(pair.directions)
    cov = R @ (np.eye(len(mean)) + U.T @ np.cov(np.asarray(h, float).T, bias=True) @ U) @ R.T
    np.testing.assert_allclose(pair.gaussian_kl(h).mean(), gaussian_kl(mean, cov), rtol=1e-3)


def test_gradients_of_generator_and_discriminator(x64):
    """Each gets the gradient of its objective only."""
    x, y = regression(rows=5)
    guide, loss = Implicit(single, **small), AdversarialELBO(2, 8)
    params = random_params(guide, x, y)
    discriminator = {n: a for n, a in params.items() if n.startswith("implicit.discriminator.")}
    others = {n: a for n, a in params.items() if n not in discriminator and "scale_tril" not in n}

    def value(others, discriminator):
        return loss.loss(KEY, params | others | discriminator, single, guide, x, y)

    # The value is the data term and the KL's estimate, so its differences give the generator's
    # gradient.
    assert_derivatives(lambda others: value(others, discriminator), others)

    def cross_entropy(discriminator):
        key_s, _, key_z, key_p, _ = random.split(KEY, 5)
        pair = guide.adversarial_pair(params | discriminator)
        t = jax.vmap(pair.discriminator)
        of_q = t(pair.discriminator_inputs(key_z, pair.features(key_s, 8)))
        of_reference = t(pair.reference_inputs(key_p, 8))
        is_q, is_reference = jax.nn.sigmoid(of_q), jax.nn.sigmoid(-of_reference)
        return -jnp.mean(jnp.log(is_q)) - jnp.mean(jnp.log(is_reference))

    found = jax.jit(jax.grad(value, 1))(others, discriminator)
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


@pytest.mark.slow
def test_evaluate_reports_a_bound_for_any_discriminator():
    """With a discriminator that is 5 nats too low the loss exceeds the evidence."""
    x, y = regression(rows=5)
    z = x
    guide = Implicit(one_layer, generator=None)
    params = start(one_layer, guide, x, y, z=z)
    low = lambda n: -5.0 if n.endswith("last.bias") else 0.0  # noqa: E731
    params |= {n: 0 * a + low(n) for n, a in params.items() if "implicit.discri" in n}
    best = dgp.fit(KEY, one_layer, dgp.MeanField(one_layer), x, y, z=z, steps=300, progress=False)
    params |= {f"implicit.affine.{n}": a for n, a in best.params.items() if n.startswith("l1.v.")}
    evidence = exact_evidence(x, y)
    uncertified, error = evaluate(
        KEY, one_layer, guide, params, x, y, z=z, loss=AdversarialELBO(), num_draws=200
    )
    assert uncertified > evidence + 4.5 * error
    found, error = evaluate(KEY, one_layer, guide, params, x, y, z=z, num_draws=200)
    assert evidence - 0.5 < found < evidence + 4.5 * error


@pytest.mark.slow
def test_a_statistic_of_few_numbers_loses_nothing():
    """The KL of the statistic of K numbers equals that of all inducing values, by brute force."""
    guide = Implicit(idle, **small, noise_dim=2)
    params = random_params(guide, *regression(rows=5))
    params = {n: 2 * a if ".generator." in n else a for n, a in params.items()}
    mean, R = dense(guide, params)
    pair = guide.adversarial_pair(params)
    h, others = (pair.features(k, n) for k, n in zip(random.split(KEY), (8000, 300), strict=True))
    v = columns(pair.values(KEY, h))
    centres = np.asarray(others) @ columns(pair.directions)
    e = np.linalg.solve(R, (v - mean).T).T
    squares = ((e[:, None, :] - centres) ** 2).sum(axis=-1)
    own = ((e - np.asarray(h) @ columns(pair.directions)) ** 2).sum(axis=-1)
    sums = special.logsumexp(-0.5 * np.c_[squares, own], axis=1)
    log_q = sums - np.log(301) - np.linalg.slogdet(R)[1]
    brute = log_q + 0.5 * (v**2).sum(axis=1)
    found = np.asarray(pair.kl_bound(random.key(7), h, others), float)
    pairs = (brute - found).reshape(-1, 2).mean(axis=1)  # antithetic
    assert_mean(pairs, 0)
    assert pairs.std() / np.sqrt(len(pairs)) < 0.1
    assert np.mean(found) - np.mean(np.asarray(pair.gaussian_kl(h))) > 0.05  # q is not a Gaussian
