"""The density of the Bayesian neural network."""

import numpy as np
from support.helpers import regression

from dgp_ppl import models


def test_network_is_what_it_says():
    """The log density of the model at a draw equals NumPy's."""
    from numpyro import handlers

    x, y = regression(rows=5, dim=2)
    with handlers.seed(rng_seed=0):
        trace = handlers.trace(models.bnn).get_trace(x, y, hidden=(3,))
    s = {n: np.asarray(site["value"], np.float64) for n, site in trace.items() if n != "data"}
    h = np.maximum(np.asarray(x) @ s["w1"] / np.sqrt(2) + s["b1"], 0)
    f = (h @ s["w2"] / np.sqrt(3) + s["b2"])[:, 0]
    expected = -0.5 * ((s["y"] - f) / s["noise"]) ** 2 - np.log(s["noise"] * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(trace["y"]["fn"].log_prob(y), expected, rtol=1e-4)
