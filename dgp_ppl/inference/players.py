"""The players of an adversarial game: a generator of draws of v, and its discriminator."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax, random
from jaxtyping import Array, Float

from dgp_ppl._typing import PRNGKey
from dgp_ppl.inducing import FullInducing
from dgp_ppl.linalg import matmul

__all__ = ["Draws", "Players", "Values"]

Values = dict[str, Array]


class Draws(NamedTuple):
    """S draws of a generator, by site, [S, M, P] each.

    Attributes:
        noise: the layer's own unit noise e.
        residual: d(s), of the noise that layers share; 0 for a Gaussian generator.
    """

    noise: Values
    residual: Values


class Players(eqx.Module):
    """The generator and the discriminator at given params.

    The generator is v = m + R (d(s) + e) in every layer: an affine map (m, R), unit noise s that
    all layers share, and the layer's own unit noise e. Without e, q would lie on a surface of the
    dimension of s, where log q/p is infinite and every discriminator wins; given s, v is Gaussian,
    so that layers can integrate it out, exactly.

    The discriminator t tells v from the prior, T = t(v), as in IPVI. Or, `anchored`, it tells w,
    which is d(s) + e with its moments made 0 and 1, from N(0, I): T(v) = t(w) + log r(v)/p(v) with
    r the Gaussian of those moments (adaptive contrast: Mescheder et al. 2017, section 3.3). There
    is then nothing to learn but how q differs from r. Both have the same optimum, log q/p.

    Attributes:
        affine: N(m, R R') by site.
        generator: d, from shared noise [K] to {site: [M, P]}; None for 0: q is Gaussian.
        discriminator: t, from {site: [M, P]} to [].
        noise_dim: K.
        anchored: what t contrasts.
        integrated: whether the layers integrate e out.
    """

    affine: dict[str, FullInducing]
    generator: Any
    discriminator: Any
    noise_dim: int = eqx.field(static=True)
    anchored: bool = eqx.field(static=True)
    integrated: bool = eqx.field(static=True)

    def noise(self, key: PRNGKey, num: int) -> Values:
        """Unit noise of the layers' shapes: draws from the prior, and from t's reference."""
        keys = random.split(key, len(self.affine))
        return {
            n: random.normal(k, (num, *law.loc.shape), law.loc.dtype)
            for k, (n, law) in zip(keys, self.affine.items(), strict=True)
        }

    def draw(self, key: PRNGKey, num: int) -> Draws:
        """Antithetic draws: the noise of an odd one is minus that of the one before."""
        key_own, key_shared = random.split(key)
        noise = {n: _mirrored(e, num) for n, e in self.noise(key_own, -(-num // 2)).items()}
        residual = jax.tree.map(jnp.zeros_like, noise)
        if self.generator is not None:
            shape = -(-num // 2), self.noise_dim
            shared = random.normal(key_shared, shape, next(iter(noise.values())).dtype)
            residual = jax.vmap(self.generator)(_mirrored(shared, num))
        return Draws(noise, residual)

    def values(self, draws: Draws) -> Values:
        """v of these draws, [S, M, P] each."""
        return {
            n: law.loc + _times(law, draws.noise[n] + draws.residual[n])
            for n, law in self.affine.items()
        }

    def handed(self, draws: Draws, index: Any = 0) -> dict[str, FullInducing | None]:
        """What layers get of a draw: the Gaussian given s, or None for v itself."""
        if not self.integrated:
            return dict.fromkeys(self.affine)
        means = {
            n: law.loc + _times(law, draws.residual[n][index][None])[0]
            for n, law in self.affine.items()
        }
        return {
            n: FullInducing(means[n], law.scale_tril, validate_args=False)
            for n, law in self.affine.items()
        }

    def log_ratio(self, draws: Draws) -> Float[Array, " S"]:
        """Terms whose mean is E_q T, the discriminator's estimate of KL[q || p], in nats.

        Anchored: E_q log r/p is the affine part's KL, in closed form, and what d adds to it.
        """
        if not self.anchored:
            return jax.vmap(self.discriminator)(self.values(draws))
        _, scale = self._moments(draws)
        logs = sum(jnp.sum(jnp.log(a)) for a in scale.values())
        return self._affine_kl(draws) - logs + jax.vmap(self.discriminator)(self._seen(draws))

    def _affine_kl(self, draws: Draws) -> Float[Array, " S"]:
        """Terms of mean E_q[log N(e; 0, I) - log |R| - log p(v)]: their means given s.

        The affine part's own KL, and E[|v|² - |v at d = 0|²]/2 = m'R d + |R d|²/2.
        """
        terms = jnp.sum(jnp.stack([law.standard_kl() for law in self.affine.values()]))
        for n, law in self.affine.items():
            moved = _times(law, draws.residual[n])
            terms = terms + jnp.sum((law.loc + 0.5 * moved) * moved, axis=(1, 2))
        return terms

    def _moments(self, draws: Draws) -> tuple[Values, Values]:
        """Mean and standard deviation of d(s) + e: e's are known, d's are those of the draws."""
        mean = {n: jnp.mean(d, axis=0) for n, d in draws.residual.items()}
        return mean, {n: jnp.sqrt(1 + jnp.var(d, axis=0)) for n, d in draws.residual.items()}

    def _seen(self, draws: Draws) -> Values:
        """What the discriminator is shown of q."""
        if not self.anchored:
            return self.values(draws)
        mean, scale = self._moments(draws)
        return {n: (e + draws.residual[n] - mean[n]) / scale[n] for n, e in draws.noise.items()}

    def cross_entropy(self, draws: Draws, reference: Values) -> Float[Array, ""]:
        """-E_q log sigma(t) - E_reference log(1 - sigma(t)): Yu et al. (2019), eq. 4, negated."""
        t = jax.vmap(self.discriminator)
        at_q, at_reference = t(lax.stop_gradient(self._seen(draws))), t(reference)
        return jnp.mean(jax.nn.softplus(-at_q)) + jnp.mean(jax.nn.softplus(at_reference))

    def kl_bounds(self, draws: Draws, others: Draws) -> tuple[Array, Array]:
        """Terms whose means are below and above KL[q || p], [S] each.

        q(v) is the mean over s of the Gaussian given s. A mean over the S' `others` gives a density
        whose expected log is too low, and with the draw's own s among them one that is too high
        (Molchanov et al. 2019, "Doubly semi-implicit variational inference", section 3).
        """
        base = self._affine_kl(draws)
        if self.generator is None:
            return base, base
        logits = jnp.zeros(())
        for n, e in draws.noise.items():
            e, d = e.reshape(len(e), -1), draws.residual[n].reshape(len(e), -1)
            o = others.residual[n].reshape(-1, d.shape[1])
            # log N(w; o, I) - log N(e; 0, I) for w = d + e: -(|w - o|² - |e|²) / 2
            w = d + e
            squares = jnp.sum(w * w - e * e, axis=1)[:, None] + jnp.sum(o * o, axis=1)
            logits = logits - 0.5 * squares + matmul(w, o.T)
        low = jax.nn.logsumexp(logits, axis=1)
        num = logits.shape[1]
        high = jnp.logaddexp(low, 0.0) - jnp.log1p(num)
        return base + low - jnp.log(num), base + high


def _mirrored(e: Array, num: int) -> Array:
    return jnp.stack([e, -e], axis=1).reshape(-1, *e.shape[1:])[:num]


def _times(law: FullInducing, w: Float[Array, "S M P"]) -> Float[Array, "S M P"]:
    """R w for every output."""
    return jnp.einsum("pij,sjp->sip", law.scale_tril, w, precision=lax.Precision.HIGHEST)
