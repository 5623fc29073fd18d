"""Measure what the literature adds to a diffusion posterior, on the step problem.

All samplers start in the reference space of a `GlobalInducing` fit and use the target's gradient in
every step. A path of any of them has an importance weight, whose mean logarithm is the bound:

- ``denoising``: the process of `Diffusion`, that is of Vargas et al. (2023), to which the others
  are additions;
- ``learned noising``: the noising kernels are learned too (Richter et al. 2024);
- ``full covariance``: steps have a covariance instead of variances;
- ``bridge``: controlled Langevin steps along an annealing path (Vargas et al. 2024);
- ``underdamped``: the same with momenta and leapfrog steps (Geffner & Domke 2023; Blessing et al.
  2025);
- ``..., learned start``: draws start from a Gaussian of their own;
- ``resampled``: N particles of a fitted sampler, resampled where their effective number falls below
  half (Chen et al. 2025), against N without; both are bounds, of N paths each.

    python benchmarks/bridges.py [--only REGEX] [--seeds 1] [--steps 5000] [--json FILE]
"""

import argparse
import datetime
import json
import platform
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, random
from numpyro import handlers
from step_problem import Study, energy_distance, estimated, log_likelihood, model, optimizer

import dgp_ppl as dgp

H = 16  # numbers in the state
PATHS, DRAWS = 16, 2000  # of a gradient step, and of the measurement


class Variant(NamedTuple):
    """A sampler of K steps."""

    kind: str  # "denoising", "bridge" or "underdamped"
    steps: int
    learned_noising: bool = False
    full_covariance: bool = False
    learned_start: bool = False


VARIANTS = {
    "denoising, K = 8": Variant("denoising", 8),
    "denoising, K = 16": Variant("denoising", 16),
    "denoising, K = 8, learned noising": Variant("denoising", 8, learned_noising=True),
    "denoising, K = 8, full covariance": Variant("denoising", 8, full_covariance=True),
    "denoising, K = 8, learned start": Variant("denoising", 8, learned_start=True),
    "bridge, K = 8": Variant("bridge", 8),
    "bridge, K = 8, learned start": Variant("bridge", 8, learned_start=True),
    "underdamped, K = 8": Variant("underdamped", 8),
    "underdamped, K = 16": Variant("underdamped", 16),
    "underdamped, K = 8, learned start": Variant("underdamped", 8, learned_start=True),
    "underdamped, K = 16, learned start": Variant("underdamped", 16, learned_start=True),
}  # fmt: skip


class Target:
    """The step problem in the reference space of a fit: log of p(y, T(z)) |T'(z)| / N(z; 0, I)."""

    def __init__(self, study: Study) -> None:
        guide, params = study.fitted("gi")
        self.x, self.y = study.x, study.y
        self.program = dgp.transported(model, guide, params)

    def __call__(self, z: Any) -> Any:
        return self.both(z)[0]

    def both(self, z: Any) -> tuple[Any, Any]:
        """Return the log ratio, and v = T(z), [16]."""
        values = {"l1.v.reference": z[:8, None], "l2.v.reference": z[8:, None]}
        program = handlers.substitute(handlers.seed(self.program, random.key(0)), data=values)
        with handlers.trace() as sites:
            program(self.x, None)
        v = jnp.concatenate([sites[n]["value"][:, 0] for n in ("l1.v", "l2.v")])
        factor: Any = sites["transport"]["fn"].log_factor
        return log_likelihood(v, self.x, self.y) + factor, v

    def gradient(self, z: Any) -> Any:
        """Return the gradient, capped in norm."""
        g = jax.grad(self)(z)
        return g * jnp.minimum(1.0, 30.0 / jnp.sqrt(jnp.sum(jnp.square(g)) + 1e-12))


def normal(x: Any, mean: Any, scale: Any) -> Any:
    """Return log N(x; mean, scale²), or with the covariance scale scale^T of a lower triangle."""
    if jnp.ndim(scale) == 2:
        noise = jax.scipy.linalg.solve_triangular(scale, x - mean, lower=True)
        scale = jnp.diagonal(scale)
    else:
        noise = (x - mean) / scale
    return -0.5 * jnp.sum(noise**2) - jnp.sum(jnp.log(scale) + 0.5 * jnp.log(2 * jnp.pi))


