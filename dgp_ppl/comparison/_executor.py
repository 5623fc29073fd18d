"""Where the fits of a comparison run: in this process, or as tasks of an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from functools import partial
from itertools import cycle
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import jax

from dgp_ppl._checks import check_count
from dgp_ppl._progress import Progress
from dgp_ppl.comparison._fit_method import MethodFit, fit_method
from dgp_ppl.comparison._method import METHODS, Method
from dgp_ppl.comparison._run import Run, run_method
from dgp_ppl.comparison._setting import Setting
from dgp_ppl.comparison._source import Split
from dgp_ppl.datasets import Dataset
from dgp_ppl.datasets._source import RowSource

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
_MOST_LOSSES = 3  # times in a row that an executor may break before a fit is finished

# NumPyro's stack of handlers belongs to the process, so threads take turns.
ONE_AT_A_TIME = threading.RLock()

Outcome = tuple["Job", dict[str, Any], Run | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One method on one split.

    Attributes:
        place: number of its row in the table.
        method: name of the method.
        split: the split.
        setting: the settings of the comparison.
        config: its configuration.
        label: label of the progress bar, or False.
        known: its row, if it was finished in an earlier run of the comparison.
        keeps_run: whether the run is needed, and not the row alone.
        keeps_tree: whether its ArviZ tree is needed too.
    """

    place: int
    method: str
    split: Split
    setting: Setting
    config: Mapping[str, Any]
    label: str | bool = False
    known: dict[str, Any] | None = None
    keeps_run: bool = True
    keeps_tree: bool = False

    def run(self, fit: Callable[..., MethodFit] = fit_method) -> tuple[dict[str, Any], Run | None]:
        """Fit and measure, unless the row is known; `fit` is that of `run_method`."""
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

    Args:
        executor: the executor, or a function that makes one. What the function makes is shut down
            at the end, and replaced if it breaks.
        jobs: the jobs.
        progress: whether to show a bar of finished fits.

    Raises:
        RuntimeError: if executors break again and again before a fit is finished.
        ValueError: if a worker does not have a method.
    """
    waiting: list[Job] = []
    for job in jobs:
        if job.known is None:
            waiting.append(job)
        else:
            yield job, job.known, None
    losses = 0
    with Progress(progress, len(waiting), "compare", unit="fits") as bar:
        while waiting and losses < _MOST_LOSSES:
            before = len(waiting)
            with _made(executor) as pool:
                for job, row, run in _finished(pool, waiting):
                    waiting.remove(job)
                    bar.update(1, job.method)
                    yield job, row, run
            losses = losses + 1 if len(waiting) == before else 1
            if waiting and isinstance(executor, Executor):
                warnings.warn(
                    f"compare: a worker of the executor has died, so {len(waiting)} fits run in "
                    "this process, one at a time. Give a function that makes the executor, "
                    "executor=lambda: ProcessPoolExecutor(...), and it is made again",
                    RuntimeWarning,
                    stacklevel=3,
                )
                while waiting:
                    job = waiting.pop(0)
                    found = dataclasses.replace(job, label=False).run()
                    bar.update(1, job.method)
                    yield job, *found
    if waiting:
        raise RuntimeError(
            f"compare: workers died {losses} times before a fit was finished; {len(waiting)} fits "
            f"are not done, first {waiting[0].method} on split {waiting[0].split.index}. Look for "
            "too little memory (fewer workers need less), or for a script that calls compare "
            'outside of `if __name__ == "__main__":`. Call again with resume=True to go on'
        )


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

    The processes share the cores of this one: each is pinned to its part of them, where the system
    can do that (Linux). They are started by "spawn", so a script needs
    ``if __name__ == "__main__":`` around the call::

        dgp.compare("boston", splits=20, executor=local_workers(4))

    With ``JAX_COMPILATION_CACHE_DIR`` set to a folder, one of them compiles a program for all.

    Args:
        num: number of processes.

    Raises:
        TypeError: if `num` is not an integer.
        ValueError: if it is not positive.
    """
    check_count("local_workers", "num", num)
    return partial(_LocalPool, num)


