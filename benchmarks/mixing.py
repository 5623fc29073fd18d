"""Measure how SGHMC mixes in a deep GP: in v, in function values, and in predictive densities.

The model has two layers with M = 50 and a kernel for each hidden unit; the split is the first of
dsdgp's. Hyperparameters are held at a `MeanField` fit. Four chains start at draws of a guide, all
settings of a space at the same ones. Settings:

- ``model``: the model itself;
- ``mean_field``: the reference space of the `MeanField` fit (`transported`);
- ``global_inducing``: the reference space of a `GlobalInducing` fit at the same hyperparameters;
- ``long``: steps of 0.4 with friction 0.05, where others have the defaults.

R-hat is the largest rank-normalised split R-hat, and ESS the smallest effective sample size: ``v``
of all inducing values, ``f`` of function values at 50 training inputs, ``density`` of the mean log
density of the test rows. The last two are means over 8 draws of the hidden noise for each of 100
draws of a chain. ``energies`` are the chains' mean potential energies in nats, which tell whether
chains sit in modes of different depth. ``widest_reference`` is the largest standard deviation of a
reference value of each layer, 1 if the guide were right. Set DGP_PPL_DATA to the data's folder.

    python benchmarks/mixing.py [--sets uci/energy,uci/concrete] [--steps 12000] [--json FILE]
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import arviz_stats
import jax
import numpy as np
import numpyro
from jax import random
from numpyro import handlers

import dgp_ppl as dgp
from dgp_ppl import initialize
from dgp_ppl.criticism import chain_diagnostics, prediction_diagnostics
from dgp_ppl.models import deep_gp

CHAINS, WARMUP, THINNING, DRAWS, NOISE = 4, 2000, 20, 100, 8
LONG = {"step_size": 0.4, "friction": 0.05}
SETTINGS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "model": ("model", WARMUP, {}),
    "model, long": ("model", WARMUP, LONG),
    "mean_field": ("mean_field", WARMUP, {}),
    "mean_field, long": ("mean_field", WARMUP, LONG),
    "global_inducing": ("global_inducing", WARMUP, {}),
    "global_inducing, long": ("global_inducing", WARMUP, LONG),
}


class Problem:
    """A data set with its fits: the spaces to sample in, each with a start for every chain."""

    def __init__(self, name: str, steps: int, pseudo: int) -> None:
        data = dgp.datasets.load(name, split_key="dsdgp_test_index")
        train, test = dgp.datasets.splits(data, 1, 0)[0]
        self.scale = dgp.Standardizer.fit(data.x[train], data.y[train])
        x, y = self.scale.inputs(data.x[train]), self.scale.outputs(data.y[train])
        self.x, self.y, self.test = x, y, (data.x[test], data.y[test])
        keys = random.split(random.key(0), 6)
        self.kwargs = initialize.deep_gp(keys[0], x, num_inducing=50, depth=2)
        options: dict[str, Any] = {"batch_size": 1000, "progress": False, **self.kwargs}
        mean_field = dgp.MeanField(deep_gp)
        first = dgp.fit(keys[1], deep_gp, mean_field, x, y, steps=steps, **options)
        self.params = {n: a for n, a in first.params.items() if ".v." not in n}
        fixed = dgp.freeze(deep_gp, self.params)
        coupled = dgp.GlobalInducing(fixed, initialize.inducing_inputs(keys[2], x, pseudo))
        start = coupled.start_from(keys[3], mean_field, first.params, x, **self.kwargs)
        start = {n: a for n, a in start.items() if n not in self.params}
        second = dgp.fit(keys[4], fixed, coupled, x, y, steps=steps, start=start, **options)
        self.seconds = {"mean_field": first.seconds, "global_inducing": second.seconds}
        self.spaces: dict[str, Any] = {
            "mean_field": dgp.transported(deep_gp, mean_field, first.params),
            "global_inducing": dgp.transported(fixed, coupled, second.params),
        }
        drawn = {n: self._drawn(keys[5], program) for n, program in self.spaces.items()}
        self.starts = {n: _ending(values, ".reference") for n, values in drawn.items()}
        self.spaces["model"] = fixed
        self.starts["model"] = _ending(drawn["mean_field"], ".v")

    def _drawn(self, key: Any, program: Any) -> dict[str, Any]:
        """Draw the guide's v, and the reference values behind it, for each chain."""

        def one(key: Any) -> dict[str, Any]:
            sites = handlers.trace(handlers.seed(program, key)).get_trace(
                self.x, self.y, **self.kwargs
            )
            return {n: sites[n]["value"] for n in sites if n.endswith((".v", ".reference"))}

        return jax.jit(jax.vmap(one))(random.split(key, CHAINS))

    def function_values(self, key: Any, chains: dgp.Chains) -> np.ndarray:
        """Return means of f at 50 inputs over draws of the hidden noise, [C, S, 50]."""
        kept = chains.spaced(DRAWS)
        repeated: Any = {n: np.repeat(a, NOISE, axis=0) for n, a in kept.get_samples().items()}
        passes = dgp.predict(
            key, deep_gp, None, self.params, self.x[:50], posterior_samples=repeated,
            num_samples=len(next(iter(repeated.values()))), **self.kwargs,
        )  # fmt: skip
        passes = dataclasses.replace(passes, num_noise=NOISE)  # the same for all draws
        means = [
            np.asarray(jax.vmap(lambda m: m.components.mean[0])(mixtures))
            for _, mixtures in passes.components()
        ]
        values = np.concatenate(means, axis=1)[:, :50]  # the last chunk is padded
        return values.reshape(*kept.shape, NOISE, 50).mean(axis=2)


