"""`Flow`: its start, its density, its gradients, its fits and its errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.util import log_density
from support.diffusion import Z, bases, diagonal_fit, shaken
from support.helpers import KEY, assert_mean, one_layer, regression, slow, start, two_layers

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.criticism import check_guide
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.guides._transport import (
    from_reference,
    point_distribution,
    reference_log_joint,
)
from dgp_ppl.inference.guides.flow._bijections import SplineCoupling, bijection_params
from dgp_ppl.inference.guides.flow._guide import Flow

SMALL = partial(SplineCoupling, layers=2, width=8, bins=4)
SITES = ("l1.v", "l2.v")


def two(base, x, y, **options):
    """Return a flow for two layers and its base, with params of the base that are not initial."""
    own = bases(two_layers)[base]
    guide = Flow(two_layers, base=own, flow=SMALL, **options)
    params = start(two_layers, guide, x, y, z=Z)
    moved = shaken({n: a for n, a in params.items() if not n.startswith("flow.")})
    return own, guide, params | moved


def moved(params, scale=0.3):
    """Return params with a flow that is not the identity."""
    of_flow = {n: a for n, a in params.items() if n.startswith("flow.")}
    return params | shaken(of_flow, scale)


def to_reference(guide, v, params, call):
    """Return z with v = T(z), of a base."""
    z = {}

    def at_v(site, q):
        z[site] = q.to_white(v[site])
        return point_distribution(site, q, z[site])

    with handlers.block(), handlers.seed(rng_seed=0), handlers.substitute(data=params):
        guide.transport(call, at_v)
    return z


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("base", ["mean-field", slow("global")])
def test_the_density_is_the_density_of_the_map_of_noise(base):
    """Change of variables with the dense Jacobian from noise to v."""
    x, y = regression(rows=6)
    own, guide, params = two(base, x, y)
    params = moved(params)
    flat, unravel = ravel_pytree({n: jnp.zeros((5, 1)) for n in SITES})
    with handlers.substitute(data=params):
        bijection = bijection_params(SMALL, flat.size, "flow")

    def v_of(e):
        z = unravel(bijection.transform_and_log_det(e)[0])
        v = from_reference(own, z, params, Call((x, y), {"z": Z}))
        return ravel_pytree(v)[0]

    @jax.jit
    def both(key):
        seeded = handlers.seed(guide, key)
        log_q, sites = log_density(seeded, (x, y), {"z": Z}, params)
        v = {n: sites[n]["value"] for n in SITES}
        z = to_reference(own, v, params, Call((x, y), {"z": Z}))
        e = bijection.inverse_and_log_det(ravel_pytree(z)[0])[0]
        log_noise = jnp.sum(jax.scipy.stats.norm.logpdf(e))
        return log_q, log_noise, jax.jacfwd(v_of)(e), v_of(e) - ravel_pytree(v)[0]

    for key in random.split(KEY, 3):
        log_q, log_noise, jacobian, error = both(key)
        np.testing.assert_allclose(error, 0.0, atol=1e-7)
        np.testing.assert_allclose(log_q, log_noise - np.linalg.slogdet(jacobian)[1], rtol=1e-7)


def gradients(stick_the_landing, *, away=False, num=500):
    """Return losses of a flow whose data say nothing, and their gradients in its params."""
    x, y = regression(rows=6)
    says_nothing = partial(one_layer, likelihood=lambda f: dist.Normal(0 * f, 1.0))
    guide = Flow(says_nothing, flow=SMALL, stick_the_landing=stick_the_landing)
    params = start(says_nothing, guide, x, y, z=Z)
    params = moved(params) if away else params
    of_flow = {n: a for n, a in params.items() if n.startswith("flow.")}

    def loss(own, key):
        return TraceMeanField_ELBO().loss(key, params | own, says_nothing, guide, x, y, z=Z)

    run = jax.jit(jax.vmap(jax.value_and_grad(loss), (None, 0)))
    value, grads = run(of_flow, random.split(KEY, num))
    return value, np.concatenate([g.reshape(num, -1) for g in grads.values()], axis=1)


def test_a_gradient_that_sticks_the_landing_has_no_noise_at_the_posterior():
    assert np.abs(gradients(True, num=20)[1]).max() < 1e-4


@pytest.mark.slow
def test_sticking_the_landing_changes_the_noise_of_gradients_alone():
    """Both gradients have the same mean, at the posterior and elsewhere."""
    (value, _), (free_value, free) = gradients(True), gradients(False)
    np.testing.assert_allclose(value, free_value, rtol=1e-5)
    assert free.std(axis=0).max() > 0.3
    assert_mean(free, 0.0, errors=5)
    (value, stuck), (free_value, free) = (gradients(s, away=True) for s in (True, False))
    np.testing.assert_allclose(value, free_value, rtol=1e-4)
    assert np.abs(free.mean(axis=0)).max() > 0.1
    assert_mean(stuck - free, 0.0, errors=5)


@pytest.mark.slow
def test_trained_it_comes_near_the_evidence_and_not_above():
    """One conjugate layer, whose posterior no diagonal Gaussian can match."""
    (x, y), options = regression(rows=8), {"progress": False}
    diagonal, first, truth, gap = diagonal_fit(x, y)
    guide = Flow(one_layer, base=diagonal)
    result = dgp.fit(KEY, one_layer, guide, x, y, steps=1500, start=first.params, z=x, **options)
    elbo, error = evaluate(KEY, one_layer, guide, result.params, x, y, z=x, num_draws=2000)
    assert elbo < truth + 4.5 * error
    assert truth - elbo < 0.1 * gap
    check = check_guide(
        KEY, one_layer, guide, result.params, x, y, z=x, num_simulations=0, num_weights=4000
    )
    assert check.khat < 0.7


@pytest.mark.usefixtures("x64")
@pytest.mark.slow
@pytest.mark.parametrize("base", ["mean-field", "global"])
def test_its_reference_space_is_the_space_of_its_noise(base):
    """v = T(F(e)), and the density of e has the Jacobian of both maps."""
    x, y = regression(rows=6)
    own, guide, params = two(base, x, y)
    params, call = moved(params), Call((x, y), {"z": Z})
    flat, unravel = ravel_pytree({n: jnp.zeros((5, 1)) for n in SITES})
    e = random.normal(KEY, flat.shape)

    @partial(jax.jit, static_argnums=1)
    def at(z, of):
        """Return v, log p(y, v) |dv/dz|, and the dense dv/dz."""
        v_of = lambda z: ravel_pytree(from_reference(of, unravel(z), params, call))[0]  # noqa: E731
        log_joint, v = reference_log_joint(of, unravel(z), KEY, params, call, call)
        return ravel_pytree(v)[0], log_joint, jax.jacfwd(v_of)(z)

    v, log_joint, jacobian = at(e, guide)
    assert np.abs(v - e).max() > 0.1
    z = jax.jit(lambda v: to_reference(own, unravel(v), params, call))(v)
    same, base_joint, base_jacobian = at(ravel_pytree(z)[0], own)
    np.testing.assert_allclose(same, v, rtol=1e-7)
    volumes = (np.linalg.slogdet(jac)[1] for jac in (jacobian, base_jacobian))
    np.testing.assert_allclose(log_joint - base_joint, np.subtract(*volumes), rtol=1e-6)


class Doubled:
    """A bijection without an inverse, of vectors of any size."""

    def transform_and_log_det(self, x):
        return 2 * x, x.size * jnp.log(2.0)


class Cut(Doubled):
    def transform_and_log_det(self, x):
        return x[:2], jnp.zeros(())


def test_a_bijection_without_an_inverse_and_errors():
    """It has draws and a bound, and neither a landing nor a way back."""
    x, y = regression(rows=6)
    guide = Flow(one_layer, flow=Doubled(), stick_the_landing=False)
    params = start(one_layer, guide, x, y, z=Z)
    assert handlers.seed(guide, KEY)(x, y, z=Z)["l1.v"].shape == (5, 1)
    run = lambda guide: handlers.seed(guide, KEY)(x, y, z=Z)  # noqa: E731
    decoupled = dgp.Decoupled(one_layer, z_mean=np.asarray(Z))
    for error, message, call in (
        (ValueError, "Flow needs a random key: run it under",
         lambda: handlers.substitute(guide, data=params)(x, y, z=Z)),
        (ValueError, "base is 'prior', wanted MeanField", lambda: Flow(one_layer, base="prior")),
        (ValueError, "base is Decoupled.*separate inducing inputs",
         lambda: Flow(one_layer, base=decoupled)),
        (TypeError, "flow is 3, wanted a bijection", lambda: Flow(one_layer, flow=3)),
        (TypeError, "flow is <class .*Doubled.*wanted a bijection",
         lambda: Flow(one_layer, flow=Doubled)),
        (ValueError, r"flow maps \[5\] to \[2\].*has 5 inducing values",
         lambda: run(Flow(one_layer, flow=Cut()))),
        (ValueError, "a Doubled without an inverse, with stick_the_landing=True wanted .*False",
         lambda: run(Flow(one_layer, flow=Doubled()))),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()
