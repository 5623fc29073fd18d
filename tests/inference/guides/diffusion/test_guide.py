"""The diffusion guide: its base, bounds, paths, informed steps and arguments."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer.util import log_density
from support.diffusion import Z, bases, diagonal_fit, shaken, wavy
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    bound,
    one_layer,
    regression,
    slow,
    spread,
    start,
    two_layers,
)

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.core._inducing import DiagonalInducing
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.evidence._importance import importance_evidence
from dgp_ppl.inference.guides._base import Layer
from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO
from dgp_ppl.inference.guides.diffusion._guide import Diffusion
from dgp_ppl.inference.guides.diffusion._networks import DenseScore, MixerScore


@pytest.mark.parametrize("base", ["mean-field", slow("diagonal"), slow("global")])
def test_without_control_the_guide_is_its_base_draw_by_draw(base, x64):
    """The log weight of every path is the base's at the same inducing values."""
    x, y = regression(rows=6)
    own = bases(two_layers)[base]
    guide = Diffusion(two_layers, steps=4, base=own).drawn()
    params = start(two_layers, guide, x, y, z=Z)
    params = shaken({n: a for n, a in params.items() if "diffusion" not in n}) | {
        n: a for n, a in params.items() if "diffusion" in n
    }

    def both(key):
        log_q, trace = log_density(handlers.seed(guide, key), (x, y), {"z": Z}, params)
        drawn = {n: trace[n]["value"] for n in ("l1.v", "l2.v")}
        posteriors = {}

        def keep(site, posterior):
            posteriors[site] = posterior
            return DiagonalInducing(drawn[site], jnp.zeros((5, 1)))

        with handlers.seed(rng_seed=key), handlers.block(), handlers.substitute(data=params):
            own.transport(Call((x, y), {"z": Z}), keep)
        return log_q, sum(posteriors[n].log_prob(v) for n, v in drawn.items())

    paths, alone = jax.jit(jax.vmap(both))(random.split(KEY, 20))
    np.testing.assert_allclose(paths, alone, rtol=1e-9)


def test_the_last_step_may_be_integrated_or_drawn():
    """The cost in closed form and the cost at the states drawn have one expectation."""
    x, y = regression(rows=6)
    guide = Diffusion(one_layer, steps=3, base="prior", score=wavy)
    params = shaken(start(one_layer, guide, x, y, z=Z), 0.2)
    values = [
        bound(one_layer, g, params, x, y, z=Z, keys=random.split(random.key(i), 2000))
        for i, g in enumerate((guide, guide.drawn()))
    ]
    assert_mean(values[0] - values[1], 0.0)


@pytest.mark.slow
def test_trained_it_comes_near_the_evidence_and_not_above():
    """One conjugate layer, whose posterior no diagonal Gaussian can match."""
    (x, y), options = regression(rows=8), {"progress": False}
    diagonal, first, truth, gap = diagonal_fit(x, y)
    guide = Diffusion(one_layer, base=diagonal, steps=8)
    result = dgp.fit(
        KEY, one_layer, guide, x, y, steps=1500,
        loss=DiffusionELBO(16), start=first.params, z=x, **options,
    )  # fmt: skip
    elbo, error = evaluate(KEY, one_layer, guide, result.params, x, y, z=x, num_draws=4000)
    assert elbo < truth + 4.5 * error
    assert truth - elbo < 0.35 * gap
    found = importance_evidence(KEY, one_layer, guide, result.params, x, y, z=x, num_paths=2000)
    assert abs(found.log_evidence - truth) < 4.5 * found.standard_error + 1e-3
    assert found.standard_error < 0.1
    assert found.elbo < found.log_evidence
    assert 20 < found.effective_paths < 2000


def test_a_base_whose_mean_has_its_own_inducing_inputs_has_no_drawn_paths():
    x, y = regression(rows=6)
    guide = Diffusion(one_layer, base=dgp.Decoupled(one_layer, spread(7)), steps=2)
    params = start(one_layer, guide, x, y, z=Z)
    assert np.isfinite(bound(one_layer, guide, params, x, y, z=Z))
    with pytest.raises(TypeError, match="a mean with separate inducing inputs"):
        bound(one_layer, guide.drawn(), params, x, y, z=Z)


