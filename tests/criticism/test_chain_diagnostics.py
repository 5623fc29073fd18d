import numpy as np
import pytest

from dgp_ppl import Chains
from dgp_ppl.criticism import chain_diagnostics


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
