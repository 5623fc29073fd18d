"""The generator and the discriminator of an implicit posterior, and KL estimates from them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey, Values
from dgp_ppl.core import FullInducing
from dgp_ppl.linalg import factorise
from dgp_ppl.linalg._factor import precision_factor
from dgp_ppl.linalg._products import matmul

Features = Float[Array, "S K"]


class AdversarialPair(eqx.Module):
    """A generator and its discriminator, at given params.

    The generator draws v = m + R (U h(s) + e) in every layer. All layers share the noise s, whose K
    features are h(s). The directions U, the unit noise e and the affine map (m, R) are the layer's.
    Given s, v is Gaussian, so the layers can integrate it out exactly.

    The discriminator t separates draws of q from draws of r, the Gaussian with q's mean and
    covariance ("adaptive contrast", Mescheder et al. 2017, section 3.3). The estimate of
    log q(v)/p(v) is T(v) = t(z) + log r(v)/p(v), and E_q of the second term is known. z has K
    numbers: U'(U h + e), scaled to N(0, I) under r.
    """

    affine: dict[str, FullInducing]  # N(m, R R') by site
    directions: Values  # U by site, [K, M, P]
    generator: Any  # h, a function from [K] to [K]; None for a Gaussian q with U = 0
    discriminator: Any  # t, a function from {"shared": [K, 1]} to a scalar

    def features(self, key: PRNGKey, num: int) -> Features:
        """Draw h(s) in antithetic pairs: each odd draw uses minus the noise of the one before."""
        U = next(iter(self.directions.values()))
        shared = _antithetic(random.normal(key, (-(-num // 2), len(U)), U.dtype), num)
        if self.generator is None:
            return shared
        h = jax.vmap(self.generator)(shared)
        return _checked("generator", h, shared.shape, "noise_dim features")

    def values(self, key: PRNGKey, h: Features) -> Values:
        """Draw v given the features, [S, M, P] by site; antithetic in e."""
        keys = random.split(key, len(self.affine))
        draws = {}
        for k, (n, q) in zip(keys, self.affine.items(), strict=True):
            e = random.normal(k, (-(-len(h) // 2), *q.loc.shape), q.loc.dtype)
            draws[n] = q.loc[None] + _times_root(
                q, self._shared_part(n, h) + _antithetic(e, len(h))
            )
        return draws

    def conditionals(self, h: Float[Array, " K"]) -> dict[str, FullInducing]:
        """Return the Gaussian of v given the features, by site."""
        found = {}
        for n, q in self.affine.items():
            loc = q.loc + _times_root(q, self._shared_part(n, h[None]))[0]
            found[n] = FullInducing(loc, q.scale_tril, validate_args=False)
        return found

    def _shared_part(self, site: str, h: Features) -> Float[Array, "S M P"]:
        return jnp.einsum("sk,kmp->smp", h, self.directions[site], precision=_HIGHEST)

    def _moments(self, h: Features) -> tuple[Array, Array, Array]:
        """Return the mean of h [K], L with L L' = U'U, and A with A C A' = I [K, K].

        C = I + L' Cov(h) L is the covariance of the statistic
        a = L⁻¹ U'(U (h - E h) + e) = L'(h - E h) + N(0, I).
        """
        mean = jnp.mean(h, axis=0)
        flat = jnp.concatenate([U.reshape(len(U), -1) for U in self.directions.values()], axis=1)
        gram = matmul(flat, flat.T)
        # The jitter acts as one more value of v along each feature. It is relative to the
        # feature's scale, so it carries almost no information.
        length = jnp.sqrt(jnp.diagonal(gram) + jnp.finfo(h.dtype).eps ** 2)
        jitter = 100 * jnp.finfo(h.dtype).eps * jnp.eye(len(mean), dtype=h.dtype)
        L = length[:, None] * factorise(gram / jnp.outer(length, length) + jitter, 0.0).lower
        a = matmul(h - mean[None], L)
        weights = jnp.full((1, len(h)), 1 / len(h), h.dtype)
        return mean, L, precision_factor(a.T, weights)[0]

    def _affine_kl(self, h: Features) -> Float[Array, " S"]:
        """Return terms with mean E_q[log N(e; 0, I) - log |R| - log p(v)], given the features.

        They are the KL of the affine part, and
        E[|v|² - |v at U = 0|²] / 2 = m'R U h + |R U h|² / 2.
        """
        terms = jnp.sum(jnp.stack([q.standard_kl() for q in self.affine.values()]))
        for n, q in self.affine.items():
            U = _times_root(q, self.directions[n]).reshape(h.shape[1], -1)
            quadratic = jnp.sum(matmul(h, matmul(U, U.T)) * h, axis=1)
            terms = terms + matmul(h, (U @ q.loc.reshape(-1))[:, None])[:, 0] + 0.5 * quadratic
        return terms

    def gaussian_kl(self, h: Features) -> Float[Array, " S"]:
        """Return terms with mean E_q log r(v)/p(v) = KL[r || p]; |I + U Cov(h) U'| is |C|."""
        return self._affine_kl(h) + jnp.sum(jnp.log(jnp.diagonal(self._moments(h)[2])))

    def log_ratio(self, h: Features, inputs: Values) -> Float[Array, " S"]:
        """Return terms with mean E_q T, the discriminator's estimate of KL[q || p] in nats."""
        return self.gaussian_kl(h) + self._discriminate(inputs)

    def discriminator_inputs(self, key: PRNGKey, h: Features) -> Values:
        """Draw the discriminator's inputs z under q, given the features."""
        mean, L, A = self._moments(h)
        z = matmul(matmul(h - mean[None], L) + _unit_noise(key, h), A.T)
        return {"shared": z[..., None]}

    def reference_inputs(self, key: PRNGKey, num: int) -> Values:
        """Draw the discriminator's inputs under r, which is N(0, I)."""
        U = next(iter(self.directions.values()))
        [own] = random.split(key, 1)
        return {"shared": random.normal(own, (num, len(U), 1), U.dtype)}

    def cross_entropy(self, inputs: Values, reference: Values) -> Float[Array, ""]:
        """Return -E_q log sigma(t) - E_reference log(1 - sigma(t)): Yu et al. 2019, eq. 4."""
        t = self._discriminate
        return jnp.mean(jax.nn.softplus(-t(inputs))) + jnp.mean(jax.nn.softplus(t(reference)))

    def _discriminate(self, inputs: Values) -> Float[Array, " S"]:
        t = jax.vmap(self.discriminator)(inputs)
        num = len(next(iter(inputs.values())))
        return _checked("discriminator", t, (num,), "one number for all its inputs")

    def kl_bound(self, key: PRNGKey, h: Features, others: Features) -> Float[Array, " S"]:
        """Return terms whose mean bounds KL[q || p] from above; exact for a Gaussian generator.

        The discriminator is not used. Under q, a = L'h + N(0, I) is a mixture of N(L'h(s), I) over
        s. A mixture over S' other draws of s and the draw's own s has too high an expected log
        density. Of antithetic draws, `others` has every second one.

        Source: Molchanov et al. 2019, "Doubly semi-implicit variational inference", section 3.
        """
        base = self._affine_kl(h)
        if self.generator is None:
            return base
        _, L, _ = self._moments(h)
        noise, centres = _unit_noise(key, h), matmul(others, L)
        a = matmul(h, L) + noise
        # log N(a; centre, I) - log N(noise; 0, I), which is 0 for the draw's s.
        squares = (
            jnp.sum(a * a - noise * noise, axis=1)[:, None] + jnp.sum(centres**2, axis=1)[None]
        )
        log_sum = jax.nn.logsumexp(matmul(a, centres.T) - 0.5 * squares, axis=1)
        return base + jnp.logaddexp(log_sum, 0.0) - jnp.log1p(len(others))


_HIGHEST = lax.Precision.HIGHEST


def _checked(network: str, out: Any, wanted: tuple[int, ...], why: str) -> Array:
    """Return a network's outputs for S draws, if they have the wanted shape."""
    if jnp.shape(out) != wanted:
        raise ValueError(
            f"Implicit: the {network} has an output of shape {jnp.shape(out)[1:]}, wanted "
            f"{wanted[1:]}: {why}"
        )
    return out


def _antithetic(e: Array, num: int) -> Array:
    """Return `num` antithetic draws: e_1, -e_1, e_2, -e_2, ..."""
    return jnp.stack([e, -e], axis=1).reshape(-1, *e.shape[1:])[:num]


def _unit_noise(key: PRNGKey, h: Features) -> Features:
    """Draw antithetic unit noise of the features' shape."""
    return _antithetic(random.normal(key, (-(-len(h) // 2), h.shape[1]), h.dtype), len(h))


def _times_root(q: FullInducing, w: Float[Array, "S M P"]) -> Float[Array, "S M P"]:
    """Return R w for every output."""
    return jnp.einsum("pij,sjp->sip", q.scale_tril, w, precision=_HIGHEST)
