"""Guides that move draws of another guide, their base, in its reference space."""

from __future__ import annotations

import abc
from typing import Any, Self

from jaxtyping import Array

from dgp_ppl._errors import one_line
from dgp_ppl._partition import Call
from dgp_ppl._typing import Model, Values
from dgp_ppl.inference.guides._base import LayerGuide, TransportGuide
from dgp_ppl.inference.programs._handlers import Sites, survey


class GuideOnBase(LayerGuide):
    """A guide of v = T(z), where T is the map of a base guide and z a draw of another distribution.

    The base's `rest` guides other latent sites; errors say which bases are `wanted`.
    """

    def __init__(self, model: Model, base: LayerGuide, wanted: str) -> None:
        if not isinstance(base, TransportGuide):
            raise ValueError(
                f"{type(self).__name__}: base is {one_line(repr(base))}, wanted {wanted}"
            )
        super().__init__(model, rest=base.rest)
        self.base = base

    @property
    def own_prefixes(self) -> tuple[str, ...]:
        return self.base.own_prefixes

    def with_model(self, model: Model) -> Self:
        return super().with_model(model).replace(base=self.base.with_model(model))

    @property
    def arrays(self) -> dict[str, Any]:
        return {"base": self.base.arrays, **super().arrays}

    def with_arrays(self, arrays: dict[str, Any]) -> Self:
        return self.replace(**{**arrays, "base": self.base.with_arrays(arrays["base"])})

    def find_layers(self, call: Call, trace: Sites) -> None:
        super().find_layers(call, trace)
        if self.base.model is self.model:
            self.base.find_sites(call, trace)
        else:
            sites = survey(self.base.model, call)
            self.base.find_sites(call, sites)
            if others := [n for n, s in sites.items() if s["type"] == "param" and n not in trace]:
                raise ValueError(
                    f"{type(self).__name__}: base is of a model with the params {others}, which "
                    "this guide's model does not have, wanted guides of one model; if it is "
                    "frozen, make the base of the frozen model too"
                )
        if self.base.layers != self.layers:
            raise ValueError(
                f"{type(self).__name__}: base is of a model with the layers {self.base.layers}, "
                f"wanted this model's layers, {self.layers}; make both of one model"
            )


class WarpedGuide(GuideOnBase):
    """A guide of v = T(F(e)) with a bijection F of `numpyro.param`s and e ~ N(0, I)."""

    @abc.abstractmethod
    def warped(self, e: Values) -> tuple[Values, Array]:
        """Return z = F(e) by the layers' sites, and log |F'(e)|."""
