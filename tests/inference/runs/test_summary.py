"""`repr` of results, guides and objectives: a few lines."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from support.fits import DEEP, SHALLOW, X, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.comparison import Comparison
from dgp_ppl.inference import AnnealedEvidence, Chains, MCEMResult
from dgp_ppl.inference.runs._summary import program_name
from dgp_ppl.models import svgp


def test_results_are_described_in_a_few_lines():
    """Steps, times, shapes and losses; never the arrays."""
    fit = shallow(4)
    lines = repr(fit).splitlines()
    assert lines[0].startswith("FitResult: 4 steps in ")
    assert f"final loss {fit.losses[-1]:.6g} nats (ELBO per datum" in lines[0]
    assert "l1.v.scale_tril [1, 6, 6]" in repr(fit)
    assert len(lines) <= 4
    assert all(len(line) <= 110 for line in lines)
    odd = dataclasses.replace(fit, losses=np.zeros(0), params={"net": [jnp.ones(2)] * 3})
    assert "0 steps" in repr(odd)
    assert "net (3 arrays)" in repr(odd)
    many = dataclasses.replace(fit, params={f"p{i}": jnp.ones(3) for i in range(1000)})
    assert "(1000 in all)" in repr(many)
    assert len(repr(many)) < 700
    chains = Chains({"l1.v": np.zeros((2, 5, 6, 1))}, {"lp": np.zeros((2, 5))}, None, 9, 1.5)
    evidence = AnnealedEvidence(
        -12.345, 0.1, np.zeros((4, 2)), 7.5, {"l1.v": np.zeros((8, 6, 1))}, np.ones(10), np.ones(9)
    )
    p = dgp.predict(KEY, svgp, SHALLOW, fit, X, z=Z, num_samples=2)
    for result, text in (
        (chains, "Chains: 2 chains of 5 draws, 9 steps of each in 1.5 s\n  samples: l1.v [6, 1]"),
        (Chains({}), "Chains: no draws"),
        (MCEMResult(fit.params, chains, np.ones(3), 2.0), "MCEMResult: 3 steps in 2 s, final pot"),
        (p, "Prediction: y at 20 inputs [20, 1], a mixture of 2 distributions each, in the"),
        (evidence, "AnnealedEvidence: log evidence -12.345 +- 0.1 nats\n  worth 7.5 of 8"),
        (Comparison({"splits": [{"method": "dsvi"}] * 500, "summary": []}), ""),
    ):
        assert repr(result).startswith(text)
        assert len(repr(result)) < 700


def test_guides_and_objectives_show_the_call_that_makes_them():
    for made, text in (
        (SHALLOW, "MeanField(svgp)"),
        (dgp.MeanField(svgp, covariance="diagonal"), "MeanField(svgp, covariance='diagonal')"),
        (dgp.GlobalInducing(svgp, X), "GlobalInducing(svgp, array[20, 1])"),
        (dgp.PredictiveELBO(elbo_share=0.5), "PredictiveELBO(elbo_share=0.5)"),
        (DEEP.replace(hidden_scale=0.1), "MeanField(deep_gp, hidden_scale=0.1)"),
    ):
        assert repr(made) == text


def test_programs_are_named_within_their_handlers():
    held = dgp.freeze(svgp, {"noise": 0.1})
    assert program_name(svgp) == program_name(held) == "svgp"
    assert program_name(functools.partial(held, z=Z)) == "svgp"
    assert program_name(SHALLOW) == "MeanField"
