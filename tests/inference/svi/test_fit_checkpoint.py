"""A fit that is killed goes on where it stopped, from a folder."""

import errno
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import RenyiELBO
from support.fits import DEEP, OPTIMIZER, X, Y, Z, assert_same, descending, shallow
from support.helpers import KEY, no_guide

import dgp_ppl as dgp
from dgp_ppl.inference.runs import _identity
from dgp_ppl.inference.svi import _setup
from dgp_ppl.inference.svi._ending import has_settled
from dgp_ppl.models import deep_gp


def test_a_fit_that_was_stopped_goes_on(tmp_path, monkeypatch, stop_after):
    """Three calls of the device identify the fit; then there are chunks of four steps."""
    whole = shallow(18)
    stop_after(6, MemoryError)
    with pytest.raises(MemoryError):
        shallow(18, checkpoint=tmp_path, every=4)
    monkeypatch.undo()
    # The state before the last chunk is kept: its loss is known to be finite.
    assert json.loads((tmp_path / "latest.json").read_text())["steps"] == 8
    assert_same(shallow(18, checkpoint=tmp_path, every=4), whole)
    stop_after(0, AssertionError("a finished fit runs no step"))
    assert_same(shallow(18, checkpoint=tmp_path, every=4), whole)


def test_a_fit_that_has_settled_skips_to_the_decay_of_its_rates(tmp_path, monkeypatch, stop_after):
    """At a small cost in the bound; and so does a fit that was stopped, with the same bits."""
    monkeypatch.setattr(_setup, "_NATURAL_STEPS", 1000)
    early = shallow(None, optimizer=None)
    assert len(early.losses) < 900
    assert early.state.optim_state[0] == 1000
    stop_after(15, MemoryError)
    with pytest.raises(MemoryError):
        shallow(None, optimizer=None, checkpoint=tmp_path, every=30)
    monkeypatch.undo()
    monkeypatch.setattr(_setup, "_NATURAL_STEPS", 1000)
    assert_same(shallow(None, optimizer=None, checkpoint=tmp_path, every=30), early)
    stop_after(0, AssertionError("a finished fit runs no step"))
    assert_same(shallow(None, optimizer=None, checkpoint=tmp_path, every=30), early)
    monkeypatch.undo()
    whole = shallow(1000, optimizer=None)  # a given number
    assert len(whole.losses) == 1000
    assert whole.elbo_per_datum[-1] - early.elbo_per_datum[-1] < 0.0025


def test_losses_that_have_settled():
    steps, noise = np.arange(1, 601), np.random.default_rng(0).normal(0, 0.3, (2, 600))
    done, falls = (50 * (b + a / steps) + noise for b, a in ((1, 0.5), (2, 30)))
    assert has_settled(done[:1], 50)
    assert not has_settled(done[:1, :290], 50)
    assert not has_settled(falls[:1], 50)
    assert not has_settled(np.stack([done[0], falls[1]]), np.array([50, 50]))
    falls[1, 400:] = np.nan  # a fit that failed
    assert has_settled(np.stack([done[0], falls[1]]), np.array([50, 50]))


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, stop_after):
    stop_after(5, KeyboardInterrupt)
    with pytest.raises(
        dgp.Interrupted, match="again with the same arguments: it resumes"
    ) as caught:
        shallow(18, checkpoint=tmp_path, every=4)
    assert caught.value.result.interrupted
    assert len(caught.value.result.losses) == 8
    monkeypatch.undo()
    assert_same(shallow(18, checkpoint=tmp_path, every=4), shallow(18))


def test_the_last_finite_state_after_going_on(tmp_path, monkeypatch, stop_after):
    """A failed fit has the state of an uninterrupted one, also at the start of a chunk."""
    first, step = 0.9, 10

    def run(**options):
        with pytest.raises(dgp.NonFiniteLossError) as caught:
            dgp.fit(KEY, descending, no_guide, first, **options)
        return caught.value

    options = {"steps": 30, "optimizer": optax.sgd(0.1), "progress": False}
    whole = run(**options)
    stop_after(5, MemoryError)  # the third chunk of five steps
    with pytest.raises(MemoryError):
        dgp.fit(KEY, descending, no_guide, first, checkpoint=tmp_path, every=5, **options)
    monkeypatch.undo()
    found = run(checkpoint=tmp_path, every=5, **options)
    assert found.step == whole.step == step
    assert found.site == whole.site
    assert_same(found.result, whole.result)