class Sampler(eqx.Module):
    """A sampler's params. Every step returns the increment of its log weight."""

    net: eqx.nn.MLP
    backward: eqx.nn.MLP
    step: dict[str, Any]  # params of each step, [K, ...]
    start: dict[str, Any]
    variant: Variant = eqx.field(static=True)

    def __init__(self, variant: Variant, key: Any) -> None:
        K, kind = variant.steps, variant.kind
        size = 2 * H if kind == "underdamped" else H
        nets = []
        for k in random.split(key):
            net = eqx.nn.MLP(size + 9, H, 64, 2, jax.nn.silu, key=k)
            last: Any = lambda net: (net.layers[-1].weight, net.layers[-1].bias)  # noqa: E731
            nets.append(eqx.tree_at(last, net, replace_fn=jnp.zeros_like))
        self.net, self.backward = nets
        self.variant = variant
        zeros = jnp.zeros((K, H))
        decay = np.exp(-0.5 * 3.0 / K)
        first = {
            "denoising": 0.5 * np.log(1 - decay**2),
            "bridge": np.log(0.05),
            "underdamped": np.log(0.3),
        }[kind]
        self.step = {"log_size": zeros + first, "log_multiple": jnp.full(K, -5.0)}
        if variant.full_covariance:
            self.step["lower"] = jnp.zeros((K, H, H))
        if kind != "denoising":
            self.step |= {"beta": jnp.zeros(K), "friction": jnp.full(K, 0.5)}
        self.start = {"mean": jnp.zeros(H), "log_scale": jnp.zeros(H)}

    def drawn_start(self, key: Any) -> tuple[Any, Any]:
        """Return the state at the start, and minus its log density."""
        mean, scale = self.start["mean"], jnp.exp(self.start["log_scale"])
        if not self.variant.learned_start:
            mean, scale = lax.stop_gradient((mean, scale))
        x = mean + scale * random.normal(key, (H,))
        return x, -normal(x, mean, scale)

    def betas(self) -> Any:
        """Return the temperatures of the path, from 0 to 1, [K + 1]."""
        sums = jnp.cumsum(jax.nn.softmax(self.step["beta"]))
        return jnp.concatenate([jnp.zeros(1), sums])

    def path(self, key: Any, target: Target) -> tuple[Any, Any]:
        """Return the end of a path and its log weight."""
        key, key_start, key_momentum = random.split(key, 3)
        x, log_w = self.drawn_start(key_start)
        rho = random.normal(key_momentum, (H,))
        state = (x, rho)
        if self.variant.kind == "underdamped":
            log_w = log_w - normal(rho, 0.0, jnp.ones(H))
        (x, rho), increments = lax.scan(self.body(target), state, self.plan(key))
        return x, log_w + jnp.sum(increments) + self.end(x, rho, target)

    def end(self, x: Any, rho: Any, target: Target) -> Any:
        """Return the target's log density at the end of a path."""
        log_p = target(x) + normal(x, 0.0, jnp.ones(H))
        return log_p + (
            normal(rho, 0.0, jnp.ones(H)) if self.variant.kind == "underdamped" else 0.0
        )

    def plan(self, key: Any) -> Any:
        K = self.variant.steps
        plan = {**self.step, "t": jnp.arange(K) / K, "key": random.split(key, K)}
        if self.variant.kind != "denoising":
            betas = self.betas()
            plan["beta"], plan["next_beta"] = betas[:-1], betas[1:]
        return plan

    def body(self, target: Target) -> Any:
        kind = self.variant.kind
        step = {"denoising": self._denoise, "bridge": self._bridge, "underdamped": self._leap}[kind]
        return jax.checkpoint(lambda state, at: step(state, at, target))

    def control(self, net: Any, t: Any, *parts: Any) -> Any:
        waves = jnp.cos(jnp.pi * jnp.arange(1, 9) * t)
        return net(jnp.concatenate([*parts, jnp.asarray(t)[None], waves]))

    def _denoise(self, state: Any, at: Any, target: Target) -> Any:
        (x, rho), decay = state, np.exp(-0.5 * 3.0 / self.variant.steps)
        gain = (1 - decay**2) / decay
        gradient = lax.stop_gradient(target.gradient(x))  # as `Diffusion` does
        drift = self.control(self.net, at["t"], x) + jnp.exp(at["log_multiple"]) * gradient
        mean, scale = decay * x + gain * drift, jnp.exp(at["log_size"])
        if self.variant.full_covariance:
            scale = jnp.diag(scale) + jnp.tril(at["lower"], -1)
            new = mean + scale @ random.normal(at["key"], (H,))
        else:
            new = mean + scale * random.normal(at["key"], (H,))
        back = decay * new
        if self.variant.learned_noising:
            back = back + gain * self.control(self.backward, at["t"], new)
        noising = normal(x, back, jnp.full(H, np.sqrt(1 - decay**2)))
        return (new, rho), noising - normal(new, mean, scale)

    def _bridge(self, state: Any, at: Any, target: Target) -> Any:
        (x, rho), size = state, jnp.exp(at["log_size"])
        slope = lambda x, beta: beta * target.gradient(x) - x  # noqa: E731
        drift = lambda x: self.control(self.net, at["t"], x)  # noqa: E731
        scale = jnp.sqrt(2 * size)
        mean = x + size * (slope(x, at["beta"]) + drift(x))
        new = mean + scale * random.normal(at["key"], (H,))
        back = new + size * (slope(new, at["next_beta"]) - drift(new))
        return (new, rho), normal(x, back, scale) - normal(new, mean, scale)

    def _leap(self, state: Any, at: Any, target: Target) -> Any:
        x, rho = state
        size, keep = jnp.exp(at["log_size"]), jax.nn.sigmoid(at["friction"])
        scale = jnp.full(H, jnp.sqrt(1 - keep**2))
        mean = keep * rho + (1 - keep) * self.control(self.net, at["t"], x, rho)
        fresh = mean + scale * random.normal(at["key"], (H,))
        back = keep * fresh + (1 - keep) * self.control(self.backward, at["t"], x, fresh)
        increment = normal(rho, back, scale) - normal(fresh, mean, scale)
        slope = lambda x: at["next_beta"] * target.gradient(x) - x  # noqa: E731
        half = fresh + 0.5 * size * slope(x)
        new = x + size * half
        return (new, half + 0.5 * size * slope(new)), increment


