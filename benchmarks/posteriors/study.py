"""The posteriors of a problem, and what is measured of each."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.infer import NUTS
from problems import Problem

import dgp_ppl as dgp
from dgp_ppl.criticism import chain_diagnostics, prediction_diagnostics
from dgp_ppl.inference import evaluate

__all__ = ["GUIDES", "SAMPLERS", "AbsentError", "Study", "rows"]

RATE = 0.03  # of Adam
CHAINS = 8
KEYS = ("MeanField", "Decoupled", "GlobalInducing", "Diffusion", "Flow", "Implicit")
Row = dict[str, Any]


class AbsentError(Exception):
    """Says why a problem lacks a row."""


class Study:
    """One problem. Fits start from those that they build on, and are made once."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.key = problem, random.key(0)
        self._fits: dict[str, tuple[Any, Any, float]] = {}

    def fitted(self, name: str) -> tuple[Any, Any, float]:
        """Return a guide, its params, and the seconds of its fit and of those before it."""
        if name not in self._fits:
            self._fits[name] = GUIDES[name](self)
        return self._fits[name]

    def fit(self, guide: Any, first: str | None, start: Any = None, **options: Any) -> Any:
        """Fit a guide that starts from the fit `first`."""
        before = 0.0
        if first is not None:
            _, params, before = self.fitted(first)
            start = params if start is None else start
        p = self.problem
        start = p.rest if start is None else start
        key = random.fold_in(self.key, KEYS.index(type(guide).__name__))
        found = dgp.fit(
            key, p.model, guide, *p.data, steps=p.steps, learning_rate=RATE, start=start or None,
            progress=False, **p.kwargs, **options,
        )  # fmt: skip
        return guide, found.params, before + found.seconds

    @cached_property
    def exact(self) -> dgp.Chains | None:
        """NUTS in the reference space of the mean-field fit."""
        if not self.problem.exact:
            return None
        guide, params, _ = self.fitted("mean_field")
        return self.sampled(NUTS(dgp.transported(self.problem.model, guide, params)), 1000, 1000, 1)

    def sampled(self, kernel: Any, warmup: int, draws: int, thinning: int) -> dgp.Chains:
        p = self.problem
        fields = ("round_trips",) if isinstance(kernel, dgp.ParallelTempering) else ()
        chains = dgp.run_mcmc(
            random.fold_in(self.key, 99), kernel, *p.data, num_warmup=warmup, num_samples=draws,
            thinning=thinning, num_chains=CHAINS, progress=False, extra_fields=fields, **p.kwargs,
        )  # fmt: skip
        kept = {n: a for n, a in chains.samples.items() if n.endswith(".v") or n == "latent"}
        return dataclasses.replace(chains, samples=kept, state=None)

    def evidence(self) -> Row:
        """The evidence that the bounds are on, by annealing from the best guide."""
        p = self.problem
        if p.evidence is None:
            return {}
        guide, params, _ = self.fitted("flow")
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "annealed_evidence: ")  # they are in the record
            found = dgp.annealed_evidence(
                self.key, p.model, guide, params, *p.data, **p.evidence, **p.kwargs
            )
        num = found.log_weights.size
        return {
            "evidence": found.log_evidence, "error": found.standard_error, "particles": num,
            "worth": found.effective_particles / num, "temperatures": len(found.acceptance),
            "doubts": list(found.warnings), "seconds": time.perf_counter() - begun,
        }  # fmt: skip

    def guide(self, name: str) -> Row:
        guide, params, seconds = self.fitted(name)
        p = self.problem
        bound, error = evaluate(
            self.key, p.model, guide, params, *p.data, num_draws=2000, **p.kwargs
        )
        row = {"bound": bound, "bound_error": error, "seconds": seconds}
        return row | self._distances(guide, params) | self._log_density(guide, params)

    def sampler(self, name: str) -> Row:
        chains = self.exact if name == "nuts" else SAMPLERS[name](self)
        if chains is None:
            return {}
        found = chain_diagnostics(chains)
        row = dict(found) | {"seconds": chains.seconds}
        ess = found["ess"]
        row["ess_per_second"] = ess if isinstance(ess, str) else (ess or 0.0) / chains.seconds
        if "round_trips" in chains.fields:
            row["round_trips"] = int(chains.fields["round_trips"][:, -1].sum())
        p = self.problem
        if p.test is not None:
            row |= prediction_diagnostics(
                self.key, p.model, {}, *p.test, posterior_samples=chains, **p.kwargs
            )
        return row | self._distances(chains, {}) | self._log_density(None, {}, chains)

    def check(self, name: str) -> Row:
        """k-hat of a guide and, where the problem asks for it, simulation-based calibration.

        p-values are corrected for their number. An informed guide knows the data of the problem
        only.
        """
        guide, params, _ = self.fitted(name)
        p = self.problem
        num = 100 if p.calibrate and name != "diffusion" else 0
        begun = time.perf_counter()
        found = dgp.check_guide(
            self.key,
            p.model,
            guide,
            params,
            *p.data,
            num_simulations=num,
            learning_rate=RATE,
            **p.kwargs,
        )
        row: Row = {"khat": found.khat, "check_seconds": time.perf_counter() - begun}
        if found.p_values is not None:
            values = np.concatenate([np.ravel(a) for a in found.p_values.values()])
            row["vsbc_p"] = float(min(1.0, values.min() * len(values)))
        return row

    def _distances(self, posterior: Any, params: Any) -> Row:
        p = self.problem
        if self.exact is None or p.test is None:
            return {}
        exact = self.exact
        if posterior is exact:  # one half against the other shows the effect of chance
            halves = [
                dgp.Chains({n: a[part] for n, a in exact.samples.items()})
                for part in (slice(CHAINS // 2), slice(CHAINS // 2, None))
            ]
            exact, posterior = halves
        found = dgp.compare_posteriors(
            self.key, exact, posterior, p.model, params, *p.data, test=p.test, **p.kwargs
        )
        assert found.log_density is not None
        return {
            "distance": found.joint.value, "distance_error": found.joint.error,
            "density_difference": found.log_density.value,
            "density_error": found.log_density.error,
        }  # fmt: skip

    def _log_density(self, guide: Any, params: Any, chains: Any = None) -> Row:
        p = self.problem
        if p.test is None:
            return {}
        found = dgp.predict(
            self.key, p.model, guide, params, p.test[0], posterior_samples=chains,
            num_samples=500, **p.kwargs,
        )  # fmt: skip
        return {"log_density": float(jnp.mean(found.log_prob(p.test[1])))}


def mean_field(study: Study) -> Any:
    return study.fit(dgp.MeanField(study.problem.model), None)


def decoupled(study: Study) -> Any:
    p = study.problem
    if p.z_mean is None:
        raise AbsentError("no known inputs")
    return study.fit(dgp.Decoupled(p.model, p.z_mean), None)


def global_inducing(study: Study) -> Any:
    p = study.problem
    if p.pseudo is None:
        raise AbsentError("no known inputs")
    guide = dgp.GlobalInducing(p.model, p.pseudo)
    first, params, _ = study.fitted("mean_field")
    start = guide.start_from(study.key, first, params, *p.data, **p.kwargs)
    return study.fit(guide, "mean_field", start)


def on_base(make: Callable[..., Any], study: Study, **options: Any) -> Any:
    """Fit a guide on `GlobalInducing`, or on mean field where there are no known inputs."""
    base = "mean_field" if study.problem.pseudo is None else "global_inducing"
    guide = make(study.problem.model, base=study.fitted(base)[0])
    return study.fit(guide, base, keep_best=True, **options)


def diffusion(study: Study) -> Any:
    make = partial(dgp.Diffusion, steps=8, informed=study.problem.data)
    return on_base(make, study, loss=dgp.DiffusionELBO(8))


def flow(study: Study) -> Any:
    return on_base(dgp.Flow, study)


def implicit(study: Study) -> Any:
    return study.fit(dgp.Implicit(study.problem.model), None)


def sghmc(study: Study) -> dgp.Chains:
    return study.sampled(dgp.SGHMC(study.problem.model), 4000, 1000, 50)


def sghmc_transported(study: Study) -> dgp.Chains:
    return study.sampled(dgp.SGHMC(_in_reference(study)), 4000, 1000, 50)


def sghmc_coupled(study: Study) -> dgp.Chains:
    """SGHMC in the space of the Gaussian that couples the layers."""
    if study.problem.pseudo is None:
        raise AbsentError("no known inputs")
    return study.sampled(dgp.SGHMC(_in_reference(study, "global_inducing")), 4000, 1000, 50)


def adjusted_mclmc(study: Study) -> dgp.Chains:
    if not study.problem.exact:
        raise AbsentError("too many unit-noise values")
    return study.sampled(dgp.AdjustedMCLMC(_in_reference(study)), 1000, 1000, 1)


def tempering(study: Study) -> dgp.Chains:
    """Parallel tempering between mean field and the posterior."""
    if not study.problem.exact:
        raise AbsentError("too many unit-noise values")
    return study.sampled(dgp.ParallelTempering(_in_reference(study)), 1000, 1000, 1)


def nuts_in_flow(study: Study) -> dgp.Chains:
    """NUTS in the space of the flow's noise."""
    if not study.problem.exact:
        raise AbsentError("too many unit-noise values")
    return study.sampled(NUTS(_in_reference(study, "flow")), 1000, 1000, 1)


def _in_reference(study: Study, name: str = "mean_field") -> Any:
    guide, params, _ = study.fitted(name)
    return dgp.transported(study.problem.model, guide, params)


GUIDES: dict[str, Callable[[Study], Any]] = {
    f.__name__: f for f in (mean_field, decoupled, global_inducing, diffusion, flow, implicit)
}
SAMPLERS: dict[str, Callable[[Study], dgp.Chains]] = {
    f.__name__: f
    for f in (
        sghmc,
        sghmc_transported,
        sghmc_coupled,
        adjusted_mclmc,
        tempering,
        nuts_in_flow,
    )
}


def rows(study: Study) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Iterate over names of rows and what measures them."""
    for name in GUIDES:
        yield name, partial(study.guide, name)
        yield f"check_{name}", partial(study.check, name)
    yield "evidence", study.evidence
    for name in ("nuts", *SAMPLERS):
        yield name, partial(study.sampler, name)
