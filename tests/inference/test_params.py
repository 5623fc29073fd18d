"""Params that do not fit the model and the guide are refused wherever params are taken."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import SVI, Predictive, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoLaplaceApproximation
from support.fits import SHALLOW as FITTED, shallow
from support.helpers import KEY, regression, start

import dgp_ppl as dgp
from dgp_ppl.inference import Chains
from dgp_ppl.inference._params import checked_params
from dgp_ppl.models import deep_gp, gplvm, optimal_inducing, svgp

X, Y = regression(rows=8)
Z = X[:4]
SHALLOW = dgp.MeanField(svgp)
ONE = {"z": Z}
DIFFUSION = dgp.Diffusion(svgp, steps=2)
CALL = dgp.inference.Call((X, Y), ONE)


@pytest.fixture(scope="module")
def good():
    """The params of one layer and its mean-field guide."""
    return start(svgp, SHALLOW, X, Y, **ONE)


@pytest.fixture(scope="module")
def diffusion():
    return start(svgp, DIFFUSION, X, Y, **ONE)


def without(params, *names):
    return {n: a for n, a in params.items() if n not in names}


def predicted(params, model=svgp, guide=SHALLOW, **options):
    return dgp.predict(KEY, model, guide, params, X, num_samples=2, **ONE | options)


def seeded(program, *args, **kwargs):
    return handlers.seed(program, random.PRNGKey(0))(*args, **kwargs)


CHAINS = Chains({"l1.v": np.zeros((1, 8, 4, 1))})
TAKERS = {
    "predict": predicted,
    "evaluate": lambda p: dgp.evaluate(KEY, svgp, SHALLOW, p, X, Y, **ONE),
    "to_inferencedata": lambda p: dgp.to_inferencedata(KEY, svgp, SHALLOW, p, X, Y, **ONE),
    "layer_functions": lambda p: dgp.layer_functions(KEY, svgp, SHALLOW, p, X, **ONE),
    "annealed_evidence": lambda p: dgp.annealed_evidence(KEY, svgp, SHALLOW, p, X, Y, **ONE),
    "check_guide": lambda p: dgp.check_guide(KEY, svgp, SHALLOW, p, X, Y, **ONE),
    "compare_posteriors": lambda p: dgp.compare_posteriors(
        KEY, CHAINS, SHALLOW, svgp, p, X, Y, **ONE
    ),
    "guided": lambda p: seeded(dgp.guided(svgp, SHALLOW, p), X, **ONE),
    "transported": lambda p: seeded(dgp.transported(svgp, SHALLOW, p), X, Y, **ONE),
    "sample_posterior": lambda p: SHALLOW.sample_posterior(KEY, p, X, **ONE),
}  # fmt: skip


def test_wrong_params_are_refused_wherever_params_are_taken(good):
    """They gave predictions of initial values, or errors from inside JAX."""
    cases = {
        "bogus": (good | {"bogus": 1.0}, ValueError, r"params has \['bogus'\], which neither"),
        "missing": (without(good, "l1.v.loc"), ValueError, r"params has no 'l1.v.loc'.*has \["),
        "shape": (
            good | {"l1.v.loc": jnp.zeros((4, 2))}, ValueError,
            r"l1.v.loc'\] has shape \(4, 2\), wanted \(4, 1\)",
        ),
        "type": ([1], TypeError, "params is a list, wanted a fit's result"),
    }  # fmt: skip
    for taker, take in TAKERS.items():
        name = {"layer_functions": "predict"}.get(taker, taker)
        for case, (params, error, words) in cases.items():
            if (taker, case) != ("sample_posterior", "bogus"):  # it runs the guide alone
                with pytest.raises(error, match=rf"{name}: .*{words}"):
                    take(params)


def test_errors_name_the_params(good, diffusion):
    """Of one program alone, of another model, and of starts."""
    name = next(n for n in diffusion if n.startswith("diffusion"))
    wrong, coupled = without(diffusion, name), dgp.GlobalInducing(svgp, X)
    wide = good | {"l1.z": jnp.zeros((7, 3))}
    deeper = good | {"l2.variance": jnp.ones(()), "l2.v.loc": jnp.zeros((4, 1))}
    samples = {"guide": None, "posterior_samples": {"l1.v": np.zeros((2, 4, 1))}}
    paths = {"num_paths": 2, **ONE}
    refused = {
        r"predict: params has no 'l1.z' and 5 more .*it has \[\]": lambda: predicted({}),
        r"\['l2.variance', 'l2.v.loc'\], which neither .* nor MeanField": lambda: predicted(deeper),
        rf"importance_evidence: params has no '{name}'": lambda: dgp.importance_evidence(
            KEY, svgp, DIFFUSION, wrong, X, Y, **paths
        ),
        r"freeze: params\['l1.z'\] has shape \(7, 3\)": lambda: seeded(
            dgp.freeze(svgp, wide), X, Y, **ONE
        ),
        "optimal_inducing: params has no 'noise'": lambda: optimal_inducing(
            without(good, "noise"), X, Y
        ),
        "predict: params has no 'l1.z' and 2 more": lambda: predicted({"noise": 0.1}, **samples),
        "MeanField: params has no 'l1.v.loc'": lambda: coupled.start_from(
            KEY, SHALLOW, without(good, "l1.v.loc"), X, Y, **ONE
        ),
        # Initial pseudo-inputs in the place of fitted ones would be another map.
        "transported: params has no 'pseudo_inputs'": lambda: seeded(
            dgp.transported(svgp, coupled, good), X, Y, **ONE
        ),
        r"start has \['l9.z'\], none of them": lambda: shallow(2, start={"l9.z": 0.0}),
    }
    for words, call in refused.items():
        with pytest.raises(ValueError, match=words):
            call()
    assert predicted(deeper, **samples)
    seeded(dgp.freeze(svgp, good), X, Y, **ONE)  # the guide's params are not used


def test_a_result_serves_as_its_params():
    fit = shallow(2)
    where = (X, Y)
    z = {"z": fit.params["l1.z"]}
    by_result, by_params = (
        dgp.evaluate(KEY, svgp, FITTED, p, *where, num_draws=2, **z) for p in (fit, fit.params)
    )
    assert by_result == by_params
    assert predicted(fit, guide=FITTED, **z).params == fit.params
    handlers.seed(dgp.freeze(svgp, fit), KEY)(X, Y, **z)
    assert Predictive(dgp.guided(svgp, FITTED, fit), num_samples=2)(KEY, X, **z)["y"].shape
    mcem = dgp.inference.MCEMResult(fit.params, CHAINS, np.zeros(1), 0.0)
    assert checked_params("f", mcem, svgp, None, dgp.inference.Call((X, Y), z)) == fit.params
    svi = SVI(svgp, FITTED, numpyro.optim.Adam(0.01), TraceMeanField_ELBO())
    stock = svi.run(KEY, 2, *where, progress_bar=False, **z)
    assert predicted(stock, guide=FITTED, **z).params.keys() == fit.params.keys()
    assert shallow(1, start=dataclasses.replace(fit)).losses.shape == (1,)


def test_predictions_refuse_a_laplace_guide_which_runs_as_a_point(good):
    guide = AutoLaplaceApproximation(svgp)
    seeded(guide, X, Y, **ONE)
    mode = without(good, "l1.v.loc", "l1.v.scale_tril") | {"auto_loc": jnp.zeros(4)}
    for call in (
        lambda: predicted(mode, guide=guide),
        lambda: seeded(dgp.guided(svgp, guide, mode), X, **ONE),
    ):
        with pytest.raises(TypeError, match=r"AutoLaplaceApproximation: .*posterior_samples"):
            call()


def test_other_rows_and_frozen_params(good):
    assert dgp.predict(KEY, svgp, SHALLOW, good, X[:3], num_samples=2, **ONE).x.shape == (3, 1)
    held = {"noise": good["noise"]}
    model = dgp.freeze(svgp, held)
    guide = dgp.MeanField(model)
    for params in (good, without(good, "noise")):
        assert checked_params("f", params, model, guide, CALL) == params
        seeded(dgp.guided(model, guide, params), X, **ONE)
        seeded(dgp.transported(model, guide, params), X, Y, **ONE)
    constant = dgp.freeze(model, good)
    seeded(dgp.freeze(constant, without(good, "noise")), X, Y, **ONE)


def test_params_of_a_shared_kernel_serve_kernels_per_output():
    x, layers = jnp.zeros((6, 2)), {"z": (jnp.zeros((3, 2)), jnp.zeros((3, 2)))}
    guide = dgp.MeanField(deep_gp)
    own = start(deep_gp, guide, x, jnp.zeros(6), **layers)
    assert own["l1.lengthscale"].shape == (2, 2)
    shared = own | {"l1.lengthscale": jnp.ones(2), "l1.variance": jnp.ones(())}
    call = dgp.inference.Call((x, jnp.zeros(6)), layers)
    assert checked_params("f", shared, deep_gp, guide, call) is not None
    with pytest.raises(ValueError, match=r"l1.lengthscale'\] has shape \(5,\), wanted \(2, 2\)"):
        checked_params("f", own | {"l1.lengthscale": jnp.ones(5)}, deep_gp, guide, call)


def test_latent_inputs_of_other_rows():
    y = jnp.zeros((6, 2))
    layers = {"z": (jnp.zeros((3, 1)),), "out": 2}
    guide = dgp.MeanField(gplvm)
    params = start(gplvm, guide, None, y, **layers)
    call = dgp.inference.Call((None, y), layers)
    assert checked_params("f", params, gplvm, guide, call) == params
    other = dgp.inference.Call((None, y[:4]), layers)
    with pytest.raises(ValueError, match=r"auto_loc'\] has shape \(6, 1\), wanted \(4, 1\)"):
        checked_params("f", params, gplvm, dgp.MeanField(gplvm), other)
    assert checked_params("f", params, gplvm, guide, other, new_rows=True) == params
    seeded(dgp.guided(gplvm, guide, params), None, y[:4], **layers)
