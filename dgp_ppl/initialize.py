"""Starting values of a fit: inducing inputs, lengthscales, mean functions and latent inputs.

`deep_gp` and `gplvm` return arguments for the models of the same names. Every random function takes
a key.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro import handlers

from dgp_ppl import means
from dgp_ppl._checks import (
    as_array,
    check_count,
    check_flags,
    check_inputs,
    check_key,
    check_positive,
    checked_call,
)  # fmt: skip
from dgp_ppl._partition import CallArrays, Partition, alone, compiled
from dgp_ppl._typing import Inputs, Model, Params, PRNGKey
from dgp_ppl.datasets import Rows
from dgp_ppl.means import Linear

__all__ = [
    "deep_gp", "gplvm", "inducing_inputs", "nearest_rows", "shorter_lengthscales", "some_rows",
]  # fmt: skip

_KMEANS_ROWS = 20_000  # of k-means; also all rows of a source that are used


def inducing_inputs(key: PRNGKey, x: ArrayLike | Rows, num: int) -> Float[Array, "M D"]:
    """Place inducing inputs at k-means centroids of the inputs.

    k-means runs on at most 20,000 random rows; only these are taken from a source of rows. If x
    has no more than `num` distinct rows, the result contains all of them, and draws from a normal
    with the mean and standard deviation of x.

    >>> import numpy as np
    >>> from jax import random
    >>> from dgp_ppl import initialize
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> initialize.inducing_inputs(random.key(0), x, 5).shape
    (5, 2)

    Args:
        key: random key.
        x: inputs, [N, D], or a source of rows, whose first array they are.
        num: number of inducing inputs M.

    Returns:
        Inducing inputs in the units of x, [M, D].

    Raises:
        DataError: if x has NaN or infinity.
        TypeError: if `key` is no random key, x holds no numbers, or `num` is not an integer.
        ValueError: if `num` is not positive, or x is not [N, D] with N >= 1.
    """
    from sklearn.cluster import KMeans

    check_key("inducing_inputs", key)
    x = some_rows(key, x)
    x = np.asarray(check_inputs("inducing_inputs", x), float)
    if x.ndim != 2 or not len(x):
        raise ValueError(f"inducing_inputs: x has shape {x.shape}, wanted [N, D] with N >= 1")
    check_count("inducing_inputs", "num", num)
    seed = int(random.randint(key, (), 0, np.iinfo(np.int32).max))
    rng = np.random.default_rng(seed)
    if len(x) > _KMEANS_ROWS:
        x = x[rng.choice(len(x), _KMEANS_ROWS, replace=False)]
    distinct = np.unique(x, axis=0)
    if len(distinct) > num:
        kmeans: Any = KMeans(num, random_state=seed)  # one start of k-means++
        centres = kmeans.fit(x).cluster_centers_
    else:
        spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
        extra = rng.standard_normal((num - len(distinct), x.shape[1]))
        centres = np.concatenate([distinct, x.mean(axis=0) + spread * extra])
    return jnp.asarray(centres, float)


def deep_gp(
    key: PRNGKey,
    x: Inputs | Rows,
    *,
    num_inducing: int = 100,
    depth: int = 2,
    width: int | None = None,
    skip: bool = False,
) -> dict[str, Any]:
    """Choose inducing inputs and mean functions for `models.deep_gp`.

    The first layer's inducing inputs are k-means centroids of x. The mean functions of the layers
    before map them to the inducing inputs of a deeper layer. A hidden layer's mean function is the
    identity if the layer keeps the width, PCA if it narrows, and zero padding if it widens. The
    last mean function is zero.

    >>> import numpy as np
    >>> from jax import random
    >>> from dgp_ppl import initialize
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> kwargs = initialize.deep_gp(random.key(0), x, num_inducing=5, depth=2, width=2)
    >>> [z.shape for z in kwargs["z"]], len(kwargs["mean"])
    ([(5, 3), (5, 2)], 2)

    Args:
        key: random key of the k-means.
        x: standardised training inputs, [N, D], or a source of rows, whose first array they are.
            Of a source 20,000 random rows are used, which one pass reads.
        num_inducing: number of inducing inputs M of every layer.
        depth: number of GP layers L.
        width: number of outputs of the hidden layers; None takes min(30, D).
        skip: whether layers after the first also receive x. Mean functions ignore it.

    Returns:
        Keyword arguments of `models.deep_gp`: ``z`` and ``mean``, a tuple of L each, and
        ``skip`` if it is True.

    Raises:
        DataError: if x has NaN or infinity.
        TypeError: if `key` is no random key, x holds no numbers, or `num_inducing`, `depth` or
            `width` is not an integer.
        ValueError: if one of them is not positive.

    Source: Salimbeni & Deisenroth (2017), section 5.
    """
    check_key("initialize.deep_gp", key)
    inputs = some_rows(key, x)
    inputs = check_inputs("initialize.deep_gp", inputs)
    if inputs.ndim != 2:
        raise ValueError(f"initialize.deep_gp: x has shape {inputs.shape}, wanted [N, D]")
    check_count("initialize.deep_gp", "depth", depth)
    check_flags("initialize.deep_gp", skip=skip)
    if width is not None:
        check_count("initialize.deep_gp", "width", width)
    width = min(30, inputs.shape[1]) if width is None else width
    h, z = inputs, [inducing_inputs(key, inputs, num_inducing)]
    mean_functions = []
    for layer in range(depth - 1):
        if skip and layer:
            mean: Any = means.pad(width + inputs.shape[1], width)
        else:
            mean = _mean_function(h, width)
        mean_functions.append(mean)
        h, z_next = mean(h), mean(z[-1])
        if skip:
            h, z_next = (
                jnp.concatenate([h, inputs], axis=1),
                jnp.concatenate([z_next, z[0]], axis=1),
            )
        z.append(z_next)
    kwargs = {"z": tuple(z), "mean": (*mean_functions, means.zero)}
    return kwargs | ({"skip": True} if skip else {})


def gplvm(
    key: PRNGKey,
    y: ArrayLike,
    dim: int,
    *,
    x: Inputs | None = None,
    num_inducing: int = 100,
    depth: int = 1,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Start `models.gplvm` with latent inputs at the principal components of y.

    >>> import numpy as np
    >>> from jax import random
    >>> from dgp_ppl import initialize
    >>> y = np.random.default_rng(0).normal(size=(20, 4))
    >>> kwargs, start = initialize.gplvm(random.key(0), y, dim=2, num_inducing=5)
    >>> start["latent_auto_loc"].shape
    (20, 2)

    Then call ``fit(key, models.gplvm, guide, x, y, start=start, out=P, **kwargs)``.

    Args:
        key: random key of the k-means.
        y: centred targets, [N, P] or [N], with missing entries set to 0.
        dim: number of latent inputs Q.
        x: known inputs, [N, D]. With them, they are the principal components of the residuals of
            a linear regression of y on x.
        num_inducing: number of inducing inputs M of every layer.
        depth: number of GP layers. Hidden layers have as many outputs as the first has inputs.

    Returns:
        Keyword arguments of `models.gplvm`, and starting params of the guide:
        ``latent_auto_loc``, [N, Q], with unit variance like the prior.

    Raises:
        TypeError: if `dim` is not an integer.
        ValueError: if `dim` is not positive, y is not [N, P] or not finite, or y has fewer than Q
            rows or columns.
    """
    check_key("gplvm", key)
    y = np.asarray(as_array("initialize.gplvm", "y", y), np.float64)
    check_count("initialize.gplvm", "dim", dim)
    if y.ndim not in (1, 2) or not len(y):
        raise ValueError(f"initialize.gplvm: y has shape {y.shape}, wanted [N, P] or [N], N >= 1")
    if not np.isfinite(y).all():
        raise ValueError("initialize.gplvm: y is not finite everywhere; fill missing entries by 0")
    y = y.reshape(len(y), -1)
    known = as_array("initialize.gplvm", "x", np.zeros((len(y), 0)) if x is None else x)
    if known.shape[:1] != y.shape[:1]:
        raise ValueError(f"initialize.gplvm: x has shape {known.shape}, wanted ({len(y)}, D)")
    if not np.isfinite(known).all():
        raise ValueError("initialize.gplvm: x is not finite everywhere, wanted known inputs")
    if dim > min(y.shape):
        raise ValueError(
            f"initialize.gplvm: y of shape {y.shape} has no {dim} principal components; wanted dim "
            f"at most {min(y.shape)}"
        )
    from sklearn.decomposition import PCA

    design = np.c_[known, np.ones(len(y))]
    residuals = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    components = PCA(dim, whiten=True, svd_solver="full").fit_transform(residuals)
    latent, inputs = (jnp.asarray(a, float) for a in (components, np.c_[known, components]))
    width = inputs.shape[1]
    kwargs = deep_gp(key, inputs, num_inducing=num_inducing, depth=depth, width=width)
    return kwargs, {"latent_auto_loc": latent}


