"""Conversion between the units of the data and standardised units."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._checks import as_array, check_flags, is_traced
from dgp_ppl._errors import one_line
from dgp_ppl._partition import default_floats
from dgp_ppl.datasets import Rows
from dgp_ppl.datasets.rows._readers import CellCheck

__all__ = ["Standardizer"]

_LARGEST = 1e145  # sums of squares are finite
_ROUNDING = 3e-13  # the range of a constant column, as of differences of times, by its values


@dataclasses.dataclass(frozen=True)
class Standardizer:
    """An affine map between the units of the data and zero mean, unit standard deviation.

    Create it with `fit`, from training data only, and keep it with the fitted params. Pass it to
    `predict` to get predictions in the units of the data.

    >>> import numpy as np
    >>> from dgp_ppl import Standardizer
    >>> x, y = np.array([[10.0], [30.0]]), np.array([1.0, 5.0])
    >>> scaler = Standardizer.fit(x, y)
    >>> scaler.inputs(x).tolist(), scaler.outputs(y).tolist()
    ([[-1.0], [1.0]], [-1.0, 1.0])
    >>> scaler.original([0.0]).tolist()
    [3.0]

    Attributes:
        x_loc: training mean of the inputs, [D].
        x_scale: training standard deviation of the inputs, [D]; 1 for constant columns.
        y_loc: training mean of the target; 0 without one. Of several targets [P].
        y_scale: training standard deviation of the target; 1 without one. Of several targets [P].
    """

    x_loc: np.ndarray
    x_scale: np.ndarray
    y_loc: float | np.ndarray = 0.0
    y_scale: float | np.ndarray = 1.0

    @classmethod
    def fit(
        cls,
        x: ArrayLike | Rows,
        y: ArrayLike | None = None,
        *,
        shared: bool = False,
        unscaled: Sequence[int] = (),
        targets: bool = True,
    ) -> Standardizer:
        """Compute means and standard deviations of training data.

        Args:
            x: training inputs, [N, D]; or a source of rows, which is read once: its first array is
                x, and a second one y.
            y: training target, [N], or targets, [N, P]; None for classes and counts, which have no
                scale. Each target has its own mean and standard deviation, and entries that are
                NaN, which a mask leaves out of the fit, do not count.
            shared: whether all columns share one mean and standard deviation. Use it for pixels,
                where differences in spread between columns carry information.
            unscaled: positions of columns that stay as they are, such as the one-hot inputs of
                `kernels.Coregion`.
            targets: whether the targets of a source are scaled. Leave out classes and counts.

        Returns:
            The standardizer of this data.

        Raises:
            DataError: if x has NaN or infinity, or y infinity.
            TypeError: if x or y is a data frame, has a mask, or is not of real numbers.
            ValueError: if x is not [N, D], y neither [N] nor [N, P] with P > 1, a target is NaN in
                all rows, or `unscaled` has no columns of x.
        """
        check_flags("Standardizer.fit", shared=shared, targets=targets)
        if isinstance(x, Rows) and y is not None:
            raise ValueError("Standardizer.fit: x is Rows, whose second array is y; leave y out")
        arrays = [] if isinstance(x, Rows) else [_floats(x)]
        arrays += [] if y is None else [_floats(y, "y")]
        first: Any = (x.first if isinstance(x, Rows) else arrays)[: 1 + targets]
        _check_shapes(*first)
        num = first[0].shape[1]
        try:
            kept = [operator.index(i) for i in unscaled]
        except TypeError:
            kept = [-1]
        if kept and not 0 <= min(kept) <= max(kept) < num:
            raise ValueError(
                f"Standardizer.fit: unscaled is {one_line(unscaled)}, wanted positions of columns "
                f"of x, at least 0 and below {num}"
            )
        scaled = np.setdiff1d(np.arange(num), kept)
        together = shared and len(scaled)  # all entries of the columns that share a scale
        rows = x if isinstance(x, Rows) else Rows.from_arrays(*arrays)
        check = CellCheck("Standardizer.fit", largest=_LARGEST, complete=False)
        inputs, outputs = _Moments(), _Moments()
        for block in rows.map(check).blocks(len(arrays[0]) if arrays else None):
            inputs.add(block[0][:, scaled].reshape(-1, 1) if together else block[0])
            if len(first) > 1:
                outputs.add(block[1])
        loc, scale = (np.array(np.broadcast_to(a, num)) for a in inputs.loc_and_scale())
        loc[kept], scale[kept] = 0.0, 1.0
        if len(first) == 1:
            return cls(loc, scale)
        if not outputs.count.all():
            raise ValueError("Standardizer.fit: a target of y is NaN in all rows, wanted a number")
        y_loc, y_scale = outputs.loc_and_scale()
        single = first[1].ndim == 1
        return cls(loc, scale, *((float(y_loc), float(y_scale)) if single else (y_loc, y_scale)))

    def rows(self, rows: Rows) -> Rows:
        """Standardise a source of rows, when they are read.

        >>> import numpy as np
        >>> import dgp_ppl as dgp
        >>> rows = dgp.Rows.from_arrays(np.array([[10.0], [30.0]]), np.array([1.0, 5.0]))
        >>> scale = dgp.Standardizer.fit(rows)
        >>> scale.rows(rows).take([1])
        (array([[1.]], dtype=float32), array([1.], dtype=float32))

        Args:
            rows: a source whose first array is x. The second one, if any, is y.

        Returns:
            The source of standardised x and y, in JAX's default float dtype; y is unchanged if
            targets have no scale. Further arrays are unchanged.
        """
        return rows.map(self._standardised)

    def _standardised(self, x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
        dtype = jax.dtypes.canonicalize_dtype(float)
        found = [np.asarray((_floats(x) - self.x_loc) / self.x_scale, dtype)]
        if others and self.scales_targets:
            found.append(np.asarray((_floats(others[0], "y") - self.y_loc) / self.y_scale, dtype))
        return (*found, *others[len(found) - 1 :])

    @property
    def scales_targets(self) -> bool:
        """Whether targets have another location or scale than 0 and 1."""
        loc, scale = np.asarray(self.y_loc), np.asarray(self.y_scale)
        return bool((loc != 0.0).any() or (scale != 1.0).any())

    def inputs(self, x: ArrayLike) -> Float[Array, "N D"]:
        """Standardise inputs.

        Args:
            x: inputs in the units of the data, [N, D].

        Returns:
            Standardised inputs, [N, D], in JAX's default float dtype.

        Raises:
            ValueError: if x has another number of columns than the training inputs.
        """
        array = _floats(x)
        if array.ndim != 2 or array.shape[1] != len(self.x_loc):
            raise ValueError(
                f"Standardizer.inputs: x has shape {array.shape}, wanted [N, {len(self.x_loc)}]"
            )
        return default_floats((array - self.x_loc) / self.x_scale)

    def outputs(self, y: ArrayLike) -> Array:
        """Standardise a target.

        Args:
            y: target in the units of the data, of any shape; of several targets [..., P].

        Returns:
            The standardised target, in JAX's default float dtype.
        """
        return default_floats((_floats(y, "y") - self.y_loc) / self.y_scale)

    def original(self, y: ArrayLike) -> np.ndarray:
        """Convert a standardised target back to the units of the data, in float64.

        Args:
            y: standardised target, of any shape; of several targets [..., P].
        """
        return _floats(y, "y") * self.y_scale + self.y_loc


def _floats(a: ArrayLike, name: str = "x") -> Any:
    """Return an array in float64; a traced one in JAX's default float dtype."""
    array = as_array("Standardizer", name, a)
    return jnp.asarray(array, float) if is_traced(a) else np.asarray(array, np.float64)


