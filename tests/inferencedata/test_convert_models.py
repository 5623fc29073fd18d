"""Trees of NumPyro models: masks, factors, targets, units, rows and arguments."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.reparam import LocScaleReparam

import dgp_ppl as dgp
from dgp_ppl import criticism
from dgp_ppl.likelihoods import RightCensored

KEY = random.key(0)
N = 40
X = np.random.default_rng(0).normal(size=N)
Y = 0.7 * X + 0.3 * np.random.default_rng(1).normal(size=N)


def line(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(w * x, 0.3), obs=y)


def tree_of(model, *args, samples=None, guide=None, params=None, **options):
    options = {"num_samples": 50, "num_prior_samples": 0, **options}
    return dgp.to_inferencedata(
        KEY, model, guide, params or {}, *args, posterior_samples=samples, **options
    )


def grouped(x, y=None):
    """One intercept for each output, in a plate that also contains the data."""
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("output", 3, dim=-1):
        b = numpyro.sample("b", dist.Normal(0, 100))
    with numpyro.plate("data", len(x), dim=-2), numpyro.plate("output", 3, dim=-1):
        numpyro.sample("y", dist.Normal(w * x[:, None] + b, 0.1), obs=y)


SCALE = dgp.Standardizer(np.zeros(1), np.ones(1), y_loc=1e6, y_scale=20.0)


PRECISION = 1 + np.sum(X**2) / 0.09
MEAN = np.sum(X * Y) / 0.09 / PRECISION
GUIDE = AutoNormal(line)


def q(scale):
    """Params of a guide with the posterior's mean, and a multiple of its standard deviation."""
    spread = scale / np.sqrt(PRECISION)
    return {"w_auto_loc": jnp.asarray(MEAN), "w_auto_scale": jnp.asarray(spread)}


def test_the_density_of_entries_is_of_seen_entries():
    seen = np.ones((N, 3), bool)
    seen[0, 1:] = False
    y = 1e6 + 20 * np.where(seen, np.stack([Y, Y, Y], axis=1), np.nan)

    def rows(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            mean = w * x * jnp.ones(3)
            safe = None if y is None else jnp.where(seen, y, 0.0)
            numpyro.sample("y", dist.Normal(mean, 0.3).mask(seen).to_event(1), obs=safe)

    filled = np.where(seen, y, 1e6)
    tree = tree_of(rows, X[:, None], filled, samples={"w": np.full(5, 0.7)}, standardizer=SCALE)
    each = dist.Normal(0.7 * X, 0.3).log_prob(Y) - np.log(20)
    wanted = each * seen.sum(axis=1)
    np.testing.assert_allclose(tree["log_likelihood"]["y"][0, 0], wanted, rtol=1e-3, atol=1e-3)
    assert np.isnan(tree["observed_data"]["y"].values).sum() == 2


def test_masks_of_cells():
    """With two plates of data, the cells that were seen form one dimension."""
    keep = np.arange(N)[:, None] % 5 > np.arange(3) - 1
    y = 0.7 * X[:, None] + jnp.zeros(3)
    samples = {"w": np.linspace(0.6, 0.8, 60), "b": np.zeros((60, 3))}
    masked = handlers.mask(grouped, mask=jnp.asarray(True))

    def cells(x, y=None):
        w, b = numpyro.sample("w", dist.Normal(0, 1)), jnp.zeros(3)
        outputs, seen = numpyro.plate("output", 3, dim=-1), handlers.mask(mask=jnp.asarray(keep))
        with numpyro.plate("data", len(x), dim=-2), outputs, seen:
            numpyro.sample("y", dist.Normal(w * x[:, None] + b, 0.1), obs=y)

    assert tree_of(masked, X, y, samples=samples)["log_likelihood"]["y"].shape == (1, 50, N, 3)
    tree = tree_of(cells, X, y, samples={"w": samples["w"]}, num_samples=60)
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "y.seen")
    assert tree["log_likelihood"]["y.seen"].values.tolist() == np.flatnonzero(keep).tolist()
    np.testing.assert_allclose(tree["observed_data"]["y"], np.asarray(y)[keep], rtol=1e-6)
    assert np.isfinite(criticism.loo(tree).elpd)


