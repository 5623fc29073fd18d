"""Which part of q is too narrow: the posterior's curvature at q's mean, in units of q's noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers

from dgp_ppl._partition import Call, Partition, alone, compiled
from dgp_ppl._typing import Params, PRNGKey
from dgp_ppl.inference.evidence._target import Arrays, Target
from dgp_ppl.inference.guides import LayerGuide, MeanField
from dgp_ppl.inference.runs._lines import Line, checked, worst

_MOST_VALUES = 300
_MOST_WORK = 3_000_000  # values times rows


def curvature_lines(
    key: PRNGKey, guide: LayerGuide, params: Params, call: Call, layers: Sequence[str]
) -> Iterator[Line]:
    """Yield how much wider than q the posterior is, by its Hessian.

    The Hessian is with respect to the observed `layers` and the other latent sites, at q's mean,
    where hidden layers stay. In units of q's noise, v = m + R e, it is the identity for an exact q.
    Its inverse has the variances that q leaves out where something that q takes for independent is
    not: an intercept and a function, or two functions that add up.
    """
    unknown = partial(Line, "sd of other sites", verdict="look", advice="compare with NUTS")
    if type(guide) is not MeanField or guide.row_sites:
        if guide.other_sites:
            yield unknown(value=f"not checked under {type(guide).__name__}")
        return
    with alone(), handlers.substitute(data=params):
        try:
            others = guide.other_sites.noise_shapes(call)
        except ValueError:  # a guide of the other sites that is not normal
            return
    sizes = {n: guide.layers[n].shape for n in layers} | others
    total = sum(int(np.prod(s)) for s in sizes.values())
    if len(layers) < 2 and not others:
        return
    if total > _MOST_VALUES or total * len(call.inputs) > _MOST_WORK:
        if others:
            yield unknown(value=f"not checked: {total} values by {len(call.inputs)} rows")
        return
    sites = {n: jnp.zeros(layer.shape) for n, layer in guide.layers.items()}
    sites |= {n: jnp.zeros(shape) for n, shape in others.items()}
    partition, data = Partition.split(guide.model, call, guide)
    target, arrays = Target(guide, partition, "bound", 1, sites, others), Arrays(params, data)
    numbers = {n: jnp.full(jnp.shape(a), float(i)) for i, (n, a) in enumerate(sites.items())}
    owner = np.array(list(sites))[np.asarray(ravel_pytree(numbers)[0]).astype(int)]
    moved = np.isin(owner, list(sizes))
    owner = owner[moved]

    @compiled
    def product(direction: Any, arrays: Arrays) -> Any:
        slope = jax.grad(lambda z: target._log_ratio_at(z, key[None], arrays)[0])
        return jax.jvp(slope, (jnp.zeros_like(direction),), (direction,))[1]

    directions = jnp.eye(len(moved))[moved]
    hessian = np.stack([np.asarray(product(d, arrays), np.float64)[moved] for d in directions])
    values, vectors = np.linalg.eigh(np.eye(len(owner)) - 0.5 * (hessian + hessian.T))
    covariance = (vectors / np.maximum(values, 1e-3)) @ vectors.T

    def line(what: str, name: str) -> Line:
        own = owner == name
        ratio = float(np.sqrt(np.linalg.eigvalsh(covariance[np.ix_(own, own)])[-1]))
        name = "all" if name.startswith("_auto_") else name  # a joint draw
        return checked(what, ratio, f"{name}: posterior up to {ratio:.2g} times q's")

    for found in worst(line("sd of other sites", n) for n in others):
        more = found.advice and "run 5,000 steps or more, or compare with NUTS"
        yield found._replace(advice=more) if guide.coupled else found
    if len(layers) > 1:
        yield from worst(line("sd of parts", n) for n in layers)
