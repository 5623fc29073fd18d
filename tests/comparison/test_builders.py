"""The models of `compare`."""

import numpy as np
import pytest
from support.comparisons import TINY
from support.helpers import KEY, regression

import dgp_ppl
from dgp_ppl._partition import Call
from dgp_ppl.comparison import KERNELS, MODELS, Setting, Task, build
from dgp_ppl.comparison._builders import observation_arguments
from dgp_ppl.core._handover import is_layer, layer_of
from dgp_ppl.inference.programs._handlers import survey


@pytest.mark.slow
def test_another_model(tmp_path):
    """Another model works up to the figure of its function."""
    options = TINY | {"model": "diff_gp", "splits": 1, "out": tmp_path}
    found = dgp_ppl.compare("step", ["dsvi"], **options)
    assert "flow.v.loc" in found.fits["dsvi"].fitted.result.params
    assert np.isfinite(found.splits[0]["log_density"])
    assert (tmp_path / "function.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", sorted(KERNELS))
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "heteroscedastic"])
def test_the_kernel_reaches_every_layer(name, likelihood):
    x, y = regression(rows=12, dim=2)
    outputs = 2 if likelihood == "heteroscedastic" else 1
    setting = Setting(inducing=5, kernel=name, likelihood=likelihood, outputs=outputs)
    kernel = build(Task(KEY, x, y, setting)).kwargs["kernel"]
    makers = kernel if isinstance(kernel, tuple) else (kernel,)
    for maker in makers:
        made = maker("l", 2)
        assert isinstance(getattr(made, "kernel", made), KERNELS[name])


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_takes_every_setting_of_the_kernel(model):
    """Both GPs of a flow have it."""
    x, y = regression(rows=12, dim=2)
    built = build(Task(KEY, x, y, Setting(model=model, inducing=5, kernel="matern52")))
    makers = [v for k, v in built.kwargs.items() if k.endswith("kernel") and callable(v)]
    assert makers
    assert set(makers) == {KERNELS["matern52"].learned}
    survey(built.model, Call((x, y), built.kwargs))


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_has_inducing_inputs_for_each_of_its_layers(model):
    """The arguments suit the model; the layers' sites are in the order of `Built.inducing`."""
    x, y = regression(rows=12, dim=2)
    setting = Setting(model=model, depth=2, inducing=5)
    built = build(Task(KEY, x, y, setting))
    sites = survey(built.model, Call((x, y), built.kwargs))
    layers = [s for s in sites.values() if is_layer(s)]
    shapes = [(s["value"].shape[0], layer_of(s).num_inputs) for s in layers]
    assert [np.shape(z) for z in built.inducing] == shapes


def test_the_likelihood_and_its_outputs_reach_the_model():
    found = observation_arguments(Setting(task="multiclass", likelihood="softmax", outputs=3))
    assert found["out"] == 3
    assert observation_arguments(Setting()) == {}
