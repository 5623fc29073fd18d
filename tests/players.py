"""Models and generators whose q(v) is known, for the tests of adversarial guides."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from helpers import (
    KEY,
    one_layer,
)
from jax import random
from numpyro.infer import SVI, TraceMeanField_ELBO

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.implicit import DiscriminatorNet, GeneratorNet

Z = np.float32([[-1.0], [0.0], [1.0]])


def model(x, y=None, *, batch_size=None):
    """Two layers, of two outputs and of one."""
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)


def idle(x, y=None):
    """The same layers, which the data do not depend on: for what concerns q(v) alone."""
    dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), 1.0), obs=y)


class Line(eqx.Module):
    """d(s) = s c, which makes q a Gaussian that correlates the layers."""

    slope: dict

    def __init__(self, layers, noise_dim, *, key):
        assert noise_dim == 1
        keys = random.split(key, len(layers))
        shapes = [layer.shape for layer in layers.values()]
        slopes = [0.6 * random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
        self.slope = dict(zip(layers, slopes, strict=True))

    def __call__(self, shared):
        return {n: shared[0] * c for n, c in self.slope.items()}


single = partial(one_layer, z=Z)

small = {
    "generator": partial(GeneratorNet, width=8),
    "discriminator": partial(DiscriminatorNet, width=8, rank=9),
}


def random_params(guide, *args, **kwargs):
    """Params of a guide away from where they start; of the shapes they have there."""
    svi = SVI(guide.model, guide, optax.adam(0.01), TraceMeanField_ELBO())
    shapes = jax.eval_shape(lambda key: svi.get_params(svi.init(key, *args, **kwargs)), KEY)
    rng = np.random.default_rng(3)

    def drawn(name, shape):
        a = (1.2 if ".slope." in name else 0.3) * rng.standard_normal(shape)
        if name.endswith("scale_tril"):
            return np.tril(a, -1) + 0.5 * np.eye(shape[-1])
        return a

    return {n: jnp.asarray(drawn(n, a.shape), a.dtype) for n, a in shapes.items()}


def dense(guide, params):
    """Mean and root [P M, P M] of each layer's affine part, whose blocks are the outputs'."""
    from scipy.linalg import block_diag

    affine = guide.players(params).affine
    means = np.concatenate([np.asarray(q.loc, float).T.ravel() for q in affine.values()])
    return means, block_diag(*[np.asarray(R, float) for q in affine.values() for R in q.scale_tril])


def columns(values):
    """[S, number of values], outputs of a layer one after the other."""
    flat = [np.swapaxes(np.asarray(v, float), 1, 2).reshape(len(v), -1) for v in values.values()]
    return np.concatenate(flat, axis=1)


def gaussian_kl(mean, cov):
    return 0.5 * (np.trace(cov) - len(mean) + mean @ mean - np.linalg.slogdet(cov)[1])


def line_kl(guide, params):
    """The moments of a `Line` guide's q(v), and its KL to the prior."""
    mean, R = dense(guide, params)
    c = columns({n: a[None] for n, a in guide.players(params).generator.slope.items()})[0]
    cov = R @ (np.eye(len(c)) + np.outer(c, c)) @ R.T
    return mean, cov, gaussian_kl(mean, cov)
