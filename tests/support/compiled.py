"""How users' programs are compiled, for tests of rounding."""

from importlib.metadata import version

# tests/conftest.py switches this code generator off.
OPTIONS = {"xla_cpu_use_fusion_emitters": True} if version("jaxlib").startswith("0.10.") else {}