def fitted(variant: Variant, target: Target, key: Any, steps: int) -> Sampler:
    sampler = Sampler(variant, key)
    params, static = eqx.partition(sampler, eqx.is_inexact_array)
    rule = optimizer(3e-3, steps)

    def loss(params: Any, key: Any) -> Any:
        path = lambda k: eqx.combine(params, static).path(k, target)[1]  # noqa: E731
        return -jnp.mean(jax.vmap(path)(random.split(key, PATHS)))

    @jax.jit
    def run(params: Any, keys: Any) -> Any:
        def update(state: Any, key: Any) -> Any:
            params, memory = state
            value, g = jax.value_and_grad(loss)(params, key)
            change, memory = rule.update(g, memory, params)
            return (optax.apply_updates(params, change), memory), value

        return lax.scan(update, (params, rule.init(params)), keys)

    (params, _), _ = run(params, random.split(key, steps))
    return eqx.combine(params, static)


@eqx.filter_jit
def measured_paths(sampler: Sampler, target: Target, key: Any) -> Any:
    def one(key: Any) -> Any:
        end, log_w = sampler.path(key, target)
        return target.both(end)[1], log_w

    return lax.map(one, random.split(key, DRAWS), batch_size=100)


@eqx.filter_jit
def particles(sampler: Sampler, target: Target, key: Any, num: int, resample: bool) -> Any:
    """Return the log of the mean weight of `num` particles.

    Where they are resampled, a step's weight comes from the annealing path at its end.
    """
    K = sampler.variant.steps
    key, *keys = random.split(key, 4)
    x, log_w = jax.vmap(sampler.drawn_start)(random.split(keys[0], num))
    rho = random.normal(keys[1], (num, H))
    one = jnp.ones(H)
    momentum = sampler.variant.kind == "underdamped"
    log_w = log_w + jax.vmap(lambda x: normal(x, 0.0, one))(x)  # temperature 0 of the path
    plans = jax.vmap(sampler.plan)(random.split(keys[2], num))
    total, body = jnp.zeros(()), sampler.body(target)

    def level(x: Any, rho: Any, beta: Any) -> Any:
        found = beta * target(x) + normal(x, 0.0, one)
        return found + (normal(rho, 0.0, one) if momentum else 0.0)

    for k in range(K):
        at = jax.tree.map(lambda a, k=k: a[:, k], plans)
        before = jax.vmap(level)(x, rho, at["beta"])
        (x, rho), increment = jax.vmap(body)((x, rho), at)
        log_w = log_w + increment + jax.vmap(level)(x, rho, at["next_beta"]) - before
        share = jax.nn.softmax(log_w)
        few = (1 / jnp.sum(share**2) < num / 2) & resample & (k < K - 1)
        key, chosen = random.split(key)
        offsets = (jnp.arange(num) + random.uniform(chosen)) / num
        places = jnp.minimum(jnp.searchsorted(jnp.cumsum(share), offsets), num - 1)
        places = jnp.where(few, places, jnp.arange(num))
        mean = jax.nn.logsumexp(log_w) - np.log(num)
        total = total + jnp.where(few, mean, 0.0)
        x, rho, log_w = x[places], rho[places], jnp.where(few, 0.0, log_w)
    return total + jax.nn.logsumexp(log_w) - np.log(num)


