"""The iterations of Monte Carlo EM, compiled: a step of the sampler and a step of the params."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._partition import Call, CallArrays, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core._handover import is_layer, with_handover
from dgp_ppl.inference.runs._blocks import StepProgram
from dgp_ppl.inference.samplers._potential import Potential
from dgp_ppl.inference.samplers._sghmc import SGHMC, SGHMCState

_ITERATIONS_PER_CALL = 200  # of `advance`


class EMState(NamedTuple):
    """The state after an iteration."""

    i: Array  # iterations done
    key: PRNGKey  # random key
    sampler: SGHMCState  # the sampler's state of all C chains
    window: Array  # the last W unconstrained states of the chains, flattened, [W, C, d]
    unconstrained: Params  # unconstrained params
    optimizer: Any  # the optimiser's state


class ExpectationMaximization:
    """Moving-window Monte Carlo EM (Havasi et al. 2018, section 4); see `fit_mcem`.

    The kernel samples a model that takes its params as its first argument (`at_params`).
    """

    def __init__(
        self, kernel: SGHMC, optimizer: Any, bijections: dict[str, Any], call: Call, expected: float
    ) -> None:
        self.kernel, self.optimizer, self.bijections = kernel, optimizer, bijections
        self.partition, self.data = Partition.split(kernel.model, call)
        averaged = Potential(handlers.infer_config(kernel.model, config_fn=_as_under_a_guide))
        weighted = ((averaged, expected), (kernel.potential, 1 - expected))
        self.energies = [(energy, weight) for energy, weight in weighted if weight]
        self.program = StepProgram(self._iterations)

    def params(self, unconstrained: Params) -> Params:
        return {n: jax.tree.map(self.bijections[n], a) for n, a in unconstrained.items()}

    def init(self, key: PRNGKey, first: SGHMCState, window: int, unconstrained: Params) -> EMState:
        states = jnp.zeros((window, *_flat(first.unconstrained).shape))
        optimizer = self.optimizer.init(unconstrained)
        return EMState(jnp.zeros((), int), key, first, states, unconstrained, optimizer)

    def advance(self, state: EMState, most: int) -> tuple[EMState, np.ndarray]:
        """Make up to `most` iterations, 200 at most; also return the mean energy at each."""
        num = min(_ITERATIONS_PER_CALL, most)
        state, parts = self.program(state, num, self.data)
        return state, np.concatenate([np.asarray(part)[:done] for part, done in parts])

    def _iterations(
        self, state: EMState, num: Any, _: Any, data: CallArrays
    ) -> tuple[EMState, Array]:
        call = self.partition.join(data)

        def iteration(i: Any, carry: tuple[EMState, Array]) -> tuple[EMState, Array]:
            state, energies = carry
            state = self._iteration(state, call)
            return state, energies.at[i].set(jnp.mean(state.sampler.potential_energy))

        return lax.fori_loop(0, num, iteration, (state, jnp.zeros(_ITERATIONS_PER_CALL)))

    def _iteration(self, state: EMState, call: Call) -> EMState:
        key, key_state, key_chain, key_energy = random.split(state.key, 4)
        # E-step: the sampler moves, and one state is drawn from the window.
        given = with_params(self.params(state.unconstrained), call)
        sampler = self.kernel.sample(state.sampler, *given)
        size, chains = state.window.shape[:2]
        window = state.window.at[state.i % size].set(_flat(sampler.unconstrained))
        past = random.randint(key_state, (), 0, jnp.minimum(state.i + 1, size))
        chain = random.randint(key_chain, (), 0, chains)
        one = jax.tree.map(lambda a: a[0], sampler.unconstrained)
        latents = ravel_pytree(one)[1](window[past, chain])

        # M-step: one gradient step at that state.
        def energy(unconstrained: Params) -> Array:
            given = with_params(self.params(unconstrained), call)
            terms = [
                weight * energy(key_energy, latents, given).value
                for energy, weight in self.energies
            ]
            return jnp.sum(jnp.stack(terms))

        gradient = jax.grad(energy)(state.unconstrained)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.unconstrained)
        unconstrained: Any = optax.apply_updates(state.unconstrained, updates)
        return EMState(state.i + 1, key, sampler, window, unconstrained, optimizer)


def at_params(model: Model, params: Params, *args: Any, **kwargs: Any) -> Any:
    """Run the model with params that come before its arguments."""
    return handlers.substitute(model, data=params)(*args, **kwargs)


def with_params(params: Params, call: Call) -> Call:
    """Return the arguments of `at_params`, without the model."""
    return Call((params, *call.args), call.kwargs)


def _flat(chains: Any) -> Array:
    return jax.vmap(lambda u: ravel_pytree(u)[0])(chains)


def _as_under_a_guide(site: Any) -> dict[str, Any]:
    """Make `observe` average log p(y | f) over f given the draw of v."""
    return with_handover(site, q=None, guided=True) if is_layer(site) else {}
