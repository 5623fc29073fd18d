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
    exact_evidence,
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
from dgp_ppl import kernels
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


def idle(x, y=None):
    """The same layers, which the data do not depend on: for what concerns q(v) alone."""
    dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), 1.0), obs=y)


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


single = partial(one_layer, z=Z)

small = {
    "generator": partial(GeneratorNet, width=8),
    "discriminator": partial(DiscriminatorNet, width=8, rank=9),
}


def random_params(guide, *args, **kwargs):
    """Params of a guide away from where they start; of the shapes they have there."""
    svi = SVI(guide.model, guide, optax.adam(0.01), TraceMeanField_ELBO())
    shapes = jax.eval_shape(lambda key: svi.get_params(svi.init(key, *args, **kwargs)), KEY)
    rng = np.random.default_rng(3)

    def drawn(name, shape):
        a = (1.2 if ".slope." in name else 0.3) * rng.standard_normal(shape)
        if name.endswith("scale_tril"):
            return np.tril(a, -1) + 0.5 * np.eye(shape[-1])
        return a

    return {n: jnp.asarray(drawn(n, a.shape), a.dtype) for n, a in shapes.items()}


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
    guide = Implicit(idle, generator=make, noise_dim=1)
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
    guide = Implicit(idle, generator=Line, noise_dim=1)
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


@pytest.mark.slow
@pytest.mark.parametrize(("make", "contrast"), [(None, "prior"), (Line, "anchor")])
def test_the_discriminator_tracks_the_kl_of_a_gaussian_generator(make, contrast):
    """It starts without a clue, and comes within 6 % of the closed form (about 4 nats)."""
    x, y = regression(rows=5)
    options = {"noise_dim": 1, "contrast": contrast, "discriminator": small["discriminator"]}
    guide = Implicit(idle, generator=make, **options)
    params = random_params(guide, x, y)
    mean, R = dense(guide, params)
    truth = gaussian_kl(mean, R @ R.T) if make is None else line_kl(guide, params)[2]
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


@pytest.mark.slow
def test_one_layer_with_gaussian_noise_converges_to_the_svgp_optimum():
    """Within 0.05 nats per datum, as reported, and with the KL's upper bound."""
    x, y = regression(rows=40)
    z = spread(6)
    guide = Implicit(one_layer, **small)
    fitted = dgp.fit(KEY, one_layer, guide, x, y, z=z, steps=800, progress=False)
    best = collapsed_bound(x, y, z) / len(y)
    reported = fitted.elbo_per_datum[-100:].mean()
    gap = discriminator_gap(KEY, guide, fitted.params)
    certified = reported + (gap.estimate - gap.upper) / len(y)
    assert best - 0.05 < reported < best + 0.05
    assert best - 0.05 < certified < best + 0.01
    assert not gap.lags


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
    guide = Implicit(squared, generator=generator, discriminator=judge, noise_dim=1)
    guide.setup(x, y)
    optimizer = adversarial_optimizer(0.03, 1000, generator=0.3, discriminator=1.0)
    svi = SVI(squared, guide, optimizer, AdversarialELBO(16, 128))

    @jax.jit
    @jax.vmap
    def certified(key):
        """The bound with the KL's upper bound in it, and the share of draws above 0."""
        state = svi.init(key, x, y)
        state = jax.lax.fori_loop(0, 1000, lambda i, s: svi.update(s, x, y)[0], state)
        params = svi.get_params(state)
        loss = AdversarialELBO(1000, 1000).loss(key, params, squared, guide, x, y)
        players = guide.players(params)
        draws = players.draw(key, 2000)
        upper = players.kl_bounds(draws, players.draw(random.key(9), 1000))[1]
        value = -loss + jnp.mean(players.log_ratio(draws) - upper)
        return value, jnp.mean(players.values(draws)["l1.v"] > 0)

    values, above = certified(random.split(KEY, 6))
    assert (values < evidence + 0.1).all()
    found = (above > 0.2) & (above < 0.8)
    assert found.sum() >= 4  # the others are where mean field is
    assert (values[found] > evidence - np.log(2) + 0.3).all()


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


def test_seeds_in_parallel(x64):
    """A fit for each key of a vmap; float64 in, float64 out."""
    x, y = regression(rows=5)
    svi = SVI(
        single, Implicit(single, **small), adversarial_optimizer(0.01, 5), AdversarialELBO(2, 4)
    )

    def fitted(key):
        state, loss = svi.update(svi.init(key, x, y), x, y)
        return svi.get_params(state), loss

    keys = random.split(KEY, 3)
    params, losses = jax.jit(jax.vmap(fitted))(keys)
    assert losses.dtype == jnp.float64
    assert all(a.dtype == jnp.float64 for a in params.values())
    assert len(set(np.asarray(losses))) == 3


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
    guide = Implicit(idle, **small)
    params = random_params(guide, x, y)
    with pytest.raises(NotImplementedError, match=r"no density.*AdversarialELBO"):
        loss.loss(KEY, params, idle, guide, x, y)


def test_errors():
    x, y = regression(rows=5)
    mean_field = dgp.MeanField(idle)
    with pytest.raises(TypeError, match=r"guide is MeanField, wanted one with a discriminator"):
        AdversarialELBO().loss(KEY, random_params(mean_field, x, y), idle, mean_field, x, y)
    with pytest.raises(ValueError, match="num_draws is 0, wanted at least 1"):
        AdversarialELBO(0)
    with pytest.raises(ValueError, match="game_draws is 2, wanted at least num_draws, 4"):
        AdversarialELBO(4, 2)
    with pytest.raises(ValueError, match="contrast is 'both', wanted 'anchor' or 'prior'"):
        Implicit(idle, contrast="both")
    with pytest.raises(ValueError, match="noise_dim is 0, wanted at least 1"):
        Implicit(idle, noise_dim=0)
    with pytest.raises(ValueError, match=r"hidden_scale is -1, wanted a positive number"):
        Implicit(idle, hidden_scale=-1)
    with pytest.raises(ValueError, match="discriminator_steps is 0, wanted 1 or more"):
        adversarial_optimizer(0.1, 10, discriminator_steps=0)
    guide = Implicit(idle, **small)
    with pytest.raises(ValueError, match="call the guide once"):
        guide.players({})
    guide.setup(x, y)
    with pytest.raises(ValueError, match=r"params lack some of implicit\.generator\.\*"):
        guide.players({})
    with pytest.raises(ValueError, match="Implicit needs a random key"):
        handlers.substitute(guide, data=random_params(guide, x, y))(x, y)
    with pytest.raises(ValueError, match="no Gaussian of v that another guide could start from"):
        guide._posterior({}, (x, y), {}, reshape=lambda name, law: law)


def test_a_gap_of_too_few_draws():
    with pytest.raises(ValueError, match="num_draws is 2, wanted at least 4"):
        discriminator_gap(KEY, Implicit(single), {}, num_draws=2)
    with pytest.raises(ValueError, match="num_others is 0"):
        discriminator_gap(KEY, Implicit(single), {}, num_others=0)


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
