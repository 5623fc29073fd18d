"""A comparison on executors: results as without one, lost workers, and what cannot be sent."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor as Threads,
    wait,
)
from multiprocessing import get_context

import numpy as np
import pytest
import xarray as xr
from support import worker_methods
from support.comparisons import TINY

import dgp_ppl
from dgp_ppl.comparison import METHODS, local_workers
from dgp_ppl.comparison._executor import Job, fits_here

OPTIONS = {**TINY, "splits": 2, "seed": 3}


class Here(Executor):
    """Runs tasks at once in this process. Those with the numbers in `lost` break the executor."""

    def __init__(self, lost=()):
        self.lost, self.count = set(lost), 0

    def submit(self, fn, /, *args):
        future = Future()
        number, self.count = self.count, self.count + 1
        if number in self.lost:
            future.set_exception(BrokenExecutor())
            return future
        try:
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


def without_times(rows):
    return [{n: a for n, a in row.items() if n != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def wanted():
    return dgp_ppl.compare("step", ["sgpr", "linear"], **OPTIONS)


def assert_same(found, wanted):
    assert without_times(found.splits) == without_times(wanted.splits)
    assert list(found.fits) == list(wanted.fits)
    for method, run in found.fits.items():
        np.testing.assert_array_equal(run.test.mean, wanted.fits[method].test.mean)


def test_results_are_those_without_an_executor(wanted, tmp_path):
    """Also for threads, which take turns, because NumPyro's handlers belong to the process."""
    seen = []
    found = dgp_ppl.compare(
        "step", ["sgpr", "linear"], executor=Here(), out=tmp_path, on_row=seen.append, **OPTIONS
    )
    assert_same(found, wanted)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["splits"] == found.splits
    assert sorted(seen, key=str) == sorted(found.splits, key=str)
    for name in ("sgpr.nc", "linear.nc", "predictions.png"):
        assert (tmp_path / name).exists()
    with Threads(2) as threads:
        assert_same(
            dgp_ppl.compare("step", ["sgpr", "linear"], executor=threads, **OPTIONS), wanted
        )


@pytest.mark.slow
def test_lost_fits_are_done_again(wanted):
    with pytest.warns(RuntimeWarning, match="worker of the executor has died, so 2 fits run in"):
        found = dgp_ppl.compare("step", ["sgpr", "linear"], executor=Here({1, 2}), **OPTIONS)
    assert_same(found, wanted)
    made = []

    def make():
        made.append(Here({0, 3} if len(made) < 2 else ()))
        return made[-1]

    assert_same(dgp_ppl.compare("step", ["sgpr", "linear"], executor=make, **OPTIONS), wanted)
    assert [pool.count for pool in made] == [4, 2, 1]


def test_workers_that_always_die():
    with pytest.raises(RuntimeError, match=r"workers died 3 times .*; 4 fits .*first sgpr on"):
        dgp_ppl.compare("step", ["sgpr", "linear"], executor=lambda: Here(range(9)), **OPTIONS)


def test_an_interrupted_comparison_goes_on(wanted, tmp_path, monkeypatch):
    """The second split's fits can be done before those of the first one."""

    class Interrupted(Here):
        def submit(self, fn, /, *args):
            if self.count == 0:
                self.count += 1
                future = Future()
                future.set_exception(KeyboardInterrupt())
                self.first = future
                return future
            return super().submit(fn, *args)

    from dgp_ppl.comparison import _executor

    def last_first(running, **_):  # wait, in the worst order
        return type("Found", (), {"done": [list(running)[-1]]})

    monkeypatch.setattr(_executor, "wait", last_first)
    with pytest.raises(dgp_ppl.Interrupted, match="3 of 4 fits finished and kept") as caught:
        dgp_ppl.compare("step", ["sgpr", "linear"], executor=Interrupted(), out=tmp_path, **OPTIONS)
    assert [r["method"] for r in caught.value.result.splits] == ["linear", "sgpr", "linear"]
    monkeypatch.undo()
    pool = Here()
    found = dgp_ppl.compare(
        "step", ["sgpr", "linear"], executor=pool, out=tmp_path, resume=True, **OPTIONS
    )
    assert pool.count == 2  # the figures show all fits of the first split
    assert_same(found, wanted)


def test_a_method_of_the_main_program_alone(monkeypatch):
    """A worker imports the module of a method; without a module it says what to do."""
    jobs = []

    class Elsewhere(Here):
        def submit(self, fn, /, *args):
            jobs.append(args[0])
            with monkeypatch.context() as worker:
                worker.delitem(METHODS, args[0].method)
                return super().submit(fn, *args)

    def mine(task):
        raise AssertionError("not here")

    mine.__module__ = "__main__"
    monkeypatch.setitem(METHODS, "mine", mine)
    wanted = r"'mine' is __main__\..*mine in the main program, and a worker does not have it; reg"
    with pytest.raises(ValueError, match=wanted):
        dgp_ppl.compare("step", ["mine"], executor=Elsewhere(), **OPTIONS)
    assert isinstance(jobs[0], Job)


