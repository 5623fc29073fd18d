"""`PredictiveELBO`: closed forms, guides, masks."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats
from support.helpers import (
    assert_mean,
    hidden_nodes,
    layer_moments,
    regression,
    slow,
    spread,
    two_layer_params,
)
from support.objectives import NOISE, Z, kl, kls, log_mean_exp_of_pairs, values

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.svi._objectives import PredictiveELBO
from dgp_ppl.models import deep_gp, svgp


def test_predictive_of_one_layer_is_its_closed_form(x64):
    """The value is sum log N(y; mu, s² + v) - beta KL for any K; minibatches are unbiased."""
    x, y = regression(rows=9)
    params = two_layer_params()
    q = {n: a for n, a in params.items() if not n.startswith("l2")}
    mean, var = layer_moments(params, 1, np.asarray(x))
    log_p = stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(y)
    penalty = kl(np.asarray(q["l1.v.loc"]), np.asarray(q["l1.v.scale_tril"][0]))
    guide = dgp.MeanField(svgp)
    for beta, K in ((1.0, 1), (0.3, 4)):
        value = values(PredictiveELBO(beta, K), svgp, guide, q, x, y, z=Z[0])
        assert value == pytest.approx(log_p.sum() - beta * penalty, rel=1e-9)
    batches = values(PredictiveELBO(0.3, 2), svgp, guide, q, x, y, z=Z[0], batch_size=2, num=3000)
    assert_mean(batches, log_p.sum() - 0.3 * penalty)


@pytest.mark.parametrize("batch", [{}, slow({"batch_size": 3})])
def test_a_share_of_the_bound_is_a_share_of_both_objectives(x64, batch):
    """For one layer both objectives have a closed form; the KL's weight is shared too."""
    x, y = regression(rows=9)
    params = {n: a for n, a in two_layer_params().items() if not n.startswith("l2")}
    mean, var = layer_moments(params, 1, np.asarray(x))
    predictive = stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(y).sum()
    expected = (stats.norm(mean, NOISE).logpdf(y) - var / (2 * NOISE**2)).sum()
    penalty = kl(np.asarray(params["l1.v.loc"]), np.asarray(params["l1.v.scale_tril"][0]))
    guide = dgp.MeanField(svgp)
    for share in (0.3, 1.0):
        objective = PredictiveELBO(0.5, 2, elbo_share=share)
        wanted = share * (expected - penalty) + (1 - share) * (predictive - 0.5 * penalty)
        num = 3000 if batch else None
        found = values(objective, svgp, guide, params, x, y, z=Z[0], num=num, **batch)
        if batch:
            assert_mean(found, wanted)
        else:
            assert found == pytest.approx(wanted, rel=1e-9)


def test_a_share_is_between_0_and_1():
    for share in (-0.1, 1.5, "half"):
        with pytest.raises(ValueError, match=r"elbo_share is .*, wanted a number from 0 to 1"):
            PredictiveELBO(elbo_share=share)


@pytest.mark.slow
def test_predictive_of_two_layers_is_a_mixture():
    """The value for two particles agrees with quadrature over the hidden layer."""
    x, y = regression(rows=4)
    params = two_layer_params(variance=0.5)
    weights, terms = [], []
    for weight, h in hidden_nodes(params, x, num=40):
        mean, var = layer_moments(params, 2, h[:, None])
        weights.append(weight)
        terms.append(stats.norm(mean, np.sqrt(var + NOISE**2)).logpdf(y))
    mixed = log_mean_exp_of_pairs(np.array(terms), np.log(weights)).sum()
    guide, objective = dgp.MeanField(deep_gp), PredictiveELBO(0.5, 2)
    draws = values(objective, deep_gp, guide, params, x, y, z=Z, num=6000)
    assert_mean(draws, mixed - 0.5 * kls(params))


# --- use and errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["mask", "handlers.mask"])
def test_predictive_does_not_see_what_a_mask_hides(x64, way):
    """Masked rows do not affect the value, under `handlers.mask` too."""
    x, y = regression(rows=9)
    seen = np.arange(9) < 6

    def model(x, y, seen):
        inner, outer = (seen, True) if way == "mask" else (None, seen)
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), spread(4))
        with dgp.minibatch(x, y) as (x, y), handlers.mask(mask=outer):
            observed = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE), mask=inner)
            numpyro.sample("y", observed, obs=y)

    params = {"l1.v.loc": np.ones((4, 1)), "l1.v.scale_tril": 0.5 * np.eye(4)[None]}
    guide = dgp.MeanField(model)
    hidden = np.where(seen, y, 50.0)
    found = values(PredictiveELBO(0.3, 2), model, guide, params, x, hidden, seen)
    whole = np.ones(6, bool)
    wanted = values(PredictiveELBO(0.3, 2), model, guide, params, x[:6], y[:6], whole)
    assert found == pytest.approx(float(wanted), rel=1e-9)


def test_predictive_does_not_see_missing_entries():
    x, y = regression(rows=6)
    y = np.stack([y, -y], axis=1)
    seen = np.arange(12).reshape(6, 2) % 3 > 0

    def model(x, y):
        f = dgp.gp("l1", kernels.SquaredExponential(1.5, 0.8), spread(4), out=2)
        with dgp.minibatch(x, y, seen) as (x, y, mask):
            observed = dgp.observe(f(x), lambda f: dist.Normal(f, NOISE).to_event(1), mask=mask)
            numpyro.sample("y", observed, obs=y)

    found = [
        values(PredictiveELBO(), model, dgp.MeanField(model), {}, x, np.where(seen, y, hidden))
        for hidden in (0.0, np.nan)
    ]
    assert np.isfinite(found[0])
    assert found[0] == found[1]
