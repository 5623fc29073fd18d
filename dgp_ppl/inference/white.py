"""A model in the white space of a guide: v = T(z), where z ~ N(0, I) is the guide's q(v)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.util import log_density

from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.inducing import AbstractInducing
from dgp_ppl.inference.layer_guide import Handed, LayerGuide

__all__ = ["point_law", "white_log_joint"]

Values = dict[str, Array]


def white_log_joint(
    base: LayerGuide,
    z: Values,
    key: PRNGKey,
    params: Params,
    given: Values,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    data: tuple[tuple[Any, ...], dict[str, Any]],
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
    log_dets = []

    def at_z(site: str, law: AbstractInducing) -> AbstractInducing:
        # Not the law's density at T(z), which would solve for the z that is known here.
        log_dets.append(law.log_det())
        return point_law(site, law, z[site])

    with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=params):
        handed = base._posterior(given, *call, at_z)
        v = {n: h.law.loc for n, h in handed.items()}
        if guided:
            program = handlers.substitute(base.model, data=given)
            program = handlers.replay(program, _as_drawn(handed))
        else:
            program = handlers.substitute(base.model, data=given | v)
        log_joint: Any = log_density(program, *data, {})[0]
    return log_joint + jnp.sum(jnp.stack(log_dets)), v


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


def point_law(site: str, law: AbstractInducing, z: Array) -> AbstractInducing:
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
