"""A small messy table, and helpers for the tests of tables."""

import datetime
import warnings

import numpy as np
import pyarrow as pa

from dgp_ppl.datasets import Preprocessor


def houses(rows=24):
    """Return the columns of a messy table as lists of Python values, by name."""
    random = np.random.default_rng(0)
    pick = lambda *values: [values[i] for i in random.integers(0, len(values), rows)]  # noqa: E731
    area = [f"{a:,.2f}" for a in random.uniform(500, 3000, rows)]
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(int(d)) for d in range(rows)]
    table = {
        "id": list(range(1000, 1000 + rows)),
        "area": area,
        "rooms": [float(r) for r in random.integers(1, 6, rows)],
        "colour": pick("red", "blue", "green"),
        "garage": pick(True, False),
        "sold": days,
        "country": ["NL"] * rows,
        "owner": [f"person {i}" for i in range(rows)],
        "price": [float(p) for p in np.round(random.uniform(50, 400, rows), 2)],
    }
    table["rooms"][3] = table["colour"][5] = table["price"][7] = table["sold"][9] = None
    return table


DROP = {"drop": ("id", "owner")}


def fitted(source, target="price", **options):
    """Fit a preprocessor without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Preprocessor.fit(source, target, **options)


def arrow(**columns):
    """Return an Arrow table."""
    return pa.table(columns)
