"""Where a fit starts: inducing inputs, lengthscales and mean maps.

Every random function takes a key. `deep_gp` puts the pieces together for `models.deep_gp`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl import means
from dgp_ppl._checks import check_count
from dgp_ppl._typing import Inputs, PRNGKey
from dgp_ppl.means import Linear

__all__ = [
    "deep_gp", "gplvm", "inducing_inputs", "median_lengthscale", "nearest_rows",
]  # fmt: skip

_KMEANS_ROWS = 20_000


def inducing_inputs(key: PRNGKey, x: ArrayLike, num: int) -> Float[Array, "M D"]:
    """k-means centroids of the inputs: M = `num` inducing inputs, [M, D].

    From at most 20,000 random rows. If there are fewer distinct rows than `num`, all of them are
    taken, and the rest are drawn from a normal with the inputs' mean and standard deviation.

    Raises:
        TypeError: if `num` is no integer.
        ValueError: if `num` is not positive, or x is not [N, D] with N >= 1.
    """
    from sklearn.cluster import KMeans

    x = np.asarray(x, float)
    if x.ndim != 2 or not len(x):
        raise ValueError(f"inducing_inputs: x has shape {x.shape}, wanted [N, D] with N >= 1")
    check_count("inducing_inputs", "num", num)
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
    skip: bool = False,
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
        skip: whether layers after the first see the input too. A hidden layer's mean is then a map
            of the layer before it alone, as without.

    Returns:
        ``{"z": (z_1, ..., z_L), "mean": (mean_1, ..., mean_L)}``: keyword arguments of
        `models.deep_gp`, and ``"skip": True`` if that was asked for.

    Raises:
        TypeError: if `depth` or `width` is no integer.
        ValueError: if one of them is not positive.
    """
    check_count("initialize.deep_gp", "depth", depth)
    if width is not None:
        check_count("initialize.deep_gp", "width", width)
    width = min(30, x.shape[1]) if width is None else width
    h, z = x, [inducing_inputs(key, x, num_inducing)]
    maps = []
    for layer in range(depth - 1):
        if skip and layer:
            step: Any = means.pad(width + x.shape[1], width)
        else:
            step = _mean_map(h, width)
        maps.append(step)
        h, own = step(h), step(z[-1])
        if skip:
            h, own = jnp.concatenate([h, x], axis=1), jnp.concatenate([own, z[0]], axis=1)
        z.append(own)
    return {"z": tuple(z), "mean": (*maps, means.zero)} | ({"skip": True} if skip else {})


def gplvm(
    key: PRNGKey,
    y: ArrayLike,
    dim: int,
    *,
    x: Inputs | None = None,
    num_inducing: int = 100,
    depth: int = 1,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Where a `models.gplvm` starts: latent inputs at the principal components of y.

    ``kwargs, start = initialize.gplvm(...)``, then ``fit(key, models.gplvm, guide, x, y,
    start=start, out=P, **kwargs)``.

    Args:
        key: random key of the k-means.
        y: targets, [N, P] or [N], centred; what is missing filled with 0.
        dim: number of latent inputs, Q.
        x: known inputs, [N, D]; the principal components are then those of what a linear
            regression on them leaves of y.
        num_inducing: M of every layer.
        depth: number of GP layers; hidden ones are as wide as the first one's inputs.

    Returns:
        Keyword arguments of `models.gplvm`, and params of the guide for `fit`'s `start`:
        ``latent_auto_loc``, [N, Q], with unit variance, as the prior has.

    Raises:
        TypeError: if `dim` is no integer.
        ValueError: if it is not positive, y is not [N, P], or has fewer rows or columns than Q.
    """
    y = np.asarray(y, np.float64)
    check_count("initialize.gplvm", "dim", dim)
    if y.ndim not in (1, 2):
        raise ValueError(f"initialize.gplvm: y has shape {y.shape}, wanted [N, P] or [N]")
    if not np.isfinite(y).all():
        raise ValueError(
            "initialize.gplvm: y is not finite everywhere; fill what is missing with 0"
        )
    y = y.reshape(len(y), -1)
    known = np.zeros((len(y), 0)) if x is None else np.asarray(x, np.float64)
    if dim > min(y.shape):
        raise ValueError(
            f"initialize.gplvm: y of shape {y.shape} has no {dim} principal components; wanted dim "
            f"at most {min(y.shape)}"
        )
    from sklearn.decomposition import PCA

    design = np.c_[known, np.ones(len(y))]
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    scores = PCA(dim, whiten=True, svd_solver="full").fit_transform(left)
    scores, inputs = (jnp.asarray(a, float) for a in (scores, np.c_[known, scores]))
    width = inputs.shape[1]
    layout = deep_gp(key, inputs, num_inducing=num_inducing, depth=depth, width=width)
    return layout, {"latent_auto_loc": scores}


def nearest_rows(y_new: ArrayLike, seen: ArrayLike, y: ArrayLike) -> np.ndarray:
    """For each row of y_new [N*, P], the row of y [N, P] that is nearest in its observed entries.

    A start for the latent inputs of new rows: those of their nearest training rows.

    Args:
        y_new: new rows; what stands in missing entries is of no account.
        seen: True where y_new was observed, [N*, P].
        y: complete rows.

    Returns:
        Row numbers, [N*].

    Raises:
        ValueError: if the shapes do not fit.
    """
    seen, y = np.asarray(seen, bool), np.asarray(y, np.float64)
    if y.ndim != 2 or seen.shape != np.shape(y_new) or seen.shape[1:] != y.shape[1:]:
        raise ValueError(
            f"nearest_rows: y_new, seen and y have shapes {np.shape(y_new)}, {seen.shape} and "
            f"{y.shape}, wanted [N*, P], [N*, P] and [N, P]"
        )
    own = np.where(seen, np.asarray(y_new, np.float64), 0.0)
    # |y_new - y|² over the observed entries, but for a term that is the same for all rows of y.
    distance = seen @ np.square(y).T - 2 * own @ y.T
    return np.argmin(distance, axis=1)


def _mean_map(h: Inputs, width: int) -> Any:
    dim = h.shape[1]
    if width == dim:
        return means.identity
    # PCA needs as many rows as directions; with fewer, any of the inputs will do.
    narrow: Linear = means.pca(h, width) if width <= min(h.shape) else means.pad(dim, width)
    return narrow if width < dim else means.pad(dim, width)
