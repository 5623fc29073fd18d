"""The optional dependency."""

from __future__ import annotations

import importlib.util
from typing import Any

__all__ = ["require_blackjax"]


def require_blackjax(caller: str) -> Any:
    """Import BlackJAX, which is optional.

    Raises:
        ImportError: if it is not installed.
    """
    if importlib.util.find_spec("blackjax") is None:
        raise ImportError(f"{caller}: wanted blackjax; python -m pip install 'dgp_ppl[blackjax]'")
    return importlib.import_module("blackjax")
