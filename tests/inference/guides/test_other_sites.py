"""NumPyro's guides, also joint ones, for latent sites other than the layers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoMultivariateNormal
from scipy import stats
from support.helpers import KEY, slow, start

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl._checks import is_traced
from dgp_ppl._partition import Call
from dgp_ppl.inference.guides._local_normal import LocalNormal
from dgp_ppl.inference.programs._handlers import survey

X = np.linspace(-1, 1, 6)[:, None]
Y = np.sin(3 * X[:, 0])
DRAWS = 8000


def plain(x, y=None):
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), X[::2])
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 1.0)), obs=y)


def idle(x, y=None):
    """The same with sites that the data do not depend on, so the bound falls by their KL."""
    numpyro.sample("a", dist.LogNormal(0, 1))
    numpyro.sample("b", dist.LogNormal(0, 1))
    f = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), X[::2])
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 1.0)), obs=y)


def losses(model, guide, params):
    one = lambda key: guide.default_loss.loss(key, params, model, guide, X, Y)  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(one))(random.split(KEY, DRAWS)))


LOC = jnp.asarray([0.4, -0.3])
ROOT = jnp.asarray([[0.8, 0.0], [0.5, 0.4]])


def test_a_joint_guide_runs_the_model_in_programs_alone():
    within = []

    def model(x, y=None):
        a = numpyro.sample("a", dist.HalfNormal(1))
        within.append(is_traced(a * numpyro.sample("b", dist.Normal(a, 1))))
        plain(x, y)

    guide = dgp.MeanField(model, rest=AutoMultivariateNormal)
    guide.setup(X, Y)
    assert len(within) > 1
    assert all(within)
    (part,) = guide.other_sites.parts
    values = part.sample_posterior(KEY, {"auto_loc": LOC, "auto_scale_tril": 1e-6 * np.eye(2)})
    np.testing.assert_allclose([values["a"], values["b"]], [np.exp(0.4), -0.3], atol=1e-4)


class OfAUser(dist.Exponential):
    """A distribution whose attribute is lost in `jax.jit`."""

    def __init__(self, rate):
        self.own = rate
        super().__init__(rate)

    def log_prob(self, value):
        return jnp.log(self.own) - self.own * value


@pytest.mark.parametrize(
    "prior", [dist.ImproperUniform(dist.constraints.positive, (), ()), OfAUser(2.0)]
)
def test_a_joint_guide_of_a_special_prior(prior):
    def model(x, y=None):
        numpyro.sample("a", prior)
        plain(x, y)

    guide = dgp.MeanField(model, rest=AutoMultivariateNormal)
    guide.setup(X, Y)
    assert guide.other_sites.order == ["a", "l1.v"]


@pytest.mark.slow
def test_a_joint_guide_pays_its_kl():
    bases = dgp.MeanField(idle, rest=AutoMultivariateNormal), dgp.MeanField(plain)
    guide, without = (dgp.Diffusion(g.model, steps=2, base=g) for g in bases)
    params = start(idle, guide, X, Y)
    assert {n for n in params if "auto" in n} == {
        "auto_loc", "auto_scale_tril", "auto_w_loc", "auto_w_scale_tril",
    }  # fmt: skip
    params |= {"auto_loc": LOC, "auto_scale_tril": ROOT}
    params |= {"auto_w_loc": jnp.zeros(6), "auto_w_scale_tril": jnp.eye(6)}  # w's prior: no KL
    normal = dist.MultivariateNormal(LOC, scale_tril=ROOT)
    kl = dist.kl_divergence(normal, dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
    exact = {n: a for n, a in params.items() if "auto" not in n}
    found = losses(idle, guide, params), losses(plain, without, exact)
    error = np.hypot(*(np.std(a) / np.sqrt(DRAWS) for a in found))
    assert abs(found[0].mean() - found[1].mean() - kl) < 5 * error
    assert kl > 10 * error


def test_a_guide_that_is_a_point_until_it_is_fitted():
    guide = dgp.MeanField(idle, rest=AutoLaplaceApproximation)
    with pytest.raises(
        TypeError, match=r"rest makes an AutoLaplace.*wanted a guide such as AutoMul"
    ):
        guide.setup(X, Y)


def related(x, y=None):
    """Priors that depend on another site or on the data, or have bounded support."""
    a = numpyro.sample("a", dist.LogNormal(0, 1))
    numpyro.sample("b", dist.LogNormal(jnp.mean(x), a))
    numpyro.sample("c", dist.Uniform(jnp.zeros(2), jnp.asarray([1.0, 2.0])).to_event(1))
    plain(x, y)


@pytest.mark.parametrize("how", ["arguments", slow("closure"), slow("joint guide")])
def test_a_guide_outlives_the_transformation_it_was_first_run_in(how):
    """The guide keeps no tracers of its other sites."""
    rest = {"rest": AutoMultivariateNormal} if how == "joint guide" else {}
    guide, usual = dgp.MeanField(related, **rest), dgp.MeanField(related, **rest)
    svi = SVI(related, guide, numpyro.optim.Adam(0.01), TraceMeanField_ELBO())
    keys = random.split(KEY, 3)
    if how == "arguments":
        jax.jit(jax.vmap(svi.init, (0, None, None)))(keys, X, Y)
    else:
        jax.jit(jax.vmap(lambda key: svi.init(key, X, Y)))(keys)
    usual.setup(X, Y)
    params, wanted = (start(related, g, X, Y) for g in (guide, usual))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, params, wanted))
    sample = jax.jit(lambda p: guide.sample_posterior(KEY, p, X, Y, sample_shape=(5,)))
    draws = sample(params)
    assert {n: a.shape for n, a in draws.items()} == {
        "a": (5,), "b": (5,), "c": (5, 2), "l1.v": (5, 3, 1),
    }  # fmt: skip
    assert ((draws["c"] > 0) & (draws["c"] < jnp.asarray([1, 2]))).all()


def test_unit_noise_of_sites():
    """T(e) has the guide's density: log q(T(e)) + log |T'(e)| = log N(e; 0, I)."""
    guide = dgp.MeanField(idle)
    guide.setup(X, Y)
    call = Call((X, Y))
    params = {
        n: random.normal(random.fold_in(KEY, i), shape) * 0.3 + ("scale" in n)
        for i, (n, shape) in enumerate(
            (f"{site}_auto_{part}", shape)
            for site, shape in {"a": (), "b": (), "w": (6,)}.items()
            for part in ("loc", "scale")
        )
    }  # fmt: skip
    noise = {"a": jnp.array(0.7), "b": jnp.array(-1.2), "w": random.normal(KEY, (6,))}
    with handlers.substitute(data=params):
        assert guide.other_sites.noise_shapes(call) == {"a": (), "b": (), "w": (6,)}
        values, log_det = guide.other_sites.from_noise(noise, call)
    log_q = sum(
        jnp.sum(dist.LogNormal(params[f"{n}_auto_loc"], params[f"{n}_auto_scale"]).log_prob(a))
        for n, a in values.items()
        if n != "w"
    ) + jnp.sum(dist.Normal(params["w_auto_loc"], params["w_auto_scale"]).log_prob(values["w"]))
    log_e = sum(jnp.sum(dist.Normal().log_prob(e)) for e in noise.values())
    np.testing.assert_allclose(log_q + log_det, log_e, rtol=1e-5)
    guide = dgp.MeanField(idle, rest=AutoMultivariateNormal)
    guide.setup(X, Y)
    with handlers.substitute(data={"auto_loc": LOC, "auto_scale_tril": ROOT}):
        shapes = guide.other_sites.noise_shapes(call)
        assert shapes == {"_auto_latent": (2,), "_auto_w_latent": (6,)}
        e = {"_auto_latent": LOC, "_auto_w_latent": noise["w"]}
        values, log_det = guide.other_sites.from_noise(e, call)
    at = LOC + ROOT @ LOC
    np.testing.assert_allclose([values["a"], values["b"]], jnp.exp(at), rtol=1e-5)
    of_w = 6 * np.log(0.1)  # the scale that NumPyro starts with
    np.testing.assert_allclose(log_det, np.log(0.8 * 0.4) + at.sum() + of_w, rtol=1e-5)


def test_latents_of_rows_take_the_rows_of_the_minibatch():
    """The bound of a minibatch of one row is N times this row's part of the bound."""

    def model(y, size=None):
        with dgp.minibatch(y, batch_size=size) as y:
            numpyro.sample("y", dist.Normal(numpyro.sample("w", dist.Normal(0, 1)), 0.5), obs=y)

    y, loc, scale = jnp.array([1.0, -0.5, 2.0]), np.array([0.5, 0.2, 1.5]), 1e-4
    guide = LocalNormal(model, ("w",), survey(model, Call((y,), {})))
    params = {"w_auto_loc": jnp.asarray(loc, float), "w_auto_scale": jnp.full(3, scale)}
    bound = lambda key: -TraceMeanField_ELBO().loss(key, params, model, guide, y, size=1)  # noqa: E731
    found = np.asarray(jax.jit(jax.vmap(bound))(random.split(KEY, 40)))
    kl = 0.5 * (scale**2 + loc**2 - 1) - np.log(scale)
    each = 3 * (stats.norm(loc, 0.5).logpdf(y) - kl)
    gaps = np.abs(found[:, None] - each)
    assert gaps.min(axis=1).max() < 0.02
    assert set(gaps.argmin(axis=1)) == {0, 1, 2}


