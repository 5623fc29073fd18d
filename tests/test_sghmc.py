"""SGHMC: stationary laws, exact posteriors, and NumPyro's seams."""

import functools
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from helpers import KEY, assert_mean, exact_posterior, one_layer, regression, two_layers
from jax import random
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from scipy import stats
from scipy.linalg import solve_discrete_lyapunov

import dgp_ppl as dgp
from dgp_ppl.inference.mcmc import run_mcmc
from dgp_ppl.inference.potential import Potential
from dgp_ppl.inference.sghmc import SGHMC

SDS = np.array([1.0, 0.3, 0.1, 0.03])
CHAINS = 64
PUBLISHED = {  # Havasi et al. (2018)
    "step_size": 0.01,
    "friction": 0.05,
    "preconditioner": "rms",
    "integrator": "euler",
    "correct_noise": False,
}


def gaussian(noise=0.0):
    """N(0, SDS²), whose gradient has noise of standard deviation `noise` / SDS."""
    x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real_vector, (), (4,)))
    unit = dist.Normal(0, 1).expand([4]).to_event(1)
    e: object = numpyro.sample("e", unit, infer={"is_auxiliary": True})
    numpyro.factor("p", jnp.sum(-0.5 * (x / SDS) ** 2 + noise * e * x / SDS))


