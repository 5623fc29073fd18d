"""`run_mcmc`: the draws of NumPyro's `MCMC`, and runs that resume after an interruption."""

import numpy as np
import pytest
from numpyro.infer import NUTS
from support.helpers import slow
from support.mcmc_runs import sampled, slope

from dgp_ppl.inference.samplers.sghmc import SGHMC


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
