"""Short descriptions of results, a few lines in place of their arrays."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

__all__ = ["Summarized", "list_arrays", "list_losses", "program_name"]

_WIDTH = 100
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
    """Return lines with the names and shapes of arrays, or of the arrays in trees.

    Args:
        title: what comes first.
        arrays: by name.
        skip: number of leading axes to leave out.
    """
    parts = []
    for name, value in arrays.items():
        shapes = [list(np.shape(a))[skip:] for a in jax.tree.leaves(value) if hasattr(a, "shape")]
        parts.append(
            f"{name} {shapes[0]}" if len(shapes) == 1 else f"{name} ({len(shapes)} arrays)"
        )
    text = ", ".join(parts[:_MOST]) + (f", ... ({len(parts)} in all)" if len(parts) > _MOST else "")
    return textwrap.wrap(f"{title}: {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def program_name(program: Any) -> str:
    """Return the name of a model or a guide; handlers around it count as the program inside."""
    name = getattr(program, "__name__", None)
    inner = getattr(program, "fn", getattr(program, "func", None))  # of handlers and partials
    if name is None and inner is not None:
        return program_name(inner)
    return name or type(program).__name__


def list_losses(name: str, losses: np.ndarray, seconds: float) -> str:
    """Return the number of steps, the time they took, and the last loss."""
    last = f", final {name} {losses[-1]:.6g}" if len(losses) else ""
    return f"{len(losses)} steps in {seconds:.3g} s{last}"
