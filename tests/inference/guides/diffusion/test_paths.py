"""Paths of a diffusion guide."""

import numpy as np
import pytest
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
