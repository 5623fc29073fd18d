"""Guides of a model's latent sites that are not layers: hyperparameters and latent inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions.transforms import LowerCholeskyAffine
from numpyro.infer.autoguide import (
    AutoGuide,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

from dgp_ppl._checks import is_traced, short_list
from dgp_ppl._partition import Call, alone, compiled
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.core._minibatch import stratified
from dgp_ppl.inference.guides._local_normal import LocalNormal
from dgp_ppl.inference.programs._handlers import Sites, data_plates, hidden_samples, refuse_obs_mask
from dgp_ppl.likelihoods._observe import as_observed


class OtherSites:
    """The guides of a model's latent sites other than its layers.

    Global sites are drawn first, so that a guide of layers can run the model with them. Sites with
    one value per row are drawn for the rows of a minibatch.

    Attributes:
        order: all latent sites that have a place in the guide's trace, in the model's order.
        row_sites: latent inputs, sites [N, Q] of the data's rows, and their Q.
    """

    def __init__(
        self, guide: str, model: Model, factory: Callable[[Model], AutoGuide],
        trace: dict[str, Any], layers: Iterable[str], call: Call,
    ) -> None:  # fmt: skip
        self._guide, self._model, self._factory = guide, model, factory
        sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        layers = set(layers)
        # Sites with an `observe` are data, also in a call without y.
        data = [n for n, s in sites.items() if as_observed(s["fn"]) is not None]
        for name in data:
            refuse_obs_mask(guide, name)
        plates = {
            n: {frame.name for frame in s["cond_indep_stack"]}
            for n, s in sites.items()
            if n not in layers and not s["infer"].get("is_auxiliary") and n not in data
        }
        for name in (n for n in plates if sites[n]["fn"].is_discrete):
            raise ValueError(f"the latent site {name!r} is discrete; sum it out in the model")
        # Sites in plates share the rows of their plates, and plates of the data are subsampled.
        rows = data_plates(trace)
        global_names = [n for n, found in plates.items() if not found]
        local_names = [n for n, found in plates.items() if found & rows]
        plated_names = [n for n, found in plates.items() if found and not found & rows]
        if factory is not AutoNormal:  # a joint guide has all sites that no minibatch divides
            global_names = [n for n in plates if n not in local_names]
            plated_names = []
        self._row_names = frozenset(local_names)
        self._globals: dict[str, Any] = {}
        self._locals: dict[str, Any] = {}
        if factory is AutoNormal:
            unknown = [n for n in global_names if is_traced(sites[n]["fn"].support)]
            priors = _priors(model, unknown, call)
            known = sites | {n: {**sites[n], "fn": prior} for n, prior in priors.items()}
            self._globals = {n: LocalNormal(model, [n], known) for n in global_names}
        else:
            self._globals = self._joint(global_names, sites, call)
        groups = [group for group in (local_names, plated_names) if group]
        self._groups = {group[0]: group for group in groups}
        for group in groups:
            if factory is AutoNormal:
                self._locals[group[0]] = LocalNormal(model, group, trace)
            else:
                self._locals |= self._joint(group, sites, call)
        self.order = [n for n in sites if n in layers or n in global_names or n in self._locals]
        shapes = {n: sites[n]["fn"].shape() for n in local_names}
        self.row_sites = {n: shape[1] for n, shape in shapes.items() if len(shape) == 2}

    def __eq__(self, other: object) -> bool:
        """NumPyro's joint guides are equal to themselves only: they hold arrays."""
        if not isinstance(other, OtherSites):
            return False
        mine, theirs = (
            (each.order, each._row_names, each._globals, each._locals) for each in (self, other)
        )
        return mine == theirs

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self._globals or self._locals)

    @property
    def parts(self) -> list[Any]:
        """All guides, each of one or more sites."""
        return [*self._globals.values(), *self._locals.values()]

    @property
    def has_plated(self) -> bool:
        """Whether there are sites in plates."""
        return bool(self._locals)

    @property
    def row_params(self) -> frozenset[str]:
        """Names of params whose leading axis is the rows of the data."""
        parts = [p for n, p in self._locals.items() if n in self._row_names]
        return frozenset().union(*(p.params for p in parts if isinstance(p, LocalNormal)))

    def for_new_rows(self, shared: frozenset[str]) -> OtherSites:
        """Return the same guides; of sites in plates, only those that are `shared` by all rows."""
        other = copy.copy(self)
        other._locals, other._groups, firsts = {}, {}, {}
        for first, part in self._locals.items():
            kept = [n for n in self._groups[first] if n in shared]
            if kept and isinstance(part, LocalNormal):
                part = part.only(kept)
            elif kept and len(kept) < len(self._groups[first]):
                raise ValueError(
                    f"{self._guide}: rest makes one guide of {short_list(self._groups[first])}, "
                    f"and only {short_list(kept)} is the same for new rows; leave out rest, whose "
                    "default is AutoNormal"
                )
            firsts[first] = kept[:1]
            other._locals |= dict.fromkeys(kept[:1], part)
            other._groups |= dict.fromkeys(kept[:1], kept)
        other.order = [n for first in self.order for n in firsts.get(first, [first])]
        return other

    def draw_globals(self, call: Call) -> dict[str, Any]:
        """Draw the global latent sites, hidden from outer handlers, and return them."""
        if not self._globals:
            return {}
        key = numpyro.prng_key()
        with hidden_samples(), handlers.seed(rng_seed=key), handlers.trace() as trace:
            for part in self._globals.values():
                part(*call.args, **call.kwargs)
        return {n: s for n, s in trace.items() if s["type"] == "sample"}

    def draw_local(self, name: str, call: Call) -> dict[str, Any]:
        """Draw the sites of the plate whose first site this is."""
        with stratified():
            return self._locals[name](*call.args, **call.kwargs)

    def noise_shapes(self, call: Call) -> dict[str, tuple[int, ...]]:
        """Return the shape of the unit noise e of each site; the params must be given."""
        return {n: normal.shape() for n, (normal, _) in self._normals(call).items()}

    def from_noise(self, noise: Values, call: Call) -> tuple[Values, Array]:
        """Return the sites T(e) at unit noise e, and log |T'(e)|; the params must be given."""
        values: Values = {}
        log_det = jnp.zeros(())
        for name, (normal, bijections) in self._normals(call).items():
            e = noise[name]
            x: Any = normal.loc + normal.scale * e
            log_det += jnp.sum(jnp.log(normal.scale * jnp.ones_like(e)))
            for bijection in bijections:
                y = bijection(x)
                log_det += jnp.sum(bijection.log_abs_det_jacobian(x, y))
                x = y
            values[name] = x
        with handlers.trace() as trace, handlers.seed(rng_seed=0), handlers.substitute(data=values):
            for part in self.parts:
                if not isinstance(part, LocalNormal):  # a joint guide, whose sites follow its draw
                    part(*call.args, **call.kwargs)
        deltas = {n: s["fn"] for n, s in trace.items() if isinstance(s.get("fn"), dist.Delta)}
        values |= {n: delta.v for n, delta in deltas.items()}
        return values, log_det - sum(jnp.sum(delta.log_density) for delta in deltas.values())

    def _normals(self, call: Call) -> dict[str, tuple[Any, list[Any]]]:
        """Return of each site's guide the normal, and the bijections of its draws."""
        with handlers.trace() as trace, handlers.seed(rng_seed=0):
            for part in self.parts:
                part(*call.args, **call.kwargs)
        found = {}
        for name, site in trace.items():
            if site["type"] != "sample":
                continue
            q, bijections = site["fn"], []
            if isinstance(q, dist.MultivariateNormal):  # of a joint guide
                affine: Any = q.loc, q.scale_tril
                unit = dist.Normal(jnp.zeros(q.event_shape))
                found[name] = unit, [LowerCholeskyAffine(*affine)]
                continue
            if isinstance(q, dist.Delta) and found:
                continue
            if isinstance(q, dist.TransformedDistribution):
                q, bijections = q.base_dist, q.transforms
            while isinstance(q, dist.Independent | dist.ExpandedDistribution):
                q = q.base_dist
            if not isinstance(q, dist.Normal):
                raise ValueError(
                    f"{self._guide}: the guide of {name!r} is a {type(q).__name__}, wanted a "
                    "normal for each latent site, or of all; leave out rest, whose default is "
                    "AutoNormal"
                )
            found[name] = q, bijections
        return found

    def _joint(self, group: list[str], sites: Sites, call: Call) -> dict[str, AutoGuide]:
        """Return one guide for several sites of the model, by the first one's name."""
        if not group:
            return {}
        hidden = [n for n in sites if n not in group]
        part = self._factory(handlers.block(self._model, hide=hidden))
        if isinstance(part, AutoLaplaceApproximation):
            raise TypeError(
                f"{self._guide}: rest makes an AutoLaplaceApproximation, which is a point mass "
                "during a fit and would stay one in predictions; wanted a guide such as "
                "AutoMultivariateNormal, or AutoDelta for the mode"
            )
        if self._globals or self._locals:
            part.prefix = f"{part.prefix}_{group[0]}"  # the sites of two joint guides
        kinds = AutoMultivariateNormal | AutoLowRankMultivariateNormal
        # A site without a prior to draw from, in a plate, or of a class that JAX may not carry
        # out of a program, wants the model itself.
        special = any(isinstance(s["fn"], dist.ImproperUniform) for s in sites.values())
        special = special or any(
            sites[n]["cond_indep_stack"] or not _is_numpyros(sites[n]["fn"]) for n in group
        )
        if isinstance(part, kinds) and not special:
            # These want shapes and supports. The model would run operation by operation.
            priors = _priors(self._model, group, call)
            part.model = lambda *args, **kwargs: [numpyro.sample(n, priors[n]) for n in group]
        with jax.ensure_compile_time_eval(), alone(), handlers.seed(rng_seed=0):
            part(*call.args, **call.kwargs)
        return {group[0]: part}


def _is_numpyros(prior: Any) -> bool:
    own = type(prior).__module__.startswith("numpyro.")
    return own and (not hasattr(prior, "base_dist") or _is_numpyros(prior.base_dist))


def _priors(model: Model, names: list[str], call: Call) -> dict[str, Any]:
    """Return the priors of sites as one run draws them, without tracers, to outlive a program."""

    def computed(key: PRNGKey) -> dict[str, Any]:
        trace = handlers.trace(handlers.seed(model, key)).get_trace(*call.args, **call.kwargs)
        return {n: trace[n]["fn"] for n in names}

    if not names:
        return {}
    with alone(), jax.ensure_compile_time_eval():
        within = is_traced(call.args, call.kwargs)  # a compiled run would trace them all
        return (computed if within else compiled(computed))(random.PRNGKey(0))