def measured(name: str, study: Study, target: Target, truth: Any, steps: int) -> dict[str, Any]:
    variant, begun = VARIANTS[name], time.perf_counter()
    sampler = jax.block_until_ready(fitted(variant, target, study.key, steps))
    seconds = time.perf_counter() - begun
    draws, log_w = (np.asarray(a) for a in measured_paths(sampler, target, random.key(1)))
    weights = np.exp(truth.log_weights - np.logaddexp.reduce(truth.log_weights))
    row = {
        "sampler": name, "gap": truth.log_evidence - float(np.mean(log_w)),
        "se": float(np.std(log_w) / np.sqrt(DRAWS)),
        "energy_distance": energy_distance(draws, np.asarray(truth.draws), weights),
        "seconds": seconds,
    }  # fmt: skip
    if variant.kind != "denoising":  # whose states have no path of targets
        for num in (16, 64):
            for resample in (False, True):
                keys = random.split(random.key(2), 100)
                run = lambda k, num=num, on=resample: particles(sampler, target, k, num, on)  # noqa: E731
                found = np.asarray(lax.map(run, keys))
                kind = "resampled" if resample else "weighted"
                row[f"gap_{num}_{kind}"] = truth.log_evidence - float(np.mean(found))
                row[f"se_{num}_{kind}"] = float(np.std(found) / 10)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="regular expression that names must match")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--annealed", required=True, help="annealed draws of step_problem.py")
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    args = parser.parse_args()
    kept = np.load(args.annealed)
    truth = estimated(kept["v"], np.asarray(kept["w"], np.float64), 16)
    for seed in range(args.seeds):
        study = Study(seed, 5000, PATHS, 3e-3)
        target = Target(study)
        for name in VARIANTS:
            if not re.search(args.only, name):
                continue
            row = {
                "seed": seed, **measured(name, study, target, truth, args.steps),
                "steps": args.steps, "jax": jax.__version__, "python": platform.python_version(),
                "date": datetime.date.today().isoformat(),
            }  # fmt: skip
            print(json.dumps(row), flush=True)
            if args.json:
                rows = json.loads(args.json.read_text()) if args.json.exists() else []
                args.json.write_text(json.dumps([*rows, row], indent=1) + "\n")
        jax.clear_caches()


if __name__ == "__main__":
    main()
