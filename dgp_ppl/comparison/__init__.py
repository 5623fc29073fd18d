"""Fit several methods to the splits of a data set, and compare their results.

`compare` is the main function. `register` adds a method: a function that takes a `Task` and
returns a `Fitted`.
"""

from __future__ import annotations

from dgp_ppl._errors import UnsuitableError
from dgp_ppl._files import versions
from dgp_ppl.comparison._builders import Builder, Built, build
from dgp_ppl.comparison._compare import Comparison, compare
from dgp_ppl.comparison._executor import local_workers
from dgp_ppl.comparison._fit_method import MethodFit, fit_method
from dgp_ppl.comparison._kernels import KERNELS, CategoryKernel
from dgp_ppl.comparison._method import (
    METHODS,
    Fitted,
    Method,
    Task,
    methods_for,
    register,
)
from dgp_ppl.comparison._metrics import (
    INFERENCE_HEADINGS,
    METRICS,
    PREDICTION_HEADINGS,
    format_number,
    format_summary,
)
from dgp_ppl.comparison._run import Run
from dgp_ppl.comparison._setting import LIKELIHOODS, MODELS, Setting, setting_options
from dgp_ppl.comparison.report import draw_held_out, write_json

__all__ = [
    "INFERENCE_HEADINGS",
    "KERNELS",
    "LIKELIHOODS",
    "METHODS",
    "METRICS",
    "MODELS",
    "PREDICTION_HEADINGS",
    "Builder",
    "Built",
    "CategoryKernel",
    "Comparison",
    "Fitted",
    "Method",
    "MethodFit",
    "Run",
    "Setting",
    "Task",
    "UnsuitableError",
    "build",
    "compare",
    "draw_held_out",
    "fit_method",
    "format_number",
    "format_summary",
    "local_workers",
    "methods_for",
    "register",
    "setting_options",
    "versions",
    "write_json",
]
