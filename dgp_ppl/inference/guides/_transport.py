"""A model in the reference space of a guide: v = T(z), where z ~ N(0, I) gives the guide's q(v)."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.util import log_density

from dgp_ppl._checks import GivenParams, check_program, params_of, unknown_params
from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey, Values
from dgp_ppl.core import TransportInducing, guide_site
from dgp_ppl.inference.guides._base import LayerGuide, TransportGuide
from dgp_ppl.inference.guides._on_base import GuideOnBase, WarpedGuide
from dgp_ppl.inference.programs._handlers import held_names, survey
from dgp_ppl.inference.runs._summary import program_name


def transported(model: Model, guide: LayerGuide, params: Params | Fitted) -> Model:
    """Reparameterise a model by v = T(z), where T maps N(0, I) to a fitted guide's q(v).

    The posterior of v stays the model's, but samplers move in z. The better the fit, the nearer the
    posterior of z is to N(0, I), and the longer and fewer the steps of a sampler::

        mcmc = MCMC(NUTS(dgp.transported(model, guide, params)), num_warmup=200, num_samples=200)

    Sites: ``NAME.v.reference`` for every layer instead of ``NAME.v`` (now deterministic), and all
    other sites of the model. The model's params are held at `params`; params that are not among
    them (such as under `numpyro.handlers.lift`) are sampled.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        guide: a fitted `MeanField`, `GlobalInducing` or `Flow` guide of a model with these layers,
            or a `Diffusion`, whose base is taken.
        params: the fit's params, or its result.

    Returns:
        A model of the same arguments.

    Raises:
        TypeError: if the guide has no reference space or is coupled, or `params` is neither a dict
            nor a result.
        ValueError: when the model runs, if a param is missing, has another shape, or belongs
            neither to the model nor to the guide.

    Source: Parno & Marzouk (2018), "Transport map accelerated Markov chain Monte Carlo". NumPyro's
    `NeuTraReparam` does this for its own guides. With `Flow` it is NeuTra (Hoffman et al. 2019).
    """
    check_program("transported", "model", model)
    start, values = reference_guide("transported", guide), params_of("transported", params)
    if getattr(_base(guide), "coupled", False):
        raise TypeError(
            "transported: guide is coupled, so q(v) moves with the other latent sites and is no "
            "map of noise alone, wanted a fit of a guide without coupled"
        )
    given = GivenParams(model, values, "transported")
    is_checked = False

    @functools.wraps(model)
    def program(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_checked
        start.setup(*args, **kwargs)
        if not is_checked:  # names do not change between calls
            call = Call(args, kwargs)
            sites = survey(model, call) | survey(guide, call)
            known = sites.keys() | held_names(model) | held_names(guide)
            if unknown := [n for n in values if n not in known]:
                declared = [n for n, site in sites.items() if site["type"] == "param"]
                raise unknown_params("transported", unknown, program_name(guide), declared)
            is_checked = True
        z: Values = {}
        for name, layer in start.layers.items():
            normal = dist.Normal(0, 1).expand(layer.shape).to_event(2)
            z[name] = numpyro.sample(f"{name}.reference", normal)
        with handlers.seed(rng_seed=0):
            handovers, log_det = _at(start, z, values, Call(args, kwargs))
        v: Any = {n: numpyro.deterministic(n, h.q.loc) for n, h in handovers.items()}
        # p(v) |T'(z)| instead of N(z; 0, I).
        squares = sum(jnp.sum(jnp.square(z[n]) - jnp.square(v[n])) for n in z)
        numpyro.factor("transport", log_det + 0.5 * squares)
        at_v = handlers.substitute(given, data=v)
        return handlers.block(at_v, hide=list(v))(*args, **kwargs)

    return program


def has_reference_space(guide: Any) -> bool:
    """Return whether the guide or its base has a reference space in which samplers can move."""
    base = _base(guide)
    return isinstance(base, TransportGuide) and base.bijective


def reference_guide(caller: str, guide: Any) -> LayerGuide:
    """Return the guide itself, or the base of one on a base whose q(v) is no map of noise."""
    if not has_reference_space(guide):
        raise TypeError(
            f"{caller}: guide is {getattr(guide, '__name__', type(guide).__name__)}, wanted "
            "MeanField or GlobalInducing, or a Diffusion or Flow on one"
        )
    return guide if isinstance(guide, WarpedGuide) else _base(guide)


def reference_log_joint(
    guide: LayerGuide, z: Values, key: PRNGKey, params: Params, call: Call, data: Call, *,
    guided: bool = True,
) -> tuple[Array, Values]:  # fmt: skip
    """Return log p(y, T(z)) |T'(z)| in nats, and v = T(z), of every layer's z [M, P].

    `call` has the guide's arguments and values of the model's other latent sites, and `data` the
    model's arguments. If `guided`, the data term is the expected log-likelihood given v, as in
    bounds, with unit noise of hidden layers from the key; else the noise is in `call`.
    """
    with alone(), handlers.seed(rng_seed=key):
        handovers, log_det = _at(guide, z, params, call)
        v = {n: h.q.loc for n, h in handovers.items()}
        with handlers.substitute(data=params):
            if guided:
                program = handlers.substitute(guide.model, data=call.given)
                drawn: Any = {n: guide_site(n, h.drawn(v[n]), v[n]) for n, h in handovers.items()}
                program = handlers.replay(program, drawn)
            else:
                program = handlers.substitute(guide.model, data=call.given | v)
            log_joint: Any = log_density(program, data.args, data.kwargs, {})[0]
    return log_joint + log_det, v


def others_from_reference(
    guide: LayerGuide, e: Values, params: Params, call: Call
) -> tuple[Values, Array]:
    """Return the latent sites besides the layers at unit noise e, and the map's log determinant."""
    with alone(), _given(guide, params):
        return guide.other_sites.from_noise(e, call)


