"""The potential energy of a NumPyro model at unconstrained latent values, from minibatches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs
from numpyro.primitives import Messenger

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.core._minibatch import stratified, whole_plates

__all__ = ["Energy", "Potential"]


class Energy(NamedTuple):
    """An estimate of the potential energy."""

    value: Array  # -log p(y, latents) - log |d latents / d unconstrained|, in nats, []
    latents: Values  # constrained values of the latent sites
    log_densities: Values  # log densities of the observed and latent sites, by name, [] each

    def not_finite(self) -> dict[str, float]:
        """Return the log densities that are not finite, by site."""
        densities = {n: float(p) for n, p in self.log_densities.items()}
        return {n: p for n, p in densities.items() if not math.isfinite(p)}


class _SetUnconstrained(Messenger):
    """Sets latent sites to unconstrained values, and sums the log-determinants of the Jacobians.

    Supports may depend on other sites. In a subsampled plate `unconstrained` has a value for every
    row, and the minibatch's rows are taken. Within `scan` it has a value for every step.
    """

    def __init__(self, fn: Any, unconstrained: Values) -> None:
        super().__init__(fn)
        self.unconstrained = unconstrained
        self.rows: dict[str, Array] = {}
        self.latents: Values = {}
        self.log_jacobian: Any = 0.0

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["value"] is None:
            # A random initial value must not change with the key.
            with handlers.seed(rng_seed=random.PRNGKey(0)):
                msg["value"] = msg["fn"](*msg["args"], **msg["kwargs"])
        if msg["type"] == "control_flow":
            # Its sites arrive here stacked, after it has run.
            msg["kwargs"]["substitute_stack"].append(("substitute", self._in_control_flow))
        if msg["type"] != "sample" or msg["name"] not in self.unconstrained:
            return
        u, transform = self.unconstrained[msg["name"]], biject_to(msg["fn"].support)
        self.latents[msg["name"]] = transform(u)
        for frame in msg["cond_indep_stack"]:
            if frame.name in self.rows:
                axis = frame.dim - transform.domain.event_dim
                u = jnp.take(u, self.rows[frame.name], axis=axis)
        msg["value"] = transform(u)
        jacobian = transform.log_abs_det_jacobian(u, msg["value"])
        scale = 1.0 if msg["scale"] is None else msg["scale"]
        self.log_jacobian = self.log_jacobian + scale * jnp.sum(jacobian)

    def _in_control_flow(self, site: Any) -> Array | None:
        """Return the value of a site inside `cond`, or inside `scan` at the current step."""
        if site["type"] != "sample" or site["name"] not in self.unconstrained:
            return None
        u, step = self.unconstrained[site["name"]], site["infer"].get("_scan_current_index")
        return biject_to(site["fn"].support)(u if step is None else u[step])

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "plate" and len(msg["value"]) < msg["args"][0]:
            self.rows[msg["name"]] = msg["value"]


class Potential:
    """The potential energy -log p(y, v) of a model, as a function of its unconstrained latents.

    The random key draws the rows of subsampled plates, and the auxiliary sites (unit noise of
    hidden layers) from their priors. The energy at a key is an estimate, and so is its gradient. A
    sampler that uses them targets the density whose log is the mean of the estimates.

    Args:
        model: a NumPyro model. Its params have their initial values; set others by
            ``handlers.substitute(model, data=params)``.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, key: PRNGKey, unconstrained: Values, call: Call) -> Energy:
        """Return the energy at these values."""
        latents = _SetUnconstrained(handlers.seed(self.model, key), unconstrained)
        with stratified():
            log_probs, sites = compute_log_probs(latents, call.args, call.kwargs, {})
        # Auxiliary sites that are not given have no density here; factors are observed.
        counts = lambda n: n in unconstrained or sites[n]["is_observed"] or _is_latent(sites[n])  # noqa: E731
        terms = {n: p for n, p in log_probs.items() if counts(n)}
        return Energy(-(sum(terms.values()) + latents.log_jacobian), latents.latents, terms)

    def deterministic(self, call: Call) -> Callable[[Values], Values]:
        """Return a function from latents to the model's deterministic sites, of all rows.

        Auxiliary sites on the way (unit noise of hidden layers) are drawn with a random key that is
        computed from the latents.
        """

        def found(latents: Values) -> Values:
            program = handlers.substitute(whole_plates(self.model), data=latents)
            whole = _SetUnconstrained(handlers.seed(program, _key_from(latents)), {})
            with handlers.block():
                sites = handlers.trace(whole).get_trace(*call.args, **call.kwargs)
            return {n: s["value"] for n, s in sites.items() if s["type"] == "deterministic"}

        return found

    def start(self, key: PRNGKey, strategy: Callable[[Any], Any], call: Call) -> Values:
        """Return initial unconstrained values of all latent sites, by one of NumPyro's strategies.

        Raises:
            ValueError: if the model has no latent site, a discrete one, or one in a subsampled
                plate within `scan`.
        """
        seeded = handlers.seed(whole_plates(self.model), key)
        program = handlers.substitute(seeded, substitute_fn=strategy)
        found: dict[str, Any] = {}

        def run() -> Values:
            tracer = handlers.trace(_SetUnconstrained(program, {}))
            sites = tracer.get_trace(*call.args, **call.kwargs)
            found.update({n: s for n, s in sites.items() if _is_latent(s)})
            if discrete := [n for n, s in found.items() if s["fn"].is_discrete]:
                raise ValueError(
                    f"SGHMC: the latent sites {discrete} are discrete, and have no gradient; sum "
                    "them out in the model, or sample them by numpyro's DiscreteHMCGibbs"
                )
            if parts := [n for n, s in found.items() if _is_subsampled_in_scan(s)]:
                raise ValueError(
                    f"SGHMC: the latent sites {parts} are in a plate with a subsample_size within "
                    "numpyro's scan, which does not report its rows; leave out that plate's "
                    "subsample_size"
                )
            return {n: biject_to(s["fn"].support).inv(s["value"]) for n, s in found.items()}

        with handlers.block():
            values = jax.jit(run)()
        if not values:
            raise ValueError("SGHMC: the model has no latent sites to sample")
        return values


def _is_latent(site: Any) -> bool:
    return (
        site["type"] == "sample"
        and not site["is_observed"]
        and not site["infer"].get("is_auxiliary")
    )


def _is_subsampled_in_scan(site: Any) -> bool:
    by_handlers = site.get("plate_to_scale", {}).get(None)
    return "_scan_current_index" in site["infer"] and site["scale"] is not by_handlers


def _key_from(values: Values) -> PRNGKey:
    """Hash values to a random key, by multiplying their bits with odd random weights."""
    flat = ravel_pytree(values)[0].astype(jnp.float32)
    words = lax.bitcast_convert_type(flat, jnp.uint32)
    weights = random.bits(random.PRNGKey(1), words.shape, jnp.uint32) | 1
    return random.fold_in(random.PRNGKey(0), jnp.sum(words * weights, dtype=jnp.uint32))
