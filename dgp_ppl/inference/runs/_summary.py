"""Short descriptions of results: a few lines instead of their arrays."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dgp_ppl._errors import listed

_MOST = 30  # arrays


class Summarized:
    """Base of results whose `repr` is a few lines."""

    def summary(self) -> list[str]:
        """Return the lines that follow the name of the class."""
        raise NotImplementedError

    def __repr__(self) -> str:
        first, *others = self.summary()
        return "\n  ".join([f"{type(self).__name__}: {first}", *others])


def list_arrays(title: str, arrays: Mapping[str, Any], skip: int = 0) -> list[str]:
    """Return lines with names and shapes of arrays, without `skip` axes; of trees the numbers."""
    parts = []
    for name, value in arrays.items():
        shapes = [list(np.shape(a))[skip:] for a in jax.tree.leaves(value) if hasattr(a, "shape")]
        shown = f" {shapes[0]}" if len(shapes) == 1 else f" ({len(shapes)} arrays)"
        parts.append(name + shown)
    text = f"{title}: {listed(parts, _MOST)}"
    return textwrap.wrap(text, 100, subsequent_indent="  ", break_on_hyphens=False)


def list_losses(name: str, losses: np.ndarray, seconds: float) -> str:
    """Return the number of steps, the seconds they took, and the last loss."""
    last = f", final {name} {losses[-1]:.6g}" if len(losses) else ""
    return f"{len(losses)} steps in {seconds:.3g} s{last}"


def program_name(program: Any) -> str:
    """Return the name of a model or a guide; of a handler or a partial, the program inside."""
    name = getattr(program, "__name__", None)
    inner = getattr(program, "fn", getattr(program, "func", None))
    if name is None and inner is not None:
        return program_name(inner)
    return name or type(program).__name__
