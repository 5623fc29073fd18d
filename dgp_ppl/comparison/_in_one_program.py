"""The fits of a method, of all splits and restarts, in one program, which pays on a GPU."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Sequence
from typing import Any

from dgp_ppl._errors import DataError, UnsuitableError
from dgp_ppl.comparison._fit_method import FailedFit, Found, method_fit, prepared
from dgp_ppl.comparison._method import TRAITS
from dgp_ppl.comparison._run import Job, Run, run_method


def fits_in_one_program(jobs: Sequence[Job]) -> Generator[tuple[Job, dict[str, Any], Run | None]]:
    """Run the jobs method by method, with all fits of a method in one program where it can be.

    ``in_one_program`` of a row has the number of fits, and ``seconds`` a split's share of the time.
    """
    for method in dict.fromkeys(job.method for job in jobs):
        own = [job for job in jobs if job.method == method]
        found = _found(method, own)
        for i, job in enumerate(own):
            row, run = run_method(job, found[i] if found else None)
            if found:
                row["in_one_program"] = len(own) * job.setting.restarts
            yield job, row, run


def _found(method: str, jobs: Sequence[Job]) -> list[Found]:
    """Fit a method to the splits of all jobs; returns nothing if one program cannot do that."""
    fit, setting = TRAITS[method].in_one_program, jobs[0].setting
    num_fits = len(jobs) * setting.restarts
    if fit is None or num_fits < 2:
        return []
    label = f"{method}, {num_fits} fits" if jobs[0].label else False
    scales, by_split = [], []
    for job in jobs:
        options = dataclasses.replace(job, label=label).fit_options
        scale, tasks = prepared(*job.split.training(setting.batch), setting, **options)
        scales.append(scale)
        by_split.append(tasks)
    tasks = [task for own in by_split for task in own]
    if any(t.is_streamed for t in tasks) or len({(t.x.shape[1], t.one_hot) for t in tasks}) > 1:
        return []
    start = time.perf_counter()
    try:
        fits = iter(fit(tasks))
    except (UnsuitableError, DataError):
        return []  # one fit after another says which split it is
    seconds = (time.perf_counter() - start) / len(jobs)
    found: list[Found] = []
    for job, scale, own in zip(jobs, scales, by_split, strict=True):
        restarts = [next(fits) for _ in own]
        try:
            found.append(method_fit(restarts, scale, job.config["seed"], job.split.index, seconds))
        except FailedFit as error:
            found.append(error)
    return found
