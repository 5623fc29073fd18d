"""Time a gradient step with decoupled inducing inputs, as a function of the sizes of both sets.

``sweep`` has depth 2, 8 inputs, width 8 and B = 1000. It compares `Decoupled` with M_b = 50 and a
growing M_a with `MeanField` at M = M_a. ``mnist`` has depth 2,
784 inputs, width 30, 10 classes and B = 1000. It compares Decoupled(M_a = 500, M_b = 100) with
MeanField(M = 200), the pair of Havasi et al. (2018).

The script times ``SVI.update`` under `jax.jit` (the median over steps) and `dgp_ppl.fit` (the
difference of a long and a short fit). The cases take turns, so a busy machine affects all of them
alike.

    python benchmarks/decoupled_cost.py [--parts sweep] [--sizes 50,200] [--steps 60] [--json FILE]
"""

import argparse
import datetime
import json
import platform
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import random
from numpyro.infer import SVI, TraceMeanField_ELBO
from step_time import SHAPES, problem, timed

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.inference import Decoupled, MeanForm

ROUNDS = 5
M_B = 50
# As in step_time, without M: (B, D, width, depth, likelihood, rows)
Rest = tuple[int, int, int, int, str, int]
SWEEP: Rest = (1000, 8, 8, 2, "normal", 8192)
MNIST: Rest = (1000, 784, 30, 2, "classes", 10_000)


class Case(NamedTuple):
    """A guide and its sizes. If `mean` is None, the inducing inputs are coupled."""

    part: str
    mean: MeanForm | None
    M_a: int
    M_b: int


def cases(parts: list[str], sizes: list[int]) -> list[Case]:
    sweep = [
        case
        for M in sizes
        for case in (
            Case("sweep", "orthogonal", M, M_B),
            Case("sweep", None, M, M),
        )
    ]
    mnist = [
        Case("mnist", "orthogonal", 500, 100),
        Case("mnist", None, 200, 200),
    ]
    return [c for c in [*sweep, *mnist] if c.part in parts]


class Bench:
    """A compiled case, ready to be timed."""

    def __init__(self, case: Case) -> None:
        shape = SWEEP if case.part == "sweep" else MNIST
        SHAPES["coupled"], SHAPES["mean"] = (case.M_b, *shape), (case.M_a, *shape)
        _, x, y, kwargs = problem("coupled", random.key(0))
        z_mean = problem("mean", random.key(0))[3]["z"]
        self.case, data = case, (x, y)

        def guide(model: Any) -> Any:
            if case.mean is None:
                return dgp.MeanField(model)
            return Decoupled(model, z_mean, mean=case.mean)

        model = partial(models.deep_gp, **kwargs)
        svi = SVI(model, guide(model), optax.adam(1e-2), TraceMeanField_ELBO())
        self.state = jax.jit(lambda key: svi.init(key, *data))(random.key(1))
        self._update = jax.jit(lambda state: svi.update(state, *data))
        options = {"optimizer": optax.adam(1e-2), "progress": False, **kwargs}
        whole = guide(models.deep_gp)
        self._fit = partial(dgp.fit, random.key(2), models.deep_gp, whole, *data, **options)
        self.updates: list[float] = []
        self.fits: list[float] = []
        self.first_s = timed(lambda: self._update(self.state))
        self.fit_first_s = timed(partial(self._fit, steps=1))

    def round(self, steps: int) -> None:
        for _ in range(steps):
            self.updates.append(timed(self._step))
        short, long = (timed(partial(self._fit, steps=n)) for n in (5, 5 + steps))
        self.fits.append((long - short) / steps)

    def _step(self) -> Any:
        self.state, loss = self._update(self.state)
        return loss

    def row(self) -> dict[str, Any]:
        return {
            **self.case._asdict(),
            "update_ms": 1e3 * float(np.median(self.updates)),
            "update_min_ms": 1e3 * min(self.updates),
            "fit_ms": 1e3 * float(np.median(self.fits)),
            "first_call_s": self.first_s,
            "fit_first_s": self.fit_first_s,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="sweep,mnist", help="comma-separated")
    parser.add_argument("--sizes", default="50,100,200,500,1000", help="M_a of the sweep")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    head = ("part", "mean", "M_a", "M_b", "update ms", "fit ms", "first s", "fit first s")
    print("".join(f"{h:>13}" for h in head))
    rows = []
    listed = cases(args.parts.split(","), sizes)
    groups: dict[Any, list[Case]] = {}
    for case in listed:  # cases that are compared take turns
        groups.setdefault((case.part, case.M_a if case.part == "sweep" else 0), []).append(case)
    for group in groups.values():
        benches = [Bench(case) for case in group]
        for _ in range(ROUNDS):
            for bench in benches:
                bench.round(max(1, args.steps // ROUNDS))
        for bench in benches:
            row = bench.row()
            rows.append(row)
            keys = ("update_ms", "fit_ms", "first_call_s", "fit_first_s")
            cells = (row["part"], row["mean"] or "coupled", row["M_a"], row["M_b"])
            line = "".join(f"{c:>13}" for c in cells)
            print(line + "".join(f"{row[k]:13.2f}" for k in keys), flush=True)
    if args.json:
        device = jax.devices()[0]
        record = {
            "device": f"{device.platform} {device.device_kind}",
            "machine": platform.machine(),
            "versions": {"python": platform.python_version(), "jax": jax.__version__},
            "date": datetime.date.today().isoformat(),
            "rows": rows,
        }
        with open(args.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
