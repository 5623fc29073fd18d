"""Measure every posterior on every problem; stop it at any time, and it goes on where it was.

    DGP_PPL_DATA=... python benchmarks/posteriors/run.py [--problems sine,step] [--rows REGEX]

All hyperparameters are fixed, so that the posteriors of a problem have one target. Every row
appends a line to benchmarks/posteriors/records.jsonl. `render.py` makes the page and the picture.
"""

import argparse
import datetime
import json
import math
import platform
import re
from pathlib import Path
from typing import Any

import jax
from problems import PROBLEMS
from study import AbsentError, Study, rows

import dgp_ppl

RECORDS = Path(__file__).with_name("records.jsonl")


def done() -> set[tuple[str, str]]:
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return {(r["problem"], r["row"]) for r in map(json.loads, lines)}


def finite(value: Any) -> Any:
    """Replace numbers that JSON lacks by None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--rows", default="", help="regular expression that names must match")
    args = parser.parse_args()
    known = done()
    for problem in args.problems.split(","):
        for name, measure in rows(Study(PROBLEMS[problem]())):
            if (problem, name) in known or not re.search(args.rows, name):
                continue
            try:
                found = measure()
            except AbsentError as error:
                found = {"absent": str(error)}
            record = {
                "problem": problem, "row": name, **{n: finite(v) for n, v in found.items()},
                "date": datetime.date.today().isoformat(), "dgp_ppl": dgp_ppl.__version__,
                "commit": dgp_ppl.comparison.versions().get("commit"),
                "jax": jax.__version__, "python": platform.python_version(),
                "device": jax.devices()[0].device_kind,
            }  # fmt: skip
            with RECORDS.open("a") as file:
                file.write(json.dumps(record, default=float) + "\n")
            print(json.dumps(record, default=float), flush=True)
        jax.clear_caches()  # a process holds a limited number of compiled programs


if __name__ == "__main__":
    main()
