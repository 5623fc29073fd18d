"""A fit that is killed goes on where it stopped, from a folder."""

import json
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from support.fits import DEEP, OPTIMIZER, X, Y, Z, shallow
from support.helpers import KEY, no_guide
from support.kills import kill_often

import dgp_ppl as dgp
from dgp_ppl.inference.svi._loop import TrainingLoop
from dgp_ppl.models import deep_gp, svgp


def assert_same(a, b):
    np.testing.assert_array_equal(a.losses, b.losses)
    assert a.params.keys() == b.params.keys()
    for x, y in zip(*map(jax.tree.leaves, (a.params, b.params)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def stop_after(monkeypatch):
    """Return a function that raises an error instead of the chunk with this number, from 0."""
    advance = TrainingLoop.advance

    def stop(number, error):
        calls = iter(range(number + 1))

        def stopped(self, *args):
            if next(calls) == number:
                raise error
            return advance(self, *args)

        monkeypatch.setattr(TrainingLoop, "advance", stopped)

    return stop


def test_a_fit_that_was_stopped_goes_on(tmp_path, monkeypatch, stop_after):
    """One call of the device identifies the fit; then there are chunks of four steps."""
    whole = shallow(18)
    stop_after(4, MemoryError)
    with pytest.raises(MemoryError):
        shallow(18, checkpoint=tmp_path, every=4)
    monkeypatch.undo()
    # The state before the last chunk is kept: its loss is known to be finite.
    assert json.loads((tmp_path / "latest.json").read_text())["steps"] == 8
    assert_same(shallow(18, checkpoint=tmp_path, every=4), whole)
    stop_after(1, AssertionError("a finished fit runs no step"))
    again = shallow(18, checkpoint=tmp_path, every=4)
    assert_same(again, whole)


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, stop_after):
    stop_after(3, KeyboardInterrupt)
    with pytest.raises(
        dgp.Interrupted, match="again with the same arguments: it resumes"
    ) as caught:
        shallow(18, checkpoint=tmp_path, every=4)
    assert caught.value.result.interrupted
    assert len(caught.value.result.losses) == 8
    monkeypatch.undo()
    assert_same(shallow(18, checkpoint=tmp_path, every=4), shallow(18))


def descending(w):
    """A loss that is NaN below w = -0.05; gradient descent lowers w by 0.1 per step."""
    w = numpyro.param("w", w)
    numpyro.factor("f", -w + 1e-6 * jnp.log(w + 0.05))


def test_the_last_finite_state_after_going_on(tmp_path, monkeypatch, stop_after):
    """A failed fit has the state of an uninterrupted one, also at the start of a chunk."""
    first, step = 0.9, 10

    def run(**options):
        with pytest.raises(dgp.NonFiniteLossError) as caught:
            dgp.fit(KEY, descending, no_guide, first, **options)
        return caught.value

    options = {"steps": 30, "optimizer": optax.sgd(0.1), "progress": False}
    whole = run(**options)
    stop_after(3, MemoryError)  # the third chunk of five steps
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
    with pytest.raises(dgp.DataError, match="holds another run: its arguments, first_loss differ"):
        shallow(6, start=shallow(5), checkpoint=tmp_path)


def test_another_fit_in_the_folder(tmp_path):
    first = shallow(6, checkpoint=tmp_path)
    for differing, options in {
        "optimizer": {"optimizer": optax.sgd(0.1)},
        "steps": {"steps": 7},
        "arguments": {"key": jax.random.key(5)},
    }.items():
        with pytest.raises(
            dgp.DataError, match=f"holds another run: its.* {differing}.* differ; t"
        ):
            shallow(**{"steps": 6, "checkpoint": tmp_path} | options)

    def shifted(x, y, z):
        svgp(x, y + 1, z=z)

    with pytest.raises(dgp.DataError, match="holds another run: its first_loss differ"):
        dgp.fit(
            KEY, shifted, dgp.MeanField(shifted), X, Y, z=Z, steps=6, optimizer=OPTIMIZER,
            checkpoint=tmp_path, progress=False,
        )  # fmt: skip
    assert_same(shallow(6, checkpoint=tmp_path), first)


PROGRAM = textwrap.dedent("""
    import sys
    import numpy as np
    import dgp_ppl as dgp
    from support.fits import DEEP, X, Y, Z
    from support.helpers import KEY
    from dgp_ppl.models import deep_gp

    fit = dgp.fit(KEY, deep_gp, DEEP, X, Y, z=[Z, Z], steps=16_000, batch_size=7, progress=False,
                  checkpoint=sys.argv[1], every=20)
""")


@pytest.mark.slow
def test_twenty_kills(tmp_path):
    """SIGKILL at random moments of the steps; the result equals an uninterrupted fit."""
    assert kill_often(PROGRAM, tmp_path) == 20
    assert json.loads((tmp_path / "latest.json").read_text())["steps"] < 16_000
    options = {"z": [Z, Z], "steps": 16_000, "batch_size": 7, "progress": False}
    resumed = dgp.fit(KEY, deep_gp, DEEP, X, Y, checkpoint=tmp_path, every=20, **options)
    assert_same(resumed, dgp.fit(KEY, deep_gp, DEEP, X, Y, **options))
