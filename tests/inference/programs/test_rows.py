"""Arguments with rows, padded fits, and programs that calls with other numbers of rows share."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.autoguide import AutoMultivariateNormal
from support import fits
from support.helpers import KEY, compiled

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.inference.programs._rows import arrays_with_rows, split_padded
from dgp_ppl.inference.svi import _setup
from dgp_ppl.models import deep_gp, gplvm, svgp

X, Y, Z = (np.asarray(a) for a in (fits.X, fits.Y, fits.Z))


def layer(z):
    return dgp.gp("f", dgp.kernels.SquaredExponential.learned("f", 1), z)


def shifted(x, shift, y=None, *, z, batch_size=None):
    """A model with an array that has nothing to do with rows."""
    f = layer(z)
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        mean = f(x) + jnp.sum(shift)
        numpyro.sample("y", dgp.observe(mean, lambda f: dist.Normal(f, 0.1)), obs=y)


def test_refits_and_predictions_with_another_number_of_rows_compile_nothing(caplog):
    guide, shift, found = dgp.MeanField(shifted), jnp.ones(3), []

    def refit(rows):
        x, y = np.tile(X, (2, 1))[:rows], np.tile(Y, 2)[:rows]
        found.append(
            dgp.fit(KEY, shifted, guide, x, shift, y, z=Z, steps=12, progress=False, batch_size=4)
        )
        dgp.evaluate(KEY, shifted, guide, found[-1], x, shift, y, z=Z, batch_size=4)

    def predict(rows):
        p = dgp.predict(KEY, shifted, guide, found[-1], X[:rows], shift, z=Z, num_samples=7)
        return p.mean, p.interval(), p.log_prob(Y[:rows])

    for run, name in ((refit, "jit(run_chunk)"), (predict, "jit(predictive_passes)")):
        first = compiled(caplog, lambda run=run: run(12))
        assert first.count(name) == 1
        # Keys of passes are made inside of its program.
        assert run is refit or {"jit(gather)", "jit(_threefry_split)"}.isdisjoint(first)
        for rows in (3 if run is predict else 11, 13, 20):
            assert compiled(caplog, lambda run=run, rows=rows: run(rows)) == []
    # Fits are padded to steps of 32 rows: 20 that grow by a row compile twice at most.
    assert compiled(caplog, lambda: refit(33)).count("jit(run_chunk)") == 1
    assert compiled(caplog, lambda: refit(34)) == []


@pytest.mark.usefixtures("x64")
@pytest.mark.slow
def test_padding_does_not_change_a_fit_in_minibatches(monkeypatch):
    def fit():
        options = {"z": (Z, Z), "steps": 4, "batch_size": 7, "progress": False}
        return dgp.fit(KEY, deep_gp, dgp.MeanField(deep_gp), X, Y, **options)

    padded = fit()  # later, Adam turns rounding of gradients of 0 into steps
    monkeypatch.setattr(_setup, "split_padded", lambda *call: split_padded(*call[:3], False))
    plain = fit()
    np.testing.assert_allclose(padded.losses, plain.losses, rtol=1e-8)
    for name, value in plain.params.items():
        np.testing.assert_allclose(padded.params[name], value, rtol=1e-8, atol=1e-8)


def centred(x, y, *, z):
    svgp(x - x.mean(), y, z=z)


def inducing_rows(x, y, *, z):
    svgp(x, y, z=x)


def with_factor(x, y, *, z):
    svgp(x, y, z=z)
    numpyro.factor("prior", 1.0)


def with_offsets(x, y, *, z):
    offsets = numpyro.param("offsets", jnp.zeros(len(x)))
    f = layer(z)
    with dgp.minibatch(x, y, offsets) as (x, y, offsets):
        numpyro.sample("y", dgp.observe(f(x) + offsets, lambda f: dist.Normal(f, 0.1)), obs=y)


def tempered(x, y, *, z):
    with handlers.scale(scale=0.5):
        svgp(x, y, z=z)


def test_what_uses_rows_elsewhere_is_not_padded():
    def num_rows(model, guide=None, rows=20, **kwargs):
        call = Call((X[:rows], Y[:rows]), {"z": Z} | kwargs)
        guide = dgp.MeanField(model) if guide is None else guide
        dgp.inference.LayerGuide.find_sites(guide, call) if hasattr(guide, "find_sites") else None
        data = split_padded(model, call, guide)[1]
        return data.num_rows, len(data.args[0])

    assert num_rows(svgp) == (20, 32)
    alike = lambda f: dist.Normal(f, 0.1 + f.std())  # noqa: E731
    assert num_rows(svgp, likelihood=alike) == (None, 20)
    assert num_rows(svgp, rows=20, batch_size=20) == (20, 20)
    assert num_rows(svgp, rows=20, batch_size=25) == (20, 25)
    for model in (centred, inducing_rows, with_factor, with_offsets, tempered):
        assert num_rows(model) == (None, 20)
    assert num_rows(svgp, lambda x, y, *, z: numpyro.param("a", jnp.sum(x))) == (None, 20)
    joint, deep = AutoMultivariateNormal(deep_gp), {"z": (Z, Z)}
    handlers.seed(joint, KEY)(X[:20], Y[:20], **deep)  # from now on it draws noise of 20 rows
    assert num_rows(deep_gp, joint, **deep) == (None, 20)
    latent = {"z": [np.c_[Z, Z]]}
    assert num_rows(gplvm, **latent) == (None, 20)


def looked_up(x, table, y=None, *, z):
    """A model of its own plate, whose rows take the table's entries by their numbers."""
    f = layer(z)
    with numpyro.plate("data", len(x)) as rows:
        mean = f(x) + table[rows]
        numpyro.sample("y", dgp.observe(mean, lambda f: dist.Normal(f, 0.1)), obs=y)


