"""Both diagnostics of a guide at the exact posterior, and of one that is too narrow."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.autoguide import AutoDelta, AutoNormal
from scipy.stats import norm
from support.conjugate import KEY, N, X, Y, conjugate, guide_params, posterior

import dgp_ppl as dgp
from dgp_ppl._partition import TRACING
from dgp_ppl.criticism._check_guide import _without_lock, symmetry_p_values, walk_p_value


def test_an_exact_guide_has_small_p_values_by_chance_alone():
    """Of ranks alone, 50 simulations each. Bias shows; a guide that is too narrow does not."""
    rng = np.random.default_rng(0)
    v = rng.standard_normal((50, 1000))

    def share(bias, scale):
        ranks = rng.binomial(200, norm.cdf((v - bias) / scale))
        return np.mean(symmetry_p_values(ranks / 200) < 0.05)

    assert 0.02 < share(0.0, 1.0) < 0.05 + 3 * 0.007
    assert share(0.5, 1.0) > 0.7
    assert share(0.0, 0.5) < 0.05 + 3 * 0.007
    walks = np.abs(np.cumsum(list(itertools.product((-1, 1), repeat=9)), axis=1)).max(axis=1)
    for farthest in range(1, 10):
        assert walk_p_value(farthest, 9) == pytest.approx(np.mean(walks >= farthest))


def test_other_threads_run_models_during_the_fits_of_vsbc():
    def is_free():
        if got := TRACING.acquire(blocking=False):
            TRACING.release()
        return np.asarray(got)

    with TRACING, ThreadPoolExecutor(1) as pool:
        ask = lambda _: pool.submit(is_free).result()  # noqa: E731
        fit = lambda x: jax.pure_callback(ask, jax.ShapeDtypeStruct((), bool), x)  # noqa: E731
        assert _without_lock(fit, [jnp.zeros(2)])(jnp.ones(2)).tolist() == [True, True]
        assert not ask(None)


def test_fits_that_had_not_converged_are_told():
    """Natural steps of `MeanField` reach the optimum at once; Adam's do not."""
    params, few = (
        guide_params(*posterior()),
        {"num_simulations": 4, "steps": 50, "num_weights": 100},
    )
    x, y = jnp.asarray(X), jnp.asarray(Y)
    good = dgp.check_guide(KEY, conjugate, dgp.MeanField(conjugate), params, x, y, **few)
    assert "raise steps" not in str(good)
    start = {"l1.v_auto_loc": jnp.zeros((N, 1)), "l1.v_auto_scale": jnp.ones((N, 1))}
    with pytest.warns(UserWarning, match=r"not converged .* nats .*: raise steps; p-values"):
        bad = dgp.check_guide(KEY, conjugate, AutoNormal(conjugate), start, x, y, **few)
    assert str(bad).endswith("raise steps")


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
    point = AutoDelta(conjugate), {"l1.v_auto_loc": jnp.asarray(loc).reshape(N, 1)}
    assert dgp.check_guide(KEY, conjugate, *point, x, y, num_simulations=0).khat is None
    with pytest.raises(ValueError, match="by position"):
        dgp.check_guide(KEY, conjugate, guide, params, x)
    with pytest.raises(ValueError, match="num_simulations is 1"):
        dgp.check_guide(KEY, conjugate, guide, params, x, y, num_simulations=1)