@pytest.mark.parametrize("intercept", [True, False])
def test_a_coupled_function_moves_with_groups(intercept):
    def grouped(x, group, y=None):
        f = dgp.gp("f", kernels.Matern52(1.0, 1.0), x[:3])
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0)) if intercept else 0.0
        with numpyro.plate("groups", 2):
            effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
        with dgp.minibatch(x, group, y) as (x, group, y):
            latent = f(x) + effect[group] + shift
            numpyro.sample("y", dgp.observe(latent, lambda f: dist.Normal(f, 0.3)), obs=y)

    x, group = jnp.linspace(-1.0, 1.0, 6)[:, None], jnp.arange(6) % 2
    guide = dgp.MeanField(grouped, coupled=True)
    with handlers.seed(rng_seed=0), handlers.trace() as trace:
        jax.eval_shape(guide, x, group, x[:, 0])
    assert trace["f.v.slope"]["value"].shape == (2 + intercept, 3, 1)


@pytest.mark.parametrize("coupled", [True, False])
def test_a_discrete_site_is_refused(coupled):
    def switched(x, y=None):
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        f = dgp.gp("f", kernels.Matern52(1.0, 1.0), x[:3])
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + k, 0.3)), obs=y)

    x = jnp.linspace(-1.0, 1.0, 6)[:, None]
    with pytest.raises(ValueError, match=r"latent site 'k' is discrete; sum it out"):
        dgp.MeanField(switched, coupled=coupled).setup(x, x[:, 0])
