"""The models of `compare`."""

import numpy as np
import pytest
from support.comparisons import TINY
from support.helpers import KEY, regression

import dgp_ppl
from dgp_ppl._partition import Call
from dgp_ppl.comparison import MODELS, Setting, Task, build
from dgp_ppl.comparison._builders import observation_arguments
from dgp_ppl.core import handover_of, is_layer
from dgp_ppl.inference._handlers import survey


@pytest.mark.slow
def test_another_model(tmp_path):
    """Another model works up to the figure of its function."""
    options = TINY | {"model": "diff_gp", "splits": 1, "out": tmp_path}
    found = dgp_ppl.compare("step", ["dsvi"], **options)
    assert "flow.v.loc" in found.fits["dsvi"].fitted.result.params
    assert np.isfinite(found.splits[0]["log_density"])
    assert (tmp_path / "function.png").stat().st_size > 10_000


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_has_inducing_inputs_for_each_of_its_layers(model):
    """The arguments suit the model; the layers' sites are in the order of `Built.inducing`."""
    x, y = regression(rows=12, dim=2)
    setting = Setting(model=model, depth=2, inducing=5)
    built = build(Task(KEY, x, y, setting))
    sites = survey(built.model, Call((x, y), built.kwargs))
    layers = [s for s in sites.values() if is_layer(s)]
    shapes = [(s["value"].shape[0], handover_of(s).num_inputs) for s in layers]
    assert [np.shape(z) for z in built.inducing] == shapes


def test_the_likelihood_and_its_outputs_reach_the_model():
    found = observation_arguments(Setting(task="multiclass", likelihood="softmax", outputs=3))
    assert found["out"] == 3
    assert observation_arguments(Setting()) == {}
