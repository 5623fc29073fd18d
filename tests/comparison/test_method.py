"""Tasks, and methods that users register."""

import jax
import numpy as np
import pytest
from jax import random
from support.helpers import KEY

import dgp_ppl
from dgp_ppl.comparison import METHODS, Fitted, Setting, Task, UnsuitableError, build, register
from dgp_ppl.inference import MeanField, fit


@pytest.fixture
def registered():
    """Remove the methods that a test registers."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def test_split_tasks_have_the_keys_of_random_split():
    task = Task(KEY, np.zeros((3, 1)), np.zeros(3), Setting())
    keys = jax.random.key_data(random.split(KEY, 3))
    for part, key in zip(task.split(3), keys, strict=True):
        np.testing.assert_array_equal(jax.random.key_data(part.key), key)
        assert part.x is task.x
        assert part.setting == task.setting


def test_registered_methods_are_compared(registered):
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
