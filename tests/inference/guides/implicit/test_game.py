"""The game of an implicit guide: its players, their gradients, and what is reported of it."""

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
    slow,
    start,
)

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference._fit import evaluate
from dgp_ppl.inference.guides.implicit._game import (
    AdversarialELBO,
    adversarial_optimizer,
    discriminator_gap,
)
from dgp_ppl.inference.guides.implicit._guide import DiscriminatorNet, GeneratorNet, Implicit


@pytest.mark.parametrize("make", [slow(Line), Fork])
def test_bounds_of_the_kl_are_tight_around_it(make):
    guide = Implicit(idle, generator=make, noise_dim=1)
    params = random_params(guide, *regression(rows=5))
    truth = line_kl(guide, params)[2] if make is Line else fork_kl(guide, params)
    for others, slack in ((30, 0.5), (3000, 0.01)):
        gap = discriminator_gap(KEY, guide, params, num_draws=20_000, num_others=others)
        assert gap.lower - 4 * gap.lower_se < truth < gap.upper + 4 * gap.upper_se
        assert truth - gap.lower < slack + 4 * gap.lower_se
        assert gap.upper - truth < slack + 4 * gap.upper_se


@pytest.mark.slow
def test_a_game_of_few_numbers_loses_nothing():
    """The KL by the statistic of K numbers is that of all inducing values, by brute force."""
    guide = Implicit(idle, **small, noise_dim=2)
    params = random_params(guide, *regression(rows=5))
    params = {n: 2 * a if ".generator." in n else a for n, a in params.items()}
    mean, R = dense(guide, params)
    players = guide.players(params)
    h, others = (
        players.features(k, n) for k, n in zip(random.split(KEY), (8000, 300), strict=True)
    )
    v = columns(players.values(KEY, h))
    centres = np.asarray(others) @ columns(players.directions)
    e = np.linalg.solve(R, (v - mean).T).T
    squares = ((e[:, None, :] - centres) ** 2).sum(axis=-1)
    log_q = special.logsumexp(-0.5 * squares, axis=1) - np.log(300) - np.linalg.slogdet(R)[1]
    brute = log_q + 0.5 * (v**2).sum(axis=1)
    found = np.asarray(players.kl_bounds(random.key(7), h, others)[0], float)
    pairs = (brute - found).reshape(-1, 2).mean(axis=1)  # antithetic
    assert_mean(pairs, 0)
    assert pairs.std() / np.sqrt(len(pairs)) < 0.1
    assert np.mean(found) - np.mean(np.asarray(players.gaussian_kl(h))) > 0.05  # q is no Gaussian


def held(steps, learning_rate):
    """Trains the discriminator only."""

    def label(params):
        return {n: "free" if n.startswith("implicit.discriminator.") else "held" for n in params}

    rate = optax.cosine_decay_schedule(learning_rate, steps, 0.03)
    return optax.partition({"free": optax.adam(rate, b1=0.5), "held": optax.set_to_zero()}, label)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "contrast"), [(None, "prior"), (Fork, "anchor")])
def test_the_discriminator_tracks_the_kl(make, contrast):
    """It starts without a clue, and comes within 6 % of the truth (4 to 8 nats).

    With the anchor there is nothing to learn of a Gaussian generator: this one has two modes.
    """
    x, y = regression(rows=5)
    options = {"noise_dim": 1, "contrast": contrast, "discriminator": small["discriminator"]}
    guide = Implicit(idle, generator=make, **options)
    params = random_params(guide, x, y)
    mean, R = dense(guide, params)
    truth = gaussian_kl(mean, R @ R.T) if make is None else fork_kl(guide, params)
    blank = {n: jnp.zeros_like(a) for n, a in params.items() if n.startswith("implicit.discri")}
    before = discriminator_gap(KEY, guide, params | blank)
    assert before.lags
    steps = 1000
    loss = AdversarialELBO(1, 256)
    options = {"steps": steps, "optimizer": held(steps, 0.02), "loss": loss, "progress": False}
    untrained = {n: a for n, a in params.items() if n not in blank}  # fit starts the others
    fitted = dgp.fit(KEY, idle, guide, x, y, start=untrained, **options)
    gap = discriminator_gap(random.key(5), guide, fitted.params, num_draws=20_000)
    assert abs(gap.estimate - truth) < 0.06 * truth + 4 * gap.estimate_se
    assert not gap.lags


@pytest.mark.slow
@pytest.mark.parametrize("contrast", ["anchor", "prior"])
def test_gradients_of_the_players(contrast, x64):
    """Each gets the gradient of its own term, and none of the other's."""
    x, y = regression(rows=5)
    guide, loss = Implicit(single, contrast=contrast, **small), AdversarialELBO(2, 8)
    params = random_params(guide, x, y)
    judge = {n: a for n, a in params.items() if n.startswith("implicit.discriminator.")}
    player = {n: a for n, a in params.items() if n not in judge and "scale_tril" not in n}

    def value(player, judge):
        return loss.loss(KEY, params | player | judge, single, guide, x, y)

    # The value is data term and penalty alone, so its differences are the generator's gradient.
    assert_derivatives(lambda player: value(player, judge), player)

    def lesson(judge):
        key_s, _, key_z, key_p, _ = random.split(KEY, 5)
        players = guide.players(params | judge)
        seen = players.seen(key_z, players.features(key_s, 8))
        return players.cross_entropy(seen, players.reference(key_p, 8))

    found, wanted = jax.jit(jax.grad(value, 1))(player, judge), jax.jit(jax.grad(lesson))(judge)
    for n in judge:
        np.testing.assert_allclose(found[n], wanted[n], rtol=1e-7, atol=1e-10)
    assert max(np.abs(g).max() for g in found.values()) > 0.01


