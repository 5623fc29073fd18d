"""Several outputs that share fewer latent functions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax, random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro.distributions import constraints

from dgp_ppl._partition import compiled
from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood
from dgp_ppl.likelihoods._mixture import Mixture
from dgp_ppl.linalg._products import deviation, matmul


class MixedNormal(AnalyticLikelihood):
    """Outputs that share latent functions: y = W f + noise, the linear model of coregionalisation.

    The bound has a closed form. With f ~ N(latent, diag(var)) integrated out, the outputs of a row
    depend on each other: their covariance is W diag(var) W' + diag(scale²), at a cost of P Q².
    ``models.deep_gp(mixing=W)`` learns W and the noise.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl.likelihoods import MixedNormal
    >>> y = MixedNormal(jnp.array([1.0]), mixing=jnp.array([[1.0], [2.0]]), scale=0.5)
    >>> y.mean.tolist(), y.variance.tolist()
    ([[1.0, 2.0]], [[0.25, 0.25]])

    Args:
        latent: f, or its mean, [..., N, Q], or [..., N] if Q = 1.
        mixing: W, [P, Q].
        scale: standard deviation of the noise, in the units of y, a number or [P].
        var: variance of f, of its shape; None if f is known.
        seen: True where an entry of y was observed, [N, P]; None if all were. Densities are of
            these entries.

    Raises:
        ValueError: if the shapes do not fit.

    Source: Goovaerts (1997), "Geostatistics for natural resources evaluation"; Bruinsma et al.
    (2020), "Scalable exact inference in multi-output Gaussian processes", for W'W diagonal.
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "latent": constraints.real,
        "mixing": constraints.real,
        "scale": constraints.positive,
    }
    pytree_data_fields = ("latent", "mixing", "scale", "var", "seen")
    support: Any = constraints.real_vector

    def __init__(
        self, latent: ArrayLike, mixing: ArrayLike, scale: ArrayLike = 0.3, *,
        var: Any = None, seen: Any = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.latent, self.mixing = jnp.asarray(latent), jnp.asarray(mixing)
        self.scale, self.var, self.seen = jnp.asarray(scale), var, seen
        shape = self.mixing.shape
        if len(shape) < 2 or self._columns(self.latent).shape[-1:] != shape[-1:]:
            raise ValueError(
                f"MixedNormal: latent has shape {self.latent.shape} and mixing {shape}, wanted "
                "[..., N, Q] and [P, Q]: a last layer with out=Q"
            )
        outputs, rank = shape[-2:-1], self._columns(self.latent).ndim
        if self.scale.shape[-1:] not in ((), outputs):
            raise ValueError(
                f"MixedNormal: scale has shape {self.scale.shape}, wanted a number or {outputs}: "
                "one for each output"
            )
        if var is not None and self.scale.ndim < rank:  # so that many of them can be stacked
            self.mixing = self.mixing.reshape((1,) * (rank - 1) + shape)
            self.scale = jnp.broadcast_to(self.scale, (1,) * (rank - 1) + outputs)
        batch = self._columns(self.latent).shape[:-1]
        super().__init__(batch, outputs, validate_args=validate_args)

    def _columns(self, a: Array) -> Array:
        """Return f or its variance with an axis of the Q latents."""
        return a[..., None] if self.mixing.shape[-1] == 1 else a

    def _mixed(self, matrix: Array, a: Array) -> Array:
        """Return the products of a [P, Q] matrix, or a stack of them, and each row, [..., N, P]."""
        exact = lax.Precision.HIGHEST
        return jnp.einsum("...pq,...q->...p", matrix, self._columns(a), precision=exact)

    @property
    def mean(self) -> Array:
        return self._mixed(self.mixing, self.latent)

    @property
    def variance(self) -> Array:
        noise = jnp.broadcast_to(jnp.square(self.scale), self.mean.shape)
        return noise if self.var is None else noise + self._mixed(jnp.square(self.mixing), self.var)

    @property
    def entries(self) -> dist.Distribution:
        """The marginal distributions of the entries, [..., N, P]."""
        return dist.Normal(self.mean, jnp.sqrt(self.variance))

    def with_entries(self, seen: Array) -> MixedNormal:
        """Return the distribution of the entries where `seen` [N, P] is True."""
        return MixedNormal(self.latent, self.mixing, self.scale, var=self.var, seen=seen)

    def predictive(self, var: Array) -> MixedNormal:
        return MixedNormal(self.latent, self.mixing, self.scale, var=var, seen=self.seen)

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array:
        # E log N(y; W f, s²) = log N(y; W m, s²) - W² v / (2 s²), entry by entry
        scale = jnp.broadcast_to(self.scale, self.mean.shape)
        spread = self._mixed(jnp.square(self.mixing), var)
        terms = dist.Normal(self.mean, scale).log_prob(value) - 0.5 * spread / jnp.square(scale)
        return jnp.sum(terms if self.seen is None else jnp.where(self.seen, terms, 0.0), axis=-1)

    def log_prob(self, value: Array) -> Array:
        if self.var is None:
            return self.expected_log_prob(jnp.zeros_like(self.latent), value, 0)
        return self._updated(value)[2]

    def given(self, value: Array) -> tuple[Array, Array]:
        """Return mean and variance of y's entries given the seen ones, [..., N, P] each."""
        e, root, _ = self._updated(value)
        sd = deviation(self.var)
        mean = self._mixed(self.mixing, self.latent + sd * e.reshape(sd.shape))
        spread = matmul(self.mixing * self._columns(sd)[..., None, :], root)
        noise = jnp.broadcast_to(jnp.square(self.scale), mean.shape)
        return mean, jnp.sum(jnp.square(spread), axis=-1) + noise

    def _updated(self, value: Array) -> tuple[Array, Array, Array]:
        """Return e ~ N(0, I) of f = m + √v e given y, and the log density of y.

        Of e these are the mean and a root R of its covariance R R'. The seen entries update them
        one after the other. That loses no digits where the noise is small and entries are fewer
        than latents, as I + a'a would with a = W √v / s.

        Source: Potter (1963), "New statistical formulas", for the root.
        """
        sd, mean = self._columns(deviation(self.var)), self.mean
        seen = jnp.broadcast_to(True if self.seen is None else self.seen, mean.shape)
        scale = jnp.broadcast_to(self.scale, mean.shape)
        # An axis of entries comes first.
        by_entry = [jnp.moveaxis(a, -1, 0) for a in (value - mean, scale, seen)]
        dot = lambda a, b: jnp.sum(a * b, axis=-1)  # noqa: E731

        def update(state: tuple[Array, ...], given: tuple[Array, ...]) -> Any:
            (e, root, log_p), (w, r, s, counts) = state, given
            a = w * sd
            h = dot(jnp.swapaxes(root, -1, -2), a[..., None, :])
            gain = dot(root, h[..., None, :])
            var, away = dot(h, h) + jnp.square(s), r - dot(a, e)
            log_q = -0.5 * (math.log(2 * math.pi) + jnp.log(var) + jnp.square(away) / var)
            shrunk = (gain / (var + s * jnp.sqrt(var))[..., None])[..., None] * h[..., None, :]
            moved = e + gain * (away / var)[..., None], root - shrunk, log_p + log_q
            align = lambda new: counts.reshape(counts.shape + (1,) * (new.ndim - counts.ndim))  # noqa: E731
            kept = [jnp.where(align(a), b, a) for a, b in zip(state, moved, strict=True)]
            return tuple(kept), None

        eye = jnp.broadcast_to(jnp.eye(sd.shape[-1], dtype=sd.dtype), (*sd.shape, sd.shape[-1]))
        start = jnp.zeros_like(sd), eye, jnp.zeros(sd.shape[:-1], sd.dtype)
        return lax.scan(update, start, (jnp.moveaxis(self.mixing, -2, 0), *by_entry))[0]

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        key_f, key_y = random.split(key)
        f = jnp.broadcast_to(self.latent, sample_shape + self.latent.shape)
        if self.var is not None:
            f = f + deviation(self.var) * random.normal(key_f, f.shape, f.dtype)
        mean = self._mixed(self.mixing, f)
        noise = random.normal(key_y, mean.shape, f.dtype)
        return mean + jnp.broadcast_to(self.scale, noise.shape) * noise


@compiled
def filled(mixtures: Mixture, y: Array, seen: Array) -> Array:
    """Return mean and variance of entries given the seen ones over all passes, [B, 2, P]."""

    def one(mixture: Mixture) -> tuple[Array, ...]:
        components: Any = mixture.with_entries(seen).components  # one, with f integrated out
        return components.log_prob(y)[0], *(a[0] for a in components.given(y))

    log_p, means, var = jax.vmap(one)(mixtures)
    weights = jax.nn.softmax(log_p, axis=0)[..., None]  # of passes
    mean = jnp.sum(weights * means, axis=0)
    var = jnp.sum(weights * (var + jnp.square(means - mean[None])), axis=0)
    return jnp.stack([mean, var], axis=1)
