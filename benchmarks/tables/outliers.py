"""Show on which held-out rows two methods differ in log density, and by how much.

    DGP_PPL_DATA=... python benchmarks/tables/outliers.py uci/concrete 0 [--methods dsvi,dspp]
        [--split-key test_index]

Writes benchmarks/results/outliers.json, an entry for each data set, key of splits and split.
"""

import argparse
import datetime
import json
from pathlib import Path

import jax
import numpy as np
import variants  # noqa: F401 - registers methods

import dgp_ppl

RESULTS = Path(__file__).parents[1] / "results" / "outliers.json"
_SHOWN = 5  # rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("split", type=int)
    parser.add_argument("--methods", default="dsvi,dspp", help="the first is the base")
    parser.add_argument("--split-key", default="test_index")
    args = parser.parse_args()
    methods = args.methods.split(",")
    found = dgp_ppl.compare(
        args.data, methods, splits=[args.split], split_key=args.split_key, progress=False
    )
    densities, residuals = {}, {}
    for method, run in found.fits.items():
        densities[method] = np.asarray(run.test.log_prob(run.y_test))
        sd = np.sqrt(np.asarray(run.test.var))
        residuals[method] = (run.y_test - np.asarray(run.test.mean)) / sd
    base = methods[0]
    entry = {
        "rows": len(densities[base]), "date": datetime.date.today().isoformat(),
        "versions": {"dgp_ppl": dgp_ppl.__version__, "jax": jax.__version__}, "methods": {},
    }  # fmt: skip
    for method in methods:
        change = densities[method] - densities[base]
        order = np.argsort(change)[:_SHOWN]
        entry["methods"][method] = {
            "log_density": float(densities[method].mean()),
            "median_log_density": float(np.median(densities[method])),
            "rows_better_than_base": int((change > 0).sum()),
            "worst_changes": [float(c) for c in change[order]],
            "their_residuals_in_sd": [float(r) for r in residuals[method][order]],
            "log_density_without_them": float(np.delete(densities[method], order).mean()),
            "log_density_of_base_without_them": float(np.delete(densities[base], order).mean()),
        }
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    name = f"{args.data}/{args.split_key}/{args.split}"
    results[name] = entry
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(entry, indent=1))


if __name__ == "__main__":
    main()
