"""Fill the records of the tables, fit by fit; stop it at any time, and it goes on where it was.

    DGP_PPL_DATA=... python benchmarks/tables/run.py --paper ddvi --row "DDVI L=3" --data mnist
    DGP_PPL_DATA=... python benchmarks/tables/run.py [--only REGEX ...] [--minutes 60] [--workers 2]

The first fills a cell of a paper's table, or all cells of what is named: see papers.csv.
Set JAX_COMPILATION_CACHE_DIR to a folder to compile each program once for all workers and runs.

`plan.py` lists the fits, the most telling first. Each worker process has one core for itself: two
fits side by side take 0.85 of the time of one after the other with two threads
(side-by-side-cpu.json). Every finished fit appends one line to benchmarks/tables/records.jsonl.
`render.py` makes the tables.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import signal
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import numpy as np
from papers import cells
from plan import FITS, Fit, cell_fits

from dgp_ppl.comparison import local_workers
from dgp_ppl.datasets import Dataset

RECORDS = Path(__file__).with_name("records.jsonl")


def done() -> set[str]:
    """Return the names of the fits that have a record; a line cut short is removed."""
    if not RECORDS.exists():
        return set()
    text = RECORDS.read_text()
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        RECORDS.write_text(text)
    return {json.loads(line)["name"] for line in text.splitlines()}


def opened(name: str) -> str | Dataset:
    """Return what `compare` takes: a name, or a data set whose file `datasets.load` cannot read."""
    if name not in ("cep_molecules", "year_reduced"):
        return name
    with np.load(Path(os.environ["DGP_PPL_DATA"], f"{name}.npz")) as file:
        if name == "year_reduced":
            x, y = file["X_uci"], file["y_uci"]
        else:  # bits of a fingerprint
            x, y = np.unpackbits(file["X_packed"], axis=1), file["y"]
    columns = tuple(f"x{i}" for i in range(x.shape[1]))
    return Dataset(name, x.astype(float), y, "regression", None, columns, "y", f"{name}.npz")


def measure(fit: Fit) -> dict[str, Any]:
    """Fit and measure; returns the record."""
    import jax
    import variants  # noqa: F401 - registers methods

    import dgp_ppl

    method, options = fit.today() or (fit.method, fit.options)
    found = dgp_ppl.compare(
        opened(fit.data),
        [method],
        splits=[fit.split],
        split_key=fit.split_key,
        progress=False,
        **options,
    )
    versions = dgp_ppl.comparison.versions()
    return {
        "name": fit.name, "data": fit.data, "split_key": fit.split_key, "options": fit.options,
        **found.splits[0], "method": fit.method, "commit": versions.get("commit"),
        "date": datetime.date.today().isoformat(),
        "versions": {name: versions[name] for name in ("dgp_ppl", "jax", "numpyro")},
        "python": platform.python_version(), "device": jax.devices()[0].device_kind,
    }  # fmt: skip


def named(**wanted: str | None) -> list[Fit]:
    """Return the fits of the cells with this paper, row and data; None stands for any.

    Raises:
        ValueError: if there is none, with what there is; or if none of the cells can be filled.
    """
    left = cells()
    for column, value in wanted.items():
        known = list(dict.fromkeys(c[column] for c in left))
        left = [c for c in left if value in (None, c[column])]
        if not left:
            raise ValueError(f"there is no {column} {value!r}, wanted one of {', '.join(known)}")
    fits = [f for c in left for f in cell_fits(c["paper"], c["row"], c["data"]) if not c["reason"]]
    if not fits:
        raise ValueError(f"no fit of ours: {left[0]['reason']}")
    return fits


def todo(patterns: list[str], fits: list[Fit]) -> Iterator[Fit]:
    """Iterate over the fits that have no record yet, fits of the first pattern first."""
    known = done()
    for pattern in patterns:
        for fit in fits:
            if fit.name not in known and fit.today() and re.search(pattern, fit.name):
                known.add(fit.name)
                yield fit


def finite(value: Any) -> Any:
    """Replace numbers that JSON lacks by None."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(record: dict[str, Any]) -> None:
    line = json.dumps(finite(record), default=float)
    with RECORDS.open("a") as file:
        file.write(line + "\n")
    metrics = ("rmse", "log_density", "coverage90", "accuracy", "auc", "elbo_per_datum", "seconds")
    cells = [f"{m} {record[m]:.4g}" for m in metrics if isinstance(record.get(m), float)]
    print(record["name"], *cells, record.get("error", ""), sep="  ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for column in ("paper", "row", "data"):
        parser.add_argument(f"--{column}", help=f"the {column} of cells in papers.csv")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="REGEX",
        help="names must match one of these; the fits of the first come first",
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="start no fit after this time")
    allowed = sorted(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=len(allowed))
    args = parser.parse_args()
    num = min(args.workers, len(allowed))
    wanted = {"paper": args.paper, "row": args.row, "data": args.data}
    try:
        chosen = named(**wanted) if any(wanted.values()) else FITS
    except ValueError as error:
        raise SystemExit(f"run.py: {error}") from None
    end, fits = time.monotonic() + 60 * args.minutes, todo(args.only, chosen)
    os.sched_setaffinity(0, allowed[:num])  # a core for each worker, where JAX starts one thread
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process, and workers with it
    with local_workers(num) as pool:
        running: dict[Future[dict[str, Any]], Fit] = {}
        while True:
            while len(running) < num and time.monotonic() < end:
                if (fit := next(fits, None)) is None:
                    break
                running[pool.submit(measure, fit)] = fit
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                fit = running.pop(future)
                try:
                    write(future.result())
                except Exception:
                    print(f"{fit.name} failed:\n{traceback.format_exc()}", flush=True)


if __name__ == "__main__":
    main()
