"""What `save` refuses: params and arguments of another model or guide."""

import functools

import numpy as np
import numpyro
import pytest
from numpyro.infer.autoguide import AutoNormal
from support.fits import DEEP, SHALLOW, X, Y, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.models import bnn, gplvm, svgp
from dgp_ppl.persistence._parts import check_arguments, check_names

NOTHING = {"params": {}, "kwargs": {}, "num_inputs": [], "sampled": False}


@functools.cache
def fit():
    return shallow()


def saved(path, params, model=svgp, guide=SHALLOW, **options):
    dgp.save(path, model, guide, params, **{"z": Z} | options)


def without(*names):
    return {n: a for n, a in fit().params.items() if n not in names}


WRONG = [
    ({}, r"save: params has no 'l1.\w+' and 5 more .*; it has \[\]"),
    ({"a": 1.0}, r"save: params has no .* it has \['a'\]"),
    ({"a": 1.0} | dict.fromkeys(fit().params, 1.0), r"save: params has \['a'\], which neither"),
]


@pytest.mark.parametrize("by", ["data", "standardizer", "inducing inputs"])
@pytest.mark.parametrize(("params", "message"), WRONG)
def test_params_of_another_fit_are_refused(tmp_path, params, message, by):
    where = {
        "data": {"data": (X, Y)}, "standardizer": {"standardizer": dgp.Standardizer.fit(X)},
        "inducing inputs": {},
    }[by]  # fmt: skip
    with pytest.raises(ValueError, match=message):
        saved(tmp_path / "fit.dgp", params, **where)
    assert not list(tmp_path.iterdir())


def test_params_of_other_parts_are_refused(tmp_path):
    path = tmp_path / "fit.dgp"
    with pytest.raises(ValueError, match=r"save: params has no 'l1.v.loc' and 1 more"):
        saved(path, without("l1.v.loc", "l1.v.scale_tril"))
    with pytest.raises(ValueError, match=r"save: params has no 'l2"):
        saved(path, fit(), dgp.models.deep_gp, DEEP, z=(Z, Z))
    draws = {"l1.v": np.zeros((2, 6, 1))}
    with pytest.raises(ValueError, match=r"save: params has no 'l1.z'"):
        saved(path, without("l1.z"), guide=None, posterior_samples=draws)
    saved(path, {}, guide=None)  # a prior, at the initial values
    saved(path, {}, guide=None, posterior_samples=draws)
    held = dgp.freeze(svgp, {"noise": fit().params["noise"]})
    saved(path, without("noise"), held, dgp.MeanField(held))


def test_a_guide_remembers_nothing_of_the_check(tmp_path):
    guide = dgp.MeanField(svgp)
    saved(tmp_path / "fit.dgp", fit(), guide=guide)
    guide.setup(X[:, [0, 0]], Y, z=Z[:3, [0, 0]])
    assert guide.layers["l1.v"].shape == (3, 1)
    stock = AutoNormal(bnn)
    check_names(bnn, stock, {"any": 1.0}, {"hidden": (3,)}, [1], sampled=False)
    assert stock.prototype_trace is None


def test_models_that_need_their_data_are_refused_without_params():
    """Latent inputs come from y, which `save` does not have."""
    guide = dgp.MeanField(gplvm)
    with pytest.raises(ValueError, match="save: params is empty, wanted those of the model and of"):
        check_names(gplvm, guide, **NOTHING)
    check_names(gplvm, guide, **NOTHING | {"params": {"w": 1.0}})


def test_unknown_arguments_are_refused(tmp_path):
    words = r"save: svgp has no argument 'zz', wanted some of \['x', 'y', .*'z'"
    with pytest.raises(TypeError, match=words):
        saved(tmp_path / "fit.dgp", fit(), zz=3)
    with pytest.raises(TypeError, match=words):
        check_arguments(dgp.freeze(svgp, {"noise": 0.1}), {"z": Z, "zz": 3})
    with pytest.raises(TypeError, match=words):
        check_arguments(numpyro.handlers.lift(svgp, {}), {"zz": 3})
    check_arguments(svgp, {"z": Z, "num_samples": 7})  # for `predict`
    check_arguments(lambda x, **options: None, {"zz": 3})
    check_arguments(max, {"zz": 3})  # it has no signature


def test_options_of_predictions_can_be_kept(tmp_path):
    saved(tmp_path / "fit.dgp", fit(), num_samples=3)
    assert dgp.load(tmp_path / "fit.dgp").predict(KEY, X).num_samples == 3