def test_a_fit_that_continues_another(tmp_path):
    first = shallow(6)
    whole = shallow(6, start=first)
    assert_same(shallow(6, start=first, checkpoint=tmp_path), whole)
    with pytest.raises(dgp.DataError, match="holds another run: different arguments, start;"):
        shallow(6, start=shallow(5), checkpoint=tmp_path)


def fitted(folder, scale=1.0, nu=4.0, feature=jnp.sin, key=KEY, **options):
    """Fit a model of functions that are made anew."""

    def student(f, nu):
        return dist.StudentT(nu, f, 0.3)

    def model(x, y, likelihood):
        f = numpyro.sample("w", dist.Normal()) * feature(scale * x[:, 0])
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", likelihood(f), obs=y)

    def guide(x, y, likelihood):
        numpyro.sample("w", dist.Normal(numpyro.param("mean", 0.0), 1.0))

    options = {"steps": 6, "optimizer": OPTIMIZER, "loss": RenyiELBO(0.5)} | options
    return dgp.fit(
        key, model, guide, X, Y, checkpoint=folder, progress=False,
        likelihood=functools.partial(student, nu=nu), **options,
    )  # fmt: skip


def test_another_fit_in_the_folder(tmp_path, monkeypatch):
    """A fit is known by its program, so equal functions and partials go on."""
    first = fitted(tmp_path)
    assert_same(fitted(tmp_path), first)
    for differing, options in (
        ("program", {"optimizer": optax.adam(0.031)}),
        ("program", {"feature": jnp.tanh}),
        ("program", {"loss": RenyiELBO(0.4)}),
        ("program", {"nu": 4.001}),
        ("program", {"scale": 1.001}),
        ("steps", {"steps": 7}),
        ("arguments", {"key": jax.random.key(5)}),
    ):
        with pytest.raises(dgp.DataError, match=f"holds another run: different {differing}.*; t"):
            fitted(tmp_path, **options)
    # Under other versions, losses and gradients tell.
    monkeypatch.setattr(_identity, "package_versions", lambda: {"jax": "0.0", "dgp_ppl": "0.0"})
    for options in ({"feature": jnp.tanh}, {"scale": 1.001}):
        with pytest.raises(dgp.DataError, match="different losses or gradients"):
            fitted(tmp_path, **options)
    with pytest.warns(UserWarning, match=r"was begun with jax .*, now 0\.0"):
        assert_same(fitted(tmp_path), first)


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    """It is found before the first step; later the folder keeps the steps before, and goes on."""

    def full_after(number):
        writes = itertools.count()

        def write(file):
            if next(writes) >= number:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", write)

    for number, kept in ((1, "nothing has been run"), (7, "it keeps the first 4 steps")):
        full_after(number)
        with pytest.raises(dgp.DataError, match=f"cannot be written: No space left.*; {kept}"):
            shallow(18, checkpoint=tmp_path, every=4)
        assert len(list(tmp_path.iterdir())) == (1 if number == 1 else 5)  # none is unfinished
    monkeypatch.undo()
    assert_same(shallow(18, checkpoint=tmp_path, every=4), shallow(18))


OPTIONS = """
def student(f, df):
    return dist.StudentT(df, f, 0.3)

options = {
    "z": [Z, Z], "steps": 16_000, "batch_size": 7, "progress": False,
    "likelihood": functools.partial(student, df=4.0),
}
"""
PROGRAM = f"""
import functools, sys
import numpyro.distributions as dist
import dgp_ppl as dgp
from support.fits import DEEP, X, Y, Z
from support.helpers import KEY
from dgp_ppl.models import deep_gp
{OPTIONS}
dgp.fit(KEY, deep_gp, DEEP, X, Y, checkpoint=sys.argv[1], every=20, **options)
"""


@pytest.mark.slow
def test_twenty_kills(tmp_path):
    """SIGKILL at random moments of the steps; the result equals an uninterrupted fit."""
    moments, latest, kills = random.Random(0), tmp_path / "latest.json", 0
    steps = lambda: json.loads(latest.read_text())["steps"] if latest.exists() else 0  # noqa: E731
    for _ in range(20):
        process, before = subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path]), steps()
        while process.poll() is None and steps() == before:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.1))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills == 20
    assert json.loads((tmp_path / "latest.json").read_text())["steps"] < 16_000
    names: dict[str, Any] = {"Z": Z, "dist": dist, "functools": functools}
    exec(OPTIONS, names)
    options = names["options"]
    resumed = dgp.fit(KEY, deep_gp, DEEP, X, Y, checkpoint=tmp_path, every=20, **options)
    assert_same(resumed, dgp.fit(KEY, deep_gp, DEEP, X, Y, **options))
