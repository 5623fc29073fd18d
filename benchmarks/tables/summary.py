"""The records of `run.py`, by table, data set and row, and their means."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Records", "load", "mean", "number"]

HERE = Path(__file__).parent
Records = dict[tuple[str, str, str], list[dict[str, Any]]]  # by table, data set and row


def load() -> tuple[Records, list[dict[str, Any]]]:
    """Return the records of ours and of peers by table, data set and row, and all of ours."""
    records = [json.loads(line) for line in (HERE / "records.jsonl").read_text().splitlines()]
    found: Records = defaultdict(list)
    for record in records:
        table, rest = record["name"].split("/", 1)
        label = rest.removeprefix(f"{record['data']}/{record['split']}/")
        found[table, record["data"].removeprefix("uci/"), label].append(record)
    peers = HERE / "peers.jsonl"
    for line in peers.read_text().splitlines() if peers.exists() else []:
        record = json.loads(line)
        found["peers", record["data"], record["row"]].append(record)
    return found, records


def mean(records: list[dict[str, Any]], metric: str) -> tuple[float, float] | None:
    """Return the mean and standard error of a metric; NaN errors for a single split."""
    values = [r[metric] for r in records if r.get(metric) is not None]
    if not values:
        return None
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return float(np.mean(values)), float(error)


def number(value: float) -> str:
    return f"{value:.3f}" if 0.02 < abs(value) < 100 else f"{value:.3g}"
