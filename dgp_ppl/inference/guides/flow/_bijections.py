"""Bijections of the flow guide.

A *bijection* of vectors [H] has two methods: ``transform_and_log_det(x)`` returns y and
log |dy/dx|, and ``inverse_and_log_det(y)`` returns x and log |dx/dy|. FlowJAX's bijections have
them. It is a PyTree, such as an `equinox` module, whose floating-point arrays are learned.

A callable with a required parameter named ``key`` is a *maker*: ``maker(size, key=key)`` returns a
bijection of vectors [size].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._checks import check_count, check_counts, check_kind, check_positive
from dgp_ppl._typing import PRNGKey
from dgp_ppl.inference.guides._modules import is_maker, module_params

_LEAST = 1e-3  # width and height of a bin, as shares of the interval, and slope at a knot
_SLOPE = float(np.log(np.expm1(1 - _LEAST)))  # where softplus is 1 - _LEAST
_MOST = 3.0  # of the log scale of an affine map: a bad step must not overflow


@runtime_checkable
class Bijection(Protocol):
    """A learned invertible map of vectors [H]."""

    def transform_and_log_det(self, x: Any, /) -> Any: ...


BijectionMaker = Callable[..., Bijection]  # (size: int, *, key: PRNGKey)


class SplineCoupling(eqx.Module):
    """Coupling layers with rational-quadratic splines. They start at the identity.

    Each layer holds one half of the vector. A network computes from it, for each number of the
    other half, a monotone spline and an affine map. The next layer swaps the halves, and every
    second one makes new halves. Transform and inverse cost the same::

        guide = dgp.Flow(model, flow=functools.partial(SplineCoupling, layers=12))

    Args:
        size: length H of the vectors.
        key: random key of the networks' initial weights.
        layers: number of coupling layers.
        width: number of hidden units of each network.
        bins: number of bins of a spline.
        interval: splines act on [-interval, interval], in standard deviations of the base. Outside
            of it they are the identity.

    Raises:
        TypeError: if a count is not an integer.
        ValueError: if `size` is less than 2, or another number is not positive.

    Source: Durkan et al. (2019), "Neural spline flows", section 3; Dinh et al. (2017), "Density
    estimation using Real NVP", section 3.
    """

    nets: eqx.nn.MLP
    layers: int = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    interval: float = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        key: PRNGKey,
        *,
        layers: int = 8,
        width: int = 64,
        bins: int = 8,
        interval: float = 4.0,
    ) -> None:
        check_count("SplineCoupling", "size", size, 2)
        check_counts("SplineCoupling", layers=layers, width=width, bins=bins)
        check_positive("SplineCoupling", "interval", interval)
        held = size // 2
        outputs = (size - held) * (3 * bins + 1)  # widths, heights, inner slopes, shift, scale

        def net(key: PRNGKey) -> eqx.nn.MLP:
            net = eqx.nn.MLP(held, outputs, width, 1, jax.nn.silu, key=key)
            last: Any = lambda net: (net.layers[-1].weight, net.layers[-1].bias)  # noqa: E731
            return eqx.tree_at(last, net, replace_fn=jnp.zeros_like)

        self.nets = eqx.filter_vmap(net)(random.split(key, layers))
        self.layers, self.bins, self.interval = layers, bins, interval

    def transform_and_log_det(
        self, x: Float[Array, " H"]
    ) -> tuple[Float[Array, " H"], Float[Array, ""]]:
        """Return y, and log |dy/dx|."""
        return self._through_layers(x, inverse=False)

    def inverse_and_log_det(
        self, y: Float[Array, " H"]
    ) -> tuple[Float[Array, " H"], Float[Array, ""]]:
        """Return x, and log |dx/dy|."""
        return self._through_layers(y, inverse=True)

    def _through_layers(self, x: Array, *, inverse: bool) -> tuple[Array, Array]:
        learned, static = eqx.partition(self.nets, eqx.is_array)
        held = x.size // 2

        def layer(x: Array, at: Any) -> tuple[Array, Array]:
            weights, order, back = at
            first, second = x[order][:held], x[order][held:]
            raw = eqx.combine(weights, static)(first).reshape(x.size - held, -1)
            second, log_slope = self._map(second, raw.astype(x.dtype), inverse)
            return jnp.concatenate([first, second])[back], jnp.sum(log_slope)

        orders = _orders(x.size, self.layers)
        at = (learned, orders, np.argsort(orders, axis=1))
        x, log_dets = lax.scan(layer, x, at, reverse=inverse)
        return x, jnp.sum(log_dets)

    def _map(self, x: Array, raw: Array, inverse: bool) -> tuple[Array, Array]:
        """Map each number by its spline and then its affine map, or back."""
        *spline, shift, scale = jnp.split(
            raw, [self.bins, 2 * self.bins, 3 * self.bins - 1, 3 * self.bins], axis=1
        )
        shift, scale = shift[:, 0], _MOST * jnp.tanh(scale[:, 0] / _MOST)
        if inverse:
            y, log_slope = self._spline((x - shift) * jnp.exp(-scale), *spline, inverse=True)
            return y, log_slope - scale
        y, log_slope = self._spline(x, *spline, inverse=False)
        return y * jnp.exp(scale) + shift, log_slope + scale

    def _spline(
        self, x: Array, widths: Array, heights: Array, slopes: Array, *, inverse: bool
    ) -> tuple[Array, Array]:
        """Evaluate rational-quadratic splines or inverses (Durkan et al. 2019, eqs. 4 to 8)."""
        B = self.interval
        width, height = (2 * B * _shares(raw) for raw in (widths, heights))
        slope = _LEAST + jax.nn.softplus(slopes + _SLOPE)
        slope = jnp.pad(slope, ((0, 0), (1, 1)), constant_values=1.0)  # the identity has 1
        left, low = (jnp.cumsum(size, axis=1) - size - B for size in (width, height))
        inside = jnp.abs(x) < B
        # The branch that is not taken must have finite derivatives.
        point = jnp.where(inside, x, 0.0)
        begins = (low if inverse else left)[:, 1:]
        bin = jax.nn.one_hot(jnp.sum(point[:, None] >= begins, axis=1), self.bins, dtype=x.dtype)
        at = lambda values: jnp.sum(bin * values, axis=1)  # noqa: E731
        x0, y0, w, h = at(left), at(low), at(width), at(height)
        s, d0, d1 = h / w, at(slope[:, :-1]), at(slope[:, 1:])
        bend = d0 + d1 - 2 * s
        if inverse:
            rise = point - y0
            a, b, c = h * (s - d0) + rise * bend, h * d0 - rise * bend, -s * rise
            root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, jnp.finfo(x.dtype).tiny))
            t = 2 * c / (-b - root)
        else:
            t = (point - x0) / w
        t = jnp.clip(t, 0.0, 1.0)  # against rounding
        rest = t * (1 - t)
        below = s + bend * rest
        y = x0 + w * t if inverse else y0 + h * (s * t**2 + d0 * rest) / below
        numerator = d1 * t**2 + 2 * s * rest + d0 * (1 - t) ** 2
        log_slope = 2 * jnp.log(s) + jnp.log(numerator) - 2 * jnp.log(below)
        log_slope = -log_slope if inverse else log_slope
        return jnp.where(inside, y, x), jnp.where(inside, log_slope, 0.0)


def _shares(raw: Float[Array, "N K"]) -> Float[Array, "N K"]:
    """Return positive numbers that sum to one, each at least `_LEAST` (or all equal)."""
    least = min(_LEAST, 0.5 / raw.shape[1])
    return least + (1 - least * raw.shape[1]) * jax.nn.softmax(raw, axis=1)


def _orders(size: int, layers: int) -> np.ndarray:
    """Return an order of the numbers for each layer; the odd ones reverse those before them."""
    rng = np.random.default_rng(0)  # how the layers divide a vector is part of their definition
    pairs = [rng.permutation(size) for _ in range(-(-layers // 2))]
    return np.stack([order for pair in pairs for order in (pair, pair[::-1])][:layers])


def bijection_params(flow: Any, size: int, name: str) -> Bijection:
    """Declare each array of a bijection as a param, and return the bijection with their values."""
    fixed = []
    if not is_maker(flow):
        is_leaf = jax.tree_util.all_leaves([flow])
        if is_leaf and any(eqx.is_inexact_array_like(a) for a in vars(flow).values()):
            raise TypeError(
                f"Flow: flow is a {type(flow).__name__}, which is no PyTree, so its arrays could "
                "not be learned; make its class an equinox.Module"
            )
        flow, *fixed = eqx.partition(flow, eqx.is_inexact_array)
    learned = module_params("Flow: flow", flow, name, size)
    bijection = eqx.combine(*learned, *fixed)
    wanted = "a bijection with transform_and_log_det(x); leave it out for SplineCoupling"
    check_kind("Flow", "the value of flow", bijection, Bijection, wanted)
    return bijection
