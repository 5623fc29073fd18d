"""Fit a deep GP of GPyTorch to the splits of the UCI table, fit by fit; stop it, and it goes on.

    DGP_PPL_DATA=... python benchmarks/tables/peers.py [--sets energy,concrete] [--splits 1] \
        [--split-key dsdgp_test_index] [--steps 6000] [--records benchmarks/tables/peers.jsonl]

Needs torch and gpytorch, in an environment of their own. The model is from GPyTorch's tutorial
on deep GPs: a kernel and inducing inputs for each output, a learned linear mean in the hidden
layer, Adam with a rate of 0.01. As in our rows there are two layers, M = 100, as many hidden
outputs as inputs (at most 30), minibatches of 1,000 rows, 6,000 steps, and 100 passes of a
prediction. Every fit has one thread. Appends lines to benchmarks/tables/peers.jsonl, which
`render.py` reads. `--steps 1500,6000` records a fit at 1,500 steps, too: its rate is constant.
"""
# pyright: reportMissingImports=false

import argparse
import datetime
import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

RECORDS = Path(__file__).with_name("peers.jsonl")
SETS = ("energy", "concrete", "boston", "wine_red", "kin8nm", "power", "naval", "protein")
M, BATCH, RATE, PASSES, MOST_WIDTH = 100, 1000, 0.01, 100, 30


class Layer(DeepGPLayer):
    """A layer with a kernel and inducing inputs for each output.

    Args:
        dim: number of inputs.
        out: number of outputs; None for a layer without an axis of outputs, the last.
    """

    def __init__(self, dim: int, out: int | None) -> None:
        shape = torch.Size([] if out is None else [out])
        strategy = VariationalStrategy(
            self, torch.randn(*shape, M, dim), CholeskyVariationalDistribution(M, shape),
            learn_inducing_locations=True,
        )  # fmt: skip
        super().__init__(strategy, dim, out)
        hidden = out is not None
        means = gpytorch.means
        self.mean = means.LinearMean(dim) if hidden else means.ConstantMean(batch_shape=shape)
        kernel = gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=dim)
        self.covariance = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


class TwoLayers(DeepGP):
    """A hidden layer as wide as the inputs, at most 30, and one with a single output."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        width = min(dim, MOST_WIDTH)
        self.first, self.second = Layer(dim, width), Layer(width, None)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return self.second(self.first(x))


def measure(data: Path, key: str, split: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    """Fit, and predict after each of these numbers of steps; yields the metrics."""
    arrays = np.load(data)
    x, y = arrays["X"], np.ravel(arrays["y"])
    test = arrays[key][split]
    test = test[test >= 0]
    train = np.setdiff1d(np.arange(len(x)), test)
    center, scale = x[train].mean(0), x[train].std(0)
    scale[scale <= 1e-9 * np.abs(center)] = 1  # constant but for rounding
    y_center, y_scale = y[train].mean(), y[train].std()
    inputs = torch.as_tensor((x - center) / scale).float()
    targets = torch.as_tensor((y - y_center) / y_scale).float()
    torch.manual_seed(split)
    model = TwoLayers(x.shape[1])
    bound = gpytorch.mlls.DeepApproximateMLL(
        gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(train))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    rows, losses = torch.as_tensor(train), []
    seconds = 0.0
    for count in range(1, max(steps) + 1):
        start = time.process_time()
        with gpytorch.settings.num_likelihood_samples(1):
            few = len(train) <= BATCH
            batch = rows if few else rows[torch.randint(len(rows), (BATCH,))]
            optimizer.zero_grad()
            loss = -bound(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds += time.process_time() - start
        if count not in steps:
            continue
        model.eval()
        means, variances = [], []
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(PASSES):
            for part in inputs[test].split(400):
                predicted = model.likelihood(model(part))
                means.append(predicted.mean.numpy())
                variances.append(predicted.variance.numpy())
        model.train()
        # [passes, rows], in the units of y
        mean = np.concatenate(means, 1).astype(float) * y_scale + y_center
        variance = np.concatenate(variances, 1).astype(float) * y_scale**2
        log_p = -0.5 * ((y[test] - mean) ** 2 / variance + np.log(2 * math.pi * variance))
        yield {
            "steps": count,
            "rmse": float(np.sqrt(np.mean((mean.mean(0) - y[test]) ** 2))),
            "log_density": float(np.mean(np.logaddexp.reduce(log_p, 0) - math.log(PASSES))),
            "elbo_per_datum": -float(np.mean(losses[-100:])), "seconds": seconds,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--split-key", default="dsdgp_test_index")
    parser.add_argument("--steps", default="6000")
    parser.add_argument("--records", type=Path, default=RECORDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = args.records.read_text() if args.records.exists() else ""
    kept = map(json.loads, text.splitlines())
    done = {(r["data"], r["split"], r.get("steps", 6000)) for r in kept}
    steps = [int(n) for n in args.steps.split(",")]
    for split, name in itertools.product(range(args.splits), args.sets.split(",")):
        if (name, split, max(steps)) in done:
            continue
        data = Path(os.environ["DGP_PPL_DATA"]) / "uci" / f"{name}.npz"
        for found in measure(data, args.split_key, split, steps):
            if (name, split, found["steps"]) in done:
                continue
            record = {
                "row": "GPyTorch DGP L=2", "data": name, "split": split, **found,
                "date": datetime.date.today().isoformat(),
                "versions": {"torch": torch.__version__, "gpytorch": gpytorch.__version__},
            }  # fmt: skip
            with args.records.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)


if __name__ == "__main__":
    main()
