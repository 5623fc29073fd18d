from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from helpers import (
    KEY,
    assert_derivatives,
    assert_mean,
    bound,
    one_layer,
    regression,
    spread,
    squared_exponential,
    start,
)
from jax import random
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from scipy import stats

import dgp_ppl as dgp
from dgp_ppl import kernels, models
from dgp_ppl.inference.adversarial import (
    AdversarialELBO,
    adversarial_optimizer,
    discriminator_gap,
)
from dgp_ppl.inference.fit import evaluate
from dgp_ppl.inference.implicit import DiscriminatorNet, GeneratorNet, Implicit
from dgp_ppl.inference.layer_guide import Layer

Z = np.float32([[-1.0], [0.0], [1.0]])


def model(x, y=None, *, batch_size=None):
    """Two layers, of two outputs and of one."""
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)


class Line(eqx.Module):
    """d(s) = s c, which makes q a Gaussian that correlates the layers."""

    slope: dict

    def __init__(self, layers, noise_dim, *, key):
        assert noise_dim == 1
        keys = random.split(key, len(layers))
        shapes = [layer.shape for layer in layers.values()]
        slopes = [0.6 * random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
        self.slope = dict(zip(layers, slopes, strict=True))

    def __call__(self, shared):
        return {n: shared[0] * c for n, c in self.slope.items()}


small = {
    "generator": partial(GeneratorNet, width=8),
    "discriminator": partial(DiscriminatorNet, width=8, rank=9),
}


def random_params(guide, *args, spread=0.3, **kwargs):
    """Params of a guide away from where they start."""
    params = start(guide.model, guide, *args, **kwargs)
    keys = random.split(random.key(3), len(params))

    def moved(key, name, a):
        if name.endswith("scale_tril"):
            change = jnp.tril(spread * random.normal(key, a.shape), -1)
            return 0.5 * jnp.eye(a.shape[-1], dtype=a.dtype) + change.astype(a.dtype)
        return a + spread * random.normal(key, jnp.shape(a), a.dtype)

    return {n: moved(k, n, a) for k, (n, a) in zip(keys, params.items(), strict=True)}


def dense(guide, params):
    """Mean and root [P M, P M] of each layer's affine part, whose blocks are the outputs'."""
    from scipy.linalg import block_diag

    affine = guide.players(params).affine
    means = np.concatenate([np.asarray(q.loc, float).T.ravel() for q in affine.values()])
    return means, block_diag(*[np.asarray(R, float) for q in affine.values() for R in q.scale_tril])


def columns(values):
    """[S, number of values], outputs of a layer one after the other."""
    flat = [np.swapaxes(np.asarray(v, float), 1, 2).reshape(len(v), -1) for v in values.values()]
    return np.concatenate(flat, axis=1)


def gaussian_kl(mean, cov):
    return 0.5 * (np.trace(cov) - len(mean) + mean @ mean - np.linalg.slogdet(cov)[1])


def line_kl(guide, params):
    """The moments of a `Line` guide's q(v), and its KL to the prior."""
    mean, R = dense(guide, params)
    c = columns({n: a[None] for n, a in guide.players(params).generator.slope.items()})[0]
    cov = R @ (np.eye(len(c)) + np.outer(c, c)) @ R.T
    return mean, cov, gaussian_kl(mean, cov)


def test_params_one_per_array():
    params = start(model, Implicit(model, **small), *regression(rows=5))
    affine = {n for n in params if n.startswith("implicit.affine.")}
    assert affine == {
        f"implicit.affine.{l}.v.{p}" for l in ("l1", "l2") for p in ("loc", "scale_tril")
    }
    assert params["implicit.generator.last.l1.v.weight"].shape == (3, 8)
    assert params["implicit.generator.outputs.l1.v"].shape == (2, 8)
    assert params["implicit.discriminator.project.l2.v"].shape == (9, 3, 1)
    assert all(isinstance(a, jax.Array) for a in params.values())
    np.testing.assert_allclose(
        params["implicit.affine.l1.v.scale_tril"], 1e-5 * np.eye(3)[None].repeat(2, 0), rtol=1e-5
    )


def test_the_number_of_params_is_that_of_mean_field_and_little_more():
    """At widths 30, 30, 10 and M = 100, where a dense map of all values would have 10^8."""
    layers = {f"l{l}.v": Layer((100, P), 30, l < 3) for l, P in ((1, 30), (2, 30), (3, 10))}
    generator = eqx.filter_eval_shape(lambda k: GeneratorNet(layers, 8, key=k), KEY)
    judge = eqx.filter_eval_shape(lambda k: DiscriminatorNet(layers, key=k), KEY)
    count = lambda tree: sum(a.size for a in jax.tree.leaves(tree))  # noqa: E731
    assert count(generator) < 50_000
    assert count(judge) < 250_000


@pytest.mark.parametrize("make", [Line, None])
def test_draws_have_the_law_of_the_generator(make):
    """With one shared noise over both layers: outputs and layers are correlated by it."""
    x, y = regression(rows=5)
    guide = Implicit(model, generator=make, noise_dim=1)
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


def test_bounds_of_the_kl_are_tight_around_it():
    guide = Implicit(model, generator=Line, noise_dim=1)
    params = random_params(guide, *regression(rows=5))
    truth = line_kl(guide, params)[2]
    for others, slack in ((30, 0.5), (3000, 0.01)):
        gap = discriminator_gap(KEY, guide, params, num_draws=20_000, num_others=others)
        assert gap.lower - 4 * gap.lower_se < truth < gap.upper + 4 * gap.upper_se
        assert truth - gap.lower < slack + 4 * gap.lower_se
        assert gap.upper - truth < slack + 4 * gap.upper_se


def held(steps, learning_rate):
    """Trains the discriminator only."""

    def label(params):
        return {n: "free" if n.startswith("implicit.discriminator.") else "held" for n in params}

    rate = optax.cosine_decay_schedule(learning_rate, steps, 0.03)
    return optax.partition({"free": optax.adam(rate, b1=0.5), "held": optax.set_to_zero()}, label)


@pytest.mark.parametrize(("make", "contrast"), [(None, "prior"), (Line, "anchor")])
def test_the_discriminator_tracks_the_kl_of_a_gaussian_generator(make, contrast):
    """It starts without a clue, and comes within 6 % of the closed form (about 4 nats)."""
    x, y = regression(rows=5)
    options = {"noise_dim": 1, "contrast": contrast, "discriminator": small["discriminator"]}
    guide = Implicit(model, generator=make, **options)
    params = random_params(guide, x, y)
    mean, R = dense(guide, params)
    truth = gaussian_kl(mean, R @ R.T) if make is None else line_kl(guide, params)[2]
    blank = {n: jnp.zeros_like(a) for n, a in params.items() if n.startswith("implicit.discri")}
    before = discriminator_gap(KEY, guide, params | blank)
    assert before.lags
    steps = 1000
    loss = AdversarialELBO(1, 256)
    options = {"steps": steps, "optimizer": held(steps, 0.02), "loss": loss, "progress": False}
    fresh = start(model, guide, x, y)
    untrained = params | {n: fresh[n] for n in blank}
    fitted = dgp.fit(KEY, model, guide, x, y, start=untrained, **options)
    gap = discriminator_gap(random.key(5), guide, fitted.params, num_draws=20_000)
    assert abs(gap.estimate - truth) < 0.06 * truth + 4 * gap.estimate_se
    assert not gap.lags


def test_gradients_of_the_players(x64):
    """Each gets the gradient of its own term, and none of the other's."""
    x, y = regression(rows=5)
    guide, loss = Implicit(model, **small), AdversarialELBO(2, 8)
    params = random_params(guide, x, y)
    judge = {n: a for n, a in params.items() if n.startswith("implicit.discriminator.")}
    player = {n: a for n, a in params.items() if n not in judge and "scale_tril" not in n}

    def value(player, judge):
        return loss.loss(KEY, params | player | judge, model, guide, x, y)

    # The value is data term and penalty alone, so its differences are the generator's gradient.
    assert_derivatives(lambda player: value(player, judge), player)

    def lesson(judge):
        key_q, key_p, _ = random.split(KEY, 3)
        players = guide.players(params | judge)
        return players.cross_entropy(players.draw(key_q, 8), players.noise(key_p, 8))

    found, wanted = jax.jit(jax.grad(value, 1))(player, judge), jax.jit(jax.grad(lesson))(judge)
    for n in judge:
        np.testing.assert_allclose(found[n], wanted[n], rtol=1e-8, atol=1e-12)
    assert max(np.abs(g).max() for g in found.values()) > 0.01


@pytest.mark.parametrize("integrate", [True, False])
def test_a_gaussian_generator_has_the_mean_field_bound(integrate):
    """With t = 0, by its anchor: exactly if v is integrated out, else on average."""
    x, y = regression(rows=8)
    guide = Implicit(one_layer, generator=None, integrate=integrate)
    params = random_params(guide, x, y, z=spread(4))
    params = {n: jnp.zeros_like(a) if "discr" in n else a for n, a in params.items()}
    q = guide.players(params).affine["l1.v"]
    given = {"l1.v.loc": q.loc, "l1.v.scale_tril": q.scale_tril}
    truth = bound(one_layer, dgp.MeanField(one_layer), given, x, y, z=spread(4))
    one = lambda k: -AdversarialELBO(2, 2).loss(k, params, one_layer, guide, x, y, z=spread(4))  # noqa: E731
    values = jax.jit(jax.vmap(one))(random.split(KEY, 4000))
    if integrate:
        np.testing.assert_allclose(values, truth, rtol=1e-5)
    else:
        assert np.std(values) > 0.1
        assert_mean(values, truth)


def collapsed_bound(x, y, z, noise=0.3, variance=1.5):
    """Titsias's bound of `one_layer`, in NumPy: what the best q(v) has."""
    cross, eye = squared_exponential(z, x), np.eye(len(z))
    Q = cross.T @ np.linalg.solve(squared_exponential(z, z) + 1e-6 * eye, cross)
    law = stats.multivariate_normal(np.zeros(len(x)), Q + noise**2 * np.eye(len(x)))
    trace = variance * len(x) - np.trace(Q)
    return law.logpdf(np.asarray(y, float)) - 0.5 * trace / noise**2


def test_one_layer_with_gaussian_noise_converges_to_the_svgp_optimum():
    """Within 0.05 nats per datum, as reported, and with the KL's upper bound."""
    x, y = regression(rows=40)
    z = spread(6)
    guide = Implicit(one_layer, **small)
    options = {"steps": 800, "optimizer": adversarial_optimizer(0.1, 800), "progress": False}
    fitted = dgp.fit(KEY, one_layer, guide, x, y, z=z, loss=AdversarialELBO(), **options)
    best = collapsed_bound(x, y, z) / len(y)
    reported = fitted.elbo_per_datum[-100:].mean()
    gap = discriminator_gap(KEY, guide, fitted.params)
    certified = reported + (gap.estimate - gap.upper) / len(y)
    assert best - 0.05 < reported < best + 0.05
    assert best - 0.05 < certified < best + 0.01
    assert not gap.lags


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
    generator = partial(GeneratorNet, width=16, scale=3.0)
    guide = Implicit(
        squared, generator=generator, discriminator=small["discriminator"], noise_dim=1
    )
    optimizer = adversarial_optimizer(0.03, 1200, generator=0.3, discriminator=1.0)
    options = {"steps": 1200, "optimizer": optimizer, "progress": False}
    loss = AdversarialELBO(16, 128)
    fitted = dgp.fit(KEY, squared, guide, x, y, loss=loss, **options)
    value, error = evaluate(
        KEY, squared, guide, fitted.params, x, y, loss=AdversarialELBO(200, 200)
    )
    gap = discriminator_gap(KEY, guide, fitted.params)
    certified = value + gap.estimate - gap.upper
    assert evidence - 0.3 < certified < evidence + 4 * (error + gap.upper_se)
    draws = guide.players(fitted.params).draw(KEY, 4000).values["l1.v"].ravel()
    assert 0.3 < (draws > 0).mean() < 0.7


def test_two_layers_in_minibatches():
    x, y = regression(rows=40)
    kwargs = {"z": (spread(5), spread(5)), "batch_size": 20}
    guide = Implicit(models.deep_gp, **small)
    options = {"steps": 300, "optimizer": adversarial_optimizer(0.05, 300), "progress": False}
    fitted = dgp.fit(
        KEY, models.deep_gp, guide, x, y, loss=AdversarialELBO(2, 32), **options, **kwargs
    )
    assert fitted.elbo_per_datum[-50:].mean() > fitted.elbo_per_datum[:50].mean() + 0.3
    law = dgp.predict(KEY, models.deep_gp, guide, fitted.params, x, z=kwargs["z"], num_draws=50)
    error = np.sqrt(np.mean((np.asarray(law.mean).ravel() - np.asarray(y)) ** 2))
    assert error < 0.8 * np.std(y)


def test_minibatches_are_unbiased():
    x, y = regression(rows=6)
    guide, loss = Implicit(model, **small), AdversarialELBO(2, 4)
    params = random_params(guide, x, y)

    def values(keys, **kwargs):
        one = lambda k: loss.loss(k, params, model, guide, x, y, **kwargs)  # noqa: E731
        return jax.jit(jax.vmap(one))(keys)

    full = values(random.split(KEY, 4000))
    batches = values(random.split(random.key(1), 4000), batch_size=2)
    assert_mean(batches - full, 0.0)


def with_scale(x, y=None):
    """The model with a latent hyperparameter."""
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    model(x * scale, y)


def test_other_latent_sites_pay_their_own_kl():
    """The loss moves by exactly that KL where the data do not depend on the site."""

    def idle(x, y=None):
        numpyro.sample("w", dist.Normal(0, 1))
        one_layer(x, y, z=Z)

    x, y = regression(rows=5)
    guide = Implicit(idle, generator=None)
    params = random_params(guide, x, y) | {
        "w_auto_loc": jnp.array(0.0),
        "w_auto_scale": jnp.array(1.0),
    }
    moved = params | {"w_auto_loc": jnp.array(1.5), "w_auto_scale": jnp.array(0.5)}
    losses = [AdversarialELBO(2, 2).loss(KEY, p, idle, guide, x, y) for p in (params, moved)]
    kl = 0.5 * (0.25 + 1.5**2 - 1 - np.log(0.25))
    np.testing.assert_allclose(losses[1] - losses[0], kl, rtol=1e-4)
    draws = guide.sample_posterior(KEY, moved, x, sample_shape=(3000,))
    assert draws["l1.v"].shape == (3000, 3, 1)
    assert_mean(draws["w"], 1.5)


def test_seeds_in_parallel(x64):
    """vmap over keys is the loop over them; float64 in, float64 out."""
    x, y = regression(rows=5)
    svi = SVI(
        model, Implicit(model, **small), adversarial_optimizer(0.01, 5), AdversarialELBO(2, 4)
    )

    def fitted(key):
        state = svi.init(key, x, y)
        for _ in range(2):
            state, loss = svi.update(state, x, y)
        return svi.get_params(state), loss

    keys = random.split(KEY, 3)
    params, losses = jax.jit(jax.vmap(fitted))(keys)
    assert losses.dtype == jnp.float64
    assert all(a.dtype == jnp.float64 for a in params.values())
    assert len(set(np.asarray(losses))) == 3
    alone, loss = jax.jit(fitted)(keys[1])
    np.testing.assert_allclose(losses[1], loss, rtol=1e-6)
    for n, a in alone.items():
        np.testing.assert_allclose(params[n][1], a, rtol=1e-6, atol=1e-8)


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


@pytest.mark.parametrize("loss", [TraceMeanField_ELBO(), Trace_ELBO()])
def test_objectives_that_need_a_density(loss):
    x, y = regression(rows=5)
    guide = Implicit(model, **small)
    params = start(model, guide, x, y)
    with pytest.raises(NotImplementedError, match=r"no density.*AdversarialELBO"):
        loss.loss(KEY, params, model, guide, x, y)


def test_errors():
    x, y = regression(rows=5)
    mean_field = dgp.MeanField(model)
    with pytest.raises(TypeError, match=r"guide is MeanField, wanted one with a discriminator"):
        AdversarialELBO().loss(KEY, start(model, mean_field, x, y), model, mean_field, x, y)
    with pytest.raises(ValueError, match="num_draws is 0, wanted at least 1"):
        AdversarialELBO(0)
    with pytest.raises(ValueError, match="game_draws is 2, wanted at least num_draws, 4"):
        AdversarialELBO(4, 2)
    with pytest.raises(ValueError, match="contrast is 'both', wanted 'anchor' or 'prior'"):
        Implicit(model, contrast="both")
    with pytest.raises(ValueError, match="noise_dim is 0, wanted at least 1"):
        Implicit(model, noise_dim=0)
    with pytest.raises(ValueError, match=r"hidden_scale is -1, wanted a positive number"):
        Implicit(model, hidden_scale=-1)
    with pytest.raises(ValueError, match="discriminator_steps is 0, wanted 1 or more"):
        adversarial_optimizer(0.1, 10, discriminator_steps=0)
    guide = Implicit(model, **small)
    with pytest.raises(ValueError, match="call the guide once"):
        guide.players({})
    guide.setup(x, y)
    with pytest.raises(ValueError, match=r"params lack some of implicit\.generator\.\*"):
        guide.players({})
    with pytest.raises(ValueError, match="Implicit needs a random key"):
        handlers.substitute(guide, data=start(model, guide, x, y))(x, y)
    with pytest.raises(ValueError, match="no Gaussian of v that another guide could start from"):
        guide._posterior({}, (x, y), {}, reshape=lambda name, law: law)