def test_what_cannot_be_sent():
    with pytest.raises(TypeError, match="executor is a int, wanted a concurrent"):
        dgp_ppl.compare("step", ["linear"], executor=4, **OPTIONS)
    with pytest.raises(TypeError, match="fit of 'local_model' cannot be sent from the worker"):
        dgp_ppl.compare("step", ["local_model"], executor=Here(), **OPTIONS)
    with pytest.raises(ValueError, match="local_workers: num is 0"):
        local_workers(0)


def test_jobs_here_take_known_rows():
    row = {"split": 0}
    job = Job(0, "linear", None, None, {}, known=row)
    assert list(fits_here([job])) == [(job, row, None)]


@pytest.mark.slow
def test_processes(wanted, tmp_path):
    """Every method's fit travels: the parts of all runs can be pickled."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = dgp_ppl.compare(
            "step", ["sgpr", "linear"], executor=pool, out=tmp_path / "there", **OPTIONS
        )
    assert_same(found, wanted)
    dgp_ppl.compare("step", ["sgpr", "linear"], out=tmp_path / "here", **OPTIONS)
    for method in ("sgpr", "linear"):
        there, here = (
            xr.open_datatree(tmp_path / f / f"{method}.nc", engine="h5netcdf")
            for f in ("there", "here")
        )
        for group in here.groups:
            assert here[group].to_dataset().equals(there[group].to_dataset()), group


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot pin processes")
def test_local_workers_divide_the_cores():
    """Each core has a worker; with more workers than cores, some share one."""
    allowed = sorted(os.sched_getaffinity(0))
    num = len(allowed) + 1
    with local_workers(num)() as pool:
        tasks = [pool.submit(time.sleep, 1) for _ in range(num)]  # every worker has started
        wait(tasks)
        found = {
            # Those of libraries count, too, such as OpenBLAS's.
            p: {tuple(sorted(os.sched_getaffinity(int(t)))) for t in os.listdir(f"/proc/{p}/task")}
            for p in pool._processes
        }
    assert sorted(sorted(cores) for cores in found.values()) == sorted(
        [[(core,)] for core in allowed] + [[(allowed[0],)]]
    )
    assert sorted(os.sched_getaffinity(0)) == allowed


@pytest.mark.slow
def test_a_worker_that_is_killed(monkeypatch, tmp_path):
    """SIGKILL breaks the pool of processes; a new one does the lost fits."""
    monkeypatch.setenv(worker_methods.FLAG, str(tmp_path / "flag"))
    methods = ["dies_once", "linear"]
    found = dgp_ppl.compare("step", methods, executor=local_workers(2), **OPTIONS)
    assert (tmp_path / "flag").exists()
    assert [r["rmse"] is not None for r in found.splits] == [True] * 4
    (tmp_path / "flag").unlink()
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.warns(RuntimeWarning, match="fits run in this process"),
    ):
        again = dgp_ppl.compare("step", methods, executor=pool, **OPTIONS)
    assert_same(again, found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dask's own, of ports and of the killed worker
def test_dask(wanted, monkeypatch, tmp_path):
    """Two workers of a local cluster, of which one is killed: Dask does its fit again."""
    distributed = pytest.importorskip("distributed", reason="needs the extra `test`")
    monkeypatch.setenv(worker_methods.FLAG, str(tmp_path / "flag"))
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        run = {"executor": client.get_executor(), **OPTIONS}
        assert_same(dgp_ppl.compare("step", ["sgpr", "linear"], **run), wanted)
        found = dgp_ppl.compare("step", ["dies_once"], **run)
    assert (tmp_path / "flag").exists()
    assert [r["rmse"] for r in found.splits] == [r["rmse"] for r in wanted.splits[1::2]]


@pytest.mark.slow
def test_ctrl_c_ends_the_workers(tmp_path):
    """The command ends with one line, though its workers are in the middle of fits."""
    arguments = [
        sys.executable, "-c", "from dgp_ppl.cli.__main__ import main; main()", "compare", "step",
        "--methods", "linear,svgp", "--splits", "2", "--inducing", "4", "--samples", "4",
        "--steps", "1000000", "--workers", "2", "--out", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(
        arguments, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "40"}
    ) as process:
        lines = [process.stderr.readline()]
        while "linear" not in lines[-1]:
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        lines += process.stderr.readlines()  # ends when the workers have
    assert process.returncode == 130
    assert "dgp-ppl: compare: interrupted with" in lines[-1]
    assert "Traceback" not in "".join(lines)


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import os, time\n"
        "from dgp_ppl.comparison import local_workers\n"
        "if __name__ == '__main__':\n"
        "    pool = local_workers(1)()\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=30)  # until all have ended that can write to its output
    except subprocess.TimeoutExpired:
        os.kill(worker, signal.SIGKILL)
        pytest.fail("the worker outlived its parent by 30 s")