def test_factors_are_part_of_the_density():
    """A factor shifts the log weights; the exact q has equal weights."""

    def tilted(x, y=None):
        line(x, y)
        numpyro.factor("tilt", tilt)

    tilt = 0.0
    tree = tree_of(line, X, Y, guide=GUIDE, params=q(1.0))
    weights = tree["sample_stats"]["log_weight"].values
    assert weights.std() < 1e-3
    tilt = 5.0
    more = tree_of(tilted, X, Y, guide=GUIDE, params=q(1.0))["sample_stats"]["log_weight"].values
    np.testing.assert_allclose(more - weights, 5.0, rtol=1e-3)


def test_densities_of_a_narrow_q_are_no_rounding():
    """They are computed from the noise behind each draw, not by inverting the map from v."""

    def one(x, y=None):
        f = dgp.gp("l1", dgp.kernels.SquaredExponential(1.0, 1.0), jnp.asarray(X[:5, None], float))
        with dgp.minibatch(x, y) as (x, y):
            numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f, 0.3)), obs=y)

    params = {"l1.v.loc": jnp.ones((5, 1)), "l1.v.scale_tril": 1e-9 * jnp.eye(5)[None]}
    tree = tree_of(one, X[:, None], Y, guide=dgp.MeanField(one), params=params)
    found = tree["sample_stats"]["log_q"].values
    assert np.ptp(found) < 40  # half of a chi-squared variable with five degrees of freedom
    peak = -5 * np.log(1e-9) - 2.5 * np.log(2 * np.pi)
    assert found.mean() == pytest.approx(peak - 2.5, abs=5 * np.sqrt(2.5 / 50))


def test_deterministic_sites_and_arguments_of_rows():
    """Of a reparametrised model, the tree has the params that its author wrote."""

    def groups(x, y=None, group=None, *, exposure, label="a"):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        with numpyro.plate("groups", 3):
            alpha = numpyro.sample("alpha", dist.Normal(2.0, scale))
        with numpyro.plate("data", len(x)):
            rate = numpyro.deterministic("rate", exposure * jnp.exp(0.1 * alpha[group]))
            numpyro.sample("y", dist.Normal(rate, 0.3), obs=y)

    model = handlers.reparam(groups, config={"alpha": LocScaleReparam(0)})
    guide = AutoNormal(model)
    rows = {"exposure": np.linspace(1, 2, N)}
    group = np.arange(N) % 3
    where = {"alpha_decentered_auto_loc": 0.5 * jnp.ones(3), "scale_auto_loc": jnp.zeros(())}
    params = where | {n.replace("loc", "scale"): 0.1 + 0 * a for n, a in where.items()}
    rows |= {"num_samples": 5, "num_prior_samples": 5}
    tree = tree_of(model, X, Y, group, guide=guide, params=params, **rows)
    for name in ("posterior", "prior"):
        found = tree[name]
        alpha = 2 + found["scale"].values[..., None] * found["alpha_decentered"].values
        np.testing.assert_allclose(found["alpha"], alpha, rtol=1e-5)
        assert found["alpha"].dims == ("chain", "draw", "groups")
        assert found["rate"].dims == ("chain", "draw", "data")
    constant = tree["constant_data"]
    np.testing.assert_array_equal(constant["group"], group)
    np.testing.assert_allclose(constant["exposure"], rows["exposure"])
    assert set(constant) == {"x", "group", "exposure"}
    assert constant["group"].dims == ("data",)


@pytest.mark.wrong_types
def test_what_is_wrong_is_named():
    def both(x, y=None):
        numpyro.sample("a/w", dist.Normal(0, 1))
        numpyro.sample("a.w", dist.Normal(0, 1))
        line(x, y)

    samples = {n: np.zeros(5) for n in ("a/w", "a.w", "w")}
    with pytest.raises(ValueError, match="rename one of them"):
        tree_of(both, X, Y, samples=samples)
    good = {"w": np.zeros(5)}
    wrong = [
        ((Y,), {"guide": GUIDE, "params": {}}, "params has no .w_auto_loc. and 1 more"),
        ((Y,), {"samples": {"w": np.zeros((5, 2))}}, r"shape \(2,\), wanted \(\)"),
        ((Y[:, None],), {"samples": good}, r"pass y\[:, 0\]|wanted the same"),
        ((Y,), {"samples": good, "test": X}, "test is a ndarray, wanted a tuple"),
        ((Y,), {"samples": good, "coords": {"data": [1]}}, f"1 labels of 'data', wanted {N}"),
    ]
    for args, options, words in wrong:
        with pytest.raises((TypeError, ValueError), match=words):
            tree_of(line, X, *args, **options)