def exposed(x, exposure, *, z):
    f = layer(z)
    with dgp.minibatch(x) as x:
        numpyro.sample("y", dgp.observe(f(x) * jnp.log(exposure), lambda f: dist.Normal(f, 0.1)))


def test_rows_are_what_minibatch_takes():
    def found(model, extra, **kwargs):
        by_row, most = arrays_with_rows("predict", model, Call((X, extra), {"z": Z} | kwargs))
        return by_row.args, by_row.kwargs["z"], most

    entries = jnp.ones(len(X))
    assert found(shifted, entries) == ((True, False), False, np.inf)
    assert found(shifted, entries, z=X, batch_size=50) == ((True, False), False, 50)
    assert found(exposed, entries) == ((True, True), False, np.inf)
    with pytest.warns(UserWarning, match="argument 1 has as many entries as x has rows"):
        assert found(looked_up, entries) == ((True, True), False, 1)
    assert found(inducing_rows, None)[2] == 1


@pytest.mark.parametrize(
    "likelihood",
    [
        lambda f: dist.Poisson(jnp.exp(f)),
        lambda f: dist.TruncatedNormal(f, 0.5, low=-9.0),
        lambda f: dist.OrderedLogistic(f, jnp.arange(2.0)),
        lambda f: dist.Categorical(logits=f[..., None] * jnp.arange(3.0)),
    ],
)
def test_how_y_is_drawn_does_not_matter(likelihood):
    """Samplers run along rows, or in loops."""
    call = Call((X,), {"z": Z, "likelihood": likelihood})
    assert arrays_with_rows("predict", svgp, call)[1] == np.inf


def test_a_global_array_as_long_as_the_rows_is_not_cut():
    def mean(rows):
        shift = jnp.ones(3)
        return dgp.predict(KEY, shifted, None, {}, X[:rows], shift, z=Z, num_samples=2).mean

    np.testing.assert_allclose(mean(3), mean(4)[:3], rtol=1e-6)


def less_mean(x):
    return x - x.mean(0)


def is_padded(change, scale=lambda x: 0.1, length=lambda x: 1.0, factor=lambda x: 1.0, batch=None):
    """Return whether `fit` pads the rows of a model with this change of inputs, noise or f."""

    def model(x, y=None, *, z):
        f = dgp.gp("f", dgp.kernels.SquaredExponential(1.0, length(x)), z)
        noise = numpyro.sample("noise", dist.LogNormal(0.0, scale(x)))
        with dgp.minibatch(x, y, batch_size=batch) as (x, y):
            mean = f(change(x)) * factor(x) + 0.1 * jnp.tanh(x[:, 0])
            numpyro.sample("y", dgp.observe(mean, lambda f: dist.StudentT(3.0, f, noise)), obs=y)

    guide = dgp.MeanField(model)
    call = Call((X[:11], Y[:11]), {"z": Z})
    guide.setup(*call.args, **call.kwargs)
    return split_padded(model, call, guide)[1].num_rows is not None


