"""Count held-out rows of the UCI sets that are training rows too, and measure who gains by them.

    DGP_PPL_DATA=... python benchmarks/tables/repeated.py [--split 0]

Writes benchmarks/results/repeated-rows.json. "sets" has, over the splits `dsdgp_test_index`, the
share of held-out rows with the inputs of a training row, and with its target too. "wine_red" has
the RMSE of new fits of two rows of the tables on the held-out rows of one split: rows whose inputs
repeat a training row, and new rows.
"""

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
from plan import FITS, LARGE, SMALL

import dgp_ppl
from dgp_ppl import datasets

RESULTS = Path(__file__).parents[1] / "results" / "repeated-rows.json"
KEY = "dsdgp_test_index"
ROWS = ("dsvi", "gp, Matern-1/2")


def shares(name: str) -> dict[str, float]:
    """Return the shares of repeated inputs, and of repeated rows with their targets."""
    data = datasets.load(f"uci/{name}", split_key=KEY)
    assert data.test_index is not None
    rows = np.column_stack([data.x, data.y])
    counts = np.zeros(3)
    for train, test in datasets.splits(data, len(data.test_index), seed=0):
        inputs = datasets.repeated_rows(data.x[train], data.x[test]).sum()
        counts += [len(test), inputs, datasets.repeated_rows(rows[train], rows[test]).sum()]
    return {"inputs": counts[1] / counts[0], "rows": counts[2] / counts[0]}


def errors(split: int) -> dict[str, Any]:
    """Return the RMSE of each row of the tables on repeated rows, and on new rows."""
    found: dict[str, Any] = {"split": split}
    for label in ROWS:
        (fit,) = (f for f in FITS if f.name == f"uci/uci/wine_red/{split}/{label}")
        method, options = fit.today() or (fit.method, fit.options)
        run = dgp_ppl.compare(
            fit.data, [method], splits=[split], split_key=KEY, progress=False, **options
        ).fits[method]
        repeated = datasets.repeated_rows(run.x, run.x_test)
        square = np.square(np.asarray(run.test.mean) - run.y_test)
        found["repeated_rows"], found["other_rows"] = int(repeated.sum()), int((~repeated).sum())
        found[label] = {
            "repeated": float(np.sqrt(square[repeated].mean())),
            "other": float(np.sqrt(square[~repeated].mean())),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", type=int, default=0, help="of wine_red")
    split = parser.parse_args().split
    found = {
        "date": datetime.date.today().isoformat(),
        "versions": {"dgp_ppl": dgp_ppl.__version__},
        "sets": {name: shares(name) for name in SMALL + LARGE},
        "wine_red": errors(split),
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
