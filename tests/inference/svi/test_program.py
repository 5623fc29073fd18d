"""The steps of a fit as a function."""

import jax
import numpy as np
import pytest
from support.helpers import KEY, one_layer, regression

import dgp_ppl as dgp
from dgp_ppl.inference import fit_program

X, Y = regression(rows=12)
Z = np.linspace(-2, 2, 3)[:, None]
GUIDE = dgp.MeanField(one_layer)


def test_its_steps_are_the_steps_of_a_fit():
    run, state, data = fit_program(KEY, one_layer, GUIDE, X, Y, num=6, steps=12, z=Z)
    compiled = jax.jit(run).lower(state, data).compile()
    losses = []
    for _ in range(2):
        state, new = compiled(state, data)
        losses.append(new[:6])
    fit = dgp.fit(KEY, one_layer, GUIDE, X, Y, steps=12, z=Z, progress=False)
    np.testing.assert_allclose(np.concatenate(losses), fit.losses, rtol=1e-5)


def test_numbers_of_steps_out_of_range_are_refused():
    for num in (0, 201):
        with pytest.raises(ValueError, match=f"fit_program: num is {num}, wanted at"):
            fit_program(KEY, one_layer, GUIDE, X, Y, num=num, z=Z)
