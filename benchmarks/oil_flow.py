"""Check whether the latent space of a Bayesian GPLVM separates the phases of the oil flow data.

The data are 100 rows of 12 readings in three phases (Bishop & James 1993). The script fits
`models.gplvm` with five latent inputs, on all rows and in minibatches. It prints how often the
nearest neighbour of a row has the same phase, where distances use the two most relevant inputs
(largest standard deviation over lengthscale).

    DGP_PPL_DATA=... python benchmarks/oil_flow.py [--seeds 3] [--json FILE]
"""

import argparse
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.comparison import versions, write_json
from dgp_ppl.inference import evaluate

RUNS = {"all rows": (None, 3000), "minibatches of 50": (50, 6000)}  # equal visits to every row


def run(seed: int, batch: int | None, steps: int, y: Any, phases: Any) -> dict[str, Any]:
    key_start, key_fit, key_bound = jax.random.split(jax.random.key(seed), 3)
    layout, start = initialize.gplvm(key_start, y, 5, num_inducing=30)
    options: dict[str, Any] = {"out": y.shape[1], **layout}
    guide = dgp.MeanField(models.gplvm, covariance="shared")
    data = (None, jnp.asarray(y, float))
    fit = dgp.fit(
        key_fit, models.gplvm, guide, *data, start=start, steps=steps, batch_size=batch, **options
    )
    bound = evaluate(key_bound, models.gplvm, guide, fit.params, *data, num_draws=200, **options)
    lengthscales = np.asarray(fit.params["l1.lengthscale"])
    scaled = np.asarray(fit.params["latent_auto_loc"]) / lengthscales
    relevance = scaled.std(axis=0)
    kept = scaled[:, np.argsort(-relevance)[:2]]
    right: Any = cross_val_score(KNeighborsClassifier(1), kept, phases, cv=LeaveOneOut())
    return {
        "nearest_neighbour_accuracy": float(right.mean()),
        "elbo_per_datum": bound[0] / len(y),
        "elbo_standard_error": bound[1] / len(y),
        "relevance": np.sort(relevance)[::-1].tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    file = np.load(Path(os.environ["DGP_PPL_DATA"], "toy", "oil_flow_100.npz"))
    y = (file["Y"] - file["Y"].mean(axis=0)) / file["Y"].std(axis=0)
    rows = []
    for seed in range(args.seeds):
        for name, (batch, steps) in RUNS.items():
            found = run(seed, batch, steps, y, file["labels"])
            rows.append({"seed": seed, "rows": name, **found})
            print(rows[-1])
    if args.json:
        write_json(args.json, {"versions": versions(), "rows": rows})


if __name__ == "__main__":
    main()
