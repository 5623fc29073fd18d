"""A model whose latent sites come from its fitted guide, for NumPyro's `Predictive`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpyro
from numpyro import handlers

from dgp_ppl._checks import GivenParams, check_program, params_of
from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Fitted, Model, Params
from dgp_ppl.inference import LayerGuide
from dgp_ppl.inference._params import declared_params
from dgp_ppl.inference.programs._handlers import shared_sites
from dgp_ppl.linalg._precision import warn_if_wide


def guided(model: Model, guide: Model, params: Params | Fitted) -> Model:
    """Return a model whose latent sites are drawn from a fitted guide.

    NumPyro's `Predictive` samples it like any other model::

        Predictive(dgp.guided(model, guide, params), num_samples=500)(key, x)

    ``Predictive(model, guide=guide, params=params)`` gives the model only the guide's draws of v.
    Here each layer receives the whole q(v), including a `Decoupled` guide's separate inducing
    inputs for the mean, and integrates over v where the guide does. Rows of `minibatch` are treated
    as new: their latent sites are drawn from the prior. For means, quantiles and densities in
    closed form, use `predict`.

    Groups in a `minibatch` of their own are new rows too if an `observe` in it has no data, because
    nothing says which site is predicted. ``predict(..., site="y")`` keeps the groups' posterior.

    Args:
        model: a NumPyro model.
        guide: its guide, from this library or from NumPyro.
        params: the fit's params, for both, or its result.

    Returns:
        A model with the same arguments.

    Raises:
        TypeError: if `params` is neither a dict nor a result.
        ValueError: when the returned model runs without a random key, or a param is missing, has
            another shape, or belongs to neither.
    """
    check_program("guided", "model", model)
    check_program("guided", "guide", guide)
    values = params_of("guided", params)
    warn_if_wide("guided", values)
    given = GivenParams(model, values, "guided")
    is_checked = False

    def guided_model(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_checked
        key = numpyro.prng_key()
        if key is None:
            raise ValueError(
                "guided: the model runs without a random key, wanted one; run it through "
                "Predictive or under numpyro.handlers.seed"
            )
        posterior, shared = guide, partial(shared_sites, model, Call(args, kwargs))
        if isinstance(guide, LayerGuide):
            guide.setup(*args, **kwargs)
            posterior = guide.for_new_rows(shared)
        with alone():
            seeded = GivenParams(handlers.seed(posterior, key), values, "guided")
            trace = handlers.trace(seeded).get_trace(*args, **kwargs)
        latent: Any = {
            n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]
        }
        if not isinstance(guide, LayerGuide):  # which draws latents of the fit's rows
            latent = {n: latent[n] for n in latent.keys() & shared()}
        with handlers.replay(trace=latent):
            found = given(*args, **kwargs)
        if not is_checked:  # names do not change between calls
            declared = declared_params(model, guide, Call(args, kwargs), new_rows=True)
            declared.refuse_unknown("guided", values)
            is_checked = True
        return found

    return guided_model
