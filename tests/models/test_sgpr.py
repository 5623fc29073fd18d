"""SGPR as a NumPyro model."""

import numpy as np
import pytest
from numpyro.infer import Predictive
from support.helpers import KEY, assert_mean, regression, spread, squared_exponential
from support.objectives import NOISE, hyperparameters

from dgp_ppl.models import sgpr

pytestmark = pytest.mark.usefixtures("x64")


def test_sgpr_draws_from_its_low_rank_normal():
    x, _ = regression(rows=6)
    z = spread(4)
    draw = Predictive(sgpr, params=hyperparameters(z), num_samples=6000)
    y = draw(KEY, x, z=z)["y"]
    Kzx = squared_exponential(z, x)
    cov = Kzx.T @ np.linalg.solve(squared_exponential(z, z), Kzx) + NOISE**2 * np.eye(6)
    assert_mean(y, np.zeros(6))
    assert_mean(y[:, :, None] * y[:, None, :], cov)
