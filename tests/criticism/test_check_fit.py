"""`check_fit` names planted faults and leaves healthy fits alone; its lines, by hand."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import MCMC, NUTS
from support.fits import SHALLOW, X, Y, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import kernels, likelihoods, models
from dgp_ppl.criticism import _curvature
from dgp_ppl.criticism._layer_lines import layer_lines, noise_line
from dgp_ppl.inference import Chains
from dgp_ppl.inference.svi._ending import loss_lines, warn_of_bad_ending

RNG = np.random.default_rng(0)
ROWS = 150
INPUTS = np.sort(RNG.uniform(-2, 2, (ROWS, 1)), axis=0).astype(np.float32)
NEW = RNG.uniform(-2, 2, (300, 1)).astype(np.float32)
PLACES = np.linspace(-2, 2, 15, dtype=np.float32)[:, None]
SHALLOW_2 = dgp.MeanField(models.svgp)
INTERCEPT = kernels.SquaredExponential(1.0, 1.0)


def intercept(x, y=None):
    """A function and an intercept, which a guide of separate sites takes for independent."""
    b = numpyro.sample("b", dist.Normal(0, 3.0))
    f = dgp.gp("f", INTERCEPT, PLACES)
    with dgp.minibatch(x, y) as (x, y):
        numpyro.sample("y", dgp.observe(f(x), lambda f: dist.Normal(f + b, 0.2)), obs=y)


def parts(x, y=None):
    """Two functions that add up."""
    noise = numpyro.param("noise", 0.3, constraint=dist.constraints.positive)
    f = dgp.gp("f", kernels.SquaredExponential(1.0, 1.0), PLACES)
    g = dgp.gp("g", kernels.SquaredExponential(1.0, 0.7), PLACES)
    with dgp.minibatch(x, y) as (x, y):
        marginals = f(x) + g(x)
        numpyro.sample("y", dgp.observe(marginals, lambda f: dist.Normal(f, noise)), obs=y)


def counts(x, y=None, *, z):
    models.svgp(x, y, z=z, likelihood=lambda f: dist.Poisson(jnp.exp(f)))


def classes(x, y=None, *, z):
    models.svgp(x, y, z=z, likelihood=lambda f: dist.Bernoulli(logits=f))


def heavy(x, y=None, *, z):
    scale = numpyro.param("scale", 0.3, constraint=dist.constraints.positive)
    models.svgp(x, y, z=z, likelihood=lambda f: dist.StudentT(3.0, f, scale))


def of_q(params):
    return {n: "q" if ".v." in n else "kept" for n in params}


Q_ALONE = optax.partition({"q": optax.adam(0.03), "kept": optax.set_to_zero()}, of_q)
CHIRP = lambda x: np.sin(3 * x**2)  # noqa: E731
SINE = lambda x: np.sin(3 * x)  # noqa: E731


def checked(
    model=models.svgp, truth=SINE, noise=0.2, y=None, test=None, guide=dgp.MeanField, z=PLACES,
    x=INPUTS, seed=0, steps=2000, unit=np.random.Generator.standard_normal, **options,
):  # fmt: skip
    """Fit a model to a function with noise, and check the fit."""
    rng = np.random.default_rng(seed)
    draw = lambda x, noise: truth(x[:, 0]) + noise * unit(rng, len(x))  # noqa: E731
    y = draw(x, noise) if y is None else y
    kwargs = {n: options.pop(n) for n in ("kernel", "batch_size") if n in options}
    if model is models.deep_gp:
        kwargs["z"] = (z, z)
    elif model not in (intercept, parts):
        kwargs["z"] = z
    q = guide(model)
    y = y if y.dtype.kind == "i" else y.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = dgp.fit(KEY, model, q, x, y, steps=steps, progress=False, **options, **kwargs)
    kwargs.pop("batch_size", None)
    p = dgp.predict(KEY, model, q, fit, NEW, **kwargs)
    new = draw(NEW, noise if test is None else test)
    held_out = None if y.dtype.kind == "i" else (p, new)
    return dgp.check_fit(fit, KEY, model, q, x, y, test=held_out, **kwargs)


def start(**values):
    """Hold the model's params at these values, and fit q alone."""
    values = {n.replace("_", "."): np.float32(a) for n, a in values.items()}
    return {"optimizer": Q_ALONE, "start": values}


