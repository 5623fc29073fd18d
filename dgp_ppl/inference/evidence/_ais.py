"""Chains of annealed importance sampling in a guide's white space, compiled."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from dgp_ppl._partition import Partition
from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.guides import LayerGuide, reference_log_joint, to_reference

__all__ = ["WANTED_RATE", "Annealing"]

WANTED_RATE = 0.8  # of acceptance
_CHUNK = 20  # temperatures in one call of the device
_GAIN = 0.3  # of the log step size for what the acceptance rate is off


class _State(NamedTuple):
    """Chains at a temperature: white values [C, d], the log ratio there and its slope."""

    z: Array
    ratio: Array
    slope: Array
    log_weight: Array
    log_size: Array
    keys: Array


class _End(NamedTuple):
    """After all temperatures: the chains [C, d], their log weights [C]; by temperature [K]."""

    z: Array
    log_weight: np.ndarray
    size: np.ndarray
    acceptance: np.ndarray


class Annealing:
    """The compiled annealing from N(0, I) to the posterior in a guide's white space.

    Args:
        base: the guide.
        partition: of the model's arguments.
        target: ``"bound"`` or ``"model"``, as in `annealed_evidence`.
        leapfrogs: leapfrog steps of each transition.
        start: white values of one chain, by site, for their shapes.

    The methods' `inputs` are the params, the partition's arrays, and keys [C, S] of each chain's
    unit noise.
    """

    def __init__(
        self, base: LayerGuide, partition: Partition, target: str, leapfrogs: int, start: Any
    ) -> None:
        self.base, self.partition, self.guided = base, partition, target == "bound"
        self.leapfrogs, self.dim = leapfrogs, ravel_pytree(start)[0].size
        self.unravel = ravel_pytree(start)[1]
        # Of this instance, so that what they compiled goes when it goes.
        self._first, self._advance = jax.jit(self._start), jax.jit(self._rungs)
        self.white, self.draws = jax.jit(self._white), jax.jit(self._draws)
        self.ratio, self.last = jax.jit(self._ratios), jax.jit(self._last)

    def run(self, inputs: Any, bar: Any, keys: Array, z: Array, betas: Any, sizes: Any) -> _End:
        """From z [C, d] through all temperatures; without `sizes` they are found on the way."""
        state, found = self._first(keys, z, inputs), []
        given = np.ones(len(betas) - 1) if sizes is None else sizes
        plan = np.stack([betas[1:], betas[:-1], given], axis=1)
        for start in range(0, len(plan), _CHUNK):
            part = plan[start : start + _CHUNK]
            padded = jnp.zeros((_CHUNK, 3)).at[: len(part)].set(part)
            state, rungs = self._advance(state, inputs, padded, len(part), sizes is None)
            found.append(np.asarray(rungs)[: len(part)])
            bar.update(len(part))
        size, acceptance = np.concatenate(found).T
        return _End(state.z, np.asarray(state.log_weight, np.float64), size, acceptance)

    def _white(self, latents: dict[str, Array], inputs: Any) -> Array:
        """White values [C, d] of latent sites."""
        params, data, _ = inputs
        call = self.partition.join(data)
        base = self.partition.guide(self.base, data)

        def one(latents: dict[str, Array]) -> Array:
            v = {n: latents[n] for n in base.layers}
            z = to_reference(base, v, params, call)
            return ravel_pytree(latents | z)[0]

        return jax.vmap(one)(latents)

    def _draws(self, z: Array, inputs: Any) -> dict[str, Array]:
        """Latent sites at white values [C, d]."""

        def one(z: Array) -> dict[str, Array]:
            _, v = self._log_ratio(z, inputs[2][0], inputs)
            whole = self.unravel(z)
            return v | {n: a for n, a in whole.items() if n not in v}

        return jax.vmap(one)(z)

    def _log_ratio(self, z: Array, keys: Array, inputs: Any) -> tuple[Array, dict[str, Array]]:
        """log p(y, T(z)) |T'(z)| - log N(z; 0, I), of the layers' and the noise's z, and v.

        With "bound", on average over the noise of keys [S].
        """
        params, data, _ = inputs
        call = self.partition.join(data)
        base = self.partition.guide(self.base, data)
        values = self.unravel(z)
        layers = {n: values[n] for n in self.base.layers}
        given = {n: a for n, a in values.items() if n not in layers}

        def joint(key: PRNGKey) -> tuple[Array, dict[str, Array]]:
            return reference_log_joint(
                base, layers, key, params, call.at(given), call, guided=self.guided
            )

        log_joint, v = jax.tree.map(partial(jnp.mean, axis=0), jax.vmap(joint)(keys))
        log_start = -0.5 * (jnp.sum(jnp.square(z)) + self.dim * jnp.log(2 * jnp.pi))
        return log_joint - log_start, v

    def _ratios(self, z: Array, inputs: Any) -> Array:
        """The log ratio of every chain, [C]."""
        return jax.vmap(lambda z, keys: self._log_ratio(z, keys, inputs)[0])(z, inputs[2])

    def _value_and_slope(self, z: Array, inputs: Any) -> tuple[Array, Array]:
        """The log ratio of every chain [C], and its slope [C, d]."""
        one = jax.value_and_grad(lambda z, keys: self._log_ratio(z, keys, inputs)[0])
        return jax.vmap(one)(z, inputs[2])

    def _last(self, z: Array, keys: Array, inputs: Any) -> Array:
        """Log weights [C] of the step from chains' own noise to its expectation.

        That is estimated by sets of new noise, keys [C, G, S]. exp of a mean with variance s² is
        too large by exp(s² / 2), which is taken off.
        """
        params, data, own = inputs

        def one(keys: Array) -> Array:
            return self._ratios(z, (params, data, keys))

        found = lax.map(one, jnp.moveaxis(keys, 1, 0))  # [G, C]
        bias = 0.5 * jnp.var(found, axis=0, ddof=1) / len(found)
        return jnp.mean(found, axis=0) - bias - one(own)

    def _start(self, keys: Array, z: Array, inputs: Any) -> _State:
        size = jnp.log(jnp.asarray(0.5 * self.dim**-0.25, z.dtype))
        return _State(z, *self._value_and_slope(z, inputs), jnp.zeros(len(z)), size, keys)

    def _rungs(
        self, state: _State, inputs: Any, plan: Array, num: Any, adapts: Any
    ) -> tuple[_State, Array]:
        """`num` temperatures of a plan [K, 3]: each one, the one before, and the step size."""

        def rung(i: Any, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, found = carry
            beta, before, own = plan[i]
            size = jnp.where(adapts, jnp.exp(state.log_size), own)
            weighed = state._replace(log_weight=state.log_weight + (beta - before) * state.ratio)
            moved, rate = self._move(weighed, inputs, beta, size)
            log_size = state.log_size + _GAIN * (rate - WANTED_RATE)
            return moved._replace(log_size=log_size), found.at[i].set(jnp.stack([size, rate]))

        return lax.fori_loop(0, num, rung, (state, jnp.zeros((len(plan), 2))))

    def _move(self, state: _State, inputs: Any, beta: Array, size: Array) -> tuple[_State, Array]:
        """A transition of Hamiltonian Monte Carlo at a temperature, and its acceptance rate."""
        keys, key_size, key_momentum, key_accept = jnp.moveaxis(
            jax.vmap(lambda k: random.split(k, 4))(state.keys), 1, 0
        )
        # Not all of a length, which could be that of an orbit.
        eps = (
            size * jax.vmap(lambda k: random.uniform(k, minval=0.7, maxval=1.3))(key_size)[:, None]
        )

        def leap(_: Any, at: Any) -> Any:
            z, p, ratio, slope = at
            p = p + 0.5 * eps * (beta * slope - z)
            z = z + eps * p
            ratio, slope = self._value_and_slope(z, inputs)
            return z, p + 0.5 * eps * (beta * slope - z), ratio, slope

        def energy(z: Array, p: Array, ratio: Array, _: Array) -> Array:
            return 0.5 * jnp.sum(jnp.square(z) + jnp.square(p), axis=1) - beta * ratio

        momentum = jax.vmap(lambda k: random.normal(k, (self.dim,)))(key_momentum)
        old = state.z, momentum, state.ratio, state.slope
        new = lax.fori_loop(0, self.leapfrogs, leap, old)
        rate = jnp.exp(jnp.minimum(0.0, energy(*old) - energy(*new)))
        rate = jnp.where(jnp.isfinite(rate), rate, 0.0)
        accept = jax.vmap(random.uniform)(key_accept) < rate
        pick = lambda a, b: jnp.where(accept.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
        z, _, ratio, slope = map(pick, new, old)
        return state._replace(z=z, ratio=ratio, slope=slope, keys=keys), jnp.mean(rate)