def test_paths_share_a_minibatch_and_nothing_else():
    """The value is the sum of one row's minibatch, and the mean of three draws of w."""

    def latent(*_, **__):
        return numpyro.sample("w", dist.Normal(0, 0.1))

    def sums(y, *, batch_size):
        numpyro.factor("own", latent())
        with dgp.minibatch(y, batch_size=batch_size) as y:
            numpyro.sample("y", dist.Delta(jnp.zeros(len(y)), log_density=y), obs=jnp.zeros(len(y)))

    y = 2.0 ** jnp.arange(12)
    loss = lambda key: -DiffusionELBO(3).loss(key, {}, sums, latent, y, batch_size=1)  # noqa: E731
    values = np.asarray(jax.jit(jax.vmap(loss))(random.split(KEY, 400)))
    of_rows = np.round(values)
    assert set(of_rows) == set(12 * np.asarray(y))
    assert (values - of_rows).std() == pytest.approx(0.1 / np.sqrt(3), rel=0.2)


@pytest.mark.parametrize("base", ["prior", slow("mean-field"), slow("global")])
def test_paths_start_as_noise_and_end_as_the_guides_draws(base):
    """Noise has the base's distribution, N(0, I) for the prior. Tolerance: 4.5 standard errors."""
    x, y = regression(rows=6)
    own = base if base == "prior" else bases(two_layers)[base]
    guide = dgp.Diffusion(two_layers, steps=3, base=own, score=wavy)
    params = shaken(start(two_layers, guide, x, y, z=Z), 0.2)
    num = 600
    states = dgp.diffusion_paths(KEY, guide, params, x, y, num_paths=num, z=Z)
    assert {n: a.shape for n, a in states.items()} == dict.fromkeys(
        ("l1.v", "l2.v"), (num, 4, 5, 1)
    )
    ends = guide.sample_posterior(KEY, params, x, y, sample_shape=(num,), z=Z)
    for site, a in states.items():
        np.testing.assert_allclose(a[:, -1], ends[site], atol=5e-4)  # the two round differently
    first = np.concatenate([np.asarray(a)[:, 0, :, 0] for a in states.values()], axis=1)
    if base == "prior":
        assert_mean(first, np.zeros(10))
        assert_covariance(first, np.eye(10))
    elif base == "mean-field":
        for l, site in enumerate(states):
            R = np.asarray(params[f"{site}.scale_tril"], np.float64)[0]
            noise = first[:, 5 * l : 5 * l + 5]
            assert_mean(noise, np.asarray(params[f"{site}.loc"])[:, 0])
            assert_covariance(noise, R @ R.T)


@pytest.mark.slow
def test_informed_steps_know_the_gradient(x64):
    """On a conjugate layer the gradient of log p(y, T(z)) |T'| / N(z) is known."""
    x, y = regression(rows=6)
    base = dgp.MeanField(one_layer, covariance="diagonal")
    guide = Diffusion(one_layer, steps=2, base=base, informed=(x, y))
    params = shaken(start(one_layer, guide, x, y, z=Z))
    m, s = params["l1.v.loc"], params["l1.v.scale"]
    assert params["diffusion.informed"].shape == (2,)

    def ask(z):
        with handlers.block(), handlers.seed(rng_seed=KEY), handlers.substitute(data=params):
            guide.setup(x, y, z=Z)
            unravel = lambda a: {"l1.v": a[:, None]}  # noqa: E731
            return guide._target_gradient(KEY, unravel, Call((x, y), {"z": Z}))(z)

    def log_ratio(z):
        v = m + s * z[:, None]
        drawn = {"l1.v": guide_site("l1.v", Handover(), v)}
        program = handlers.replay(one_layer, drawn)
        return log_density(program, (x, y), {"z": Z}, {})[0] + 0.5 * jnp.sum(z**2)

    ask, gradient = jax.jit(ask), jax.jit(jax.grad(log_ratio))
    near = random.normal(KEY, (5,))
    for z, capped in ((near, False), (5 * near, True)):
        truth = gradient(z)
        norm = jnp.linalg.norm(truth)
        assert (norm > 30) == capped
        np.testing.assert_allclose(ask(z), truth * jnp.minimum(1, 30 / norm), rtol=1e-9)
    assert (jax.jacobian(ask)(near) == 0).all()


def plain(t, z):
    return {n: jnp.sin(2 * a + t) for n, a in z.items()}


class Speed(eqx.Module):
    """A module with the call signature that is usual in `equinox`."""

    speed: jax.Array

    def __call__(self, t, z, *, key=None):
        return {n: jnp.sin(self.speed * a + t) for n, a in z.items()}


