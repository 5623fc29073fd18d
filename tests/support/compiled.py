"""Compiler options of tests of rounding, which must match what users get."""

from importlib.metadata import version

# tests/conftest.py disables this code generator.
OPTIONS = {"xla_cpu_use_fusion_emitters": True} if version("jaxlib").startswith("0.10.") else {}
