"""The command ``dgp-ppl``."""

from dgp_ppl.cli import _compare, _datasets  # noqa: F401 - registers the commands
from dgp_ppl.cli._app import app, main

__all__ = ["app", "main"]
