"""The players of an adversarial game: a generator of draws of v, and its discriminator."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.core import FullInducing
from dgp_ppl.linalg import factorise, matmul, precision_factor

__all__ = ["AdversarialPair", "Values"]

Values = dict[str, Array]
Features = Float[Array, "S K"]


class AdversarialPair(eqx.Module):
    """The generator and the discriminator at given params.

    The generator is v = m + R (U h(s) + e) in every layer: K features h of noise s that all layers
    share, directions U, the layer's own unit noise e, and an affine map (m, R). Without e, q would
    lie on a surface of dimension K, where log q/p is infinite and every discriminator wins. Given
    s, v is Gaussian, so that layers can integrate it out, exactly.

    The discriminator t tells v from the prior, T = t(v), as in IPVI. Or, `anchored`, it tells q
    from r, the Gaussian with q's own mean and covariance (adaptive contrast: Mescheder et al. 2017,
    section 3.3): T(v) = t(z) + log r(v)/p(v), where E_q log r/p is known. q and r differ in the law
    of U'(U h + e) alone, a statistic of K numbers that is sufficient for h, and z is that, made
    N(0, I) under r. However many inducing values there are, the game is in K dimensions.

    Attributes:
        affine: N(m, R R') by site.
        directions: U by site, [K, M, P].
        generator: h, from [K] to [K]; None for a Gaussian q with U = 0.
        discriminator: t, from {site: [M, P]} or, anchored, {"shared": [K, 1]} to [].
        anchored: what t contrasts.
        integrated: whether the layers integrate e out.
    """

    affine: dict[str, FullInducing]
    directions: Values
    generator: Any
    discriminator: Any
    anchored: bool = eqx.field(static=True)
    integrated: bool = eqx.field(static=True)

    def features(self, key: PRNGKey, num: int) -> Features:
        """h(s) in antithetic draws: the noise of an odd one is minus that of the one before."""
        U = next(iter(self.directions.values()))
        shared = _mirrored(random.normal(key, (-(-num // 2), len(U)), U.dtype), num)
        if self.generator is None:
            return shared
        h = jax.vmap(self.generator)(shared)
        return _shaped("generator", h, shared.shape, "as many features as noise_dim")

    def values(self, key: PRNGKey, h: Features) -> Values:
        """Draws of v given the features, [S, M, P] by site; antithetic in e."""
        keys = random.split(key, len(self.affine))
        draws = {}
        for k, (n, law) in zip(keys, self.affine.items(), strict=True):
            e = random.normal(k, (-(-len(h) // 2), *law.loc.shape), law.loc.dtype)
            draws[n] = law.loc + _times(law, self._along(n, h) + _mirrored(e, len(h)))
        return draws

    def handed(self, h: Float[Array, " K"]) -> dict[str, FullInducing | None]:
        """What layers get of a draw with these features: the Gaussian of v, or None for v."""
        if not self.integrated:
            return dict.fromkeys(self.affine)
        return {n: _moved(law, self._along(n, h[None])[0]) for n, law in self.affine.items()}

    def _along(self, site: str, h: Features) -> Float[Array, "S M P"]:
        """U h."""
        return jnp.einsum("sk,kmp->smp", h, self.directions[site], precision=_HIGHEST)

    def _moments(self, h: Features) -> tuple[Array, Array, Array]:
        """Mean of h [K]; L with L L' = U'U; and A with A C A' = I, C = I + L' Cov(h) L [K, K].

        The statistic is a = L⁻¹ U'(U (h - E h) + e) = L'(h - E h) + N(0, I), with covariance C.
        """
        mean = jnp.mean(h, axis=0)
        flat = jnp.concatenate([U.reshape(len(U), -1) for U in self.directions.values()], axis=1)
        gram = matmul(flat, flat.T)
        # The jitter is a value along each feature that v does not have; in that feature's own
        # units, so that it says next to nothing of any.
        length = jnp.sqrt(jnp.diagonal(gram) + jnp.finfo(h.dtype).eps ** 2)
        jitter = 100 * jnp.finfo(h.dtype).eps * jnp.eye(len(mean), dtype=h.dtype)
        L = length[:, None] * factorise(gram / jnp.outer(length, length) + jitter, 0.0).lower
        a = matmul(h - mean, L)
        share = jnp.full((1, len(h)), 1 / len(h), h.dtype)
        return mean, L, precision_factor(a.T, share)[0]

    def _affine_kl(self, h: Features) -> Float[Array, " S"]:
        """Terms of mean E_q[log N(e; 0, I) - log |R| - log p(v)], given the features.

        The affine part's own KL, and E[|v|² - |v at U = 0|²] / 2 = m'R U h + |R U h|² / 2.
        """
        terms = jnp.sum(jnp.stack([law.standard_kl() for law in self.affine.values()]))
        for n, law in self.affine.items():
            U = _times(law, self.directions[n]).reshape(h.shape[1], -1)
            quadratic = jnp.sum(matmul(h, matmul(U, U.T)) * h, axis=1)
            terms = terms + matmul(h, (U @ law.loc.reshape(-1))[:, None])[:, 0] + 0.5 * quadratic
        return terms

    def gaussian_kl(self, h: Features) -> Float[Array, " S"]:
        """Terms of mean E_q log r(v)/p(v) = KL[r || p]; |I + U Cov(h) U'| is |C|."""
        return self._affine_kl(h) + jnp.sum(jnp.log(jnp.diagonal(self._moments(h)[2])))

    def log_ratio(self, h: Features, seen: Values) -> Float[Array, " S"]:
        """Terms whose mean is E_q T, the discriminator's estimate of KL[q || p], in nats."""
        t = self._judge(seen)
        return self.gaussian_kl(h) + t if self.anchored else t

    def seen(self, key: PRNGKey, h: Features) -> Values:
        """What the discriminator is shown of q: z, or v."""
        if not self.anchored:
            return self.values(key, h)
        mean, L, whiten = self._moments(h)
        z = matmul(matmul(h - mean, L) + _noise(key, h), whiten.T)
        return {"shared": z[..., None]}

    def reference(self, key: PRNGKey, num: int) -> Values:
        """Draws of what q is told from, in the shapes of `seen`: unit noise."""
        shapes = {n: law.loc.shape for n, law in self.affine.items()}
        U = next(iter(self.directions.values()))
        if self.anchored:
            shapes = {"shared": (len(U), 1)}
        keys = random.split(key, len(shapes))
        return {
            n: random.normal(k, (num, *shape), U.dtype)
            for k, (n, shape) in zip(keys, shapes.items(), strict=True)
        }

    def cross_entropy(self, seen: Values, reference: Values) -> Float[Array, ""]:
        """-E_q log sigma(t) - E_reference log(1 - sigma(t)): Yu et al. (2019), eq. 4, negated."""
        t = self._judge
        return jnp.mean(jax.nn.softplus(-t(seen))) + jnp.mean(jax.nn.softplus(t(reference)))

    def _judge(self, seen: Values) -> Float[Array, " S"]:
        t = jax.vmap(self.discriminator)(seen)
        num = len(next(iter(seen.values())))
        return _shaped("discriminator", t, (num,), "one number for all values that it is shown")

    def kl_bounds(self, key: PRNGKey, h: Features, others: Features) -> tuple[Array, Array]:
        """Terms whose means are below and above KL[q || p], [S] each; no discriminator is asked.

        q's law of a = L'h + N(0, I) is the mean over s of N(L'h(s), I). The mean over S' other
        draws is a density whose expected log is too low, and with the draw's own s among them too
        high (Molchanov et al. 2019, "Doubly semi-implicit variational inference", section 3). The
        `others` have to be independent: of antithetic draws, every second one.
        """
        base = self._affine_kl(h)
        if self.generator is None:
            return base, base
        _, L, _ = self._moments(h)
        noise, centres = _noise(key, h), matmul(others, L)
        a = matmul(h, L) + noise
        # log N(a; centre, I) - log N(noise; 0, I), which for the draw's own s is 0.
        squares = jnp.sum(a * a - noise * noise, axis=1)[:, None] + jnp.sum(centres**2, axis=1)
        low = jax.nn.logsumexp(matmul(a, centres.T) - 0.5 * squares, axis=1)
        high = jnp.logaddexp(low, 0.0) - jnp.log1p(len(others))
        return base + low - jnp.log(len(others)), base + high


_HIGHEST = lax.Precision.HIGHEST


def _shaped(player: str, out: Any, wanted: tuple[int, ...], why: str) -> Array:
    """What a network gives for each of S draws, if it has the shape that it should."""
    if jnp.shape(out) != wanted:
        raise ValueError(
            f"Implicit: the {player} has an output of shape {jnp.shape(out)[1:]}, wanted "
            f"{wanted[1:]}: {why}"
        )
    return out


def _mirrored(e: Array, num: int) -> Array:
    return jnp.stack([e, -e], axis=1).reshape(-1, *e.shape[1:])[:num]


def _noise(key: PRNGKey, h: Features) -> Features:
    """Antithetic unit noise of the features' shape."""
    return _mirrored(random.normal(key, (-(-len(h) // 2), h.shape[1]), h.dtype), len(h))


def _times(law: FullInducing, w: Float[Array, "S M P"]) -> Float[Array, "S M P"]:
    """R w for every output."""
    return jnp.einsum("pij,sjp->sip", law.scale_tril, w, precision=_HIGHEST)


def _moved(law: FullInducing, w: Float[Array, "M P"]) -> FullInducing:
    """N(m + R w, R R')."""
    return FullInducing(law.loc + _times(law, w[None])[0], law.scale_tril, validate_args=False)
