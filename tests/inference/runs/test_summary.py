"""`repr` of results, guides and objectives: a few lines."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from support.fits import DEEP, SHALLOW, X, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.comparison import Comparison
from dgp_ppl.inference import AnnealedEvidence, Chains, MCEMResult
from dgp_ppl.inference.runs._summary import program_name
from dgp_ppl.models import svgp
from dgp_ppl.prediction import LatentInputs, LayerFunction


@pytest.fixture(scope="module")
def fit():
    return shallow(4)


def test_a_fit_names_steps_loss_time_and_shapes(fit):
    lines = repr(fit).splitlines()
    assert lines[0].startswith("FitResult: 4 steps in ")
    assert f"final loss {fit.losses[-1]:.6g} nats (ELBO per datum" in lines[0]
    assert "l1.v.scale_tril [1, 6, 6]" in repr(fit)
    assert "noise []" in repr(fit)
    assert len(lines) <= 4
    assert all(len(line) <= 110 for line in lines)
    empty = dataclasses.replace(fit, losses=np.zeros(0), params={"net": [jnp.ones(2)] * 3})
    assert "0 steps" in repr(empty)
    assert "net (3 arrays)" in repr(empty)
    many = dataclasses.replace(fit, params={f"p{i}": jnp.ones(3) for i in range(1000)})
    assert "(1000 in all)" in repr(many)
    assert len(repr(many)) < 700


def test_chains_and_mcem(fit):
    chains = Chains({"l1.v": np.zeros((2, 5, 6, 1))}, {"lp": np.zeros((2, 5))}, None, 9, 1.5)
    text = "Chains: 2 chains of 5 draws, 9 steps of each in 1.5 s\n  samples: l1.v [6, 1]"
    assert repr(chains).startswith(text)
    assert repr(Chains({})) == "Chains: no draws"
    result = repr(MCEMResult(fit.params, chains, np.ones(3), 2.0))
    assert result.startswith("MCEMResult: 3 steps in 2 s, final potential energy 1 nats")
    assert "chains: Chains: 2 chains of 5 draws" in result


def test_predictions_and_other_results(fit):
    p = dgp.predict(KEY, svgp, SHALLOW, fit, X, z=Z, num_samples=2)
    text = "y at 20 inputs [20, 1], a mixture of 2 distributions each, in the model's units"
    assert repr(p) == f"Prediction: {text}"
    assert repr(dgp.pool([p, p])).startswith("PooledPrediction: y at 20 inputs")
    found = AnnealedEvidence(
        -12.345, 0.1, np.zeros((4, 2)), 7.5, {"l1.v": np.zeros((8, 6, 1))}, np.ones(10), np.ones(9)
    )
    assert repr(found) == (
        "AnnealedEvidence: log evidence -12.345 +- 0.1 nats\n"
        "  worth 7.5 of 8 particles, 9 temperatures"
    )
    latent = LatentInputs(
        jnp.ones((5, 2)), jnp.ones((5, 2)), jnp.ones((5, 1)), None, svgp, SHALLOW, {}, "w"
    )
    assert repr(latent) == "LatentInputs: 5 rows of 2 latent inputs, beside 1 known inputs"
    layer = LayerFunction(*[np.zeros((3, 2))] * 9)
    assert repr(layer).startswith("LayerFunction: 3 draws\n  arrays: inputs [3, 2], mean [3, 2]")
    record = {"splits": [{"method": "dsvi"}] * 500, "summary": [{"method": "dsvi"}]}
    assert len(repr(Comparison(record))) < 200


def test_guides_and_objectives_show_the_call_that_makes_them():
    assert repr(SHALLOW) == "MeanField(svgp)"
    assert (
        repr(dgp.MeanField(svgp, covariance="diagonal")) == "MeanField(svgp, covariance='diagonal')"
    )
    assert repr(dgp.GlobalInducing(svgp, X)) == "GlobalInducing(svgp, array[20, 1])"
    assert repr(dgp.Diffusion(svgp, steps=3)).startswith(
        "Diffusion(svgp, steps=3, base=MeanField(svgp)"
    )
    assert repr(dgp.PredictiveELBO(elbo_share=0.5)) == "PredictiveELBO(elbo_share=0.5)"
    assert repr(DEEP.changed(hidden_scale=0.1)) == "MeanField(deep_gp, hidden_scale=0.1)"


def test_programs_are_named_within_their_handlers():
    held = dgp.freeze(svgp, {"noise": 0.1})
    assert program_name(svgp) == program_name(held) == "svgp"
    assert program_name(functools.partial(held, z=Z)) == "svgp"
    assert program_name(SHALLOW) == "MeanField"
