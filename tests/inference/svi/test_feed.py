"""Fits to a source of rows: their steps, the bound, what is refused, and how killed ones go on."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.primitives import Messenger
from support.fits import OPTIMIZER, SHALLOW, assert_same
from support.helpers import assert_errors

import dgp_ppl as dgp
from dgp_ppl.datasets.rows._order import seed_of
from dgp_ppl.models import gplvm, svgp

KEY = jax.random.key(3)
N, B = 503, 10
Y = np.sort(np.random.default_rng(0).normal(size=N)).astype(np.float32)
X = np.stack([Y + 0.3, np.cos(7 * Y)], axis=1).astype(np.float32)
Z = X[::100]


def sorted_rows(buffer_rows=50, chunk_rows=4):
    """Return rows in the order of their targets, in windows far smaller than the data."""
    rows = dgp.Rows.from_arrays(X, Y, buffer_rows=buffer_rows)
    rows._reader.chunk_rows = chunk_rows
    return rows


def streamed(steps=20, rows=None, key=KEY, **options):
    options = {"optimizer": OPTIMIZER, "progress": False, "z": Z, "batch_size": B} | options
    rows = sorted_rows() if rows is None else rows
    return dgp.fit(key, svgp, SHALLOW, rows, steps=steps, **options)


class GivenRows(Messenger):
    """Makes the plate of arrays take given rows, as a draw of its own would."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers = numbers

    def process_message(self, msg):
        if msg["type"] == "plate" and msg["args"][1] is not None:
            msg["value"] = self.numbers


def test_a_step_equals_the_step_of_arrays_with_the_same_rows():
    """The losses equal stock SVI's on the whole arrays, whose plate takes the rows read."""
    rows, options = sorted_rows(), {"z": Z, "batch_size": B}
    found = streamed(3, rows)
    order = rows.order(seed_of(KEY), B)
    window = np.concatenate([np.arange(a, b) for a, b in order.intervals(0)])
    numbers = jnp.asarray(window[order.shuffle(0)])
    taken = [numbers[0]]

    def model(*args, **kwargs):
        with GivenRows(taken[0]):
            svgp(*args, **kwargs)

    data = (jnp.asarray(X), jnp.asarray(Y))
    svi = SVI(model, dgp.MeanField(model), OPTIMIZER, TraceMeanField_ELBO())
    state = svi.init(KEY, *data, **options)

    @jax.jit
    def update(state, numbers):
        taken[0] = numbers
        return svi.update(state, *data, **options)

    for i, value in enumerate(found.losses):
        state, expected = update(state, numbers[i])
        np.testing.assert_allclose(value, expected, rtol=2e-5)


def test_a_fit_goes_on_exactly_where_it_stopped():
    whole = streamed(30)
    first = streamed(13)
    rest = streamed(17, start=first, key=jax.random.key(9))
    np.testing.assert_array_equal(np.r_[first.losses, rest.losses], whole.losses)
    for name, value in whole.params.items():
        np.testing.assert_array_equal(rest.params[name], value)
    assert rest.position == whole.position == (seed_of(KEY), 30)
    assert (streamed(13, key=jax.random.key(9)).losses != first.losses).all()


def test_the_bound_of_a_source():
    """It is the mean over all rows, also where the targets of the last rows fit much worse."""
    fit, targets = streamed(20), Y + 1
    rows, options = dgp.Rows.from_arrays(X, targets), {"z": Z, "num_draws": 200}
    mean, error = dgp.evaluate(KEY, svgp, SHALLOW, fit, rows, batch_size=B, **options)
    exact, _ = dgp.evaluate(KEY, svgp, SHALLOW, fit, X, targets, z=Z, num_draws=2)
    assert abs(mean - exact) < 4 * error
    assert error < 0.1 * abs(exact)


def test_rows_that_cannot_be_observed_are_named():
    y = Y.copy()
    y[[77, 301]] = np.nan
    rows = dgp.Rows.from_arrays(X, y, buffer_rows=50)
    rows._reader.chunk_rows = 4
    # The message depends on which block is read first.
    with pytest.raises(dgp.DataError, match=r"argument 'y'.* is NaN in 1 of 200 rows \[(77|301)\]"):
        streamed(100, rows, batch_size=20)

    for bad in (np.nan, 1e39):
        x = np.where(np.arange(N)[:, None] == 77, bad, X.astype(float))
        with pytest.raises(dgp.DataError, match=r"^fit: column 0 of x: .* in row 77"):
            streamed(100, dgp.Rows.from_arrays(x, Y), batch_size=20)

    classes = np.where(np.arange(N) == 450, 3, np.arange(N) % 3)
    with pytest.raises(dgp.DataError, match=r"support of Categorical.* rows \[450\], first 3, wan"):
        dgp.fit(
            KEY, svgp, dgp.MeanField(svgp), dgp.Rows.from_arrays(X, classes), z=Z, batch_size=B,
            steps=60, out=3, likelihood=lambda f: dist.Categorical(logits=f), progress=False,
        )  # fmt: skip


