"""Measure how closely each guide matches a posterior that no Gaussian can match.

The model is a deep GP of two layers on 40 points of a step. Everything but its 2 x 8 inducing
values is fixed. Their posterior has several modes and curved ridges. Annealed importance sampling
(Neal 2001) gives its evidence, and batches of particles the standard error. For each guide and seed
the script prints the evidence minus the ELBO in nats, which is KL[q || p], and the energy distance
2 E|a - b| - E|a - a'| - E|b - b'| between its draws and the annealed ones.

    python benchmarks/step_problem.py [--guides mean-field,diffusion-8,...] [--seeds 1] \
        [--steps 5000] [--json FILE]
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax import lax, random
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy.special import logsumexp

import dgp_ppl as dgp
from dgp_ppl import kernels, means
from dgp_ppl.core import Handover, guide_site
from dgp_ppl.inference import (
    Diffusion,
    DiffusionELBO,
    Flow,
    GlobalInducing,
    ImportanceWeighted,
    SplineCoupling,
    VariancePreserving,
    evaluate,
    importance_evidence,
    log_mean,
)

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
Z = (np.linspace(-1.7, 1.7, 8)[:, None], np.linspace(-2.5, 2.5, 8)[:, None])
BATCH, LEAPFROGS = 250, 5  # of annealing: particles in a batch, leapfrog steps of a transition


def step_data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1.7, 1.7, 40))
    y = np.sign(x - 0.2) + 0.1 * rng.standard_normal(40)
    return jnp.asarray(x[:, None], float), jnp.asarray(y, float)


def model(x: Any, y: Any = None) -> None:
    """Two layers. Quadrature replaces the hidden layer's unit noise."""
    kernel = kernels.SquaredExponential(1.0, 0.8)
    f1 = dgp.gp("l1", kernel, Z[0], mean=means.identity)
    f2 = dgp.gp("l2", kernel, Z[1])
    f1.sample(x[:1])  # not used: it marks the layer as hidden for the guides
    h = f1(x)
    hidden = h.mean + jnp.sqrt(h.var) * jnp.asarray(NODES, x.dtype)  # [N, 8]
    weights = jnp.tile(jnp.asarray(WEIGHTS / WEIGHTS.sum(), x.dtype), len(x))
    targets = None if y is None else jnp.repeat(y, len(NODES))
    with numpyro.plate("data", hidden.size), handlers.scale(scale=weights):
        f = f2(hidden.reshape(-1, 1))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.1)), obs=targets)


def log_likelihood(v: Any, x: Any, y: Any) -> Any:
    """Return the bound's data term at inducing values v, [16]."""
    values = {"l1.v": v[:8, None], "l2.v": v[8:, None]}
    drawn: Any = {n: guide_site(n, Handover(), a) for n, a in values.items()}
    program = handlers.replay(handlers.seed(model, random.key(0)), drawn)
    joint: Any = log_density(program, (x, y), {}, {})[0]
    return joint - jnp.sum(dist.Normal().log_prob(v))


class Annealed(NamedTuple):
    """Draws [S, 16], their log weights [S], and the log evidence with its standard error."""

    draws: Any
    log_weights: Any
    log_evidence: float
    standard_error: float


def annealed(key: Any, log_p: Callable[[Any], Any], *, batches: int, temperatures: int) -> Annealed:
    """Anneal independent batches of particles; the error is the jackknife's over batches."""
    key_pilot, *keys = random.split(key, batches + 1)
    # Step sizes adapted during the run would bias the weights.
    _, _, found = anneal(key_pilot, log_p, jnp.full(temperatures, jnp.nan))
    sizes = jnp.exp(jnp.mean(jnp.log(found), axis=0))
    parts = [anneal(k, log_p, sizes)[:2] for k in keys]
    draws, log_weights = (np.concatenate([np.asarray(p[i]) for p in parts]) for i in (0, 1))
    return estimated(draws, log_weights, batches)


def estimated(draws: Any, log_weights: Any, batches: int) -> Annealed:
    log_sums = np.asarray(logsumexp(log_weights.reshape(batches, -1), axis=1), np.float64)
    value, error, _ = log_mean(log_sums - np.log(BATCH))
    return Annealed(draws, log_weights, value, error)


