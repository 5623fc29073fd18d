"""Passes through a model: what a prediction compiles and runs, chunk by chunk."""

import dataclasses
import zlib
from functools import partial
from typing import Any

import jax
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import handlers

from dgp_ppl._partition import Call, Partition
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import Mixture, Observed, function_draws
from dgp_ppl.inference import LayerGuide, data_plates, survey

__all__ = ["Program", "function_passes", "latent_passes", "predictive_passes"]


@dataclasses.dataclass(frozen=True)
class Program:
    """One pass through a model: all that is compiled in."""

    model: Model
    guide: Model | None
    site: str
    partition: Partition

    def draw(self, key: PRNGKey, params: Params, data: list[Any], x: Array) -> dict[str, Any]:
        """The guide's sample sites in the pass of this key."""
        args, kwargs = self.partition.join(data)
        guide = self.partition.guide(self.guide, data)
        if isinstance(guide, LayerGuide):  # latent sites of the data plate have the prior again
            guide.setup(x, *args, **kwargs)
            guide = guide.for_new_rows()
        seeded = handlers.seed(guide, random.split(key)[0])
        trace = handlers.trace(handlers.substitute(seeded, data=params))
        sites = trace.get_trace(x, *args, **kwargs)
        # A guide's own factors are observed; they are no latent sites.
        return {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}

    def law(
        self,
        key: PRNGKey,
        latent: dict[str, Array],
        params: Params,
        data: list[Any],
        x: Array,
        row: ArrayLike = 0,
        mode: Any = None,
    ) -> Observed:
        """The law of y at x in the pass of this key."""
        args, kwargs = self.partition.join(data)
        # All rows of a pass see one draw of the global sites; unit noise is each row's own.
        globals_key = random.split(key)[0]
        program = handlers.seed(self.model, random.fold_in(random.split(key)[1], row))
        if mode is not None:
            program = function_draws(program, mode)
        if self.guide is not None:
            drawn: Any = self.draw(key, params, data, x)
            program = handlers.replay(program, drawn)
        program = handlers.substitute(program, data=params)

        def given(site: Any) -> Array | None:  # hidden layers' unit noise belongs to other rows
            if site["type"] != "sample" or site["infer"].get("is_auxiliary"):
                return None
            own = {frame.name for frame in site["cond_indep_stack"]}
            if own and own & data_plates(survey(self.model, Call((x, *args), kwargs))):
                return None  # a latent site of other rows
            value = latent.get(site["name"])
            if value is None and self.guide is None and not own:
                if latent and not isinstance(site["fn"], Observed):
                    raise ValueError(  # else they would be mixed with draws of the prior
                        f"predict: posterior_samples has no draws of {site['name']!r}, a latent "
                        f"site of the model; it has {list(latent)}, wanted all of them (without "
                        "posterior_samples the prediction is the prior's)"
                    )
                name = zlib.crc32(site["name"].encode())
                value = site["fn"].sample(random.fold_in(globals_key, name))
            return value

        program = handlers.substitute(program, substitute_fn=given)
        trace = handlers.trace(program).get_trace(x, *args, **kwargs)
        law = trace[self.site]["fn"] if self.site in trace else None
        if not isinstance(law, Observed):
            sites = [n for n, s in trace.items() if s["type"] == "sample"]
            raise ValueError(
                f"predict: site {self.site!r} is not an observe(...) of this model, whose sample "
                f"sites are {sites}"
            )
        if law.batch_shape != (len(x),):
            raise ValueError(
                f"predict: site {self.site!r} has batch shape {law.batch_shape} for {len(x)} rows "
                "of x; leave batch_size out of predict's arguments"
            )
        return law


@partial(jax.jit, static_argnums=0)
def predictive_passes(
    program: Program,
    keys: Array,
    latents: dict[str, Array],
    params: Params,
    data: list[Any],
    x: Array,
    row: ArrayLike,
) -> Mixture:
    """The laws of y at rows x in the passes of these keys: mixtures whose leaves lead with [S]."""
    one = lambda k, l: program.law(k, l, params, data, x, row).predictive()  # noqa: E731
    return jax.vmap(one)(keys, latents)


@partial(jax.jit, static_argnums=0)
def latent_passes(
    program: Program, keys: Array, params: Params, data: list[Any], x: Array
) -> dict[str, Array]:
    """The guide's draws in the passes of these keys, each [S, ...]."""
    sites = lambda k: program.draw(k, params, data, x)  # noqa: E731
    return jax.lax.map(lambda k: {n: s["value"] for n, s in sites(k).items()}, keys)


@partial(jax.jit, static_argnums=(0, 1))
def function_passes(
    program: Program,
    mode: str,
    keys: Array,
    latents: dict[str, Array],
    params: Params,
    data: list[Any],
    x: Array,
) -> Array:
    """The latent means at x of passes in which every layer is one draw of its function."""
    one = lambda k, l: program.law(k, l, params, data, x, mode=mode).latent_mean  # noqa: E731
    return jax.lax.map(lambda a: one(*a), (keys, latents))