def test_models_whose_rows_depend_on_each_other_are_not_padded():
    changes = (
        less_mean, lambda x: x[::-1], lambda x: 5 * jax.nn.softmax(x, axis=0),
        lambda x: x * jnp.linspace(0, 1, len(x))[:, None], lambda x: x / len(x),
        lambda x: jnp.cumsum(x, axis=0), lambda x: x - x[:1], jax.jit(less_mean),
        lambda x: x * np.linspace(0, 1, len(x))[:, None],
        lambda x: jnp.convolve(x[:, 0], jnp.ones(3), mode="same")[:, None],
        lambda x: jax.ops.segment_sum(x, (x[:, 0] > 0).astype(int), num_segments=len(x)),
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (3, 1), (1, 1), "SAME"),
        lambda x: jax.pure_callback(lambda a: a - a.mean(0), x, x),
        lambda x: 2 * x if len(x) > 20 else x,
        lambda x: jax.lax.top_k(x[:, 0], len(x))[0][:, None],
        lambda x: jax.lax.pad(x, 0.0, ((1, -1, 0), (0, 0, 0))),
    )  # fmt: skip
    assert [is_padded(change) for change in changes] == [False] * len(changes)
    one = lambda x: 1 / x.shape[0]  # noqa: E731
    for also in ({"scale": one}, {"length": one}, {"factor": one}):
        for batch in (None, 4):  # numbers that only the library's steps take
            assert not is_padded(lambda x: x, batch=batch, **also)
    rowwise = lambda x: jnp.stack([jnp.sin(x[:, 0]), x.sum(-1)]).T[:, :1]  # noqa: E731
    assert is_padded(lambda x: x)
    assert is_padded(lambda x: x, batch=4)
    assert is_padded(rowwise)
    assert is_padded(lambda x: jnp.cumsum(jnp.sort(x, axis=-1), axis=1))
    assert is_padded(lambda x: x.at[:, 0].set(0.0) + x)
    assert is_padded(lambda x: jnp.where(x > 9, jnp.nan, jnp.pad(x, ((0, 0), (1, 0)))[:, :1] + x))


TABLE = jnp.linspace(-1.0, 1.0, 100)


@pytest.mark.parametrize(
    "change",
    [
        less_mean,
        lambda x: jnp.cumsum(x, axis=0),
        lambda x: x + 0.1 * jnp.arange(len(x), dtype=float)[:, None],
        lambda x: x + TABLE[: len(x), None],
        lambda x: x + 0.1 * np.arange(len(x), dtype=np.float32)[:, None],
        lambda x: x + random.normal(random.key(1), x.shape),
        lambda x: 2 * x if len(x) > 34 else x,
    ],
)
def test_predictions_know_all_rows(change):
    """Also where their number or their places matter, in a model that is not row-wise."""
    x, v = jnp.linspace(-1, 1, 35)[:, None], jnp.ones((len(Z), 1))

    def model(x, *, z):
        f = layer(z)
        with dgp.minibatch(x) as x:
            numpyro.sample("y", dgp.observe(f(change(x)), lambda f: dist.Normal(f, 0.1)))

    def mean(**options):
        return dgp.predict(
            KEY, model, None, {}, x, z=Z, posterior_samples={"f.v": v[None]}, **options
        ).mean

    with handlers.seed(rng_seed=0), handlers.substitute(data={"f.v": v}):
        expected = layer(Z)(change(x)).mean[:, 0]
    np.testing.assert_allclose(mean(), expected, atol=1e-5)
    with pytest.warns(UserWarning, match="rows in chunks of 20 know no others"):
        mean(chunk_size=20)


def test_subsamples_of_plain_plates_are_minibatches():
    """So they get small natural steps, and more of them."""

    def model(x, y, *, z):
        f = layer(z)
        with numpyro.plate("data", len(x), subsample_size=4) as rows:
            numpyro.sample("y", dgp.observe(f(x[rows]), lambda f: dist.Normal(f, 0.1)), obs=y[rows])

    x, y = jnp.asarray(X), jnp.asarray(Y)
    assert split_padded(model, Call((x, y), {"z": Z}), dgp.MeanField(model))[2] == 4 / len(X)
