"""Studies: questions, results, files, failed runs and kills."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Timer

import jax
import numpy as np
import pytest
from support.helpers import KEY, assert_errors, compiled
from support.surrogates import given_gp

from dgp_ppl.design import Study

LINE = {"a": (-2.0, 2.0)}
WIDE = {"a": (-2.0, 2.0), "n": range(-3, 4), "kind": ["x", "y"]}


def bowl(x):
    x = {"a": 0.0, "n": 1, "kind": "x"} | x
    return (x["a"] - 0.7) ** 2 + 0.1 * (x["n"] - 1) ** 2 + (x["kind"] == "y")


def told(bounds, num=6, function=bowl, **options):
    """A study by the given GP that has made its first runs."""
    study = Study(KEY, bounds, given_gp, initial=num, **options)
    for x in study.ask(num):
        study.tell(x, function(x))
    return study


def test_an_optimum_is_found_in_units_of_the_user():
    study = told(LINE, num=4, function=lambda x: 1e4 + 50 * bowl(x))
    best = study.run(lambda x: 1e4 + 50 * bowl({"a": x.pop("a")}), budget=9)  # a copy of its own
    assert len(study) == 9
    assert best.y - 1e4 < 50 * 1e-4
    assert best.x == study.best.x
    low = study.predict([{"a": 0.7}])
    assert abs(low.mean[0] - 1e4) < 1.0


def test_to_maximise_is_to_minimise_the_negative():
    up, down = told(LINE, function=lambda x: -bowl(x), maximise=True), told(LINE)
    assert up.best.x == down.best.x
    for ours, theirs in zip(up.ask(2), down.ask(2), strict=True):
        assert abs(ours["a"] - theirs["a"]) < 1e-3


def test_a_study_from_a_file_asks_the_same(tmp_path):
    """With runs under way, a failed one, and results in another order."""
    study = told(WIDE, criterion="integrated_variance")
    asked = study.ask(3)
    study.tell(asked[1], np.nan)
    study.save(tmp_path / "study.json")
    other = Study.load(tmp_path / "study.json", given_gp)
    np.testing.assert_array_equal(other.y, study.y)
    assert (other.pending, other.x, repr(other)) == (study.pending, study.x, repr(study))
    for one in (study, other):
        one.tell([asked[2], asked[0]], [bowl(asked[2]), bowl(asked[0])])
    assert study.ask(2) == other.ask(2)


@pytest.mark.parametrize("criterion", ["contour", "vigf", "thompson"])
def test_each_criterion_asks_what_is_new(criterion):
    level = 0.5 if criterion == "contour" else None
    study = told(LINE, criterion=criterion, level=level)
    rows = [tuple(x.values()) for x in study.ask(1) + study.ask(3) + study.x]
    assert len(set(rows)) == len(rows)


def test_failed_runs_are_kept_and_not_asked_again():
    study = told(LINE)
    (lost,) = study.ask()
    study.tell(lost, np.nan)
    assert np.isnan(study.y[-1])
    assert study.best.y < np.inf
    for x in study.ask(2):
        assert abs(x["a"] - lost["a"]) > 0.03
    study = Study(KEY, LINE, given_gp, initial=2)
    for x in study.ask(2):
        study.tell(x, np.nan)
    assert len({x["a"] for x in study.ask(3)}) == 3  # there is nothing to fit
    with pytest.raises(ValueError, match="none of 2 runs is feasible"):
        _ = study.best


@pytest.mark.parametrize("threads", [0, 3])
def test_a_batch_runs_all_that_is_left_of_a_finite_space(threads):
    study = told({"n": range(8)}, num=4)
    executor = ThreadPoolExecutor(threads) if threads else None
    with (
        executor or contextlib.nullcontext(),
        pytest.raises(ValueError, match="n is 1, wanted at most 0: all others have been asked"),
    ):
        study.run(bowl, budget=20, batch=3, executor=executor)
    assert len({tuple(x.values()) for x in study.x}) == 8


def test_a_question_without_answer_leaves_nothing_under_way():
    study = Study(KEY, {"n": range(8)}, given_gp, initial=4)
    for text in ("0 runs did not fail, wanted at least 2", "wanted at most 4: all"):
        with pytest.raises(ValueError, match=text):
            study.ask(9)
        assert study.pending == []
        study.tell([{"n": 1}, {"n": 2}], [0.0, 1.0])
    with pytest.raises(ValueError, match="0 runs did not fail"):
        Study(KEY, LINE).predict([{"a": 0.0}])


def test_constraints_have_surrogates_of_their_own():
    """The bowl's lowest feasible value is at a = 0."""
    both = lambda x: [bowl(x), x["a"]]  # noqa: E731
    study = told(LINE, function=both, constraints=1)
    best = study.run(both, budget=9)
    assert best.x["a"] <= 0
    assert best.y < 0.49 + 0.02
    assert study.y.shape == (9, 2)
    study.tell({"a": 1.9}, [-5.0, 1.0])
    assert study.best == best


