"""The sites of a model as its user thinks of them: latent ones, data, and their dimensions."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.primitives import Messenger

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model
from dgp_ppl.core import Observed, as_observed, is_layer, whole_plates
from dgp_ppl.inference import survey

__all__ = ["Sites"]


@dataclasses.dataclass(frozen=True)
class Sites:
    """The sites of a model at some arguments.

    Attributes:
        latent: dimensions of each latent site by name; auxiliary sites are left out.
        shapes: of each latent site.
        data: dimensions of each site that is observed, or that is an `observe`.
        event_dims: of each site of data, how many of its dimensions are of one datum.
        rows: latent sites that have a value for each row of the data.
        num_rows: rows N of the data if all of its sites lead with them, else None.
        noisy: whether a pass through the model draws noise of its own, as hidden layers do.
        hidden: auxiliary sites.
        params: of the model, those that no handler gives a value.
    """

    latent: dict[str, tuple[str, ...]]
    shapes: dict[str, tuple[int, ...]]
    data: dict[str, tuple[str, ...]]
    event_dims: dict[str, int]
    rows: frozenset[str]
    num_rows: int | None
    noisy: bool
    hidden: frozenset[str]
    params: frozenset[str]

    @staticmethod
    def from_model(model: Model, call: Call, data: Iterable[str] = ()) -> "Sites":
        """Found on shapes alone; the sites named in `data` are data also where not observed.

        Raises:
            ValueError: if what is observed has another shape than its distribution.
        """
        unset = _Unset(whole_plates(model))
        trace = survey(unset, call)
        sites = {n: s for n, s in trace.items() if s["type"] == "sample"}
        observed = {n: s for n, s in sites.items() if n in data or _is_data(s)}
        auxiliary = {n for n, s in sites.items() if s["infer"].get("is_auxiliary")}
        latent = {n: s for n, s in sites.items() if not s["is_observed"] and n not in observed}
        latent = {n: s for n, s in latent.items() if n not in auxiliary}
        for name, site in observed.items():
            shape, wanted = jnp.shape(site["value"]), site["fn"].shape()
            if site["is_observed"] and shape != wanted:
                hint = "; pass y[:, 0]" if shape == (*wanted, 1) else ""
                raise ValueError(
                    f"to_inferencedata: the site {name!r} has a value of shape {shape} under a "
                    f"distribution of shape {wanted}, wanted the same{hint}"
                )
        plates = _plates_of_rows(observed.values(), *call)
        rows = {n for n, s in latent.items() if {f.name for f in s["cond_indep_stack"]} & plates}
        leading = {_leading(sites[n], plates) for n in (*observed, *rows)}
        return Sites(
            {n: _dims(n, s, n in observed) for n, s in latent.items()},
            {n: tuple(s["fn"].shape()) for n, s in latent.items()},
            {n: _dims(n, s, True) for n, s in observed.items()},
            {n: len(s["fn"].event_shape) for n, s in observed.items()},
            frozenset(rows),
            leading.pop() if len(leading) == 1 else None,
            bool(auxiliary) or any(map(_draws_noise, observed.values())),
            frozenset(auxiliary),
            frozenset(unset.names),
        )


class _Unset(Messenger):
    """Keeps the names of params that have no value yet."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.names: set[str] = set()

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["value"] is None:
            self.names.add(msg["name"])


def _is_data(site: Any) -> bool:
    if isinstance(site["fn"], Observed):
        return True
    return site["is_observed"] and not isinstance(site["fn"], dist.Unit)  # which a factor is


def _draws_noise(site: Any) -> bool:
    """Whether a site's density is itself an estimate by draws."""
    law = as_observed(site["fn"])
    return law is not None and law.estimated


def _plates_of_rows(
    sites: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> set[str]:
    """Of each site of data the plate of its rows: the first as long as the model's first array.

    A plate of outputs, or of groups, is none of these, though data are in it.
    """
    given: list[Any] = [*args, kwargs.get("x"), kwargs.get("y")]
    arrays = [a for a in given if np.ndim(a) > 0]
    size = np.shape(arrays[0])[0] if arrays else None
    found = set()
    for site in sites:
        frames = sorted(site["cond_indep_stack"], key=lambda f: f.dim)  # the leading one first
        frames = [f for f in frames if size is None or f.size == size]
        found |= {f.name for f in frames[:1]}
    return found


def _leading(site: Any, plates: set[str]) -> int | None:
    """The size of a site's plate of rows, if that is its leading dimension."""
    batch = site["fn"].batch_shape
    frames = {len(batch) + f.dim: f for f in site["cond_indep_stack"] if f.name in plates}
    return frames[0].size if 0 in frames else None


def _dims(name: str, site: Any, data: bool) -> tuple[str, ...]:
    """Named dimensions: plates by their names, inducing values and outputs by theirs."""
    batch, event = site["fn"].batch_shape, site["fn"].event_shape
    if is_layer(site):
        layer = name.removesuffix(".v")
        return f"{layer}.inducing", f"{layer}.output"
    total = len(batch) + len(event)
    dims = [f"{name}.dim_{i}" for i in range(total)]
    for frame in site["cond_indep_stack"]:
        dims[len(batch) + frame.dim] = frame.name
    if data:
        if batch and not site["cond_indep_stack"]:
            dims[0] = "data"
        if len(event) == 1:
            dims[-1] = "output"
    return tuple(dims)
