"""The groups of an ArviZ tree: dimensions, labels, units and missing rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dgp_ppl._partition import Call, named_arrays
from dgp_ppl._typing import Model
from dgp_ppl.inferencedata._log_likelihood import PointwiseResult
from dgp_ppl.inferencedata._loo_bias import correction_variable
from dgp_ppl.inferencedata._sites import ModelSites
from dgp_ppl.standardize import Standardizer

_UNITS = {"loss": "nats", "lp": "nats", "log_q": "nats", "log_weight": "nats"}


def _with_axes(a: np.ndarray, ndim: int) -> np.ndarray:
    """Return an array with axes of length 1 behind its own."""
    return a.reshape(a.shape + (1,) * (ndim - a.ndim))


def _storable(name: str) -> str:
    """Return a name that files can store: they cannot store "/"."""
    return name.replace("/", ".")


@dataclasses.dataclass(frozen=True)
class GroupBuilder:
    """Builds the groups of a tree."""

    sites: ModelSites  # the model's sites
    coords: Mapping[str, Any]  # labels by dimension
    units: Mapping[str, str]  # units by variable
    standardizer: Standardizer  # the training data's
    site: str  # the data site that the standardizer's target is

    def dataset(
        self, values: Mapping[str, np.ndarray], dims: Mapping[str, tuple[str, ...]], *,
        sampled: bool = True, coords: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Build a group of arrays with these `dims`, after chain and draw if `sampled`."""
        from arviz_base import dict_to_dataset

        named = {_storable(n): a for n, a in values.items()}
        named_dims = {_storable(n): list(map(_storable, a)) for n, a in dims.items()}
        named_dims = {n: a for n, a in named_dims.items() if n in named}
        used = {d for a in named_dims.values() for d in a}
        if len(named) < len(values):
            raise ValueError(
                f"to_inferencedata: sites {sorted(values)} have the same name once '/' becomes "
                "'.', wanted different ones; rename one of them"
            )
        labels = {d: c for d, c in {**self.coords, **(coords or {})}.items() if d in used}
        for name, site_dims in named_dims.items():
            sizes = zip(site_dims, named[name].shape[2 if sampled else 0 :], strict=False)
            for dim, size in sizes:
                if dim in labels and len(labels[dim]) != size:
                    raise ValueError(
                        f"to_inferencedata: coords has {len(labels[dim])} labels of {dim!r}, "
                        f"wanted {size}, the size of {name!r} along it"
                    )
        sample_dims = ["chain", "draw"] if sampled else []
        build: Any = dict_to_dataset
        dataset: Any = build(named, dims=named_dims, coords=labels, sample_dims=sample_dims)
        for name, variable in dataset.data_vars.items():
            unit = self.units.get(name, _UNITS.get(name))
            if name.endswith(".v") and unit is None:
                unit = "prior standard deviations (whitened)"
            if unit is not None:
                variable.attrs["units"] = unit
        return dataset

    def original(self, name: str, y: np.ndarray) -> np.ndarray:
        """Return a site's values in the data's units, in float64 if float32 is too coarse."""
        if name != self.site or not self.standardizer.scales_targets:
            return y
        loc, scale = (np.asarray(a) for a in (self.standardizer.y_loc, self.standardizer.y_scale))
        far = (np.abs(loc) > 1e3 * scale).any()
        dtype = np.dtype(np.float64) if far else y.dtype
        y = y.astype(dtype) * scale.astype(dtype)
        y += loc.astype(dtype)
        return y

    def data_groups(
        self, results: dict[str, PointwiseResult], target: Any = None, *, corrected: bool = False
    ) -> dict[str, Any]:
        """Build the groups ``predictive``, ``log_likelihood``, ``observed`` and ``correction``.

        `target` is the standardised site's exact value in its units. NaN raises.
        Log-likelihoods have the correction of LOO's bias by few passes if `corrected`.
        """
        predictive, observed, log_likelihoods, corrections = ({} for _ in range(4))
        attributes: dict[str, dict[str, Any]] = {}
        coords: dict[str, Any] = {}
        dims: dict[str, tuple[str, ...]] = {}
        for name, result in results.items():
            event_ndim = self.sites.event_ndims[name]
            site_dims, seen = self.sites.data_dims[name], result.seen
            row_dims = site_dims[: len(site_dims) - event_ndim]
            y, value = self.original(name, result.draws), result.value
            if value is not None:
                scaled = name == self.site and target is not None
                value = np.asarray(target) if scaled else self.original(name, np.asarray(value))
            log_p, loo, correction = result.log_likelihood, result.loo, None
            if value is not None and log_p is not None:
                self._check(name, value, log_p, seen)
                if name == self.site and self.standardizer.scales_targets:
                    # Change of variables: each observed density of a row subtracts log(y_scale).
                    counted = np.broadcast_to(_with_axes(seen, value.ndim), value.shape)
                    shift = (counted * result.dense * np.log(self.standardizer.y_scale)).sum(
                        axis=tuple(range(log_p.ndim - 2, value.ndim))
                    )
                    log_p = log_p - shift.astype(log_p.dtype)
            attributes[name] = {
                "units": "nats",
                "noise_error": float(np.sqrt(np.mean(np.square(result.error)))),
            }
            if corrected and loo is not None and log_p is not None:
                correction = loo.correction
                log_p = log_p + correction
                attributes[name]["loo_bias"] = loo.total
            kept = seen
            if seen.ndim > len(row_dims):  # a mask of entries
                if value is not None and not seen.all():
                    value = np.where(seen, value, np.nan)
                kept = seen.any(axis=-1)
            if not kept.all():
                labels = self._labels(row_dims, kept.shape)
                coords |= {f"{name}.seen": labels[kept], f"{name}.missing": labels[~kept]}
                event_dims = site_dims[len(row_dims) :]
                predictive[f"{name}_missing"] = y[:, :, ~kept]
                dims[f"{name}_missing"] = (f"{name}.missing", *event_dims)
                row_dims = (f"{name}.seen",)
                site_dims = (*row_dims, *event_dims)
                y, log_p = (None if a is None else a[:, :, kept] for a in (y, log_p))
                value, correction = (None if a is None else a[kept] for a in (value, correction))
            dims |= {name: site_dims, correction_variable(name): row_dims}
            predictive[name] = y
            if value is not None:
                observed[name] = value
            if log_p is not None:
                # ArviZ's Pareto-smoothed weights are NaN where they underflow in float32.
                log_likelihoods[name] = np.asarray(log_p, np.float64)
            if correction is not None:
                corrections[correction_variable(name)] = correction
        row_dims = {n: dims[n][: a.ndim - 2] for n, a in log_likelihoods.items()}
        found = {
            "predictive": self.dataset(predictive, dims, coords=coords),
            "log_likelihood": self.dataset(log_likelihoods, row_dims, coords=coords),
            "observed": self.dataset(observed, dims, sampled=False, coords=coords),
            "correction": self.dataset(corrections, dims, sampled=False, coords=coords),
        }
        for name in log_likelihoods:
            found["log_likelihood"][_storable(name)].attrs.update(attributes[name])
        for variable in found["correction"].data_vars.values():
            variable.attrs["units"] = "nats"
        return found

    def _labels(self, dims: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        """Return the labels of rows, or the flat indices of cells in several dimensions."""
        if len(shape) == 1 and dims[0] in self.coords:
            return np.asarray(self.coords[dims[0]])
        return np.arange(math.prod(shape)).reshape(shape)

    def _check(
        self, name: str, value: np.ndarray, log_likelihood: np.ndarray, seen: np.ndarray
    ) -> None:
        """Raise for NaN. The value is checked too: for a NaN, NumPyro's log p can be -inf."""
        bad = np.isnan(log_likelihood).any(axis=(0, 1))
        missing = np.isnan(value) & _with_axes(seen, value.ndim)
        bad = bad | missing.any(axis=tuple(range(bad.ndim, missing.ndim)))
        if bad.any():
            raise ValueError(
                f"to_inferencedata: {name!r} or its log-likelihood is not a number in "
                f"{int(bad.sum())} of {bad.size} rows, the first at {np.argwhere(bad)[0]}, wanted "
                "numbers; if values are missing, use observe(..., mask=...) in the model"
            )

    def inputs(
        self, args: tuple[Any, ...], model: Model, kwargs: Mapping[str, Any], rows: str, *,
        with_y: bool = False,
    ) -> Any:  # fmt: skip
        """Build the group of x and other arguments of the rows, and with `with_y` of y."""
        num = next((len(a) for a in args[:2] if np.ndim(a)), None)
        others = dict(named_arrays(model, Call((None, None, *args[2:]), dict(kwargs))))
        values: dict[str, Any] = {
            n: np.asarray(a)
            for n, a in others.items()
            if a.shape[:1] == (num,) and n not in ("x", *self.sites.data_dims) and n.isidentifier()
        }
        if args and args[0] is not None:
            values["x"] = np.asarray(args[0])
        if with_y and len(args) > 1 and args[1] is not None:
            values[self.site] = np.asarray(args[1])
        values = {n: a for n, a in values.items() if a.ndim}
        columns = {"x": "input", self.site: "output"}
        dims = {n: (rows, columns.get(n, f"{n}.column")) for n in values}
        dims = {n: dims[n][: a.ndim] for n, a in values.items() if a.ndim < 3}
        return self.dataset(values, dims, sampled=False)

    def predictions(self, results: dict[str, PointwiseResult]) -> Any:
        values = {n: self.original(n, r.draws) for n, r in results.items()}
        dims = {n: ("test", *self.sites.data_dims[n][1:]) for n in values}
        return self.dataset(values, dims)
