"""`repr` of results: a few lines with steps, times, shapes and losses, and never the arrays."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from support.fits import SHALLOW, X, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.comparison import Comparison
from dgp_ppl.inference import AnnealedEvidence, Chains, MCEMResult
from dgp_ppl.models import svgp


def test_results_are_described_in_a_few_lines():
    fit = shallow(4)
    assert f"final loss {fit.losses[-1]:.6g} nats" in repr(fit)
    chains = Chains({"l1.v": np.zeros((2, 5, 6, 1))}, {"lp": np.zeros((2, 5))}, None, 9, 1.5)
    for result in (
        dataclasses.replace(fit, params={f"p{i}": jnp.ones(3) for i in range(1000)}),
        chains,
        Chains({}),
        MCEMResult(fit.params, chains, np.ones(3), 2.0),
        dgp.predict(KEY, svgp, SHALLOW, fit, X, z=Z, num_samples=2),
        AnnealedEvidence(
            -12.3, 0.1, np.zeros((4, 2)), 7.5, {"l1.v": np.zeros((8, 6, 1))}, np.ones(9), np.ones(9)
        ),
        Comparison({"splits": [{"method": "dsvi"}] * 500, "summary": []}),
    ):
        assert len(repr(result)) < 700
