"""The methods of `compare`: how each is fitted to a standardised training set."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Shaped
from numpyro import handlers
from numpyro.infer import NUTS, init_to_sample

from dgp_ppl import initialize, models
from dgp_ppl._typing import Inputs, Model, Params, PRNGKey
from dgp_ppl.comparison._settings import Built, Setting, build, deep_gp
from dgp_ppl.inference import (
    Chains,
    Decoupled,
    Diffusion,
    FitResult,
    GlobalInducing,
    Implicit,
    LayerGuide,
    MCEMResult,
    MeanField,
    evaluate,
    fit,
    fit_mcem,
    freeze,
    run_mcmc,
    transported,
)
from dgp_ppl.kernels import SquaredExponential
from dgp_ppl.models import KernelMaker
from dgp_ppl.prediction import Prediction, predict

__all__ = ["METHODS", "Fitted", "Method", "methods_for_task", "register"]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted method: what `predict` takes, and what the table reports.

    Attributes:
        model: the model to predict with.
        guide: its guide, or None.
        kwargs: the model's keyword arguments.
        result: the fit; its params are those to predict with.
        elbo_per_datum: the bound on the log evidence of the standardised target, in nats per
            datum, averaged over many draws at the final params. None for samplers.
        chains: a sampler's draws of the posterior, in place of a guide's.
        draws: draws, or members of an ensemble, that are no chains'.
    """

    model: Model
    guide: Model | None
    kwargs: dict[str, Any]
    result: FitResult | MCEMResult
    elbo_per_datum: float | None = None
    chains: Chains | None = None
    draws: dict[str, Array] | None = None

    def predict(self, key: PRNGKey, x: ArrayLike, **options: Any) -> Prediction:
        """The predictive distribution at inputs x; `options` are those of `predict`."""
        options |= {"posterior_samples": self.chains or self.draws, **self.kwargs}
        return predict(key, self.model, self.guide, self.result.params, x, **options)


class Method(Protocol):
    """Fits to standardised inputs and target, or classes 0 ... C-1."""

    def __call__(
        self, key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
    ) -> Fitted: ...


METHODS: dict[str, Method] = {}
NUTS_FIELDS = ("potential_energy", "accept_prob", "num_steps")
_REGRESSION: set[str] = set()
_EVALUATED_ROWS = 10_000
_MODEL_RATE = 0.3  # of the learning rate, for the model's own params, as in `fit`
_THINNING = 20  # steps of the sampler between draws
_POSITIVE = dist.constraints.positive
_DRAWS = 100  # of bounds that are noisy because hidden layers are drawn


def register(name: str, *, regression_only: bool = False) -> Callable[[Method], Method]:
    """Make a method known to `compare` under a name; it may know Gaussian noise alone."""

    def add(method: Method) -> Method:
        METHODS[name] = method
        if regression_only:
            _REGRESSION.add(name)
        return method

    return add


def methods_for_task(methods: Sequence[str], task: str) -> tuple[str, ...]:
    """Those of the methods that can do a task."""
    return tuple(m for m in methods if task == "regression" or m not in _REGRESSION)


