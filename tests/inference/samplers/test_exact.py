"""The log density that kernels see, its initial values, and models that it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import init_to_median
from numpyro.infer.util import initialize_model
from support.foreign_models import EFFECTS, eight_schools
from support.helpers import KEY, regression, spread, two_layers

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
def test_density_and_values_equal_what_nuts_sees(model, call):
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
