"""Kernels that need the exact density of a model, which NumPyro's HMC sees too."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import constrain_fn, find_valid_initial_params, potential_energy
from numpyro.primitives import Messenger
from numpyro.util import is_prng_key, not_jax_tracer

from dgp_ppl._checks import short_list
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.inference.programs._handlers import survey
from dgp_ppl.inference.samplers._potential import Potential

__all__ = ["Flat", "FlatDensity", "ModelKernel", "Target"]

Flat = Float[Array, " d"]


class Target:
    """The posterior density of a model's latent sites, without bounds, and its initial values.

    Auxiliary sites (the unit noise of hidden layers) are latent, as for NumPyro's NUTS. The object
    holds no state but the model, so that a kernel runs again from a state alone.

    Args:
        model: a NumPyro model. Its params have their initial values; set others by
            ``handlers.substitute(model, data=params)``.
        caller: name of the kernel, for errors.
    """

    def __init__(self, model: Model, caller: str) -> None:
        self.model, self.caller = model, caller
        self._fixed = _FixedParams(model)
        # Sites that are random but not latent, such as numpyro.prng_key, are the same at each call.
        self._seeded = handlers.seed(self._fixed, random.PRNGKey(0))

    def log_density(self, unconstrained: Values, call: Call) -> Array:
        """Return log p(y, latents) + log |d latents / d unconstrained|, in nats, []."""
        energy = potential_energy(self._seeded, call.args, call.kwargs, unconstrained)
        return -jnp.asarray(energy)

    def log_parts(self, unconstrained: Values, call: Call) -> tuple[Array, Array]:
        """Return the log densities of the latent and of the observed sites, [] each.

        The first includes the log-determinant of the constraining transform; their sum is the
        whole. Factors belong to the second.
        """
        # All latent sites have values here, so the energy's key draws nothing.
        energy = Potential(self._fixed)(random.PRNGKey(0), unconstrained, call)
        observed = [p for n, p in energy.log_densities.items() if n not in unconstrained]
        data = jnp.asarray(sum(observed), float)
        return -energy.value - data, data

    def prior_draw(self, key: PRNGKey, call: Call) -> Values:
        """Return unconstrained values of a draw of the prior.

        Raises:
            ValueError: if a latent site's distribution cannot be sampled.
        """
        seeded = handlers.seed(self._fixed, key)
        try:
            with handlers.block():
                sites = handlers.trace(seeded).get_trace(*call.args, **call.kwargs)
        except NotImplementedError as error:  # by NumPyro's ImproperUniform
            raise ValueError(
                f"{self.caller}: a latent site has an improper prior, of which there are no draws; "
                "give it a proper one"
            ) from error
        latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        return {n: biject_to(s["fn"].support).inv(s["value"]) for n, s in latent.items()}

    def constrain(self, unconstrained: Values, call: Call) -> Values:
        """Return the latent sites within their supports, and the deterministic sites."""
        return constrain_fn(
            self._seeded, call.args, call.kwargs, unconstrained, return_deterministic=True
        )

    def start(
        self, key: PRNGKey, strategy: Callable[..., Any], given: Values, call: Call
    ) -> Values:
        """Return initial unconstrained values of one chain, or of as many as there are keys.

        Args:
            key: a random key, or one for each chain.
            strategy: one of NumPyro's, for sites that are not given.
            given: values by site, with a leading axis where `key` has one.
            call: the model's arguments.

        Raises:
            ValueError: if the model has no latent site, one that no gradient moves, or a subsampled
                plate; if given values do not fit; if the density or its gradient is not finite.
        """
        empty = self._prototype(call)
        chains = () if is_prng_key(key) else (len(key),)
        shapes = {n: (*chains, *a.shape) for n, a in empty.items()}
        wrong = {n: jnp.shape(a) for n, a in given.items() if shapes.get(n) != jnp.shape(a)}
        if wrong:
            raise ValueError(
                f"{self.caller}: init_params has {wrong}, wanted unconstrained values of latent "
                f"sites of these shapes (with several chains a leading axis for each): {shapes}"
            )
        values = {n: jnp.asarray(a, empty[n].dtype) for n, a in given.items()}
        if missing := [n for n in empty if n not in given]:

            def search(key: PRNGKey) -> Values:
                return find_valid_initial_params(
                    key, self._fixed, init_strategy=strategy, model_args=call.args,
                    model_kwargs=call.kwargs, prototype_params=empty,
                )[0][0]  # fmt: skip

            found = jax.jit(search)(key)
            values |= {n: found[n] for n in missing}
        self._check_finite(values, bool(chains), call)
        return values

    def _prototype(self, call: Call) -> Values:
        """Return zeros of the shapes of unconstrained values, after checks of the model's sites."""
        trace = survey(self.model, call)
        latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        if not latent:
            raise ValueError(f"{self.caller}: the model has no latent sites to sample")
        if found := [n for n, s in latent.items() if s["fn"].support.is_discrete]:
            raise ValueError(
                f"{self.caller}: the latent sites {short_list(found)} are discrete, and have no "
                "gradient; sum them out in the model, or sample them by numpyro's DiscreteHMCGibbs"
            )
        if found := [n for n, s in latent.items() if isinstance(s["fn"], dist.Delta)]:
            raise ValueError(
                f"{self.caller}: the latent sites {short_list(found)} have a delta distribution, "
                "which has no density; use numpyro.deterministic"
            )
        parts = {
            n: (len(s["value"]), s["args"][0])
            for n, s in trace.items()
            if s["type"] == "plate" and len(s["value"]) < s["args"][0]
        }
        if parts:
            name, (rows, size) = next(iter(parts.items()))
            raise ValueError(
                f"{self.caller}: the plate {name!r} takes {rows} of {size} rows, wanted all of "
                "them, because this kernel needs the exact density; leave out batch_size "
                "(subsample_size), or use SGHMC, which draws minibatches"
            )
        shapes = {}
        for name, site in latent.items():
            try:
                transform = biject_to(site["fn"].support)
            except NotImplementedError:
                raise ValueError(
                    f"{self.caller}: the support of the latent site {name!r}, "
                    f"{site['fn'].support}, has no map from unconstrained values; use another "
                    "distribution, or numpyro.handlers.reparam"
                ) from None
            shape = transform.inverse_shape(jnp.shape(site["value"]))
            shapes[name] = jnp.zeros(shape, site["value"].dtype)
        return shapes

    def _check_finite(self, values: Values, several: bool, call: Call) -> None:
        def finite(unconstrained: Values) -> Array:
            density, slope = jax.value_and_grad(self.log_density)(unconstrained, call)
            return jnp.isfinite(density) & jnp.isfinite(ravel_pytree(slope)[0]).all()

        sound = jax.jit(jax.vmap(finite) if several else finite)(values)
        if not not_jax_tracer(sound) or sound.all():
            return
        which, one = "", values
        if several:
            chains = jnp.flatnonzero(~sound).tolist()
            which, one = f" of chains {chains}", jax.tree.map(lambda a: a[chains[0]], values)
        # Auxiliary sites have values here, so the energy's key draws nothing.
        energy = Potential(self._fixed)(random.PRNGKey(0), one, call)
        raise ValueError(
            f"{self.caller}: the log density or its gradient is not finite at the start{which}: "
            f"the log densities {energy.not_finite()}. Look for NaN in the data, or start "
            "elsewhere: init_params (unconstrained values), or another init_strategy"
        )


