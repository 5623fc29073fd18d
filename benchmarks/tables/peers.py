"""Fit a deep GP of GPyTorch to the splits of the UCI table, fit by fit; stop it, and it goes on.

    DGP_PPL_DATA=... python benchmarks/tables/peers.py [--sets energy,concrete] [--splits 1]

Needs torch and gpytorch, in an environment of their own. The model is from GPyTorch's tutorial
on deep GPs: a kernel and inducing inputs for each output, a learned linear mean in the hidden
layer, Adam with a rate of 0.01. As in our rows there are two layers, M = 100, as many hidden
outputs as inputs (at most 30), minibatches of 1,000 rows, 6,000 steps, and 100 passes of a
prediction. Every fit has one thread. Appends lines to benchmarks/tables/peers.jsonl, which
`render.py` reads.
"""
# pyright: reportMissingImports=false

import argparse
import datetime
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

RECORDS = Path(__file__).with_name("peers.jsonl")
SETS = ("energy", "concrete", "boston", "wine_red", "kin8nm", "power", "naval", "protein")
M, STEPS, BATCH, RATE, PASSES, MOST_WIDTH = 100, 6000, 1000, 0.01, 100, 30


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


def measure(data: Path, split: int) -> dict[str, Any]:
    """Fit and predict; returns the metrics."""
    arrays = np.load(data)
    x, y = arrays["X"], np.ravel(arrays["y"])
    test = arrays["dsdgp_test_index"][split]
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
    start = time.perf_counter()
    with gpytorch.settings.num_likelihood_samples(1):
        for _ in range(STEPS):
            few = len(train) <= BATCH
            batch = rows if few else rows[torch.randint(len(rows), (BATCH,))]
            optimizer.zero_grad()
            loss = -bound(model(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    seconds = time.perf_counter() - start
    model.eval()
    means, variances = [], []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(PASSES):
        for part in inputs[test].split(400):
            predicted = model.likelihood(model(part))
            means.append(predicted.mean.numpy())
            variances.append(predicted.variance.numpy())
    # [passes, rows], in the units of y
    mean = np.concatenate(means, 1).astype(float) * y_scale + y_center
    variance = np.concatenate(variances, 1).astype(float) * y_scale**2
    log_densities = -0.5 * ((y[test] - mean) ** 2 / variance + np.log(2 * math.pi * variance))
    return {
        "rmse": float(np.sqrt(np.mean((mean.mean(0) - y[test]) ** 2))),
        "log_density": float(np.mean(np.logaddexp.reduce(log_densities, 0) - math.log(PASSES))),
        "elbo_per_datum": -float(np.mean(losses[-100:])), "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = RECORDS.read_text() if RECORDS.exists() else ""
    done = {(r["data"], r["split"]) for r in map(json.loads, text.splitlines())}
    for split in range(args.splits):
        for name in args.sets.split(","):
            if (name, split) in done:
                continue
            record = {
                "row": "GPyTorch DGP L=2", "data": name, "split": split,
                **measure(Path(os.environ["DGP_PPL_DATA"]) / "uci" / f"{name}.npz", split),
                "date": datetime.date.today().isoformat(),
                "versions": {"torch": torch.__version__, "gpytorch": gpytorch.__version__},
            }  # fmt: skip
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)


if __name__ == "__main__":
    main()
