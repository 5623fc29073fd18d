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
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Key, Real

AnyArray: TypeAlias = Array | np.ndarray
"""An array of JAX or of NumPy."""
Inputs: TypeAlias = Real[AnyArray, "N D"]
OtherInputs: TypeAlias = Real[AnyArray, "M D"]
Outputs: TypeAlias = Float[Array, "N P"]
InducingInputs: TypeAlias = Real[AnyArray, "M D"] | Real[AnyArray, "P M D"]
PRNGKey: TypeAlias = Key[Array, ""] | Array
Params: TypeAlias = dict[str, Any]
"""Values of NumPyro params by name."""
Model: TypeAlias = Callable[..., Any]
Values: TypeAlias = dict[str, Any]
"""Values of latent sites by name."""


@runtime_checkable
class Fitted(Protocol):
    """The result of a fit, which functions take instead of its params."""

    @property
    def params(self) -> Any:
        """Values of NumPyro params by name."""
        ...