class _LocalPool(ProcessPoolExecutor):
    """Processes with a part of the cores each; they end with the comparison."""

    def __init__(self, num: int) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        parts = [cores[i::num] or cores[i % len(cores or [0]) :][:1] for i in range(num)]
        super().__init__(num, _PinnedContext(parts), _start_worker, (os.getpid(),))

    def stop(self) -> None:
        """End the processes, also those in the middle of a fit."""
        processes = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


class _PinnedContext(SpawnContext):
    """Starts processes that have a part of the cores each, in turn."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self._parts = cycle(parts)

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # noqa: N802 - its name
        return _PinnedProcess(next(self._parts), *args, **kwargs)


class _PinnedProcess(SpawnProcess):
    """A process that has its cores before its first import.

    Libraries count the cores as they are imported. With fewer cores later, threads of OpenBLAS
    spin while they wait for others on the same core, which multiplies the time of large factors.
    """

    def __init__(self, cores: Sequence[int], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cores = cores

    def start(self) -> None:
        if not self._cores:
            super().start()
            return
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)  # of this thread; the new process begins with it
        try:
            super().start()
        finally:
            os.sched_setaffinity(0, allowed)


def _start_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it, also with one that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


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
        if isinstance(pool, _LocalPool):
            pool.stop()
        else:
            pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _finished(pool: Executor, jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Yield the jobs as they finish, without those that a broken executor lost."""
    running: dict[Future[Any], Job] = {}
    if isinstance(pool, ProcessPoolExecutor):
        for source in {job.split.data for job in jobs if job.split.train is None}:
            _check_sent(source)
    try:
        with contextlib.suppress(BrokenExecutor):
            for job in jobs:
                running[pool.submit(_work, job, _origin(METHODS[job.method]))] = job
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    row, kept = future.result()
                except BrokenExecutor:
                    continue
                yield job, row, None if kept is None else pickle.loads(kept)
    finally:
        for future in running:
            future.cancel()


def _check_sent(source: Dataset | RowSource) -> None:
    try:
        pickle.dumps(source)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"compare: the rows of {source.name} cannot be sent to the workers ({error}); give "
            "them as .parquet or memory-mapped .npy files, whose names are sent, or leave executor "
            "out"
        ) from error


def _work(job: Job, origin: tuple[str, str]) -> tuple[dict[str, Any], bytes | None]:
    """Run a job in a worker; returns the row, and the pickled run if it is needed."""
    _check_registered(job.method, origin)
    job = dataclasses.replace(job, label=False)  # the bars of several workers would mix
    try:
        with ONE_AT_A_TIME, jax.enable_x64(job.config["x64"]):
            row, run = job.run()
            if run is None or not job.keeps_run:
                return row, None
            if job.keeps_tree:
                _ = run.tree  # made here once, and kept in the run
            return row, _pickled(job.method, run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # it travels without the fit


def _pickled(method: str, run: Run) -> bytes:
    try:
        return pickle.dumps(run)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"compare: the fit of {method!r} cannot be sent from the worker ({error}); give its "
            "model, guide and arguments no lambdas or inner functions, but functions of a module, "
            "or partials of them"
        ) from error


def _check_registered(name: str, origin: tuple[str, str]) -> None:
    """Raise a ValueError unless the worker has the method that the main program has."""
    module, function = origin
    if name not in METHODS and module != "__main__":
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    found = METHODS.get(name)
    if found is None or _origin(found) != origin:
        has = "does not have it" if found is None else f"has {'.'.join(_origin(found))} instead"
        raise ValueError(
            f"compare: the method {name!r} is {module}.{function} in the main program, and a "
            f"worker {has}; register it at the top level of a module that the workers can import, "
            "or of the script (not in a notebook, nor under `if __name__ == ...`)"
        )


def _origin(method: Method) -> tuple[str, str]:
    """Return the module and the name of a method's function."""
    module = str(getattr(method, "__module__", type(method).__module__))
    name = str(getattr(method, "__qualname__", type(method).__qualname__))
    return "__main__" if module == "__mp_main__" else module, name