def test_scores_of_any_kind():
    """A maker, its score, and other callables with equal values give one bound."""
    x, y = regression(rows=6)
    scores = {
        "maker": wavy, "compiled": jax.jit(plain), "module": Speed(jnp.array(2.0)),
        "compiled module": eqx.filter_jit(Speed(jnp.array(2.0))),
    }  # fmt: skip
    values = {}
    for name, score in scores.items():
        guide = Diffusion(one_layer, steps=2, base="prior", score=score)
        with handlers.seed(rng_seed=0), handlers.trace() as sites:
            guide(x, y, z=Z)
        learned = [n for n, s in sites.items() if s["type"] == "param" and "score" in n]
        assert len(learned) == ("module" in name)
        values[name] = sites["diffusion.path"]["fn"].log_factor
    np.testing.assert_allclose(list(values.values()), values["maker"], rtol=1e-6)
    assert values["maker"] != 0


def test_errors():
    """Each names the argument and what was wanted."""

    def run(**options):
        with handlers.seed(rng_seed=0):
            Diffusion(one_layer, **{"steps": 2, **options})(*regression(rows=6), z=Z)

    for error, message, options in (
        (TypeError, "steps is 2.0, wanted an integer of at least 1", {"steps": 2.0}),
        (TypeError, r"score is 'mlp', wanted a callable \(t, z\)", {"score": "mlp"}),
        (TypeError, "schedule is 'linear', wanted .* VariancePreserving", {"schedule": "linear"}),
        (TypeError, r"informed is a .*, wanted .* informed=\(x, y\)", {"informed": jnp.ones(3)}),
        (ValueError, "last is 'kept', wanted 'integrated' or 'drawn'", {"last": "kept"}),
        (ValueError, "base is 'none', wanted MeanField", {"base": "none"}),
        (ValueError, r"informed has 1 of .* observes nothing.*informed=\(x, y\)",
         {"informed": (regression(rows=6)[0],)}),
        (TypeError, r"arrays of \['int32'\], which cannot", {"score": Speed(jnp.array(3))}),
        (ValueError, r"score\(t, z\) has the shapes \{'l1\.v': \(2, 1\)\}",
         {"score": lambda t, z: {n: a[:2] for n, a in z.items()}}),
        (ValueError, r"has the shapes \(\).*give it a parameter named key",
         {"score": lambda layers, rng: lambda t, z: z}),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            run(**options)
    with handlers.block(), pytest.raises(ValueError, match="Diffusion needs a random key"):
        Diffusion(one_layer)(*regression(rows=6), z=Z)
    x, y = regression(rows=6)
    with pytest.raises(TypeError, match="guide is a MeanField, wanted a Diffusion"):
        dgp.diffusion_paths(KEY, dgp.MeanField(two_layers), {}, x, y, z=Z)
    with pytest.raises(ValueError, match="num_paths is 0, wanted at least 1"):
        dgp.diffusion_paths(KEY, Diffusion(two_layers, steps=3), {}, x, y, num_paths=0, z=Z)


@pytest.mark.parametrize("make", [DenseScore, MixerScore])
def test_scores_start_at_zero_and_know_time_layers_and_points(make):
    layers = {"a.v": Layer((2, 2), 1, True), "b.v": Layer((3, 1), 2, False)}
    z = {n: np.ones(layer.shape, np.float32) for n, layer in layers.items()}
    start = eqx.filter_jit(lambda: make(layers, KEY)(jnp.array(0.3), z))()
    assert all((a == 0).all() for a in start.values())
    rng, flat = np.random.default_rng(0), np.ones(7, np.float32)
    shapes = eqx.filter_eval_shape(make, layers, KEY)
    score = jax.tree.map(
        lambda a: jnp.float32(0.3 * rng.standard_normal(a.shape)) if hasattr(a, "dtype") else a,
        shapes,
    )
    unravel = ravel_pytree(z)[1]
    at = jax.jit(jax.vmap(lambda t, x: ravel_pytree(score(t, unravel(x)))[0]))
    times = jnp.float32([0.3, 0.8, *[0.3] * 7])
    one, later, *moved = at(times, jnp.stack([flat, flat, *(flat + 0.5 * np.eye(7))]))
    assert not np.allclose(one, later)
    assert (np.stack(moved) != one).all()  # each output depends on all inputs
