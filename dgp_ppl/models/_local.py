"""A rough process that remembers the rows: y = f(x) + g(x) + noise, with g integrated out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax, random
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints

from dgp_ppl._checks import check_kind
from dgp_ppl._typing import AnyArray, Inputs
from dgp_ppl.core import Marginals, NearRows, RandomFunction
from dgp_ppl.core._minibatch import has_runs
from dgp_ppl.kernels import Matern12, Sum
from dgp_ppl.kernels._base import evaluated
from dgp_ppl.likelihoods import observe
from dgp_ppl.likelihoods._student_t import WithTails, tails
from dgp_ppl.linalg import default_jitter, factorise
from dgp_ppl.linalg._products import matmul
from dgp_ppl.models._stack import KernelMaker, Propagate, makes_kernel, takes_variance

_AT_ONCE, _SEARCHED = 128, 8  # rows whose weights, and whose neighbours, are found together
# Where g's kernel starts: shares of the variance of standardised targets, and the short scale.
_SHARE, _SHORT = 0.05, 0.3
_SPREAD = 1.5  # of the log of a lengthscale a priori, which inputs of no effect leave at 1


class LocalProcess:
    """A rough process g(x) beside a sparse f(x): of g the posterior uses the rows. See `local`."""

    def __init__(self, kernel: Any, near: NearRows, df: ArrayLike) -> None:
        self.kernel, self.near, self.df = kernel, near, df

    def observe(
        self,
        f: RandomFunction,
        x: Inputs,
        y: AnyArray | None,
        noise: ArrayLike | Callable[[Array], Array],
        hidden: Propagate | None = None,
    ) -> dist.Distribution:
        """Return the distribution of y = f(h(x)) + g(x) + noise; see `local`.

        Args:
            f: the last layer, of one output.
            x: inputs, [N, D], of ``minibatch(x, y, near=near)``.
            y: targets, [N]; None to predict at x given the rows of `near`.
            noise: standard deviation of the noise, [], or a function of inputs [K, D] that
                returns it, [K]. What rounding needs is added to its square.
            hidden: the layers before, h(x): for layers f1 and f2 ``lambda x, draw: draw(f2,
                draw(f1, x))``; None if f is the only layer. Predictions also call it with the
                means of the layers.

        Raises:
            ValueError: under `function_draws`, which wants a draw of g at all rows; with y outside
                of a `minibatch` with ``near``; if `noise` has another shape.
        """
        hidden = hidden or (lambda x, draw: x)
        h = hidden(x, RandomFunction.sample)
        # Where rows repeat, the noise may vanish, and K would be singular.
        some = self.near.x[: self.near.block]
        least = default_jitter(some.dtype) * jnp.mean(evaluated(self.kernel, some))

        def noise_var(x: Any) -> Array:
            sd, shape = (noise(x), (len(x),)) if callable(noise) else (noise, ())
            if jnp.size(sd) != np.prod(shape):
                raise ValueError(
                    f"local: noise has shape {jnp.shape(sd)}, wanted [], or a function of rows "
                    f"[K, D], also those of near, that returns [K], here {shape}"
                )
            return jnp.square(jnp.reshape(sd, shape)) + least

        if y is None:
            if f.is_drawn:
                raise ValueError(
                    "local: draws of functions are wanted, and g is known row by row alone, wanted "
                    "moments, quantiles or sample of the prediction"
                )
            given = self._given_rows(f, f(h), h, x, noise_var, hidden)
            return observe(given, lambda f: WithTails(self.df, f, jnp.sqrt(noise_var(x))))
        if not has_runs():
            raise ValueError(
                "local: observe is outside of a minibatch of near rows, wanted it within "
                "dgp.minibatch(x, y, batch_size=batch_size, near=near)"
            )
        # All rows come as they were given, a minibatch in blocks.
        is_whole = len(x) == len(self.near.order)
        order = jnp.asarray(self.near.order) if is_whole else jnp.arange(len(x))
        h, x = jnp.asarray(h)[order], jnp.asarray(x)[order]
        size = min(self.near.block, len(x))
        pad = -len(x) % size
        blocks = lambda a: jnp.pad(a, [(0, pad)] + [(0, 0)] * (a.ndim - 1), mode="edge")  # noqa: E731
        mean, cov = f.joint(blocks(h), size)
        rough = jax.vmap(lambda a: self.kernel(a, a))(blocks(x).reshape(-1, size, x.shape[1]))
        # Rows of padding are independent of the others, with noise alone.
        real = (jnp.arange(len(mean)) < len(x)).reshape(-1, size)
        both = real[:, :, None] & real[:, None, :]
        cov, rough = jnp.where(both, cov[:, 0], 0.0), jnp.where(both, rough, 0.0)
        var = blocks(jnp.broadcast_to(noise_var(x), len(x))).reshape(-1, size)
        return InBlocks(mean[: len(x), 0], cov, rough, var, order, f.guided)

    def _given_rows(
        self, f: RandomFunction, own: Marginals, h: Inputs, x: Inputs,
        noise_var: Callable[[Any], Array], hidden: Propagate,
    ) -> Marginals:  # fmt: skip
        """Return f(h) + g(x) given the nearest rows, with f(h), at h = hidden(x).

        With weights a = K⁻¹ k(rows, x) it is f(h) + a'(y - f(rows)) and the rest of g. So it has
        the variance of f(h) - a'f(rows), in which hidden layers at the rows are at their means.
        """
        near, average = self.near, lambda layer, h: layer(h).mean
        # Within programs of their own, for any number of rows the steps are the same.
        search = jax.jit(lambda x: nearest(self.kernel, near.x, x, near.neighbours))
        index = search(x)
        by_row = lambda a: a.reshape(*index.shape, *a.shape[1:])  # noqa: E731
        known = near.x[index.ravel()]
        inner = hidden(known, average)
        r = near.y[index] - by_row(average(f, inner)[:, 0])
        weigh = lambda row: near_weights(self.kernel, *row)  # noqa: E731
        weights = jax.jit(lambda *rows: lax.map(weigh, rows, batch_size=_AT_ONCE))
        a, var = weights(x, by_row(known), by_row(jnp.broadcast_to(noise_var(known), len(known))))
        both = f.sparse.contrast(f.inducing, h, by_row(inner), a)[0]
        var = both + var - own.var[:, 0]
        return own + Marginals(jnp.sum(a * r, axis=1)[:, None], var[:, None])


def nearest(kernel: Any, known: Float[Array, "K D"], x: Inputs, num: int) -> Int[Array, "N num"]:
    """Return which known rows covary most with each row of x."""
    size = min(len(x), _SEARCHED)
    pad = ((0, -len(x) % size), (0, 0))
    blocks = jnp.pad(x, pad, mode="edge").reshape(-1, size, x.shape[1])

    def search(before: tuple[Array, Array], rows: Array) -> tuple[tuple[Array, Array], Array]:
        row, index = before  # predictions of few rows repeat the last one
        again = lambda: jnp.broadcast_to(index, (size, num))  # noqa: E731
        new = lambda: lax.top_k(kernel(rows, known), num)[1]  # noqa: E731
        found = lax.cond(jnp.all(rows == row), again, new)
        return (rows[-1], found[-1]), found

    start = jnp.full_like(x[0], jnp.nan), jnp.zeros(num, jnp.int32)
    return lax.scan(search, start, blocks)[1].reshape(-1, num)[: len(x)]


def near_weights(
    kernel: Any, x: Float[Array, " D"], known: Float[Array, "K D"], noise_var: Float[Array, " K"]
) -> tuple[Float[Array, " K"], Array]:
    """Return the weights of residuals g + noise in g's mean at a row x, and g's variance."""
    K = kernel(known, known) + jnp.diag(noise_var)
    inverse = factorise(K, jitter=0.0).inverse
    half = matmul(inverse, kernel(known, x[None]))
    var = kernel(x[None])[0] - jnp.sum(jnp.square(half))
    return matmul(inverse.T, half)[:, 0], jnp.maximum(var, 0.0)


def rough_kernel(name: str, dim: int) -> Sum:
    """Make g's kernel, a sum of two scales: the params of the short one are ``NAME.short...``."""
    far = Matern12.learned(name, dim, variance=_SHARE)
    return far + Matern12.learned(f"{name}.short", dim, variance=_SHARE, lengthscale=_SHORT)


