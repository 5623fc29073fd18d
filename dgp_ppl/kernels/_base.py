"""The base class of kernels, and kernels made of other kernels."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Real

from dgp_ppl._checks import check_count, check_kind
from dgp_ppl._typing import AnyArray, Inputs, OtherInputs, PRNGKey
from dgp_ppl.kernels._scaled import start_value

Features = Callable[[Inputs], Float[Array, "N F"]]
"""A function that evaluates random features at inputs, [N, D] -> [N, F]."""


@runtime_checkable
class Covariance(Protocol):
    """The interface of a kernel: ``k(x, z)`` and ``k(x)``. tinygp's kernels implement it."""

    def __call__(self, x: Any, z: Any = None, /) -> Any: ...


class Kernel(eqx.Module):
    """Base class of covariance functions k(x, z).

    Kernels add and multiply: ``a + b`` is a `Sum`, ``a * b`` a `Product`. A subclass declares its
    hyperparameters as fields and implements `__call__`; without ``z`` it returns the diagonal,
    unless a method ``diag(x)`` does. Draws of whole functions also need `features`. Fields other
    than ``lengthscale`` need a starting value in the class attribute ``initial``, for `learned`.

    >>> import jax, jax.numpy as jnp
    >>> class Constant(Kernel):
    ...     variance: jax.Array
    ...
    ...     def __call__(self, x, z=None):
    ...         return jnp.full(len(x) if z is None else (len(x), len(z)), self.variance)
    >>> x = jnp.zeros((3, 2))
    >>> (Constant(4.0) + Constant(1.0))(x).tolist()
    [5.0, 5.0, 5.0]
    """

    initial: ClassVar[dict[str, float]] = {"variance": 1.0}

    @abc.abstractmethod
    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        """Evaluate the covariance.

        Args:
            x: inputs, [N, D].
            z: other inputs, [M, D], or None for the diagonal of K(x, x).

        Returns:
            K(x, z), [N, M]; without `z` the diagonal of K(x, x), [N].
        """

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        """Draw random features phi with E[phi_i(x) phi_i(z)] = k(x, z) for every i.

        ``features(x) @ w / sqrt(num)`` with w ~ N(0, I) is then a draw of the function from the
        prior. Its covariance is k on average over the features, and it becomes Gaussian as `num`
        grows. `core.RandomFunction.path` draws whole functions this way.

        Args:
            key: random key.
            num: number of independent features F.
            dim: number of inputs D.

        Returns:
            A function that evaluates the features, [N, D] -> [N, F].

        Raises:
            TypeError: unless the class implements it.
        """
        raise TypeError(
            f"the kernel {type(self).__name__} has no random features, which draws of whole "
            "functions need (mode='path', RandomFunction.path); wanted a method features(key, num, "
            "dim), or draws at given inputs: mode='joint', RandomFunction.joint"
        )

    @classmethod
    def learned(
        cls,
        name: str,
        dim: int,
        *,
        out: int | None = None,
        ard: bool = True,
        **initial: ArrayLike | Sequence[float],
    ) -> Any:
        """Make this kernel with its hyperparameters registered as positive NumPyro params.

        >>> from numpyro import handlers
        >>> from dgp_ppl import kernels
        >>> with handlers.trace() as sites:
        ...     kernel = kernels.Matern32.learned("l1", dim=2, variance=0.5)
        >>> {name: site["value"].shape for name, site in sites.items()}
        {'l1.variance': (), 'l1.lengthscale': (2,)}

        Args:
            name: prefix of the params: ``name.variance``, ``name.lengthscale``, ...
            dim: number of inputs D of the layer.
            out: number of outputs P that each get separate hyperparameters; the result is then a
                `PerOutput` kernel. None shares one kernel among all outputs.
            ard: whether every input has its own lengthscale (shape [D]) or all inputs share one.
            **initial: starting values by hyperparameter name. The defaults are variance 1 and
                lengthscale sqrt(D), which suit inputs of unit scale.

        Returns:
            A kernel of this class, or a `PerOutput` of one.

        Raises:
            TypeError: if this kernel has no hyperparameter of a given name, or one has no starting
                value.
            ValueError: if a param was substituted by a value with an axis of outputs, and `out` is
                None.
        """
        check_count(f"{cls.__name__}.learned", "dim", dim, 0)
        starts: dict[str, tuple[Any, Any]] = {}
        for field in (f.name for f in dataclasses.fields(cls)):  # type: ignore[arg-type]
            is_scale = field == "lengthscale"
            start = math.sqrt(dim) if is_scale else cls.initial.get(field, 1.0)
            if not (is_scale or field in cls.initial or field in initial):
                raise TypeError(
                    f"{cls.__name__}.learned has no starting value of {field!r}, wanted "
                    f"{field}=..., or one in the class attribute `initial`"
                )
            default = jnp.full((dim,) if is_scale and ard else (), start)
            starts[field] = default, dist.constraints.positive
        return cls._registered(name, starts, initial, out)

    @classmethod
    def _registered(
        cls, name: str, starts: dict[str, tuple[Array, Any]], initial: dict[str, Any],
        out: int | None, **fixed: Any,
    ) -> Any:  # fmt: skip
        """Make this kernel with the params ``name.FIELD``, but `fixed` ones, from `starts`."""
        check_count(f"{cls.__name__}.learned", "out", 1 if out is None else out)
        if unknown := sorted(set(initial) - set(starts)):
            raise TypeError(
                f"{cls.__name__}.learned got {unknown[0]!r}; its hyperparameters are {list(starts)}"
            )
        values = {}
        for field, (default, constraint) in starts.items():
            shape = default.shape if out is None else (out, *default.shape)
            what = f"{cls.__name__}.learned: {field}"
            start = start_value(what, initial.get(field, default), shape, constraint)
            value: Any = numpyro.param(f"{name}.{field}", start, constraint=constraint)
            if jnp.ndim(value) > len(shape):
                raise ValueError(
                    f"{what}: the param {name}.{field} has shape {jnp.shape(value)}, wanted "
                    f"{shape}; if it was fitted with a kernel per output, pass share_kernel=False "
                    "to the model, or out to learned"
                )
            # A value without the axis of the outputs, from a prior or a shared kernel, is shared.
            values[field] = value if out is None else jnp.broadcast_to(value, shape)
        kernel = cls(**values, **fixed)
        return kernel if out is None else PerOutput(kernel)

    def on(self, columns: int | slice | Sequence[int]) -> Columns:
        """Return this kernel as a function of some of the inputs.

        >>> import jax.numpy as jnp
        >>> from dgp_ppl import kernels
        >>> k = kernels.Matern32(1.0, 0.5).on([0, 1]) * kernels.Linear(1.0, 1.0).on(2)
        >>> k(jnp.zeros((4, 3))).shape
        (4,)

        Args:
            columns: their positions, from 0; a slice needs an end.
        """
        return Columns(self, columns)

    def __add__(self, other: Any) -> Any:
        is_one = callable(other) and not isinstance(other, PerOutput)
        return Sum(self, other) if is_one else NotImplemented

    def __mul__(self, other: Any) -> Any:
        is_one = callable(other) and not isinstance(other, PerOutput)
        return Product(self, other) if is_one else NotImplemented


