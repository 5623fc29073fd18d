"""A comparison on executors: results as without one, lost workers, and what cannot be sent."""

import json
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor as Threads,
)
from multiprocessing import get_context

import h5py
import numpy as np
import pytest
import xarray as xr
from joblib.externals import loky
from support import worker_methods
from support.comparisons import TINY

import dgp_ppl
from dgp_ppl.comparison import METHODS, Run, _executor, local_workers

NAMES = ["sgpr", "linear"]
OPTIONS = {**TINY, "splits": 2, "seed": 3}


class Here(Executor):
    """Runs tasks in this process. The task with the number `fault` ends in an error."""

    def __init__(self, fault=None, error=None):
        self.fault, self.error, self.count = fault, error, 0

    def submit(self, fn, /, *args):
        future = Future()
        number, self.count = self.count, self.count + 1
        try:
            if number == self.fault:
                raise self.error
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


class OfUser(Here, loky.ProcessPoolExecutor):
    """A pool of loky that the user made, and goes on to use."""

    def shutdown(self, **options):
        raise AssertionError("the pool is shut down")


@pytest.fixture(scope="module")
def wanted():
    return dgp_ppl.compare("step", NAMES, **OPTIONS)


def assert_same(found, wanted):
    for rows in zip(found.splits, wanted.splits, strict=True):
        assert len({json.dumps({**row, "seconds": 0}) for row in rows}) == 1
    assert list(found.fits) == list(wanted.fits)
    for method, run in found.fits.items():
        np.testing.assert_array_equal(run.test.mean, wanted.fits[method].test.mean)


def test_results_are_those_without_an_executor(wanted, tmp_path, monkeypatch):
    """Also for threads. A worker need not have what the main program has registered."""

    class Elsewhere(Here):
        def submit(self, fn, /, *args):
            with monkeypatch.context() as worker:
                worker.setitem(METHODS, "sgpr", None)
                future = super().submit(fn, *args)
            kept = future.result()[1]
            trees.append(kept is not None and "tree" in vars(pickle.loads(kept)))
            return future

    trees, seen = [], []
    options = {**OPTIONS, "out": tmp_path, "on_row": seen.append}
    found = dgp_ppl.compare("step", NAMES, executor=Elsewhere(), **options)
    assert_same(found, wanted)
    assert trees == [True, True, False, False]  # of the first split, made by the worker
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["splits"] == found.splits
    assert sorted(seen, key=str) == sorted(found.splits, key=str)
    assert {p.name for p in tmp_path.iterdir()} == {"results.json", "sgpr.nc", "linear.nc"}
    with Threads(2) as threads:
        found = dgp_ppl.compare("step", NAMES, executor=threads, **OPTIONS)
        assert_same(found, wanted)


def test_a_comparison_that_ends_early_goes_on(wanted, tmp_path, monkeypatch):
    """Ctrl-C, and a worker that dies: one line says how, and finished fits are kept."""
    monkeypatch.setattr(Run, "tree", xr.DataTree())

    def stop(row):
        raise KeyboardInterrupt

    for place, pool, stopped, raised, number in (
        ("interrupted", OfUser(), {"on_row": stop}, dgp_ppl.Interrupted, 1),
        ("broken", Here(1, BrokenExecutor()), {}, RuntimeError, 3),
    ):
        options = {**OPTIONS, "out": tmp_path / place}
        words = rf"compare: .* {number} of 4 fits finished and kept in .*resume=True"
        with pytest.raises(raised, match=words):
            dgp_ppl.compare("step", NAMES, executor=pool, **stopped, **options)
        again = Here()
        found = dgp_ppl.compare("step", NAMES, executor=again, resume=True, **options)
        assert again.count == 4 - number
        for row, other in zip(found.splits, wanted.splits, strict=True):
            assert row["rmse"] == other["rmse"]


def test_forked_processes_are_refused(monkeypatch):
    """JAX hangs in them: also in a pool that does not show that it forks."""
    way_out = r"compare: executor runs forked processes, .*local_workers\(4\), or .*spawn"
    context = get_context("fork")
    pools = [ProcessPoolExecutor(1, context), loky.ProcessPoolExecutor(1, context=context)]
    if context.get_start_method() == get_context().get_start_method():
        pools.append(ProcessPoolExecutor(1))
    for pool in pools:
        with pytest.raises(ValueError, match=way_out):
            dgp_ppl.compare("step", NAMES, executor=pool, **OPTIONS)
    monkeypatch.setattr(_executor, "_IMPORTED_BY", os.getpid() + 1)
    with pytest.raises(ValueError, match=way_out):
        dgp_ppl.compare("step", NAMES, executor=Here(), **OPTIONS)


def test_what_cannot_be_sent(tmp_path):
    with pytest.raises(TypeError, match=r"the fit of .local_model. cannot be sent .*functions"):
        dgp_ppl.compare("step", ["local_model"], executor=Here(), **OPTIONS)
    with pytest.raises(ValueError, match="local_workers: num is 0"):
        local_workers(0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.ones((30_000, 2)), np.arange(30_000.0)
        source = dgp_ppl.Rows.from_arrays(file["x"], file["y"])
        with pytest.raises(TypeError, match=r"compare: the rows of rows cannot be sent .*\.npy"):
            dgp_ppl.compare(source, ["dsvi"], executor=local_workers(1), **TINY)


@pytest.mark.slow
def test_processes(wanted, tmp_path):
    """The runs and the trees of processes are the same, for any pool of them."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for place, executor in (("pool", pool), ("local", local_workers(1))):
            out = tmp_path / place
            found = dgp_ppl.compare("step", NAMES, executor=executor, out=out, **OPTIONS)
            assert_same(found, wanted)
            for method, run in wanted.fits.items():
                with xr.open_datatree(out / f"{method}.nc", engine="h5netcdf") as tree:
                    for group in run.tree.groups:
                        assert tree[group].to_dataset().equals(run.tree[group].to_dataset()), group


@pytest.mark.slow
def test_local_workers_divide_the_threads(monkeypatch):
    """BLAS and XLA in a worker start as many threads as its share of the cores, at least one."""
    monkeypatch.delenv("OMP_NUM_THREADS")  # of tests/conftest.py
    num = 2 * os.cpu_count()
    with local_workers(num) as pool:
        for threads, cores in pool.map(worker_methods.threads_of_libraries, range(num)):
            assert threads
            assert set(threads) == {1}
            assert cores == "1"


@pytest.mark.slow
def test_a_worker_that_is_killed(monkeypatch, tmp_path):
    """SIGKILL breaks the pool of processes: one line, and `resume` does the fits that are left."""
    monkeypatch.setenv(worker_methods.FLAG, str(tmp_path / "flag"))
    options = {**OPTIONS, "out": tmp_path / "out"}
    names = ["dies_once", "linear"]
    with pytest.raises(RuntimeError, match="compare: a worker died"):
        dgp_ppl.compare("step", names, executor=local_workers(2), **options)
    assert (tmp_path / "flag").exists()
    options["resume"] = (tmp_path / "out" / "results.json").exists()
    found = dgp_ppl.compare("step", names, executor=local_workers(2), **options)
    assert [r["rmse"] is not None for r in found.splits] == [True] * 4


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import os, time\n"
        "from dgp_ppl.comparison import local_workers\n"
        "pool = local_workers(1)\n"
        "print(pool.submit(os.getpid).result(), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=30)  # until all have ended that can write to its output
    except subprocess.TimeoutExpired:
        os.kill(worker, signal.SIGKILL)
        pytest.fail("the worker outlived its parent by 30 s")
