"""Where the fits of a comparison run: in this process, or as tasks of an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor, as_completed
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

import jax
from joblib.externals import loky
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from dgp_ppl._checks import check_count
from dgp_ppl._progress import Progress
from dgp_ppl.comparison._fit_method import MethodFit, fit_method
from dgp_ppl.comparison._method import METHODS, Method
from dgp_ppl.comparison._run import Run, run_method
from dgp_ppl.comparison._setting import Setting
from dgp_ppl.comparison._source import Split

__all__ = [
    "ONE_AT_A_TIME",
    "Job",
    "Outcome",
    "check_executor",
    "fits_here",
    "fits_on",
    "local_workers",
]

_PARENT_SECONDS = 1.0  # between looks at whether a worker's parent lives
# The names that say how many threads BLAS libraries and XLA may start.
_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NPROC",
)  # fmt: skip
_UNSENT = (pickle.PicklingError, AttributeError, TypeError)  # what pickling raises

# NumPyro's stack of handlers belongs to the process, so threads take turns.
ONE_AT_A_TIME = threading.RLock()

Outcome = tuple["Job", dict[str, Any], Run | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One method on one split."""

    place: int  # of its row in the table
    method: str
    split: Split
    setting: Setting
    config: Mapping[str, Any]
    label: str | bool = False  # of the progress bar
    known: dict[str, Any] | None = None  # its row, if an earlier run of the comparison finished it
    keeps_run: bool = True  # whether the run is needed, and not the row alone
    keeps_tree: bool = False  # whether its ArviZ tree is needed too

    def run(self, fit: Callable[..., MethodFit] = fit_method) -> tuple[dict[str, Any], Run | None]:
        """Fit and measure, unless the row is known; `fit` as in `run_method`."""
        if self.known is not None:
            return self.known, None
        return run_method(self.method, self.split, self.setting, self.config, self.label, fit)


def fits_here(jobs: Iterable[Job]) -> Generator[Outcome]:
    """Run the jobs in this process, in order; yields each with its row and its run."""
    for job in jobs:
        yield job, *job.run()


def fits_on(
    executor: Executor | Callable[[], Executor], jobs: Iterable[Job], progress: bool
) -> Generator[Outcome]:
    """Run the jobs as tasks of an executor; yields each when it is done.

    If a worker dies, `BrokenExecutor` is raised after the fits that were finished.
    """
    waiting: list[Job] = []
    for job in jobs:
        if job.known is None:
            waiting.append(job)
        else:
            yield job, job.known, None
    with _made(executor) as pool, Progress(progress, len(waiting), "compare", unit="fits") as bar:
        if not isinstance(pool, ThreadPoolExecutor):
            for source in {job.split.data for job in waiting if job.split.train is None}:
                with _sendable(f"the rows of {source.name}", "give .parquet or .npy files"):
                    pickle.dumps(source)
        running = {pool.submit(_work, job, METHODS[job.method]): job for job in waiting}
        lost: BrokenExecutor | None = None
        try:
            for future in as_completed(running):
                job = running[future]
                try:
                    row, kept = future.result()
                except BrokenExecutor as error:
                    lost = error  # raised when the fits that were finished are kept
                    continue
                bar.update(1, job.method)
                yield job, row, None if kept is None else pickle.loads(kept)
        finally:
            for future in running:
                future.cancel()
        if lost is not None:
            raise lost


def check_executor(executor: Any) -> None:
    """Raise a TypeError unless this is an executor, or a function that makes one."""
    if executor is not None and not isinstance(executor, Executor) and not callable(executor):
        raise TypeError(
            f"compare: executor is a {type(executor).__name__}, wanted a "
            "concurrent.futures.Executor, such as ProcessPoolExecutor or Dask's "
            "client.get_executor(), or a function that makes one, such as local_workers(4)"
        )


def local_workers(num: int) -> Callable[[], Executor]:
    """Return a function that makes an executor of local processes, for ``compare(executor=...)``.

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
    return partial(_LocalWorkers, num)


class _LocalWorkers(loky.ProcessPoolExecutor):
    """Processes with a part of the threads each. They end with this process."""

    def __init__(self, num: int) -> None:
        # Set before a worker's first import. A BLAS with more threads than it has cores spins while
        # it waits for them, which multiplies the time of large factors by up to 20.
        threads = str(max(1, loky.cpu_count() // num))
        environment = dict.fromkeys(_THREADS, threads)
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
        super().__init__(num, initializer=_start_worker, initargs=(os.getpid(),), env=environment)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; to cancel, also those in the middle of a fit."""
        super().shutdown(wait=wait, kill_workers=cancel_futures)


def _start_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it, even if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _made(executor: Executor | Callable[[], Executor]) -> Iterator[Executor]:
    """Enter an executor. One that is made here is shut down at the end."""
    if isinstance(executor, Executor):
        yield executor
        return
    pool = executor()
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _work(job: Job, method: Method) -> tuple[dict[str, Any], bytes | None]:
    """Run a job in a worker; returns the row, and the pickled run if it is needed."""
    METHODS[job.method] = method  # a worker may not have the user's registrations
    job = dataclasses.replace(job, label=False)  # the bars of several workers would mix
    try:
        with ONE_AT_A_TIME, jax.enable_x64(job.config["x64"]):
            row, run = job.run()
            if run is None or not job.keeps_run:
                return row, None
            if job.keeps_tree:
                _ = run.tree  # made here once, and kept in the run
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
