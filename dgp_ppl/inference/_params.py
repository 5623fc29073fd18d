"""The check of params against a model and its guide, and the set-up of guides."""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial
from typing import Any

import jax
from jax import random
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide, AutoLaplaceApproximation, AutoNormal

from dgp_ppl._checks import (
    check_shapes,
    check_value,
    is_traced,
    missing_params,
    params_of,
    unknown_params,
)  # fmt: skip
from dgp_ppl._partition import Call, CallArrays, Partition, alone
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.programs._handlers import held_names, shared_sites, survey
from dgp_ppl.inference.runs._summary import program_name


@dataclasses.dataclass(frozen=True)
class Declared:
    """The params that a model and a guide declare; `declared_params` finds them."""

    model: dict[str, Any]  # shapes of the model's params, by name
    guide: dict[str, Any]  # shapes of the guide's
    program: str | None = None  # name of the guide; None without one
    unused: frozenset[str] | None = None  # further names that params may have; None for all
    constraints: dict[str, Any] = dataclasses.field(default_factory=dict)  # by name

    @property
    def all(self) -> dict[str, Any]:
        """Shapes of all params by name."""
        return self.model | self.guide

    def refuse_unknown(self, caller: str, given: Params) -> None:
        """Raise if params have a name that no program declares, where both programs are there."""
        if self.program is None or self.unused is None:
            return
        known = self.all.keys() | self.unused
        if unknown := [n for n in given if n not in known]:
            raise unknown_params(caller, unknown, self.program, self.all)


def checked_params(
    caller: str, params: Params | Fitted, model: Model | None, guide: Model | None, call: Call, *,
    new_rows: bool = False, prior: bool = False,
) -> Params:  # fmt: skip
    """Return params by name, after comparing their names and shapes with what programs declare.

    Nothing is computed: the programs run on shapes. Params that a handler such as `freeze` holds
    are not declared. Without a guide, its params may be there too. With `new_rows` params of the
    fit's rows are allowed and not needed; with `prior` any may be left out.
    """
    given = params_of(caller, params)
    declared = declared_params(model, guide, call, new_rows=new_rows)
    if not prior and (missing := [n for n in declared.all if n not in given]):
        raise missing_params(caller, missing, given)
    try:
        _check_shapes(caller, given, declared)
    except ValueError:
        if not isinstance(guide, LayerGuide):
            raise
        # The guide may have found its layers in a call with other inducing inputs.
        fresh = guide.with_model(guide.model)
        _check_shapes(caller, given, declared_params(model, fresh, call, new_rows=new_rows))
    declared.refuse_unknown(caller, given)
    for name, value in given.items():
        check_value(f"{caller}: params[{name!r}]", value, declared.constraints.get(name), edge=True)
    return given


def declared_params(
    model: Model | None, guide: Model | None, call: Call, *, new_rows: bool = False
) -> Declared:
    """Return the params that programs declare in a call, without computing anything."""
    if new_rows and isinstance(guide, AutoLaplaceApproximation):
        raise TypeError(
            "AutoLaplaceApproximation: the guide runs as a point, its mode, so predictions would "
            "lack the posterior's variance; wanted guide=None, and as posterior_samples its draws: "
            "guide.sample_posterior(key, params, sample_shape=(100,))"
        )
    set_up_guide(random.PRNGKey(0), guide, call)
    partition, data = Partition.split(model, call, guide)
    shapes, treedef = jax.tree.flatten(jax.tree.map(_abstract, data))
    found = _shapes_of(partition, treedef, tuple(shapes), new_rows)
    if model is None or guide is None:
        return found
    unused: set[str] | None = held_names(model) | held_names(guide)
    if isinstance(guide, LayerGuide) and new_rows:
        # Only AutoNormal's per-row params are known by name.
        known = guide.rest is AutoNormal or not guide.other_sites
        unused = unused | guide.row_params if known else None
    return dataclasses.replace(
        found, program=program_name(guide), unused=None if unused is None else frozenset(unused)
    )


def set_up_guide(
    key: PRNGKey, guide: Model | None, call: Call, model: Model | None = None, sites: Any = None
) -> None:
    """Let an automatic guide find the sites of the model, of which there may be a `survey`."""
    with alone(), handlers.seed(rng_seed=key):
        if isinstance(guide, LayerGuide):
            guide.find_sites(call, sites if guide.model is model else None)
        elif isinstance(guide, AutoGuide):
            guide(*call.args, **call.kwargs)


@lru_cache(maxsize=64)
def _shapes_of(
    partition: Partition, treedef: Any, shapes: tuple[Any, ...], new_rows: bool
) -> Declared:
    """Run the programs on shapes, and return the shapes of their params."""
    found: dict[str, Any] = {"model": {}, "guide": {}, "constraints": {}}

    def run(data: CallArrays) -> None:
        call, programs = partition.join(data), {"model": partition.model}
        if partition.guide is not None:
            programs["guide"] = partition.guide_with(data)
            if new_rows and isinstance(programs["guide"], LayerGuide):
                shared = partial(shared_sites, partition.model, call)
                programs["guide"] = programs["guide"].for_new_rows(shared)
        for name, program in programs.items():
            if program is not None:
                sites = {n: s for n, s in survey(program, call).items() if s["type"] == "param"}
                own = {n: s["value"] for n, s in sites.items() if s["declared"]}
                found[name] = {n: jax.tree.map(_abstract, value) for n, value in own.items()}
                limits = {n: sites[n]["kwargs"].get("constraint") for n in own}
                found["constraints"] |= {n: c for n, c in limits.items() if not is_traced(c)}

    with alone():
        jax.eval_shape(run, treedef.unflatten(shapes))
    return Declared(**found)


def _check_shapes(caller: str, given: Params, declared: Declared) -> None:
    for name, shapes in declared.all.items():
        if name in given:
            shared = name in declared.model and name not in declared.guide
            check_shapes(caller, name, given[name], shapes, shared=shared)


def _abstract(value: Any) -> Any:
    """Return the shape and dtype of an array; other values as they are."""
    if not hasattr(value, "shape"):
        return value
    return jax.ShapeDtypeStruct(value.shape, value.dtype)