def _ending(values: dict[str, Any], end: str) -> dict[str, Any]:
    return {n: a for n, a in values.items() if n.endswith(end)}


def measure(problem: Problem, setting: str, steps: int, batch_size: int) -> dict[str, Any]:
    """Return the row of one setting."""
    space, warmup, options = SETTINGS[setting]
    key_run, key_f, key_density = random.split(random.key(1), 3)
    chains = dgp.run_mcmc(
        key_run, dgp.SGHMC(problem.spaces[space], **options), problem.x, problem.y,
        num_warmup=warmup, num_samples=steps // THINNING, thinning=THINNING, num_chains=CHAINS,
        init_params=problem.starts[space], batch_size=batch_size, progress=False,
        extra_fields=("potential_energy", "temperature"), **problem.kwargs,
    )  # fmt: skip
    v = dgp.Chains(_ending(chains.samples, ".v"))
    values = np.concatenate([a.reshape(*v.shape, -1) for a in v.samples.values()], axis=-1)
    statistics: Any = arviz_stats  # typed lazily
    rhats = np.asarray(statistics.rhat(values.astype(float), chain_axis=0, draw_axis=1))
    found = {"v": chain_diagnostics(v)}
    found["f"] = chain_diagnostics(dgp.Chains({"f": problem.function_values(key_f, chains)}))
    density = prediction_diagnostics(
        key_density, deep_gp, problem.params, *problem.test, posterior_samples=v,
        num_draws=DRAWS, num_noise=NOISE, standardizer=problem.scale, **problem.kwargs,
    )  # fmt: skip
    held = dgp.predict(
        key_density, deep_gp, None, problem.params, problem.test[0], posterior_samples=v,
        num_samples=400, standardizer=problem.scale, **problem.kwargs,
    )  # fmt: skip
    energies = chains.fields["potential_energy"]
    white = {n: a.std(axis=(0, 1)) for n, a in _ending(chains.samples, ".reference").items()}
    return {
        "setting": setting,
        "warmup": warmup,
        **{f"rhat_{n}": _rounded(d["rhat"]) for n, d in found.items()},
        "rhat_density": _rounded(density["rhat_log_density"]),
        "rhat_worst_row": _rounded(density["rhat_predictions"]),
        "share_of_v_above_1.2": _rounded(np.mean(rhats > 1.2)),
        **{f"ess_{n}": _rounded(d["ess"], 0) for n, d in found.items()},
        "ess_density": _rounded(density["ess_log_density"], 0),
        "log_density": _rounded(held.log_prob(problem.test[1]).mean()),
        "widest_reference": {n: _rounded(a.max(), 1) for n, a in white.items()},
        "energies": energies.mean(axis=1).round(1).tolist(),
        "temperature": _rounded(chains.fields["temperature"].mean()),
        "seconds": round(chains.seconds, 1),
    }


def _rounded(value: Any, digits: int = 3) -> Any:
    return value if isinstance(value, str) else round(float(value), digits)  # "stuck" stays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="uci/energy,uci/concrete")
    parser.add_argument("--settings", default=";".join(SETTINGS), help="separated by semicolons")
    parser.add_argument("--steps", type=int, default=12_000, help="after warm-up")
    parser.add_argument("--batch-size", type=int, default=200)
    parser.add_argument("--fit-steps", type=int, default=4000, help="of each guide")
    parser.add_argument("--pseudo", type=int, default=100, help="number of pseudo-inputs")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[Any] = []
    record: dict[str, Any] = {
        "jax": jax.__version__, "numpyro": numpyro.__version__, "steps": args.steps,
        "batch_size": args.batch_size, "fit_seconds": {}, "rows": rows,
    }  # fmt: skip
    for name in args.sets.split(","):
        problem = Problem(name, args.fit_steps, args.pseudo)
        record["fit_seconds"][name] = {n: round(s, 1) for n, s in problem.seconds.items()}
        for setting in args.settings.split(";"):
            rows.append({"set": name} | measure(problem, setting, args.steps, args.batch_size))
            print(json.dumps(rows[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(record, indent=1) + "\n")
        jax.clear_caches()


if __name__ == "__main__":
    main()
