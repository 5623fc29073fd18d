"""What kernels on exact densities share: NumPyro's interface for one chain or several."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.inference.samplers.exact._target import Target

__all__ = ["Flat", "FlatDensity", "ModelKernel"]

Flat = Float[Array, "d"]


class FlatDensity:
    """The log density of one chain's flat unconstrained values, as a function, [d] to [].

    Args:
        target: the model's density.
        prototype: unconstrained values by site, for their order and shapes.
        call: the model's arguments.
    """

    def __init__(self, target: Target, prototype: Values, call: Call) -> None:
        self._target, self._call = target, call
        self.unravel = ravel_pytree(prototype)[1]

    def __call__(self, position: Flat) -> Array:
        return self._target.log_density(self.unravel(position), self._call)

    def parts(self, position: Flat) -> tuple[Array, Array]:
        """Return the log density of the prior and that of the data, [] each."""
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