def columns(x, y=None, name="y"):
    return line_named(x[:, 0], y, name)


def line_named(x, y, name):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", len(x)):
        numpyro.sample(name, dist.Normal(w * x, 0.3), obs=y)


def test_the_target_that_is_given_is_the_one_that_is_stored():
    y, name = 1e6 + 20 * Y, "target"  # the site, which the argument y does not name
    samples = {"w": np.full(200, 0.7)}
    tree = dgp.to_inferencedata(
        KEY, columns, None, {}, X[:, None], y, posterior_samples=samples, num_prior_samples=0,
        standardizer=SCALE, name=name, test=(X[:4, None], y[:4]),
    )  # fmt: skip
    np.testing.assert_array_equal(tree["observed_data"][name], y)
    drawn = tree["posterior_predictive"][name].values[0]
    error = 6.0 / np.sqrt(200)  # of a mean of draws with noise 0.3 * 20
    assert np.abs(drawn.mean(axis=0) - (1e6 + 14 * X)).max() < 5 * error
    wanted = dist.Normal(0.7 * X, 0.3).log_prob(Y) - np.log(20)
    np.testing.assert_allclose(tree["log_likelihood"][name][0, 0], wanted, rtol=1e-3, atol=1e-3)
    assert tree["predictions_constant_data"][name].shape == (4,)


def test_log_likelihoods_of_censored_rows_have_no_units():
    def times(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            censored = RightCensored(dist.Normal(w * x[:, 0], 0.3), X > 0)
            with numpyro.handlers.mask(mask=np.arange(N) > 2):
                numpyro.sample("y", censored, obs=y)

    samples = {"w": np.full(5, 0.7)}
    plain, scaled = (
        tree_of(times, X[:, None], y, samples=samples, **options)["log_likelihood"]["y"].values
        for y, options in ((Y, {}), (1e6 + 20 * Y, {"standardizer": SCALE}))
    )
    shift = np.where(X > 0, 0, np.log(20))[3:]
    np.testing.assert_allclose(scaled[0, 0], plain[0, 0] - shift, rtol=1e-3, atol=1e-3)


def test_a_standardizer_wants_its_target_second():
    def third(x, c=None, y=None):
        return line_named(x[:, 0], y, "y")

    samples = {"w": np.full(5, 0.7)}
    options = {"samples": samples, "standardizer": SCALE}
    with pytest.raises(ValueError, match="wants y as the model's second argument"):
        tree_of(third, X[:, None], np.ones(N), Y, **options)
    with pytest.raises(ValueError, match="site is 'zz'"):
        tree_of(columns, X[:, None], Y, site="zz", **options)


def test_arviz_computes_loo_where_draws_differ_by_hundreds_of_nats():
    """The tree has log-likelihoods in float64; ArviZ returned NaN for float32."""
    import arviz_stats

    statistics: Any = arviz_stats  # typed lazily
    w = 0.7 + 2.0 * np.random.default_rng(0).standard_normal(100)
    tree = tree_of(line, X, Y, samples={"w": w})
    values = tree["log_likelihood"]["y"].values
    assert values.dtype == np.float64
    assert 200 < np.ptp(values) < 700
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter")  # large k-hats
        assert np.isfinite(statistics.loo(tree).elpd)


@pytest.mark.slow
def test_effects_of_outputs_are_no_rows():
    """Held-out rows use the draws of the intercepts, which must be given."""
    y = 0.7 * X[:, None] + jnp.zeros(3)
    samples = {"w": np.full(50, 0.7), "b": np.zeros((50, 3))}
    tree = tree_of(grouped, X, y, samples=samples, test=(X[:5], y[:5]))
    assert tree["predictions"]["y"].std("draw").max() < 0.2
    assert tree["log_likelihood"].attrs["latent_rows"] == "none"
    assert tree["posterior"]["b"].dims == ("chain", "draw", "output")
    whole, parts = (
        tree["log_likelihood"]["y"],
        tree_of(grouped, X, y, samples=samples, chunk_size=7),
    )
    np.testing.assert_allclose(parts["log_likelihood"]["y"], whole, rtol=1e-5)
    with pytest.raises(ValueError, match="has no draws of 'b'"):
        tree_of(grouped, X, y, samples={"w": samples["w"]})
