"""The potential energy of a NumPyro model at unconstrained latent values, from minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs
from numpyro.primitives import Messenger

from dgp_ppl._partition import TRACING, Call, alone
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.core._minibatch import stratified, whole_plates


class Energy(NamedTuple):
    """An estimate of the potential energy."""

    value: Array  # -log p(y, latents) - log |d latents / d unconstrained|, in nats, []
    latents: Values  # constrained values of the latent sites
    log_densities: Values  # log densities of the observed and latent sites, by name, [] each


class FixedParams(Messenger):
    """Sets params to their initial values. One that a random key draws does not change."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["value"] is None:
            with handlers.seed(rng_seed=random.PRNGKey(0)):
                msg["value"] = msg["fn"](*msg["args"], **msg["kwargs"])


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
    sampler that uses them targets the density whose log is the mean of the estimates. Params have
    their initial values; set others by ``handlers.substitute(model, data=params)``.
    """

    def __init__(self, model: Model) -> None:
        self.program = FixedParams(model)

    def __call__(self, key: PRNGKey, unconstrained: Values, call: Call) -> Energy:
        latents = _SetUnconstrained(handlers.seed(self.program, key), unconstrained)
        with TRACING, stratified():
            log_probs, sites = compute_log_probs(latents, call.args, call.kwargs, {})
        # Auxiliary sites that are drawn have no density here.
        given = lambda n: n in unconstrained or sites[n]["is_observed"]  # noqa: E731
        is_drawn = lambda n: sites[n]["infer"].get("is_auxiliary") and not given(n)  # noqa: E731
        terms = {n: p for n, p in log_probs.items() if not is_drawn(n)}
        return Energy(-(sum(terms.values()) + latents.log_jacobian), latents.latents, terms)

    def deterministic(self, call: Call) -> Callable[[Values], Values]:
        """Return a function from latents, which seed auxiliary sites, to deterministic sites."""

        def found(latents: Values) -> Values:
            program = handlers.substitute(whole_plates(self.program), data=latents)
            seeded = handlers.seed(program, _key_from(latents))
            with alone():
                sites = handlers.trace(seeded).get_trace(*call.args, **call.kwargs)
            return {n: s["value"] for n, s in sites.items() if s["type"] == "deterministic"}

        return found


def _key_from(values: Values) -> PRNGKey:
    """Hash values to a random key, by multiplying their bits with odd random weights."""
    flat = ravel_pytree(values)[0].astype(jnp.float32)
    words = lax.bitcast_convert_type(flat, jnp.uint32)
    weights = random.bits(random.PRNGKey(1), words.shape, jnp.uint32) | 1
    return random.fold_in(random.PRNGKey(0), jnp.sum(words * weights, dtype=jnp.uint32))