class _FixedParams(Messenger):
    """Sets params to their initial values. Those that a random key draws are always the same."""

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "param" and msg["value"] is None:
            with handlers.seed(rng_seed=random.PRNGKey(0)):
                msg["value"] = msg["fn"](*msg["args"], **msg["kwargs"])


class FlatDensity:
    """The log density of one chain's flat unconstrained values, as a function, [d] to []."""

    def __init__(self, target: Target, prototype: Values, call: Call) -> None:
        self._target, self._call = target, call
        self.unravel = ravel_pytree(prototype)[1]

    def __call__(self, position: Flat) -> Array:
        return self._target.log_density(self.unravel(position), self._call)

    def parts(self, position: Flat) -> tuple[Array, Array]:
        """Return the log densities of the prior and of the data, [] each."""
        return self._target.log_parts(self.unravel(position), self._call)

    def prior_draw(self, key: PRNGKey) -> Flat:
        """Return a draw of the prior, [d]."""
        return ravel_pytree(self._target.prior_draw(key, self._call))[0]


class ModelKernel(MCMCKernel, abc.ABC):
    """A kernel of one chain on flat unconstrained values, as NumPyro's `MCMCKernel` of any number.

    The state holds all that changes, and `sample` reads the model's arguments, so another data set
    of the same shapes runs the same program.

    Args:
        model: a NumPyro model.
        init_strategy: NumPyro's, for sites that ``init_params`` omits; None for `init_to_uniform`.
        caller: name of the kernel, for errors.
    """

    # The state holds all that the kernel learns. `run_mcmc` and NumPyro's MCMC, which looks for
    # `_sample_fn`, need no `init` where they have a state.
    needs_init = False
    _sample_fn = True

    def __init__(self, model: Model, init_strategy: Callable[..., Any] | None, caller: str) -> None:
        self._model = model
        self.init_strategy = init_to_uniform if init_strategy is None else init_strategy
        self._target = Target(model, caller)

    @abc.abstractmethod
    def _first(
        self, key: PRNGKey, num_warmup: int, z: Values, position: Flat, density: FlatDensity
    ) -> Any:
        """Return the state of one chain at these values."""

    @abc.abstractmethod
    def _next(self, key: PRNGKey, state: Any, density: FlatDensity) -> tuple[Any, Flat]:
        """Return the state of one chain after a step, and its values."""

    @property
    def model(self) -> Model:
        return self._model

    @property
    def sample_field(self) -> str:
        return "z"

    def postprocess_fn(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Values], Values]:
        """Return a function from unconstrained values to the latent and deterministic sites."""
        return lambda unconstrained: self._target.constrain(unconstrained, Call(args, kwargs))

    def init(
        self,
        rng_key: PRNGKey,
        num_warmup: int,
        init_params: Values | None,
        model_args: tuple[Any, ...],
        model_kwargs: dict[str, Any] | None,
    ) -> Any:
        """Return the first state; `init_params` has unconstrained values of some or all sites."""
        call = Call(model_args, model_kwargs or {})
        several = not is_prng_key(rng_key)
        split = jax.vmap(lambda k: random.split(k, 3)) if several else lambda k: random.split(k, 3)
        keys = split(rng_key)
        keys, starts, firsts = (jnp.moveaxis(keys, 1, 0) if several else keys)[:3]
        values = self._target.start(starts, self.init_strategy, init_params or {}, call)

        def one(key: PRNGKey, first: PRNGKey, z: Values) -> Any:
            density = FlatDensity(self._target, z, call)
            return self._first(first, num_warmup, z, ravel_pytree(z)[0], density)._replace(
                rng_key=key
            )

        # NumPyro's MCMC calls `init` uncompiled.
        return jax.jit(jax.vmap(one) if several else one)(keys, firsts, values)

    def sample(
        self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> Any:
        """Make one step of each chain."""
        call = Call(model_args, model_kwargs or {})

        def one(state: Any) -> Any:
            density = FlatDensity(self._target, state.z, call)
            key, key_step = random.split(state.rng_key)
            new, position = self._next(key_step, state, density)
            return new._replace(z=density.unravel(position), rng_key=key)

        return one(state) if is_prng_key(state.rng_key) else jax.vmap(one)(state)
