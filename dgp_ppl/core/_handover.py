"""What layers and guides tell each other, in the ``infer`` dicts of sample sites.

A layer draws its whitened inducing values v at the site ``NAME.v``. It describes itself there by a
`LayerSite`. A guide puts a `Handover` at its site of the same name.
`numpyro.handlers.replay` copies it into the model's message, where the layer reads it. A layer that
is sampled from says so at the site of its unit noise (`hidden_layers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpyro.distributions as dist
from jaxtyping import Array, Float

from dgp_ppl.core._conditional import Grid, Sparse
from dgp_ppl.core._inducing import AbstractInducing
from dgp_ppl.kernels import Covariance

HANDOVER = "handover"
"""Where a site's ``infer`` holds the guide's `Handover`."""

LAYER = "layer"
"""Where a site's ``infer`` holds the layer's `LayerSite`."""

NOISE_OF = "noise_of"
"""Where the ``infer`` of a layer's unit noise holds the name of the layer's site."""


class LayerSite(NamedTuple):
    """A layer's description of itself, at the site of its inducing values.

    Attributes:
        kernel: the layer's kernel.
        z: the layer's inducing inputs.
        outputs: the layer's number of outputs P.
    """

    kernel: Covariance
    z: Float[Array, "M D"] | Float[Array, "P M D"] | Grid
    outputs: int

    @property
    def num_inputs(self) -> int:
        """Number of inputs D of the layer."""
        # By shapes alone: a survey of the model has no numbers.
        return self.z.z.shape[-1] + 1 if isinstance(self.z, Grid) else self.z.shape[-1]


class Handover(NamedTuple):
    """The value that a guide hands over to a layer at the site ``NAME.v``.

    If the layer is to integrate v out, the guide hands over its Gaussian q(v)::

        Handover(q)

    If the layer is to use a draw of v, the guide hands over the distribution and the draw::

        Handover(None, site=q, value=v)

    Limit: q(v) is independent over the outputs of a layer, as are the layer's `Marginals`. A
    posterior that correlates outputs, or layers, is handed over as a draw of v.

    Attributes:
        q: Gaussian over v that the layer integrates out; None if it uses the draw of v.
        site: distribution of v at the guide's sample site; q if None. Its density and KL enter the
            objective.
        value: a draw of v, [M, P]; None lets the site draw.
        white: unit noise that the draw is made of, [M, P]. With it the density of the draw is exact
            even if q is very narrow.
        sparse: the layer's factorised Gram matrix, if the guide has computed it; else None.
        guided: whether a guide made this value.
        on_first_call: draws v when the layer is first evaluated, from the layer and its inputs; for
            guides that propagate inputs through the layers.
    """

    q: AbstractInducing | None = None
    site: dist.Distribution | None = None
    value: Float[Array, "M P"] | None = None
    white: Float[Array, "M P"] | None = None
    sparse: Sparse | None = None
    guided: bool = True
    on_first_call: Callable[[Any, Any], Array] | None = None

    @property
    def distribution(self) -> Any:
        """Distribution of v at the guide's site."""
        return self.q if self.site is None else self.site

    def drawn(self, value: Array, white: Array | None = None) -> Handover:
        """Return the same distribution, with a draw of v for the layer to use."""
        return self._replace(q=None, site=self.distribution, value=value, white=white)


def is_layer(site: Mapping[str, Any]) -> bool:
    """Return whether a site of a trace, of a model or a guide, holds a layer's inducing values."""
    infer = site.get("infer", {})
    return LAYER in infer or HANDOVER in infer


def layer_of(site: Mapping[str, Any]) -> LayerSite:
    """Return the layer's description of itself, at its site in the model."""
    return site["infer"][LAYER]


def hidden_layers(trace: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the sites of the layers that a model samples from, and so feeds to other layers."""
    infers = [site.get("infer") or {} for site in trace.values()]
    return {infer[NOISE_OF] for infer in infers if NOISE_OF in infer}


def handover_of(site: Mapping[str, Any]) -> Handover:
    """Return the handover at a site, or an empty one without a guide."""
    return site.get("infer", {}).get(HANDOVER, Handover(guided=False))


def with_handover(site: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the ``infer`` dict of a site with some fields of its handover replaced."""
    return {**site["infer"], HANDOVER: handover_of(site)._replace(**changes)}


def guide_site(name: str, handover: Handover, value: Array) -> dict[str, Any]:
    """Return a site of a guide's trace, for `numpyro.handlers.replay`."""
    return {
        "type": "sample",
        "name": name,
        "fn": handover.distribution,
        "value": value,
        "is_observed": False,
        "infer": {HANDOVER: handover},
    }