def test_outputs_have_surrogates_of_their_own(tmp_path):
    both = lambda x: [bowl(x), -x["a"], -1.0]  # noqa: E731
    options = {"criterion": "variance", "outputs": 2, "constraints": 1}
    study = told(LINE, function=both, **options)
    assert study.y.shape == (6, 3)
    assert study.predict(study.x, output=1).f.mean == pytest.approx(study.y[:, 1], abs=0.02)
    study.save(tmp_path / "a.json")
    other = Study.load(tmp_path / "a.json", given_gp)
    assert other.ask(3) == study.ask(3)


def test_each_output_learns_from_the_runs_in_which_it_did_not_fail():
    """The first output fails on the right, where the constraint is known, and above 0."""
    both = lambda x: [np.nan if x["a"] > 0.3 else bowl(x), x["a"] - 0.3]  # noqa: E731
    study = told(LINE, function=both, constraints=1)
    study.tell({"a": 1.0}, np.nan)
    assert np.isnan(study.y[-1]).all()
    best = study.run(both, budget=12)
    assert np.sum([x["a"] > 0.3 for x in study.x[7:]]) <= 1
    assert 0.2 < best.x["a"] <= 0.3


def test_a_feasible_run_is_looked_for_while_there_is_none():
    both = lambda x: [bowl(x), abs(x["a"] - 1.2) - 0.02]  # noqa: E731
    study = told(LINE, function=both, constraints=1)
    with pytest.raises(ValueError, match="none of 6 runs is feasible"):
        _ = study.best
    assert abs(study.run(both, budget=10).x["a"] - 1.2) < 0.02


def test_fits_to_more_runs_share_programs(caplog):
    study = Study(KEY, LINE, "gp", initial=6)
    study.run(bowl, budget=8)
    names = compiled(caplog, lambda: study.run(bowl, budget=10))
    assert set(names) <= {"jit(scaled)", "jit(convert_element_type)"}  # milliseconds


def test_runs_in_threads_are_told_as_they_end():
    def late(x):
        a = x.pop("a")  # of a copy
        time.sleep(0.2 * (a < 0))
        return bowl({"a": a})

    study = Study(KEY, LINE, given_gp, initial=6)
    with ThreadPoolExecutor(3) as executor:
        study.run(late, budget=8, batch=3, executor=executor)
    assert len(study) == 8
    assert study.pending == []
    np.testing.assert_array_equal(study.y, [bowl(x) for x in study.x])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_result_beside_a_run_that_fails_is_kept(tmp_path, error):
    """An error waits for the other run, and an interrupt does not."""
    study, path = told(LINE), tmp_path / "study.json"
    fails, lasts = study.ask(2)
    begun, ends = Event(), Event()

    def one_fails(x):
        if x == fails:
            begun.wait(10)
            raise error
        begun.set()
        ends.wait(10)
        return bowl(x)

    with ThreadPoolExecutor(2) as executor:
        Timer(1.0, ends.set).start()
        with pytest.raises(error):
            study.run(one_fails, budget=8, batch=2, executor=executor, path=path)
        waited = ends.is_set()
    assert waited == (error is RuntimeError)
    kept = Study.load(path, given_gp)
    assert kept.pending == [fails] + [lasts] * (not waited)
    assert len(kept) == 6 + waited


