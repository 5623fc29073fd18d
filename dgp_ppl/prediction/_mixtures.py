"""The passes of a prediction: their distributions of y, block by block, and the units of y."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from dgp_ppl._checks import as_array, is_traced, warn_of_nan
from dgp_ppl._partition import CallArrays
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.inference import Chains
from dgp_ppl.inference.runs._pickling import Portable
from dgp_ppl.inference.runs._summary import Summarized
from dgp_ppl.likelihoods import Mixture
from dgp_ppl.prediction._arrays import block, namespace, to_host
from dgp_ppl.prediction._passes import ForwardPass, predictive_passes
from dgp_ppl.standardize import Standardizer

_MAX_CACHED = 20_000_000  # numbers in the mixtures that a `Prediction` keeps between calls


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PassMixtures(Summarized, Portable):
    """The mixture of S distributions of y at each of N inputs; see `Prediction` for its queries."""

    key: PRNGKey
    forward_pass: ForwardPass
    params: Params
    data: CallArrays
    by_row: CallArrays
    x: Array
    draws: dict[str, Any]
    num_samples: int
    chunk_size: int
    standardizer: Standardizer | None = None
    chains: Chains | None = None
    num_noise: int | None = None  # so many random keys, which the passes take in turn; None: S
    _cache: dict[Any, Any] = dataclasses.field(default_factory=dict)

    left_out: ClassVar[tuple[str, ...]] = ("_cache",)

    def summary(self) -> list[str]:
        units = "the model's units" if self.standardizer is None else "the data's units"
        inputs = f"{len(self.x)} inputs {list(self.x.shape)}"
        what = "f" if self.forward_pass.latent else "y"
        return [f"{what} at {inputs}, a mixture of {self.num_samples} distributions, in {units}"]

    def components(self) -> Iterator[tuple[slice, Mixture]]:
        """Iterate over the distributions of y in the model's units: rows, and their S mixtures.

        The mixtures are stacked as by `jax.vmap`: the leading axis of every leaf is S. Use
        `jax.vmap` to apply a function of one mixture. The last chunk is padded to full length by
        repeating its last row.
        """
        size, total = self.chunk_size, len(self.x)
        num = self.num_noise or self.num_samples
        spread, passes = (self.key, np.arange(num) / num), np.arange(self.num_samples) % num
        rows = jax.tree.map(lambda a, own: to_host(a, None) if own else a, self.data, self.by_row)
        inputs = to_host(self.x, None)
        for start in range(0, total, size):
            mixtures = self._cache.get(start)
            if mixtures is None:
                chunk = lambda a, own: block(a, start, size) if own else a  # noqa: B023, E731
                data, x = jax.tree.map(chunk, rows, self.by_row), block(inputs, start, size)
                mixtures = predictive_passes(
                    self.forward_pass, spread, passes, self.draws, self.params, data, x, start
                )
                numbers = sum(a.size for a in jax.tree.leaves(mixtures))
                if numbers * -(-total // size) <= _MAX_CACHED and not is_traced(mixtures):
                    self._cache[start] = mixtures
            yield slice(start, min(start + size, total)), mixtures

    def _map(self, function: Callable[..., Array], *arrays: Any, with_row: bool = False) -> Any:
        """Apply a function of mixtures and arrays' rows, chunk by chunk, on the host.

        `with_row` passes the number of the chunk's first row as the last argument.
        """
        values = []
        for rows, mixtures in self.components():
            chunk = [block(a, rows.start, self.chunk_size) for a in arrays]
            if with_row:
                chunk.append(jnp.asarray(rows.start))
            found = to_host(function(mixtures, *chunk))
            values.append(found[: rows.stop - rows.start])
        result = namespace(values).concatenate(values)
        warn_of_nan("predict", {self.forward_pass.site: result})
        return result

    def _scales(self, outputs: tuple[int, ...]) -> bool:
        """Return whether the units of y are those of f with these outputs."""
        scale = self.standardizer
        if scale is None or not scale.scales_targets or np.shape(scale.y_scale) == outputs:
            return True
        # One scale may serve several outputs of y.
        return next(self.components())[1].components.event_shape == outputs

    def _shaped(self, caller: str, y: ArrayLike) -> Any:
        """Return y as an array with the shape of the targets, one row per input."""
        array = to_host(as_array(caller, "y", y), None)
        wanted = (len(self.x), *next(self.components())[1].components.event_shape)
        if array.shape != wanted:
            hint = "; pass y[:, 0]" if array.shape == (*wanted, 1) else ""
            raise ValueError(
                f"{caller}: y has shape {array.shape}, wanted {wanted}: one row for each of "
                f"{len(self.x)} inputs{hint}"
            )
        return array

    def _standardized(self, y: Any) -> Any:
        scale = self.standardizer
        if scale is None or not scale.scales_targets:
            return y  # keeps classes and counts integers
        return (to_host(y) - scale.y_loc) / scale.y_scale

    @property
    def _y_scale(self) -> float | np.ndarray:
        return 1.0 if self.standardizer is None else self.standardizer.y_scale

    def _original(self, y: ArrayLike) -> np.ndarray:
        return to_host(y, None) if self.standardizer is None else self.standardizer.original(y)
