"""A NumPyro model's potential energy at unconstrained latent values, estimated on minibatches."""

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

from dgp_ppl._typing import Model, PRNGKey
from dgp_ppl.core import stratified, whole_plates

__all__ = ["Energy", "Potential", "Values"]

Values = dict[str, Array]


class Energy(NamedTuple):
    """An estimate of the potential energy.

    Attributes:
        value: -log p(y, latents) - log |d latents / d unconstrained|, in nats, [].
        latents: the latent sites in their own space.
    """

    value: Array
    latents: Values


class _Latents(Messenger):
    """Sets latent sites from unconstrained values, and keeps the logs of the Jacobians.

    Supports may depend on other sites. A site in a subsampled plate has a value for every row of
    the plate, and takes those of the minibatch. A site within `scan` has a value for every step.
    """

    def __init__(self, fn: Any, unconstrained: Values) -> None:
        super().__init__(fn)
        self.unconstrained = unconstrained
        self.rows: dict[str, Array] = {}
        self.latents: Values = {}
        self.log_jacobian: Any = 0.0

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["value"] is None:
            # One start for all keys, where it is a random one.
            with handlers.seed(rng_seed=random.PRNGKey(0)):
                msg["value"] = msg["fn"](*msg["args"], **msg["kwargs"])
        if msg["type"] == "control_flow":
            # Its sites show up here only when it is done, stacked.
            msg["kwargs"]["substitute_stack"].append(("substitute", self._within))
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

    def _within(self, site: Any) -> Array | None:
        """The value of a site within NumPyro's `scan`, at its step, or `cond`."""
        if site["type"] != "sample" or site["name"] not in self.unconstrained:
            return None
        u, step = self.unconstrained[site["name"]], site["infer"].get("_scan_current_index")
        return biject_to(site["fn"].support)(u if step is None else u[step])

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "plate" and len(msg["value"]) < msg["args"][0]:
            self.rows[msg["name"]] = msg["value"]


class Potential:
    """The potential energy -log p(y, v) of a model, a function of its latents without bounds.

    Plates with a subsample size draw their rows with the key, and auxiliary sites (hidden layers'
    unit noise) are drawn from their priors with it: every key is an estimate, and so is its
    gradient. What a sampler of it draws from is the density whose log is the estimates' mean.

    Args:
        model: a NumPyro model. Its params have their initial values; give them others by
            ``handlers.substitute(model, data=params)``.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(
        self,
        key: PRNGKey,
        unconstrained: Values,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        all_rows: bool = False,
    ) -> Energy:
        """The energy at these values; `all_rows` takes plates whole."""
        terms, latents = self._terms(key, unconstrained, args, kwargs, all_rows)
        return Energy(-(sum(terms.values()) + latents.log_jacobian), latents.latents)

    def not_finite(
        self, key: PRNGKey, unconstrained: Values, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, float]:
        """The sites whose log density is not finite at these values, and it."""
        terms = jax.jit(lambda u: self._terms(key, u, args, kwargs, False)[0])(unconstrained)
        return {n: float(p) for n, p in terms.items() if not jnp.isfinite(p)}

    def _terms(
        self,
        key: PRNGKey,
        unconstrained: Values,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        all_rows: bool,
    ) -> tuple[Values, _Latents]:
        """The log densities of all sites, whose sum with the Jacobian's is minus the energy."""
        program = whole_plates(self.model) if all_rows else self.model
        latents = _Latents(handlers.seed(program, key), unconstrained)
        with stratified():
            log_probs, sites = compute_log_probs(latents, args, kwargs, {})
        # Factors are marked auxiliary too, but observed.
        counts = lambda site: site["is_observed"] or _is_latent(site)  # noqa: E731
        return {n: p for n, p in log_probs.items() if counts(sites[n])}, latents

    def deterministic(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Values], Values]:
        """A function from latents to the model's deterministic sites, of all rows.

        What is drawn on the way (hidden layers' unit noise) has a random key of the latents' own.
        """

        def found(latents: Values) -> Values:
            program = handlers.substitute(whole_plates(self.model), data=latents)
            whole = _Latents(handlers.seed(program, _key_of(latents)), {})
            with handlers.block():
                sites = handlers.trace(whole).get_trace(*args, **kwargs)
            return {n: s["value"] for n, s in sites.items() if s["type"] == "deterministic"}

        return found

    def start(
        self,
        key: PRNGKey,
        strategy: Callable[[Any], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Values:
        """Unconstrained values of all latent sites, where a strategy of NumPyro's puts them.

        Raises:
            ValueError: if the model has no latent site, or one that has no density (a class), or
                whose rows are a minibatch's of every step of a `scan`.
        """
        seeded = handlers.seed(whole_plates(self.model), key)
        program = handlers.substitute(seeded, substitute_fn=strategy)
        found: dict[str, Any] = {}

        def run() -> Values:
            sites = handlers.trace(_Latents(program, {})).get_trace(*args, **kwargs)
            found.update({n: s for n, s in sites.items() if _is_latent(s)})
            if discrete := [n for n, s in found.items() if s["fn"].is_discrete]:
                raise ValueError(
                    f"SGHMC: the latent sites {discrete} are discrete, and have no gradient; sum "
                    "them out in the model, or sample them by numpyro's DiscreteHMCGibbs"
                )
            if parts := [n for n, s in found.items() if _is_subsampled_in_scan(s)]:
                raise ValueError(
                    f"SGHMC: the latent sites {parts} are in a plate with a subsample_size within "
                    "numpyro's scan, which does not tell the rows; leave out that plate's "
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


def _key_of(values: Values) -> PRNGKey:
    """A random key for each set of values: from a sum of their bits with odd random weights."""
    flat = ravel_pytree(values)[0].astype(jnp.float32)
    words = lax.bitcast_convert_type(flat, jnp.uint32)
    weights = random.bits(random.PRNGKey(1), words.shape, jnp.uint32) | 1
    return random.fold_in(random.PRNGKey(0), jnp.sum(words * weights, dtype=jnp.uint32))
