"""What sites a model has, found out on shapes alone."""

from typing import Any

import jax
from jax import random
from numpyro import handlers

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Observed

__all__ = ["data_plates", "freeze", "survey"]


def survey(model: Model, call: Call) -> dict[str, Any]:
    """A trace of the model at these arguments, of which nothing is computed."""
    trace: dict[str, Any] = {}

    def run(key: PRNGKey) -> None:
        seeded = handlers.seed(model, key)
        trace.update(handlers.trace(seeded).get_trace(*call.args, **call.kwargs))

    with handlers.block():
        jax.eval_shape(run, random.PRNGKey(0))
    return trace


def data_plates(trace: dict[str, Any]) -> set[str]:
    """The plates of what is observed, or would be in a call with data: their rows are the data's.

    A latent site in one of these belongs to a row of the data; one in any other plate does not.
    """
    seen = [
        s
        for s in trace.values()
        if s["type"] == "sample" and (s["is_observed"] or isinstance(s["fn"], Observed))
    ]
    return {frame.name for s in seen for frame in s["cond_indep_stack"]}


def freeze(program: Any, params: Params) -> Any:
    """A model or a guide with these params given: to a fit they are constants."""
    return handlers.block(handlers.substitute(program, data=params), hide=list(params))
