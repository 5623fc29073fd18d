"""Where a fit starts: inducing inputs, lengthscales, mean maps, and the scale of the data.

Every random function takes a key. `deep_gp` puts the pieces together for `models.deep_gp`.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl import means
from dgp_ppl._typing import Inputs, PRNGKey
from dgp_ppl.means import Linear

__all__ = ["Standardizer", "deep_gp", "inducing_inputs", "median_lengthscale"]

_KMEANS_ROWS = 20_000


def inducing_inputs(key: PRNGKey, x: ArrayLike, num: int) -> Float[Array, "M D"]:
    """k-means centroids of the inputs: M = `num` inducing inputs, [M, D].

    From at most 20,000 random rows. If there are fewer distinct rows than `num`, all of them are
    taken, and the rest are drawn from a normal with the inputs' mean and standard deviation.

    Raises:
        ValueError: if `num` is not positive, or x is not [N, D] with N >= 1.
    """
    from sklearn.cluster import KMeans

    x = np.asarray(x, float)
    if x.ndim != 2 or not len(x):
        raise ValueError(f"inducing_inputs: x has shape {x.shape}, wanted [N, D] with N >= 1")
    if num < 1:
        raise ValueError(f"inducing_inputs: num is {num}, wanted at least 1")
    seed = int(random.randint(key, (), 0, np.iinfo(np.int32).max))
    rng = np.random.default_rng(seed)
    if len(x) > _KMEANS_ROWS:
        x = x[rng.choice(len(x), _KMEANS_ROWS, replace=False)]
    distinct = np.unique(x, axis=0)
    if len(distinct) > num:
        means_of: Any = KMeans(num, random_state=seed)  # one start of k-means++
        centres = means_of.fit(x).cluster_centers_
    else:
        spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
        extra = rng.standard_normal((num - len(distinct), x.shape[1]))
        centres = np.concatenate([distinct, x.mean(axis=0) + spread * extra])
    return jnp.asarray(centres, float)


def median_lengthscale(key: PRNGKey, x: ArrayLike, num_rows: int = 1000) -> float:
    """The median distance between two of at most `num_rows` random rows of x, [N, D].

    Falls back to sqrt(D) where more than half of the rows coincide.
    """
    x = np.asarray(x, float)
    rng = np.random.default_rng(int(random.randint(key, (), 0, np.iinfo(np.int32).max)))
    rows = x[rng.choice(len(x), min(len(x), num_rows), replace=False)]
    square = np.square(rows).sum(axis=1)
    distance = square[:, None] + square - 2 * rows @ rows.T
    pairs = distance[np.triu_indices(len(rows), 1)]
    median = float(np.sqrt(np.median(np.maximum(pairs, 0)))) if len(pairs) else 0.0
    return median if median > 0 else float(np.sqrt(x.shape[1]))


def deep_gp(
    key: PRNGKey,
    x: Inputs,
    *,
    num_inducing: int = 100,
    depth: int = 2,
    width: int | None = None,
) -> dict[str, Any]:
    """Inducing inputs and mean functions for `models.deep_gp`, from standardised inputs.

    The first layer's inducing inputs are k-means centroids; deeper layers' are the same, pushed
    through the fixed mean maps of the layers before (Salimbeni & Deisenroth 2017, section 5). A
    mean map is the identity where the width stays, PCA where it shrinks, zero padding where it
    grows.

    Args:
        key: random key of the k-means.
        x: training inputs, [N, D].
        num_inducing: M of every layer.
        depth: number of GP layers L.
        width: outputs of the hidden layers; the default is min(30, D).

    Returns:
        ``{"z": (z_1, ..., z_L), "mean": (mean_1, ..., mean_L)}``: keyword arguments of
        `models.deep_gp`.

    Raises:
        ValueError: if `depth` or `width` is not positive.
    """
    if depth < 1:
        raise ValueError(f"initialize.deep_gp: depth is {depth}, wanted at least 1")
    if width is not None and width < 1:
        raise ValueError(f"initialize.deep_gp: width is {width}, wanted at least 1")
    width = min(30, x.shape[1]) if width is None else width
    h, z = x, [inducing_inputs(key, x, num_inducing)]
    maps = []
    for _ in range(depth - 1):
        step = _mean_map(h, width)
        maps.append(step)
        h = step(h)
        z.append(step(z[-1]))
    return {"z": tuple(z), "mean": (*maps, means.zero)}


def _mean_map(h: Inputs, width: int) -> Any:
    dim = h.shape[1]
    if width == dim:
        return means.identity
    # PCA needs as many rows as directions; with fewer, any of the inputs will do.
    narrow: Linear = means.pca(h, width) if width <= min(h.shape) else means.pad(dim, width)
    return narrow if width < dim else means.pad(dim, width)


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
