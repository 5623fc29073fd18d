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
from support.helpers import KEY, regression, spread, two_layers

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._exact import Target

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


def test_params_with_a_random_start_stay_as_they_are():
    def model():
        b = numpyro.param("b", lambda key: 3 * random.normal(key))
        numpyro.factor("p", b * numpyro.sample("w", dist.Normal(0, 1)))

    target = Target(model, "test")
    densities = {float(target.log_density({"w": jnp.ones(())}, Call())) for _ in range(3)}
    assert len(densities) == 1


def test_a_frozen_model_has_its_params():
    z = spread(3)
    values = {"noise": 0.4, "l1.z": z, "l2.z": z}
    frozen, call = dgp.freeze(two_layers, values), Call((X, Y), {"z": z})
    start = Target(frozen, "test").start(KEY, init_to_median, {}, call)
    densities = [float(Target(m, "test").log_density(start, call)) for m in (frozen, two_layers)]
    assert abs(densities[0] - densities[1]) > 1
