"""Fit boosted trees to the splits of the UCI sets, by `dgp_ppl.compare`.

    DGP_PPL_DATA=... python benchmarks/trees.py [--data energy,concrete] [--splits 3] \
        [--methods catboost,ngboost] [--jsonl benchmarks/results/trees.jsonl]

A record is a row of `compare`: RMSE, log density and CRPS in the units of the data, the share of
held-out targets in 90 % intervals, the scores of the rows whose inputs are not training rows
(`..._of_unseen`), with the CPU seconds of fit and prediction. It needs the extra `rivals`. A run
goes on where its file ends. Keep it on one core (`taskset -c 1`).
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import dgp_ppl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", default="boston,concrete,energy,wine_red,power,kin8nm,naval,protein"
    )
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--methods", default="catboost,hist_gradient_boosting,ngboost")
    parser.add_argument("--jsonl", type=Path, default=Path("benchmarks/results/trees.jsonl"))
    args = parser.parse_args()
    kept = args.jsonl.read_text().splitlines() if args.jsonl.exists() else []
    done = {tuple(row[n] for n in ("data", "method", "split")) for row in map(json.loads, kept)}
    for name, method, split in itertools.product(
        args.data.split(","), args.methods.split(","), range(args.splits)
    ):
        if (name, method, split) in done:
            continue
        options = {"splits": [split], "split_key": "test_index", "progress": False}
        begin = time.process_time()
        found = dgp_ppl.compare(f"uci/{name}", [method], **options)
        row = {"data": name, **found.splits[0], "cpu_seconds": time.process_time() - begin}
        row["versions"] = found.record["versions"]
        print(row, flush=True)
        with args.jsonl.open("a") as file:
            file.write(json.dumps({n: v for n, v in row.items() if v is not None}) + "\n")


if __name__ == "__main__":
    main()
