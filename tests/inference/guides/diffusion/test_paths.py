"""Paths of a diffusion guide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.tree_util import Partial
from support.diffusion import Z, bases, shaken, wavy
from support.helpers import (
    KEY,
    assert_covariance,
    assert_mean,
    regression,
    slow,
    start,
    two_layers,
)

import dgp_ppl as dgp
from dgp_ppl.inference.guides.diffusion._process import (
    Process,
    VariancePreserving,
    simulate_path,
    simulate_process,
)


def test_a_path_ends_where_its_run_does():
    process = Process.exact(VariancePreserving(), 4)
    eta = jnp.asarray(np.random.default_rng(0).uniform(0.2, 1, (4, 3)))
    control = Partial(lambda k, x: jnp.sin(x + k))
    states = simulate_path(KEY, process, control, eta)
    x, _, _ = simulate_process(KEY, process, control, eta)
    assert states.shape == (4, 3)
    np.testing.assert_allclose(states[-1], x, rtol=1e-6)
    # Each step has the mean and variance of the process's definition.
    many = jax.vmap(lambda k: simulate_path(k, process, control, eta))(random.split(KEY, 4000))
    for i, k in enumerate((3, 2, 1)):
        before, after = np.asarray(many[:, i]), np.asarray(many[:, i + 1])
        residual = after - process.carry[k] * before - process.gain[k] * np.sin(before + k)
        assert_mean(residual, 0.0)
        assert_mean(np.square(residual), eta[k])


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


def test_paths_need_a_diffusion():
    x, y = regression(rows=6)
    with pytest.raises(TypeError, match="guide is MeanField, wanted a Diffusion"):
        dgp.diffusion_paths(KEY, dgp.MeanField(two_layers), {}, x, y, z=Z)
    guide = dgp.Diffusion(two_layers, steps=3, base="prior", score=wavy)
    with pytest.raises(ValueError, match="num_paths is 0, wanted at least 1"):
        dgp.diffusion_paths(KEY, guide, {}, x, y, num_paths=0, z=Z)
