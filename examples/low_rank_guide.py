"""Write a new guide: Gaussians whose covariance is diagonal plus low-rank.

Each layer and output has q(v) = N(m, D² + W W'), with W of a few columns: O(M) numbers, where
`MeanField` has O(M²).
"""

import sys

import jax
import jax.numpy as jnp
import numpyro
from jax import random
from numpyro.distributions import constraints

import dgp_ppl as dgp
from dgp_ppl.core import AbstractInducing, Handover


class LowRankInducing(AbstractInducing):
    """q(v) = prod_p N(loc_p, diag(scale_p)² + W_p W_p')."""

    arg_constraints = {  # noqa: RUF012 - NumPyro's declaration
        "loc": constraints.real_matrix,
        "scale": constraints.independent(constraints.positive, 2),
        "factor": constraints.independent(constraints.real, 3),
    }

    def __init__(self, loc, scale, factor):  # [M, P], [M, P] and W [P, M, R]
        self.loc, self.scale, self.factor = loc, scale, factor
        super().__init__((), jnp.shape(loc), validate_args=False)

    def root_of(self, A):
        rows = self.scale.T[:, :, None] * A, jnp.swapaxes(self.factor, -1, -2) @ A
        return jnp.concatenate(rows, axis=-2)  # R'A, [P, M + R, N]

    def variance_of(self, A):
        return jnp.sum(jnp.square(self.root_of(A)), axis=-2)

    def standard_kl(self):
        # |D² + W W'| = |D|² |I + C'C| with C = D⁻¹ W, the matrix determinant lemma.
        C = self.factor / self.scale.T[:, :, None]
        small = jnp.eye(C.shape[-1]) + jnp.swapaxes(C, -1, -2) @ C
        log_det = 2 * jnp.sum(jnp.log(self.scale)) + jnp.sum(jnp.linalg.slogdet(small)[1])
        squares = sum(jnp.sum(jnp.square(a)) for a in (self.loc, self.scale, self.factor))
        return 0.5 * (squares - self.loc.size - log_det)


class LowRank(dgp.LayerGuide):
    """The guide: params for each layer, and what the layer gets."""

    def __init__(self, model, *, rank=2, hidden_scale=1e-5, factor_scale=0.1):
        super().__init__(model)
        self.rank, self.hidden_scale, self.factor_scale = rank, hidden_scale, factor_scale

    def posterior(self, call):
        handovers = {}
        for site, layer in self.layers.items():
            M, P = layer.shape
            start = self.hidden_scale if layer.hidden else 1.0
            loc = numpyro.param(f"{site}.loc", jnp.zeros((M, P)))
            scale = numpyro.param(
                f"{site}.scale", jnp.full((M, P), start), constraint=constraints.positive
            )
            noise = random.normal(random.key(0), (P, M, self.rank))
            factor = numpyro.param(f"{site}.factor", self.factor_scale * start * noise)
            handovers[site] = Handover(LowRankInducing(loc, scale, factor))
        return handovers


if __name__ == "__main__":
    key = random.key(0)
    x = random.uniform(key, (100, 1), minval=-2.0, maxval=2.0)
    y = jnp.sign(x[:, 0])
    steps = 20 if "--smoke" in sys.argv else 500
    z = (dgp.initialize.inducing_inputs(key, x, 15),) * 2
    for guide in (LowRank(dgp.models.deep_gp), dgp.MeanField(dgp.models.deep_gp)):
        result = dgp.fit(key, dgp.models.deep_gp, guide, x, y, z=z, steps=steps, progress=False)
        size = sum(a.size for a in jax.tree.leaves(result.params))
        bound = result.elbo_per_datum[-50:].mean()
        print(f"{type(guide).__name__:<10} {size:>5} params, ELBO {bound:.3f} per datum")