def from_reference(guide: LayerGuide, z: Values, params: Params, call: Call) -> Values:
    """Return v = T(z), [M, P] for each layer; arguments as for `reference_log_joint`."""
    with alone(), handlers.seed(rng_seed=random.PRNGKey(0)):
        handovers, _ = _at(guide, z, params, call)
    return {n: h.q.loc for n, h in handovers.items()}


def point_distribution(site: str, q: TransportInducing, z: Array) -> TransportInducing:
    """Return the distribution of T(z) alone."""
    if not q.determines_mean:
        raise TypeError(
            f"the q(v) of the base at {site!r} has a mean with separate inducing inputs, "
            "which draws of v do not determine; wanted MeanField or GlobalInducing as the base of "
            "annealing, and of diffusion guides that are informed or drawn (evidence, "
            "importance weights)"
        )
    return q.scaled(z, jnp.zeros_like(z))


def _at(guide: LayerGuide, z: Values, params: Params, call: Call) -> tuple[dict[str, Any], Array]:
    """Return the guide's handovers at T(z), each with its q, and log |T'(z)|."""
    log_dets = []

    def at_z(site: str, q: TransportInducing) -> TransportInducing:
        # The density of q at T(z) would need z, which is known here.
        log_dets.append(q.log_det())
        return point_distribution(site, q, z[site])

    with alone(), _given(guide, params):
        if isinstance(guide, WarpedGuide):
            z, log_det = guide.warped({n: z[n] for n in guide.layers})
            log_dets.append(log_det)
        handovers = _base(guide).transport(call, at_z)
    handovers = {n: h._replace(q=h.distribution) for n, h in handovers.items()}
    return handovers, jnp.sum(jnp.stack(log_dets))


def _base(guide: Any) -> Any:
    return guide.base if isinstance(guide, GuideOnBase) else guide


def _given(guide: LayerGuide, params: Params) -> GivenParams:
    # A lifted model has no params for its hyperparameters, but every guide has its own.
    own = guide.own_prefixes
    return GivenParams(None, params, "transported", missing=lambda name: not name.startswith(own))
