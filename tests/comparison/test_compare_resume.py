"""A comparison that is interrupted: what is kept, and how it goes on."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import xarray
from support.comparisons import TINY, no_fit

import dgp_ppl
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison import METHODS, Run, _compare

METHOD_NAMES = ["sgpr", "linear"]
OPTIONS = {**TINY, "splits": 2, "seed": 3}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Leave out ArviZ trees, which take most of the time, and fit a straight line only."""
    monkeypatch.setattr(Run, "tree", xarray.DataTree())
    monkeypatch.setitem(METHODS, "sgpr", METHODS["linear"])


@pytest.fixture
def interrupted_fit(monkeypatch):
    """Interrupt the fit of linear with this number, from 0."""
    linear, count = METHODS["linear"], iter(range(100))

    def interrupt_at(number):
        def method(task):
            if next(count) == number:
                raise KeyboardInterrupt
            return linear(task)

        monkeypatch.setitem(METHODS, "linear", method)

    return interrupt_at


def test_finished_fits_are_kept_and_the_comparison_goes_on(interrupted_fit, tmp_path, monkeypatch):
    interrupted_fit(1)
    seen = []
    options = {**OPTIONS, "out": tmp_path}
    wanted = r"interrupted with 3 of 4 fits finished.*resume=True \(--resume --out .*\)"
    with pytest.raises(dgp_ppl.Interrupted, match=wanted) as caught:
        dgp_ppl.compare(
            "step", METHOD_NAMES, report=lambda found, out: seen.append(list(found.fits)), **options
        )
    assert seen == [METHOD_NAMES]  # the first split is done
    assert len(caught.value.result.splits) == 3
    kept = json.loads((tmp_path / "results.json").read_text())["splits"]
    assert [(r["split"], r["method"]) for r in kept] == [(0, "sgpr"), (0, "linear"), (1, "sgpr")]
    monkeypatch.undo()

    def never(task):
        raise AssertionError("sgpr is fitted again")

    (tmp_path / "linear.nc").unlink()  # a kill before it was written
    monkeypatch.setitem(METHODS, "sgpr", never)
    told = []
    found = dgp_ppl.compare("step", METHOD_NAMES, resume=True, on_row=told.append, **options)
    assert [r["rmse"] for r in found.splits[:3]] == [r["rmse"] for r in kept]
    assert (tmp_path / "linear.nc").exists()
    assert [(r["split"], r["method"]) for r in told[1:3]] == [(1, "sgpr"), (0, "linear")]
    whole = json.loads((tmp_path / "results.json").read_text())
    assert whole["splits"] == found.splits
    assert len(found.splits) == 4
    assert [row["rmse"]["se"] is not None for row in found.summary] == [True, True]


def test_a_disk_that_is_full_keeps_the_finished_fits(tmp_path, monkeypatch):
    """One line, whichever file it is; `resume` goes on."""
    kept = r"; 1 of 4 fits finished and kept in .*resume=True"
    for writes, said in (([], "results.json"), ([None], f"sgpr.nc.*{kept}"),
                         ([None, None], f"results.json.*{kept}")):  # fmt: skip
        out, left = tmp_path / str(len(writes)), iter(writes)

        def write(file, left=left):
            if next(left, "full") == "full":
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", write)
            with pytest.raises(dgp_ppl.DataError, match=said):
                dgp_ppl.compare("step", METHOD_NAMES, out=out, **OPTIONS)
        assert sorted(p.suffix for p in out.iterdir()) == [".json", ".nc"][: len(writes)]
    monkeypatch.setattr(_compare, "run_method", no_fit)
    options = {**OPTIONS, "resume": True, "out": out}
    again = dgp_ppl.compare("step", METHOD_NAMES, **options).splits
    assert [row["rmse"] is None for row in again] == [False, True, True, True]


