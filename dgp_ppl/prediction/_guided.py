"""A model under its fitted guide, as a NumPyro model of its own."""

from typing import Any

import numpyro
from numpyro import handlers

from dgp_ppl._typing import Model, Params
from dgp_ppl.inference import LayerGuide

__all__ = ["guided"]


def guided(model: Model, guide: Model, params: Params) -> Model:
    """The model with its latent sites drawn from a fitted guide: what `Predictive` can sample.

    ``Predictive(dgp.guided(model, guide, params), num_samples=500)(key, x)``. NumPyro's
    ``Predictive(model, guide=guide, params=params)`` hands the model the guide's draws of v and no
    more; here a layer has all of q, such as the mean's own inducing inputs of a `Decoupled` guide,
    and integrates over it where the guide does. Latent sites of the data's rows are drawn from
    their priors, as rows are new ones. `predict` has the mixture's moments and densities as well.

    Args:
        model: a NumPyro model.
        guide: its guide, of this library or NumPyro's.
        params: the fit's params, of both.

    Returns:
        A model of the same arguments.
    """

    def program(*args: Any, **kwargs: Any) -> Any:
        key = numpyro.prng_key()
        if key is None:
            raise ValueError(
                "guided: there is no random key; run it by Predictive, or under "
                "numpyro.handlers.seed"
            )
        posterior = guide
        if isinstance(guide, LayerGuide):
            guide.setup(*args, **kwargs)
            posterior = guide.for_new_rows()
        with handlers.block():
            seeded = handlers.substitute(handlers.seed(posterior, key), data=params)
            sites = handlers.trace(seeded).get_trace(*args, **kwargs)
        drawn: Any = {
            n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]
        }
        with handlers.substitute(data=params), handlers.replay(trace=drawn):
            return model(*args, **kwargs)

    return program
