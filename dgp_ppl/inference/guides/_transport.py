"""A model in the white space of a guide: v = T(z), where z ~ N(0, I) is the guide's q(v)."""

import functools
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.util import log_density

from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import AbstractInducing
from dgp_ppl.inference.guides._base import Handed, LayerGuide, Reshape

__all__ = [
    "from_reference",
    "has_reference_space",
    "point_distribution",
    "reference_log_joint",
    "to_reference",
    "transport_base",
    "transported",
]

Values = dict[str, Array]
Call = tuple[tuple[Any, ...], dict[str, Any]]


def transported(model: Model, guide: LayerGuide, params: Params) -> Model:
    """The same model with v = T(z), where a fitted guide's q(v) is the law of T(z), z ~ N(0, I).

    Its posterior of v is the model's, but samplers move in z, in which it is the nearer to N(0, I)
    the better the fit: long steps, and few of them (Parno & Marzouk 2018; NumPyro's `NeuTraReparam`
    does this for its own guides)::

        mcmc = MCMC(NUTS(dgp.transported(model, guide, params)), num_warmup=200, num_samples=200)

    Sites: ``NAME.v.white`` for every layer, which take the place of ``NAME.v`` (now deterministic),
    and all others of the model. Its params are held at `params`; those that are not among the
    model's params (under `handlers.lift`, say) are sampled.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        guide: a fitted guide, `MeanField` or `GlobalInducing`, of a model with these layers; of a
            `Diffusion` its base.
        params: the fit's params.

    Raises:
        TypeError: if the guide has no white space.
    """
    base = transport_base("transported", guide)

    def given(site: Any) -> Any:
        return params.get(site["name"]) if site["type"] == "param" else None

    @functools.wraps(model)
    def program(*args: Any, **kwargs: Any) -> Any:
        base.setup(*args, **kwargs)
        z: Values = {}
        for name, layer in base.layers.items():
            normal = dist.Normal(0, 1).expand(layer.shape).to_event(2)
            draw: Any = numpyro.sample(f"{name}.white", normal)
            z[name] = draw
        with handlers.seed(rng_seed=0):
            handed, log_det = _handed(base, z, params, {}, (args, kwargs))
        v: Any = {n: numpyro.deterministic(n, h.law.loc) for n, h in handed.items()}
        # p(v) |T'(z)| in place of N(z; 0, I).
        squares = sum(jnp.sum(jnp.square(z[n]) - jnp.square(v[n])) for n in z)
        numpyro.factor("transport", log_det + 0.5 * squares)
        at_v = handlers.substitute(handlers.substitute(model, data=v), substitute_fn=given)
        return handlers.block(at_v, hide=list(v))(*args, **kwargs)

    return program


def has_reference_space(guide: Any) -> bool:
    """Whether `transport_base` finds one."""
    base = getattr(guide, "base", guide)
    return isinstance(base, LayerGuide) and base.white


def transport_base(caller: str, guide: Any) -> LayerGuide:
    """The guide itself, or the base of a chain.

    Raises:
        TypeError: if the guide has no white space.
    """
    if not has_reference_space(guide):
        raise TypeError(
            f"{caller}: guide is {getattr(guide, '__name__', type(guide).__name__)}, wanted "
            "MeanField or GlobalInducing, or a Diffusion on one"
        )
    return getattr(guide, "base", guide)


def reference_log_joint(
    base: LayerGuide,
    z: Values,
    key: PRNGKey,
    params: Params,
    given: Values,
    call: Call,
    data: Call,
    *,
    guided: bool = True,
) -> tuple[Array, Values]:
    """log p(y, T(z)) |T'(z)| in nats, and v = T(z).

    Args:
        base: a guide whose q(v) is a Gaussian, or one after another, of each layer.
        z: white values of every layer's site, [M, P] each.
        key: random key of minibatches and of hidden layers' unit noise.
        params: the guide's and the model's.
        given: values of the model's other latent sites; with `guided` false, unit noise too.
        call: the args and kwargs that the guide is called with.
        data: those of the model.
        guided: whether the data's term is the expected log-likelihood given v, as in bounds, with
            unit noise from the key; else it is the log-likelihood given v and the unit noise.
    """
    with handlers.block(), handlers.seed(rng_seed=key):
        handed, log_det = _handed(base, z, params, given, call)
        v = {n: h.law.loc for n, h in handed.items()}
        with handlers.substitute(data=params):
            if guided:
                program = handlers.substitute(base.model, data=given)
                program = handlers.replay(program, _as_drawn(handed))
            else:
                program = handlers.substitute(base.model, data=given | v)
            log_joint: Any = log_density(program, *data, {})[0]
    return log_joint + log_det, v


def to_reference(base: LayerGuide, v: Values, params: Params, given: Values, call: Call) -> Values:
    """The z of which v = T(z), [M, P] of each layer; arguments as of `reference_log_joint`."""
    z: Values = {}

    def at_v(site: str, law: AbstractInducing) -> AbstractInducing:
        z[site] = law.white(v[site])
        return point_distribution(site, law, z[site])

    with handlers.block(), handlers.seed(rng_seed=random.PRNGKey(0)):
        _reshaped(base, at_v, params, given, call)
    return z


def from_reference(
    base: LayerGuide, z: Values, params: Params, given: Values, call: Call
) -> Values:
    """v = T(z), the inverse of `to_reference`."""
    with handlers.block(), handlers.seed(rng_seed=random.PRNGKey(0)):
        handed, _ = _handed(base, z, params, given, call)
    return {n: h.law.loc for n, h in handed.items()}


def _handed(
    base: LayerGuide, z: Values, params: Params, given: Values, call: Call
) -> tuple[dict[str, Handed], Array]:
    """What the guide hands to the layers at T(z), and log |T'(z)|."""
    log_dets = []

    def at_z(site: str, law: AbstractInducing) -> AbstractInducing:
        # Not the law's density at T(z), which would solve for the z that is known here.
        log_dets.append(law.log_det())
        return point_distribution(site, law, z[site])

    handed = _reshaped(base, at_z, params, given, call)
    return handed, jnp.sum(jnp.stack(log_dets))


def _reshaped(
    base: LayerGuide, reshape: Reshape, params: Params, given: Values, call: Call
) -> dict[str, Handed]:
    with handlers.block(), handlers.substitute(data=params):
        return base._posterior(given, *call, reshape)


def _as_drawn(handed: dict[str, Handed]) -> Any:
    """The trace of a guide that hands each layer its law's mean as a draw."""
    return {
        n: {
            "type": "sample",
            "name": n,
            "is_observed": False,
            "value": h.law.loc,
            "infer": h.infer | {"q": None},
        }
        for n, h in handed.items()
    }


def point_distribution(site: str, law: AbstractInducing, z: Array) -> AbstractInducing:
    """The law of T(z) alone.

    Raises:
        TypeError: if the law has a mean with a basis of its own, which draws of v do not carry.
    """
    if type(law).shift is not AbstractInducing.shift:
        raise TypeError(
            f"the base's law of {site!r} has a mean with a basis of its own, which draws of v do "
            "not carry; wanted MeanField or GlobalInducing as a base of chains that are drawn "
            "(log-variance, evidence, importance weights) or informed, and of annealing"
        )
    return law.scaled(z, jnp.zeros_like(z))
