"""Params that are not those of the model and the guide are refused wherever params are taken."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import SVI, Predictive, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from support.fits import SHALLOW as FITTED, shallow
from support.helpers import KEY, regression, start

import dgp_ppl as dgp
from dgp_ppl.inference import Chains, checked_params
from dgp_ppl.models import deep_gp, gplvm, optimal_inducing, svgp

X, Y = regression(rows=8)
Z = X[:4]
SHALLOW, DEEP = dgp.MeanField(svgp), dgp.MeanField(deep_gp)
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


def _names_of(taker):
    """Return the name of the function that refuses the params."""
    return {"layer_functions": "predict"}.get(taker, taker)


@pytest.mark.parametrize("taker", [n for n in TAKERS if n != "sample_posterior"])
def test_params_of_neither_are_refused_and_named(taker, good):
    words = (
        rf"{_names_of(taker)}: params has \['bogus'\], which neither the model nor MeanField has"
    )
    with pytest.raises(ValueError, match=words):
        TAKERS[taker](good | {"bogus": 1.0})


@pytest.mark.parametrize("taker", TAKERS)
def test_wrong_params_are_refused_and_named(taker, good):
    """They gave predictions of initial values, or errors from inside JAX."""
    take, taker = TAKERS[taker], _names_of(taker)
    with pytest.raises(ValueError, match=rf"{taker}: params has no 'l1.v.loc'.*it has \["):
        take(without(good, "l1.v.loc"))
    wide = good | {"l1.v.loc": jnp.zeros((4, 2))}
    with pytest.raises(ValueError, match=r"l1.v.loc'\] has shape \(4, 2\), wanted \(4, 1\)"):
        take(wide)
    with pytest.raises(TypeError, match=rf"{taker}: params is a list, wanted a fit's result"):
        take([1])


def test_no_params_or_those_of_the_guide_alone_or_of_another_model(good):
    with pytest.raises(ValueError, match=r"predict: params has no 'l1.z' and 5 more .*it has \[\]"):
        predicted({})
    kernel = ("l1.variance", "l1.lengthscale")
    with pytest.raises(ValueError, match=r"no 'l1.variance' and 1 more .*l1.lengthscale"):
        predicted(without(good, *kernel))
    with pytest.raises(ValueError, match=r"no 'l2.*pass the result of their fit"):
        predicted(good, deep_gp, DEEP, z=(Z, Z))


def test_params_of_a_deeper_model_are_refused(good):
    """Its layers have the same names and shapes."""
    more = good | {"l2.variance": jnp.ones(()), "l2.v.loc": jnp.zeros((4, 1))}
    words = r"predict: params has \['l2.variance', 'l2.v.loc'\], which neither .* nor MeanField has"
    with pytest.raises(ValueError, match=words):
        predicted(more)
    assert predicted(more, guide=None, posterior_samples={"l1.v": np.zeros((2, 4, 1))})


def test_diffusion_paths_and_evidence(diffusion):
    name = next(n for n in diffusion if n.startswith("diffusion"))
    wrong = without(diffusion, name)
    with pytest.raises(ValueError, match=rf"importance_evidence: params has no '{name}'"):
        dgp.importance_evidence(KEY, svgp, DIFFUSION, wrong, X, Y, num_paths=2, **ONE)
    with pytest.raises(ValueError, match=rf"diffusion_paths: params has no '{name}'"):
        dgp.diffusion_paths(KEY, DIFFUSION, wrong, X, Y, num_paths=2, **ONE)


def test_models_alone(good):
    wrong = good | {"l1.z": jnp.zeros((7, 3))}
    with pytest.raises(
        ValueError, match=r"freeze: params\['l1.z'\] has shape \(7, 3\), wanted \(4"
    ):
        seeded(dgp.freeze(svgp, wrong), X, Y, **ONE)
    words = (
        r"freeze: params has \['bogus', .*\], none of them a param of svgp, wanted some of \['l1"
    )
    with pytest.raises(ValueError, match=words):
        seeded(dgp.freeze(svgp, {"bogus": 1, "l1.v.loc": good["l1.v.loc"]}), X, Y, **ONE)
    seeded(dgp.freeze(svgp, good), X, Y, **ONE)  # the guide's are not used
    with pytest.raises(ValueError, match="optimal_inducing: params has no 'noise'"):
        optimal_inducing(without(good, "noise"), X, Y)
    chains = {"posterior_samples": CHAINS, "num_prior_samples": 0}
    with pytest.raises(ValueError, match=r"to_inferencedata: params has no 'l1.z' and 3 more"):
        dgp.to_inferencedata(KEY, svgp, None, {}, X, Y, **chains, **ONE)
    few = {"noise": 0.1, "l1.variance": 1.0}
    with pytest.raises(ValueError, match=r"predict: params has no 'l1.z' and 1 more"):
        predicted(few, guide=None, posterior_samples={"l1.v": np.zeros((2, 4, 1))})


def test_starts(good):
    coupled = dgp.GlobalInducing(svgp, X)
    with pytest.raises(ValueError, match=r"MeanField: params has no 'l1.v.loc'"):
        coupled.start_from(KEY, SHALLOW, without(good, "l1.v.loc"), X, Y, **ONE)
    with pytest.raises(ValueError, match=r"GlobalInducing.start_from: params has no 'noise'"):
        coupled.start_from(KEY, SHALLOW, without(good, "noise"), X, Y, **ONE)
    with pytest.raises(
        ValueError, match=r"fit: params\['l1.z'\] has shape \(5, 1\), wanted \(6, 1"
    ):
        shallow(2, start={"l1.z": jnp.zeros((5, 1))})
    with pytest.raises(ValueError, match=r"fit: start has \['l9.z'\], none of them a param of the"):
        shallow(2, start={"l9.z": jnp.zeros((5, 1))})
    with pytest.raises(TypeError, match="fit: start is a str, wanted a fit's result"):
        shallow(2, start="fit.npz")


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


def test_a_guide_that_was_used_with_other_inducing_inputs():
    guide = dgp.MeanField(svgp)
    guide.setup(X, Y, z=X)
    good = start(svgp, dgp.MeanField(svgp), X, Y, **ONE)
    assert checked_params("f", good, svgp, guide, CALL) == good
    wide = good | {"l1.v.loc": jnp.zeros((4, 2))}
    with pytest.raises(ValueError, match=r"shape \(4, 2\), wanted \(4, 1\)"):
        checked_params("f", wide, svgp, guide, CALL)


def test_guides_of_numpyro():
    def line(x, y=None):
        w = numpyro.deterministic("twice", 2 * numpyro.sample("w", dist.Normal(0, 1)))
        numpyro.sample("y", dgp.observe(dgp.core.Marginals(w * x, 0 * x), dist.Normal), obs=y)

    guide = AutoNormal(line)
    with pytest.raises(ValueError, match="evaluate: params has no 'w_auto_loc' and 1 more"):
        dgp.evaluate(KEY, line, guide, {}, X, Y)
