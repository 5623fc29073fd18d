"""Fit several methods to the splits of a data set, and compare their results.

`compare` is the main function. `register` adds a method: a function that takes a `Task` and
returns a `Fitted`.
"""

from __future__ import annotations

from dgp_ppl._errors import UnsuitableError
from dgp_ppl._files import versions
from dgp_ppl.comparison._builders import Built, build
from dgp_ppl.comparison._compare import Comparison, compare
from dgp_ppl.comparison._executor import local_workers
from dgp_ppl.comparison._fit_method import MethodFit
from dgp_ppl.comparison._folder import write_json
from dgp_ppl.comparison._method import METHODS, Fitted, Task, register
from dgp_ppl.comparison._run import Run
from dgp_ppl.comparison._setting import Setting

__all__ = [
    "METHODS", "Built", "Comparison", "Fitted", "MethodFit", "Run", "Setting", "Task",
    "UnsuitableError", "build", "compare", "local_workers", "register", "versions", "write_json",
]  # fmt: skip