def mixing(y: ArrayLike, num: int) -> np.ndarray:
    """Return the initial W of `models.deep_gp(mixing=W)`: the principal components of y, [P, num].

    >>> import numpy as np
    >>> from dgp_ppl import initialize
    >>> shared = np.random.default_rng(0).normal(size=100)
    >>> W = initialize.mixing(np.stack([shared, -shared, 2 * shared], axis=1), 1)
    >>> W.shape, bool(np.allclose(W[1:] / W[0], [[-1], [2]]))
    ((3, 1), True)

    A column of W times a function of variance 1 has the variance of its component.

    Args:
        y: targets, [N, P]; of a column, NaN counts as the mean of the others.
        num: number of latent functions Q.

    Raises:
        ValueError: if y is not [N, P], has infinity or a column of NaN alone, or `num` is more than
            N or P.
    """
    y = np.asarray(as_array("initialize.mixing", "y", y), float)
    check_count("initialize.mixing", "num", num)
    if y.ndim != 2 or num > min(y.shape):
        raise ValueError(
            f"initialize.mixing: y has shape {y.shape}, wanted [N, P] with N, P >= num={num}"
        )
    if np.isinf(y).any() or np.isnan(y).all(axis=0).any():
        raise ValueError(
            "initialize.mixing: y has infinity, or a column of NaN alone, wanted numbers in each "
            "column: leave it out"
        )
    from sklearn.decomposition import PCA

    mean = np.nanmean(y, axis=0)
    found = PCA(num, svd_solver="full").fit(np.where(np.isnan(y), mean[None], y))
    return (np.sqrt(found.explained_variance_)[:, None] * found.components_).T


