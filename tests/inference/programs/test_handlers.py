"""Views of a model: its sites, its plates of data, and its params held constant."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from support.helpers import regression, spread, two_layers

from dgp_ppl._partition import Call
from dgp_ppl.inference.programs._handlers import data_plates, freeze, hidden_samples, survey

X, Y = regression(rows=5)


def test_a_survey_has_shapes_and_leaves_no_trace_outside():
    with handlers.trace() as outside:
        sites = survey(two_layers, Call((X, Y), {"z": spread(4)}))
    assert not outside
    assert {n: s["value"].shape for n, s in sites.items() if n.endswith(".v")} == {
        "l1.v": (4, 1),
        "l2.v": (4, 1),
    }
    assert sites["y"]["is_observed"]


def test_improper_sites_have_shapes_too():
    def model():
        numpyro.sample("x", dist.ImproperUniform(dist.constraints.positive, (3,), (2,)))

    assert survey(model, Call((), {}))["x"]["value"].shape == (3, 2)


def test_plates_of_data_hold_observed_sites():
    """A call without data has the same plates."""

    def model(x, y=None):
        with numpyro.plate("dims", 2):
            numpyro.sample("scale", dist.LogNormal(0, 1))
        two_layers(x, y, z=spread(4))

    assert data_plates(survey(model, Call((X, Y)))) == {"data"}
    assert data_plates(survey(model, Call((X,)))) == {"data"}


def test_frozen_params_are_constants():
    frozen = freeze(two_layers, {"noise": jnp.float32(0.5)})
    with handlers.seed(rng_seed=0):
        sites = handlers.trace(frozen).get_trace(X, Y, z=spread(4))
    assert "noise" not in sites
    assert "l1.z" in sites
    np.testing.assert_allclose(sites["y"]["fn"].likelihood(jnp.zeros(1)).scale, 0.5)


def test_hidden_samples_leave_params_visible():
    with handlers.seed(rng_seed=0), handlers.trace() as sites, hidden_samples():
        two_layers(X, Y, z=spread(4))
    assert {s["type"] for s in sites.values()} == {"param"}
