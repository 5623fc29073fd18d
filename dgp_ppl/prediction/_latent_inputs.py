"""Latent inputs of training rows and new rows, and the reconstruction of rows from them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpyro
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to

from dgp_ppl._checks import (
    as_array,
    check_count,
    check_key,
    check_kind,
    check_positive,
    checked_call,
    params_of,
)  # fmt: skip
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey
from dgp_ppl.inference import FitResult, Implicit, LayerGuide, default_optimizer, fit, freeze
from dgp_ppl.inference._params import set_up_guide
from dgp_ppl.inference.runs._summary import Summarized
from dgp_ppl.prediction._predict import predict
from dgp_ppl.prediction._prediction import Prediction


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LatentInputs(Summarized):
    """The guide's normal distribution of the latent inputs of N rows, with independent entries.

    `latent_inputs` makes it for the rows of a fit, `infer_latent` for new rows. If the support of
    the site is not R^Q, the normal is in unconstrained space, before NumPyro's bijection.

    Attributes:
        mean: [N, Q].
        sd: [N, Q].
        x: the rows' known inputs, [N, D]; D may be 0.
        losses: loss of each step of `infer_latent`, [steps]; None for the rows of a fit.
    """

    mean: Array
    sd: Array
    x: Array
    losses: Any
    _model: Model
    _guide: LayerGuide
    _params: Params
    _site: str

    def summary(self) -> list[str]:
        known = f", beside {self.x.shape[1]} known inputs" if self.x.shape[1] else ""
        return [f"{len(self.mean)} rows of {self.mean.shape[1]} latent inputs{known}"]

    def reconstruct(self, key: PRNGKey, *, num_samples: int = 100, **kwargs: Any) -> Prediction:
        """Return the posterior predictive distribution of all entries of these rows' y.

        Args:
            key: random key.
            num_samples: passes S, each with one draw of the latent inputs.
            **kwargs: the model's keyword arguments, without those that have a value for each row,
                and options of `predict`. A `standardizer` is not supported: known inputs and y are
                in the model's units.
        """
        decoder = _Decoder(self._model, self._site)
        guide, moments = self._guide.with_model(decoder), (self.mean, self.sd)
        options = {"num_samples": num_samples, **kwargs}
        own = (f"{self._site}_auto_loc", f"{self._site}_auto_scale")  # the decoder draws it itself
        params = {n: a for n, a in self._params.items() if n not in own}
        return predict(key, decoder, guide, params, self.x, *moments, **options)


@dataclasses.dataclass(frozen=True)
class _Decoder:
    """The model at known inputs, [N, D], and a draw of the latent ones, with mean and sd [N, Q]."""

    model: Model
    site: str

    def __call__(self, x: Array, mean: Array, sd: Array, /, **kwargs: Any) -> Any:
        key: Any = numpyro.prng_key()
        w = mean + sd * random.normal(key, mean.shape, mean.dtype)

        def latent_value(site: Any) -> Array | None:
            return biject_to(site["fn"].support)(w) if site["name"] == self.site else None

        return handlers.condition(self.model, condition_fn=latent_value)(x, **kwargs)


def latent_inputs(
    model: Model, guide: LayerGuide, params: Params | Fitted, *, x: ArrayLike | None = None,
    site: str = "latent",
) -> LatentInputs:  # fmt: skip
    """Return the latent inputs of the rows that a guide was fitted to.

    Args:
        model: the model: `models.gplvm`, or another with a latent site in its data plate.
        guide: its guide, with NumPyro's params ``SITE_auto_loc`` and ``SITE_auto_scale``.
        params: the fit's params, or its result.
        x: the rows' known inputs, [N, D]; None if the model has none.
        site: the latent site, [Q] for each row.

    Raises:
        ValueError: if `params` has no such site.
    """
    params = params_of("latent_inputs", params)
    mean, sd = _moments(params, site)
    known = jnp.zeros((len(mean), 0)) if x is None else jnp.asarray(x, float)
    return LatentInputs(mean, sd, known, None, model, guide, params, site)


def infer_latent(
    key: PRNGKey,
    model: Model,
    guide: LayerGuide,
    params: Params | Fitted,
    x: ArrayLike | None,
    y: ArrayLike,
    *args: Any,
    start: ArrayLike | None = None,
    steps: int = 500,
    learning_rate: float = 0.05,
    site: str = "latent",
    progress: bool | str = True,
    **kwargs: Any,
) -> LatentInputs:
    """Infer the latent inputs of new rows, with all other params fixed.

    It maximises the bound on the new rows in their locations and scales. Missing entries of y
    contribute nothing: `models.gplvm` takes a mask as its third argument. ::

        found = dgp.infer_latent(key, models.gplvm, guide, fit.params, None, y_new, seen, **kwargs)
        y_mean = found.reconstruct(key, **kwargs).mean

    Args:
        key: random key.
        model: the model.
        guide: its fitted guide.
        params: the fit's params, or its result.
        x: the new rows' known inputs, [N*, D], or None.
        y: the new rows, [N*, P].
        *args: further arguments of the model, for the new rows.
        start: initial latent inputs, [N*, Q]; by default 0, the prior mean. The bound has several
            maxima, and the latent inputs of the nearest training rows are a better start (see
            `initialize.nearest_rows`).
        steps: optimiser steps.
        learning_rate: initial learning rate of Adam, with a cosine schedule.
        site: the latent site, [Q] for each row.
        progress: show a progress bar.
        **kwargs: the model's keyword arguments, such as `batch_size`.

    Returns:
        Means and standard deviations of the latent inputs; see `LatentInputs.reconstruct`.

    Raises:
        TypeError: if the guide has no density (`Implicit`), or covers the latent site by a guide
            given as `rest`.
        ValueError: if `params` has no such site, or `start` has the wrong shape.
    """
    check_key("infer_latent", key)
    check_count("infer_latent", "steps", steps)
    check_positive("infer_latent", "learning_rate", learning_rate, most=1e9)
    check_kind("infer_latent", "guide", guide, LayerGuide, "a guide, such as MeanField(model)")
    args, kwargs = call = checked_call("infer_latent", model, guide, (x, y, *args), kwargs)
    x, y = args[:2]
    params = params_of("infer_latent", params)
    dim = _moments(params, site)[0].shape[1]
    if jnp.ndim(y) != 2:
        raise ValueError(f"infer_latent: y has shape {jnp.shape(y)}, wanted [N*, P]")
    rows = jnp.shape(y)[0]
    start = jnp.zeros((rows, dim)) if start is None else as_array("infer_latent", "start", start)
    loc = jnp.asarray(start, float)
    if loc.shape != (rows, dim):
        raise ValueError(f"infer_latent: start has shape {loc.shape}, wanted {(rows, dim)}")
    new_guide = guide.with_model(model)
    set_up_guide(key, new_guide, call)
    if f"{site}_auto_loc" not in new_guide.row_params or isinstance(guide, Implicit):
        raise TypeError(
            f"infer_latent: guide is {type(guide).__name__} with latent rows "
            f"{sorted(new_guide.row_params)}, wanted a guide with a density that covers {site!r} "
            "itself: MeanField, Decoupled, GlobalInducing, Diffusion or Flow, without `rest`"
        )
    fixed = {n: a for n, a in params.items() if n not in new_guide.row_params}
    first = {f"{site}_auto_loc": loc, f"{site}_auto_scale": jnp.full(loc.shape, 0.1)}
    optimizer = default_optimizer(
        float(learning_rate), steps, rows=new_guide.row_params, row_share=1.0
    )
    result: FitResult = fit(
        key, freeze(model, fixed), freeze(new_guide, fixed), *args, start=first, steps=steps,
        optimizer=optimizer, loss=guide.bound_loss, progress=progress, **kwargs,
    )  # fmt: skip
    mean, sd = _moments(result.params, site)
    known = jnp.zeros((rows, 0)) if x is None else jnp.asarray(x, float)
    return LatentInputs(mean, sd, known, result.losses, model, guide, params, site)


def _moments(params: Params, site: str) -> tuple[Array, Array]:
    check_kind("latent inputs", "site", site, str, "the name of a latent site")
    names = [f"{site}_auto_loc", f"{site}_auto_scale"]
    missing = [n for n in names if n not in params]
    if missing:
        raise ValueError(
            f"latent inputs: params has no {missing[0]!r}; it has {sorted(params)}, wanted the "
            f"params of a guide whose model has a latent site {site!r} in its data plate"
        )
    mean, sd = (jnp.asarray(params[n]) for n in names)
    if mean.ndim != 2:
        raise ValueError(
            f"latent inputs: {site!r} has params of shape {mean.shape}, wanted [N, Q]; declare the "
            "site in the data plate, with .to_event(1)"
        )
    return mean, sd