@register("sgpr", regression_only=True)
def _sgpr(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Sparse GP regression, Titsias (2009): all rows at every step."""
    key_z, key_fit = random.split(key)
    z = initialize.inducing_inputs(key_z, x, setting.inducing)
    return collapsed(key_fit, x, y, setting, label, z)


def collapsed(
    key: PRNGKey,
    x: Inputs,
    y: Shaped[Array, " N"],
    setting: Setting,
    label: str | bool,
    z: Array,
    kernel: KernelMaker = SquaredExponential.learned,
    fixed: bool = False,
) -> Fitted:
    """`models.sgpr` with inducing inputs that start at z, or stay there."""
    key_fit, key_elbo = random.split(key)
    held = {"l1.z": z} if fixed else {}
    model = freeze(models.sgpr, held) if fixed else models.sgpr
    own: dict[str, Any] = {"z": z, "kernel": kernel}
    options: dict[str, Any] = {"steps": setting.steps, "learning_rate": setting.learning_rate}
    result = fit(key_fit, model, _no_latents, x, y, progress=label, **options, **own)
    params = {**result.params, **held}
    elbo, _ = evaluate(key_elbo, models.sgpr, _no_latents, params, x, y, num_draws=2, **own)
    best = models.optimal_inducing(params, x, y, kernel=kernel)
    result = dataclasses.replace(result, params=best)
    return Fitted(models.svgp, MeanField(models.svgp), own, result, elbo / len(y))


@register("svgp")
def _svgp(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Sparse variational GP in minibatches, Hensman et al. (2013)."""
    key_z, key_fit = random.split(key)
    built = deep_gp(key_z, x, y, dataclasses.replace(setting, depth=1))
    return _fit_guide(key_fit, x, y, setting, label, MeanField(built.model), built)


@register("dsvi")
def _doubly_stochastic(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP by doubly stochastic variational inference, Salimbeni & Deisenroth (2017)."""
    key_z, key_fit = random.split(key)
    built = build(key_z, x, y, setting)
    return _fit_guide(key_fit, x, y, setting, label, MeanField(built.model), built)


@register("global_inducing")
def _global_inducing(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP with coupled layers, from a mean-field fit that takes half of the steps."""
    key_first, key_z, key_start, key_fit = random.split(key, 4)
    half = dataclasses.replace(setting, steps=-(-setting.steps // 2))
    first = _doubly_stochastic(key_first, x, y, half, label)
    guide = GlobalInducing(first.model, initialize.inducing_inputs(key_z, x, setting.inducing))
    assert isinstance(first.guide, MeanField)
    start = guide.start_from(key_start, first.guide, first.result.params, x, **first.kwargs)
    return _go_on(key_fit, x, y, setting, label, guide, first, start)


@register("decoupled")
def _decoupled(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP with decoupled inducing inputs (Havasi et al. 2018): twice as many for the mean."""
    key_z, key_fit = random.split(key)
    built = build(key_z, x, y, setting)
    # By the same key: of a deep kernel the network is the same too.
    more = build(key_z, x, y, dataclasses.replace(setting, inducing=2 * setting.inducing))
    guide = Decoupled(built.model, z_mean=more.inducing)
    return _fit_guide(key_fit, x, y, setting, label, guide, built)


@register("diffusion")
def _diffusion(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP with a denoising chain on the coupled guide, for the last quarter of the steps."""
    key_first, key_fit = random.split(key)
    most = dataclasses.replace(setting, steps=-(-3 * setting.steps // 4))
    first = _global_inducing(key_first, x, y, most, label)
    assert isinstance(first.guide, LayerGuide)
    # Predictions have no minibatch, and would take every step's gradient on all rows.
    informed = (x, y) if len(y) <= setting.batch else None
    guide = Diffusion(first.model, steps=4, base=first.guide, informed=informed)
    return _go_on(key_fit, x, y, setting, label, guide, first, first.result.params)


@register("implicit")
def _implicit(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP with an implicit posterior (Yu et al. 2019)."""
    key_z, key_fit = random.split(key)
    built = build(key_z, x, y, setting)
    guide = Implicit(built.model)
    return _fit_guide(key_fit, x, y, setting, label, guide, built, num_draws=_DRAWS)


@register("sghmc")
def _sghmc(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP by stochastic-gradient HMC with moving-window MCEM (Havasi et al. 2018)."""
    key_z, key_fit = random.split(key)
    built = build(key_z, x, y, setting)
    # A step of the sampler is cheap, a draw that is kept costs a pass of every prediction.
    result = fit_mcem(
        key_fit, built.model, x, y, steps=setting.steps,
        learning_rate=_MODEL_RATE * setting.learning_rate, num_samples=setting.draws,
        num_chains=setting.chains, thinning=_THINNING, batch_size=setting.batch,
        progress=label, **built.kwargs,
    )  # fmt: skip
    return Fitted(built.model, None, built.kwargs, result, chains=result.chains)


@register("nuts")
def _nuts(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """Deep GP by NUTS in the white space of a mean-field fit, at that fit's hyperparameters."""
    return _no_u_turns(key, x, y, setting, label, priors=False)


@register("nuts_priors")
def _nuts_priors(
    key: PRNGKey, x: Inputs, y: Shaped[Array, " N"], setting: Setting, label: str | bool
) -> Fitted:
    """The same with hyperparameters sampled too, under log-normal priors about their starts."""
    return _no_u_turns(key, x, y, setting, label, priors=True)


def _no_u_turns(
    key: PRNGKey,
    x: Inputs,
    y: Shaped[Array, " N"],
    setting: Setting,
    label: str | bool,
    *,
    priors: bool,
) -> Fitted:
    """As many draws of warm-up as are kept, with all rows in every gradient."""
    key_fit, key_run = random.split(key)
    first = _doubly_stochastic(key_fit, x, y, setting, label)
    model, params = first.model, first.result.params
    assert isinstance(first.guide, MeanField)
    if priors:
        model = handlers.lift(model, _log_normals(model, x, first.kwargs))
    program = transported(model, first.guide, params)
    chains = run_mcmc(
        key_run, NUTS(program, init_strategy=init_to_sample), x, y, num_warmup=setting.draws,
        num_samples=setting.draws, num_chains=setting.chains, extra_fields=NUTS_FIELDS,
        progress=label, **first.kwargs,
    )  # fmt: skip
    # Unit noise belongs to the training rows, and white values to the sampler.
    kept = {n: a for n, a in chains.samples.items() if not n.endswith((".white", ".eps"))}
    chains = dataclasses.replace(chains, samples=kept)
    return Fitted(model, None, first.kwargs, first.result, chains=chains)


def _log_normals(model: Model, x: Inputs, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Priors of a model's positive params: log-normal about where they start, of scale 1."""
    sites = handlers.trace(handlers.seed(model, 0)).get_trace(x, **kwargs)
    found = {n: s for n, s in sites.items() if s["type"] == "param"}
    positive = {n for n, s in found.items() if s["kwargs"].get("constraint") is _POSITIVE}
    return {
        n: dist.LogNormal(jnp.log(s["value"]), 1.0).to_event(jnp.ndim(s["value"]))
        for n, s in found.items()
        if n in positive
    }


def _fit_guide(
    key: PRNGKey,
    x: Inputs,
    y: Shaped[Array, " N"],
    setting: Setting,
    label: str | bool,
    guide: LayerGuide,
    built: Built,
    num_draws: int = 20,
    **options: Any,
) -> Fitted:
    """A guide of a model, fitted in minibatches."""
    key_fit, key_elbo = random.split(key)
    rates = {"steps": setting.steps, "learning_rate": setting.learning_rate}
    start = {"start": built.start} if built.start else {}
    options = {"batch_size": setting.batch, "progress": label, **rates, **start, **options}
    options |= built.kwargs
    result = fit(key_fit, built.model, guide, x, y, **options)
    rows: dict[str, Any] = {**built.kwargs, "batch_size": _EVALUATED_ROWS, "num_draws": num_draws}
    elbo, _ = evaluate(key_elbo, built.model, guide, result.params, x, y, **rows)
    return Fitted(built.model, guide, built.kwargs, result, elbo / len(y))


def _go_on(
    key: PRNGKey,
    x: Inputs,
    y: Shaped[Array, " N"],
    setting: Setting,
    label: str | bool,
    guide: LayerGuide,
    first: Fitted,
    start: Params,
) -> Fitted:
    """The rest of the steps with another guide."""
    rest = dataclasses.replace(setting, steps=max(1, setting.steps - len(first.result.losses)))
    built = Built(first.model, first.kwargs)
    second = _fit_guide(
        key, x, y, rest, label, guide, built, num_draws=_DRAWS, start=start, keep_best=True
    )
    losses = np.concatenate([first.result.losses, second.result.losses])
    seconds = first.result.seconds + second.result.seconds
    result = dataclasses.replace(second.result, losses=losses, seconds=seconds)
    return dataclasses.replace(second, result=result)


def _no_latents(*args: Any, **kwargs: Any) -> None:
    """The guide of a model without latent sites."""
