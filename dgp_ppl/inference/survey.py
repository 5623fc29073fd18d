"""What sites a model has, found out on shapes alone."""

from typing import Any

import jax
from jax import random
from numpyro import handlers

from dgp_ppl._typing import Model, PRNGKey

__all__ = ["survey"]


def survey(model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A trace of the model at these arguments, of which nothing is computed."""
    trace: dict[str, Any] = {}

    def run(key: PRNGKey) -> None:
        seeded = handlers.seed(model, key)
        trace.update(handlers.trace(seeded).get_trace(*args, **kwargs))

    with handlers.block():
        jax.eval_shape(run, random.PRNGKey(0))
    return trace
