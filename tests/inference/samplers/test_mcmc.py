"""`run_mcmc`: the draws of NumPyro's `MCMC`, and runs that resume after an interruption."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from support.helpers import KEY, slow
from support.mcmc_runs import RUN, X, Y, assert_same, sampled, slope

import dgp_ppl as dgp
from dgp_ppl.inference.samplers.sghmc import SGHMC


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
from support.mcmc_runs import sampled
sampled(checkpoint={folder!r}, every=20, num_samples=100_000)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    """After two SIGKILLs at arbitrary steps the draws equal an uninterrupted run's."""
    folder = tmp_path / "run"
    program = KILLED.format(folder=str(folder))
    steps = [0]
    for extra in (0.0, 0.03):
        process = subprocess.Popen([sys.executable, "-c", program])
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
