"""Arguments that the evidence functions refuse: errors name the argument and the cure."""

import re
from functools import partial

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer.autoguide import AutoMultivariateNormal
from support.diffusion import Z
from support.helpers import KEY, one_layer, regression, start
from support.tiny import TINY, X, Y, annealed, tiny

import dgp_ppl as dgp

ROWS = regression(rows=20)
DATA = jnp.asarray(X, float), jnp.asarray(Y, float)
GUIDE = dgp.MeanField(tiny)
run = partial(annealed, tiny, GUIDE, TINY, *DATA)


def scaled(x, y):
    numpyro.sample("level", dist.Normal(0, 1))
    tiny(x, y)


def test_errors_name_the_argument_and_the_cure():
    x, one = ROWS[0], dgp.MeanField(one_layer)
    joint = dgp.MeanField(scaled, rest=AutoMultivariateNormal)
    names = {"auto_loc": jnp.zeros(1), "auto_scale_tril": jnp.eye(1)}
    diffusion = dgp.Diffusion(one_layer, steps=2)
    weights = partial(dgp.importance_evidence, KEY, one_layer)
    diffusion_params = start(one_layer, diffusion, *ROWS, z=Z)
    cases = [
        (lambda: run(batch_size=2), "plate 'data' is subsampled; leave out batch_size"),
        (lambda: run(target="prior"), "target is 'prior', wanted 'bound' or 'model'"),
        (lambda: run(num_particles=20), "num_particles is 20, wanted a multiple of num_islands"),
        (
            lambda: annealed(tiny, GUIDE, TINY | {"l2.v.loc": jnp.full((1, 1), 1e30)}, *DATA),
            "finite at no draw .* or start elsewhere",
        ),
        (
            lambda: annealed(tiny, lambda *args: None, TINY, *DATA),
            "TypeError: .*guide is <lambda>, wanted MeanField",
        ),
        (
            lambda: annealed(one_layer, dgp.Decoupled(one_layer, x[:5]), {}, *ROWS, z=x),
            "TypeError: .*Decoupled, whose mean has separate inducing inputs",
        ),
        (
            lambda: annealed(scaled, joint, TINY | names, *DATA),
            "guide of '_auto_latent' is a MultivariateNormal, wanted",
        ),
        (
            lambda: weights(one, diffusion_params, *ROWS, z=Z),
            "TypeError: .*guide is a MeanField, wanted a Diffusion",
        ),
    ]
    wrong = []
    for call, pattern in cases:
        try:
            call()
        except Exception as error:
            kind, _, wanted = pattern.rpartition("Error: ")
            found = type(error).__name__ == f"{kind or 'Value'}Error"
            if not (found and re.search(wanted, str(error))):
                wrong.append(f"{pattern}\n    got {error!r}")
        else:
            wrong.append(f"{pattern}\n    no error")
    assert not wrong, "\n".join(wrong)
