"""Likelihoods with a Gaussian latent: any NumPyro distribution over y, given f.

``numpyro.sample("y", observe(f, lambda f: dist.Poisson(jnp.exp(f))), obs=y)``: under a guide its
log density is the expected log-likelihood E_{N(f)}[log p(y | f)], the data term of the variational
bound; without a guide it is log E_{N(f)}[p(y | f)], the log density of y itself.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.core._gp import Marginals
from dgp_ppl.core._mixture import Mixture
from dgp_ppl.likelihoods import Latent

__all__ = ["Observed", "as_observed", "log_density", "observe"]

_DENSE_NODES = 160  # even: none at the mean itself, where NumPyro's logits have a wrong gradient
_DENSE_DRAWS = 4  # times as many: the log of a mean is biased where the mean of a log is not

Likelihood = Callable[[Array], dist.Distribution]


class Observed(dist.Distribution):
    """The distribution of y whose latent f has Gaussian marginals. Made by `observe`."""

    pytree_data_fields = (
        "marginals",
        "key",
        "latent_mean",
        "latent_var",
        "at_mean",
        "noise",
        "seen",
    )
    pytree_aux_fields = ("likelihood", "num_nodes", "num_draws", "scalar", "knows")

    def __init__(
        self,
        marginals: Marginals,
        likelihood: Likelihood,
        num_nodes: int,
        num_draws: int,
        key: PRNGKey | None,
        mask: Array | None = None,
    ) -> None:
        N, P = marginals.mean.shape
        self.marginals, self.likelihood = marginals, likelihood
        self.num_nodes, self.num_draws, self.key = num_nodes, num_draws, key
        self.scalar = P == 1
        self.latent_mean = marginals.mean[:, 0] if self.scalar else marginals.mean
        self.latent_var = marginals.var[:, 0] if self.scalar else marginals.var
        self.at_mean = likelihood(self.latent_mean)
        if self.at_mean.batch_shape != (N,):
            hint = (
                "one distribution per row; for several outputs add .to_event(1)"
                if self.at_mean.batch_shape == (N, P)
                else "arrays that the likelihood closes over must be scalars or have one row per "
                "row of x: take them inside the same minibatch"
            )
            raise ValueError(
                f"observe: the likelihood has batch shape {self.at_mean.batch_shape} for a latent "
                f"of shape {self.latent_mean.shape}, wanted ({N},): {hint}"
            )
        self.noise = self._normal_scale()
        law = self.at_mean
        self.knows = isinstance(law, Latent) and law.latent is self.latent_mean
        self.seen = self._checked(mask)
        super().__init__((N,), self.at_mean.event_shape)

    @property
    def support(self) -> Any:
        return self.at_mean.support

    @property
    def estimated(self) -> bool:
        """Whether log densities are Monte Carlo estimates, drawn with the key."""
        return not self.scalar and self.noise is None and not self.knows

    def log_prob(self, value: ArrayLike) -> Float[Array, " N"]:
        """The expected log-likelihood under a guide, else the log expected likelihood, [N]."""
        expected = self.marginals.guided
        return self._each(value, lambda law: law._expected if expected else law._density)

    def log_density(self, value: ArrayLike) -> Float[Array, " N"]:
        """The log expected likelihood, under a guide too: log p(y) of these marginals, [N]."""
        return self._each(value, lambda law: law._density)

    def _each(
        self, value: ArrayLike, terms: Callable[["Observed"], Callable[[Array], Array]]
    ) -> Array:
        """The terms of the rows; if this is the stack that NumPyro's `scan` makes, every step's."""
        if self.marginals.mean.ndim > 2:
            return jax.vmap(lambda law, y: law._each(y, terms))(self, jnp.asarray(value))
        return self._seen_log_prob(jnp.asarray(value), terms(self))

    def _seen_log_prob(
        self, value: Array, log_prob: Callable[[Array], Array]
    ) -> Float[Array, " N"]:
        wanted = self.batch_shape + self.event_shape
        if value.shape != wanted:
            hint = "; pass y[:, 0]" if value.shape == (*self.batch_shape, 1) else ""
            raise ValueError(
                f"observe: y has shape {value.shape}, wanted {wanted} for these marginals and this "
                f"likelihood{hint}"
            )
        if self.seen is None:
            return log_prob(value)
        rows = self.seen.ndim == 1
        seen = self.seen.reshape(self.seen.shape + (1,) * (value.ndim - self.seen.ndim))
        # What is missing may be NaN, or out of the support: its gradient must not be seen either.
        terms = log_prob(jnp.where(seen, value, self.support.feasible_like(value)))
        return jnp.where(self.seen, terms, 0.0) if rows else terms

    def _density(self, value: Array) -> Array:
        law = self.predictive()
        return Mixture(law.log_weights, self._of_seen(law.components)).log_prob(value)

    def _expected(self, value: Array) -> Array:
        if self.noise is not None:
            # E log N(y; f, s²) = log N(y; mu, s²) - v / (2 s²)
            terms = dist.Normal(self.latent_mean, self.noise).log_prob(value)
            terms = terms - 0.5 * self.latent_var / jnp.square(self.noise)
            if self.scalar:
                return terms
            if self.seen is not None and self.seen.ndim == 2:
                terms = jnp.where(self.seen, terms, 0.0)
            return jnp.sum(terms, axis=-1)
        if self.knows:
            law: Any = self.at_mean
            terms = law.expected_log_prob(self.latent_var, value, self.num_nodes)
            if terms is not None:
                return terms
        log_weights, f = self._nodes()
        terms = self._of_seen(self.likelihood(f)).log_prob(value)
        return jnp.tensordot(jnp.exp(log_weights), terms, axes=1, precision=lax.Precision.HIGHEST)

    def _of_seen(self, law: Any) -> Any:
        """A law of several entries without those that a mask leaves out."""
        if self.seen is None or self.seen.ndim == 1:
            return law
        return law.base_dist.mask(self.seen).to_event(1)

    def _checked(self, mask: Array | None) -> Array | None:
        """A mask of the rows, or of the entries of laws whose entries are independent."""
        if mask is None:
            return None
        mask, law = jnp.asarray(mask, bool), self.at_mean
        wanted = [law.batch_shape]
        if type(law) is dist.Independent and len(law.event_shape) == 1:
            wanted.append(law.batch_shape + law.event_shape)
        if mask.shape not in wanted:
            raise ValueError(
                f"observe: mask has shape {mask.shape}, wanted {' or '.join(map(str, wanted))} for "
                "this likelihood: True where y was observed; take it inside the same minibatch"
            )
        return mask

    def predictive(self) -> Mixture:
        """The law of y with f integrated out: closed form, or a mixture over the nodes of f."""
        one = jnp.zeros((1,), self.latent_mean.dtype)
        if self.noise is not None:
            sd = jnp.sqrt(self.latent_var + jnp.square(self.noise))
            law = dist.Normal(self.latent_mean[None], sd[None])
            return Mixture(one, law if self.scalar else law.to_event(1))
        if self.knows:
            own: Any = self.likelihood(self.latent_mean[None])
            return Mixture(one, own.predictive(self.latent_var[None]))
        log_weights, f = self._nodes(dense=True)
        return Mixture(log_weights, self.likelihood(f))

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of y: f from its marginals, then y given f."""

        def draw(key: PRNGKey) -> Array:
            key_f, key_y = random.split(key)
            noise = random.normal(key_f, self.latent_mean.shape, self.latent_mean.dtype)
            f = self.latent_mean + jnp.sqrt(self.latent_var) * noise
            value: Any = self.likelihood(f).sample(key_y)
            return value

        if not sample_shape:
            return draw(key)
        draws = jax.vmap(draw)(random.split(key, int(np.prod(sample_shape))))
        return draws.reshape(sample_shape + draws.shape[1:])

    @property
    def mean(self) -> Array:
        return self.predictive().mean

    @property
    def variance(self) -> Array:
        return self.predictive().variance

    def _normal_scale(self) -> Array | None:
        """The noise of a ``Normal(f, scale)`` likelihood of f itself; None for any other."""
        base = _elementwise(self.at_mean, self.scalar)
        if type(base) is not dist.Normal or base.loc is not self.latent_mean:
            return None
        scale = lambda f: _elementwise(self.likelihood(f), self.scalar).scale  # noqa: E731
        noise: Any = base.scale
        return None if _depends(scale, self.latent_mean) else noise

    def _nodes(self, dense: bool = False) -> tuple[Float[Array, " Q"], Array]:
        """Log weights [Q] and nodes of f [Q, N] or [Q, N, P] for expectations over N(f).

        A log-likelihood is close to a polynomial in f, which is what Gauss-Hermite nodes are for; a
        likelihood can be a narrow peak between them. `dense` nodes lie a tenth of a standard
        deviation apart: exact to rounding for likelihoods down to about that width.
        """
        sd = jnp.sqrt(self.latent_var)
        if self.scalar:
            x, w = np.polynomial.hermite_e.hermegauss(self.num_nodes)
            if dense:
                x = np.linspace(-8, 8, _DENSE_NODES)
                w = np.exp(-0.5 * x**2)
            x = jnp.asarray(x, sd.dtype)
            log_weights = jnp.asarray(np.log(w / w.sum()), sd.dtype)
            return log_weights, self.latent_mean + sd * x[:, None]
        if self.key is None:
            raise ValueError(
                "observe: a latent of several outputs is integrated by Monte Carlo and needs a "
                "random key: run the model under numpyro.handlers.seed, or through SVI or MCMC"
            )
        num = _DENSE_DRAWS * self.num_draws if dense else self.num_draws
        eps = random.normal(self.key, (num, *sd.shape), sd.dtype)
        return jnp.full((num,), -jnp.log(num)), self.latent_mean + sd * eps


