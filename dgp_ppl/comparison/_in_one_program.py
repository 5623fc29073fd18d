"""The fits of a method, of all splits and restarts, in one program, which pays on a GPU."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

from dgp_ppl._errors import DataError, NonFiniteLossError, UnsuitableError
from dgp_ppl.comparison._executor import Job, Outcome
from dgp_ppl.comparison._fit_method import FailedFit, MethodFit, method_fit, prepared_task
from dgp_ppl.comparison._method import IN_ONE_PROGRAM
from dgp_ppl.comparison._run import fit_options

__all__ = ["fits_in_one_program"]

# Their arguments differ between splits in arrays alone.
_MODELS = ("deep_gp", "diff_gp", "temporal_diff_gp")

Found = MethodFit | NonFiniteLossError | UnsuitableError


def fits_in_one_program(jobs: Sequence[Job]) -> Generator[Outcome]:
    """Run the jobs method by method, with all fits of a method in one program where it can be.

    Its rows have the number of fits, splits times restarts, as ``in_one_program``, and as
    ``seconds`` a split's share of the program's time.
    """
    by_method: dict[str, list[Job]] = {}
    for job in jobs:
        by_method.setdefault(job.method, []).append(job)
    for method, jobs_of_method in by_method.items():
        waiting = [job for job in jobs_of_method if job.known is None]
        found = _found(method, waiting)
        for job in jobs_of_method:
            if job.known is not None or not found:
                yield job, *job.run()
                continue
            row, run = job.run(_giving(found[job.split.index]))
            row["in_one_program"] = len(waiting) * job.setting.restarts
            yield job, row, run


def _giving(found: Found) -> Any:
    """Return a function that stands for `fit_method`, and gives or raises what was found."""

    def fit(*args: Any, **options: Any) -> MethodFit:
        if isinstance(found, MethodFit):
            return found
        raise found

    return fit


def _found(method: str, jobs: list[Job]) -> dict[int, Found]:
    """Fit a method to the splits of all jobs; returns nothing if one program cannot do that."""
    if method not in IN_ONE_PROGRAM or not jobs or jobs[0].setting.model not in _MODELS:
        return {}
    setting, config = jobs[0].setting, jobs[0].config
    restarts = setting.restarts
    num_fits = len(jobs) * restarts
    if num_fits < 2:
        return {}
    label = f"{method}, {num_fits} fits" if jobs[0].label else False
    prepared = []
    for job in jobs:
        options = fit_options(job.split, config)
        prepared.append(prepared_task(*job.split.training(), setting, **options, progress=label))
    if any(task.is_streamed for _, task in prepared):
        return {}
    if len({(task.x.shape[1], task.one_hot) for _, task in prepared}) > 1:
        return {}
    start = time.perf_counter()
    try:
        fits = IN_ONE_PROGRAM[method]([t for _, task in prepared for t in task.restarts(restarts)])
    except (UnsuitableError, DataError):
        return {}  # one fit after another says which split it is
    seconds = (time.perf_counter() - start) / len(jobs)
    found: dict[int, Found] = {}
    for i, (job, (scale, _)) in enumerate(zip(jobs, prepared, strict=True)):
        index, own = job.split.index, fits[i * restarts : (i + 1) * restarts]
        try:
            found[index] = method_fit(own, scale, config["seed"], index, seconds)
        except FailedFit as error:
            found[index] = error
    return found
