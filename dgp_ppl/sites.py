"""The sites of a model as its user thinks of them: latent ones, data, and their dimensions."""

import dataclasses
from typing import Any

import numpyro.distributions as dist

from dgp_ppl._typing import Model
from dgp_ppl.inference.survey import data_plates, survey
from dgp_ppl.minibatch import whole_plates
from dgp_ppl.observe import Observed

__all__ = ["Sites"]


@dataclasses.dataclass(frozen=True)
class Sites:
    """The sites of a model at some arguments.

    Attributes:
        latent: dimensions of each latent site by name; auxiliary sites are left out.
        data: dimensions of each site that is observed, or that is an `observe`.
        event_dims: of each site of data, how many of its dimensions are of one datum.
        rows: latent sites that have a value for each row of the data.
        num_rows: rows N of the data if all of its sites lead with them, else None.
        noisy: whether a pass through the model draws noise of its own, as hidden layers do.
    """

    latent: dict[str, tuple[str, ...]]
    data: dict[str, tuple[str, ...]]
    event_dims: dict[str, int]
    rows: frozenset[str]
    num_rows: int | None
    noisy: bool

    @staticmethod
    def of(model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Sites":
        """Found on shapes alone."""
        trace = survey(whole_plates(model), args, kwargs)
        sites = {n: s for n, s in trace.items() if s["type"] == "sample"}
        data = {n: s for n, s in sites.items() if _is_data(s)}
        auxiliary = {n for n, s in sites.items() if s["infer"].get("is_auxiliary")}
        latent = {n: s for n, s in sites.items() if not s["is_observed"] and n not in data}
        latent = {n: s for n, s in latent.items() if n not in auxiliary}
        plates = data_plates(trace)
        rows = {n for n, s in latent.items() if {f.name for f in s["cond_indep_stack"]} & plates}
        leading = [_leading(s) for n, s in sites.items() if n in data or n in rows]
        sizes = set(leading)
        return Sites(
            {n: _dims(n, s) for n, s in latent.items()},
            {n: _dims(n, s) for n, s in data.items()},
            {n: len(s["fn"].event_shape) for n, s in data.items()},
            frozenset(rows),
            leading[0] if len(sizes) == 1 else None,
            bool(auxiliary)
            or any(getattr(s["fn"], "key", None) is not None for s in data.values()),
        )


def _is_data(site: Any) -> bool:
    if isinstance(site["fn"], Observed):
        return True
    return site["is_observed"] and not isinstance(site["fn"], dist.Unit)  # which a factor is


def _draws_noise(site: Any) -> bool:
    """Whether a site's density is itself an estimate by draws."""
    return getattr(site["fn"], "key", None) is not None


def _leading(site: Any) -> int | None:
    """The size of a site's plate of rows, if that is its leading dimension."""
    batch = site["fn"].batch_shape
    frames = {len(batch) + f.dim: f.size for f in site["cond_indep_stack"]}
    return frames.get(0)


def _dims(name: str, site: Any) -> tuple[str, ...]:
    """Named dimensions: plates by their names, inducing values and outputs by theirs."""
    batch, event = site["fn"].batch_shape, site["fn"].event_shape
    if "inducing" in site["infer"]:
        layer = name.removesuffix(".v")
        return f"{layer}.inducing", f"{layer}.output"
    total = len(batch) + len(event)
    dims = [f"{name}.dim_{i}" for i in range(total)]
    for frame in site["cond_indep_stack"]:
        dims[len(batch) + frame.dim] = frame.name
    if _is_data(site):
        if batch and not site["cond_indep_stack"]:
            dims[0] = "data"
        if len(event) == 1:
            dims[-1] = "output"
    return tuple(dims)