def local(name: str, near: NearRows, kernel: KernelMaker | None = None) -> LocalProcess:
    """Make a rough process g whose posterior uses near rows, all of them, beside a sparse f.

    ::

        g = dgp.local("g", near)  # near = dgp.NearRows(x, y)
        with dgp.minibatch(x, y, batch_size=batch_size, near=near) as (x, y):
            numpyro.sample("y", g.observe(f, x, y, noise), obs=y)

    Inducing inputs smooth away what only the nearest rows know. Of g no inducing inputs are needed:
    it is integrated out, jointly with the noise, within each block of near rows. Under a guide the
    log density of ``y`` is E[log p(y | f)], over the joint q(f) of the last layer in the block;
    without one it is log E[p(y | f)]. A minibatch has blocks that start anywhere, so its bound is
    of other blocks than the bound of all rows. A prediction adds g given the residuals of the
    nearest rows, where hidden layers are at their means. It is Student t with the Gaussian's
    variance and the param ``NAME.df`` degrees of freedom, which fits leave at 1,000, where it is
    Gaussian, and `tune_local` finds. LOO of `to_inferencedata` averages over the noise of hidden
    layers as if it were independent of y, which moves it where that noise is large.
    `GlobalInducing` runs the model at other rows, and so cannot be its guide.

    Args:
        name: prefix of the params of g's kernel, and of ``NAME.df``.
        near: the training rows.
        kernel: makes the kernel from its name and number of inputs; None for the sum of two
            `Matern12`, ``NAME`` and ``NAME.short``. Rows are near that covary most. If it has a
            parameter ``variance``, it is passed 0.05, a share of a standardised target's.

    Raises:
        TypeError: if `near` is no `NearRows`, or `kernel` makes no kernel.

    Source: Snelson & Ghahramani (2007), "Local and global sparse Gaussian process approximations",
    for blocks; Vecchia (1988) for predictions from near rows.
    """
    check_kind("local", "near", near, NearRows, "NearRows(x, y) of the training rows")
    check_kind("local", "name", name, str, "a prefix such as 'g'")
    kernel = rough_kernel if kernel is None else kernel
    if not makes_kernel(kernel):
        what = type(kernel).__name__
        raise TypeError(
            f"local: kernel is a {what}, wanted what makes it, such as Matern12.learned"
        )
    options: dict[str, Any] = {"variance": _SHARE} if takes_variance(kernel) else {}
    made = kernel(name, near.x.shape[1], **options)
    if not callable(made):
        raise TypeError(
            f"local: kernel makes a {type(made).__name__}, wanted what makes a kernel, such as "
            "kernels.Matern12.learned"
        )
    return LocalProcess(made, near, tails(name))