@pytest.mark.slow
def test_a_posterior_of_two_modes():
    """y = f² + noise leaves the sign of f open: mean field has one mode, and log 2 nats to go."""

    def squared(x, y=None):
        f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), np.zeros((1, 1), np.float32))
        with dgp.minibatch(x, y) as (x, y):
            likelihood = lambda f: dist.Normal(jnp.square(f), 0.3)  # noqa: E731
            numpyro.sample("y", dgp.observe(f(x), likelihood), obs=y)

    x, y = jnp.zeros((1, 1)), jnp.array([1.5])
    v = np.linspace(-6, 6, 4001)
    evidence = np.log(np.sum(stats.norm.pdf(v) * stats.norm.pdf(1.5, v**2, 0.3)) * (v[1] - v[0]))
    generator = partial(GeneratorNet, scale=3.0)
    judge = partial(DiscriminatorNet, width=16, rank=4)
    options = {"generator": generator, "discriminator": judge, "direction_scale": 1.0}
    guide = Implicit(squared, **options, noise_dim=2)
    guide.setup(x, y)
    optimizer = adversarial_optimizer(0.03, 1000, generator=0.3, discriminator=1.0)
    svi = SVI(squared, guide, optimizer, AdversarialELBO(16, 128))

    @jax.jit
    @jax.vmap
    def certified(key):
        """The certified bound, and the share of draws above 0."""
        state = svi.init(key, x, y)
        state = jax.lax.fori_loop(0, 1000, lambda i, s: svi.update(s, x, y)[0], state)
        params = svi.get_params(state)
        loss = AdversarialELBO(1000, 1000, certified=True)
        players = guide.players(params)
        values = players.values(key, players.features(key, 2000))
        return -loss.loss(key, params, squared, guide, x, y), jnp.mean(values["l1.v"] > 0)

    values, above = certified(random.split(KEY, 6))
    assert (values < evidence + 0.1).all()
    assert ((above > 0.2) & (above < 0.8)).all()
    gains = values - (evidence - np.log(2))
    assert (gains > 0.2).all()
    assert jnp.median(gains) > 0.35


def test_discriminator_steps():
    """The others move once in three steps of the discriminator; each has its rate."""
    params = {"implicit.discriminator.a": 0.0, "implicit.generator.a": 0.0, "b": 0.0, "noise": 0.0}
    params = {n: jnp.asarray(a) for n, a in params.items()}
    optimizer = adversarial_optimizer(0.1, 300, frozenset({"noise"}), discriminator_steps=3)
    state, moves = optimizer.init(params), []
    for _ in range(6):
        change, state = optimizer.update({n: jnp.ones(()) for n in params}, state, params)
        moves.append({n: -float(a) for n, a in change.items()})
    np.testing.assert_allclose([m["implicit.discriminator.a"] for m in moves], 0.01, rtol=0.01)
    for name, rate in (("implicit.generator.a", 0.001), ("b", 0.1), ("noise", 0.03)):
        expected = [0, 0, rate, 0, 0, rate]
        np.testing.assert_allclose([m[name] for m in moves], expected, rtol=0.02)


def test_a_gap_of_too_few_draws():
    with pytest.raises(ValueError, match="num_draws is 2, wanted at least 4"):
        discriminator_gap(KEY, Implicit(single), {}, num_draws=2)
    with pytest.raises(ValueError, match="num_others is 0"):
        discriminator_gap(KEY, Implicit(single), {}, num_others=0)


@pytest.mark.slow
def test_what_evaluate_reports_is_a_bound_whatever_the_discriminator_says():
    """One that says 0 everywhere leaves the KL out: the loss's value is then above the evidence."""
    x, y = regression(rows=5)
    z = x
    guide = Implicit(one_layer, contrast="prior", generator=None)
    params = start(one_layer, guide, x, y, z=z)
    params |= {n: jnp.zeros_like(a) for n, a in params.items() if n.startswith("implicit.discri")}
    best = dgp.fit(KEY, one_layer, dgp.MeanField(one_layer), x, y, z=z, steps=300, progress=False)
    params |= {f"implicit.affine.{n}": a for n, a in best.params.items() if n.startswith("l1.v.")}
    evidence = exact_evidence(x, y)
    said, error = evaluate(
        KEY, one_layer, guide, params, x, y, z=z, loss=AdversarialELBO(), num_draws=200
    )
    assert said > evidence + 4.5 * error
    found, error = evaluate(KEY, one_layer, guide, params, x, y, z=z, num_draws=200)
    assert evidence - 0.5 < found < evidence + 4.5 * error
