"""The letters that array shapes are written in, and the array types that use them.

===== ==========================================================
N     data points (B: data points of a minibatch)
D     inputs of a layer
P     outputs of a layer
M     inducing inputs of a layer
L     layers
S     Monte Carlo draws
===== ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from jaxtyping import Array, Float, Key

__all__ = [
    "Fitted", "InducingInputs", "InducingValues", "Inputs", "Model", "Outputs", "PRNGKey",
    "Params", "Values",
]  # fmt: skip

Inputs: TypeAlias = Float[Array, "N D"]
Outputs: TypeAlias = Float[Array, "N P"]
InducingInputs: TypeAlias = Float[Array, "M D"] | Float[Array, "P M D"]
InducingValues: TypeAlias = Float[Array, "M P"]
PRNGKey: TypeAlias = Key[Array, ""] | Array
Params: TypeAlias = dict[str, Any]
"""Values of NumPyro params by name."""
Model: TypeAlias = Callable[..., Any]
Values: TypeAlias = dict[str, Any]
"""Values of latent sites by name."""


class Fitted(Protocol):
    """The result of a fit, which functions take in place of its params."""

    @property
    def params(self) -> Any:
        """Values of NumPyro params by name."""
        ...
