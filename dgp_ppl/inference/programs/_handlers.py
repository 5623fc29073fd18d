"""Trace a model's sites, freeze its params, hide its sites."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from numpyro import handlers
from numpyro.infer import init_to_feasible
from numpyro.primitives import Messenger

from dgp_ppl._checks import GivenParams, check_program, check_value, params_of, short_list
from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference.runs._summary import program_name
from dgp_ppl.likelihoods._observe import as_observed
from dgp_ppl.linalg._precision import warn_if_wide


class AllLayersSeen(BaseException):
    """Ends a run of the model after its last layer. It is not an error of the model."""


Sites = dict[str, Any]
"""The sites of a trace by name."""


def survey(program: Model, call: Call, *, hide_params: bool = False) -> Sites:
    """Trace a model or a guide with abstract values, which have shapes but no numbers.

    With `hide_params` params that are constants are abstract too. Their sites have an entry
    ``declared``: whether the program, and no handler around it, sets their values.
    """
    trace: dict[str, Any] = {}

    def run(key: PRNGKey) -> None:
        abstract = _Abstract(handlers.seed(program, key), hide_params)
        trace.update(handlers.trace(abstract).get_trace(*call.args, **call.kwargs))

    with alone():
        jax.eval_shape(run, random.PRNGKey(0))
    return trace


class _Abstract(Messenger):
    """Makes values for a `survey`."""

    def __init__(self, fn: Any, hide_params: bool) -> None:
        super().__init__(fn)
        self.hide_params = hide_params

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param":
            # NumPyro's networks ask for their param, without an initial value, before they declare
            # it.
            msg["declared"] = msg["value"] is None and (*msg["args"], 0)[0] is not None
            if msg["declared"] and msg["args"] and not callable(msg["args"][0]):
                constraint = msg["kwargs"].get("constraint")
                check_value(f"the first value of param {msg['name']!r}", msg["args"][0], constraint)
        elif msg["type"] == "sample" and isinstance(msg["fn"], dist.ImproperUniform):
            msg["value"] = init_to_feasible(msg)  # it has no draws

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "param" and self.hide_params:
            hide = lambda a: jnp.copy(a) if hasattr(a, "shape") or isinstance(a, float) else a  # noqa: E731
            msg["value"] = jax.tree.map(hide, msg["value"])


def data_plates(trace: dict[str, Any]) -> set[str]:
    """Return the plates of sites that data observe; a latent site in one may belong to a row."""
    observed = [
        s
        for s in trace.values()
        if s["type"] == "sample" and (s["is_observed"] or as_observed(s["fn"]) is not None)
    ]
    return {frame.name for s in observed for frame in s["cond_indep_stack"]}


def shared_sites(model: Model, call: Call, site: str | None = None) -> frozenset[str]:
    """Return the sites that all rows share, where x, the first argument, has new rows for a `site`.

    Rows are in the plates of this site, and in those of `minibatch` that take the same x, moved or
    not. Data in another plate, such as measurements of groups, do not make a row of it. Without a
    site, it is any `observe` without data; if it has a `minibatch`, other plates do not count.
    """
    sites = survey(model, call)
    x = call.inputs
    others = [a for a in (*call.args, *call.kwargs.values()) if a is not x]
    made = {n: [a for a in s["arrays"] if a is not None] for n, s in sites.items() if "arrays" in s}
    samples = {n: s for n, s in sites.items() if s["type"] == "sample"}
    # Auxiliary sites, the unit noise of hidden layers, are of rows also where no plate says so.
    samples = {n: s for n, s in samples.items() if not s["infer"].get("is_auxiliary")}
    plates = {n: {frame.name for frame in s["cond_indep_stack"]} for n, s in samples.items()}
    found = {n for n, s in samples.items() if as_observed(s["fn"]) is not None}
    found = {n for n in found if not samples[n]["is_observed"]} or found
    found = found if site is None else {site} & plates.keys()
    rows = {plate for n in found for plate in plates[n]}
    held = [a for n in rows & made.keys() for a in made[n] if not any(a is b for b in others)]
    if held and site is None:
        rows = {n for n in rows & made.keys() if made[n]}
    rows |= {n for n, own in made.items() if any(a is b for a in own for b in (*held, x))}
    return frozenset(n for n, own in plates.items() if not own & rows)


def refuse_obs_mask(caller: str, name: str) -> None:
    """Raise if an `observe` without data is the half of a site that NumPyro's ``obs_mask`` adds."""
    if name.endswith("_unobserved"):
        site = name.removesuffix("_unobserved")
        raise ValueError(
            f"{caller}: site {site!r} has obs_mask, which makes a latent site of missing values, "
            "wanted dgp_ppl.observe(..., mask=...), which leaves them out"
        )


def check_whole(caller: str, sites: Sites, why: str) -> None:
    """Raise if a plate takes only some of its rows; say why it must not, and what to do."""
    for name, site in sites.items():
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]:
            raise ValueError(
                f"{caller}: plate {name!r} takes {len(site['value'])} of {site['args'][0]} rows, "
                f"wanted all of them{why}"
            )


def freeze(program: Any, params: Params | Fitted) -> Any:
    """Return a model or guide with some params held at given values; a fit does not see them.

    >>> import numpyro
    >>> from numpyro import handlers
    >>> import dgp_ppl as dgp
    >>> def model():
    ...     return numpyro.param("noise", 1.0)
    >>> frozen = dgp.freeze(model, {"noise": 0.1})
    >>> frozen(), list(handlers.trace(frozen).get_trace())
    (0.1, [])

    Args:
        program: a model or a guide.
        params: values by name, or the result of a fit. Params of the other program of the fit
            may be among them, and are not used.

    Raises:
        TypeError: if `params` is neither a dict nor a result.
        ValueError: when the program runs, if a value has another shape than the program declares,
            or the program has params and `params` has none of them.
    """
    check_program("freeze", "program", program)
    values = params_of("freeze", params)
    warn_if_wide("freeze", values)
    given = GivenParams(program, values, "freeze", missing=_any_param)
    return _Frozen(given, data=values)


def _any_param(name: str) -> bool:
    return True


class _Frozen(handlers.substitute):
    """Substitutes values and hides their sites, as a class that `dgp_ppl.save` can keep."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program: Any = self.fn
        seen = _Names()
        with self, seen:
            found = program(*args, **kwargs)
        if self.data and seen.params and not seen.sites & self.data.keys():
            raise ValueError(
                f"freeze: params has {short_list(sorted(self.data))}, none of them a param of "
                f"{program_name(program)}, wanted some of {short_list(sorted(seen.params))}"
            )
        return found

    def process_message(self, msg: Any) -> None:
        super().process_message(msg)
        if msg.get("name") in self.data:
            msg["stop"] = True


class _Names(Messenger):
    """Records the names of params, and of all sites."""

    def __init__(self) -> None:
        super().__init__()
        self.params: set[str] = set()
        self.sites: set[str] = set()

    def process_message(self, msg: Any) -> None:
        if (name := msg.get("name")) is not None:
            self.sites.add(name)
            if msg["type"] == "param":
                self.params.add(name)


def held_names(program: Any) -> set[str]:
    """Return the names of values that handlers around a program hold, `freeze` among them."""
    names: set[str] = set()
    while program is not None:
        names |= set(getattr(program, "data", None) or ())
        inner = getattr(program, "fn", None)
        program = getattr(program, "model", None) if inner is None else inner
    return names


def hidden_samples() -> Any:
    """Return a handler that hides everything but params from outer handlers."""
    return alone(hide_fn=lambda site: site["type"] != "param")
