"""Natural gradients of q(v), and of NumPyro's Gaussian guide."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import random
from numpyro.distributions import biject_to, constraints
from numpyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

import dgp_ppl as dgp
from dgp_ppl import models
from dgp_ppl._partition import Call
from dgp_ppl.inference import PredictiveELBO, evaluate, natural_adam
from dgp_ppl.inference.programs._natural import natural_gradient
from dgp_ppl.inference.svi._setup import Problem, guide_optimizer

KEY = random.key(0)
scaled_unit_lower: Any = biject_to(constraints.scaled_unit_lower_cholesky)
X = random.normal(KEY, (40, 2))
Y = jnp.sin(2 * X[:, 0]) + 0.1 * random.normal(random.key(1), (40,))
Z = X[:6]


@pytest.mark.parametrize("covariance", ["full", "shared"])
def test_one_step_reaches_the_optimum_under_gaussian_noise(covariance):
    guide = dgp.MeanField(models.svgp, covariance=covariance)
    only_q: Any = {"q": natural_gradient(lambda count: 1.0), "other": optax.set_to_zero()}
    optimizer = optax.partition(only_q, lambda p: {n: "q" if ".v." in n else "other" for n in p})
    svi = SVI(models.svgp, guide, optimizer, TraceMeanField_ELBO())

    @jax.jit
    def stepped():
        state, _ = svi.update(svi.init(KEY, X, Y, z=Z), X, Y, z=Z)
        return state, svi.evaluate(state, X, Y, z=Z)

    state, loss = stepped()
    params = {n: a for n, a in svi.get_params(state).items() if ".v." not in n}
    collapsed, _ = evaluate(
        KEY, models.sgpr, lambda *args, **kwargs: None, params, X, Y, z=Z, num_draws=2
    )
    np.testing.assert_allclose(-loss, collapsed, rtol=1e-4)


def test_a_shared_covariance_moves_as_one_of_each_column():
    loc, by_loc = random.normal(KEY, (2, 4, 2))
    raw, by_raw = jnp.tril(0.1 * random.normal(random.key(1), (2, 4, 4)))
    optimizer, moves = natural_gradient(lambda count: 0.5), []
    for own, by_own in ((jnp.stack([raw, raw]), jnp.stack([by_raw, by_raw])), (raw, 2 * by_raw)):
        params = {"l1.v.loc": loc, "l1.v.scale_tril": own}
        grads = {"l1.v.loc": by_loc, "l1.v.scale_tril": by_own}
        found: Any = jax.jit(optimizer.update)(grads, optimizer.init(params), params)[0]
        moves.append((found["l1.v.loc"], jnp.broadcast_to(found["l1.v.scale_tril"], (2, 4, 4))))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *moves)


def regression(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ w, 0.3), obs=y)


@pytest.mark.slow
def test_numpyros_gaussian_guide_reaches_the_exact_posterior():
    guide = AutoMultivariateNormal(regression)
    svi = SVI(regression, guide, natural_adam(0.1, 300), Trace_ELBO(num_particles=10))
    params = svi.run(KEY, 300, X, Y, progress_bar=False).params
    precision = np.eye(2) + X.T @ X / 0.09
    exact = np.linalg.solve(precision, X.T @ Y / 0.09)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_array_less(abs(params["auto_loc"] - exact), 0.1 * sd)
    scale = params["auto_scale_tril"]
    np.testing.assert_allclose(np.linalg.inv(scale @ scale.T), precision, rtol=0.1, atol=10)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_any_gradient_leaves_a_covariance_that_grew_tenfold_at_most(size):
    params = {"l1.v.loc": jnp.zeros((5, 2)), "l1.v.scale_tril": jnp.zeros((2, 5, 5))}
    grads = jax.tree.map(lambda a: size * random.normal(KEY, a.shape), params)
    optimizer = natural_gradient(lambda count: 0.5)
    moves: Any = jax.jit(optimizer.update)(grads, optimizer.init(params), params)[0]
    lower = np.tril(moves["l1.v.scale_tril"], -1)
    lower += np.exp(np.diagonal(moves["l1.v.scale_tril"], axis1=1, axis2=2))[:, :, None] * np.eye(5)
    eigenvalues = np.linalg.eigvalsh(lower @ lower.swapaxes(1, 2))
    assert np.isfinite(moves["l1.v.loc"]).all()
    assert (eigenvalues > 0).all()
    assert eigenvalues.max() < 20


def test_a_default_step_moves_a_mean_by_three_prior_standard_deviations_at_most():
    params = {"l1.v.loc": jnp.zeros((5, 2)), "l1.v.scale_tril": jnp.zeros((2, 5, 5))}
    grads = params | {"l1.v.loc": 1e6 * jnp.ones((5, 2))}
    optimizer = natural_adam(0.1, 100)
    moves: Any = jax.jit(optimizer.update)(grads, optimizer.init(params), params)[0]
    np.testing.assert_allclose(moves["l1.v.loc"], -3.0, rtol=1e-5)


def test_means_of_a_shared_covariance_converge_at_unequal_curvatures():
    curvatures = jnp.array([100.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # 17 at the shared covariance

    def loss(params):  # of one inducing value for each of six outputs, whose data are at 1
        loc, log_scale = params["l1.v.loc"][0], params["l1.v.scale_tril"][0, 0]
        fit = jnp.sum(curvatures * (jnp.square(loc - 1) + jnp.exp(2 * log_scale)))
        return 0.5 * (fit + jnp.sum(jnp.square(loc) + jnp.exp(2 * log_scale) - 2 * log_scale))

    optimizer = natural_adam(0.1, 1000)
    params: Any = {"l1.v.loc": jnp.zeros((1, 6)), "l1.v.scale_tril": jnp.zeros((1, 1))}

    def step(carry, _):
        params, state = carry
        moves, state = optimizer.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, moves), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=1000)
    np.testing.assert_allclose(params["l1.v.loc"][0], curvatures / (1 + curvatures), rtol=1e-3)


def test_hundreds_of_outputs_share_a_covariance():
    y = jnp.outer(Y, random.normal(KEY, (200,)))
    params = {"l1.z": Z, "l1.variance": 1.0, "l1.lengthscale": jnp.ones(2), "noise": 0.1}
    model = dgp.freeze(models.svgp, params)
    guide = dgp.MeanField(model, covariance="shared")
    fits = [
        dgp.fit(KEY, model, guide, X, y, steps=steps, progress=False, z=Z, out=200)
        for steps in (60, 120)
    ]
    np.testing.assert_allclose(*(fit.losses[-1] for fit in fits), rtol=1e-4)


def test_noise_moves_numpyros_guide_by_few_standard_deviations():
    params = {"auto_loc": jnp.zeros(5), "auto_scale_tril": jnp.zeros(15)}
    grads = jax.tree.map(lambda a: 1e6 * random.normal(KEY, a.shape), params)
    optimizer = natural_gradient(lambda count: 0.5)
    moves: Any = jax.jit(optimizer.update)(grads, optimizer.init(params), params)[0]
    begun, ended = map(scaled_unit_lower, (params["auto_scale_tril"], moves["auto_scale_tril"]))
    assert 0 < jnp.linalg.norm(jnp.linalg.solve(begun, moves["auto_loc"])) < 4
    change = jnp.linalg.solve(begun, ended)
    assert jnp.linalg.slogdet(change @ change.T)[1] > -jnp.log(2.0) * 5


def test_gaussians_of_other_guides_move_by_adam():
    params = {"w_loc": jnp.zeros(3), "w_scale_tril": jnp.zeros(6)}  # perhaps lower_cholesky
    optimizer = natural_adam(0.1, 100)
    grads = jax.tree.map(jnp.ones_like, params)
    moves: Any = optimizer.update(grads, optimizer.init(params), params)[0]
    assert all(np.allclose(a, -0.1) for a in moves.values())


def test_fit_gives_natural_steps_of_the_bound_to_observed_layers_with_full_covariances():
    def guide_of(covariance):
        guide = dgp.MeanField(models.deep_gp, covariance=covariance)
        guide.setup(X, Y, z=[Z, Z])
        return guide

    assert not guide_of("diagonal").natural_params
    guide = guide_of("full")
    params = {f"l{i}.v.loc": jnp.zeros((6, 1)) for i in (1, 2)}
    params |= {f"l{i}.v.scale_tril": jnp.zeros((1, 6, 6)) for i in (1, 2)}
    gradient = jax.tree.map(jnp.ones_like, params)
    for loss, by_adam in ((None, {"l1.v.loc"}), (PredictiveELBO(), {"l1.v.loc", "l2.v.loc"})):
        optimizer = guide_optimizer(guide, 0.1, 100, loss=loss)
        moves, _ = optimizer.update(gradient, optimizer.init(params), params)
        first = {n for n in params if np.allclose(moves[n], -0.1, rtol=0.01)}
        assert {n for n in first if n.endswith("loc")} == by_adam


def test_the_arguments_of_natural_adam_are_checked():
    assert natural_adam(jnp.float32(0.5), 10, ["b", "a"]) is natural_adam(0.5, 10, {"a", "b"})
    for args, options, message in (
        ((-0.1, 10), {}, "learning_rate is -0.1, wanted a positive number"),
        ((0.1, 0), {}, "steps is 0, wanted at least 1"),
        ((0.1, 10), {"step_size": 2}, "step_size is 2, wanted a positive number, at most 1"),
    ):
        with pytest.raises(ValueError, match=f"natural_adam: {message}"):
            natural_adam(*args, **options)


def set_up(guide=dgp.MeanField, steps=None, optimizer=None, **options):
    return Problem.set_up(
        "fit", KEY, models.svgp, guide(models.svgp), Call((X, Y), {"z": Z, **options}),
        steps=steps, learning_rate=0.1, optimizer=optimizer, loss=None, start=None,
    )  # fmt: skip


def test_steps_in_minibatches_are_smaller():
    def change(**options):
        optimizer = set_up(steps=100, **options).optimizer
        params = {"l1.v.loc": jnp.zeros((6, 1)), "l1.v.scale_tril": jnp.zeros((1, 6, 6))}
        gradient = {"l1.v.loc": jnp.ones((6, 1)), "l1.v.scale_tril": jnp.zeros((1, 6, 6))}
        moves, _ = optimizer.update(gradient, optimizer.init(params), params)
        return float(abs(moves["l1.v.loc"]).max())

    assert change() == pytest.approx(change(batch_size=len(X)))
    assert change() == pytest.approx(5 * change(batch_size=10))


def test_the_number_of_steps_follows_the_share_of_the_rows():
    """3,000 where natural gradients have at least half of the rows, else 6,000."""
    assert set_up().steps == set_up(batch_size=len(X) // 2).steps == 3000
    assert set_up(batch_size=len(X) // 2 - 1).steps == 6000
    assert set_up(dgp.Flow).steps == set_up(optimizer=optax.adam(0.1)).steps == 6000
