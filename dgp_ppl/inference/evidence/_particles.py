"""Particles annealed from N(0, I) to the posterior in a guide's reference space, compiled."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from dgp_ppl._partition import Partition
from dgp_ppl._typing import Params, PRNGKey, Values
from dgp_ppl.inference.guides import LayerGuide, reference_log_joint, to_reference

__all__ = ["ACCEPTANCE", "AnnealedParticles", "Arrays", "Run", "schedule"]

ACCEPTANCE = 0.8  # the acceptance rate that step sizes are adapted to
_TEMPERATURES_PER_CALL = 20  # of the device
_GAIN = 0.3  # change of the log step size per deviation of the acceptance rate
_FIRST_SIZE = 0.5  # initial step size in one dimension


def schedule(start: Literal["guide", "prior"], length: int) -> np.ndarray:
    """Return inverse temperatures from 0 to 1, [length + 1], dense where the target changes most.

    From a guide, that is near the posterior. From the prior it is at the very beginning: a
    likelihood of many rows is sharp even at a small power.
    """
    steps = np.linspace(0.0, 1.0, length + 1)
    return steps**4 if start == "prior" else 1 - (1 - steps) ** 2


class Arrays(NamedTuple):
    """The arrays that the target depends on.

    Attributes:
        params: of the guide and the model.
        data: the arrays of the model's partitioned arguments.
        noise_keys: keys of each particle's unit noise, [C, S].
    """

    params: Params
    data: list[Any]
    noise_keys: Array


class Run(NamedTuple):
    """The result of a run through all K temperatures.

    Attributes:
        z: the final particles, [C, d].
        log_weight: their log weights, [C].
        size: the step size at each temperature, [K].
        acceptance: the mean acceptance rate at each temperature, [K].
    """

    z: Array
    log_weight: np.ndarray
    size: np.ndarray
    acceptance: np.ndarray


class _State(NamedTuple):
    """Particles at a temperature.

    Attributes:
        z: positions in the reference space, [C, d].
        ratio: log r(z), [C].
        slope: its gradient, [C, d].
        log_weight: log weights so far, [C].
        log_size: log of the adapted step size, [].
        keys: a random key for each particle, [C].
    """

    z: Array
    ratio: Array
    slope: Array
    log_weight: Array
    log_size: Array
    keys: Array


class AnnealedParticles:
    """Annealed importance sampling by Hamiltonian Monte Carlo.

    Particles z start from N(0, I), which is the guide's q(v) in its reference space, v = T(z). At
    inverse temperature beta their target is proportional to N(z; 0, I) r(z)^beta, with the ratio
    r(z) = p(y, T(z)) |T'(z)| / N(z; 0, I).

    Args:
        base: the guide.
        partition: of the model's arguments.
        target: ``"bound"`` or ``"model"``, as in `annealed_evidence`.
        leapfrogs: leapfrog steps of each transition.
        sites: arrays in the shapes of the latent sites of one particle.
    """

    def __init__(
        self,
        base: LayerGuide,
        partition: Partition,
        target: Literal["bound", "model"],
        leapfrogs: int,
        sites: Values,
    ) -> None:
        self.base, self.partition, self.guided = base, partition, target == "bound"
        flat, self.unravel = ravel_pytree(sites)
        self.leapfrogs, self.dim = leapfrogs, flat.size
        # Compiled per instance, so that the programs are freed with it.
        self._first, self._advance = jax.jit(self._init), jax.jit(self._temperatures)
        self.to_reference, self.latents = jax.jit(self._to_reference), jax.jit(self._latents)
        self.log_ratio, self.noise_correction = jax.jit(self._ratio), jax.jit(self._correction)

    def run(self, arrays: Arrays, bar: Any, keys: Array, z: Array, betas: Any, sizes: Any) -> Run:
        """Move particles through all temperatures.

        Args:
            arrays: what the target depends on.
            bar: progress bar.
            keys: a random key for each particle, [C].
            z: the initial particles, [C, d].
            betas: inverse temperatures, [K + 1].
            sizes: step sizes, [K]; None adapts them on the way.
        """
        state, found = self._first(keys, z, arrays), []
        given = np.ones(len(betas) - 1) if sizes is None else sizes
        plan = np.stack([betas[1:], betas[:-1], given], axis=1)
        for start in range(0, len(plan), _TEMPERATURES_PER_CALL):
            part = plan[start : start + _TEMPERATURES_PER_CALL]
            padded = jnp.zeros((_TEMPERATURES_PER_CALL, 3)).at[: len(part)].set(part)
            state, columns = self._advance(state, arrays, padded, len(part), sizes is None)
            found.append(np.asarray(columns)[: len(part)])
            bar.update(len(part))
        size, acceptance = np.concatenate(found).T
        return Run(state.z, np.asarray(state.log_weight, np.float64), size, acceptance)

    def _to_reference(self, latents: Values, arrays: Arrays) -> Array:
        """Return reference values [C, d] of latent sites [C, ...]."""
        call = self.partition.join(arrays.data)
        base = self.partition.guide(self.base, arrays.data)

        def one(latents: Values) -> Array:
            v = {n: latents[n] for n in base.layers}
            z = to_reference(base, v, arrays.params, call)
            return ravel_pytree(latents | z)[0]

        return jax.vmap(one)(latents)

    def _latents(self, z: Array, arrays: Arrays) -> Values:
        """Return latent sites [C, ...] of particles [C, d]."""

        def one(z: Array) -> Values:
            _, v = self._log_ratio_and_v(z, arrays.noise_keys[0], arrays)
            values = self.unravel(z)
            return v | {n: a for n, a in values.items() if n not in v}

        return jax.vmap(one)(z)

    def _log_ratio_and_v(self, z: Array, keys: Array, arrays: Arrays) -> tuple[Array, Values]:
        """Return log p(y, T(z)) |T'(z)| - log N(z; 0, I) of one particle, and v = T(z).

        The log density is averaged over `keys` [S], which draw the unit noise under "bound".
        """
        call = self.partition.join(arrays.data)
        base = self.partition.guide(self.base, arrays.data)
        values = self.unravel(z)
        layers = {n: values[n] for n in self.base.layers}
        given = {n: a for n, a in values.items() if n not in layers}

        def joint(key: PRNGKey) -> tuple[Array, Values]:
            return reference_log_joint(
                base, layers, key, arrays.params, call.at(given), call, guided=self.guided
            )

        log_joint, v = jax.tree.map(partial(jnp.mean, axis=0), jax.vmap(joint)(keys))
        log_start = -0.5 * (jnp.sum(jnp.square(z)) + self.dim * jnp.log(2 * jnp.pi))
        return log_joint - log_start, v

    def _ratio(self, z: Array, arrays: Arrays) -> Array:
        """Return the log ratio of every particle, [C]."""
        one = lambda z, keys: self._log_ratio_and_v(z, keys, arrays)[0]  # noqa: E731
        return jax.vmap(one)(z, arrays.noise_keys)

    def _ratio_and_slope(self, z: Array, arrays: Arrays) -> tuple[Array, Array]:
        """Return the log ratio of every particle [C], and its gradient [C, d]."""
        one = jax.value_and_grad(lambda z, keys: self._log_ratio_and_v(z, keys, arrays)[0])
        return jax.vmap(one)(z, arrays.noise_keys)

    def _correction(self, z: Array, keys: Array, arrays: Arrays) -> Array:
        """Return log weights [C] that replace a particle's fixed noise by a mean over the noise.

        The mean is estimated from G sets of new noise, keys [C, G, S]. The exponential of an
        estimate with variance s² is too large by exp(s² / 2) on average, so s² / 2 is subtracted.
        """

        def one(keys: Array) -> Array:
            return self._ratio(z, arrays._replace(noise_keys=keys))

        fresh = lax.map(one, jnp.moveaxis(keys, 1, 0))  # [G, C]
        bias = 0.5 * jnp.var(fresh, axis=0, ddof=1) / len(fresh)
        return jnp.mean(fresh, axis=0) - bias - one(arrays.noise_keys)

    def _init(self, keys: Array, z: Array, arrays: Arrays) -> _State:
        size = jnp.log(jnp.asarray(_FIRST_SIZE * self.dim**-0.25, z.dtype))
        return _State(z, *self._ratio_and_slope(z, arrays), jnp.zeros(len(z)), size, keys)

    def _temperatures(
        self, state: _State, arrays: Arrays, plan: Array, num: Any, adapts: Any
    ) -> tuple[_State, Array]:
        """Anneal through `num` rows of a plan, [K, 3]: beta, the beta before, and step size."""

        def temperature(i: Any, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, columns = carry
            beta, before, given = plan[i]
            size = jnp.where(adapts, jnp.exp(state.log_size), given)
            weighted = state._replace(log_weight=state.log_weight + (beta - before) * state.ratio)
            moved, rate = self._transition(weighted, arrays, beta, size)
            log_size = state.log_size + _GAIN * (rate - ACCEPTANCE)
            row = jnp.stack([size, rate])
            return moved._replace(log_size=log_size), columns.at[i].set(row)

        return lax.fori_loop(0, num, temperature, (state, jnp.zeros((len(plan), 2))))

    def _transition(
        self, state: _State, arrays: Arrays, beta: Array, size: Array
    ) -> tuple[_State, Array]:
        """Make one Hamiltonian Monte Carlo transition; also return its mean acceptance rate."""
        keys, key_size, key_momentum, key_accept = jnp.moveaxis(
            jax.vmap(lambda k: random.split(k, 4))(state.keys), 1, 0
        )
        # Random lengths, because a fixed one may be the period of an orbit.
        eps = (
            size * jax.vmap(lambda k: random.uniform(k, minval=0.7, maxval=1.3))(key_size)[:, None]
        )

        def leapfrog(_: Any, at: Any) -> Any:
            z, p, ratio, slope = at
            p = p + 0.5 * eps * (beta * slope - z)
            z = z + eps * p
            ratio, slope = self._ratio_and_slope(z, arrays)
            return z, p + 0.5 * eps * (beta * slope - z), ratio, slope

        def energy(z: Array, p: Array, ratio: Array, _: Array) -> Array:
            return 0.5 * jnp.sum(jnp.square(z) + jnp.square(p), axis=1) - beta * ratio

        momentum = jax.vmap(lambda k: random.normal(k, (self.dim,)))(key_momentum)
        old = state.z, momentum, state.ratio, state.slope
        new = lax.fori_loop(0, self.leapfrogs, leapfrog, old)
        rate = jnp.exp(jnp.minimum(0.0, energy(*old) - energy(*new)))
        rate = jnp.where(jnp.isfinite(rate), rate, 0.0)
        accept = jax.vmap(random.uniform)(key_accept) < rate
        pick = lambda a, b: jnp.where(accept.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
        z, _, ratio, slope = map(pick, new, old)
        return state._replace(z=z, ratio=ratio, slope=slope, keys=keys), jnp.mean(rate)