def test_refits_are_at_each_row_and_then_by_growth():
    fitted = []

    def counted(task):
        fitted.append(len(task.x))
        return given_gp(task)

    study = Study(KEY, LINE, partial(counted), initial=2)
    rows = [{"a": float(a)} for a in np.linspace(-2, 2, 30)]
    for num in (9, 1, 20):
        study.tell(rows[:num], [bowl(x) for x in rows[:num]])
        study.predict(rows[:1])
    study.predict(rows[:1])
    assert fitted == [9, 10, 30]


KILLED = """
import sys, time
import jax
from pathlib import Path
from dgp_ppl.design import Study

def simulator(x):
    time.sleep(0.05)
    return x["a"] ** 2

path, initial, budget = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if path.exists():
    study = Study.load(path)
else:
    study = Study(jax.random.key(0), {"a": (-1.0, 1.0), "n": range(9)}, initial=initial)
study.run(simulator, budget, path=path)
"""


def test_a_killed_study_asks_the_same(tmp_path):
    path = tmp_path / "study.json"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), "40", "40"])
    while process.poll() is None and not path.exists():
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    study = Study.load(path)
    assert 0 < len(study) < 40
    study.run(lambda x: x["a"] ** 2, 40)
    whole = Study(jax.random.key(0), {"a": (-1.0, 1.0), "n": range(9)}, initial=40)
    assert study.x == whole.ask(40)


@pytest.mark.slow
def test_a_study_that_is_killed_ten_times_asks_the_same(tmp_path):
    """Within a first design of four, and within questions of a surrogate."""
    path, delays = tmp_path / "study.json", np.random.default_rng(0).uniform(0, 0.3, 10)
    for num, delay in enumerate(delays, start=2):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), "4", "14"])
        while process.poll() is None and (not path.exists() or len(Study.load(path)) < num):
            time.sleep(0.01)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    study = Study.load(path)
    assert len(study) < 14
    study.run(lambda x: x["a"] ** 2, 14)
    whole = Study(jax.random.key(0), {"a": (-1.0, 1.0), "n": range(9)}, initial=4)
    whole.run(lambda x: x["a"] ** 2, 14)
    assert study.x == whole.x


def test_a_study_that_ends_in_any_run_asks_the_same(tmp_path):
    """All that is left is the file, after each run in turn: two of a batch, and one alone."""
    path = tmp_path / "study.json"
    whole = told(LINE, num=5)
    whole.save(path)
    whole.run(bowl, budget=8, batch=2)

    def ends(x):
        if x not in tried:
            tried.append(x)
            raise KeyboardInterrupt
        return bowl(x)

    tried = []
    while len(study := Study.load(path, given_gp)) < 8:
        with contextlib.suppress(KeyboardInterrupt):
            study.run(ends, budget=8, batch=2, path=path)
    assert len(tried) == 3
    assert study.x == whole.x


@pytest.mark.slow
def test_an_optimum_is_found_among_integers_and_categories():
    smooth = partial(given_gp, lengthscale=2.0)
    best = Study(KEY, WIDE, smooth, initial=10).run(bowl, budget=25)
    assert (best.x["n"], best.x["kind"]) == (1, "x")
    assert abs(best.x["a"] - 0.7) < 0.02


