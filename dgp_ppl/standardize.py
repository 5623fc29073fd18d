"""The scale of the data: to zero mean and unit standard deviation, and back."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._typing import Inputs

__all__ = ["Standardizer"]


@dataclasses.dataclass(frozen=True)
class Standardizer:
    """The affine map between the data's units and zero mean, unit standard deviation.

    Made from TRAINING data only, by `fit`, and kept with what was fitted: `predict` takes it to
    give its answers in the units of the data.

    Attributes:
        x_loc: training mean of the inputs, [D].
        x_scale: their training standard deviation, [D]; 1 for constant columns.
        y_loc: training mean of the target, or 0.
        y_scale: its training standard deviation, or 1.
    """

    x_loc: np.ndarray
    x_scale: np.ndarray
    y_loc: float = 0.0
    y_scale: float = 1.0

    @classmethod
    def fit(
        cls, x: ArrayLike, y: ArrayLike | None = None, *, shared: bool = False
    ) -> "Standardizer":
        """From training inputs [N, D] and, for regression, the training target [N].

        Args:
            x: training inputs.
            y: training target, or None for classes and counts, which have no scale.
            shared: whether one location and scale serve all columns, as for pixels, whose
                differences in spread say something.

        Raises:
            ValueError: if x is not [N, D], or y not [N].
        """
        x = np.asarray(x, np.float64)
        if x.ndim != 2 or not len(x):
            raise ValueError(f"Standardizer.fit: x has shape {x.shape}, wanted [N, D] with N >= 1")
        loc, scale = _moments(x.reshape(-1, 1) if shared else x)
        loc, scale = (np.broadcast_to(a, x.shape[1:]) for a in (loc, scale))
        if y is None:
            return cls(loc, scale)
        y = np.asarray(y, np.float64)
        if y.shape != x.shape[:1]:
            raise ValueError(
                f"Standardizer.fit: y has shape {y.shape}, wanted [N] = ({len(x)},)"
                + ("; pass y[:, 0]" if y.shape == (len(x), 1) else "")
            )
        y_loc, y_scale = _moments(y)
        return cls(loc, scale, float(y_loc), float(y_scale))

    def inputs(self, x: ArrayLike) -> Inputs:
        """Inputs in the data's units to unit scale, [N, D], in JAX's default float dtype."""
        x = np.asarray(x, np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.x_loc):
            raise ValueError(
                f"Standardizer.inputs: x has shape {x.shape}, wanted [N, {len(self.x_loc)}]"
            )
        return jnp.asarray((x - self.x_loc) / self.x_scale, float)

    def outputs(self, y: ArrayLike) -> Array:
        """A target in the data's units to unit scale."""
        return jnp.asarray((np.asarray(y, np.float64) - self.y_loc) / self.y_scale, float)

    def original(self, y: ArrayLike) -> np.ndarray:
        """A target of unit scale back to the data's units."""
        return np.asarray(y, np.float64) * self.y_scale + self.y_loc


def _moments(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns; 1 where a column is constant to rounding."""
    loc, scale = a.mean(axis=0), a.std(axis=0)
    constant = scale <= 1e-10 * np.abs(a).max(axis=0)
    return loc, np.where(constant, 1.0, scale)
