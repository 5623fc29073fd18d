"""Guides that a comparison fits in stages, or from the best of several starts."""

import dataclasses

import numpy as np
import pytest
from numpyro import handlers
from support.comparisons import TINY
from support.helpers import KEY, regression

import dgp_ppl
from dgp_ppl._errors import UnsuitableError
from dgp_ppl.comparison import METHODS, Setting, Task, build
from dgp_ppl.comparison._fit_method import fit_method
from dgp_ppl.comparison.methods._guides import _best_depth, _fit_mean_field, _starts


@pytest.mark.slow
@pytest.mark.parametrize("method", ["diffusion", "flow"])
def test_guides_on_the_coupled_guide_share_its_steps(method):
    """They are not below the coupled guide with as many steps."""
    options = TINY | {"splits": 1, "steps": 400, "inducing": 8}
    found = dgp_ppl.compare("step", ("global_inducing", method), **options)
    coupled, row = found.splits
    assert row["elbo_per_datum"] > coupled["elbo_per_datum"]
    fitted = found.fits[method].fitted
    assert type(fitted.guide).__name__.lower() == method
    assert isinstance(fitted.guide.base, dgp_ppl.GlobalInducing)
    assert len(fitted.result.losses) == 400
    assert fitted.guide.rate == dgp_ppl.GlobalInducing.rate


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dsvi", "dspp"])
def test_a_mean_field_goes_on_from_the_better_lengthscales(method):
    """Targets that change over a tenth of an input's standard deviation want short ones."""
    x, _ = regression(rows=200, dim=2)
    setting = Setting(inducing=40, steps=60)
    for y, best in ((np.sin(10 * x[:, 0]), 1), (x[:, 0], 0)):
        ends = fit_method(method, x, y, setting, seed=0, split=0).fits[0].result.start_losses
        assert np.argmin(ends) == best


@pytest.mark.slow
@pytest.mark.parametrize("method", ["decoupled", "global_inducing", "implicit"])
def test_other_guides(method):
    (row,) = dgp_ppl.compare("step", [method], splits=1, **TINY).splits
    assert np.isfinite([row["rmse"], row["log_density"], row["elbo_per_datum"]]).all()


def test_the_second_start_has_shorter_lengthscales():
    x, y = regression(rows=12, dim=4)
    task = Task(KEY, x, y, Setting(inducing=5, kernel="matern52"))
    built = build(task)
    sites = handlers.trace(handlers.seed(built.model, KEY)).get_trace(x, **built.kwargs)
    first, *others = _starts(task, built)
    assert first == {}
    (other,) = others
    assert sorted(other) == ["l1.lengthscale", "l2.lengthscale"]
    for name, value in other.items():
        np.testing.assert_allclose(value, sites[name]["value"] / 4, rtol=1e-6)


@pytest.mark.slow
def test_other_fits_have_one_start():
    x, y = regression(rows=12, dim=2)
    for method, changes in (
        ("dsvi", {"as_published": True}),
        ("dsvi", {"depth": 1}),
        ("dsvi", {"model": "diff_gp"}),
        ("global_inducing", {}),
        ("nuts", {"draws": 2}),
    ):
        setting = Setting(inducing=4, steps=4, **changes)
        fitted = fit_method(method, x, y, setting, seed=0, split=0).fits[0]
        assert fitted.result.start_losses is None, (method, changes)


def test_few_rows_may_have_one_layer(monkeypatch):
    """The fit with the higher bound is kept, with no more inducing inputs than distinct rows."""
    x, y = np.tile(np.linspace(-1, 1, 6), 2)[:, None], np.tile([0.0, 1, 0, -1, 0, 1], 2)
    task = Task(KEY, x, y, Setting())
    deep = _fit_mean_field(task.with_setting(steps=3), start=[{}])
    assert deep.kwargs["z"][0].shape == (6, 1)
    one = METHODS["sgpr"](task.with_setting(steps=100))
    assert one.elbo_per_datum > deep.elbo_per_datum
    monkeypatch.setitem(METHODS, "sgpr", lambda task: one)
    better = dataclasses.replace(deep, elbo_per_datum=one.elbo_per_datum + 1)
    for steps, fitted, best in ((3000, deep, one), (3000, better, better), (2999, deep, deep)):
        assert _best_depth(task.with_setting(steps=steps), fitted) is best


def test_fit_chooses_the_steps_unless_they_are_given(monkeypatch):
    """So that a default fit may end early."""
    seen = []

    def stop(*args, steps, **kwargs):
        seen.append(steps)
        raise UnsuitableError("stop")

    monkeypatch.setattr("dgp_ppl.comparison.methods._guides.fit", stop)
    x, y = regression(rows=6)
    for setting in (Setting(inducing=4), Setting(inducing=4, steps=7)):
        with pytest.raises(UnsuitableError):
            METHODS["dsvi"](Task(KEY, x, y, setting))
    assert seen == [None, 7]
