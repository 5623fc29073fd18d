"""The model of BoTorch against the draws that it holds, and its optimum against a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KEY, compiled

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl.design import botorch_model

# BoTorch imports what torch says is old.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")


@pytest.fixture
def torch():
    pytest.importorskip("botorch", reason="needs the extra `botorch`")
    return pytest.importorskip("torch")


def draws(num, outputs=1, **others):
    """Functions of a fit in float32 to a rough sine."""
    z = np.linspace(-1, 1, 6)[:, None]
    params = {
        "l1.v.loc": jnp.tile(jnp.sin(jnp.arange(6.0))[:, None], (1, outputs)),
        "l1.v.scale_tril": jnp.tile(0.3 * jnp.eye(6), (outputs, 1, 1)),
        "l1.z": jnp.asarray(z), "l1.variance": jnp.array(1.5), "l1.lengthscale": jnp.array([0.4]),
        "noise": jnp.array(0.1),
    }  # fmt: skip
    guide, scale = dgp.MeanField(models.svgp), dgp.Standardizer.fit(2 + z, np.arange(6.0))
    options = {"z": z, "out": outputs, "standardizer": scale}
    p = dgp.predict(KEY, models.svgp, guide, params | others, z, **options)
    return dgp.function(p).draws(KEY, num)


def test_values_and_slopes_are_those_of_the_draws(torch):
    f, outputs = draws(5, 2), 2
    model = botorch_model(f)
    assert (model.num_outputs, model.batch_shape) == (outputs, torch.Size([]))
    x = np.random.default_rng(0).uniform(1, 3, (2, 3, 4, 1))  # in the units of the data
    weights = np.random.default_rng(1).standard_normal((2, 3, 5, 4, outputs))

    def weighted(x):
        values = f(x.reshape(-1, 1)).reshape(5, 2, 3, 4, outputs).transpose(1, 2, 0, 3, 4)
        return (weights * values).sum(), values

    with jax.enable_x64(True):
        slopes, values = jax.grad(weighted, has_aux=True)(x)
    X = torch.tensor(x, requires_grad=True)
    found = model.posterior(X).values
    np.testing.assert_allclose(found.detach(), values, rtol=1e-6, atol=1e-6)
    (found * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(X.grad, slopes, rtol=1e-6, atol=1e-6)
    last = model.posterior(X.detach().float(), output_indices=[outputs - 1]).values
    assert last.dtype == torch.float32
    np.testing.assert_allclose(last, values[..., -1:], rtol=1e-3, atol=1e-3)


def test_other_rows_and_fits_share_its_programs(torch, caplog):
    def run(model, num):
        X = torch.linspace(1, 3, num, dtype=torch.float64)[:, None].requires_grad_()
        model.posterior(X).values.sum().backward()
        model.posterior(X.detach())

    run(botorch_model(draws(3)), 5)
    other = botorch_model(draws(3, noise=jnp.array(0.2)))
    assert not compiled(caplog, lambda: run(other, 7))


def test_optimisers_find_the_best_input_of_a_grid(torch):
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.optim import optimize_acqf

    gain = qLogExpectedImprovement(botorch_model(draws(32)), best_f=4.0)
    bounds = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    options = {"num_restarts": 4, "raw_samples": 16, "options": {"seed": 0}}
    best, value = optimize_acqf(gain, bounds, q=1, **options)
    with torch.no_grad():
        grid = gain(torch.linspace(1, 3, 256, dtype=torch.float64)[:, None, None])
        # The same draws are taken in every batch.
        np.testing.assert_allclose(gain(best), value, rtol=1e-6)
    assert value > grid.max() - 1e-3
    assert grid.std() > 0.1


def test_errors_name_the_cure(monkeypatch):
    with pytest.raises(TypeError, match=r"draws is .*Function.*wanted dgp.function\(.*\).draws\("):
        botorch_model(draws(3).function)
    monkeypatch.setattr("dgp_ppl.design._botorch.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"wanted botorch; .*install 'dgp_ppl\[botorch\]'"):
        botorch_model(draws(3))