@functools.cache
def draws(noise=0.0, steps=20_000, thinning=40, warmup=4000, **options):
    """Draws of x from chains that start at its mean, [C, S, 4], in units of the true sds."""
    mcmc = MCMC(
        SGHMC(gaussian, **options),
        num_warmup=warmup,
        num_samples=steps,
        thinning=thinning,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(KEY, noise, init_params={"x": jnp.zeros((CHAINS, 4))}, extra_fields=("temperature",))
    return np.asarray(mcmc.get_samples(group_by_chain=True)["x"], np.float64) / SDS


def assert_variance(x, truth=1.0):
    """Of each coordinate, within the error that chains' differences tell, and 5 %."""
    assert_mean((x**2).mean(axis=1), truth)
    assert np.abs((x**2).mean(axis=(0, 1)) / truth - 1).max() < 0.05


@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_stationary_law_of_gaussians(noise):
    """Variances are right whatever the scale and the gradient's noise, and cover the target."""
    assert_variance(draws(noise))


@pytest.mark.slow
def test_large_steps_are_exact_for_gaussians():
    assert_variance(draws(1.0, step_size=0.3, friction=0.3))


@pytest.mark.slow
def test_cycles_keep_the_law():
    assert_variance(draws(0.0, cycle=50, step_size=0.3))


@pytest.mark.slow
def test_moves_faster_than_published():
    """Autocorrelation of the widest direction at 40 steps: next to none, where theirs is 0.9."""
    correlation = lambda x: (x[:, 1:] * x[:, :-1]).mean(axis=(0, 1)) / (x**2).mean(axis=(0, 1))  # noqa: E731
    assert correlation(draws())[0] < 0.3
    assert correlation(draws(steps=4000, **PUBLISHED))[0] > 0.8


def recursion(A, noise):
    """Stationary variance of the first coordinate of s = A s + N(0, noise noise')."""
    return solve_discrete_lyapunov(np.array(A), np.outer(noise, noise))[0, 0]


@pytest.mark.parametrize("friction", [0.2, 1.0])
def test_euler_steps_have_their_own_law(friction):
    """Chen et al.'s SGHMC and (friction 1) Welling & Teh's SGLD: too wide, by as much as known."""
    step = 0.03  # the narrowest direction's own sd
    c = 1 - friction
    kick = (step / SDS) ** 2
    truth = [
        recursion([[1, step], [-step / s**2, c - k]], [0, np.sqrt(2 * friction)]) / s**2
        for s, k in zip(SDS[2:], kick[2:], strict=True)
    ]
    assert truth[-1] > 1.05
    x = draws(step_size=step, friction=friction, preconditioner=None, integrator="euler")
    assert_mean((x**2).mean(axis=1)[:, 2:], truth)


@pytest.mark.parametrize("friction", [0.2, 1.0])
def test_euler_steps_are_those_of_blackjax(friction):
    """The same recursion, hence the same law, from another library's SGHMC and SGLD."""
    import blackjax

    step, sd = 0.03, 0.03
    hamiltonian = blackjax.sgmcmc.diffusions.sghmc(alpha=friction / step)
    langevin = blackjax.sgmcmc.diffusions.overdamped_langevin()

    def move(state, key):
        x, p = state
        if friction == 1.0:
            x = langevin(key, x, -x / sd**2, step**2)
        else:  # the gradient is at the old position there, in Chen et al. (2014) at the new one
            x, p = hamiltonian(key, x, p, -(x + step * p) / sd**2, step)
        return (x, p), x

    def chain(key):
        return jax.lax.scan(move, (jnp.zeros(()), jnp.zeros(())), random.split(key, 24_000))[1]

    theirs = jax.vmap(chain)(random.split(KEY, CHAINS))[:, 4000::40] / sd
    ours = draws(step_size=step, friction=friction, preconditioner=None, integrator="euler")
    difference = np.asarray((theirs**2).mean(axis=1)) - (ours[:, :, 3] ** 2).mean(axis=1)
    assert_mean(difference, 0.0)


# --- posteriors that are known -------------------------------------------------------------------

X, Y = regression(rows=12)


def functions(kernel, **options):
    """Draws of f at the inputs of `one_layer` with Z = X, [C, S, N]."""
    chains = run_mcmc(KEY, kernel, X, Y, z=X, num_chains=8, progress=False, **options)
    L = np.linalg.cholesky(dgp.kernels.SquaredExponential(1.5, 0.8)(X, X) + 1e-6 * np.eye(12))
    return np.einsum("nm,csm->csn", L, chains.samples["l1.v"][..., 0].astype(np.float64))


def assert_exact(f, slack=0.0):
    """Mean and standard deviation of f are the GP's, within chains' own errors and `slack`."""
    mean, cov = exact_posterior(X, Y, X)
    sd = np.sqrt(np.diag(cov))
    for moment, truth, unit in ((f.mean(axis=1), mean, sd), (f.std(axis=1), sd, sd)):
        error = moment.std(axis=0, ddof=1) / np.sqrt(len(f))
        assert (np.abs(moment.mean(axis=0) - truth) < 4.5 * error + (0.01 + slack) * unit).all()


def test_conjugate_posterior_by_sghmc():
    assert_exact(functions(SGHMC(one_layer), num_warmup=2000, num_samples=500, thinning=20))


def test_conjugate_posterior_by_minibatches():
    """A quarter of the rows at a time: the noise varies with f, which is not corrected for."""
    options = {"num_warmup": 4000, "num_samples": 500, "thinning": 40, "batch_size": 3}
    assert_exact(functions(SGHMC(one_layer), **options), slack=0.1)


def test_conjugate_posterior_by_nuts():
    assert_exact(functions(NUTS(one_layer), num_warmup=300, num_samples=300))


@pytest.mark.slow
def test_stock_mcmc_with_hyperpriors():
    """Sampled along with the layers; as NUTS has them, the unit noise integrated by both."""
    model = handlers.lift(one_layer_with_noise, {"noise": dist.LogNormal(-1, 1)})
    found = []
    for kernel, warmup, num, thinning in (
        (SGHMC(model), 2000, 8000, 20),
        (NUTS(model), 300, 300, 1),
    ):
        mcmc = MCMC(
            kernel, num_warmup=warmup, num_samples=num, thinning=thinning, num_chains=4,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        mcmc.run(KEY, X, Y, z=X[::2])
        found.append(np.log(mcmc.get_samples(group_by_chain=True)["noise"]).astype(np.float64))
    for moment in (np.mean, np.std):
        a, b = (moment(f, axis=1) for f in found)
        error = np.hypot(a.std(ddof=1), b.std(ddof=1)) / 2
        assert abs(a.mean() - b.mean()) < 4.5 * error + 0.02


def one_layer_with_noise(x, y=None, *, z):
    noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
    one_layer(x, y, z=z, likelihood=lambda f: dist.Normal(f, noise))


def hierarchy(y, batch_size=None):
    """A latent of every row, inside the plate that is subsampled, and bounded global ones."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("data", len(y), subsample_size=batch_size) as rows:
        own = numpyro.sample("own", dist.Normal(mean, 1))
        numpyro.sample("y", dist.Normal(own, 0.5), obs=y[rows])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_latents_of_rows(batch_size):
    """Each has a value of its own, whichever rows a step takes; means and sds in closed form."""
    y = jnp.array([1.0, -0.5, 2.0, 0.3, 0.8, 1.5])
    chains = run_mcmc(
        KEY, SGHMC(hierarchy), y, batch_size=batch_size, num_warmup=4000, num_samples=1000,
        thinning=40, num_chains=8, progress=False,
    )  # fmt: skip
    precision = len(y) / 1.25 + 1
    mean = float(y.sum()) / 1.25 / precision
    own = (mean + 4 * np.asarray(y)) / 5
    own_sd = np.sqrt(1 / 5 + 1 / precision / 25)
    for site, truth, sd in (("mean", mean, precision**-0.5), ("own", own, own_sd)):
        draws = chains.samples[site].astype(np.float64)
        assert_mean(draws.mean(axis=1), truth)
        assert np.abs(draws.std(axis=1).mean(axis=0) / sd - 1).max() < 0.1


# --- the potential energy ------------------------------------------------------------------------


def test_minibatches_and_unit_noise_are_unbiased():
    """The mean over keys of the gradient is that of all rows, and of much noise."""
    potential, z = Potential(two_layers), jnp.linspace(-1.5, 1.5, 4)[:, None]
    x, y = regression(rows=12)
    at = potential.start(KEY, numpyro.infer.init_to_median, (x, y), {"z": z})
    gradient = jax.grad(lambda u, k, **b: potential(k, u, (x, y), {"z": z, **b}).value)
    many = lambda n, **b: jax.vmap(lambda k: gradient(at, k, **b))(random.split(KEY, n))  # noqa: E731
    part, whole = jax.jit(lambda: (many(8000, batch_size=3), many(4000)))()
    for site in at:
        assert_mean(np.asarray(part[site][:4000]) - np.asarray(whole[site]), 0.0)
        assert np.asarray(part[site]).std(axis=0).min() > 0


def slope(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


def test_control_variates_take_the_noise_away():
    """Started at a fit to many rows: less noise, and the same law, which is known."""
    x = jnp.linspace(-1, 1, 400)
    y = 0.7 * x + 0.5 * random.normal(KEY, x.shape)
    precision = 1 + float(x @ x) / 0.25
    mean, noise = float(x @ y) / 0.25 / precision, {}
    for control in (False, True):
        chains = run_mcmc(
            KEY, SGHMC(slope, control_variates=control), x, y, batch_size=20, num_warmup=2000,
            num_samples=500, thinning=20, num_chains=8, init_params={"w": jnp.full(8, mean)},
            extra_fields=("adaptation.noise",), progress=False,
        )  # fmt: skip
        noise[control] = chains.fields["adaptation.noise"].mean()
        w = chains.samples["w"].astype(np.float64)
        assert_mean(w.mean(axis=1), mean)
        assert_mean(((w - mean) ** 2).mean(axis=1) * precision, 1.0)
    assert noise[True] < 0.2 * noise[False]


def test_control_variates_at_the_anchor():
    """A minibatch's gradient is that of all rows there, which is known."""
    kernel, options = SGHMC(one_layer, control_variates=True), {"z": X[::3], "batch_size": 4}
    first = kernel.init(KEY, 10, None, (X, Y), options)
    estimate = lambda k: kernel._estimate(k, first.unconstrained, first.anchor, (X, Y), options)[1]  # noqa: E731
    gradients = np.asarray(jax.vmap(estimate)(random.split(KEY, 20)))
    whole = lambda u: Potential(one_layer)(KEY, u, (X, Y), {"z": X[::3]}).value  # noqa: E731
    truth = np.asarray(jax.grad(whole)(first.unconstrained)["l1.v"]).ravel()
    np.testing.assert_allclose(gradients, np.broadcast_to(truth, gradients.shape), 1e-3)


@pytest.mark.parametrize("dim", [120, 300])
def test_many_coordinates_that_depend_on_each_other(dim):
    """Combinations far stiffer than any coordinate: warm-up takes steps that are stable there."""
    rng = np.random.default_rng(0)
    A = rng.uniform(size=(1000, dim))
    y = A @ rng.standard_normal(dim) + rng.standard_normal(1000)
    cov = np.linalg.inv(A.T @ A + np.eye(dim))
    assert np.linalg.eigvalsh(cov / np.sqrt(np.outer(*[np.diag(cov)] * 2)))[0] < 1 / 50
    chains = run_mcmc(
        KEY, SGHMC(linear), jnp.asarray(A, float), jnp.asarray(y, float), num_warmup=4000,
        num_samples=300, thinning=20, num_chains=4, progress=False,
    )  # fmt: skip
    w = chains.samples["w"].astype(np.float64) - cov @ A.T @ y
    assert not chains.fields["diverging"].any()
    assert np.mean(w**2 / np.diag(cov)) == pytest.approx(1.0, abs=0.12)


def linear(A, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([A.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(A @ w, 1), obs=y)


# --- seams and errors ----------------------------------------------------------------------------


def test_warm_start_and_fields():
    """An MCMC goes on from its last state; diagnostics and extra fields are there."""
    mcmc = MCMC(SGHMC(one_layer), num_warmup=50, num_samples=20, thinning=2, progress_bar=False)
    mcmc.run(KEY, X, Y, z=X[::3], extra_fields=("temperature", "potential_energy", "step_size"))
    first = mcmc.last_state
    assert int(first.i) == 70
    assert set(mcmc.get_extra_fields()) == {
        "diverging", "temperature", "potential_energy", "step_size",
    }  # fmt: skip
    assert mcmc.get_samples()["l1.v"].shape == (10, 4, 1)
    mcmc.post_warmup_state = first
    mcmc.run(first.rng_key, X, Y, z=X[::3])
    assert int(mcmc.last_state.i) == 90
    assert "temperature" in SGHMC(one_layer).get_diagnostics_str(first)


PARALLEL = """
import numpyro
numpyro.set_host_device_count(2)
import sys
sys.path.insert(0, {tests!r})
import jax, numpy as np
from numpyro.infer import MCMC
from test_sghmc import KEY, SGHMC, X, Y, one_layer
assert jax.local_device_count() == 2
draws = []
for method in ("parallel", "vectorized", "sequential"):
    mcmc = MCMC(SGHMC(one_layer), num_warmup=50, num_samples=20, num_chains=2,
                chain_method=method, progress_bar=False)
    mcmc.run(KEY, X, Y, z=X[::3])
    draws.append(np.asarray(mcmc.get_samples()["l1.v"]))
    assert draws[-1].shape == (40, 4, 1)
for other in draws[1:]:
    np.testing.assert_allclose(draws[0], other, rtol=1e-2, atol=1e-3)
"""


@pytest.mark.slow
def test_every_way_to_run_chains():
    """On two devices, side by side on one, one after the other: the same draws."""
    program = PARALLEL.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_to_arviz():
    """NumPyro's converter takes it: R-hat, effective sample size, statistics of the sampler."""
    import arviz_base

    mcmc = MCMC(
        SGHMC(one_layer), num_warmup=500, num_samples=1000, thinning=10, num_chains=4,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(KEY, X, Y, z=X[::3], batch_size=4, extra_fields=("potential_energy", "temperature"))
    chains = dgp.Chains.of(mcmc)
    forecast = dgp.predict(
        KEY, one_layer, None, {}, X, posterior_samples=chains, num_samples=400, z=X[::3]
    )
    whole = dgp.to_inferencedata(KEY, forecast, Y)
    assert whole["posterior"]["l1.v"].dims == ("chain", "draw", "l1.inducing", "l1.output")
    assert whole["log_likelihood"]["y"].shape == (4, 100, 12)  # all rows, not a minibatch's
    f = dgp.kernels.SquaredExponential(1.5, 0.8)
    L = np.linalg.cholesky(f(X[::3], X[::3]) + 1e-6 * 1.5 * np.eye(4))
    A = np.linalg.solve(L, f(X[::3], X))
    mean = np.einsum("mn,csm->csn", A, chains.samples["l1.v"][..., 0])
    sd = np.sqrt(1.5 - (A**2).sum(axis=0) + 0.3**2)
    np.testing.assert_allclose(
        whole["log_likelihood"]["y"], stats.norm(mean, sd).logpdf(Y), rtol=1e-3, atol=1e-3
    )
    np.testing.assert_array_equal(whole["sample_stats"]["lp"], -chains.fields["potential_energy"])
    tree = arviz_base.from_numpyro(mcmc)
    assert tree["posterior"]["l1.v"].shape == (4, 100, 4, 1)
    assert {"lp", "temperature", "diverging"} <= set(tree["sample_stats"])
    assert tree["posterior"]["l1.v"].dims[:2] == ("chain", "draw")


def test_deterministic_sites_come_along():
    """Those of draws that are kept, of all rows; so that a transported model's layers are there."""

    def model(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.deterministic("double", 2 * w)
        with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
            mean = numpyro.deterministic("mean", w * x)
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    options = {"num_warmup": 20, "num_samples": 5, "progress": False}
    for chains in (
        run_mcmc(KEY, SGHMC(model), X[:, 0], Y, batch_size=4, **options),
        dgp.Chains.of(stock(SGHMC(model), X[:, 0], Y, batch_size=4)),
    ):
        w = chains.samples["w"]
        np.testing.assert_allclose(chains.samples["double"], 2 * w)
        np.testing.assert_allclose(
            chains.samples["mean"], w[..., None] * np.asarray(X[:, 0]), rtol=1e-5
        )
    guide = dgp.MeanField(one_layer)
    fit = dgp.fit(KEY, one_layer, guide, X, Y, z=X[::3], steps=20, progress=False)
    program = dgp.transported(one_layer, guide, fit.params)
    chains = run_mcmc(KEY, SGHMC(program), X, Y, z=X[::3], **options)
    assert chains.samples["l1.v"].shape == (1, 5, 4, 1)


def stock(kernel, *args, **kwargs):
    mcmc = MCMC(kernel, num_warmup=20, num_samples=5, progress_bar=False)
    mcmc.run(KEY, *args, **kwargs)
    return mcmc


def test_params_with_a_random_start_stay_as_they_are():
    def model():
        b = numpyro.param("b", lambda key: 3 * random.normal(key))
        numpyro.factor("p", b * numpyro.sample("w", dist.Normal(0, 1)))

    energy = lambda k: Potential(model)(k, {"w": jnp.ones(())}, (), {}).value  # noqa: E731
    assert len({float(energy(k)) for k in random.split(KEY, 5)}) == 1


def test_a_gradient_that_is_not_finite_moves_nothing():
    def model():
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("cliff", jnp.where(x > 0.5, jnp.nan, 0.0) * x)

    chains = run_mcmc(
        KEY, SGHMC(model, step_size=0.5), num_warmup=200, num_samples=500, progress=False
    )
    assert chains.fields["diverging"].any()
    assert not chains.fields["diverging"].all()
    assert (chains.samples["x"] < 0.6).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step_size": 0.0}, "step_size is 0.0, wanted a positive"),
        ({"friction": 1.5}, "friction is 1.5, wanted in"),
        ({"preconditioner": "full"}, "preconditioner is 'full', wanted 'variance'"),
        ({"integrator": "leapfrog"}, "integrator is 'leapfrog', wanted 'baoab'"),
        ({"cycle": 1}, "cycle is 1, wanted at least 2"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(ValueError, match=words):
        SGHMC(one_layer, **options)


def test_starts_of_several_chains():
    with pytest.raises(ValueError, match=r"init_params has \['l1.v'\] of leading sizes \[\(3,\)\]"):
        run_mcmc(
            KEY, SGHMC(one_layer), X, Y, z=X[::3], init_params={"l1.v": jnp.zeros((3, 4, 1))},
            num_warmup=5, num_samples=5, num_chains=2, progress=False,
        )  # fmt: skip


def test_wrong_models_and_starts():
    def coin():
        numpyro.sample("side", dist.Bernoulli(0.5))

    run = functools.partial(run_mcmc, KEY, num_warmup=5, num_samples=5, progress=False)
    with pytest.raises(ValueError, match=r"\['side'\] are discrete"):
        run(SGHMC(coin))
    with pytest.raises(ValueError, match="no latent sites"):
        run(SGHMC(lambda: None))
    with pytest.raises(ValueError, match=r"init_params has {'l1.w': \(4, 1\)}, wanted .*'l1.v'"):
        run(SGHMC(one_layer), X, Y, z=X[::3], init_params={"l1.w": jnp.zeros((4, 1))})
