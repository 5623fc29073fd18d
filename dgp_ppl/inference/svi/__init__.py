"""Fits by NumPyro's SVI: one fit, or many in one program."""

from __future__ import annotations

from dgp_ppl.inference.svi._fit import evaluate, fit, fit_program
from dgp_ppl.inference.svi._fit_many import fit_many
from dgp_ppl.inference.svi._minimize import minimize
from dgp_ppl.inference.svi._result import FitResult, FitResults

__all__ = ["FitResult", "FitResults", "evaluate", "fit", "fit_many", "fit_program", "minimize"]