def test_a_folder_that_another_comparison_took(tmp_path, monkeypatch):
    """Nothing of it is replaced."""

    def meanwhile(job):
        (tmp_path / "results.json").write_text("{}")
        (tmp_path / "sgpr.nc").write_text("theirs")
        return no_fit(job)

    monkeypatch.setattr(_compare, "run_method", meanwhile)
    with pytest.raises(dgp_ppl.DataError, match=r"results.json exists by now"):
        dgp_ppl.compare("step", METHOD_NAMES, out=tmp_path, **OPTIONS)
    assert (tmp_path / "results.json").read_text() == "{}"
    assert (tmp_path / "sgpr.nc").read_text() == "theirs"


def test_a_report_needs_the_fits_of_the_first_split_again(interrupted_fit, tmp_path):
    interrupted_fit(1)
    seen, options = [], {**OPTIONS, "out": tmp_path}
    report = lambda found, out: seen.append((list(found.fits), len(found.splits)))  # noqa: E731
    with pytest.raises(dgp_ppl.Interrupted, match="3 of 4 fits"):
        dgp_ppl.compare("step", METHOD_NAMES, **options)
    found = dgp_ppl.compare("step", METHOD_NAMES, resume=True, report=report, **options)
    assert set(found.fits) == {"sgpr", "linear"}
    assert seen == [(METHOD_NAMES, 3), (METHOD_NAMES, 4)]


def test_other_options_and_damaged_records_are_refused(interrupted_fit, tmp_path):
    interrupted_fit(0)
    with pytest.raises(dgp_ppl.Interrupted):
        dgp_ppl.compare("step", METHOD_NAMES, out=tmp_path, **OPTIONS)
    before = (tmp_path / "results.json").read_text()
    again = {**OPTIONS, "out": tmp_path, "resume": True}
    with pytest.raises(dgp_ppl.DataError, match="another comparison: its seed differ"):
        dgp_ppl.compare("step", METHOD_NAMES, **again | {"seed": 4})
    assert (tmp_path / "results.json").read_text() == before
    for damaged in ("{}", '{"config": {"splits": 2}, "data": {}, "splits": [{"split": 0}]}'):
        (tmp_path / "results.json").write_text(damaged)
        with pytest.raises(dgp_ppl.DataError, match="cannot be read"):
            dgp_ppl.compare("step", METHOD_NAMES, **again)


def test_without_a_folder_the_error_has_the_fits(monkeypatch, interrupted_fit):
    """A failed fit counts as finished."""
    linear = METHODS["linear"]

    def unsuitable(task):
        raise UnsuitableError("too small")

    monkeypatch.setitem(METHODS, "sgpr", unsuitable)
    monkeypatch.setitem(METHODS, "again", linear)
    interrupted_fit(0)
    with pytest.raises(dgp_ppl.Interrupted, match="2 of 3 fits finished") as caught:
        dgp_ppl.compare("step", ["again", *METHOD_NAMES], **OPTIONS | {"splits": 1})
    assert list(caught.value.result.fits) == ["again"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_in_the_command(tmp_path, workers):
    """A real Ctrl-C, through a pipe: one line, the code 130, and no carriage return.

    It ends workers in the middle of fits, too: the pipe is closed when they have ended.
    """
    arguments = [
        sys.executable, "-c", "from dgp_ppl.cli.__main__ import main; main()", "compare", "step",
        "--methods", "gp,dsvi", "--splits", "2", "--inducing", "4", "--samples", "4",
        "--steps", "1000000", "--workers", str(workers), "--out", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(
        arguments, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "40"}
    ) as process:
        lines = [process.stderr.readline()]
        while not re.search("split . +gp ", lines[-1]):
            assert lines[-1], lines  # else it has ended
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        lines += process.stderr.readlines()
    assert process.returncode == 130
    assert "\r" not in "".join(lines)
    assert re.search(r"dgp-ppl: compare: interrupted with . of 4 fits .*--resume", lines[-1])
    assert "Traceback" not in "".join(lines)
