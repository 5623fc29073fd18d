"""The command ``dgp-ppl``."""

from __future__ import annotations

from dgp_ppl.cli import _compare, _datasets, _fit, _predict, _show  # noqa: F401 - the commands
from dgp_ppl.cli._app import app, main

__all__ = ["app", "main"]
