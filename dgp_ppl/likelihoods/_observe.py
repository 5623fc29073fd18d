"""Likelihoods of a latent f with Gaussian marginals: any NumPyro distribution p(y | f).

``numpyro.sample("y", observe(f(x), lambda f: dist.Poisson(jnp.exp(f))), obs=y)`` has two meanings.
Under a guide its log density is E[log p(y | f)], the data term of the variational bound. Without a
guide it is log E[p(y | f)], the log density of y. Both expectations are over the marginals of f.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._checks import as_array, check_counts, check_kind, is_traced
from dgp_ppl._typing import PRNGKey
from dgp_ppl.core._dependence import dependence
from dgp_ppl.core._marginals import Marginals
from dgp_ppl.core._minibatch import real_rows
from dgp_ppl.likelihoods._analytic import AnalyticLikelihood
from dgp_ppl.likelihoods._counts import draw, whole
from dgp_ppl.likelihoods._likelihood_sites import call_likelihood, check_nodes, is_impossible
from dgp_ppl.likelihoods._mixture import EntriesMixture, LatentMixture, Mixture, with_entries
from dgp_ppl.likelihoods._quadrature import TRAPEZOID, expectation, log_expectation
from dgp_ppl.likelihoods._survival import with_exact_tails
from dgp_ppl.linalg._products import deviation

# Predictions take more draws: the log of a Monte Carlo mean is biased, the mean of a log is not.
_DENSE_DRAWS = 4
# Values of f that are tried before the data are called impossible: no links are 0 or 1 there.
_TRIED = np.concatenate([[-a, a] for a in (0.011, 0.11, 1.1, 3.3, 11.0, 33.0, 110.0, 1100.0)])

Likelihood = Callable[[Array], dist.Distribution]
"""A function from f, [..., N] or [..., N, P], to the distribution of y given f."""


class Observed(dist.Distribution):
    """The distribution of y for a latent f with Gaussian marginals. `observe` makes it.

    Attributes:
        marginals: mean and variance of f, [N, P].
        likelihood: the function from f to the distribution of y.
        latent_mean: mean of f, [N] if P = 1, else [N, P].
        latent_var: variance of f, of the same shape.
        obs_mask: True where y was observed, [N] or [N, P]; None if all of y was.
        skips_padding: whether the mask leaves out the padding of the minibatch at hand.
    """

    pytree_data_fields = (
        "marginals", "key", "latent_mean", "latent_var", "at_mean", "normal_scale", "obs_mask",
    )  # fmt: skip
    pytree_aux_fields = (
        "likelihood", "num_nodes", "num_draws", "scalar", "analytic", "skips_padding",
    )  # fmt: skip

    def __init__(
        self,
        marginals: Marginals,
        likelihood: Likelihood,
        num_nodes: int,
        num_draws: int,
        key: PRNGKey | None,
        mask: ArrayLike | Sequence[bool] | None = None,
        skips_padding: bool = False,
    ) -> None:
        N, P = marginals.mean.shape
        self.marginals = marginals
        self.num_nodes, self.num_draws, self.key = num_nodes, num_draws, key
        self.scalar = P == 1
        self.latent_mean = marginals.mean[:, 0] if self.scalar else marginals.mean
        self.latent_var = marginals.var[:, 0] if self.scalar else marginals.var
        self.at_mean, self.likelihood = call_likelihood(likelihood, self.latent_mean)
        kind, wanted = dist.Distribution, "one of NumPyro's distributions"
        check_kind("observe", "the value of the likelihood", self.at_mean, kind, wanted)
        if (exact := with_exact_tails(self.at_mean)) is not self.at_mean:
            numpyros, self.at_mean = self.likelihood, exact
            self.likelihood = lambda f: with_exact_tails(numpyros(f))
        if self.at_mean.batch_shape != (N,):
            hint = (
                "one distribution per row; for several outputs add .to_event(1)"
                if self.at_mean.batch_shape == (N, P)
                else "one of classes wants out=C of the last layer; arrays that it closes over "
                "are scalars or have one row per row of x, taken inside the same minibatch"
            )
            raise ValueError(
                f"observe: the likelihood has batch shape {self.at_mean.batch_shape} for a latent "
                f"of shape {self.latent_mean.shape}, wanted ({N},): {hint}"
            )
        self.normal_scale = self._constant_normal_scale()
        self.analytic = self._is_analytic()
        if self.normal_scale is None and not self.analytic:
            check_nodes(self.likelihood, self.latent_mean, (N,))
        self.obs_mask = self._checked_mask(mask)
        self.skips_padding = skips_padding
        super().__init__((N,), self.at_mean.event_shape)

    @property
    def support(self) -> Any:
        return self.at_mean.support

    @property
    def estimated(self) -> bool:
        """Whether log densities are Monte Carlo estimates."""
        return not self.scalar and self.normal_scale is None and not self.analytic

    def log_prob(self, value: ArrayLike) -> Float[Array, "*steps N"]:
        """Return E[log p(y | f)] under a guide and log E[p(y | f)] without one, [N] in nats."""
        if self.marginals.guided:
            return self._evaluate(Observed._expected_log_likelihood, value)
        return self.log_density(value)

    def log_density(self, value: ArrayLike) -> Float[Array, "*steps N"]:
        """Return log E[p(y | f)], with a guide and without one, [N] in nats."""
        return self._evaluate(Observed._log_expected_likelihood, value)

    def _evaluate(self, log_prob: Callable[[Observed, Array], Array], value: ArrayLike) -> Array:
        """Evaluate a log density, with 0 for rows that were not observed."""
        value = jnp.asarray(as_array("observe", "y", value))
        if self.marginals.mean.ndim > 2:  # NumPyro's `scan` has stacked the steps' distributions
            return jax.vmap(lambda d, y: d._evaluate(log_prob, y))(self, value)
        wanted, support = self.batch_shape + self.event_shape, self.support
        if value.shape != wanted:
            hint = "; pass y[:, 0]" if value.shape == (*self.batch_shape, 1) else ""
            raise ValueError(
                f"observe: y has shape {value.shape}, wanted {wanted} for these marginals and this "
                f"likelihood{hint}"
            )
        if (mask := self.obs_mask) is not None:
            # A missing value may be NaN or off the support: replace it before differentiating.
            observed = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
            value = jnp.where(observed, value, support.feasible_like(value))
        if support.is_discrete:
            inside, value = whole(support, value)
            terms = jnp.where(inside, log_prob(self, value), -jnp.inf)
        else:
            terms = log_prob(self, value)
        return jnp.where(mask, terms, 0.0) if mask is not None and mask.ndim == 1 else terms

    def is_impossible(self, value: ArrayLike) -> Array:
        """Return where a row of y has no finite density for any of many values of f, [N]."""
        return self._evaluate(Observed._lacks_density, value) != 0

    def _lacks_density(self, value: Array) -> Array:
        P = self.marginals.mean.shape[1]
        apart = np.random.default_rng(0).standard_normal((len(_TRIED), P)) * _TRIED[:, None]
        tried = [*_TRIED, *([] if self.scalar else apart)]  # outputs that are equal, and others
        f = jnp.stack([jnp.full_like(self.latent_mean, a) for a in tried])
        if value.shape == self.latent_mean.shape:  # y itself, where links may be 0 or 1, nearly
            f = jnp.concatenate([f, jnp.stack([value - 1e-4, value + 1e-4]).astype(f.dtype)])
        return is_impossible(self._without_missing_entries(self.likelihood(f)), value)

    def _log_expected_likelihood(self, value: Array) -> Array:
        if self.scalar and self.normal_scale is None and not self.analytic:
            return log_expectation(*self._integrand(value))
        mixture = self.predictive()
        components = self._without_missing_entries(mixture.components)
        return Mixture(mixture.log_weights, components).log_prob(value)

    def _expected_log_likelihood(self, value: Array) -> Array:
        if self.normal_scale is not None:
            # E log N(y; f, s²) = log N(y; mu, s²) - v / (2 s²)
            terms = dist.Normal(self.latent_mean, self.normal_scale).log_prob(value)
            terms = terms - 0.5 * self.latent_var / jnp.square(self.normal_scale)
            if self.scalar:
                return terms
            if self.obs_mask is not None and self.obs_mask.ndim == 2:
                terms = jnp.where(self.obs_mask, terms, 0.0)
            return jnp.sum(terms, axis=-1)
        if self.analytic:
            at_mean: Any = self._without_missing_entries(self.at_mean)
            terms = at_mean.expected_log_prob(self.latent_var, value, self.num_nodes)
            if terms is not None:
                return terms
        if self.scalar:
            given: Any = self.likelihood
            possible = lambda f: jnp.broadcast_to(given(f).support(value), f.shape)  # noqa: E731
            return expectation(*self._integrand(value), self.num_nodes, possible)
        log_weights, f = self._nodes()
        terms = self._without_missing_entries(self.likelihood(f)).log_prob(value)
        return jnp.tensordot(jnp.exp(log_weights), terms, axes=1, precision=lax.Precision.HIGHEST)

    def _integrand(self, value: Array) -> tuple[Callable[[Array], Array], Array, Array]:
        """Return log p(y | f) as a function of f, and the mean and standard deviation of f."""
        log_p: Any = lambda f: self.likelihood(f).log_prob(value)  # noqa: E731
        return log_p, self.latent_mean, deviation(self.latent_var)

    def _without_missing_entries(self, distribution: Any) -> Any:
        """Mask the entries of a distribution, if the mask is one of entries."""
        if self.obs_mask is None or self.obs_mask.ndim == 1:
            return distribution
        return with_entries(distribution, self.obs_mask)

    def _checked_mask(self, mask: ArrayLike | Sequence[bool] | None) -> Array | None:
        """Check that a mask is one of rows, or of entries that a likelihood can leave out."""
        if mask is None:
            return None
        mask, at_mean = jnp.asarray(mask, bool), self.at_mean
        wanted = [at_mean.batch_shape]
        apart = type(at_mean) is dist.Independent or hasattr(at_mean, "with_entries")
        if apart and len(at_mean.event_shape) == 1:
            wanted.append(at_mean.batch_shape + at_mean.event_shape)
        if mask.shape not in wanted:
            raise ValueError(
                f"observe: mask has shape {mask.shape}, wanted {' or '.join(map(str, wanted))} for "
                "this likelihood: True where y was observed; take it inside the same minibatch"
            )
        return mask

    def predictive(self) -> Mixture:
        """Return the distribution of y with f integrated out.

        It has one component if a closed form exists, and otherwise one per node or draw of f.
        """
        log_one = jnp.zeros((1,), self.latent_mean.dtype)
        if self.normal_scale is not None:
            sd = jnp.sqrt(self.latent_var + jnp.square(self.normal_scale))
            normal = dist.Normal(self.latent_mean[None], sd[None])
            return Mixture(log_one, normal if self.scalar else normal.to_event(1))
        if self.analytic:
            analytic: Any = self.likelihood(self.latent_mean[None])
            return Mixture(log_one, analytic.predictive(self.latent_var[None]))
        log_weights, f = self._nodes(dense=True)
        kind = LatentMixture if self.scalar else EntriesMixture
        sd = deviation(self.latent_var)
        return kind.build(log_weights, f, self.likelihood, self.latent_mean, sd)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw f from its marginals, then y given f; sample_shape + [N, ...]."""

        def one(key: PRNGKey) -> Array:
            if getattr(self.at_mean, "is_of_y", False):  # y given f is not known
                return self.predictive().sample(key)
            key_f, key_y = random.split(key)
            noise = random.normal(key_f, self.latent_mean.shape, self.latent_mean.dtype)
            f = self.latent_mean + deviation(self.latent_var) * noise
            return draw(self.likelihood(f), key_y)

        if not sample_shape:
            return one(key)
        draws = jax.vmap(one)(random.split(key, int(np.prod(sample_shape))))
        return draws.reshape(sample_shape + draws.shape[1:])

    @property
    def mean(self) -> Array:
        return self.predictive().mean

    @property
    def variance(self) -> Array:
        return self.predictive().variance

    def _constant_normal_scale(self) -> ArrayLike | None:
        """Return s if the likelihood is ``Normal(f, s)`` and s does not depend on f, else None."""
        base = _elementwise(self.at_mean, self.scalar)
        if type(base) is not dist.Normal or base.loc is not self.latent_mean:
            return None
        scale_at = lambda f: _elementwise(self.likelihood(f), self.scalar).scale  # noqa: E731
        scale: Any = base.scale
        [[depends]] = dependence(scale_at, self.latent_mean)
        return None if depends else scale

    def _is_analytic(self) -> bool:
        """Return whether closed forms hold: `latent` is f, and nothing else depends on f."""
        at_mean = self.at_mean
        if not isinstance(at_mean, AnalyticLikelihood) or at_mean.latent is not self.latent_mean:
            return False

        def others(f: Array) -> list[Array]:
            given: Any = self.likelihood(f)
            arrays = [a for a in jax.tree.leaves(vars(given)) if isinstance(a, jax.Array)]
            return [a for a in arrays if a is not given.latent]

        return not any(depends for [depends] in dependence(others, self.latent_mean))

    def _nodes(self, dense: bool = False) -> tuple[Float[Array, " Q"], Array]:
        """Return log weights [Q] and f [Q, N, ...]: Gauss-Hermite nodes, `dense` ones, or draws."""
        sd = deviation(self.latent_var)
        if self.scalar:
            x, w = np.polynomial.hermite_e.hermegauss(self.num_nodes)
            if dense:
                x, w = TRAPEZOID, np.exp(-0.5 * TRAPEZOID**2)
            x, log_weights = (jnp.asarray(a, sd.dtype) for a in (x, np.log(w / w.sum())))
            return log_weights, self.latent_mean[None] + sd[None] * x[:, None]
        if self.key is None:
            raise ValueError(
                "observe: a latent with several outputs is integrated by Monte Carlo and needs a "
                "random key: run the model under numpyro.handlers.seed, or through SVI or MCMC"
            )
        num = _DENSE_DRAWS * self.num_draws if dense else self.num_draws
        # Rows come first: the noise of a row does not depend on the number of rows behind it.
        eps = random.normal(self.key, (len(sd), num, *sd.shape[1:]), sd.dtype)
        f = self.latent_mean[None] + sd[None] * jnp.moveaxis(eps, 1, 0)
        return jnp.full((num,), -jnp.log(num)), f