def evaluated(kernel: Any, x: AnyArray, z: AnyArray | None = None) -> Array:
    """Return k(x, z), [N, M], or the diagonal of k(x, x), [N]; a ValueError for other shapes."""
    if isinstance(kernel, PerOutput):
        return kernel(x, z)
    check_kind("kernel", "x", x, AnyArray, "an array [N, D]")
    kernel = kernel.func if isinstance(kernel, Partial) else kernel  # a function, or without arrays
    wanted = (len(x),) if z is None else (len(x), len(z))
    name = getattr(kernel, "__name__", type(kernel).__name__)
    rule = "k(x, z) is a matrix [N, M], and k(x), or a method diag(x), the diagonal [N] of k(x, x)"
    try:
        found = jnp.asarray(getattr(kernel, "diag", kernel)(x) if z is None else kernel(x, z))
    except TypeError as error:
        if z is None and getattr(error.__traceback__, "tb_next", None) is None:  # of the call
            raise TypeError(f"the kernel {name} has no k(x): {rule}") from error
        raise
    if found.shape != wanted and (found.shape or z is not None):
        has = f"returns shape {found.shape} for k(x{', z' * (z is not None)}), wanted {wanted}"
        raise ValueError(f"the kernel {name} {has}: {rule}")
    return found


def features_of(kernel: Any, key: PRNGKey, num: int, dim: int) -> Features:
    """Return random features of any kernel; a TypeError if it has none, as tinygp's have none."""
    kernel = kernel.func if isinstance(kernel, Partial) else kernel
    return getattr(kernel, "features", functools.partial(Kernel.features, kernel))(key, num, dim)


class Sum(Kernel):
    """The sum k₁(x, z) + k₂(x, z), which ``first + second`` makes.

    Args:
        first: k₁.
        second: k₂.
    """

    first: Any
    second: Any

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        return evaluated(self.first, x, z) + evaluated(self.second, x, z)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        # A random sign per feature makes the cross terms vanish on average.
        key_a, key_b, key_s = random.split(key, 3)
        a, b = features_of(self.first, key_a, num, dim), features_of(self.second, key_b, num, dim)
        sign = random.rademacher(key_s, (num,), dtype=float)
        return lambda x: a(x) + sign * b(x)


class Product(Kernel):
    """The product k₁(x, z) k₂(x, z), which ``first * second`` makes.

    Args:
        first: k₁.
        second: k₂.
    """

    first: Any
    second: Any

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        return evaluated(self.first, x, z) * evaluated(self.second, x, z)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        key_a, key_b = random.split(key)
        a, b = features_of(self.first, key_a, num, dim), features_of(self.second, key_b, num, dim)
        return lambda x: a(x) * b(x)


