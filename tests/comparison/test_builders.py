"""The models of `compare`."""

import numpy as np
from support.helpers import KEY, regression

from dgp_ppl._partition import Call
from dgp_ppl.comparison import Setting, Task, build
from dgp_ppl.comparison._builders import observation_arguments
from dgp_ppl.comparison._kernels import KERNELS
from dgp_ppl.comparison._setting import MODELS
from dgp_ppl.core._handover import is_layer, layer_of
from dgp_ppl.inference.programs._handlers import survey


def test_the_kernel_reaches_every_layer():
    x, y = regression(rows=12, dim=2)
    for name in KERNELS:
        for likelihood in ("gaussian", "student_t", "heteroscedastic"):
            outputs = 2 if likelihood == "heteroscedastic" else 1
            setting = Setting(inducing=5, kernel=name, likelihood=likelihood, outputs=outputs)
            kernel = build(Task(KEY, x, y, setting)).kwargs["kernel"]
            for maker in kernel if isinstance(kernel, tuple) else (kernel,):
                made = maker("l", 2)
                assert isinstance(getattr(made, "kernel", made), KERNELS[name])


def test_every_model_has_its_kernel_and_inducing_inputs_for_each_of_its_layers():
    """The arguments suit the model; the layers' sites are in the order of `Built.inducing`."""
    x, y = regression(rows=12, dim=2)
    for model in MODELS:
        built = build(Task(KEY, x, y, Setting(model=model, inducing=5, kernel="matern52")))
        makers = [v for k, v in built.kwargs.items() if k.endswith("kernel") and callable(v)]
        assert set(makers) == {KERNELS["matern52"].learned}
        layers = [
            s for s in survey(built.model, Call((x, y), built.kwargs)).values() if is_layer(s)
        ]
        shapes = [(s["value"].shape[0], layer_of(s).num_inputs) for s in layers]
        assert [np.shape(z) for z in built.inducing] == shapes


def test_the_likelihood_and_its_outputs_reach_the_model():
    found = observation_arguments(Setting(task="multiclass", likelihood="softmax", outputs=3))
    assert found["out"] == 3
    assert observation_arguments(Setting()) == {}
