"""A data set in `compare`: which methods fit it, and which rows are in which split."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dgp_ppl import datasets
from dgp_ppl._checks import check_count
from dgp_ppl._errors import DataError
from dgp_ppl.comparison._method import METHODS, methods_for
from dgp_ppl.datasets import Dataset, Preprocessor
from dgp_ppl.datasets._source import RowSource, TableSource

_DEFAULT_METHODS = ("sgpr", "dsvi", "dspp")
_DEFAULT_SPLITS = 3
_ROWS_IN_MEMORY = 20_000  # so few rows of a source are read whole

Source = Dataset | TableSource | RowSource


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """One split of a data set.

    The inputs of a table are made at the first access to `data`; so splits that wait take no
    memory, and go to a worker without their inputs.
    """

    source: Source
    preprocessor: Preprocessor | None  # of a table, fitted to the training rows
    index: int
    train: np.ndarray | None  # numbers of the rows; None for all rows but the test rows
    test: np.ndarray
    labels: np.ndarray | None = None  # of the groups of all rows, which stay on one side

    @cached_property
    def data(self) -> Dataset | RowSource:
        if isinstance(self.source, TableSource):
            assert self.preprocessor is not None
            return self.source.dataset(self.preprocessor)
        return self.source

    def __getstate__(self) -> dict[str, Any]:
        return {n: value for n, value in self.__dict__.items() if n != "data"}

    def training(self, batch: int) -> tuple[Any, Any]:
        """Return the training data: x and y; or a source of more rows than that, and None."""
        if not isinstance(self.data, RowSource):
            return self.data.x[self.train], self.data.y[self.train]
        rows = self.data.rows.without(self.test)
        if len(rows) > max(batch, _ROWS_IN_MEMORY):
            return rows, None
        x, y = rows.take(range(len(rows)))
        return x, y

    def held_out(self) -> tuple[np.ndarray, ...]:
        if isinstance(self.data, RowSource):
            return self.data.rows.take(self.test)
        return self.data.x[self.test], self.data.y[self.test]


def chosen_methods(source: Source, methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return the methods of a comparison; raise if some cannot fit the source."""
    streams = isinstance(source, RowSource)
    found = methods_for(source.task, _DEFAULT_METHODS if methods is None else methods, streams)
    if methods is None or found == tuple(methods):
        return found
    refused = [m for m in methods if m not in found]
    if any(m not in methods_for(source.task, methods) for m in refused):
        why = f"need Gaussian noise, and the target of {source.name} is classes ({source.task})"
    else:
        why = f"need all rows in memory, and the rows of {source.name} are read block by block"
    able = ", ".join(methods_for(source.task, tuple(METHODS), streams))
    raise DataError(f"compare: methods has {refused}, which {why}; wanted some of {able}")


def split_numbers(splits: Any) -> list[int]:
    """Return the numbers of the splits, from their number or from themselves."""
    if isinstance(splits, bool | str | float) or not np.iterable(splits):
        check_count("compare", "splits", splits)
        return list(range(int(splits)))
    try:
        numbers = [operator.index(s) for s in splits]
    except TypeError:
        numbers = []
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise DataError(
            f"compare: splits is {splits}, wanted a number of splits, or the numbers of different "
            "splits, from 0"
        )
    return numbers


def divided(
    source: Source, splits: Sequence[int] | None, seed: int, groups: str | None = None
) -> list[Split]:
    """Return the splits with these numbers; None stands for the first ones."""
    labels = None if groups is None else _labels(source, groups)
    if isinstance(source, RowSource):
        return [Split(source, None, s, None, source.test_rows(seed, s)) for s in splits or [0]]
    if splits is None:
        own = source.test_index
        splits = range(_DEFAULT_SPLITS if own is None else min(_DEFAULT_SPLITS, len(own)))
    found = datasets.splits(source, max(splits) + 1, seed, labels)
    fit = source.fit if isinstance(source, TableSource) else lambda train: None
    return [Split(source, fit(found[s][0]), s, *found[s], labels) for s in splits]


def _labels(source: Source, groups: str) -> np.ndarray:
    """Return numbers that rows of one group share, [N, K]: of a column, or of all inputs."""
    columns, names = {}, []
    if isinstance(source, TableSource):
        cells = source.whole.take(source.rows).columns
        columns = {n: c for n, c in cells.items() if n != source.target}
        names = [n for n in columns if n not in source.drop]
    if isinstance(source, RowSource) or (groups != "inputs" and groups not in columns):
        known = ", ".join(["inputs", *columns])
        fault = f"wanted one of {known}, of rows that are not read block by block"
        raise DataError(f"compare: groups is {groups!r}, {fault}")
    if isinstance(source, Dataset):
        return source.x
    found = np.column_stack([columns[n].values for n in ([groups] if groups in columns else names)])
    return np.where(np.isnan(found), np.inf, found)  # missing cells are equal
