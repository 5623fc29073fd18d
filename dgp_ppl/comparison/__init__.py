"""Fit several methods to the splits of a data set, and write down how they did."""

from dgp_ppl.comparison._compare import Comparison, compare
from dgp_ppl.comparison._methods import METHODS, Fitted, Method, register
from dgp_ppl.comparison._results import versions, write_json
from dgp_ppl.comparison._run import Run
from dgp_ppl.comparison._settings import LIKELIHOODS, MODELS, Setting
from dgp_ppl.comparison._tables import INFERENCE, SCORES, cell, number

__all__ = [
    "INFERENCE",
    "LIKELIHOODS",
    "METHODS",
    "MODELS",
    "SCORES",
    "Comparison",
    "Fitted",
    "Method",
    "Run",
    "Setting",
    "cell",
    "compare",
    "number",
    "register",
    "versions",
    "write_json",
]