@partial(jax.jit, static_argnums=1)
def anneal(key: Any, log_p: Callable[[Any], Any], sizes: Any) -> tuple[Any, Any, Any]:
    """Anneal a batch of particles from the prior to N(0, I) exp(log_p) by HMC.

    `sizes` [K] has a step size for each temperature. Where it is NaN each particle adapts its own.
    Returns draws, log weights and step sizes.
    """
    betas = jnp.linspace(0, 1, len(sizes) + 1) ** 4

    def one(key: Any) -> tuple[Any, Any, Any]:
        key, start = random.split(key)
        v = random.normal(start, (16,))

        def rung(state: Any, plan: Any) -> Any:
            v, energy, w, adapted, key, last = state
            beta, given = plan
            size = jnp.where(jnp.isnan(given), adapted, given)
            w = w + (beta - last) * energy
            key, k1, k2, k3 = random.split(key, 4)
            potential = lambda v: 0.5 * jnp.sum(v**2) - beta * log_p(v)  # noqa: E731
            slope = jax.grad(potential)
            eps = size * random.uniform(k3, minval=0.7, maxval=1.3)
            p = random.normal(k1, (16,))

            def leap(_: Any, state: Any) -> Any:
                v, p, g = state
                p = p - 0.5 * eps * g
                v = v + eps * p
                g = slope(v)
                return v, p - 0.5 * eps * g, g

            new, q, _ = lax.fori_loop(0, LEAPFROGS, leap, (v, p, slope(v)))
            e_new = log_p(new)
            h = lambda v, e, p: 0.5 * jnp.sum(v**2) - beta * e + 0.5 * jnp.sum(p**2)  # noqa: E731
            rate = jnp.exp(jnp.minimum(0.0, h(v, energy, p) - h(new, e_new, q)))
            rate = jnp.where(jnp.isfinite(rate), rate, 0.0)
            accept = random.uniform(k2) < rate
            v, energy = jnp.where(accept, new, v), jnp.where(accept, e_new, energy)
            adapted = size * jnp.exp(0.05 * (rate - 0.75))
            return (v, energy, w, adapted, key, beta), size

        zero = jnp.zeros(())
        state = (v, log_p(v), zero, jnp.full((), 0.3), key, zero)
        (v, _, w, _, _, _), used = lax.scan(rung, state, (betas[1:], sizes))
        return v, w, used

    return jax.vmap(one)(random.split(key, BATCH))


