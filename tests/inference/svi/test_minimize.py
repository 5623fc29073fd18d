"""`minimize`: where it ends, in which precision, and what stops it."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoDelta, AutoNormal
from support.helpers import KEY, compiled

import dgp_ppl as dgp
from dgp_ppl._progress import Progress
from dgp_ppl.inference import minimize

DATA = np.random.default_rng(0).normal(3, 2, 40)


def normal(y):
    loc = numpyro.param("loc", 0.0)
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    numpyro.sample("y", dist.Normal(loc, scale), obs=y)


def one_param(loss, at):
    """Return a model whose loss is a function of one param."""

    def model():
        numpyro.factor("f", -loss(numpyro.param("t", at)))

    return model


def run(model, *args, guide=None, **options):
    return minimize(KEY, model, guide, *args, progress=False, **options)


def test_it_ends_at_the_maximum_of_the_likelihood_in_float64():
    found = run(normal, DATA)
    assert {a.dtype for a in found.params.values()} == {np.dtype("float64")}
    expected = {"loc": DATA.mean(), "scale": DATA.std()}
    assert found.params == pytest.approx(expected, rel=1e-5)
    entropy = len(DATA) * (np.log(DATA.std()) + 0.5 * np.log(2 * np.pi) + 0.5)
    assert found.losses[-1] == pytest.approx(entropy, rel=1e-9)
    assert (np.diff(found.losses) < 0).all()
    assert jnp.zeros(()).dtype == jnp.float32


def test_a_fit_goes_on_from_its_result():
    found = dgp.fit(
        KEY, normal, lambda y: None, DATA, start=run(normal, DATA), steps=1, progress=False
    )
    assert found.params["loc"].dtype == jnp.float32
    assert found.losses[0] == pytest.approx(run(normal, DATA).losses[-1], rel=1e-6)


def test_a_second_fit_compiles_nothing(caplog):
    run(normal, DATA)
    assert compiled(caplog, lambda: run(normal, DATA)) == []


def test_the_best_of_several_starts_goes_on():
    double_well = one_param(lambda t: (t**2 - 1) ** 2 + 0.3 * t, 1.0)
    starts = [{"t": np.nan}, {"t": 0.9}, {"t": -0.9}]
    found = run(double_well, start=starts)
    assert found.params["t"] == pytest.approx(-1.03551, abs=1e-4)
    failed, worse, better = np.asarray(found.start_losses)
    assert np.isinf(failed)
    assert found.losses[-1] <= better < worse


def mean_of_normals(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 1)), 1), obs=y)


def test_a_mode_of_latent_sites():
    found = run(mean_of_normals, DATA, guide=AutoDelta(mean_of_normals))
    assert found.params["mu_auto_loc"] == pytest.approx(DATA.sum() / (len(DATA) + 1), rel=1e-6)


def test_a_line_search_turns_back_where_the_loss_is_not_finite():
    half = one_param(lambda t: jnp.where(t < 0, jnp.nan, (t - 0.05) ** 2), 0.9)
    assert run(half).params["t"] == pytest.approx(0.05, abs=1e-5)


def test_a_loss_that_is_never_finite_is_an_error_that_names_the_site():
    with pytest.raises(dgp.NonFiniteLossError, match="site f"):
        run(one_param(lambda t: jnp.log(-t), 1.0))


def test_a_random_loss_is_refused():
    with pytest.raises(ValueError, match=r"two random keys give losses .* use fit"):
        run(mean_of_normals, DATA, guide=AutoNormal(mean_of_normals))


def test_a_fit_that_has_not_ended_says_so(monkeypatch):
    monkeypatch.setattr("dgp_ppl.inference.svi._minimize._FEW_STEPS", 2)
    with pytest.warns(UserWarning, match="loss still falls after 2 steps"):
        assert len(run(normal, DATA, steps=2).losses) == 2


def test_an_interrupted_fit_has_the_params_so_far(monkeypatch):
    def update(bar, n=1, note=""):
        if note:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "update", update)
    with pytest.raises(dgp.Interrupted, match="after 1 of 1000 steps") as caught:
        run(normal, DATA)
    found = caught.value.result
    assert found.interrupted
    assert len(found.losses) == 1
    assert found.params["loc"] != 0
