"""A model whose posterior is far from the prior's centre."""

import numpyro
import numpyro.distributions as dist

import dgp_ppl as dgp


def far(y, batch_size=None):
    mean, sd = numpyro.sample("mean", dist.Normal(0, 100)), numpyro.sample("sd", dist.HalfNormal(5))
    with dgp.minibatch(y, batch_size=batch_size) as y:
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)
