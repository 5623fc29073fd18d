"""Groups of an ArviZ tree: names, labels, units, and rows that are missing."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dgp_ppl.inferencedata._log_likelihood import PointwiseResult
from dgp_ppl.inferencedata._sites import Sites
from dgp_ppl.standardize import Standardizer

__all__ = ["Names"]

_UNITS = {"loss": "nats", "lp": "nats", "log_q": "nats", "log_weight": "nats"}


@dataclasses.dataclass(frozen=True)
class Names:
    """Names, labels and units of what goes into a tree."""

    sites: Sites
    coords: dict[str, Any]
    units: dict[str, str]
    scale: Standardizer
    site: str

    @property
    def latent(self) -> dict[str, tuple[str, ...]]:
        """Dimensions of latent sites."""
        return self.sites.latent

    def dataset(
        self,
        values: Mapping[str, np.ndarray],
        dims: Mapping[str, tuple[str, ...]],
        *,
        sampled: bool = True,
        coords: Mapping[str, Any] | None = None,
    ) -> Any:
        """A group, with labels of the dimensions that it has and units of its variables."""
        from arviz_base import dict_to_dataset

        named = {n.replace("/", "."): a for n, a in values.items()}
        along = {n.replace("/", "."): [d.replace("/", ".") for d in own] for n, own in dims.items()}
        along = {n: own for n, own in along.items() if n in named}
        used = {d for own in along.values() for d in own}
        if len(named) < len(values):
            raise ValueError(
                f"to_inferencedata: sites {sorted(values)} have the same name when '/' is '.', as "
                "files need it; rename one of them"
            )
        labels = {d: c for d, c in {**self.coords, **(coords or {})}.items() if d in used}
        self._check_labels(labels, named, along, 2 if sampled else 0)
        skipped = ["chain", "draw"] if sampled else []
        build: Any = dict_to_dataset
        dataset: Any = build(named, dims=along, coords=labels, sample_dims=skipped)
        for name, variable in dataset.data_vars.items():
            unit = self.units.get(name, _UNITS.get(name))
            if name.endswith(".v") and unit is None:
                unit = "prior standard deviations (whitened)"
            if unit is not None:
                variable.attrs["units"] = unit
        return dataset

    def _check_labels(
        self,
        labels: Mapping[str, Any],
        values: Mapping[str, np.ndarray],
        along: Mapping[str, list[str]],
        before: int,
    ) -> None:
        for name, dims in along.items():
            sizes = dict(zip(dims, values[name].shape[before:], strict=False))
            for dim, size in sizes.items():
                if dim in labels and len(labels[dim]) != size:
                    raise ValueError(
                        f"to_inferencedata: coords has {len(labels[dim])} labels of {dim!r}, "
                        f"wanted {size}, as {name!r} has along it"
                    )

    def original(self, name: str, y: np.ndarray) -> np.ndarray:
        """In the data's units; float32 stays so where it can tell them apart."""
        if name != self.site or (self.scale.y_loc, self.scale.y_scale) == (0.0, 1.0):
            return y
        far = abs(self.scale.y_loc) > 1e3 * self.scale.y_scale
        dtype = np.dtype(np.float64) if far else y.dtype
        y = y.astype(dtype) * dtype.type(self.scale.y_scale)
        y += dtype.type(self.scale.y_loc)
        return y

    def data_groups(
        self, said: dict[str, PointwiseResult], given: Any = None, *, checked: bool = True
    ) -> dict[str, Any]:
        """The groups ``predictive``, ``log_likelihood`` and ``observed``.

        `given` is the standardised site's value in the data's units, to the last digit.
        """
        predictive, likely, observed, coords = {}, {}, {}, {}
        dims: dict[str, tuple[str, ...]] = {}
        for name, own in said.items():
            along, seen = self.sites.data[name], own.seen
            events = self.sites.event_dims[name]
            rows = len(along) - events
            y = self.original(name, own.draws)
            value = None if own.value is None else self.original(name, np.asarray(own.value))
            if value is not None and name == self.site and given is not None:
                value = np.asarray(given)
            likelihood = own.log_likelihood
            if value is not None and likelihood is not None:
                if checked:
                    self._check(name, value, likelihood, seen)
                if name == self.site and self.scale.y_scale != 1.0:
                    each = np.broadcast_to(
                        seen.reshape(seen.shape + (1,) * (value.ndim - seen.ndim)), value.shape
                    ).sum(axis=tuple(range(rows, value.ndim)))
                    moved = each * math.log(self.scale.y_scale)
                    likelihood = likelihood - moved.astype(likelihood.dtype)
            kept = seen
            if seen.ndim > rows:  # entries of rows of several
                if value is not None and not seen.all():
                    value = np.where(seen, value, np.nan)
                kept = seen.any(axis=-1)
            if not kept.all():
                labels = self._labels(along[:rows], kept.shape)
                coords |= {f"{name}.seen": labels[kept], f"{name}.missing": labels[~kept]}
                predictive[f"{name}_missing"] = y[:, :, ~kept]
                dims[f"{name}_missing"] = (f"{name}.missing", *along[rows:])
                y, along = y[:, :, kept], (f"{name}.seen", *along[rows:])
                value = None if value is None else value[kept]
                likelihood = None if likelihood is None else likelihood[:, :, kept]
            dims[name] = along
            predictive[name] = y
            if value is not None:
                observed[name] = value
            if likelihood is not None:
                likely[name] = likelihood
        row_dims = {n: dims[n][: a.ndim - 2] for n, a in likely.items()}
        found = {
            "predictive": self.dataset(predictive, dims, coords=coords),
            "log_likelihood": self.dataset(likely, row_dims, coords=coords),
            "observed": self.dataset(observed, dims, sampled=False, coords=coords),
        }
        for name, variable in found["log_likelihood"].data_vars.items():
            error = float(np.sqrt(np.mean(np.square(said[name].error))))
            variable.attrs.update({"units": "nats", "noise_error": error})
        return found

    def _labels(self, along: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        """Of rows; of the cells of several dimensions their places in order."""
        if len(shape) == 1 and along[0] in self.coords:
            return np.asarray(self.coords[along[0]])
        return np.arange(math.prod(shape)).reshape(shape)

    def _check(
        self, name: str, value: np.ndarray, likelihood: np.ndarray, seen: np.ndarray
    ) -> None:
        """Refuse what is no number: NumPyro has log p = -inf for a NaN."""
        bad = np.isnan(likelihood).any(axis=(0, 1))
        every = seen.reshape(seen.shape + (1,) * (value.ndim - seen.ndim))
        gone = np.isnan(value) & every
        bad = bad | gone.any(axis=tuple(range(bad.ndim, gone.ndim)))
        if bad.any():
            raise ValueError(
                f"to_inferencedata: {name!r} or its log-likelihood is not a number in "
                f"{int(bad.sum())} of {bad.size} rows, the first of them {np.argwhere(bad)[0]}; if "
                "values are missing, pass observe(..., mask=) to the model"
            )

    def inputs(self, args: tuple[Any, ...], rows: str, *, with_y: bool = False) -> Any:
        """The group of x, and of y where it is no observed data."""
        values: dict[str, Any] = {}
        if args and args[0] is not None:
            values["x"] = np.asarray(args[0])
        if with_y and len(args) > 1 and args[1] is not None:
            values[self.site] = np.asarray(args[1])
        values = {n: a for n, a in values.items() if a.ndim}
        last = {"x": "input", self.site: "output"}
        dims = {n: (rows, last[n])[: a.ndim] for n, a in values.items() if a.ndim < 3}
        return self.dataset(values, dims, sampled=False)

    def predictions(self, said: dict[str, PointwiseResult]) -> Any:
        """The group ``predictions``: draws of held-out rows."""
        values = {n: self.original(n, own.draws) for n, own in said.items()}
        dims = {n: ("test", *self.sites.data[n][1:]) for n in values}
        return self.dataset(values, dims)
