"""The evidence by annealed importance sampling, where it is known."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from helpers import KEY, exact_evidence, one_layer, regression
from numpyro import handlers
from objectives import LOG_WEIGHTS, NODES, NOISE
from scipy import stats
from scipy.special import logsumexp
from tiny import TINY, X, Y, given, hidden, tiny, tiny_evidence

import dgp_ppl as dgp
from dgp_ppl.inference.annealing import annealed_evidence
from dgp_ppl.inference.fit import evaluate

ROWS = regression(rows=20)


@functools.cache
def fitted(steps):
    """A guide of `one_layer` with Z = X, whose bound is far from the evidence after few steps."""
    guide = dgp.MeanField(one_layer)
    return guide, dgp.fit(KEY, one_layer, guide, *ROWS, z=ROWS[0], steps=steps, progress=False)


def assert_evidence(found, truth, errors=4.0):
    assert abs(found.log_evidence - truth) < errors * found.standard_error + 2e-3
    assert found.standard_error < 0.3


def annealed(model, guide, params, *args, **options):
    return annealed_evidence(KEY, model, guide, params, *args, num_chains=16, **options)


@pytest.mark.parametrize("temperatures", [100, 200])
def test_exact_for_a_conjugate_model(temperatures):
    """From a guide three nats below; as good with twice the temperatures."""
    guide, result = fitted(50)
    bound = evaluate(KEY, one_layer, guide, result.params, *ROWS, z=ROWS[0])[0]
    truth = exact_evidence(*ROWS)
    assert bound < truth - 2
    found = annealed(one_layer, guide, result.params, *ROWS, z=ROWS[0], temperatures=temperatures)
    assert_evidence(found, truth)
    assert found.log_evidence > bound
    assert found.draws["l1.v"].shape == (16, 20, 1)
    assert 0.6 < found.acceptance.mean() < 0.98


def test_from_the_posterior_all_weights_are_equal():
    guide, result = fitted(1500)
    found = annealed(one_layer, guide, result.params, *ROWS, z=ROWS[0], temperatures=5)
    assert found.log_evidence == pytest.approx(exact_evidence(*ROWS), abs=2e-3)
    assert found.effective_chains == pytest.approx(16, rel=1e-3)


def tiny_bound_evidence():
    """log of the integral over v of p(v) exp(E log p(y | f)), the noise averaged inside."""
    total = []
    for v1, w1 in zip(NODES, LOG_WEIGHTS, strict=True):
        h = hidden(v1, NODES)
        for v2, w2 in zip(NODES, LOG_WEIGHTS, strict=True):
            mean, var = given(v2, h)
            terms = stats.norm(mean, NOISE).logpdf(Y) - var / (2 * NOISE**2)
            total.append(w1 + w2 + (np.exp(LOG_WEIGHTS) @ terms).sum())
    return logsumexp(total)


@pytest.mark.slow
def test_either_target_of_two_layers():
    """By quadrature; between them is what the noise inside the bound's expectation costs."""
    guide, x, y = dgp.MeanField(tiny), jnp.asarray(X, float), jnp.asarray(Y, float)
    model = annealed(tiny, guide, TINY, x, y, target="model", temperatures=200)
    assert_evidence(model, tiny_evidence())
    bound = annealed(tiny, guide, TINY, x, y, temperatures=100, num_noise=400)
    assert tiny_bound_evidence() < tiny_evidence() - 1
    assert_evidence(bound, tiny_bound_evidence(), errors=6)  # of the noise's average too
    assert set(model.draws) == {"l1.v", "l2.v", "l1.eps"}


def test_wrong_use():
    x, y = jnp.asarray(X, float), jnp.asarray(Y, float)
    guide = dgp.MeanField(tiny)
    with pytest.raises(ValueError, match="plate 'data' is subsampled; leave out batch_size"):
        annealed(tiny, guide, TINY, x, y, batch_size=2)
    with pytest.raises(ValueError, match="target is 'prior', wanted 'bound' or 'model'"):
        annealed(tiny, guide, TINY, x, y, target="prior")
    with pytest.raises(ValueError, match="temperatures is 0, wanted at least 1"):
        annealed(tiny, guide, TINY, x, y, temperatures=0)
    with pytest.raises(TypeError, match="guide is <lambda>, wanted MeanField"):
        annealed(tiny, lambda *args: None, TINY, x, y)
    decoupled = dgp.Decoupled(one_layer, ROWS[0][:5], mean="gp_centred")
    with pytest.raises(TypeError, match="wanted MeanField or GlobalInducing"):
        annealed(one_layer, decoupled, {}, *ROWS, z=ROWS[0])

    def scaled(x, y):
        numpyro.sample("level", dist.Normal(0, 1))
        tiny(x, y)

    with pytest.raises(ValueError, match=r"other latent sites, \['level'\]"):
        annealed(scaled, dgp.MeanField(scaled), TINY, x, y)
    fixed = handlers.substitute(scaled, data={"level": jnp.zeros(())})
    fixed = handlers.block(fixed, hide=["level"])
    annealed(fixed, dgp.MeanField(fixed), TINY, x, y, temperatures=2)
