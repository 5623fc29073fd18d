"""A program that fits on the devices of a mesh, and prints a line of JSON for each result.

python -m support.mesh_runs devices
python -m support.mesh_runs process NUMBER PORT FOLDER STEPS
"""

import json
import math
import re
import sys

import jax
import numpy as np

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.svi._mesh import checked_mesh, divided_loop
from dgp_ppl.inference.svi._setup import Problem
from dgp_ppl.models import deep_gp, svgp

N, BATCH = 103, 21  # no number of devices divides them


def fitted(mesh=None, guide=dgp.MeanField, key=1, rows=N, **options):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_normal(rows)
    options = {"batch_size": BATCH, "steps": 12, "progress": False, "z": [x[:5], x[:5]]} | options
    if options.pop("near", False):
        options["local"] = dgp.NearRows(x, y, block=7)
    model = svgp if options["z"] is None else deep_gp
    options["z"] = x[:5] if model is svgp else options["z"]
    return dgp.fit(jax.random.key(key), model, guide(model), x, y, mesh=mesh, **options)


def say(**values):
    print(json.dumps(values), flush=True)


def difference(found, wanted):
    """Return the largest difference of losses and params, relative to the largest value of each."""
    pairs = [(found.losses, wanted.losses)]
    pairs += zip(*map(jax.tree.leaves, (found.params, wanted.params)), strict=True)
    arrays = [(np.asarray(a), np.asarray(b)) for a, b in pairs]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in arrays)


def exchanged(batch_size, rows=N):
    """Return the numbers that devices sum in a step, and the number of params."""
    found = fitted(steps=1, z=None, batch_size=batch_size, rows=rows)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (rows, 2))
    call = Call((x, x[:, 0]), {"z": x[:5], "batch_size": batch_size})
    options = dict.fromkeys(["optimizer", "loss", "start"]) | {"learning_rate": 0.1, "pad": False}
    guide = dgp.MeanField(svgp)
    problem = Problem.set_up("fit", jax.random.key(0), svgp, guide, call, steps=10, **options)
    state = problem.loop.init(jax.random.key(0), problem.data, {})
    mesh = checked_mesh("fit", "auto")
    loop, data = divided_loop("fit", problem.loop, mesh, state, problem.data, rows)
    steps = jax.jit(loop.run_chunk, out_shardings=loop._whole)
    text = steps.lower(loop._everywhere(state), 1, 0, data).compile().as_text()
    sums, kinds = 0, set()
    for kind, shapes in collectives(text):
        kinds.add(kind)
        sums += sum(math.prod(shape) for shape in shapes)
    params = sum(a.size for a in jax.tree.leaves(found.params))
    return {"kinds": sorted(kinds), "numbers": sums, "params": params}


def collectives(text):
    """Yield the kind and the shapes of each exchange between devices in a compiled program."""
    names = "all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute"
    for result, kind in re.findall(rf"= (.*?) ({names})(?:-start)?\(", text):
        shapes = re.findall(r"[a-z]+\d+\[([\d,]*)\]", result)
        yield kind, [[int(n) for n in shape.split(",") if n] for shape in shapes]


def on_devices():
    cases = {
        "minibatches": {},
        "all rows": {"batch_size": None, "z": None},
        "as many rows as devices divide": {"rows": 100, "batch_size": 20, "z": None},
        "importance weights": {"loss": dgp.ImportanceWeighted(2), "z": None},
        "a guide with arrays": {"guide": dgp.GlobalInducing, "steps": 4},
        "keep the best": {"keep_best": True, "z": None},
        "near rows": {"near": True, "steps": 4},
    }
    for name, options in cases.items():
        if options.get("guide") is dgp.GlobalInducing:
            options["guide"] = lambda model: dgp.GlobalInducing(
                model, pseudo_inputs=np.linspace(-2, 2, 10).reshape(5, 2)
            )
        one = fitted(**options)
        found = fitted("auto", **options)
        say(case=name, difference=difference(found, one), steps=len(found.losses))
    local = exchanged(20, rows=100)
    say(case="exchanged", minibatches=exchanged(BATCH), own_strata=local, rows=exchanged(None))
    mesh = jax.make_mesh((2, 2), ("a", "b"))
    say(case="two axes", difference=difference(fitted(mesh, z=None), fitted(z=None)))
    try:
        fitted("auto", z=None, learning_rate=1e30)
    except dgp.NonFiniteLossError as error:
        say(case="not finite", message=str(error), step=error.step)


def as_process(number, port, folder, steps):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"127.0.0.1:{port}", 2, int(number), heartbeat_timeout_seconds=10,
        shutdown_timeout_seconds=10,
    )  # fmt: skip
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    steps = int(steps)
    for name, options in {"key": {"key": int(number)}, "rows": {"rows": N + int(number)}}.items():
        try:
            fitted(mesh, steps=2, **options)
        except dgp.DataError as error:
            say(case=f"another {name}", message=str(error))
    found = fitted(mesh, steps=steps, checkpoint=folder, every=100)
    say(case="fit", losses=found.losses.tolist(), noise=float(found.params["noise"]))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    case, *words = sys.argv[1:]
    on_devices() if case == "devices" else as_process(*words)