def as_observed(law: Any) -> Observed | None:
    """What `observe` made of a site, under `handlers.mask` too; None if it made nothing."""
    inner = law.base_dist if isinstance(law, dist.MaskedDistribution) else law
    return inner if isinstance(inner, Observed) else None


def log_density(law: Any, value: ArrayLike) -> Array:
    """log p(y) of a site: with the latent integrated out, where its density is an expectation."""
    own = as_observed(law)
    if own is None:
        return law.log_prob(value)
    terms = own.log_density(value)
    return terms if own is law else jnp.where(law._mask, terms, 0.0)


def _elementwise(law: Any, scalar: bool) -> Any:
    """Without the ``.to_event(1)`` of a law of several outputs."""
    return law.base_dist if not scalar and type(law) is dist.Independent else law


def _depends(function: Callable[[Array], Array], f: Array) -> bool:
    """Whether a function's value can depend on its argument, from its program alone."""
    program = jax.make_jaxpr(function)(f).jaxpr
    reached = {id(v) for v in program.invars}
    for equation in program.eqns:
        if any(id(v) in reached for v in equation.invars):
            reached |= {id(v) for v in equation.outvars}
    return any(id(v) in reached for v in program.outvars)


def observe(
    marginals: Marginals,
    likelihood: Likelihood,
    *,
    num_nodes: int = 20,
    num_draws: int = 5,
    mask: ArrayLike | None = None,
) -> Observed:
    """A distribution over y whose latent f is Gaussian.

    Args:
        marginals: of the last layer, ``f(x)``: mean and variance [N, P].
        likelihood: from f to any NumPyro distribution with batch shape [N]. f is [N] if P = 1 and
            [N, P] otherwise; write for broadcasting, since it is also called with [Q, N] or
            [Q, N, P].
        num_nodes: Gauss-Hermite nodes of the expected log-likelihood where P = 1, or of
            `RobustMax`.
        num_draws: Monte Carlo draws of the expected log-likelihood where P > 1, fresh ones from
            `numpyro.prng_key`; four times as many for the log of an expectation.
        mask: True where y was observed: [N], or [N, P] for a law of several entries that are
            independent (one with ``.to_event(1)``). What is missing adds nothing to the log
            density, whatever y is there (NaN, say); draws and predictions are of all of y.

    Returns:
        A distribution with batch shape [N] and the likelihood's event shape. ``Normal(f, noise)``
        (several outputs: with ``.to_event(1)``), `BernoulliProbit` and `RobustMax` know their
        averages (see `likelihoods`); other scalar latents use quadrature, vector latents Monte
        Carlo.

    Raises:
        ValueError: if the likelihood's batch shape is not [N], or the mask's not one of the above.
        TypeError: if `marginals` is an array: pass ``f(x)``, not ``f.sample(x)``.
    """
    if not isinstance(marginals, Marginals):
        raise TypeError(
            f"observe: marginals is a {type(marginals).__name__}, wanted Marginals: pass f(x) of "
            "the last layer, not f.sample(x)"
        )
    key = numpyro.prng_key() if marginals.mean.shape[-1] > 1 else None
    given = None if mask is None else jnp.asarray(mask)
    return Observed(marginals, likelihood, num_nodes, num_draws, key, given)