DEEP = {"model": models.deep_gp, "truth": CHIRP, "noise": 0.1}
PERIODIC = {"kernel": kernels.Periodic.learned, "truth": lambda x: np.sin(2 * np.pi * x)}
WAVE = SINE(INPUTS[:, 0]) + 0.1 * SINE(9 * INPUTS[:, 0])
OUTLIERS = WAVE + 8.0 * (np.arange(ROWS) % 50 == 7)
GLOBAL = partial(dgp.GlobalInducing, pseudo_inputs=PLACES)
COPIES = np.repeat(INPUTS[::3], 3, axis=0)
FAULTS = {
    "too few steps": (DEEP | {"steps": 150}, "loss still falls", "structure in residuals"),
    "rate too high": (
        DEEP | {"learning_rate": 3.0, "steps": 1000}, "loss jumps", "explained variance"
    ),
    "stuck": ({"learning_rate": 1e-7, "steps": 300}, "loss moved"),
    "wrong period": (
        PERIODIC | {"start": {"l1.period": np.float32(0.71)}}, "structure in residuals",
        "range in periods", "explained variance",
    ),
    "M = 3": ({"truth": CHIRP, "z": PLACES[::7]}, "inducing inputs", "structure in residuals"),
    "copies": ({"x": COPIES, "y": np.repeat(WAVE[::3], 3)}, "repeated rows"),
    "rounding": (
        start(l1_lengthscale=[2.5], l1_variance=1e4, noise=1e-2) | {"noise": 1e-2},
        "float32", "jitter", "noise at its floor",
    ),
    "outliers": ({"y": OUTLIERS}, "outliers"),
    "rest too narrow": ({"model": intercept}, "sd of other sites"),
    "parts": ({"model": parts}, "sd of parts"),
    "long": (start(l1_lengthscale=[100.0]), "range in lengthscales"),
    "short": (start(l1_lengthscale=[1e-3]), "gaps in lengthscales"),
    "noise at its floor": (start(noise=1e-3) | {"noise": 0.0}, "noise at its floor"),
    "dead hidden layer": (DEEP | start(l1_variance=1e-8), "hidden layer"),
    "z collapsed": (start(l1_z=0.02 * PLACES), "spread of z"),
    "other noise": ({"test": 0.6}, "coverage of 90 %"),
}  # fmt: skip
HEALTHY = {
    "sine": {},
    "sine of another seed": {"seed": 1},
    "much noise": {"noise": 1.0},
    "line": {"truth": lambda x: x},
    "curve": {"truth": lambda x: x**2 / 2},
    "step": {"truth": lambda x: np.tanh(4 * x)},
    "minibatches": {"batch_size": 50},
    "rough": {"kernel": kernels.Matern32.learned},
    "period": PERIODIC | {"learning_rate": 0.03},
    "chirp": DEEP | {"steps": 6000},
    "deep step": DEEP | {"truth": lambda x: np.tanh(9 * x), "steps": 6000},
    "global inducing": DEEP | {"guide": GLOBAL, "steps": 4000},
    "counts": {"model": counts, "y": RNG.poisson(np.exp(SINE(INPUTS[:, 0])))},
    "classes": {"model": classes, "y": RNG.binomial(1, 0.5 + 0.4 * SINE(INPUTS[:, 0]))},
    "heavy tails": {
        "model": heavy, "noise": 0.1, "unit": lambda rng, num: rng.standard_t(3, num)
    },
    "coupled": {"model": intercept, "guide": partial(dgp.MeanField, coupled=True)},
}  # fmt: skip


