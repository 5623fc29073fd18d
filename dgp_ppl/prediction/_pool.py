"""Predictions of several fits, mixed with equal weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from dgp_ppl._checks import check_kind, is_traced
from dgp_ppl._typing import PRNGKey
from dgp_ppl.likelihoods import Mixture
from dgp_ppl.prediction._arrays import namespace
from dgp_ppl.prediction._prediction import Prediction
from dgp_ppl.standardize import Standardizer


def pool(predictions: Prediction | Sequence[Prediction]) -> PooledPrediction:
    """Mix the predictions of several fits of a model at the same inputs, with equal weights.

    Fits with different keys find different optima. Their mixture has a higher log density than a
    single fit on average (Lakshminarayanan et al. 2017)::

        fits = [dgp.fit(k, model, guide, x, y, z=z, steps=3000) for k in random.split(key, 4)]
        one = lambda fit: dgp.predict(key, model, guide, fit.params, x_test, z=z)
        dgp.pool([one(fit) for fit in fits]).log_prob(y_test)

    Args:
        predictions: one or more predictions with the same inputs, number of passes and
            standardizer. A pool among them counts as its members.

    Raises:
        TypeError: if an entry is not a `Prediction`.
        ValueError: if there is none, or they differ in one of these.
    """
    kinds, wanted = Prediction | Iterator | list | tuple, "one or more Predictions"
    check_kind("pool", "predictions", predictions, kinds, wanted)
    entries = [predictions] if isinstance(predictions, Prediction) else list(predictions)
    for i, entry in enumerate(entries):
        check_kind("pool", f"predictions[{i}]", entry, Prediction, "a Prediction, as predict makes")
    members = [m for e in entries for m in (e.members if isinstance(e, PooledPrediction) else (e,))]
    if not members:
        raise ValueError("pool: predictions is empty, wanted at least one Prediction")
    first = members[0]
    for i, other in enumerate(members):
        if other.num_samples != first.num_samples:
            raise ValueError(
                f"pool: predictions[{i}] has {other.num_samples} passes and predictions[0] "
                f"{first.num_samples}, wanted the same number, for equal weights; see num_samples "
                "of predict"
            )
        # The values of traced inputs are not known yet.
        known = not is_traced(other.x, first.x)
        if other.x.shape != first.x.shape or (known and not (other.x == first.x).all()):
            raise ValueError(
                f"pool: predictions[{i}] has other inputs than predictions[0], of shapes "
                f"{other.x.shape} and {first.x.shape}, wanted the same rows of x"
            )
        if not _same(other.standardizer, first.standardizer):
            raise ValueError(
                f"pool: predictions[{i}] has another standardizer than predictions[0], wanted fits "
                "of the same standardized target"
            )
    size = min(m.chunk_size for m in members)
    names = [f.name for f in dataclasses.fields(Prediction) if f.name != "_cache"]
    shared: dict[str, Any] = {name: getattr(first, name) for name in names}
    shared["chunk_size"], shared["num_samples"] = size, sum(m.num_samples for m in members)
    same_chunks = (
        m if m.chunk_size == size else dataclasses.replace(m, chunk_size=size, _cache={})
        for m in members
    )
    return PooledPrediction(**shared, members=tuple(same_chunks))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PooledPrediction(Prediction):
    """A mixture of equal weights; its params, key and draws belong to the first of its members."""

    members: tuple[Prediction, ...] = dataclasses.field(default=(), repr=False)

    def components(self) -> Iterator[tuple[slice, Mixture]]:
        """Iterate over the distributions of y in the model's units: rows, and their S mixtures."""
        for parts in zip(*(m.components() for m in self.members), strict=True):
            mixtures = [mixture for _, mixture in parts]
            if len({jax.tree.structure(m) for m in mixtures}) > 1:
                kinds = ", ".join(sorted({type(m.entries).__name__ for m in mixtures}))
                raise TypeError(
                    f"pool: predictions have several distributions (of {kinds}), wanted fits of "
                    "one likelihood, and of one model if its likelihood has no closed form"
                )
            yield parts[0][0], jax.tree.map(lambda *a: jnp.concatenate(a), *mixtures)

    @property
    def f(self) -> Prediction:
        """The prediction of the latent function; see `Prediction.f`."""
        members = tuple(m.f for m in self.members)
        scale = members[0].standardizer
        return dataclasses.replace(self, members=members, standardizer=scale, _cache={})

    def function_draws(
        self, key: PRNGKey, num: int = 10, mode: Literal["joint", "path"] = "joint"
    ) -> np.ndarray:
        """Draw the latent function f jointly at all inputs, [num, N] or [num, N, P].

        Draw i is of member i modulo their number. See `Prediction.function_draws`.
        """
        if num == 0:
            return self.members[0].function_draws(key, 0, mode)
        R = len(self.members)
        keys = random.split(key, R)
        counts = [len(range(r, num, R)) for r in range(R)]
        draws = [
            m.function_draws(k, n, mode) if n else np.empty(0)
            for m, k, n in zip(self.members, keys, counts, strict=True)
        ]
        return namespace(draws).stack([draws[i % R][i // R] for i in range(num)])


def _same(a: Standardizer | None, b: Standardizer | None) -> bool:
    if a is None or b is None:
        return a is b
    names = [f.name for f in dataclasses.fields(a)]
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in names)
