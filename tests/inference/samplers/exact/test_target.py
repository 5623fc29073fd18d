"""The log density that kernels see, its initial values, and models that it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import init_to_median, init_to_value
from numpyro.infer.util import initialize_model
from support.foreign_models import EFFECTS, eight_schools
from support.helpers import KEY, one_layer, regression, spread, two_layers
from support.tiny import tiny

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers.exact._target import Target

X, Y = regression(rows=8)


@pytest.mark.parametrize(
    ("model", "call"),
    [
        (eight_schools, Call((EFFECTS,))),
        (two_layers, Call((X, Y), {"z": spread(3)})),
    ],
)
def test_density_and_values_are_those_of_nuts(model, call):
    """Auxiliary sites, the unit noise of a hidden layer, are latent."""
    found = initialize_model(
        KEY, model, model_args=call.args, model_kwargs=call.kwargs, dynamic_args=True
    )
    target, z = Target(model, "test"), found.param_info.z
    energy = found.potential_fn(*call.args, **call.kwargs)(z)
    np.testing.assert_allclose(target.log_density(z, call), -energy, rtol=1e-5)
    wanted = found.postprocess_fn(*call.args, **call.kwargs)(z)
    values = target.constrain(z, call)
    assert set(values) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-6)
    start = target.start(KEY, init_to_median, {}, call)
    assert jax.tree.map(jnp.shape, start) == jax.tree.map(jnp.shape, dict(z))


def test_given_values_and_strategies():
    call, target = Call((EFFECTS,)), Target(eight_schools, "test")
    start = target.start(KEY, init_to_value(values={"mu": 2.0}), {"tau": jnp.asarray(0.5)}, call)
    assert (float(start["mu"]), float(start["tau"])) == (2.0, 0.5)
    several = target.start(random.split(KEY, 3), init_to_median, {"mu": jnp.arange(3.0)}, call)
    np.testing.assert_array_equal(several["mu"], [0, 1, 2])
    assert several["unit"].shape == (3, 8)
    with pytest.raises(ValueError, match=r"test: init_params has {'nu': \(\)}, wanted .*'mu'"):
        target.start(KEY, init_to_median, {"nu": jnp.zeros(())}, call)


def test_params_with_a_random_start_stay_as_they_are():
    def model():
        b = numpyro.param("b", lambda key: 3 * random.normal(key))
        numpyro.factor("p", b * numpyro.sample("w", dist.Normal(0, 1)))

    target = Target(model, "test")
    densities = {float(target.log_density({"w": jnp.ones(())}, Call())) for _ in range(3)}
    assert len(densities) == 1


def coin():
    numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("side", dist.Bernoulli(0.5))


def constant():
    numpyro.sample("c", dist.Delta(1.0))


def half(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=3) as rows:
        numpyro.sample("y", dist.Normal(x[rows, 0] * w[0], 1), obs=y[rows])


def broken():
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.factor("cliff", jnp.nan * x)


@pytest.mark.parametrize(
    ("model", "call", "words"),
    [
        (coin, Call(), r"\['side'\] are discrete.*sum them out.*DiscreteHMCGibbs"),
        (constant, Call(), r"\['c'\] have a delta distribution.*numpyro.deterministic"),
        (lambda: None, Call(), "no latent sites to sample"),
        (half, Call((X, Y)), "plate 'rows' takes 3 of 8 rows.*leave out batch_size.*SGHMC"),
        (
            one_layer, Call((X, Y), {"z": spread(3), "batch_size": 4}),
            "plate 'data' takes 4 of 8 rows",
        ),
        (broken, Call(), "not finite at the start: the log densities {'cliff': nan}"),
    ],
)  # fmt: skip
def test_models_that_are_refused(model, call, words):
    with pytest.raises(ValueError, match=words):
        Target(model, "test").start(KEY, init_to_median, {}, call)


def test_chains_that_start_badly_are_named():
    def model():
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("cliff", jnp.where(x > 1, jnp.nan, 0.0) * x)

    with pytest.raises(ValueError, match=r"at the start of chains \[1\].*'cliff': nan"):
        Target(model, "test").start(
            random.split(KEY, 2), init_to_median, {"x": jnp.array([0.0, 2.0])}, Call()
        )


def test_a_frozen_model_has_its_params():
    z = spread(3)
    values = {"noise": 0.4, "l1.z": z, "l2.z": z}
    frozen, call = dgp.freeze(two_layers, values), Call((X, Y), {"z": z})
    start = Target(frozen, "test").start(KEY, init_to_median, {}, call)
    densities = [float(Target(m, "test").log_density(start, call)) for m in (frozen, two_layers)]
    assert abs(densities[0] - densities[1]) > 1


def test_the_parts_are_the_prior_and_the_data():
    """Of a model with unit noise, which is latent here, and of one with a bounded site."""
    call = Call((jnp.zeros((3, 1)), jnp.ones(3)), {})
    target = Target(tiny, "test")
    values = target.prior_draw(KEY, call)
    assert set(values) == {"l1.v", "l2.v", "l1.eps"}
    prior, data = target.log_parts(values, call)
    normal = sum(dist.Normal().log_prob(a).sum() for a in values.values())
    np.testing.assert_allclose(prior, normal, rtol=1e-5)
    np.testing.assert_allclose(prior + data, target.log_density(values, call), rtol=1e-5)

    def positive():
        s = numpyro.sample("s", dist.Exponential(2.0))
        numpyro.factor("data", -3 * s)

    prior, data = Target(positive, "test").log_parts({"s": jnp.zeros(())}, Call((), {}))
    np.testing.assert_allclose([prior, data], [np.log(2) - 2, -3], rtol=1e-5)  # s = exp(0)
