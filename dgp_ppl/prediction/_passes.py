"""Compiled passes through a model and its guide."""

from __future__ import annotations

import dataclasses
import zlib
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._partition import Call, CallArrays, Partition, compiled
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.core import function_draws
from dgp_ppl.inference import LayerGuide
from dgp_ppl.inference.programs._handlers import Sites, shared_sites
from dgp_ppl.inference.runs._blocks import PassProgram
from dgp_ppl.likelihoods import Mixture, Observed
from dgp_ppl.likelihoods._mixture import holds_programs
from dgp_ppl.likelihoods._observe import as_observed
from dgp_ppl.linalg._precision import in_precision_of_argument
from dgp_ppl.prediction._noise import SpreadNoise


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """One pass through a model and its guide: the static argument of compiled programs."""

    partition: Partition  # the model, its guide, and the static part of the arguments after x
    site: str  # the observed site
    latent: bool = False  # whether passes give the distribution of f, not of y

    def distribution(self, *args: Any, **options: Any) -> Observed:
        """Return the distribution of y in a pass; see `sites` for the arguments."""
        trace, x = self.sites(*args, **options), args[4]
        found = as_observed(trace[self.site]["fn"]) if self.site in trace else None
        if found is None:
            sites = [n for n, s in trace.items() if s["type"] == "sample"]
            raise ValueError(
                f"predict: site {self.site!r} is not an observe(...) of this model, wanted the "
                f"name of one; the sample sites are {sites}"
            )
        if found.batch_shape != (len(x),):
            raise ValueError(
                f"predict: site {self.site!r} has batch shape {found.batch_shape} for {len(x)} "
                "rows of x, wanted one entry per row; leave batch_size out of predict's arguments, "
                "and observe outside of scan"
            )
        return found

    def sites(
        self,
        key: PRNGKey,
        draws: dict[str, Any],
        params: Params,
        data: CallArrays,
        x: Array,
        *,
        row: ArrayLike = 0,
        mode: Any = None,
        spread: tuple[PRNGKey, Array, ArrayLike] | None = None,
    ) -> Sites:
        """Return the sites of the model at x in the pass with this key.

        `draws` of latent sites replace the guide's. The number of the first row, `row`, selects the
        rows' unit noise. With a `mode` each layer is drawn as one function: see `function_draws`.
        With a key and strata of all passes and the number of this one, it is `SpreadNoise`.
        """
        call = self.partition.join(data)
        call = Call((x, *call.args), call.kwargs)
        # All rows of a pass share one draw of the global sites. Unit noise differs by row.
        key_global, key_noise = random.split(key)
        model = handlers.seed(self.partition.model, random.fold_in(key_noise, row))
        if mode is not None:
            model = function_draws(model, mode)
        if spread is not None:
            model = SpreadNoise(model, random.fold_in(spread[0], row), *spread[1:])
        shared = cache(lambda: shared_sites(self.partition.model, call, self.site))
        if self.partition.guide is not None:
            guide = self.partition.guide_with(data)
            if isinstance(guide, LayerGuide):  # latent sites of the data plate keep their prior
                guide.setup(*call.args, **call.kwargs)
                guide = guide.for_new_rows(shared)
            seeded = handlers.substitute(handlers.seed(guide, key_global), data=params)
            drawn = handlers.trace(seeded).get_trace(*call.args, **call.kwargs).items()
            # A guide's factors are observed sites. Other guides draw latents of the fit's rows.
            latent: Any = {n: s for n, s in drawn if s["type"] == "sample" and not s["is_observed"]}
            if not isinstance(guide, LayerGuide):
                latent = {n: latent[n] for n in latent.keys() & shared()}
            model = handlers.replay(model, latent)
        model = handlers.substitute(model, data=params)

        def global_value(site: Any) -> Any:
            # The draws of hidden layers' unit noise belong to the training rows.
            if site["type"] != "sample" or site["infer"].get("is_auxiliary"):
                return None
            if site["cond_indep_stack"] and site["name"] not in shared():
                return None  # a latent site of the training rows
            if site["is_observed"]:  # by `handlers.condition`, or a measured constant
                return None
            value = draws.get(site["name"], site["value"])  # one that `handlers.substitute` gave
            if value is None and self.partition.guide is None:
                is_data = site["cond_indep_stack"] or as_observed(site["fn"]) is not None
                if draws and not is_data:
                    raise ValueError(  # else posterior draws would be mixed with prior draws
                        f"predict: posterior_samples has no draws of {site['name']!r}, a latent "
                        f"site of the model; it has {list(draws)}, wanted all of them; without "
                        "posterior_samples predict draws from the prior"
                    )
                name = zlib.crc32(site["name"].encode())
                value = site["fn"].sample(random.fold_in(key_global, name))
            return value

        model = handlers.substitute(model, substitute_fn=global_value)
        return handlers.trace(model).get_trace(*call.args, **call.kwargs)


@in_precision_of_argument(3, 4, unless=holds_programs)  # of draws and params
@partial(compiled, static_argnums=0)
def predictive_passes(
    forward_pass: ForwardPass,
    spread: tuple[PRNGKey, Array],
    passes: Array,
    draws: dict[str, Any],
    params: Params,
    data: CallArrays,
    x: Array,
    row: ArrayLike,
) -> Mixture:
    """Return the distributions of y, or of f, at x: stacked mixtures, [S, ...].

    `spread` are a key and the strata of `SpreadNoise`, and `passes` the number of each pass.
    """
    key, strata = spread

    def one(number: Array, draw: dict[str, Any]) -> Mixture:
        # These are the keys of `random.split`, which is a program of its own for each number.
        key_spread, key_pass = random.fold_in(key, len(strata)), random.fold_in(key, number)
        options: Any = {"row": row, "spread": (key_spread, strata, number)}
        with handlers.block():  # a prediction within another model adds no sites to it
            found = forward_pass.distribution(key_pass, draw, params, data, x, **options)
        if not forward_pass.latent:
            return found.predictive()
        f = dist.Normal(found.latent_mean[None], jnp.sqrt(found.latent_var)[None])
        return Mixture(jnp.zeros(1, f.loc.dtype), f.to_event(found.latent_mean.ndim - 1))

    return jax.vmap(one)(passes, draws)


@in_precision_of_argument(1, 2)
@PassProgram
def function_passes(
    static: tuple[ForwardPass, str],
    each: tuple[Array, dict[str, Array]],
    params: Params,
    data: CallArrays,
    x: Array,
    key: PRNGKey,
) -> Array:
    """Return f at x in the pass with this number and draws, where each layer is one function."""
    forward_pass, mode = static
    number, draws = each
    key = random.fold_in(key, number)
    with handlers.block():
        return forward_pass.distribution(key, draws, params, data, x, mode=mode).latent_mean
