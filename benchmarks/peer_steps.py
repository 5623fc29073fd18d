"""Time a gradient step of the same deep GP in dgp_ppl, GPyTorch and GPflux, in turns.

Every hidden layer has a kernel for each output, and as many outputs as inputs: 8 inputs, M = 100,
minibatches of 1,000 of 8,192 rows, float32, Adam. The peers have inducing inputs for each output;
dgp_ppl has its default, which shares them, and `own_z`, which does not. A step of dgp_ppl is one of
a compiled chunk, as `fit` runs them; one of GPflux is a `tf.function`, and one of GPyTorch is its
tutorial's loop. Each turn is a process that compiles, warms up and takes the median of five seconds
of steps. The peers live in environments of their own.

    python benchmarks/peer_steps.py --gpytorch PYTHON --gpflux PYTHON [--layers 2,3] [--rounds 3]
        [--json FILE]
"""
# pyright: reportMissingImports=false, reportMissingModuleSource=false

import argparse
import datetime
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

M, BATCH, DIM, ROWS, SECONDS, WARMUP = 100, 1000, 8, 8192, 5.0, 10
CHUNK = 20  # steps of a compiled chunk of `fit`
OURS = ("shared_z", "own_z")
PACKAGES = {
    **dict.fromkeys(OURS, ("dgp_ppl", "jax")),
    "gpytorch": ("gpytorch", "torch"),
    "gpflux": ("gpflux", "tensorflow"),
}
Step = Callable[[], Any]  # runs, and waits for, a step; or a chunk of them


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs [N, D] and targets [N], both float32."""
    x = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    return x, np.sin(x.sum(axis=1) / np.sqrt(np.float32(DIM)))


def ours(layers: int, own_z: bool) -> Step:
    import jax
    import jax.numpy as jnp
    import optax

    import dgp_ppl as dgp
    from dgp_ppl import inference, models

    x, y = map(jnp.asarray, data())
    z = jnp.broadcast_to(x[:M], (DIM, M, DIM)) if own_z else x[:M]
    run, start, arrays = inference.fit_program(
        jax.random.key(0), models.deep_gp, dgp.MeanField(models.deep_gp), x, y, num=CHUNK,
        optimizer=optax.adam(1e-2), z=(*(z,) * (layers - 1), x[:M]), batch_size=BATCH,
        mean=(*(dgp.means.identity,) * (layers - 1), dgp.means.zero),
    )  # fmt: skip
    chunk: Any = jax.jit(run).lower(start, arrays).compile()
    assert np.isfinite(np.asarray(chunk(start, arrays)[1])[:CHUNK]).all()
    return lambda: jax.block_until_ready(chunk(start, arrays))


def gpytorch_step(layers: int) -> Step:
    import gpytorch
    import torch
    from tables.peers import Layer

    class Deep(gpytorch.models.deep_gps.DeepGP):
        def __init__(self) -> None:
            super().__init__()
            outputs = (*(DIM,) * (layers - 1), None)
            self.layers = torch.nn.ModuleList([Layer(DIM, out) for out in outputs])
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    x, y = map(torch.as_tensor, data())
    model = Deep()
    bound = gpytorch.mlls.DeepApproximateMLL(
        gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=ROWS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step() -> float:
        rows = torch.randint(ROWS, (BATCH,))
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(1):
            loss = -bound(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def gpflux_step(layers: int) -> Step:
    import gpflow
    import gpflux
    import tensorflow as tf
    from gpflow.keras import tf_keras
    from gpflux.helpers import construct_basic_inducing_variables, construct_basic_kernel

    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)  # 1e-6 fails in float32
    x, y = data()
    stack = []
    for layer in range(layers):
        hidden = layer < layers - 1
        out = DIM if hidden else 1
        kernel = construct_basic_kernel(
            gpflow.kernels.SquaredExponential(lengthscales=[DIM**0.5] * DIM),
            output_dim=out, share_hyperparams=False,
        )  # fmt: skip
        inducing = construct_basic_inducing_variables(
            M, DIM, output_dim=out, share_variables=False, z_init=np.stack([x[:M]] * out)
        )
        means = gpflow.mean_functions
        stack.append(
            gpflux.layers.GPLayer(
                kernel, inducing, num_data=ROWS, verbose=False,
                mean_function=means.Identity(DIM) if hidden else means.Zero(),
            )
        )  # fmt: skip
        if hidden:
            stack[-1].q_sqrt.assign(stack[-1].q_sqrt * 1e-5)
    likelihood = gpflux.layers.LikelihoodLayer(gpflow.likelihoods.Gaussian(0.05))
    model = gpflux.models.DeepGP(stack, likelihood)
    optimizer, params = tf_keras.optimizers.Adam(1e-2), model.trainable_variables
    inputs, targets = tf.constant(x), tf.constant(y[:, None])

    @tf.function
    def compiled(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = -model.elbo((tf.gather(inputs, rows), tf.gather(targets, rows))) / ROWS
        optimizer.apply_gradients(zip(tape.gradient(loss, params), params, strict=True))
        return loss

    rng = np.random.default_rng(1)
    return lambda: compiled(tf.constant(rng.integers(0, ROWS, BATCH))).numpy()


def matmul_gflops() -> float:
    """Return the rate of a 2048³ float32 matmul by NumPy, to tell how fast the machine is now."""
    a = np.ones((2048, 2048), np.float32)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        np.matmul(a, a)
        times.append(time.perf_counter() - begun)
    return 2 * 2048**3 / statistics.median(times) / 1e9


def turn(library: str, layers: int) -> dict[str, Any]:
    """Time one library in this process: its median milliseconds for a step."""
    if library in OURS:
        step, count = ours(layers, library == "own_z"), CHUNK
    else:
        step, count = {"gpytorch": gpytorch_step, "gpflux": gpflux_step}[library](layers), 1
    for _ in range(max(1, WARMUP // count)):
        step()
    times: list[float] = []
    while sum(times) < SECONDS:
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    versions = {p: importlib.metadata.version(p) for p in PACKAGES[library]}
    return {"ms": 1e3 * statistics.median(times) / count, "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpytorch", metavar="PYTHON", help="Python that has GPyTorch")
    parser.add_argument("--gpflux", metavar="PYTHON", help="Python that has GPflux")
    parser.add_argument("--layers", default="2,3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--turn", choices=PACKAGES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        print(json.dumps(turn(args.turn, int(args.layers))))
        return
    pythons = {**dict.fromkeys(OURS, sys.executable), "gpytorch": args.gpytorch}
    pythons = {k: v for k, v in {**pythons, "gpflux": args.gpflux}.items() if v}
    results = []
    for layers in map(int, args.layers.split(",")):
        turns: dict[str, list[dict[str, Any]]] = {library: [] for library in pythons}
        rates = [matmul_gflops()]
        for _ in range(args.rounds):
            for library, python in pythons.items():
                command = [python, __file__, "--turn", library, "--layers", str(layers)]
                turns[library].append(json.loads(subprocess.check_output(command)))
            rates.append(matmul_gflops())
        ms = {library: [t["ms"] for t in found] for library, found in turns.items()}
        peers = [p for p in ("gpytorch", "gpflux") if p in ms]
        ratios = {  # of turns of the same round
            f"{mine} / {peer}": statistics.median(
                a / b for a, b in zip(ms[mine], ms[peer], strict=True)
            )
            for mine in OURS for peer in peers
        }  # fmt: skip
        versions = {k: v for found in turns.values() for k, v in found[0]["versions"].items()}
        row = {"layers": layers, "ms": ms, "ratios": ratios, "matmul_gflops": rates}
        results.append({**row, "date": datetime.date.today().isoformat(), "versions": versions})
        print(json.dumps(results[-1]), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
