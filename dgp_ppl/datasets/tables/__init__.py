"""Tables as people have them: reading them, and turning their columns into inputs."""

from __future__ import annotations

from dgp_ppl.datasets.tables._preprocessor import Preprocessor

__all__ = ["Preprocessor"]
