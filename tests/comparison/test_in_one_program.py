"""A comparison whose splits are fitted in one program: the numbers of single fits."""

import numpy as np
import pytest
import xarray
from support.comparisons import TINY

import dgp_ppl as dgp
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison import METHODS, Run, _compare
from dgp_ppl.comparison._method import TRAITS, Traits
from dgp_ppl.datasets import Dataset

N, D = 60, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = X[:, 0] + np.sin(3 * X[:, 1])
ORDER = RNG.permutation(N)
UNLIKE = ("seconds", "in_one_program")
TOGETHER = [name for name in METHODS if TRAITS[name].in_one_program]


def compared(methods, tests=(6, 6, 6), **options):
    """Compare on a data set whose splits hold out these numbers of rows; return the rows."""
    splits = tuple(np.sort(ORDER[6 * i : 6 * i + n]) for i, n in enumerate(tests))
    data = Dataset("made", X, Y, "regression", splits, ("a", "b", "c"), "y", "made")
    return dgp.compare(data, methods, **TINY | {"seed": 3, "splits": 2, **options}).splits


def assert_rows_agree(methods, tolerance, **options):
    found = compared(methods, in_one_program=True, **options)
    wanted = compared(methods, in_one_program=False, **options)
    for row, other in zip(found, wanted, strict=True):
        assert ("in_one_program" in row) == (row["method"] in TOGETHER)
        assert set(row) - set(UNLIKE) == set(other) - set(UNLIKE)
        for name in other.keys() - set(UNLIKE):
            if isinstance(other[name], float):
                np.testing.assert_allclose(
                    row[name], other[name], tolerance, tolerance, err_msg=name
                )
            else:
                assert row[name] == other[name]
    return found


@pytest.mark.slow
def test_the_numbers_are_those_of_single_fits():
    """All rows at each step; the second split has another number of rows."""
    rows = assert_rows_agree(["linear", "dsvi"], tolerance=1e-4, tests=(6, 5), depth=1)
    assert [(r["split"], r["method"], r.get("in_one_program")) for r in rows] == [
        (s, m, number) for s in (0, 1) for m, number in (("linear", None), ("dsvi", 2))
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_every_method_that_can():
    """Noise of hidden layers and minibatches follow the keys, as rows are equally many."""
    for method in TOGETHER:
        assert_rows_agree([method], batch=20, restarts=2, steps=30, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{"model": "diff_gp"}, {"width": 2}, {"depth": 3}])
def test_other_models(options):
    """A width of 2 has mean functions by PCA, which differ between splits."""
    assert_rows_agree(["dsvi"], tolerance=1e-4, steps=30, **options)


@pytest.fixture
def together(monkeypatch):
    """Let linear, which compiles fast, fit tasks together; return what changes its fits."""

    def use(change=lambda fits: fits):
        fit = METHODS["linear"]
        traits = Traits(True, False, lambda tasks: change([fit(task) for task in tasks]))
        monkeypatch.setitem(TRAITS, "linear", traits)

    use()
    return use


def test_a_failed_fit_stops_no_other(together):
    error = dgp.NonFiniteLossError("not finite", step=3, site="y", result=None)
    together(lambda fits: [error, *fits[1:]])
    first, second = compared(["linear"], in_one_program=True)
    assert "not finite" in first["error"]
    assert second["rmse"] > 0
    noted, whole = compared(["linear"], in_one_program=True, restarts=2)
    assert "1 of 2 fits failed" in noted["restart_note"]
    assert "restart_note" not in whole
    assert noted["in_one_program"] == 4


def test_it_is_the_default_on_a_gpu_alone(together, monkeypatch):
    assert "in_one_program" not in compared(["linear"])[0]
    monkeypatch.setattr(_compare.jax, "default_backend", lambda: "gpu")
    assert compared(["linear"])[0]["in_one_program"] == 2
    assert "in_one_program" not in compared(["linear"], splits=1)[0]


@pytest.mark.slow
def test_it_goes_on_after_an_interrupt_between_methods(together, tmp_path, monkeypatch):
    """Then the rows of the first split are not the first rows of results.json."""
    monkeypatch.setattr(Run, "tree", xarray.DataTree())
    monkeypatch.setitem(METHODS, "again", METHODS["linear"])
    names, done = ["linear", "again"], []
    options = {"in_one_program": True, "splits": 3, "out": tmp_path / "r"}

    def stop(row):
        done.append(row)
        if len(done) == 4:
            raise KeyboardInterrupt

    with pytest.raises(dgp.Interrupted):
        compared(names, on_row=stop, **options)
    rows = compared(names, resume=True, report=lambda found, out: None, **options)
    assert [(r["split"], r["method"]) for r in rows] == [(s, m) for s in range(3) for m in names]
    for row, other in zip(rows[::2], compared(["linear"], splits=3), strict=True):
        assert row["rmse"] == other["rmse"]


def test_a_program_that_cannot_fit_the_splits_leaves_them_to_single_fits(together):
    for error in (UnsuitableError, dgp.DataError):

        def refuse(fits, error=error):
            raise error("not together")

        together(refuse)
        rows = compared(["linear"], in_one_program=True)
        assert all("in_one_program" not in r and r["rmse"] > 0 for r in rows)
