"""The base class of likelihoods that compute their expectations over a Gaussian f."""

from __future__ import annotations

import numpyro.distributions as dist
from jaxtyping import Array


class AnalyticLikelihood(dist.Distribution):
    """Base class of likelihoods p(y | f) that compute expectations over f ~ N(latent, diag(var)).

    `observe` calls the methods below if the likelihood function returns an instance whose `latent`
    is f itself and none of whose other arrays depends on f. `BernoulliProbit` is a short example.

    Attributes:
        latent: f, of shape [..., N], or [..., N, P] for likelihoods of several outputs.
    """

    latent: Array

    def predictive(self, var: Array) -> dist.Distribution:
        """Return the distribution of y with f integrated out.

        Args:
            var: variance of f, of the shape of `latent`; its mean is `latent`.
        """
        raise NotImplementedError

    def expected_log_prob(self, var: Array, value: Array, num_nodes: int) -> Array | None:
        """Return E[log p(y | f)] in nats, or None to leave it to quadrature over a scalar f.

        Args:
            var: variance of f, of the shape of `latent`; its mean is `latent`.
            value: y, of the batch and event shape of the likelihood.
            num_nodes: number of quadrature nodes, for likelihoods that need them.
        """
        return None
