"""`run_mcmc`: the draws of NumPyro's `MCMC`, and runs that resume after an interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.infer import MCMC, NUTS
from support.helpers import KEY, slow

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._sghmc import SGHMC


def slope(x, y, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        numpyro.sample("y", dist.Normal(x @ w, s), obs=y)


X = random.normal(KEY, (60, 3))
Y = X @ jnp.array([1.0, -0.5, 0.2]) + 0.3 * random.normal(random.key(1), (60,))
RUN = {"num_warmup": 300, "num_samples": 100, "thinning": 4, "num_chains": 2, "progress": False}


def sampled(kernel=None, **options):
    kernel = SGHMC(slope) if kernel is None else kernel
    return run_mcmc(KEY, kernel, X, Y, **({"batch_size": 20} | RUN | options))


def assert_same(a, b):
    for name in a.samples:
        np.testing.assert_array_equal(a.samples[name], b.samples[name])
    keys = [random.key_data(run.state.rng_key) for run in (a, b)]
    np.testing.assert_array_equal(*keys)


@pytest.mark.slow
def test_it_is_numpyros_mcmc():
    """The same draws as `MCMC(..., chain_method="vectorized")` from the same keys, by NUTS."""
    mcmc = MCMC(
        NUTS(slope), num_warmup=100, num_samples=80, thinning=2, num_chains=2,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(KEY, X, Y, extra_fields=("num_steps",))
    options = {"num_warmup": 100, "num_samples": 40, "thinning": 2, "batch_size": None}
    own = sampled(NUTS(slope), extra_fields=("num_steps",), **options)
    for ours, theirs in ((own.get_samples(), mcmc.get_samples()),
                         (own.get_extra_fields(), mcmc.get_extra_fields())):  # fmt: skip
        assert set(ours) == set(theirs)
        for name, a in theirs.items():
            np.testing.assert_allclose(ours[name], a, rtol=2e-4, atol=2e-5)
    assert own.get_samples(group_by_chain=True)["w"].shape == (2, 40, 3)
    assert (own.get_samples()["s"] > 0).all()


@pytest.mark.slow
def test_it_goes_on_from_numpyros_mcmc():
    """NumPyro's state of a single chain has no axis for chains; `from_mcmc` adds it."""
    mcmc = MCMC(SGHMC(slope), num_warmup=50, num_samples=10, progress_bar=False)
    mcmc.run(KEY, X, Y, batch_size=20)
    first = dgp.Chains.from_mcmc(mcmc)
    options = {"num_warmup": 0, "num_samples": 10, "thinning": 1, "num_chains": 1}
    second = sampled(start=first.state, **options)
    assert first.shape == second.shape == (1, 10)
    np.testing.assert_array_equal(second.state.i, first.state.i + 10)
    assert abs(second.samples["w"][0, 0] - first.samples["w"][0, -1]).max() < 0.2


@pytest.mark.slow
def test_thinning_takes_every_so_many_draws():
    whole, part = sampled(num_samples=400, thinning=1), sampled()
    np.testing.assert_array_equal(whole.samples["w"][:, 3::4], part.samples["w"])


@pytest.mark.parametrize("kind", [SGHMC, slow(NUTS)])
def test_two_runs_make_one(kind):
    """A new kernel continues from the state of an earlier run, without warm-up."""
    own = {"batch_size": 20 if kind is SGHMC else None}
    whole, first = sampled(kind(slope), **own), sampled(kind(slope), num_samples=40, **own)
    second = sampled(kind(slope), num_samples=60, num_warmup=0, start=first.state, **own)
    both = np.concatenate([first.samples["w"], second.samples["w"]], axis=1)
    np.testing.assert_array_equal(whole.samples["w"], both)


@pytest.mark.slow
def test_a_finished_run_is_read_and_made_longer(tmp_path):
    first = sampled(num_samples=40, checkpoint=tmp_path / "run", every=50)
    again = sampled(num_samples=40, checkpoint=tmp_path / "run", every=50)
    assert_same(first, again)
    longer = sampled(checkpoint=tmp_path / "run", every=50)
    assert_same(longer, sampled())


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_mcmc import SGHMC, sampled, slope
sampled(checkpoint={folder!r}, every=20, num_samples=100_000)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    """After two SIGKILLs at arbitrary steps the draws are those of an uninterrupted run."""
    folder = tmp_path / "run"
    program = KILLED.format(tests=str(Path(__file__).parent), folder=str(folder))
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    steps = [0]
    for extra in (0.0, 0.03):
        process = subprocess.Popen([sys.executable, "-c", program], env=environment)
        while latest(folder) <= steps[-1] + 200:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(extra)
        process.send_signal(signal.SIGKILL)
        process.wait()
        steps.append(latest(folder))
    assert steps == sorted(set(steps))
    done = (steps[-1] - RUN["num_warmup"]) // RUN["thinning"]
    assert done >= 1
    resumed = sampled(checkpoint=folder, num_samples=done + 30)
    assert_same(resumed, sampled(num_samples=done + 30))


def latest(folder):
    try:
        return json.loads((folder / "latest.json").read_text())["steps"]
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_another_run_in_the_folder(tmp_path):
    """The error names the difference, and the folder stays intact."""
    first = sampled(num_samples=5, checkpoint=tmp_path / "run")
    for differing, options in (
        ("thinning", {"thinning": 2}),
        ("options", {"kernel": SGHMC(slope, friction=0.3)}),
        ("arguments", {"batch_size": 10}),
    ):
        with pytest.raises(dgp.DataError, match=f"holds another run: its {differing}"):
            sampled(**({"num_samples": 5, "checkpoint": tmp_path / "run"} | options))
    assert_same(first, sampled(num_samples=5, checkpoint=tmp_path / "run"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(dgp.DataError, match="not empty and holds no run"):
        sampled(checkpoint=tmp_path / "other")
    draws, latest = (tmp_path / "run" / n for n in ("draws-0.npz", "latest.json"))
    for path, broken in (
        (draws, draws.read_bytes()[:200]),
        (draws, b"PK"),
        (latest, b"{}"),
        (latest, b"[1"),
    ):
        whole = path.read_bytes()
        path.write_bytes(broken)
        with pytest.raises(dgp.DataError, match="is damaged"):
            sampled(num_samples=5, checkpoint=tmp_path / "run")
        path.write_bytes(whole)


def test_another_model_in_the_folder(tmp_path):
    """Functions cannot be compared, but the energies they compute can."""

    def shifted(x, y, batch_size=None):
        slope(x, y + 1, batch_size)

    sampled(num_samples=5, checkpoint=tmp_path / "run")
    with pytest.raises(dgp.DataError, match="holds another run: its energy differ"):
        sampled(SGHMC(shifted), num_samples=5, checkpoint=tmp_path / "run")


def test_a_start_needs_no_warm_up():
    with pytest.raises(ValueError, match="num_warmup is 300, wanted 0 where start is given"):
        sampled(start=sampled(num_samples=1).state)


@pytest.mark.parametrize("name", ["num_samples", "thinning", "num_chains", "every"])
def test_wrong_numbers(name):
    with pytest.raises(ValueError, match=f"run_mcmc: {name} is 0, wanted at least 1"):
        sampled(**{name: 0})