@pytest.mark.slow
def test_the_optimum_of_branin_is_found():
    """The least value is 0.398."""

    def branin(x):
        a, b = x["a"], x["b"]
        bend = b - 5.1 * a**2 / (4 * np.pi**2) + 5 * a / np.pi - 6
        return bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10

    study = Study(KEY, {"a": (-5.0, 10.0), "b": (0.0, 15.0)})
    assert study.run(branin, 30).y < 0.398 + 1e-2


def test_what_is_wrong_is_named(tmp_path):
    unit = {"a": (0.0, 1.0)}
    made = lambda **options: lambda: Study(KEY, unit, **options)  # noqa: E731
    study = Study(KEY, unit, given_gp)
    study.save(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("{}")
    assert_errors([
        (made(criterion="ucb"), "ValueError.*criterion is 'ucb', wanted 'log_ei'"),
        (made(surrogate="gpy"), "ValueError.*surrogate is 'gpy', wanted 'sgpr'"),
        (made(level=1.0), "ValueError.*criterion 'log_ei' has no level"),
        (made(criterion="thompson", constraints=1), "ValueError.*'thompson' has no constraints"),
        (made(outputs=2), "ValueError.*outputs is 2, and 'log_ei' is of one, wanted one of vari"),
        (lambda: Study(KEY, unit, criterion="vigf", outputs=2).tell({"a": 0.5}, 1.0),
         r"DataError.*y is 1.0, wanted \[y_1, y_2\]; NaN"),
        (lambda: study.predict([], output=1), "DataError.*output is 1, wanted one of the 1"),
        (made(initial=1), "DataError.*initial is 1, wanted at least 2"),
        (made(criterion="contour"), "TypeError.*level is None, wanted the level of 'contour'"),
        (made(criterion="contour", level=np.nan), "DataError.*level is nan, wanted a finite numb"),
        (lambda: study.tell({"a": 0.5}, np.inf),
         "DataError.*y is inf, wanted a number; NaN for a run that failed"),
        (lambda: study.tell([{"a": 0.5}], [1.0, 2.0]),
         "DataError.*y has 2 results and x 1 inputs"),
        (lambda: Study.load(tmp_path / "a.json"), "DataError.*was a function; pass surrogate="),
        (lambda: Study.load(tmp_path / "b.json"), "DataError.*is no study"),
    ])  # fmt: skip


def test_options_of_numpy_are_saved(tmp_path):
    options = {"initial": np.int64(4), "level": np.float32(0.5), "maximise": np.True_}
    study = Study(KEY, LINE, given_gp, criterion="contour", **options)
    study.save(tmp_path / "study.json")
    other = Study.load(tmp_path / "study.json", given_gp)
    assert (other.initial, other.level, other.maximise) == (4, 0.5, True)
    other.tell({"a": np.float32(0.5)}, np.float32([1.0]))
    assert (other.x, other.y) == ([{"a": 0.5}], [1.0])


@pytest.mark.parametrize(
    "damage",
    [
        {"runs": [[[9.0], [1.0]]]}, {"runs": [[[0.1, 0.2], [1.0]]]}, {"runs": [[[0.1], []]]},
        {"runs": [[[0.1], [1.0, 2.0]]]}, {"runs": [[[0.1], ["1"]]]}, {"asked": [[5.0]]},
    ],
)  # fmt: skip
def test_damaged_runs_of_a_file_are_found(tmp_path, damage):
    path = tmp_path / "study.json"
    Study(KEY, LINE).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(ValueError, match="is no study"):
        Study.load(path)


@pytest.mark.parametrize("y", [None, "1.5", 1j, np.ma.masked, [1.0, [2.0]]])
def test_results_that_are_no_numbers_are_named(y):
    study = Study(KEY, LINE)
    with pytest.raises(TypeError, match=r"Study\.tell: y "):
        study.tell({"a": 0.5}, y)
    with pytest.raises(TypeError, match=r"Study\.tell: y "):
        study.tell([{"a": 0.5}], y)
    assert len(study) == 0
