"""Measure the accuracy of 0.1's defaults on UCI regression, for benchmarks/results/README.md.

The script runs ``dgp-ppl compare DATA --split-key dsdgp_test_index --as-published`` (two layers,
M = 100, batch 1000, 6,000 steps) on the first splits of each data set, and writes one JSON file per
entry of SETS to benchmarks/results. It needs the data: set DGP_PPL_DATA.

    python benchmarks/accuracy.py [--sets energy,boston] [--out benchmarks/results]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import dgp_ppl as dgp

# name: (data, splits, methods, depth)
SETS: dict[str, tuple[str, int, tuple[str, ...], int]] = {
    "boston": ("uci/boston", 1, ("sgpr", "dsvi"), 2),
    "energy": ("uci/energy", 3, ("sgpr", "dsvi"), 2),
    "kin8nm": ("uci/kin8nm", 1, ("sgpr", "dsvi"), 2),
    "concrete": ("uci/concrete", 3, ("sgpr", "dsvi"), 2),
    "power": ("uci/power", 3, ("dsvi",), 2),
    "kin8nm-depth3": ("uci/kin8nm", 1, ("dsvi",), 3),
    "energy-sghmc": ("uci/energy", 3, ("sghmc",), 2),
    "kin8nm-splits01": ("uci/kin8nm", 2, ("dsvi",), 2),
    "kin8nm-sghmc": ("uci/kin8nm", 1, ("sghmc",), 2),
    "concrete-sghmc": ("uci/concrete", 3, ("sghmc",), 2),
    "concrete-diff-gp": ("uci/concrete", 3, ("dsvi",), 2),
}
MODEL = {"concrete-diff-gp": "diff_gp"}  # all other sets use deep_gp
# A plain JAX sketch with the same budget: RMSE, mean log density, ELBO per datum.
SKETCH = {
    "boston": (2.05, -2.15, -0.299),
    "energy": (0.489, -0.731, 1.467),
    "kin8nm": (0.0648, 1.317, -0.140),
    "concrete": (5.98, -3.177, -0.424),
    "power": (4.10, -2.833, 0.030),
    "kin8nm-depth3": (float("nan"), float("nan"), -0.108),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    for name in args.sets.split(","):
        data, splits, methods, depth = SETS[name]
        outcome = dgp.compare(
            data, methods, model=MODEL.get(name, "deep_gp"), splits=splits, depth=depth,
            split_key="dsdgp_test_index", as_published=True,
        )  # fmt: skip
        outcome.record["data"]["source"] = f"{data} under DGP_PPL_DATA"  # without local paths
        path = args.out / f"accuracy-{name}.json"
        path.write_text(json.dumps(clean(outcome.record), indent=1) + "\n")
        report(name, outcome.summary)


def clean(value: Any) -> Any:
    """Replace NaN, which JSON lacks, by null: the standard error of a single split."""
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items()}
    if isinstance(value, list):
        return [clean(v) for v in value]
    return None if isinstance(value, float) and value != value else value


def report(name: str, summary: list[dict[str, Any]]) -> None:
    metrics = ("rmse", "log_density", "elbo_per_datum", "rhat", "ess", "seconds")
    for row in summary:
        known = [m for m in metrics if row[m]["mean"] is not None]
        cells = "  ".join(
            f"{m} stuck"
            if row[m]["mean"] == "stuck"
            else f"{m} {row[m]['mean']:.4g} (se {row[m]['se']:.2g})"
            for m in known
        )
        print(f"{name:14s} {row['method']:5s} {cells}", flush=True)
    if name in SKETCH:
        print(f"{name:14s} sketch rmse, log density, ELBO per datum: {SKETCH[name]}", flush=True)


if __name__ == "__main__":
    main()
