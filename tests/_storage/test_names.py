"""Import paths of functions, classes and constants."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from support import keepable

import dgp_ppl as dgp
from dgp_ppl._storage import UnnamedError, import_name, import_path


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (dgp.MeanField, "dgp_ppl:MeanField"),
        (dgp.models.deep_gp, "dgp_ppl.models:deep_gp"),
        (dgp.means.identity, "dgp_ppl.means:identity"),
        (dist.constraints.positive, "numpyro.distributions.constraints:positive"),
        (jax.numpy.tanh, "jax.numpy:tanh"),
        (np.float64, "numpy:float64"),
        (keepable.student, "support.keepable:student"),
        (keepable.counts, "support.keepable:counts"),
        (keepable.Plain.method, "support.keepable:Plain.method"),
        (keepable.Colour.RED, "support.keepable:Colour.RED"),
    ],
)
def test_paths_lead_back(value, path):
    assert import_path(value) == path
    assert import_name(path) is value


def _inner():
    def function():
        return None

    return function


def _of_main():
    return None


_of_main.__module__ = "__main__"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda f: f, "a lambda"),
        (_inner(), "function, which is defined inside a function"),
        (_of_main, "_of_main of __main__"),
        (keepable.Plain(), "an object of the class Plain"),
        (object(), "an object of the class object"),
    ],
)
def test_what_has_no_path(value, reason):
    with pytest.raises(UnnamedError, match=reason):
        import_path(value)


def test_a_name_that_means_another_function_now(monkeypatch):
    old = keepable.student
    monkeypatch.setattr(keepable, "student", lambda f: f)
    with pytest.raises(UnnamedError, match=r"not what support.keepable.student is now"):
        import_path(old)
    monkeypatch.delattr(keepable, "student")
    with pytest.raises(UnnamedError, match=r"student, which cannot be imported from support"):
        import_path(old)


def test_a_module_that_fails(tmp_path, monkeypatch):
    (tmp_path / "broken_models.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"broken_models: ZeroDivisionError: division by zero"):
        import_name("broken_models:model")
