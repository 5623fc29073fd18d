"""Guides that run the model on their own rows, and the model's arguments in that run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.contrib.module import eqx_module
from support.helpers import KEY, regression, start

import dgp_ppl as dgp
from dgp_ppl import kernels

X, Y = (np.asarray(a) for a in regression(rows=12))
Z = np.linspace(-1, 1, 5)[:, None]


def layer(x, y, z=Z, kernel=None, **others):
    f = dgp.gp("l1", kernel or kernels.SquaredExponential(1.0, 1.0), z)
    with dgp.minibatch(x, y, *others.values()) as rows:
        observed = dgp.observe(f(rows[0]), lambda f: dist.Normal(f, 0.3))
        numpyro.sample("y", observed, obs=rows[1])


GUIDES = {
    "global_inducing": lambda m, z=Z: dgp.GlobalInducing(m, z),
    "decoupled": lambda m, z=Z: dgp.Decoupled(m, z),
}
every_guide = pytest.mark.parametrize("guide", GUIDES.values(), ids=list(GUIDES))


def assert_mean_fields_bound(model, guide, *args, **kwargs):
    """Assert that a guide of one layer has the bound of `MeanField` at the same params."""
    tested, mean_field = guide(model), dgp.MeanField(model)
    params = start(model, tested, *args, **kwargs)
    params["l1.v.loc"] = jnp.linspace(-1, 1, params["l1.v.loc"].size)[:, None]
    loss = dgp.MeanField.default_loss.loss
    losses = [
        float(jax.jit(lambda p, g=g: loss(KEY, p, model, g, *args, **kwargs))(params))
        for g in (tested, mean_field)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def scaled(x, y=None):
    layer(x, y, kernel=kernels.SquaredExponential(1.0, 0.3 * jnp.std(x, axis=0)))


def some_rows(x, y=None):
    layer(x, y, z=x[::3])


def of_targets(x, y):
    layer(x, y, kernel=kernels.SquaredExponential(jnp.var(y), 1.0))


def test_layers_made_of_the_data_are_refused():
    """On the guide's rows they would be other layers; `Decoupled` has no rows of its own."""
    for model, place in ((scaled, 0), (some_rows, 0), (of_targets, 1)):
        with pytest.raises(ValueError, match=rf"layer 'l1'.*argument {place} of the model"):
            GUIDES["global_inducing"](model).setup(X, Y)
    assert_mean_fields_bound(scaled, GUIDES["decoupled"], X, Y)


def given_inputs(x, y, z):
    layer(x, y, z=z)


def started_from_data(x, y=None):
    z = numpyro.param("z", jnp.asarray(x[::3]))
    scale = numpyro.param("scale", jnp.std(jnp.asarray(x), axis=0))
    layer(x, y, z=z, kernel=kernels.SquaredExponential(1.0, scale))


def in_pieces(x, y=None, *, weights, mask=None):
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z)
    with dgp.minibatch(x, y, weights, mask) as (x, y, weights, mask):
        observed = dgp.observe(f(x), lambda f: dist.Normal(f, 0.3 / weights), mask=mask)
        numpyro.sample("y", observed, obs=y)


def warped(x, y=None):
    network = eqx_module("network", eqx.nn.MLP(1, 1, 3, 1, key=KEY))  # not only arrays
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), jax.vmap(network)(Z))
    with dgp.minibatch(x, y) as (x, y):
        observed = dgp.observe(f(jax.vmap(network)(x)), lambda f: dist.Normal(f, 0.3))
        numpyro.sample("y", observed, obs=y)


CALLS = {
    "a network's params": (warped, (X, Y), {}),
    "as many inducing inputs as rows": (given_inputs, (X, Y, X), {}),
    "params that start at the data": (started_from_data, (X, Y), {}),
    "rows by keyword": (
        in_pieces,
        (),
        {"x": X, "y": Y, "weights": np.ones(12), "mask": np.ones(12, bool)},
    ),
}


def test_the_bound_is_mean_fields_at_its_params():
    """With one layer the bounds are equal, whatever the arguments."""
    for model, args, kwargs in CALLS.values():
        assert_mean_fields_bound(model, GUIDES["global_inducing"], *args, **kwargs)
    assert_mean_fields_bound(warped, GUIDES["decoupled"], X, Y)


def correlated(x, y=None):
    """One latent value per row without a plate, so the likelihood needs all rows."""

    def step(before, _):
        now = numpyro.sample("a", dist.Normal(0.5 * before, 0.2))
        return now, now

    _, a = scan(step, jnp.zeros(()), None, length=12)
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + a, 0.3)), obs=y)


def test_likelihoods_are_not_run_on_other_rows():
    for make in GUIDES.values():
        guide = make(correlated)
        guide.setup(X, Y)
        with handlers.block(), handlers.seed(rng_seed=0):
            jax.eval_shape(lambda guide=guide: guide(X, Y)["l1.v"])


def stepwise(x, y):
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z)

    def step(carry, row):
        observed = dgp.observe(f(row[0]), lambda f: dist.Normal(f, 0.3))
        numpyro.sample("y", observed, obs=row[1])
        return carry, None

    scan(step, None, (x[:, None], y[:, None]))


def test_a_layer_that_is_first_met_within_scan():
    with pytest.raises(ValueError, match=r"first evaluates layer 'l1' within .*scan"):
        start(stepwise, GUIDES["global_inducing"](stepwise), X, Y)
    assert_mean_fields_bound(stepwise, GUIDES["decoupled"], X, Y)


@every_guide
def test_values_that_are_not_rows(guide):
    message = r"(pseudo_inputs|z_mean|guide's? ro?ws?|the rows).*wanted"
    for value in (None, "x", X[:0], X[:, 0], X * np.nan, np.zeros((3, 2))):
        with pytest.raises(ValueError, match=message):
            start(given_inputs, guide(given_inputs, value), X, Y, Z)