def energy_distance(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> float:
    """Return the energy distance between draws a [S, D] and weighted draws b [T, D]."""

    def mean_distance(a: np.ndarray, b: np.ndarray, u: np.ndarray, w: np.ndarray) -> float:
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        return float(u @ np.sqrt(np.maximum(squares, 0)) @ w)

    u = np.full(len(a), 1 / len(a))
    same_a = mean_distance(a, a, u, u) * len(a) / (len(a) - 1)
    same_b = mean_distance(b, b, weights, weights) / (1 - np.sum(weights**2))
    return 2 * mean_distance(a, b, u, weights) - same_a - same_b


def optimizer(rate: float, steps: int) -> Any:
    schedule = optax.cosine_decay_schedule(rate, steps, alpha=0.03)
    return optax.chain(optax.clip_by_global_norm(5.0), optax.adam(schedule))


def flowjax_bijection(kind: str, key: Any) -> Any:
    """Return one of FlowJAX's bijections of the 16 inducing values; none starts at the identity."""
    from flowjax import bijections, distributions, flows

    options = {"base_dist": distributions.StandardNormal((16,)), "invert": False}
    if kind == "bnaf":
        return flows.block_neural_autoregressive_flow(key, flow_layers=2, **options).bijection
    options |= {"flow_layers": 8, "nn_width": 64, "nn_activation": jax.nn.silu}
    if kind == "splines":
        options["transformer"] = bijections.RationalQuadraticSpline(knots=8, interval=4)
    make = flows.masked_autoregressive_flow if kind == "iaf" else flows.coupling_flow
    return make(key, **options).bijection


class Study:
    """Fits of one seed. Each starts from the fit that it builds on."""

    def __init__(self, seed: int, steps: int, paths: int, rate: float) -> None:
        self.key, self.x, self.y = random.key(seed), *step_data()
        self.steps, self.rate, self.loss = steps, rate, DiffusionELBO(paths)
        self.fits: dict[str, tuple[Any, Any]] = {}

    def fitted(self, name: str) -> tuple[Any, Any]:
        """Return the guide of a name, and its fitted params."""
        if name not in self.fits:
            self.fits[name] = self._fit(name)
        return self.fits[name]

    def _fit(self, name: str) -> tuple[Any, Any]:
        kind, *options = name.split(":")
        start, rate, loss = None, self.rate, self.loss
        if kind == "mean-field":
            guide: Any = dgp.MeanField(model, hidden_scale=0.1)
            rate, loss = 0.03, None
        elif kind == "gi":
            guide = GlobalInducing(model, np.linspace(-1.7, 1.7, 16)[:, None])
            first, params = self.fitted("mean-field")
            start = guide.start_from(self.key, first, params, self.x, self.y)
        else:
            choices = dict(option.split("=") for option in options)
            base = choices.get("base", "mean-field")
            found, start = (base, None) if base == "prior" else self.fitted(base)
            if kind == "flow":
                guide = self._flow(choices, found)
                return guide, self._fit_from(guide, start, rate, loss).params
            low, high = map(float, choices.get("b", "0.1,20").split(","))
            guide = Diffusion(
                model,
                steps=int(choices.get("K", 8)),
                base=found,
                schedule=VariancePreserving(low, high),
                informed=(self.x, self.y) if choices.get("informed") else None,
            )
        return guide, self._fit_from(guide, start, rate, loss).params

    def _fit_from(self, guide: Any, start: Any, rate: float, loss: Any) -> Any:
        return dgp.fit(
            self.key,
            model,
            guide,
            self.x,
            self.y,
            steps=self.steps,
            optimizer=optimizer(rate, self.steps),
            loss=loss,
            start=start,
            progress=False,
        )

    def _flow(self, choices: dict[str, str], base: Any) -> Any:
        """Return a flow; `kind` takes one of FlowJAX's, and `layers` changes the default's."""
        landing = choices.get("stl", "1") == "1"
        if "kind" in choices:
            flow = flowjax_bijection(choices["kind"], self.key)
        else:
            flow = partial(SplineCoupling, layers=int(choices.get("layers", 8)))
        return Flow(model, base=base, flow=flow, stick_the_landing=landing)

    def measured(self, name: str, truth: Annealed) -> dict[str, Any]:
        log_weights = np.asarray(truth.log_weights, np.float64)
        log_sum: Any = logsumexp(log_weights)
        weights = np.exp(log_weights - float(log_sum))
        begun = time.perf_counter()
        guide, params = self.fitted(name)
        seconds = time.perf_counter() - begun
        args = self.x, self.y
        elbo, error = evaluate(self.key, model, guide, params, *args, num_draws=2000)
        sites = guide.sample_posterior(self.key, params, *args, sample_shape=(2000,))
        draws = np.concatenate([np.asarray(sites[f"l{l}.v"])[..., 0] for l in (1, 2)], axis=1)
        row = {"guide": name, "gap": truth.log_evidence - elbo, "se": error, "seconds": seconds}
        row["energy_distance"] = energy_distance(draws, np.asarray(truth.draws), weights)
        if isinstance(guide, Flow):
            weighted = ImportanceWeighted(1000, "global")
            row["weighted_evidence"], row["weighted_error"] = evaluate(
                self.key, model, guide, params, *args, loss=weighted, num_draws=40
            )
        if isinstance(guide, Diffusion):
            weighted = importance_evidence(self.key, model, guide, params, *args, num_paths=2000)
            row["weighted_evidence"] = weighted.log_evidence
            row["effective_paths"] = weighted.effective_paths
        return row


GUIDES = (
    "mean-field",
    "diffusion:base=prior:K=16",
    "diffusion:K=8",
    "diffusion:K=32",
    "diffusion:K=8:informed=1",
    "gi",
    "diffusion:base=gi:K=8",
    "diffusion:base=gi:K=16:b=3,3",
    "diffusion:base=gi:K=16:b=3,3:informed=1",
    "flow",
    "flow:base=gi",
    "flow:base=gi:stl=0",
    "flow:base=gi:kind=affine:stl=0",
    "flow:base=gi:kind=splines:stl=0",
    "flow:base=gi:kind=iaf:stl=0",
    "flow:base=gi:kind=bnaf:stl=0",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--guides", nargs="*", default=GUIDES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--paths", type=int, default=64, help="paths per gradient step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--batches", type=int, default=16, help=f"batches of {BATCH} particles")
    parser.add_argument("--temperatures", type=int, default=1500)
    parser.add_argument("--annealed", help="file that keeps the annealed draws (.npz)")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    x, y = step_data()
    if args.annealed and Path(args.annealed).exists():
        kept = np.load(args.annealed)
        truth = estimated(kept["v"], kept["w"], args.batches)
    else:
        log_p = lambda v: log_likelihood(v, x, y)  # noqa: E731
        options = {"batches": args.batches, "temperatures": args.temperatures}
        truth = annealed(random.key(0), log_p, **options)
        if args.annealed:
            np.savez(args.annealed, v=truth.draws, w=truth.log_weights)
    print(f"log evidence {truth.log_evidence:.4f} ({truth.standard_error:.4f})", flush=True)
    about = {
        "log_evidence": truth.log_evidence,
        "log_evidence_error": truth.standard_error,
        "particles": len(truth.log_weights),
        "temperatures": args.temperatures,
        "steps": args.steps,
        "paths": args.paths,
        "rate": args.rate,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    rows = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        study = Study(seed, args.steps, args.paths, args.rate)
        for name in args.guides:
            rows.append({"seed": seed} | study.measured(name, truth))
            shown = (
                f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in rows[-1].items()
            )
            print("  ".join(shown), flush=True)
            if args.json:
                Path(args.json).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
        jax.clear_caches()  # a process holds a limited number of compiled programs


if __name__ == "__main__":
    main()
