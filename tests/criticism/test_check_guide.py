"""Both diagnostics of a guide at the exact posterior, and of one that is too narrow."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.conjugate import KEY, N, X, Y, conjugate, guide_params, posterior

import dgp_ppl as dgp


@pytest.mark.slow
def test_both_of_numpyros_diagnostics_in_one_call():
    """At the exact posterior both pass. With a quarter of its spread k-hat is too large."""
    guide = dgp.MeanField(conjugate)
    loc, cov = posterior()
    params = guide_params(loc, np.linalg.cholesky(cov))
    x, y = jnp.asarray(X), jnp.asarray(Y)
    check = dgp.check_guide(
        KEY, conjugate, guide, params, x, y, num_simulations=40, steps=600, learning_rate=0.03
    )
    assert check.khat is not None
    assert check.khat < 0.5
    assert check.p_values is not None
    assert check.p_values["l1.v"].shape == (N, 1)
    assert check.biased_share is not None
    assert check.biased_share < 0.25
    assert "q is close to the posterior" in str(check)
    assert "VSBC" in str(check)
    narrow = {**params, "l1.v.scale_tril": 0.25 * params["l1.v.scale_tril"]}
    wrong = dgp.check_guide(KEY, conjugate, guide, narrow, x, y, num_simulations=0)
    assert wrong.khat is not None
    assert wrong.khat > 0.7
    assert wrong.p_values is None
    assert str(wrong) == f"PSIS k-hat {wrong.khat:.2f}: q is far from the posterior (limit 0.7)"
    with pytest.raises(ValueError, match="by position"):
        dgp.check_guide(KEY, conjugate, guide, params, x)
    with pytest.raises(ValueError, match="num_simulations is 1"):
        dgp.check_guide(KEY, conjugate, guide, params, x, y, num_simulations=1)
