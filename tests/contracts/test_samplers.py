"""What holds for every sampler: its draws and statistics in ArviZ, on a model that is not ours."""

import arviz_stats
import blackjax
import numpy as np
import pytest
from numpyro.infer import NUTS
from support.foreign_models import FOREIGN
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl.criticism import chain_diagnostics

MODEL, ARGS = FOREIGN["logistic"]
SAMPLERS = {
    "NUTS": lambda: NUTS(MODEL),
    "SGHMC": lambda: dgp.SGHMC(MODEL),
    "AdjustedMCLMC": lambda: dgp.AdjustedMCLMC(MODEL),
    "ParallelTempering": lambda: dgp.ParallelTempering(MODEL, num_temperatures=3),
    "BlackJAXKernel": lambda: dgp.BlackJAXKernel(
        MODEL, blackjax.nuts, adaptation=lambda d: blackjax.window_adaptation(blackjax.nuts, d)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_arviz_has_draws_and_statistics(name):
    """R-hat and the effective sample size of the tree equal the values of `chain_diagnostics`."""
    chains = dgp.run_mcmc(
        KEY, SAMPLERS[name](), *ARGS, num_warmup=100, num_samples=50, num_chains=4, progress=False
    )
    tree = dgp.to_inferencedata(KEY, MODEL, None, {}, *ARGS, posterior_samples=chains)
    posterior = tree["posterior"].to_dataset().astype(float)
    assert (posterior.sizes["chain"], posterior.sizes["draw"]) == (4, 50)
    assert "diverging" in tree["sample_stats"]
    found = chain_diagnostics(chains)
    for statistic, worst in ((arviz_stats.rhat, np.max), (arviz_stats.ess, np.min)):
        values = statistic(posterior)
        flat = np.concatenate([np.ravel(values[n]) for n in chains.samples])
        assert np.isfinite(flat).all()
        wanted = found["rhat" if statistic is arviz_stats.rhat else "ess"]
        np.testing.assert_allclose(worst(flat), wanted, rtol=1e-6)
