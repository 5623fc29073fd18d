"""Own kernels with equal hyperparameters are one shared kernel: every route has the same numbers.

The guides' own contract tests run on own kernels, and `test_gp` has the moments of each output.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KEY, regression

import dgp_ppl as dgp
from dgp_ppl import plots
from dgp_ppl.inference import evaluate
from dgp_ppl.models import deep_gp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore:annealed_evidence. 8 particles:UserWarning"),
]

SHARED = partial(deep_gp, share_kernel=True)
NEW = np.stack(np.meshgrid([-1.0, 0.0, 2.0], [-2.0, 1.0]), -1).reshape(-1, 2)
P = 2  # outputs of the hidden layer


@pytest.fixture(scope="module")
def fits():
    """Return inducing inputs, data, and params of a shared kernel and of own kernels."""
    with jax.enable_x64(True):
        x, y = regression(rows=16, dim=2)
        z = (np.asarray(x[:5]),) * 2
        result = dgp.fit(
            KEY, SHARED, dgp.MeanField(SHARED), x, y, z=z, steps=60, learning_rate=0.05,
            progress=False,
        )  # fmt: skip
        own = dict(result.params)
        for name in ("l1.variance", "l1.lengthscale"):
            own[name] = jnp.broadcast_to(own[name], (P, *jnp.shape(own[name])))
        return z, (x, y), {SHARED: result.params, deep_gp: own}


def bound(model, params, z, x, y):
    return evaluate(KEY, model, dgp.MeanField(model), params, x, y, z=z, num_draws=3)[0]


def prediction(model, params, z, x, y):
    p = dgp.predict(KEY, model, dgp.MeanField(model), params, NEW, z=z, num_samples=4)
    return jnp.stack([p.mean, p.var, p.log_prob(jnp.zeros(len(NEW)))])


def annealing(model, params, z, x, y):
    return dgp.annealed_evidence(
        KEY, model, dgp.MeanField(model), params, x, y, z=z, temperatures=4, leapfrogs=2,
        num_particles=8, num_noise=2, progress=False,
    ).log_weights  # fmt: skip


def arviz_groups(model, params, z, x, y):
    guide = dgp.MeanField(model)
    tree = dgp.to_inferencedata(KEY, model, guide, params, x, y, z=z, num_samples=4)
    groups = ("log_likelihood", "posterior_predictive", "prior_predictive")
    return jnp.concatenate([np.ravel(tree[group]["y"]) for group in groups])


def layer_functions(model, params, z, x, y):
    found = dgp.layer_functions(KEY, model, dgp.MeanField(model), params, NEW, z=z, num_draws=3)
    for plot in (plots.layers, plots.hidden_maps):
        plot(found)
    return jnp.concatenate([jnp.ravel(f.mean) for f in found.values()])


ROUTES = {
    "evaluate": bound,
    "predict": prediction,
    "annealed_evidence": annealing,
    "ArviZ": arviz_groups,
    "plots of layers": layer_functions,
}


@pytest.mark.parametrize("name", ROUTES)
def test_equal_own_kernels_are_a_shared_kernel(name, fits):
    z, data, params = fits
    shared, own = (np.asarray(ROUTES[name](m, params[m], z, *data)) for m in (SHARED, deep_gp))
    assert np.ptp(shared) > 0 or shared.ndim == 0
    np.testing.assert_allclose(own, shared, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["predict", "evaluate", "ArviZ"])
def test_other_own_kernels_are_not(name, fits):
    """The routes read each output's hyperparameters."""
    z, data, params = fits
    changed = dict(params[deep_gp])
    changed["l1.lengthscale"] = changed["l1.lengthscale"] * jnp.array([[1.0], [0.3]])
    own, shared = (
        np.asarray(ROUTES[name](deep_gp, p, z, *data)) for p in (changed, params[deep_gp])
    )
    assert np.abs(own - shared).max() > 1e-3
