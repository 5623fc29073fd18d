"""The kernels of `compare`: those over categories."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax import random
from numpyro import handlers
from support.comparisons import TINY
from support.helpers import KEY, regression
from support.tables import houses

import dgp_ppl
from dgp_ppl import datasets, kernels
from dgp_ppl._errors import DataError
from dgp_ppl.comparison import Setting, Task, build
from dgp_ppl.comparison._kernels import CategoryKernel

OPTIONS = {"target": "price", "drop": ["id", "owner"], "splits": 1, "category_kernel": True}
X = np.column_stack([np.linspace(-1, 1, 6), np.eye(3)[[0, 1, 2, 2, 1, 0]], np.linspace(3, 4, 6)])


def made(one_hot, dim, **options):
    """A kernel and its params."""
    with handlers.trace() as trace:
        kernel = CategoryKernel(kernels.Matern32, one_hot)("l1", dim, **options)
    return kernel, {name: site["value"] for name, site in trace.items()}


def test_the_kernel_is_a_product_over_columns():
    kernel, params = made(((1, 2, 3),), 5)
    assert {n: a.shape for n, a in params.items()} == {
        "l1.variance": (), "l1.lengthscale": (2,), "l1.categories1.W": (3, 1),
        "l1.categories1.kappa": (3,),
    }  # fmt: skip
    x = jnp.asarray(X, float)
    numbers = kernels.Matern32(params["l1.variance"], params["l1.lengthscale"])
    same = X[:, 1:4] @ X[:, 1:4].T
    wanted = numbers(x[:, [0, 4]], x[:, [0, 4]]) * (0.5 + 0.5 * same)  # as it starts
    np.testing.assert_allclose(kernel(x, x), wanted, rtol=1e-5, atol=1e-6)
    # A table of categories alone has a variance too.
    kernel, params = made(((0, 1), (2, 3)), 4, out=2)
    assert params["l1.categories0.W"].shape == (2, 2, 1)
    first, second = kernel.kernel.first.kernel, kernel.kernel.second.kernel
    assert (first.normalised, second.normalised) == (False, True)


def test_the_first_layer_alone_has_it():
    x, y = regression(rows=12, dim=4)
    task = Task(KEY, x, y, Setting(inducing=5, depth=3), one_hot=((1, 2, 3),))
    layout = build(task)
    first, *others = layout.kwargs["kernel"]
    assert first == CategoryKernel(kernels.SquaredExponential, ((1, 2, 3),))
    assert others == [kernels.SquaredExponential.learned] * 2
    sites = handlers.trace(handlers.seed(layout.model, KEY)).get_trace(x, **layout.kwargs)
    np.testing.assert_allclose(sites["l1.variance"]["value"], 0.1)  # near its mean function
    with pytest.raises(ValueError, match=r"one_hot is given and model is 'diff_gp', wanted deep_g"):
        build(task.with_setting(model="diff_gp"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sgpr", "dsvi"])
def test_compare_keeps_a_kernel_over_categories(method, tmp_path):
    frame = pd.DataFrame(houses(40))
    run = dgp_ppl.compare(frame, [method], **OPTIONS, **TINY).fits[method]
    positions = [*run.data.preprocessor.one_hot["colour"]]
    names = [n for n in run.fitted.result.params if n.startswith("l1.categories")]
    assert sorted(names) == [f"l1.categories{positions[0]}.{n}" for n in ("W", "kappa")]
    assert (run.standardizer.x_scale[positions] == 1).all()
    assert (run.standardizer.x_loc[positions] == 0).all()
    run.save(tmp_path / "fit.dgp")
    found = dgp_ppl.load(tmp_path / "fit.dgp").predict(random.key(0), run.x_test)
    wanted = run.fitted.predict(random.key(0), run.x_test, standardizer=run.standardizer)
    np.testing.assert_array_equal(found.mean, wanted.mean)


def test_where_there_is_no_kernel_over_categories():
    frame = pd.DataFrame(houses(40)).drop(columns="colour")
    with pytest.raises(DataError, match="category_kernel is True, but no input is a column of"):
        dgp_ppl.compare(frame, ["dsvi"], **OPTIONS, **TINY)
    with pytest.raises(DataError, match="diabetes: category_kernel is True, but no input"):
        dgp_ppl.compare(datasets.load("diabetes"), category_kernel=True, **TINY)
    with pytest.raises(ValueError, match="category_kernel is True and model 'diff_gp', wanted dee"):
        dgp_ppl.compare(frame, ["dsvi"], model="diff_gp", **OPTIONS, **TINY)