class Separable(Kernel):
    """A product k_x(x, x') k_t(t, t') for inputs (x, t) whose last column is t.

    On a grid of inducing inputs (`dgp_ppl.Grid`) its Gram matrix is a Kronecker product.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import kernels
    >>> k = kernels.Separable(kernels.Matern32(1.0, 0.5), kernels.SquaredExponential(1.0, 2.0))
    >>> k(jnp.zeros((4, 3))).shape
    (4,)

    Args:
        space: k_x, a kernel of all columns but the last.
        time: k_t, a kernel of the last column.
    """

    space: Any
    time: Any

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        if x.shape[-1] < 2:
            raise ValueError(
                f"Separable: x has shape {x.shape}, wanted columns for k_x and a last one for k_t"
            )
        places, times = (None, None) if z is None else (z[..., :-1], z[..., -1:])
        in_space = evaluated(self.space, x[..., :-1], places)
        return in_space * evaluated(self.time, x[..., -1:], times)

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        key_x, key_t = random.split(key)
        a, b = features_of(self.space, key_x, num, dim - 1), features_of(self.time, key_t, num, 1)
        return lambda x: a(x[..., :-1]) * b(x[..., -1:])


def _positions(columns: int | slice | Sequence[int]) -> tuple[int, ...]:
    """Return positions of columns as a tuple, which is hashable."""
    if isinstance(columns, slice):
        if columns.stop is None or min(columns.start or 0, columns.stop) < 0:
            raise ValueError(
                f"Columns: columns is {columns}, wanted a slice with an end, counted from the "
                "first column, such as slice(2, 5)"
            )
        columns = range(columns.start or 0, columns.stop, columns.step or 1)
    try:
        given = tuple(columns) if isinstance(columns, Iterable) else (columns,)
        masks = any(isinstance(i, bool | np.bool_) for i in given)
        found = () if masks else tuple(operator.index(i) for i in given)
    except TypeError:
        found = ()
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ValueError(f"Columns: columns is {columns!r}, wanted different positions, from 0")
    return found


class Columns(Kernel):
    """A kernel of some of the inputs, k(x[:, columns], z[:, columns]); ``kernel.on(columns)``.

    Products of such kernels let columns of different kinds have kernels of their own, and sums make
    additive functions. It is GPflow's ``active_dims`` and tinygp's ``Subspace``.

    Args:
        kernel: the kernel; its lengthscale has one entry for each of the columns.
        columns: positions of the columns, from 0: a number, a sequence, or a slice with an end.
    """

    kernel: Any
    columns: tuple[int, ...] = eqx.field(static=True, converter=_positions)

    def _of(self, x: Inputs) -> Real[AnyArray, "N C"]:
        first, last = self.columns[0], self.columns[-1]
        if max(self.columns) >= x.shape[-1]:
            raise ValueError(
                f"Columns: columns has {max(self.columns)}, and the inputs have {x.shape[-1]} "
                f"columns, wanted positions below {x.shape[-1]}"
            )
        if self.columns == tuple(range(first, last + 1)):  # cheaper than an index
            return x[..., first : last + 1]
        return x[..., np.array(self.columns)]

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        return evaluated(self.kernel, self._of(x), None if z is None else self._of(z))

    def features(self, key: PRNGKey, num: int, dim: int) -> Features:
        phi = features_of(self.kernel, key, num, len(self.columns))
        return lambda x: phi(self._of(x))


class PerOutput(eqx.Module):
    """A separate kernel for each of the P outputs of a layer.

    ``Kernel.learned(name, dim, out=P)`` makes one. You can also stack the leaves of P kernels of
    the same class:

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import kernels
    >>> k = kernels.PerOutput(kernels.Matern32(jnp.ones(2), jnp.array([[0.5], [2.0]])))
    >>> x = jnp.zeros((4, 1))
    >>> k(x, x[:3]).shape, k(x).shape
    ((2, 4, 3), (2, 4))

    They add and multiply output by output, ``k + k``, also with a kernel that all outputs share.

    Args:
        kernel: a kernel whose leaves all have a leading axis of length P.
    """

    kernel: Any

    def __add__(self, other: Any) -> PerOutput:
        return PerOutput(Sum(self.kernel, self._per_output(other)))

    def __mul__(self, other: Any) -> PerOutput:
        return PerOutput(Product(self.kernel, self._per_output(other)))

    __radd__, __rmul__ = __add__, __mul__

    def on(self, columns: int | slice | Sequence[int]) -> PerOutput:
        """Return these kernels as functions of some of the inputs; see `Kernel.on`."""
        return PerOutput(Columns(self.kernel, columns))

    def _per_output(self, other: Any) -> Any:
        """Return the kernel of a `PerOutput`, or a shared kernel repeated for every output."""
        if isinstance(other, PerOutput):
            return other.kernel
        if not callable(other):
            raise TypeError(f"PerOutput: a term or factor is {other!r}, wanted a kernel")
        if any(leaf is other for leaf in jax.tree.leaves(other)):
            return Partial(other)  # a plain function is not a pytree of arrays
        P = len(jax.tree.leaves(self.kernel)[0])
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (P, *jnp.shape(a))), other)

    def __call__(self, x: Inputs, z: OtherInputs | None = None) -> Array:
        """Return K(x, z) for every output, [P, N, M], or the diagonals, [P, N], without `z`."""
        return jax.vmap(lambda k: evaluated(k, x, z))(self.kernel)
