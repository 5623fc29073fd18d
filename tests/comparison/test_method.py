"""Tasks, and methods that users register."""

import numpy as np
import pytest

import dgp_ppl
from dgp_ppl.comparison import METHODS, Fitted, Task, UnsuitableError, build, register
from dgp_ppl.comparison._method import TRAITS, Traits
from dgp_ppl.inference import MeanField, fit


def test_registered_methods_are_compared(monkeypatch):
    for name in ("full_batch", "never", "dsvi"):  # these are removed or as before, afterwards
        monkeypatch.setitem(METHODS, name, METHODS.get(name))
        monkeypatch.setitem(TRAITS, name, TRAITS[name])

    @register("full_batch")
    def full_batch(task: Task) -> Fitted:
        task_model, task_fit = task.split()
        built = build(task_model)
        guide = MeanField(built.model)
        result = fit(
            task_fit.key, built.model, guide, task.x, task.y,
            steps=task.setting.steps, progress=task.progress, **built.kwargs,
        )  # fmt: skip
        return Fitted(built.model, guide, built.kwargs, result)

    @register("never", regression_only=True)
    def never(task: Task) -> Fitted:
        raise UnsuitableError(f"never: {len(task.y)} rows, wanted none")

    options = {"steps": 4, "inducing": 4, "samples": 4, "splits": 1, "progress": False}
    comparison = dgp_ppl.compare("step", ["full_batch", "never"], **options)
    row, failed = comparison.splits
    assert np.isfinite([row["rmse"], row["log_density"]]).all()
    assert failed["error"] == "never: 90 rows, wanted none"
    with pytest.raises(ValueError, match=r"'never'.*, which need Gaussian noise"):
        dgp_ppl.compare("breast_cancer", ["never"], **options)
    assert TRAITS["dsvi"].streams
    assert register("dsvi")(never) is METHODS["dsvi"] is never
    assert TRAITS["dsvi"] == Traits()
