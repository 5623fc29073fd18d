"""Every model of `dgp_ppl.models` under SVI and NUTS, in float32 and float64."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.autoguide import AutoNormal
from support.helpers import KEY, no_guide, regression

import dgp_ppl as dgp
from dgp_ppl import initialize, likelihoods, models
from dgp_ppl.comparison import Setting, Task, build
from dgp_ppl.comparison._setting import MODELS

SETTING = Setting(inducing=4, depth=2)


def model_of(name, x, y):
    """Return a model, its arguments and a guide."""
    z = initialize.inducing_inputs(KEY, x, 4)
    if name in MODELS:
        built = build(Task(KEY, x, y, SETTING).with_setting(model=name))
        return built.model, built.kwargs, dgp.MeanField(built.model)
    model, kwargs = {
        "svgp": (models.svgp, {"z": z}),
        "sgpr": (models.sgpr, {"z": z}),
        "gplvm": (models.gplvm, {"z": (z[:, :1],)}),
        "bnn": (models.bnn, {"hidden": (3,)}),
        "classes": (models.deep_gp, {"z": (z, z), "likelihood": likelihoods.bernoulli_probit}),
    }[name]
    guides = {"sgpr": lambda m: no_guide, "bnn": AutoNormal}
    return model, kwargs, guides.get(name, dgp.MeanField)(model)


NAMES = (*MODELS, "svgp", "sgpr", "gplvm", "bnn", "classes")
CASES = [(name, x64) for name in NAMES for x64 in (False, True)]


def data(name):
    x, y = regression(rows=12, dim=2)
    return (None if name == "gplvm" else x), (jnp.sign(y) > 0) * 1 if name == "classes" else y


@pytest.mark.slow
@pytest.mark.parametrize(("name", "x64"), CASES)
def test_under_svi_and_nuts(name, x64):
    with jax.enable_x64(x64):
        dtype = jnp.float64 if x64 else jnp.float32
        x, y = data(name)
        model, kwargs, guide = model_of(name, regression(rows=12, dim=2)[0], y)
        key, options = random.key(1), {"steps": 3, "progress": False}
        if name != "sgpr":  # sgpr takes all rows
            options["batch_size"] = 5
        result = dgp.fit(key, model, guide, x, y, **options, **kwargs)
        assert np.isfinite(result.losses).all()
        for value in jax.tree.leaves(result.params):
            assert value.dtype == dtype
            assert np.isfinite(value).all()
        fixed = handlers.substitute(model, data=result.params)
        if name == "sgpr":  # it has no latent site, so put a prior on the noise
            prior = {"noise": dist.LogNormal(-1.0, 0.5)}
            given = {n: a for n, a in result.params.items() if n != "noise"}
            fixed = handlers.lift(handlers.substitute(model, data=given), prior=prior)
        mcmc = MCMC(NUTS(fixed), num_warmup=4, num_samples=3, progress_bar=False)
        mcmc.run(key, x, y, **kwargs)
        for site, draws in mcmc.get_samples().items():
            assert draws.dtype == dtype, site
            assert np.isfinite(draws).all(), site