def _check_shapes(x: np.ndarray, y: np.ndarray | None = None) -> None:
    """Check the shapes of arrays, or of the first rows of a source."""
    if x.ndim != 2 or not len(x):
        raise ValueError(
            f"Standardizer.fit: x has rows of shape {x.shape[1:]}, wanted one row [D] or more"
        )
    if y is not None and (y.shape[:1] != x.shape[:1] or y.ndim > 2 or y.shape[1:] in ((0,), (1,))):
        raise ValueError(
            f"Standardizer.fit: x has {len(x)} rows and y has shape {y.shape}, wanted [N], or "
            "[N, P] for P > 1 targets; pass y[:, 0] (of Rows, rows.map(lambda x, y: (x, y[:, 0]))),"
            " or leave the targets out (targets=False)"
        )


class _Moments:
    """Mean and sd of columns without NaN, of blocks of rows (Chan, Golub and LeVeque 1983)."""

    def __init__(self) -> None:
        self.count = self.mean = self.spread = np.zeros(())
        self.low, self.high = np.array(np.inf), np.array(-np.inf)

    def add(self, a: np.ndarray) -> None:
        """Add a block of rows, [B, ...]."""
        a = np.asarray(a, np.float64)
        seen = ~np.isnan(a)
        if seen.all():
            count, mean = np.full(a.shape[1:], len(a)), a.mean(axis=0)
        else:
            count = seen.sum(axis=0)
            mean = np.where(seen, a, 0.0).sum(axis=0) / np.maximum(count, 1)
        off = np.where(seen, a - mean, 0.0)
        total = self.count + count
        shift = mean - self.mean
        share = count / np.maximum(total, 1)
        # Squares of numbers such as 1e-170 would be 0.
        width = np.abs(off).max(axis=0)
        spread = width * np.sqrt(np.square(off / np.where(width > 0, width, 1.0)).sum(axis=0))
        apart = np.abs(shift) * np.sqrt(self.count * share)
        self.spread = np.hypot(np.hypot(self.spread, spread), apart)
        self.mean = self.mean + shift * share
        self.low = np.minimum(self.low, np.where(seen, a, np.inf).min(axis=0))
        self.high = np.maximum(self.high, np.where(seen, a, -np.inf).max(axis=0))
        self.count = total

    def loc_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation; 1 for columns constant up to rounding."""
        scale = self.spread / np.sqrt(np.maximum(self.count, 1))
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        return self.mean, np.where(self.high - self.low <= _ROUNDING * largest, 1.0, scale)
