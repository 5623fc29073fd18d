"""The check that the parts of a fit belong together, before they are kept."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.autoguide import AutoGuide
from numpyro.primitives import Messenger

from dgp_ppl._checks import short_list
from dgp_ppl._typing import Model, Params
from dgp_ppl.inference import Call, Declared, LayerGuide, declared_params, program_name

__all__ = ["PREDICT_OPTIONS", "check_arguments", "check_names"]

PREDICT_OPTIONS = ("num_samples", "standardizer", "posterior_samples", "site", "chunk_size")
"""Options of `predict`, which are no arguments of a model."""

_ROWS = 2  # of the inputs that stand in for data


def check_arguments(model: Model, kwargs: dict[str, Any]) -> None:
    """Raise unless the model takes all keyword arguments, or `predict` does.

    Raises:
        TypeError: if an argument is unknown.
    """
    program: Any = model
    while isinstance(program, Messenger) and program.fn is not None:
        program = program.fn
    try:
        parameters = inspect.signature(program, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # functions that do not say what they take
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if unknown := [n for n in kwargs if n not in known and n not in PREDICT_OPTIONS]:
        raise TypeError(
            f"save: {program_name(model)} has no argument {', '.join(map(repr, unknown))}, wanted "
            f"some of {short_list(known, most=20)}; leave it out"
        )


def check_names(
    model: Model,
    guide: Model | None,
    params: Params,
    kwargs: dict[str, Any],
    num_inputs: Iterable[int],
    *,
    sampled: bool,
) -> None:
    """Raise unless the names of params are those that `predict` will want.

    The model and the guide run on the shapes of a few inputs. Where they cannot, because they need
    other arguments (y, say), only a guide without any params is refused.

    Args:
        model: the model.
        guide: its guide, or None.
        params: the params.
        kwargs: the model's keyword arguments.
        num_inputs: numbers of columns that the inputs may have, the likeliest first.
        sampled: whether there are draws of a sampler.

    Raises:
        ValueError: if params lack a name, or have one that neither the model nor the guide has.
    """
    arguments = {n: a for n, a in kwargs.items() if n not in PREDICT_OPTIONS}
    declared = _declared(model, guide, arguments, [*num_inputs, *_widths(arguments)])
    if guide is not None or (sampled and params):  # a prior needs no params
        declared.refuse_missing("save", params)
    declared.refuse_unknown("save", params)
    if guide is not None and not params:
        raise ValueError(
            f"save: params is empty, wanted those of the model and of {program_name(guide)}; pass "
            "the result of their fit, or its params"
        )


def _widths(arguments: dict[str, Any]) -> list[int]:
    """Return the numbers of columns of the matrices among arguments, such as z."""
    return [np.shape(a)[1] for a in jax.tree.leaves(arguments) if np.ndim(a) == 2]


def _declared(
    model: Model, guide: Model | None, arguments: dict[str, Any], widths: list[int]
) -> Declared:
    """Return the declared params: of both, else of the model, else none."""
    fresh = _unused(guide)
    for partner in [fresh, None] if fresh is not None else [None]:
        for width in dict.fromkeys(widths):
            call = Call((jnp.zeros((_ROWS, width)),), arguments)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return declared_params(model, partner, call, new_rows=True)
            except Exception:  # whatever a user's model raises without its data
                continue
    return Declared({}, {})


def _unused(guide: Any) -> Any:
    """Return a guide that can run on other inputs without remembering them, or None."""
    if isinstance(guide, LayerGuide):
        return guide.with_model(guide.model)
    if isinstance(guide, AutoGuide) and guide.prototype_trace is None:
        return None
    return guide
