"""The functions that layers represent."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY, assert_mean, layer_moments, spread, two_layer_params

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.models import deep_gp

GUIDE = dgp.MeanField(deep_gp)
BOTH = (spread(5), spread(5))
X = np.linspace(-1.5, 1.5, 7)[:, None]


def functions(key=KEY, **options):
    return dgp.layer_functions(key, deep_gp, GUIDE, two_layer_params(), X, z=BOTH, **options)


def test_layers_agree_with_a_composition_by_hand():
    """On each layer's grid, at its inducing inputs, and at the means of the layer before."""
    params, grid = two_layer_params(), np.linspace(-3, 3, 11)[:, None]
    found = functions(mode="mean", at={"l2": grid}, num_draws=2)
    assert list(found) == ["l1", "l2"]
    first, second = found["l1"], found["l2"]
    mean, var = layer_moments(params, 1, X)
    np.testing.assert_allclose(first.inputs, X)
    np.testing.assert_allclose(first.reached, np.stack([X, X]), rtol=1e-6)
    np.testing.assert_allclose(first.mean[:, 0], X[:, 0] + mean, atol=1e-4)
    np.testing.assert_allclose(first.var[:, 0], var, atol=1e-4)
    np.testing.assert_allclose(second.reached[1], first.passed[1])
    np.testing.assert_allclose(first.passed[1][:, 0], X[:, 0] + mean, atol=1e-4)
    mean, var = layer_moments(params, 2, grid)
    np.testing.assert_allclose(second.mean[:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(second.var[:, 0], var, atol=1e-4)
    np.testing.assert_allclose(second.draws[0], second.mean, atol=1e-4)
    mean, _ = layer_moments(params, 2, second.reached[0].astype(float))
    np.testing.assert_allclose(second.passed[0][:, 0], mean, atol=1e-4)
    mean, var = layer_moments(params, 2, np.asarray(params["l2.z"], float))
    np.testing.assert_allclose(second.z, params["l2.z"])
    np.testing.assert_allclose(second.z_mean[:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(second.z_sd[:, 0], np.sqrt(var), atol=1e-4)


def test_draws_have_the_moments_that_are_given():
    first = functions(num_draws=500)["l1"]
    assert_mean(first.draws[..., 0], first.mean[:, 0])
    squares = np.square(first.draws - first.mean)[..., 0]
    assert_mean(squares, first.var[:, 0])


@pytest.mark.slow
def test_a_draw_is_one_function_on_the_grid_and_on_the_way(x64):
    """At the same points the values agree up to the jitter in the covariance."""
    found = functions(at={"l1": X}, num_draws=3)
    first, second = found["l1"], found["l2"]
    np.testing.assert_allclose(first.draws, first.passed, atol=1e-3)
    np.testing.assert_allclose(second.reached, first.passed)
    assert second.inputs.shape == (100, 1)
    ends = second.inputs[[0, -1], 0]
    np.testing.assert_allclose(ends, [ends.min(), ends.max()])
    assert np.ptp(ends) > 0.5 * np.ptp(second.reached)


def test_models_of_pairs_without_observe():
    """The inputs are [N, 2, D], and the site that is observed has an ordinary distribution."""

    def model(pairs, y=None):
        kernel = kernels.SquaredExponential(numpyro.param("variance", 1.0), 1.0)
        f = dgp.gp("f", kernel, spread(4))
        with dgp.minibatch(pairs, y) as (pairs, y):
            value = f.sample(pairs.reshape(-1, 1), joint=True).reshape(-1, 2)
            numpyro.sample("y", dist.Bernoulli(logits=value[:, 0] - value[:, 1]), obs=y)

    guide, pairs = dgp.MeanField(model), np.linspace(-1, 1, 10).reshape(5, 2, 1)
    params = {"f.v.loc": np.full((4, 1), 0.5), "f.v.scale_tril": 0.1 * np.eye(4)[None]}
    params["variance"] = np.float32(1.0)
    guide.setup(pairs, np.ones(5, int))
    found = dgp.layer_functions(KEY, model, guide, params, pairs, num_draws=2)["f"]
    np.testing.assert_allclose(found.inputs, pairs.reshape(-1, 1), rtol=1e-6)
    assert found.draws.shape == (2, 10, 1)
    assert (found.var < 0.5).all()
    params["variance"] = np.float32(-1.0)
    with pytest.warns(UserWarning, match=r"layer_functions: NaN in .*'f.mean'"):
        dgp.layer_functions(KEY, model, guide, params, pairs, num_draws=2)


@pytest.mark.wrong_types
def test_what_layers_cannot_do_is_said():
    for options, pattern in (
        ({"num_draws": 0}, "num_draws is 0"),
        ({"mode": "all"}, "mode is 'all', wanted 'joint', 'path' or 'mean'"),
        ({"at": {"l3": X}}, "at names the layer 'l3', wanted one of l1, l2"),
        ({"at": {"l2": X[:, 0]}}, r"at\['l2'\] .*\[G, 1\]"),
    ):
        with pytest.raises(ValueError, match=pattern):
            functions(**options)
