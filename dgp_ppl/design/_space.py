"""The inputs of a study: intervals, ordered levels and categories, and their place in a unit cube.

A row is a tuple of values, one for each input. Its code is numbers from 0 to 1, [E]: intervals and
levels are scaled, and a category has a number for each of its names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.stats import qmc

from dgp_ppl._checks import check_kind, short_list
from dgp_ppl._errors import DataError, one_line

Row = tuple[Any, ...]

_MOST = 100_000  # values of a list
_WANTED = f"""an interval (0.0, 1.0), a range of integers range(1, 10), or a list of 2 to {_MOST} \
different numbers or texts"""


class Space:
    """Inputs by name, each with its bounds."""

    def __init__(self, bounds: Mapping[str, Any]) -> None:
        check_kind("Study", "bounds", bounds, Mapping, "a dict of bounds by the name of an input")
        if not bounds:
            raise DataError("Study: bounds is empty, wanted at least one input: {'a': (0.0, 1.0)}")
        if len({str(n) for n in bounds}) < len(bounds):
            raise DataError(f"Study: bounds has names that are equal as text: {list(bounds)}")
        self.bounds = {str(n): _checked(str(n), b) for n, b in bounds.items()}
        self.free = np.concatenate([  # entries of a code that are of intervals
            np.full(len(code), isinstance(b, tuple))
            for b in self.bounds.values() for code in [_codes(b)[0]]
        ])  # fmt: skip
        sizes = [math.inf if isinstance(b, tuple) else len(b) for b in self.bounds.values()]
        self.size = math.prod(sizes)

    def row(self, caller: str, x: Any) -> Row:
        """Return the row of a dict of values by name; raise unless they are within bounds."""
        check_kind(caller, "x", x, Mapping, "a dict of values by the name of an input")
        if set(x) != set(self.bounds):
            names = short_list(self.bounds)
            raise DataError(f"{caller}: x has the inputs {short_list(x)}, wanted {names}")
        return tuple(_value(caller, n, b, x[n]) for n, b in self.bounds.items())

    def named(self, row: Row) -> dict[str, Any]:
        return dict(zip(self.bounds, row, strict=True))

    def at(self, unit: np.ndarray) -> list[Row]:
        """Return the rows at points of the unit cube with one axis for each input, [N, V]."""
        columns = []
        for u, bound in zip(unit.T, self.bounds.values(), strict=True):
            if isinstance(bound, tuple):
                low, high = bound
                columns.append(np.clip(low + (high - low) * u, low, high).tolist())
            else:
                place = np.minimum((u * len(bound)).astype(int), len(bound) - 1)
                columns.append([bound[i] for i in place])
        return list(zip(*columns, strict=True))

    def encode(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the codes of rows, [N, E]."""
        parts = []
        for bound, *values in zip(self.bounds.values(), *rows, strict=True):
            if isinstance(bound, tuple):
                low, high = bound
                parts.append((np.array(values, float)[:, None] - low) / (high - low))
            else:
                codes = _codes(bound)
                parts.append(np.array([codes[bound.index(v)] for v in values]))
        return np.concatenate(parts, axis=1)

    def decode(self, codes: np.ndarray, rows: Sequence[Row]) -> list[Row]:
        """Return rows with other values of their intervals: those of these codes, [N, E]."""
        columns, place = list(zip(*rows, strict=True)), 0
        for i, bound in enumerate(self.bounds.values()):
            if isinstance(bound, tuple):
                low, high = bound
                values = low + (high - low) * codes[:, place].astype(float)
                columns[i] = tuple(np.clip(values, low, high).tolist())
            place += len(_codes(bound)[0])
        return list(zip(*columns, strict=True))

    def fill(self, num: int, seed: int) -> list[Row]:
        """Return rows that fill the space evenly: all of them if they are at most so many."""
        if self.size <= num:
            bounds: Any = list(self.bounds.values())
            places = np.indices([len(b) for b in bounds]).reshape(len(bounds), -1).T
            return [tuple(b[i] for b, i in zip(bounds, p, strict=True)) for p in places]
        sobol = qmc.Sobol(len(self.bounds), rng=np.random.default_rng(seed))
        return self.at(sobol.random_base2(math.ceil(math.log2(num)))[:num])

    def design(self, num: int, seed: int) -> list[Row]:
        """Return the rows of a Latin hypercube."""
        rng = np.random.default_rng(seed)
        found = qmc.LatinHypercube(len(self.bounds), optimization="random-cd", rng=rng)
        return self.at(found.random(num))

    def near(self, row: Row, num: int, seed: int) -> list[Row]:
        """Return rows around one: in intervals from a half of them to a thousandth."""
        rng = np.random.default_rng(seed)
        width = 0.5 ** rng.uniform(1, 10, (num, 1))
        others = self.at(rng.random((num, len(row))))
        keep = rng.random((num, len(row))) < 0.8
        columns = []
        for i, bound in enumerate(self.bounds.values()):
            if isinstance(bound, tuple):
                low, high = bound
                moved = row[i] + (high - low) * width[:, 0] * rng.standard_normal(num)
                columns.append(np.clip(moved, low, high).tolist())
            else:
                columns.append(
                    [row[i] if k else o[i] for k, o in zip(keep[:, i], others, strict=True)]
                )
        return list(zip(*columns, strict=True))


def _checked(name: str, bound: Any) -> tuple[float, float] | list[Any]:
    """Return an interval as two floats, and levels or categories as a list."""
    if isinstance(bound, tuple) and len(bound) == 2 and all(map(_is_number, bound)):
        low, high = map(float, bound)
        if low < high:
            return low, high
    elif isinstance(bound, list | range) and not bound[_MOST:]:
        values = list(bound)
        alike = all(map(_is_number, values)) or all(isinstance(v, str) for v in values)
        if alike and len(set(values)) == len(values) > 1:
            return [_plain(v) for v in values]
    raise DataError(f"Study: bounds[{name!r}] is {one_line(bound)}, wanted {_WANTED}")


def _codes(bound: tuple[float, float] | list[Any]) -> np.ndarray:
    """Return the codes of levels or categories, [L, 1] or [L, L]; of an interval, of its ends."""
    if isinstance(bound[0], str):
        return np.eye(len(bound))
    values = np.array(bound, float)[:, None]
    return (values - values.min()) / np.ptp(values)


def _value(caller: str, name: str, bound: tuple[float, float] | list[Any], value: Any) -> Any:
    """Return a value of an input as Python's own."""
    if isinstance(bound, tuple):
        if _is_number(value) and bound[0] <= value <= bound[1]:
            return float(value)
        wanted = f"a number from {bound[0]:g} to {bound[1]:g}"
    else:
        if (_is_number(value) or isinstance(value, str)) and value in bound:
            return bound[bound.index(value)]
        wanted = f"one of {short_list(bound)}"
    raise DataError(f"{caller}: x[{name!r}] is {one_line(value)}, wanted {wanted}")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    number: Any = value.item() if isinstance(value, np.generic) else value  # float32 overflows
    # Beyond it the length of an interval overflows; NaN is on neither side.
    return bool(-1e300 < number < 1e300)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, Integral) else float(value)
