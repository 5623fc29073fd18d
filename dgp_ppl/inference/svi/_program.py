"""The steps of a fit as a function, to time them, or to look at what the compiler makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro.infer.elbo import ELBO
from numpyro.infer.svi import SVIState

from dgp_ppl._checks import check_count, check_key
from dgp_ppl._partition import Call, CallArrays
from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.inference.svi._loop import MOST_STEPS
from dgp_ppl.inference.svi._setup import Problem

__all__ = ["fit_program"]

StepsProgram = Callable[[SVIState, CallArrays], tuple[SVIState, jax.Array]]


def fit_program(
    key: PRNGKey,
    model: Model,
    guide: Model,
    *args: Any,
    num: int = 100,
    steps: int = 6000,
    learning_rate: float = 0.1,
    optimizer: Any = None,
    loss: ELBO | None = None,
    **kwargs: Any,
) -> tuple[StepsProgram, SVIState, CallArrays]:
    """Return the program of `fit` for a number of steps, to be compiled, timed or inspected.

    `fit` runs such programs one after another. The number of steps is static, as on a GPU::

        run, state, data = inference.fit_program(key, model, guide, x, y, z=z)
        compiled = jax.jit(run).lower(state, data).compile()
        compiled.memory_analysis(), compiled(state, data)

    Args:
        key: random key.
        model: a NumPyro model.
        guide: its guide.
        *args: the model's positional arguments.
        num: number of steps of the program, 200 at most.
        steps: number of steps of the fit, for the default optimiser.
        learning_rate: of the default optimiser; see `fit`.
        optimizer: an optax optimiser instead of the default.
        loss: the objective instead of the guide's; see `fit`.
        **kwargs: the model's keyword arguments.

    Returns:
        A function of a state and data that makes the steps, and returns the new state and an array
        whose first numbers are the losses; the first state; and the arrays of model and guide.

    Raises:
        DataError: as in `fit`.
        TypeError: as in `fit`.
        ValueError: if `num` is not between 1 and 200; and as in `fit`.
    """
    check_key("fit_program", key)
    check_count("fit_program", "steps", steps)
    check_count("fit_program", "num", num)
    if num > MOST_STEPS:
        raise ValueError(
            f"fit_program: num is {num}, wanted at most {MOST_STEPS}; call the program again"
        )
    problem = Problem.set_up(
        "fit_program", key, model, guide, Call(args, kwargs), steps=steps,
        learning_rate=learning_rate, optimizer=optimizer, loss=loss, start=None,
    )  # fmt: skip
    loop, data = problem.loop, problem.data

    def run(state: SVIState, data: CallArrays) -> tuple[SVIState, jax.Array]:
        return loop.run_chunk(state, num, 0, data)

    return run, loop.init(key, data, {}), data
