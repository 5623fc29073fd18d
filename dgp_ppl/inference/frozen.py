"""Programs at params that an optimiser does not see."""

from typing import Any

from numpyro import handlers

from dgp_ppl._typing import Params

__all__ = ["frozen"]


def frozen(program: Any, params: Params) -> Any:
    """A model or a guide with these params given: to a fit they are constants."""
    return handlers.block(handlers.substitute(program, data=params), hide=list(params))
