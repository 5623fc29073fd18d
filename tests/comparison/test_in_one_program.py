"""A comparison whose splits are fitted in one program: the numbers of single fits."""

import numpy as np
import pytest
from support.comparisons import TINY

import dgp_ppl as dgp
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison import _compare, _method
from dgp_ppl.comparison._method import IN_ONE_PROGRAM
from dgp_ppl.datasets import Dataset

N, D = 60, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = X[:, 0] + np.sin(3 * X[:, 1])
OPTIONS = {**TINY, "steps": 30, "seed": 3}
UNLIKE = ("seconds", "in_one_program")


def data(y=Y, task="regression", tests=(6, 6)):
    """Return a data set with splits that hold out these numbers of rows."""
    order = RNG.permutation(N)
    splits = tuple(np.sort(order[6 * i : 6 * i + n]) for i, n in enumerate(tests))
    return Dataset("made", X, y, task, splits, ("a", "b", "c"), "y", "made")


def compared(source, methods, **options):
    return dgp.compare(source, methods, **(OPTIONS | options)).splits


def shallow(source, **options):
    """Compare one layer, which compiles fast, in one program."""
    return compared(source, ["dsvi"], **{"depth": 1, "in_one_program": True, **options})


def assert_rows_agree(source, methods, tolerance=1e-6, **options):
    found = compared(source, methods, in_one_program=True, **options)
    wanted = compared(source, methods, in_one_program=False, **options)
    for row, other in zip(found, wanted, strict=True):
        assert ("in_one_program" in row) == (row["method"] in IN_ONE_PROGRAM)
        assert set(row) - set(UNLIKE) == set(other) - set(UNLIKE)
        for name, value in other.items():
            if name in UNLIKE:
                continue
            if isinstance(value, float):
                np.testing.assert_allclose(row[name], value, tolerance, tolerance, err_msg=name)
            else:
                assert row[name] == value
    return found


@pytest.mark.usefixtures("x64")
def test_the_numbers_are_those_of_single_fits():
    """All rows at each step; the second split has another number of rows."""
    rows = assert_rows_agree(data(tests=(6, 5)), ["sgpr", "dsvi"], inducing=6, depth=1)
    assert [(r["split"], r["method"]) for r in rows] == [
        (s, m) for s in (0, 1) for m in ("sgpr", "dsvi")
    ]
    assert [r.get("in_one_program") for r in rows] == [None, 2, None, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_every_method_that_can():
    """Noise of hidden layers and minibatches follow the keys, as rows are equally many."""
    for method in sorted(IN_ONE_PROGRAM):
        assert_rows_agree(data(), [method], batch=20, restarts=2, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{"model": "diff_gp"}, {"width": 2}, {"depth": 3}])
def test_other_models(options):
    """A width of 2 has mean functions by PCA, which differ between splits."""
    assert_rows_agree(data(), ["dsvi"], tolerance=1e-4, **options)


def test_a_failed_fit_stops_no_other(monkeypatch):
    real = IN_ONE_PROGRAM["dsvi"]

    def failing(tasks):
        error = dgp.NonFiniteLossError("not finite", step=3, site="y", result=None)
        return [error, *real(tasks)[1:]]

    monkeypatch.setitem(IN_ONE_PROGRAM, "dsvi", failing)
    first, second = shallow(data())
    assert "not finite" in first["error"]
    assert second["rmse"] > 0
    noted, whole = shallow(data(), restarts=2)
    assert "1 of 2 fits failed" in noted["restart_note"]
    assert "restart_note" not in whole
    assert noted["in_one_program"] == 4


def test_it_is_the_default_on_a_gpu_alone(monkeypatch):
    assert "in_one_program" not in shallow(data(), in_one_program=None)[0]
    monkeypatch.setattr(_compare.jax, "default_backend", lambda: "gpu")
    assert shallow(data(), in_one_program=None)[0]["in_one_program"] == 2
    assert "in_one_program" not in shallow(data(), in_one_program=None, splits=1)[0]


def test_it_goes_on_after_an_interrupt_between_methods(tmp_path):
    """Then the rows of the first split are not the first rows of results.json."""
    source, done = data(tests=(6, 6, 6)), []
    options = {"depth": 1, "in_one_program": True, "splits": 3, "out": tmp_path / "r"}

    def stop(row):
        done.append(row)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(dgp.Interrupted):
        compared(source, ["dsvi", "sgpr"], on_row=stop, **options)
    rows = compared(
        source, ["dsvi", "sgpr"], resume=True, report=lambda found, out: None, **options
    )
    assert [(r["split"], r["method"]) for r in rows] == [
        (s, m) for s in range(3) for m in ("dsvi", "sgpr")
    ]
    wanted = shallow(source, splits=3, in_one_program=False)
    for row, other in zip(rows[::2], wanted, strict=True):
        assert row["rmse"] == pytest.approx(other["rmse"], rel=1e-3)


def test_a_method_that_is_registered_again_is_fitted_by_its_own_function(monkeypatch):
    for name in ("METHODS", "IN_ONE_PROGRAM"):
        monkeypatch.setattr(_method, name, dict(getattr(_method, name)))
    monkeypatch.setattr(_method, "_STREAMING", set(_method._STREAMING))

    @_method.register("dsvi")
    def mine(task):
        raise UnsuitableError("my own method ran")

    assert "dsvi" not in _method.IN_ONE_PROGRAM
    assert "dsvi" not in _method.methods_for("regression", ["dsvi"], streams=True)
    assert _method.METHODS["dsvi"] is mine


def test_a_program_that_cannot_fit_the_splits_leaves_them_to_single_fits(monkeypatch):
    for error in (UnsuitableError, dgp.DataError):

        def refuse(tasks, error=error):
            raise error("not together")

        monkeypatch.setitem(IN_ONE_PROGRAM, "dsvi", refuse)
        assert all("in_one_program" not in r and r["rmse"] > 0 for r in shallow(data()))
