"""The distributions that annealing passes through, and the moves that keep them, compiled."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from dgp_ppl._partition import CallArrays, Partition, compiled
from dgp_ppl._typing import Params, PRNGKey, Values
from dgp_ppl.inference.guides import LayerGuide
from dgp_ppl.inference.guides._transport import others_from_reference, reference_log_joint
from dgp_ppl.inference.samplers._dynamics import Evaluated, hamiltonian_move

_AT_ONCE = 64  # particles in memory


class Arrays(NamedTuple):
    """The arrays that the target depends on."""

    params: Params  # of the guide and the model
    data: CallArrays  # the arrays of the model's partitioned arguments


class Points(NamedTuple):
    """Particles in the reference space; without the leading axis, one of them."""

    z: Array  # positions, [C, d]
    ratio: Array  # log r(z), [C]
    slope: Array  # its gradient, [C, d]


class Target:
    """The path of distributions from N(0, I) to the posterior in a guide's reference space.

    N(0, I) is the guide's q(v) in its reference space, v = T(z). At inverse temperature beta the
    density is proportional to N(z; 0, I) r(z)^beta, with r(z) = p(y, T(z)) |T'(z)| / N(z; 0, I).

    Every method takes particles with a leading axis C, and the keys of the unit noise of each,
    [C, S]. It works through them in batches of 64, which bound the memory. `sites` has arrays in
    the shapes of one particle: of the layers, of other latent sites (`others`), and of hidden
    layers' noise if the `target` of `annealed_evidence` is "model".
    """

    def __init__(
        self, base: LayerGuide, partition: Partition, target: Literal["bound", "model"],
        leapfrogs: int, sites: Values, others: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self.others = frozenset(others)
        self.base, self.partition, self.guided = base, partition, target == "bound"
        flat, self._unravel = ravel_pytree(sites)
        self.leapfrogs, self.dim = leapfrogs, flat.size
        # Compiled per instance, so that the programs are freed with it.
        self.points, self.move = compiled(self._points), compiled(self._move)
        self.latents, self.noise_correction = compiled(self._latents), compiled(self._correction)

    def _points(self, z: Array, noise: Array, arrays: Arrays) -> Points:
        """Return particles at positions [C, d]."""
        return _each(lambda each: self._point(each[0], each[1], arrays), (z, noise))

    def _move(
        self, key: PRNGKey, points: Points, noise: Array, beta: Any, size: Any, scale: Any,
        arrays: Arrays,
    ) -> tuple[Points, Array]:  # fmt: skip
        """Move particles by Hamiltonian Monte Carlo at `beta`; also return acceptances, [C]."""

        def tempered(at: Points) -> Evaluated:
            value = beta * at.ratio - 0.5 * jnp.sum(jnp.square(at.z))
            return Evaluated(at.z, value, beta * at.slope - at.z, at)

        def one(each: Any) -> tuple[Points, Array]:
            key, old, noise = each
            evaluate = lambda z: tempered(self._point(z, noise, arrays))  # noqa: E731
            new, rate = hamiltonian_move(key, tempered(old), evaluate, size * scale, self.leapfrogs)
            return new.aux, rate

        return _each(one, (random.split(key, len(points.z)), points, noise))

    def _latents(self, z: Array, noise: Array, arrays: Arrays) -> Values:
        """Return latent sites [C, ...] of particles [C, d]."""

        def one(each: tuple[Array, Array]) -> Values:
            _, found = self._log_ratio_at(*each, arrays)
            return self._unravel(each[0]) | found

        return _each(one, (z, noise))

    def _log_ratio_at(self, z: Array, keys: Array, arrays: Arrays) -> tuple[Array, Values]:
        """Return log p(y, T(z)) |T'(z)| - log N(z; 0, I) of one particle, and the sites T(z).

        The log density is averaged over `keys` [S], which draw the unit noise under "bound".
        """
        call = self.partition.join(arrays.data)
        base = self.partition.guide_with(arrays.data)
        values = self._unravel(z)
        layers = {n: values[n] for n in self.base.layers}
        e = {n: values[n] for n in self.others}
        others, log_det = others_from_reference(base, e, arrays.params, call)
        given = {n: a for n, a in values.items() if n not in layers} | others

        def joint(key: PRNGKey) -> tuple[Array, Values]:
            return reference_log_joint(
                base, layers, key, arrays.params, call.at(given), call, guided=self.guided
            )

        log_joint, v = jax.tree.map(partial(jnp.mean, axis=0), jax.vmap(joint)(keys))
        log_start = -0.5 * (jnp.sum(jnp.square(z)) + self.dim * jnp.log(2 * jnp.pi))
        return log_joint + log_det - log_start, v | others

    def _point(self, z: Array, noise: Array, arrays: Arrays) -> Points:
        ratio = lambda z: self._log_ratio_at(z, noise, arrays)[0]  # noqa: E731
        return Points(z, *jax.value_and_grad(ratio)(z))

    def _correction(self, z: Array, noise: Array, fresh: Array, arrays: Arrays) -> Array:
        """Return log weights [C] that replace the particles' noise by a mean over the noise.

        The mean is estimated from G sets of new noise, keys [C, G, S]. The exponential of an
        estimate with variance s² is too large by exp(s² / 2) on average, so s² / 2 is subtracted.
        """

        def one(each: tuple[Array, Array, Array]) -> Array:
            z, noise, fresh = each
            ratio = lambda keys: self._log_ratio_at(z, keys, arrays)[0]  # noqa: E731
            new = lax.map(ratio, fresh)  # [G]
            return jnp.mean(new) - 0.5 * jnp.var(new, ddof=1) / len(new) - ratio(noise)

        return _each(one, (z, noise, fresh))


def _each(function: Any, each: Any) -> Any:
    """Map a function over the leading axis of its argument's arrays, a batch at a time."""
    num = len(jax.tree.leaves(each)[0])
    if num <= _AT_ONCE:
        return jax.vmap(function)(each)
    return lax.map(function, each, batch_size=_AT_ONCE)
