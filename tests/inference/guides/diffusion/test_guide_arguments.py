"""Arguments of the diffusion guide and its objectives, and the errors for wrong ones."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from support.diffusion import Z, wavy
from support.helpers import KEY, bound, one_layer, regression, start

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.evidence._importance import importance_evidence
from dgp_ppl.inference.guides.diffusion._guide import Diffusion
from dgp_ppl.inference.guides.diffusion._networks import DenseScore, score_params
from dgp_ppl.inference.guides.diffusion._process import OrnsteinUhlenbeck, VariancePreserving
from dgp_ppl.inference.svi._objectives import PredictiveELBO


def plain(t, z):
    return {n: jnp.sin(2 * a + t) for n, a in z.items()}


class Wave:
    """A user's class that is not an `equinox` module."""

    def __call__(self, t, z):
        return plain(t, z)


class Speed(eqx.Module):
    """A module with the call signature that is usual in `equinox`."""

    speed: jax.Array

    def __call__(self, t, z, *, key=None):
        return {n: jnp.sin(self.speed * a + t) for n, a in z.items()}


def test_scores_of_any_kind():
    """A maker, its score, and other callables with equal values give one bound."""
    x, y = regression(rows=6)
    scores = {
        "maker": wavy,
        "function": plain,
        "lambda": lambda t, z: plain(t, z),
        "compiled": jax.jit(plain),
        "object": Wave(),
        "module": Speed(jnp.array(2.0)),
        "compiled module": eqx.filter_jit(Speed(jnp.array(2.0))),
    }
    values = {}
    for name, score in scores.items():
        guide = Diffusion(one_layer, steps=2, base="prior", score=score)
        with handlers.seed(rng_seed=0), handlers.trace() as sites:
            guide(x, y, z=Z)
        params = {n: s["value"] for n, s in sites.items() if s["type"] == "param"}
        learned = {n for n in params if "score" in n}
        assert learned == ({"diffusion.score.speed"} if name == "module" else set()) or (
            name == "compiled module" and len(learned) == 1
        )
        values[name] = sites["diffusion.path"]["fn"].log_factor
    np.testing.assert_allclose(list(values.values()), values["maker"], rtol=1e-6)
    assert values["maker"] != 0


def test_what_requires_a_key_makes_a_score():
    guide = Diffusion(one_layer, steps=2)
    guide.setup(*regression(rows=6), z=Z)
    for maker in (DenseScore, partial(DenseScore, width=4), eqx.filter_jit(DenseScore)):
        with handlers.seed(rng_seed=0):
            arrays, _ = score_params(maker, guide.layers, "s")
        assert len(jax.tree.leaves(arrays)) == 6


@pytest.mark.parametrize(
    ("score", "got"),
    [
        (lambda t, z: {n: a[:2] for n, a in z.items()}, r"\{'l1\.v': \(2, 1\)\}"),
        (lambda t, z: jnp.zeros(3), r"\(3,\)"),
        (lambda t, z: {"l2.v": z["l1.v"]}, r"\{'l2\.v': \(5, 1\)\}"),
        (lambda t, z: 0.0, r"\(\)"),
        (lambda layers, rng: lambda t, z: z, r"\(\).*give it a parameter named key"),
        (lambda layers, key: lambda t, z: jnp.zeros(3), r"\(3,\)"),
    ],
)
def test_scores_of_other_shapes(score, got):
    guide = Diffusion(one_layer, steps=2, score=score)
    wanted = rf"score\(t, z\) has the shapes {got}"
    with pytest.raises(ValueError, match=wanted) as error, handlers.seed(rng_seed=0):
        guide(*regression(rows=6), z=Z)
    assert "wanted those of z, {'l1.v': (5, 1)}" in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 2.0}, r"steps is 2\.0, wanted an integer of at least 1, such as steps=8"),
        ({"steps": "8"}, r"steps is '8', wanted an integer of at least 1"),
        ({"steps": True}, r"steps is True, wanted an integer"),
        ({"score": "mlp"}, r"score is 'mlp', wanted a callable \(t, z\)"),
        ({"schedule": "linear"}, r"schedule is 'linear', wanted .* VariancePreserving\(low=0\.1"),
        ({"informed": jnp.ones(3)}, r"informed is a ArrayImpl, wanted .* informed=\(x, y\)"),
        ({"informed": ()}, r"informed is \(\), wanted a tuple"),
    ],
)
def test_arguments_of_other_types(options, message):
    with pytest.raises(TypeError, match=message):
        Diffusion(one_layer, **options)


def test_numbers_of_numpy_are_integers():
    assert Diffusion(one_layer, steps=np.int64(2)).process.carry.shape == (2,)


@pytest.mark.parametrize(
    "schedule", [VariancePreserving(-5.0, -5.0), OrnsteinUhlenbeck(lambda t: 1.0, lambda t: 0.0)]
)
def test_schedules_without_noise(schedule):
    with pytest.raises(ValueError, match=r"schedule is .*, wanted rates that .*positive numbers"):
        Diffusion(one_layer, schedule=schedule)


def test_a_base_of_another_model():
    def other(x, y=None, *, z):
        dgp.gp("other", kernels.SquaredExponential(1.0, 1.0), z)

    guide = Diffusion(one_layer, base=dgp.MeanField(other))
    wanted = r"base is of a model with the layers \{'other\.v'.*wanted those of .*'l1\.v'"
    with pytest.raises(ValueError, match=wanted), handlers.seed(rng_seed=0):
        guide(*regression(rows=6), z=Z)


def test_informed_of_no_data():
    x, y = regression(rows=6)
    guide = Diffusion(one_layer, steps=2, informed=(x,))
    wanted = r"informed has 1 of the model's arguments, .* observes nothing.*informed=\(x, y\)"
    with pytest.raises(ValueError, match=wanted), handlers.seed(rng_seed=0):
        guide(x, y, z=Z)


def test_the_weight_of_the_kl_is_a_number():
    with pytest.raises(ValueError, match=r"beta is 'a', wanted a number"):
        PredictiveELBO("a")


def test_the_printed_form_has_no_learned_variances_and_no_weights():
    x, y = regression(rows=6)
    guide = Diffusion(one_layer, steps=2, base="prior", score=plain, discretization="euler")
    params = start(one_layer, guide, x, y, z=Z)
    assert params == {}
    assert np.isfinite(bound(one_layer, guide, params, x, y, z=Z))
    with pytest.raises(
        ValueError, match=r"importance_evidence: guide has discretization='euler'.*no import"
    ):
        importance_evidence(KEY, one_layer, guide, params, x, y, z=Z)