def log_prior(sites: Any) -> Array:
    """Return the log of the prior LogNormal(0, 1.5) of lengthscales, less its largest value."""
    scales = [s["value"] for n, s in sites.items() if n.endswith("lengthscale")]
    return sum((-0.5 * jnp.sum(jnp.square(jnp.log(a) / _SPREAD)) for a in scales), jnp.zeros(()))


_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


class InBlocks(dist.Distribution):
    """Rows y = f + g + noise in blocks; the terms of a row are given the rows before in its block.

    Args:
        mean: mean of f, [N], in the order of the blocks, as the rest.
        cov: covariance of f in each block, [R, B, B].
        rough: covariance of g, [R, B, B]; the last block may have rows of padding.
        noise_var: variance of the noise, [R, B].
        order: places of these rows in y, [N].
        guided: whether the log density is E[log p(y | f)], or log E[p(y | f)].
    """

    support: Any = constraints.real
    pytree_data_fields = ("mean_of_f", "cov", "rough", "noise_var", "order")
    pytree_aux_fields = ("guided",)

    def __init__(
        self, mean: Array, cov: Array, rough: Array, noise_var: Array, order: Array, guided: bool
    ) -> None:
        self.mean_of_f, self.cov, self.rough, self.noise_var = mean, cov, rough, noise_var
        self.order, self.guided = order, guided
        super().__init__(mean.shape, ())

    @property
    def noisy(self) -> Array:
        """K, the covariance of g + noise, [R, B, B]."""
        return self.rough + jax.vmap(jnp.diag)(self.noise_var)

    def mask(self, mask: Any) -> dist.Distribution:
        """Refuse a mask: rows are given the rows before, which a mask would not take away."""
        raise ValueError(
            "local: a mask is over y, whose rows depend on each other, wanted NearRows(x, y), x "
            "and y without the rows that are missing"
        )

    def log_prob(self, value: Float[Array, " N"]) -> Float[Array, " N"]:
        """Return E[log p(y | f)] under a guide and log E[p(y | f)] without one, [N] in nats."""
        if not self.guided:
            return self.log_density(value)
        inverse, log_diagonal, r = self._factors(self.noisy, value)
        fit = jnp.square(jax.vmap(matmul)(inverse, r))
        # E[r r'] = E r E r' + cov
        fit = fit + jnp.sum(jax.vmap(matmul)(inverse, self.cov) * inverse, axis=2)
        return self._by_row(-_HALF_LOG_2PI - log_diagonal - 0.5 * fit)

    def log_density(self, value: Float[Array, " N"]) -> Float[Array, " N"]:
        """Return log E[p(y | f)], [N] in nats; each row given the rows before it in its block."""
        inverse, log_diagonal, r = self._factors(self.noisy + self.cov, value)
        fit = jnp.square(jax.vmap(matmul)(inverse, r))
        return self._by_row(-_HALF_LOG_2PI - log_diagonal - 0.5 * fit)

    def left_out(self, value: Float[Array, " N"]) -> dist.Normal:
        """Return the distribution of each row given all other rows of its block, [N].

        Source: Bürkner, Gabry & Vehtari (2021), "Efficient leave-one-out cross-validation for
        Bayesian non-factorized normal and Student-t models", eq. 8.
        """
        inverse, _, r = self._factors(self.noisy + self.cov, value)
        precision = jnp.sum(jnp.square(inverse), axis=1)  # the diagonal of K⁻¹
        solved = jax.vmap(lambda a, r: matmul(a.T, matmul(a, r)))(inverse, r)
        mean = value - self._by_row(solved / precision)
        return dist.Normal(mean, self._by_row(1 / jnp.sqrt(precision)), validate_args=False)

    def _factors(self, K: Array, value: Array) -> tuple[Array, Array, Array]:
        """Return L⁻¹, the logarithm of L's diagonal, and y less the mean, in blocks."""
        if value.shape != self.batch_shape:
            raise ValueError(f"local: y has shape {value.shape}, wanted {self.batch_shape}")
        factor = jax.vmap(lambda K: factorise(K, jitter=0.0))(K)
        r = jnp.asarray(value)[self.order] - self.mean_of_f
        r = jnp.pad(r, (0, -len(r) % K.shape[-1])).reshape(K.shape[:2])
        return factor.inverse, jnp.log(jnp.diagonal(factor.lower, axis1=1, axis2=2)), r

    def _by_row(self, terms: Array) -> Array:
        rows = terms.ravel()[: len(self.order)]
        return jnp.zeros_like(rows).at[self.order].set(rows)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw y, sample_shape + [N]."""
        root = jax.vmap(lambda K: factorise(K, jitter=0.0).lower)(self.noisy + self.cov)

        def one(key: Any) -> Array:
            e = jax.vmap(matmul)(root, random.normal(key, root.shape[:2], root.dtype))
            return self._by_row(self.mean_of_f + e.ravel()[: len(self.order)])

        keys = random.split(key, int(np.prod(sample_shape)))
        return jax.vmap(one)(keys).reshape(*sample_shape, *self.batch_shape)
