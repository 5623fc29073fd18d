"""No step waits for the host on a GPU: all loops have a static number of turns.

The programs are lowered for CUDA, not compiled or run. `benchmarks/gpu_structure.py` compiles them.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random
from low_rank_guide import LowRank
from support.helpers import KEY, regression, slow
from support.lowered import open_loops

import dgp_ppl as dgp
from dgp_ppl.inference import fit_program
from dgp_ppl.inference.guides.diffusion._networks import DenseScore
from dgp_ppl.models import deep_gp

Z1 = np.linspace(-2, 2, 5)[:, None]
Z = (Z1, np.c_[Z1, np.zeros(5)])
X, Y = regression(rows=24)
GUIDES = {
    "mean_field": dgp.MeanField,
    "global_inducing": functools.partial(dgp.GlobalInducing, pseudo_inputs=Z1),
    "decoupled": functools.partial(dgp.Decoupled, z_mean=Z),
    "diffusion": functools.partial(dgp.Diffusion, steps=3),
    "informed diffusion": functools.partial(
        dgp.Diffusion, steps=3, score=DenseScore, informed=(X, Y)
    ),
    "flow": dgp.Flow,
    "implicit": dgp.Implicit,
    "low_rank": LowRank,
}


def test_open_loops_are_found():
    """The other tests rest on this: a loop whose end depends on data is seen."""

    def counted(x, num):
        return lax.fori_loop(0, num, lambda _, x: 2 * x, x)

    def until(x):
        return lax.while_loop(lambda x: x < 1, lambda x: 2 * x, x)

    assert not open_loops(lambda x: counted(x, 5), 1.0)
    assert len(open_loops(counted, 1.0, 5)) == 1
    assert len(open_loops(until, 0.1)) == 1
    assert len(open_loops(lambda x: lax.map(until, x), jnp.ones(3))) == 1


# A guide with loops of its own. All guides have the loops of layers, kernels and `fit`.
QUICK = "informed diffusion"


@pytest.mark.parametrize("name", [n if n == QUICK else slow(n) for n in GUIDES])
def test_the_steps_of_a_fit(name):
    guide = GUIDES[name](deep_gp)
    options = {"num": 10, "z": Z, "batch_size": 8}  # q(v) of a mean field by natural gradients
    run, state, data = fit_program(KEY, deep_gp, guide, X, Y, **options)
    assert not open_loops(run, state, data)


def test_the_steps_of_the_sampler():
    sampler = dgp.SGHMC(dgp.freeze(deep_gp, {"noise": 0.1}))
    kwargs = {"z": Z, "batch_size": 8}
    state = sampler.init(random.key(1), 10, None, (X, Y), kwargs)
    assert not open_loops(lambda state: sampler.sample(state, (X, Y), kwargs), state)
