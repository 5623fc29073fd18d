"""Collapsed sparse GP regression in a comparison."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.comparisons import TINY
from support.helpers import KEY

import dgp_ppl
from dgp_ppl.comparison import METHODS, Setting, Task
from dgp_ppl.inference import evaluate


def test_the_collapsed_bound_is_that_of_the_best_inducing_values():
    """The fit that is kept predicts with q(v); its bound is the one that was maximised."""
    found = dgp_ppl.compare("step", ("sgpr",), **(TINY | {"splits": 1, "steps": 200}))
    run = found.fits["sgpr"]
    fitted, scale = run.fitted, run.standardizer
    x, y = scale.inputs(run.x), scale.outputs(run.y)
    elbo, _ = evaluate(KEY, fitted.model, fitted.guide, fitted.result.params, x, y, **fitted.kwargs)
    assert elbo / len(y) == pytest.approx(found.splits[0]["elbo_per_datum"], abs=1e-4)


def test_there_are_no_more_inducing_inputs_than_distinct_rows():
    x = jnp.asarray(np.repeat(np.linspace(-1, 1, 5), 2)[:, None])
    task = Task(KEY, x, jnp.sin(3 * x[:, 0]), Setting(inducing=8, steps=50))
    assert METHODS["sgpr"](task).result.params["l1.z"].shape == (5, 1)


@pytest.mark.slow
def test_a_fit_to_many_rows_starts_from_one_to_some(monkeypatch):
    x = jnp.linspace(-2, 2, 40)[:, None]
    task = Task(KEY, x, jnp.sin(3 * x[:, 0]) + 0.1 * jnp.cos(50 * x[:, 0]), Setting(inducing=8))
    at_once = METHODS["sgpr"](task)
    monkeypatch.setattr("dgp_ppl.comparison.methods._sparse._SOME_ROWS", 10)
    in_two = METHODS["sgpr"](task)
    assert in_two.result.start_losses is None
    assert in_two.elbo_per_datum == pytest.approx(at_once.elbo_per_datum, abs=0.01)
