"""Samplers in a comparison: their chains, and ArviZ trees."""

import jax
import numpy as np
import pytest
import xarray
from support.comparisons import TINY

import dgp_ppl
from dgp_ppl.criticism._chain_diagnostics import chain_diagnostics


@pytest.mark.slow
def test_samplers_report_how_their_chains_mix(tmp_path):
    """The tree keeps chains apart, and has all log-likelihoods and the sampler's statistics."""
    options = TINY | {"draws": 6, "chains": 2, "splits": 1}
    found = dgp_ppl.compare("step", ("dsvi", "sghmc"), out=tmp_path, **options)
    guided, row = found.splits
    chains = found.fits["sghmc"].fitted.chains
    assert chains.shape == (2, 6)
    assert chain_diagnostics(chains).items() <= row.items()
    assert row["elbo_per_datum"] is None
    assert np.isfinite([row["rmse"], row["log_density"]]).all()
    assert 0.9 < row["rhat_predictions"] < np.inf
    assert guided["rhat_predictions"] is guided["rhat"] is guided["ess"] is None
    assert found.summary[0]["rhat"] == {"mean": None, "se": None}
    with xarray.open_datatree(tmp_path / "sghmc.nc", engine="h5netcdf") as tree:
        assert tree["log_likelihood"]["y"].sizes == {"chain": 2, "draw": 6, "data": 90}
        assert tree["posterior"]["l1.v"].sizes == {
            "chain": 2, "draw": 6, "l1.inducing": 4, "l1.output": 1,
        }  # fmt: skip
        assert {"lp", "diverging"} <= set(tree["sample_stats"])
        assert {n.split(".")[0] for n in tree["fit"]} >= {"noise", "l1", "l2"}


@pytest.mark.slow
def test_no_u_turns():
    """Chains of v alone: neither reference values nor unit noise are kept."""
    options = TINY | {"draws": 40, "chains": 2, "splits": 1, "steps": 200, "samples": 20}
    outcome = dgp_ppl.compare("step", ("nuts",), **options)
    chains = outcome.fits["nuts"].fitted.chains
    assert set(chains.samples) == {"l1.v", "l2.v"}
    assert {"accept_prob", "num_steps", "diverging"} <= set(chains.fields)
    assert outcome.splits[0]["rmse"] < 0.6 * np.std(outcome.fits["nuts"].y_test)


@pytest.mark.slow
def test_minibatches_in_the_reference_space_of_a_coupled_fit():
    """Chains of SGHMC start apart and mix in v: over ten seeds R-hat is at most 1.08.

    With 100 draws it exceeds 1.2 for a third of the seeds.
    """
    options = TINY | {"draws": 2000, "chains": 4, "splits": 1, "steps": 1000, "samples": 20}
    outcome = dgp_ppl.compare("step", ("sghmc_coupled",), batch=30, **options)
    fitted = outcome.fits["sghmc_coupled"].fitted
    assert set(fitted.chains.samples) == {"l1.v", "l2.v"}
    assert np.std(fitted.chains.samples["l1.v"][:, 0], axis=0).min() > 0
    (row,) = outcome.splits
    assert row["rhat"] < 1.15
    assert row["rhat_predictions"] < 1.05
    assert row["rmse"] < 0.6 * np.std(outcome.fits["sghmc_coupled"].y_test)


@pytest.mark.slow
def test_all_of_a_deep_gp_of_few_rows_is_sampled(tmp_path):
    """Draws are in float64; the kept fit predicts the same, and has the tree of other samplers."""
    options = TINY | {"draws": 60, "chains": 2, "splits": 1, "samples": 40}
    outcome = dgp_ppl.compare("step", ("bayes",), out=tmp_path, **options)
    run, (row,) = outcome.fits["bayes"], outcome.splits
    chains = run.fitted.chains
    assert {n.split(".")[0] for n in chains.samples} == {"l1", "l2", "noise"}
    assert {a.dtype for a in chains.samples.values()} == {np.dtype(np.float64)}
    assert row["rmse"] < 0.4 * np.std(run.y_test)
    assert run.tree["log_likelihood"]["y"].sizes == {"chain": 2, "draw": 60, "data": 90}
    assert str(run.check)
    run.save(tmp_path / "bayes.dgp")
    kept = dgp_ppl.load(tmp_path / "bayes.dgp")
    key = jax.random.key(0)
    x = np.linspace(-1, 1, 5)[:, None]
    here = run.fitted.predict(key, x, standardizer=run.standardizer, num_samples=10)
    np.testing.assert_array_equal(kept.predict(key, x, num_samples=10).mean, here.mean)
