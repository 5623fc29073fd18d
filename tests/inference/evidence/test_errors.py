"""Arguments that the evidence functions refuse: errors name the argument and the cure."""

from functools import partial

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer.autoguide import AutoDelta
from support.helpers import KEY, assert_errors, one_layer, regression
from support.tiny import TINY, X, Y, annealed, tiny

import dgp_ppl as dgp
from dgp_ppl.likelihoods import PoissonLog
from dgp_ppl.models import svgp

ROWS = regression(rows=20)
DATA = jnp.asarray(X, float), jnp.asarray(Y, float)
GUIDE = dgp.MeanField(tiny)
run = partial(annealed, tiny, GUIDE, TINY, *DATA)


def scaled(x, y):
    numpyro.sample("level", dist.Normal(0, 1))
    tiny(x, y)


def test_errors_name_the_argument_and_the_cure():
    x, one = ROWS[0], dgp.MeanField(one_layer)
    point = dgp.MeanField(scaled, rest=AutoDelta)
    weights = partial(dgp.importance_evidence, KEY, one_layer)
    assert_errors([
        (lambda: run(batch_size=2), "plate 'data' is subsampled; leave out batch_size"),
        (lambda: run(target="prior"), "target is 'prior', wanted 'bound' or 'model'"),
        (lambda: run(num_particles=20), "num_particles is 20, wanted a multiple of num_islands"),
        (lambda: annealed(tiny, GUIDE, TINY | {"l2.v.loc": jnp.full((1, 1), 1e30)}, *DATA),
         "finite at no draw .* or start elsewhere"),
        (lambda: annealed(svgp, dgp.MeanField(svgp), {}, *ROWS, z=x, likelihood=PoissonLog),
         "annealed_evidence: argument 'y', .* is outside of the support of PoissonLog"),
        (lambda: annealed(tiny, print, TINY, *DATA), "TypeError: .*guide is print, wanted MeanF"),
        (lambda: annealed(one_layer, dgp.Decoupled(one_layer, x[:5]), {}, *ROWS, z=x),
         "TypeError: .*Decoupled, whose mean has separate inducing inputs"),
        (lambda: annealed(scaled, point, TINY | {"level_auto_loc": jnp.zeros(())}, *DATA),
         "guide of 'level' is a Delta, wanted"),
        (lambda: weights(one, {}, *ROWS, z=x), "TypeError: .*guide is a MeanField, wanted a Diff"),
    ])  # fmt: skip