@pytest.mark.slow
def test_faults_are_named_and_healthy_fits_are_not():
    """At most two of the faults go unnamed, and at most one healthy fit has a bad line."""
    missed = []
    draws = np.random.default_rng(0).standard_normal((4, 100, len(PLACES), 1))
    for stuck in (False, True):
        draws[0] = draws[0, 0] if stuck else draws[0]
        p = dgp.check_fit(
            {"l1.z": PLACES, "l1.variance": 1.0, "l1.lengthscale": np.ones(1), "noise": 0.2}, KEY,
            models.svgp, None, INPUTS, SINE(INPUTS[:, 0]), z=PLACES,
            posterior_samples=dgp.Chains({"l1.v": draws}),
        )  # fmt: skip
        chains = {line.what for line in p.lines if line.verdict == "bad"}
        assert ("draws" in chains) == stuck
    for name, (options, *wanted) in FAULTS.items():
        found = {line.what for line in checked(**options).lines if line.verdict != "good"}
        if not found & set(wanted):
            missed.append((name, found))
    assert len(missed) <= 2, missed
    alarms = {n: checked(**options) for n, options in HEALTHY.items()}
    assert sum(check.verdict == "bad" for check in alarms.values()) <= 1, alarms


def verdicts(lines):
    return {line.what: line.verdict for line in lines}


