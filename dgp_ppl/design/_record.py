"""What a study holds: its best run, and its record in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import random

from dgp_ppl._files import finite, replacing
from dgp_ppl._typing import PRNGKey
from dgp_ppl.design._space import Row

_FORMAT = 1


class Best(NamedTuple):
    """The best run of a study.

    Attributes:
        x: its inputs by name.
        y: its value, of the first output.
    """

    x: dict[str, Any]
    y: float


class Record(NamedTuple):
    """The state of a study: with it, and its surrogate, the same questions follow."""

    key: PRNGKey
    bounds: dict[str, Any]
    surrogate: str | None  # None: a function, which a file cannot hold
    options: dict[str, Any]
    runs: list[tuple[Row, list[float]]]
    asked: list[Row]

    def write(self, path: Any) -> None:
        """Write JSON, which is never half written."""
        bounds = {n: {"interval": b} if isinstance(b, tuple) else b for n, b in self.bounds.items()}
        key = {
            "key": np.asarray(random.key_data(self.key)).tolist(),
            "impl": str(random.key_impl(self.key)),
        }
        record = {"format": _FORMAT, **self._asdict(), **key, "bounds": bounds}
        with replacing(path) as draft:
            draft.write_text(json.dumps(finite(record)) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Any) -> Record:
        kept = json.loads(Path(path).read_text(encoding="utf-8"))
        if (found := kept.pop("format")) != _FORMAT:
            raise ValueError(f"format {found}")
        data = jnp.array(kept["key"], "uint32")
        kept["key"] = random.wrap_key_data(data, impl=kept.pop("impl"))
        kept["bounds"] = {
            n: tuple(b["interval"]) if isinstance(b, dict) else b for n, b in kept["bounds"].items()
        }
        kept["runs"] = [(row, [math.nan if a is None else a for a in y]) for row, y in kept["runs"]]
        return cls(**kept)
