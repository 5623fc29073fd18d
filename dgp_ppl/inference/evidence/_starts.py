"""Distributions that annealing starts from: a guide's q(v), or the prior, with a reference space.

Each is a guide whose q(v) is Gaussian, so that v = T(z) with z ~ N(0, I) in its reference space.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from dgp_ppl._partition import Call
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.inference._params import set_up_guide
from dgp_ppl.inference.guides import Decoupled, LayerGuide, MeanField
from dgp_ppl.inference.guides._transport import has_reference_space, reference_guide

_DRAWS_PER_VALUE = 20  # draws of an implicit guide, per inducing value of its largest layer


def why_no_evidence(guide: Any) -> str | None:
    """Return why `annealed_evidence` rejects a guide, for its message; None if it does not."""
    if isinstance(guide, Decoupled):
        return (
            "guide is Decoupled, whose mean has separate inducing inputs: its bound can exceed the "
            "evidence of the model, which does not have them; wanted MeanField, GlobalInducing, "
            "Implicit, or a Diffusion or Flow"
        )
    if has_reference_space(guide) or (isinstance(guide, LayerGuide) and not guide.has_density):
        return None
    return (
        f"guide is {getattr(guide, '__name__', type(guide).__name__)}, wanted MeanField, "
        "GlobalInducing, Implicit, or a Diffusion or Flow on one of the first two"
    )


def start_at_guide(
    key: PRNGKey, guide: Any, params: Params, call: Call
) -> tuple[LayerGuide, Params]:
    """Return a guide with a reference space (it, its base, or a Gaussian), and its params."""
    if has_reference_space(guide):
        base = reference_guide("annealed_evidence", guide)
        set_up_guide(key, base, call)
        return base, params
    num = _DRAWS_PER_VALUE * max(M for M, _ in (layer.shape for layer in guide.layers.values()))
    draws = guide.sample_posterior(key, params, *call.args, sample_shape=(num,), **call.kwargs)
    base = MeanField(guide.model, rest=guide.rest)
    base.setup(*call.args, **call.kwargs)
    moments: Params = dict(params)
    for name in base.layers:
        v = np.asarray(draws[name], np.float64)
        # QR of the draws, because rounding would swamp the covariance's smallest eigenvalues.
        _, R = np.linalg.qr(np.moveaxis(v - v.mean(axis=0), 2, 0) / math.sqrt(num - 1))
        signs = np.sign(np.diagonal(R, axis1=1, axis2=2))
        moments[f"{name}.loc"] = jnp.asarray(v.mean(axis=0), float)
        moments[f"{name}.scale_tril"] = jnp.asarray((signs[:, :, None] * R).swapaxes(1, 2), float)
    return base, moments


def start_at_prior(
    key: PRNGKey, guide: Any, params: Params, call: Call
) -> tuple[LayerGuide, Params]:
    """Return a guide of the same model whose q(v) is the prior N(0, I), and its params."""
    base = MeanField(guide.model, rest=guide.rest)
    base.setup(*call.args, **call.kwargs)
    prior: Params = dict(params)
    for name, layer in base.layers.items():
        M, P = layer.shape
        prior[f"{name}.loc"] = jnp.zeros((M, P))
        prior[f"{name}.scale_tril"] = jnp.broadcast_to(jnp.eye(M), (P, M, M))
    return base, prior