T = np.arange(1, 2001)
NOISE = 0.02 * np.random.default_rng(1).standard_normal(len(T))
LOSSES = {
    "converged": (1 + np.exp(-T / 50), "good", "good"),
    "falls as 1 / t": (1 + 500 / T, "look", "good"),
    "falls": (5 - T / 500, "bad", "good"),
    "rises again": (1 + np.exp(-T / 50) + 5.0 * (T > 1500), "good", "bad"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    losses, falls, jumps = LOSSES[name]
    found = verdicts(loss_lines(10 * (losses + NOISE), 10))
    assert found == {"loss still falls": falls, "loss jumps": jumps}


def test_losses_of_stuck_short_and_repeated_fits():
    assert verdicts(loss_lines(1 + NOISE, 1))["loss moved"] == "bad"
    assert verdicts(loss_lines(T[:50], 1)) == {"steps": "look"}
    disagree = verdicts(loss_lines(1 + np.exp(-T / 50), 100, [-10.0, -np.inf, -20.0]))
    assert disagree["restarts disagree"] == "look"
    assert noise_line(1e-2, 1.0, np.float32).verdict == "good"
    assert noise_line(1e-6, 1.0, np.float32).verdict == "bad"
    assert noise_line(1e-6, 1.0, np.float64).verdict == "good"


def test_bad_endings_warn():
    """Of a fit that began at params, a loss that stays is right."""
    fit = shallow(steps=3)
    bad = dgp.FitResult(fit.params, 1 + NOISE, 1, fit.state, 0.0, None)
    with pytest.warns(UserWarning, match=r"fit: loss moved: .* learning_rate"):
        warn_of_bad_ending(bad, fresh=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_bad_ending(bad, fresh=False)
        warn_of_bad_ending(fit, fresh=True)
        small = fit.params | {"noise": jnp.float32(1e-4)}  # such as for targets of 1e-3
        end = dgp.FitResult(small, LOSSES["converged"][0] + NOISE, 1, fit.state, 0.0, None)
        warn_of_bad_ending(end, fresh=True)


def record(**changes):
    """A hidden layer's record, as the pass of `check_fit` makes it."""
    x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    values = {
        "x": x, "output": x + 0.2 * x**2, "z": x[::8],
        "kernel": kernels.SquaredExponential(1.0, np.float32([0.5])),
        "prior": np.ones(40, np.float32), "residual": np.full(40, 0.01, np.float32),
        "jitter": np.float32(1.5e-6), "v": np.zeros((5, 1), np.float32),
        "mean": np.zeros((40, 1), np.float32), "plain": np.array(True),
        "observed": np.array(False),
    } | changes  # fmt: skip
    return jax.tree.map(np.asarray, values)


def test_each_fault_of_a_layer_has_its_line():
    last = record(observed=True)

    def found(noise=0.5, **changes):
        lines = layer_lines({"l1.v": record(**changes), "l2.v": last}, noise, 1.0, 1.0)
        return {line.what for line in lines if line.verdict != "good"}

    long, short = (kernels.SquaredExponential(1.0, np.float32([s])) for s in (50.0, 1e-2))
    assert found() == set()
    assert found(output=last["x"]) == {"hidden layer"}
    assert found(output=last["x"] ** 2) == {"independent layers"}
    assert found(kernel=long) == {"range in lengthscales"}
    assert found(kernel=short) == {"gaps in lengthscales"}
    assert found(kernel=long + kernels.SquaredExponential(1.0, np.float32([0.5]))) == set()
    assert found(kernel=kernels.Periodic(1.0, 1.0, 5.0)) == {"range in periods"}
    assert found(z=0.01 * last["z"]) == {"spread of z"}
    assert found(jitter=np.float32(1e-2)) == {"jitter"}
    assert found(x=last["x"].astype(np.float64)) == set()  # params of float32 elsewhere
    assert found(mean=np.ones((40, 1), np.float32)) == {"float32"}
    wide = {"prior": np.full(40, 1e4, np.float32), "residual": np.zeros(40, np.float32)}
    assert found(**wide) == {"variance clipped"}
    assert found(noise=1e-6) == {"noise at its floor", "inducing inputs"}
    assert found(noise=0.04) == {"inducing inputs"}
    last = record()  # Marginals that a model makes of a draw are of no layer
    assert found(noise=1e-6) == set()


def test_the_table():
    check = dgp.check_fit(shallow(), KEY, models.svgp, SHALLOW, X, Y, z=Z, num_weights=100)
    assert check.verdict in ("good", "look", "bad")
    assert str(check).startswith("look  steps")
    assert {"k-hat", "outliers", "repeated rows", "float32"} <= verdicts(check.lines).keys()
    signs = np.array([0.0, -0.0, *X[2:, 0]])[:, None], np.array([1.0, 1.0, *Y[2:]])
    check = dgp.check_fit(shallow(), KEY, models.svgp, SHALLOW, *signs, z=Z)
    (line,) = (line for line in check.lines if line.what == "repeated rows")
    assert line.value.startswith(f"{1 / len(X):.1%}")
    rows = dgp.Rows.from_arrays(*(np.resize(a, (501, *a.shape[1:])) for a in (X, Y)))
    check = dgp.check_fit(shallow(), KEY, models.svgp, SHALLOW, rows, z=Z, num_weights=100)
    assert "k-hat" not in verdicts(check.lines)  # which wants all rows
    assert verdicts(check.lines)["repeated rows"] == "bad"
    p = dgp.predict(KEY, models.svgp, SHALLOW, shallow(), X, z=Z)
    for nothing in (np.nan, np.inf):
        with pytest.raises(ValueError, match="the targets of test are infinite, or all NaN"):
            dgp.check_fit(
                shallow(), KEY, models.svgp, SHALLOW, X, Y, z=Z, test=(p, np.full(len(Y), nothing))
            )
    for missing in ((), (None,)):
        with pytest.raises(ValueError, match="wanted x and y"):
            dgp.check_fit(shallow(), KEY, models.svgp, SHALLOW, X, *missing, z=Z)
    third = lambda x, w, target, *, z: models.svgp(x * w[:, None], target, z=z)  # noqa: E731
    for w, wanted in (
        (np.ones(len(X)), "'w', the second, which is taken for y .* the name y"),
        ([1, [2]], "argument 'w' is no array"),
    ):
        with pytest.raises(TypeError, match=wanted):
            dgp.check_fit(shallow(), KEY, third, dgp.MeanField(third), X, w, Y, z=Z)


def test_targets_that_are_not_second_or_censored():
    def moved(x, t, y=None, *, z):
        models.svgp(x, y, z=z)

    def censored(x, y=None, c=None, *, z):
        s = numpyro.param("noise", 0.3)
        likelihood = lambda f: likelihoods.RightCensored(dist.Normal(f, s), c)  # noqa: E731
        models.svgp(x, y, z=z, likelihood=likelihood)

    def lines(model, *args):
        guide = dgp.MeanField(model)
        return verdicts(dgp.check_fit(shallow(), KEY, model, guide, *args, z=Z).lines)

    plain = lines(models.svgp, X, Y)
    assert lines(moved, X, X[:, 0], Y) == plain
    assert "outliers" in plain.keys() - lines(censored, X, Y, Y > 0).keys()


def test_missing_entries_are_left_out_whatever_fills_them():
    def masked(x, y=None, mask=None, *, z):
        noise = numpyro.param("noise", 0.3)
        z = numpyro.param("l1.z", z)
        f = dgp.gp("l1", kernels.SquaredExponential.learned("l1", 1), z)
        with dgp.minibatch(x, y, mask) as (x, y, mask):
            likelihood = lambda f: dist.Normal(f, noise)  # noqa: E731
            numpyro.sample("y", dgp.observe(f(x), likelihood, mask=mask), obs=y)

    def values(x, y, mask):
        args = shallow(), KEY, masked, dgp.MeanField(masked), x, y, mask
        lines = dgp.check_fit(*args, z=Z).lines
        return [line.value for line in lines if line.what in ("explained variance", "outliers")]

    seen = np.arange(len(X)) % 3 > 0
    alone = values(X[seen], 5 + Y[seen], seen[seen])
    for fill in (50.0, np.nan):
        explained, outliers = values(X, np.where(seen, 5 + Y, fill), seen)
        assert [explained, outliers.split()[0]] == [alone[0], alone[1].split()[0]]


def test_variance_is_explained_of_each_output():
    means = lambda x: jnp.array([[0.0, 5.0]]) + 0 * x  # noqa: E731
    y = np.random.default_rng(0).normal([0, 5], 1, (len(X), 2))
    call = KEY, models.svgp, SHALLOW_2, X, y
    options = {"z": Z, "out": 2, "mean": means}
    params = dgp.fit(*call, steps=1, progress=False, **options).params
    params["l1.v.loc"] = jnp.zeros((6, 2))
    assert verdicts(dgp.check_fit(params, *call, **options).lines)["explained variance"] != "good"


def test_what_is_not_looked_at_is_said(monkeypatch):
    """Also of draws that NumPyro's `MCMC` holds."""
    monkeypatch.setattr(_curvature, "_MOST_VALUES", 3)
    draws = Chains({"f.v": np.zeros((2, 50, len(PLACES), 1)), "b": np.zeros((2, 50))})
    monkeypatch.setattr(Chains, "from_mcmc", lambda mcmc: draws)
    y = SINE(INPUTS[:20, 0])
    options = {
        "fit": (dgp.MeanField(intercept), None),
        "draws": (None, MCMC(NUTS(intercept), num_warmup=1, num_samples=1)),
    }
    found = {}
    for name, (guide, samples) in options.items():
        params = {} if guide is None else dgp.fit(KEY, intercept, guide, INPUTS[:20], y, steps=2)
        lines = dgp.check_fit(
            params, KEY, intercept, guide, INPUTS[:20], y, posterior_samples=samples
        ).lines
        found[name] = {line.what: line for line in lines}
    assert found["fit"]["sd of other sites"].value == "not checked: 16 values by 20 rows"
    assert found["draws"]["draws"].verdict == "bad"


def test_a_shift_of_all_targets_is_structure_in_residuals():
    params, call = shallow(), (KEY, models.svgp, SHALLOW, X)
    p = dgp.predict(KEY, models.svgp, SHALLOW, params, X, z=Z)
    y = p.mean + np.std(p.mean) * np.random.default_rng(1).standard_normal(len(X))
    plain, moved = (
        verdicts(dgp.check_fit(params, *call, y, z=Z).lines) for y in (y, y + 5 * np.std(p.mean))
    )
    for what, after in (("structure in residuals", "bad"), ("explained variance", "look")):
        assert (plain[what], moved[what]) == ("good", after)


def test_rows_that_are_not_read_are_not_judged():
    x = np.repeat(np.linspace(-2, 2, 500), 2)[:, None]
    y = np.sin(x[:, 0])
    y[987] = 30.0  # one of the 500 that are read
    call = shallow(), KEY, models.svgp, SHALLOW, dgp.Rows.from_arrays(x, y)
    lines = {line.what: line.value for line in dgp.check_fit(*call, z=Z).lines}
    assert "repeated rows" not in lines
    assert lines["outliers"].endswith("row 987")


def test_layers_of_other_numbers_of_inducing_inputs():
    guide, z = dgp.MeanField(models.deep_gp), (np.repeat(Z, 2, axis=1), Z[:4])
    call = (KEY, models.deep_gp, guide, np.repeat(X, 2, axis=1), Y)
    fit = dgp.fit(*call, z=z, steps=1, progress=False)
    assert "spread of z" in verdicts(dgp.check_fit(fit, *call, z=z).lines)