def test_a_failing_disk_ends_the_fit():
    def fail(x, y):
        if len(x) > 1 and (y > 2.5).any():
            raise dgp.DataError("the disk is gone")
        return x, y

    with pytest.raises(dgp.DataError, match="the disk is gone"):
        streamed(200, sorted_rows().map(fail))


def test_what_is_refused():
    rows, fit = sorted_rows(), {"steps": 1, "progress": False, "z": Z}
    keys, latent = jax.random.split(KEY), dgp.Rows.from_arrays(X, X)
    assert_errors([
        (lambda: dgp.fit(KEY, svgp, SHALLOW, rows, **fit), "ValueError.*no batch_size, which"),
        (lambda: streamed(1, batch_size=N), "ValueError.*batch_size is 503, wanted fewer"),
        (lambda: dgp.fit(KEY, svgp, SHALLOW, X, rows, batch_size=B, **fit),
         "TypeError.*wanted one Rows"),
        (lambda: streamed(1, restarts=2), "ValueError.*restarts is 2, wanted 1 with Rows"),
        (lambda: dgp.fit_many(keys, svgp, SHALLOW, rows, batch_size=B, **fit),
         "TypeError: fit_many: an argument is Rows, wanted arrays in memory"),
        (lambda: dgp.run_mcmc(KEY, dgp.SGHMC(svgp), rows, z=Z, num_warmup=1, num_samples=1),
         "TypeError: run_mcmc: an argument is Rows, wanted arrays in memory"),
        (lambda: dgp.predict(KEY, svgp, SHALLOW, streamed(1), rows, z=Z),
         r"TypeError.*Rows\(503 rows of \[2\], \[\]\) are not in memory"),
        (lambda: dgp.fit(KEY, gplvm, dgp.MeanField(gplvm), latent, out=2, z=(np.c_[X, X][:5],),
                         batch_size=B, steps=1),
         "ValueError.*site 'latent' is a latent value of each row"),
    ])  # fmt: skip


def test_a_model_without_minibatches_is_told_so():
    def model(x, y, *, batch_size):
        numpyro.sample("y", dist.Normal(x[:, 0], 1.0), obs=y)

    with pytest.raises(TypeError, match=r"of which only 10 rows.*take them in the plate"):
        dgp.fit(KEY, model, AutoNormal(model), sorted_rows(), batch_size=B, steps=1)


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_fit_that_was_stopped_goes_on(tmp_path, monkeypatch, stop_after, chunks):
    whole = streamed(18)
    stop_after(chunks + 3, MemoryError)  # three calls identify the fit
    with pytest.raises(MemoryError):
        streamed(18, checkpoint=tmp_path, every=4)
    monkeypatch.undo()
    latest = json.loads((tmp_path / "latest.json").read_text())
    assert (latest["steps"] > 0) == (chunks > 1)
    assert_same(streamed(18, checkpoint=tmp_path, every=4), whole)
    assert_same(streamed(18, checkpoint=tmp_path, every=4), whole)


def test_rows_that_the_first_minibatch_does_not_have_count_too(tmp_path):
    streamed(6, checkpoint=tmp_path)
    order = sorted_rows().order(seed_of(KEY), B)
    window = np.concatenate([np.arange(a, b) for a, b in order.intervals(0)])
    first = window[order.shuffle(0)[0]]
    y = Y + 1
    y[first] = Y[first]
    rows = dgp.Rows.from_arrays(X, y, buffer_rows=50)
    rows._reader.chunk_rows = 4
    with pytest.raises(dgp.DataError, match="holds another run: different source;"):
        streamed(6, rows, checkpoint=tmp_path)
    assert_same(streamed(6, checkpoint=tmp_path), streamed(6))


def test_functions_of_map_count(tmp_path):
    """Also where the first minibatch does not have the rows that they change."""

    def mapped(most):
        rows = dgp.Standardizer.fit(X, Y).rows(sorted_rows())
        return rows.map(lambda x, y: (x, np.minimum(y, most)))

    streamed(6, mapped(1.0), checkpoint=tmp_path)
    streamed(6, mapped(1.0), checkpoint=tmp_path)
    with pytest.raises(dgp.DataError, match="holds another run: different source"):
        streamed(6, mapped(1.1), checkpoint=tmp_path)
