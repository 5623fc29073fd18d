"""Arguments and models that the samplers refuse: errors name the argument and the cure."""

import importlib.util
from functools import cache, partial

import blackjax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer import AIES, NUTS
from support.helpers import KEY, assert_errors
from support.mcem_runs import X as X_EM, Y as Y_EM, slope as with_params
from support.mcmc_runs import X, Y, short, slope

import dgp_ppl as dgp

run = partial(dgp.run_mcmc, KEY, num_warmup=20, num_samples=2, progress=False)
em = partial(dgp.fit_mcem, KEY, with_params, X_EM, Y_EM, steps=2, progress=False)


def coin():
    numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("side", dist.Bernoulli(0.5))


def constant():
    numpyro.sample("c", dist.Delta(1.0))


def one():
    numpyro.sample("x", dist.Normal(0, 1))


def improper():
    numpyro.sample("x", dist.ImproperUniform(dist.constraints.real, (), ()))


def cliff(edge):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.factor("cliff", jnp.where(x > edge, jnp.nan, 0.0) * x)


def half(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=3) as rows:
        numpyro.sample("y", dist.Normal(x[rows, 0] * w[0], 1), obs=y[rows])


def rows_of_steps():
    def step(x, _):
        with numpyro.plate("rows", 4, subsample_size=2):
            own = numpyro.sample("own", dist.Normal(x, 1))
        return own.sum(), None

    scan(step, jnp.zeros(()), None, length=3)


def wider(x, y):
    numpyro.sample("b", dist.Normal(0, 1))
    slope(x, y)


def without_params(x, y):
    numpyro.sample("y", dist.Normal(numpyro.sample("w", dist.Normal(0, 1)) * x, 1), obs=y)


def no_position(density):
    return blackjax.SamplingAlgorithm(lambda *args: (), lambda *args: ((), ()))


@cache
def state():
    return short(num_chains=2).state


AT = {"x": jnp.array([1.0, 3.0, 4.0])}
OPTIONS = [
    (lambda: dgp.SGHMC(slope, step_size=0.0), "SGHMC: step_size is 0.0, wanted a positive"),
    (lambda: dgp.SGHMC(slope, preconditioner="full"), "preconditioner is 'full', wanted 'var"),
    (lambda: dgp.AdjustedMCLMC(slope, target_accept_prob=1.0), "target_accept_prob is 1.0, wanted"),
    (lambda: dgp.BlackJAXKernel(slope, 3), "TypeError: .*algorithm is 3, wanted a function of"),
    (lambda: run(dgp.BlackJAXKernel(one, lambda density: 3)), "TypeError: .*returned a int, want"),
    (lambda: run(dgp.BlackJAXKernel(one, no_position)), "TypeError: .*state is a tuple, wanted"),
    (
        lambda: short(dgp.AdjustedMCLMC(slope)),
        "MCLMC: num_warmup is 0, wanted at least 20 for the adapt",
    ),
]
MODELS = [
    (lambda: run(dgp.SGHMC(coin)), r"SGHMC: .*\['side'\] are discrete.*DiscreteHMCGibbs"),
    (lambda: run(NUTS(coin)), r"NUTS: .*\['side'\] are discrete.*DiscreteHMCGibbs"),
    (lambda: run(dgp.SGHMC(lambda: None)), "SGHMC: the model has no latent sites"),
    (lambda: run(dgp.SGHMC(rows_of_steps)), r"\['own'\] are in a plate with a subsample_size"),
    (lambda: run(dgp.AdjustedMCLMC(constant)), r"\['c'\] have a delta distribution.*deterministic"),
    (
        lambda: run(dgp.AdjustedMCLMC(half), X, Y),
        "plate 'rows' takes 3 of 60 rows.*batch_size.*SGHMC",
    ),
    (
        lambda: run(dgp.AdjustedMCLMC(cliff), 2.0, num_chains=3, init_params=AT),
        r"of chains \[1, 2\].*'cliff': nan",
    ),
    (
        lambda: run(dgp.AdjustedMCLMC(one)),
        "AdjustedMCLMC: the model has one latent value, wanted at",
    ),
    (lambda: run(dgp.ParallelTempering(improper)), "Tempering: .* improper prior.* proper one"),
]
STARTS = [
    (
        lambda: run(dgp.SGHMC(slope), X, Y, init_params={"w": jnp.zeros(2)}),
        r"SGHMC: init_params has {'w': \(1, 2\)}, wanted .*'w': \(1, 3\)",
    ),
    (
        lambda: short(num_chains=3, start=state()),
        r"start\.i is int32 of shape \(2,\), wanted .* \(3,\).*the `Chains.state` of an earlier",
    ),
    (
        lambda: short(dgp.SGHMC(wider), num_chains=2, start=state()),
        r"start\.z\['b'\] is missing, wanted float32 of",
    ),
]
RUNS = [
    (lambda: short(num_warmup=3, start=state()), "num_warmup is 3, wanted 0 where start"),
    (lambda: short(extra_fields=("enrgy",)), "extra_fields has 'enrgy'.*'potential_energy'"),
    (lambda: short(AIES(slope), num_chains=3), "num_chains is 3, wanted an even"),
    (lambda: em(start={"nois": 0.1}), r"start has \['nois'\], wanted params of the model: \['noi"),
    (
        lambda: em(start={"noise": -0.1}),
        r"start\['noise'\] is -0.1.*, wanted finite numbers within",
    ),
    (lambda: em(start={"noise": np.ones(3)}), r"start: params\['noise'\] has shape \(3,\), wanted"),
    (lambda: em(learning_rate=1e30, steps=300), r"NonFiniteLossError: .*step \d+: (param|the pot)"),
    (lambda: em(sampler=NUTS), "fit_mcem: sampler makes NUTS, wanted SGHMC"),
    (lambda: em(expected=1.5), r"expected is 1\.5, wanted a number between 0 and 1"),
    (lambda: dgp.fit_mcem(KEY, without_params, X_EM, Y_EM), "fit_mcem: the model has no params to"),
]


def test_errors_name_the_argument_and_the_cure():
    assert_errors(OPTIONS + MODELS + STARTS + RUNS)


def test_without_blackjax(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"wanted blackjax; .*install 'dgp_ppl\[blackjax\]'"):
        dgp.AdjustedMCLMC(one)
