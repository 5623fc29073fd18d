"""R-hat of predictions at fixed rows."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import Chains, models
from dgp_ppl.criticism import chain_diagnostics, prediction_diagnostics
from dgp_ppl.criticism._chain_diagnostics import chain_lines

X = jnp.linspace(-1, 1, 7)[:, None]
Y = np.linspace(-0.5, 1.5, 7)


def ridge(x, y=None):
    """Only the sum of two values matters to f."""
    f = dgp.gp("f", dgp.kernels.SquaredExponential(1.0, 1.0), X[::3])
    shift = numpyro.sample("a", dist.Normal(0, 1)) + numpyro.sample("b", dist.Normal(0, 1))
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + shift, 0.3)), obs=y)


def drawn(total, chains=4, draws=200):
    """Chains that are far apart along the ridge; `total` [C] is their mean across it."""
    rng = np.random.default_rng(0)
    a = 5 * np.arange(chains)[:, None] + rng.standard_normal((chains, draws))
    sums = np.asarray(total)[:, None] + rng.standard_normal((chains, draws))
    v = rng.standard_normal((chains, draws, 3, 1))
    return dgp.Chains({"f.v": v, "a": a, "b": sums - a})


def diagnosed(chains, **options):
    options = {"num_draws": 100, "num_noise": 1} | options
    return prediction_diagnostics(KEY, ridge, {}, X, Y, posterior_samples=chains, **options)


def test_directions_that_predictions_do_not_see():
    chains = drawn(np.zeros(4))
    assert chain_diagnostics(chains)["rhat"] > 2
    found = diagnosed(chains)
    assert found["rhat_predictions"] < 1.05
    assert found["rhat_log_density"] < 1.05
    assert found["ess_predictions"] > 200


def test_chains_that_predict_differently():
    found = diagnosed(drawn([0.0, 3.0, 0.0, 3.0]))
    assert found["rhat_predictions"] > 1.3
    assert found["ess_predictions"] < 20


def test_noise_of_hidden_layers_does_not_look_like_mixing():
    """A draw predicts the same whenever it comes: chains that stay where they are are stuck."""
    v = np.random.default_rng(0).standard_normal((2, 5, 1))
    chains = dgp.Chains({f"l{i}.v": np.tile(v[i - 1], (4, 20, 1, 1)) for i in (1, 2)})
    z = X[:5]
    found = prediction_diagnostics(
        KEY, models.deep_gp, {}, X, Y, posterior_samples=chains, z=(z, z), num_noise=3
    )
    assert found["rhat_log_density"] == found["rhat_predictions"] == np.inf
    assert found["ess_log_density"] == found["ess_predictions"] == "stuck"


@pytest.mark.parametrize("value", [np.nan, 7.0])
def test_a_stuck_chain_has_no_effective_sample_size(value):
    """Of draws that are NaN or constant in one chain; the site has a name."""
    chains = drawn(np.zeros(4))
    chains.samples["a"][1] = value
    found, lines = chain_diagnostics(chains), chain_lines(chains)
    assert (found["rhat"], found["ess"]) == (np.inf, "stuck")
    assert found["rhat_site"] == found["ess_site"] == "a"
    assert [line[::2] for line in lines] == [("draws", "bad")]
    assert lines[0][1] == ("a is not finite" if np.isnan(value) else "a is constant in chains [1]")
    alone = dgp.Chains({"a": np.full((1, 20), value)})
    assert (chain_diagnostics(alone)["rhat"], chain_diagnostics(alone)["ess"]) == (None, "stuck")


def test_an_indicator_may_be_constant_in_a_chain():
    chains = drawn(np.zeros(4))
    chains.samples["on"] = (chains.samples["a"] > 0).astype(np.int32)
    chains.samples["on"][1] = 1
    assert isinstance(chain_diagnostics(chains)["ess"], float)
    assert "draws" not in {what for what, *_ in chain_lines(chains)}
    assert chain_lines(dgp.Chains({"on": np.ones((2, 20), bool)})) == []


ADAPTED = SimpleNamespace(step_size=np.full(4, 1e-6))
RUNS = {
    "step size": ({}, SimpleNamespace(adapt_state=ADAPTED), "the step size is 1e-06 (a moves le"),
    "leapfrog steps": ({"num_steps": np.full((4, 200), 1023)}, None, "100% of the draws take 1023"),
    "acceptance": (
        {"accept_prob": np.full((4, 200), 0.9999)},
        None,
        "acceptance is 1.000 (a moves",
    ),
    "divergences": ({"diverging": np.ones((4, 200), bool)}, None, "1 of the draws diverge"),
    "temperature": ({"temperature": np.full((4, 200), 0.76)}, None, "temperature is 0.76, wanted"),
}


def test_lines_about_chains_name_the_site_and_the_cure():
    """Of planted faults; sound chains are all good, and slow ones are not."""
    rng = np.random.default_rng(0)
    samples = {
        "a": np.cumsum(rng.standard_normal((4, 200)), axis=1) / 99,
        "b": rng.random((4, 200)),
    }
    for what, (fields, state, value) in RUNS.items():
        lines = {line[0]: line for line in chain_lines(dgp.Chains(samples, fields, state))}
        assert lines[what][2] == "bad"
        assert value in lines[what][1]
        assert len(lines[what][3]) > 30
        assert lines["R-hat"][1].endswith("of a")
        assert lines["ESS"][2] == "bad"
    sound = {n: rng.standard_normal((4, 200)) for n in "ab"}
    temperature = 1 + 0.3 * rng.standard_normal((4, 200))
    lines = chain_lines(dgp.Chains(sound, {"temperature": temperature}))
    assert {line[2] for line in lines} == {"good"}


@pytest.mark.wrong_types
def test_wrong_use():
    chains, few = drawn(np.zeros(4)), drawn(np.zeros(4), draws=3)
    for error, call, pattern in (
        (TypeError, lambda: diagnosed({"a": np.zeros(8)}), "posterior_samples is a dict"),
        (ValueError, lambda: diagnosed(few), "3 draws of each chain, wanted at least 4"),
        (ValueError, lambda: diagnosed(chains, num_noise=0), "num_noise is 0"),
    ):
        with pytest.raises(error, match=f"prediction_diagnostics: .*{pattern}"):
            call()


def test_chains_that_do_not_mix():
    """R-hat detects it although some values are constant, such as zeros of a triangular matrix."""
    draws = np.random.default_rng(0).standard_normal((2, 200, 3)) + 5 * np.arange(2)[:, None, None]
    fields = {"diverging": np.eye(2, 200, dtype=bool)}
    chains = Chains({"a": draws, "b": np.ones((2, 200, 2))}, fields, None, 200, 0.0)
    diagnostics = chain_diagnostics(chains)
    assert diagnostics["rhat"] > 1.5
    assert diagnostics["ess"] < 10
    assert diagnostics["divergences"] == 2
    single = Chains({"a": draws[:1]}, {}, None, 200, 0.0)
    assert chain_diagnostics(single)["rhat"] is None


def test_weighted_draws_have_a_worth_and_no_r_hat():
    """All the weight is on one island, so that the raw values say nothing."""
    draws = np.random.default_rng(0).standard_normal((8, 64, 1)) + np.arange(8)[:, None, None]
    log_weights = np.where(np.arange(8)[:, None] == 3, 0.0, -50.0) + np.zeros((8, 64))
    found = chain_diagnostics(Chains({"a": draws}, log_weights=log_weights))
    assert found["rhat"] is None
    assert found["ess"] == pytest.approx(64)