def as_observed(distribution: Any) -> Observed | None:
    """Return the `Observed` of a site's ``fn``, without `handlers.mask`; None if there is none."""
    masked = isinstance(distribution, dist.MaskedDistribution)
    inner = distribution.base_dist if masked else distribution
    return inner if isinstance(inner, Observed) else None


def log_density(distribution: Any, value: ArrayLike) -> Array:
    """Return log p(y) of a sample site in nats, with the latent f integrated out.

    It differs from ``distribution.log_prob(value)`` for sites of `observe` under a guide, whose
    `log_prob` is the expected log-likelihood.

    Args:
        distribution: the ``fn`` of a site.
        value: y.
    """
    observed = as_observed(distribution)
    if observed is None:
        return getattr(distribution, "log_density", distribution.log_prob)(value)
    terms = observed.log_density(value)
    if observed is distribution:
        return terms
    return jnp.where(distribution._mask, terms, 0.0)


def _elementwise(distribution: Any, scalar: bool) -> Any:
    """Undo the ``.to_event(1)`` of a distribution of several outputs."""
    independent = not scalar and type(distribution) is dist.Independent
    return distribution.base_dist if independent else distribution


def observe(
    marginals: Marginals,
    likelihood: Likelihood,
    *,
    num_nodes: int = 20,
    num_draws: int = 5,
    mask: ArrayLike | Sequence[bool] | None = None,
) -> Observed:
    """Make the distribution of y from the marginals of f and a likelihood p(y | f).

    Under a guide its `log_prob` is the expected log-likelihood E[log p(y | f)]. Without a guide it
    is log E[p(y | f)]. ``Normal(f, s)`` and subclasses of `likelihoods.AnalyticLikelihood` have
    closed forms if nothing else in them depends on f. All others use quadrature if f is scalar
    (P = 1), and Monte Carlo if not. Moments of independent entries with a latent each are exact;
    those of entries that share latents are of few draws under an exponential link, of which
    predictions warn.

    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import dgp_ppl as dgp
    >>> f = dgp.Marginals(mean=jnp.zeros((3, 1)), var=jnp.ones((3, 1)))
    >>> y = dgp.observe(f, lambda f: dist.Poisson(jnp.exp(f)))
    >>> y.log_prob(jnp.array([0, 2, 1])).shape
    (3,)

    Args:
        marginals: mean and variance of f, [N, P] each; call the last layer, ``f(x)``, or add
            several, ``f(x) + 2 * g(x)``.
        likelihood: a function from f to a NumPyro distribution with batch shape [N]. f is [N] if
            P = 1 and [N, P] otherwise. The function must broadcast, because quadrature and Monte
            Carlo call it with [Q, N] or [Q, N, P]. It may have params and latent sites of its own.
        num_nodes: number of Gauss-Hermite nodes for the expected log-likelihood.
        num_draws: number of Monte Carlo draws for the expected log-likelihood, with a key from
            `numpyro.prng_key`. The log of an expectation takes four times as many.
        mask: True where y was observed, [N], or [N, P] for a likelihood with independent entries
            (``.to_event(1)``). Missing values, which may be NaN, add nothing to the log density.
            Draws and predictions ignore the mask.

    Returns:
        A distribution with batch shape [N] and the event shape of the likelihood.

    Raises:
        ValueError: if the likelihood's batch shape is not [N], or not [Q, N] for many values of f,
            or the mask has another shape.
        TypeError: if `marginals` is an array (pass ``f(x)``, not ``f.sample(x)``), or `likelihood`
            is no function that returns a distribution.

    Source: Hensman, Matthews & Ghahramani (2015); Salimbeni & Deisenroth (2017), section 3.
    """
    check_kind(
        "observe", "marginals", marginals, Marginals,
        "Marginals: pass f(x) of the last layer, not f.sample(x)",
    )  # fmt: skip
    if not callable(likelihood) or isinstance(likelihood, dist.Distribution):
        raise TypeError(
            f"observe: likelihood is a {type(likelihood).__name__}, wanted a function of f, such "
            "as lambda f: dist.Poisson(jnp.exp(f))"
        )
    check_counts("observe", num_nodes=num_nodes, num_draws=num_draws)
    key = numpyro.prng_key() if marginals.mean.shape[-1] > 1 else None
    obs_mask = None if mask is None else jnp.asarray(as_array("observe", "mask", mask))
    if not (is_traced(obs_mask) or np.isin(0 if obs_mask is None else obs_mask, (0, 1)).all()):
        raise ValueError("observe: mask has other values than True (observed) and False")
    if (real := real_rows()) is not None:
        shape = real.shape if obs_mask is None else real.shape + (1,) * (obs_mask.ndim - 1)
        obs_mask = real if obs_mask is None else obs_mask & real.reshape(shape)
    return Observed(marginals, likelihood, num_nodes, num_draws, key, obs_mask, real is not None)
