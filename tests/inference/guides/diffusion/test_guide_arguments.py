"""Arguments of the diffusion guide and of objectives, and the errors for wrong ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from support.diffusion import Z, wavy
from support.helpers import one_layer, regression

from dgp_ppl.inference.guides.diffusion._guide import Diffusion


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


def test_scores_of_other_shapes():
    for score, got in (
        (lambda t, z: {n: a[:2] for n, a in z.items()}, r"\{'l1\.v': \(2, 1\)\}"),
        (lambda layers, rng: lambda t, z: z, r"\(\).*give it a parameter named key"),
        (lambda layers, key: lambda t, z: jnp.zeros(3), r"\(3,\)"),
    ):
        guide = Diffusion(one_layer, steps=2, score=score)
        wanted = rf"score\(t, z\) has the shapes {got}"
        with pytest.raises(ValueError, match=wanted), handlers.seed(rng_seed=0):
            guide(*regression(rows=6), z=Z)


def run(guide):
    with handlers.seed(rng_seed=0):
        guide(*regression(rows=6), z=Z)


def test_errors():
    """Each names the argument and what was wanted."""
    for error, message, options in (
        (TypeError, "steps is 2.0, wanted an integer of at least 1", {"steps": 2.0}),
        (TypeError, r"score is 'mlp', wanted a callable \(t, z\)", {"score": "mlp"}),
        (TypeError, "schedule is 'linear', wanted .* VariancePreserving", {"schedule": "linear"}),
        (TypeError, r"informed is a .*, wanted .* informed=\(x, y\)", {"informed": jnp.ones(3)}),
        (ValueError, "last is 'kept', wanted 'integrated' or 'drawn'", {"last": "kept"}),
        (ValueError, "base is 'none', wanted MeanField", {"base": "none"}),
        (
            ValueError,
            r"informed has 1 of the model's arguments, .* observes nothing.*informed=\(x, y\)",
            {"informed": (regression(rows=6)[0],)},
        ),
        (
            TypeError,
            r"arrays of \['int32'\], which cannot be learned",
            {"score": Speed(jnp.array(3))},
        ),
    ):
        with pytest.raises(error, match=message):
            run(Diffusion(one_layer, **{"steps": 2, **options}))
    with handlers.block(), pytest.raises(ValueError, match="Diffusion needs a random key"):
        Diffusion(one_layer)(*regression(rows=6), z=Z)
