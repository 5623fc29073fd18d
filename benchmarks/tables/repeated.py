"""Count the held-out rows of the UCI sets that also occur among the training rows.

    DGP_PPL_DATA=... python benchmarks/tables/repeated.py

Writes benchmarks/results/repeated-rows.json: for each set, over its splits `dsdgp_test_index`, the
share of held-out rows with the inputs of a training row, and of these the share whose target is
that of such a row too.
"""

import datetime
import json
from pathlib import Path

import numpy as np
from plan import LARGE, SMALL

from dgp_ppl import datasets

RESULTS = Path(__file__).parents[1] / "results" / "repeated-rows.json"


def main() -> None:
    shares = {}
    for name in SMALL + LARGE:
        data = datasets.load(f"uci/{name}", split_key="dsdgp_test_index")
        assert data.test_index is not None
        both = np.column_stack([data.x, data.y])
        counts = np.zeros(3)
        for train, test in datasets.splits(data, len(data.test_index), seed=0):
            inputs = datasets.repeated_rows(data.x[train], data.x[test]).sum()
            rows = datasets.repeated_rows(both[train], both[test]).sum()
            counts += [len(test), inputs, rows]
        held_out, inputs, rows = counts
        shares[name] = {
            "splits": len(data.test_index),
            "inputs": inputs / held_out,
            "targets_of_these": rows / inputs if inputs else None,
        }
        print(name, shares[name])
    found = {"date": datetime.date.today().isoformat(), "sets": shares}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
