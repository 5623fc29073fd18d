"""The fits of a comparison as tasks of an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor, as_completed
from multiprocessing import resource_tracker
from typing import Any

import jax
from joblib.externals import loky
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from dgp_ppl._checks import check_count
from dgp_ppl._progress import Progress
from dgp_ppl.comparison._method import METHODS, Method
from dgp_ppl.comparison._run import Job, Run, run_method

_PARENT_SECONDS = 1.0  # between looks at whether a worker's parent lives
# The names that say how many threads BLAS libraries and XLA may start.
_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NPROC",
)  # fmt: skip
_UNSENT = (pickle.PicklingError, AttributeError, TypeError)  # what pickling raises

_IMPORTED_BY = os.getpid()
_FORKS = """compare: executor runs forked processes, in which JAX hangs, wanted \
dgp_ppl.comparison.local_workers(4), or \
ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn"))"""


def check_forks(pool: Executor | None) -> None:
    """Raise a ValueError if a pool of the standard library, or of loky, forks this process."""
    for name in ("_mp_context", "_context"):
        if getattr(getattr(pool, name, None), "get_start_method", str)() == "fork":
            raise ValueError(_FORKS)


def fits_on(
    pool: Executor, jobs: Iterable[Job], progress: bool
) -> Generator[tuple[Job, dict[str, Any], Run | None]]:
    """Run jobs as tasks of an executor; yield each when done, `BrokenExecutor` if a worker dies."""
    jobs = list(jobs)
    if not isinstance(pool, ThreadPoolExecutor):
        for source in {job.split.data for job in jobs if job.split.train is None}:
            with _sendable(f"the rows of {source.name}", "give .parquet or .npy files"):
                pickle.dumps(source)
    running = {pool.submit(_work, job, METHODS.get(job.method)): job for job in jobs}
    lost: BrokenExecutor | None = None
    try:
        with Progress(progress, len(jobs), "compare", unit="fits") as bar:
            for future in as_completed(running):
                job = running[future]
                try:
                    row, kept = future.result()
                except BrokenExecutor as error:
                    lost = error  # raised when the fits that were finished are kept
                    continue
                bar.update(1, job.method)
                yield job, row, None if kept is None else pickle.loads(kept)
        if lost is not None:
            raise lost
    except BaseException:
        for future in running:
            future.cancel()
        if isinstance(pool, _LocalWorkers):  # ends workers in the middle of a fit
            pool.shutdown(wait=False, kill_workers=True)
        raise


class _LocalWorkers(loky.ProcessPoolExecutor):
    """Processes for one comparison, unlike a pool of the user, which outlives an error."""


def local_workers(num: int) -> Executor:
    """Return an executor of local processes, for ``compare(executor=...)``.

    The processes divide the cores: each starts as many threads as its share has cores. They are
    joblib's loky workers, so methods and models may come from a script or a notebook::

        dgp.compare("boston", splits=20, executor=local_workers(4))

    With ``JAX_COMPILATION_CACHE_DIR`` set to a folder, one of them compiles a program for all.

    Args:
        num: number of processes.

    Raises:
        TypeError: if `num` is not an integer.
        ValueError: if it is not positive.
    """
    check_count("local_workers", "num", num)
    # Set before a worker's first import. A BLAS with more threads than it has cores spins while it
    # waits for them, which multiplies the time of large factors by up to 20.
    threads = dict.fromkeys(_THREADS, str(max(1, loky.cpu_count() // num)))
    # Workers that are killed leave semaphores to the process that frees them. It would say so
    # behind the one line that an interrupted command prints.
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()
    if before is None:
        del os.environ["PYTHONWARNINGS"]
    else:
        os.environ["PYTHONWARNINGS"] = before
    return _LocalWorkers(num, initializer=_start_worker, initargs=(os.getpid(),), env=threads)


def _start_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it, even if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _work(job: Job, method: Method | None) -> tuple[dict[str, Any], bytes | None]:
    """Run a job in a worker; returns the row, and the pickled run if it is needed."""
    if os.getpid() != _IMPORTED_BY:  # a fork of some executor that does not show it
        raise ValueError(_FORKS)
    if method is not None:  # a worker may not have the user's registrations
        METHODS[job.method] = method
    job = dataclasses.replace(job, label=False)  # the bars of several workers would mix
    try:
        with jax.enable_x64(job.config["x64"]):
            row, run = run_method(job)
            if run is None or not job.keeps_run:
                return row, None
            if job.keeps_tree:
                _ = run.tree  # made here, side by side, and sent with the run
            with _sendable(f"the fit of {job.method!r}", "give its model no inner functions"):
                return row, pickle.dumps(run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # it travels without the fit


@contextlib.contextmanager
def _sendable(what: str, cure: str) -> Iterator[None]:
    """Raise a TypeError in the words of `compare` for an error of pickle."""
    try:
        yield
    except _UNSENT as error:
        raise TypeError(
            f"compare: {what} cannot be sent between processes ({error}); {cure}, or leave "
            "executor out"
        ) from error