def nearest_rows(y_new: ArrayLike, seen: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Find, for each new row, the training row that is nearest in the observed entries.

    A new row's latent inputs have a good start at the latent inputs of its nearest training row.

    >>> import numpy as np
    >>> from dgp_ppl import initialize
    >>> y = np.array([[0.0, 0.0], [1.0, 5.0]])
    >>> seen = np.array([[True, False]])
    >>> initialize.nearest_rows(np.array([[0.9, np.nan]]), seen, y).tolist()
    [1]

    Args:
        y_new: new rows, [N*, P]. Values of missing entries are ignored.
        seen: True where an entry of y_new was observed, [N*, P].
        y: complete rows, [N, P].

    Returns:
        Row numbers of y, [N*].

    Raises:
        ValueError: if the shapes do not fit, or an entry that counts is not finite.
    """
    given = {"y_new": y_new, "seen": seen, "y": y}
    y_new, seen, y = (np.asarray(as_array("nearest_rows", n, a)) for n, a in given.items())
    seen, y = seen.astype(bool), y.astype(np.float64)
    if y.ndim != 2 or not len(y) or seen.shape != y_new.shape or seen.shape[1:] != y.shape[1:]:
        raise ValueError(
            f"nearest_rows: y_new, seen and y have shapes {y_new.shape}, {seen.shape} and "
            f"{y.shape}, wanted [N*, P], [N*, P] and [N, P], N >= 1"
        )
    observed = np.where(seen, y_new, 0.0)
    if not (np.isfinite(observed).all() and np.isfinite(y).all()):
        raise ValueError("nearest_rows: y, or an entry of y_new where seen is True, is not finite")
    centre: np.ndarray = y.mean(axis=0)  # far from 0, squares have no digits for differences
    observed, y = np.where(seen, observed - centre, 0.0), np.subtract(y, centre)
    # |y_new - y|² over the observed entries, without a term that is the same for all rows of y.
    distance = seen @ np.square(y).T - 2 * observed @ y.T
    return np.argmin(distance, axis=1)


def shorter_lengthscales(
    model: Model, x: ArrayLike | Rows, *args: Any, factor: float = 0.25, **kwargs: Any
) -> Params:
    """Return a model's initial lengthscales times a factor, another start for a fit to try.

    On some data a deep GP stays in an optimum with long lengthscales, on others in one with short
    ones. `fit` chooses among several starts: ``fit(..., start=[{}, shorter])``.

    >>> import jax.numpy as jnp
    >>> from dgp_ppl import initialize, models
    >>> x = jnp.zeros((5, 4))
    >>> shorter = initialize.shorter_lengthscales(models.deep_gp, x, z=(x, x))
    >>> {name: (a.shape, float(a.max())) for name, a in shorter.items()}
    {'l1.lengthscale': ((4, 4), 0.5), 'l2.lengthscale': ((4,), 0.5)}

    Args:
        model: a NumPyro model.
        x: inputs, [N, D], or a source of rows, whose first array they are; one row will do.
        *args: more of the model's positional arguments.
        factor: number that multiplies the lengthscales, positive.
        **kwargs: the model's keyword arguments.

    Returns:
        The params whose names end in ``lengthscale``; none if the model has none.

    Raises:
        DataError: if x has NaN or infinity.
        TypeError: if x holds no numbers.
        ValueError: if `factor` is not a positive number.
    """
    check_positive("shorter_lengthscales", "factor", factor)
    inputs = x.take(range(1))[0] if isinstance(x, Rows) else x
    inputs = check_inputs("shorter_lengthscales", inputs)
    call = checked_call("shorter_lengthscales", model, None, (inputs, *args), kwargs)
    partition, arrays = Partition.split(model, call)
    with alone():
        found = _lengthscales(partition, arrays)
    return {name: factor * value for name, value in found.items()}


@partial(compiled, static_argnums=0)  # computes the lengthscales alone
def _lengthscales(partition: Partition, arrays: CallArrays) -> Params:
    """Return the initial lengthscales of a model that are params."""
    trace = handlers.trace(handlers.seed(partition.model, 0))
    args, kwargs = partition.join(arrays)
    return {
        name: site["value"]
        for name, site in trace.get_trace(*args, **kwargs).items()
        if site["type"] == "param" and name.endswith("lengthscale")
    }


def some_rows(key: PRNGKey, x: Any) -> Any:
    """Return 20,000 random rows of a source's inputs, or all if it has fewer.

    Args:
        key: random key.
        x: a source of rows, whose first array they are; or an array, which is returned as it is.

    Raises:
        TypeError: if `key` is no random key.
    """
    check_key("some_rows", key)
    return jnp.asarray(x.sample(key, _KMEANS_ROWS)[0], float) if isinstance(x, Rows) else x


def _mean_function(h: Inputs, width: int) -> Any:
    """Return the mean function of a hidden layer with inputs h."""
    dim = h.shape[1]
    if width == dim:
        return means.identity
    # PCA needs at least `width` rows. With fewer, keep the first columns instead.
    narrow: Linear = means.pca(h, width) if width <= min(h.shape) else means.pad(dim, width)
    return narrow if width < dim else means.pad(dim, width)
