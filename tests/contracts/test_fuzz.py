"""A sample of `benchmarks/fuzz.py`: small random fits in float32, without NaN or unnamed errors."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import dgp_ppl as dgp

PATH = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases(fuzz, kind, num):
    """The first cases of a likelihood, of one shape."""
    group = next(i for i, (name, _) in enumerate(fuzz.GROUPS) if name == kind)
    return [fuzz.make_case(group + i * len(fuzz.GROUPS)) for i in range(num)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["gaussian", "logit"])
def test_random_fits_have_no_nan(fuzz, kind):
    found = [(case.about, *fuzz.run_case(case)) for case in cases(fuzz, kind, 18)]
    assert [row for row in found if row[1] == "FAILED"] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_nan_and_unnamed_errors_are_found(fuzz, monkeypatch):
    (case,) = cases(fuzz, "gaussian", 1)
    sample = dgp.Prediction.sample
    monkeypatch.setattr(dgp.Prediction, "sample", lambda *a: np.nan * sample(*a))
    outcome, message = fuzz.run_case(case)
    assert (outcome, message) == ("FAILED", "NaN in sample at training rows, sample at new rows")

    def broken(*args, **kwargs):
        raise TypeError("cannot reshape")

    monkeypatch.setattr(dgp, "fit", broken)
    assert fuzz.run_case(case) == ("FAILED", "TypeError: cannot reshape")
