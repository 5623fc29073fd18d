"""Normal guides of latent sites: a location and a scale for every number, and every row."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.scipy.special import ndtri
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import IdentityTransform

from dgp_ppl._checks import is_traced
from dgp_ppl._partition import Call, signature
from dgp_ppl._typing import Model, Params
from dgp_ppl.core._minibatch import stratified
from dgp_ppl.inference.programs._handlers import Sites, survey

_SCALE = 0.1  # as in NumPyro's AutoNormal


class LocalNormal:
    """Independent normals for latent sites, with params for each row of their plates.

    This is NumPyro's `AutoNormal`, with the same names of params. But it does not run the model's
    density to begin, and the size of a minibatch may change between calls: a call draws the rows of
    the batch only, and moves no other row's params. Two are equal if they have the same sites, of
    the same shapes and supports.
    """

    def __init__(self, model: Model, names: Sequence[str], sites: Sites) -> None:
        self.model, self.names = model, tuple(names)
        full = {n: s["args"][0] for n, s in sites.items() if s["type"] == "plate"}
        self._bijections: dict[str, Any] = {}
        self._starts: dict[str, Array] = {}
        self._event_dims: dict[str, int] = {}
        self._is_real: dict[str, bool] = {}
        self._plated = any(sites[n]["cond_indep_stack"] for n in self.names)
        for i, name in enumerate(self.names):
            prior = sites[name]["fn"]
            bijection = self._bijections[name] = _bijection(name, prior)
            shape = list(prior.batch_shape)
            for frame in sites[name]["cond_indep_stack"]:
                shape[frame.dim] = full[frame.name]
            whole = (*shape, *prior.event_shape)
            free = bijection.inverse_shape(whole)
            self._event_dims[name] = len(free) - len(shape)
            with jax.ensure_compile_time_eval():
                self._starts[name] = (
                    random.normal(random.key(i), free) if self._plated else _start(free)
                )
            # A vector in a plate keeps its bijection, and so a KL that is estimated from the draw.
            base = getattr(prior.support, "base_constraint", None)
            is_vector = base is constraints.real and not self._plated
            self._is_real[name] = is_vector or isinstance(bijection, IdentityTransform)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalNormal) or self.names != other.names:
            return False
        found = [
            (signature(each._starts), each._event_dims, each._plated, each._bijections)
            for each in (self, other)
        ]
        return found[0] == found[1]

    __hash__ = object.__hash__

    @property
    def params(self) -> frozenset[str]:
        """Names of the params. Their leading axis is the plate's rows."""
        return frozenset(f"{n}_auto_{part}" for n in self.names for part in ("loc", "scale"))

    def only(self, names: Sequence[str]) -> LocalNormal:
        """Return the same guide of some of its sites."""
        other = copy.copy(self)
        other.names = tuple(names)
        return other

    def quantiles(self, params: Params, quantiles: ArrayLike) -> dict[str, Array]:
        """Return marginal quantiles of each site, with the quantiles' shape in front."""
        z, found = ndtri(jnp.asarray(quantiles, float)), {}
        for name in self.names:
            loc, scale = params[f"{name}_auto_loc"], params[f"{name}_auto_scale"]
            found[name] = self._bijections[name](loc + scale * z.reshape(z.shape + (1,) * loc.ndim))
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Draw the sites; takes the model's arguments."""
        # The plates of this call: the size of its batch, and the number of rows.
        trace = survey(self.model, Call(args, kwargs)) if self._plated else {}
        stacks = {n: trace[n]["cond_indep_stack"] if trace else [] for n in self.names}
        rows = {f.name: trace[f.name]["args"][0] for own in stacks.values() for f in own}
        for name, own in stacks.items():
            for frame in own:
                self._check_rows(name, rows[frame.name], frame.dim)
        with stratified():
            plates = {
                f.name: numpyro.plate(f.name, rows[f.name], dim=f.dim, subsample_size=f.size)
                for f in {f.name: f for own in stacks.values() for f in own}.values()
            }
        draws = {}
        for name in self.names:
            with ExitStack() as stack:
                for frame in stacks[name]:
                    stack.enter_context(plates[frame.name])
                draws[name] = numpyro.sample(name, self._distribution(name))
        return draws

    def _check_rows(self, name: str, rows: int, dim: int) -> None:
        own = self._starts[name].shape[dim - self._event_dims[name]]
        if rows != own:
            raise ValueError(
                f"the guide of {name!r} was set up for {own} rows, and the model has {rows}; make "
                "a new guide, or use infer_latent for new rows of a fitted model"
            )

    def _distribution(self, name: str) -> Any:
        start, event_dim = self._starts[name], self._event_dims[name]
        loc: Any = numpyro.param(f"{name}_auto_loc", start, event_dim=event_dim)
        scale: Any = numpyro.param(
            f"{name}_auto_scale", jnp.full_like(start, _SCALE), event_dim=event_dim,
            constraint=constraints.softplus_positive,
        )  # fmt: skip
        normal = dist.Normal(loc, scale).to_event(event_dim)
        if self._is_real[name]:
            return normal
        return dist.TransformedDistribution(normal, self._bijections[name])


def _start(shape: tuple[int, ...]) -> Array:
    """Return where NumPyro's `AutoNormal` starts, seeded by 0."""
    key = random.split(random.split(random.PRNGKey(0))[1])[1]
    return random.uniform(key, shape, minval=-2.0, maxval=2.0)


def _bijection(name: str, prior: Any) -> Any:
    """Return the bijection from the reals to a site's support, which the model may not compute."""
    with jax.ensure_compile_time_eval():  # the guide outlives the program that is traced now
        bijection = biject_to(prior.support)
    if is_traced(bijection):
        raise ValueError(
            f"the latent site {name!r} has a support that the model computes; give it one of "
            "numbers, such as dist.Uniform(0.0, 1.0), or none: a normal that the model transforms"
        )
    return bijection
