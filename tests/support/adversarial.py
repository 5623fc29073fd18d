"""Models, and generators whose q(v) is known, for the tests of adversarial guides."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO
from scipy import stats
from support.helpers import KEY, one_layer

import dgp_ppl as dgp
from dgp_ppl import kernels
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet

Z = np.float32([[-1.0], [0.0], [1.0]])


def model(x, y=None, *, batch_size=None):
    """Two layers, with two outputs and one output."""
    f1 = dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    f2 = dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    with dgp.minibatch(x, y, batch_size=batch_size) as (x, y):
        f = f2(f1.sample(x))
        numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, 0.3)), obs=y)


def idle(x, y=None):
    """The same layers, with data that do not depend on them, for tests of q(v) alone."""
    dgp.gp("l1", kernels.SquaredExponential(1.0, 1.0), Z, out=2)
    dgp.gp("l2", kernels.SquaredExponential(1.0, 1.0), np.tile(Z, 2))
    numpyro.sample("y", dist.Normal(jnp.zeros(len(x)), 1.0), obs=y)


class Line(eqx.Module):
    """h(s) = s, so q is a Gaussian that correlates the layers."""

    def __init__(self, noise_dim, *, key):
        pass

    def __call__(self, shared):
        return shared


class Fork(eqx.Module):
    """h(s) = 2 tanh(5 s), so q has two modes."""

    def __init__(self, noise_dim, *, key):
        assert noise_dim == 1

    def __call__(self, shared):
        return 2 * jnp.tanh(5 * shared)


single = partial(one_layer, z=Z)

small = {
    "generator": partial(GeneratorNet, width=8),
    "discriminator": partial(DiscriminatorNet, width=8, rank=9),
}


def random_params(guide, *args, **kwargs):
    """Draw params of a guide, away from their initial values."""
    svi = SVI(guide.model, guide, optax.adam(0.01), TraceMeanField_ELBO())
    shapes = jax.eval_shape(lambda key: svi.get_params(svi.init(key, *args, **kwargs)), KEY)
    rng = np.random.default_rng(3)

    def drawn(name, shape):
        a = (0.9 if name.endswith("directions") else 0.3) * rng.standard_normal(shape)
        if name.endswith("scale_tril"):
            return np.tril(a, -1) + 0.5 * np.eye(shape[-1])
        return a

    return {n: jnp.asarray(drawn(n, a.shape), a.dtype) for n, a in shapes.items()}


def dense(guide, params):
    """Return mean and root of all layers' affine parts, with one block per output."""
    from scipy.linalg import block_diag

    affine = guide.adversarial_pair(params).affine
    means = np.concatenate([np.asarray(q.loc, float).T.ravel() for q in affine.values()])
    return means, block_diag(*[np.asarray(R, float) for q in affine.values() for R in q.scale_tril])


def columns(values):
    """Flatten draws to [S, number of values], with a layer's outputs one after the other."""
    flat = [np.swapaxes(np.asarray(v, float), 1, 2).reshape(len(v), -1) for v in values.values()]
    return np.concatenate(flat, axis=1)


def gaussian_kl(mean, cov):
    return 0.5 * (np.trace(cov) - len(mean) + mean @ mean - np.linalg.slogdet(cov)[1])


def line_kl(guide, params):
    """Return the moments of a `Line` guide's q(v), and its KL from the prior."""
    mean, R = dense(guide, params)
    U = columns(guide.adversarial_pair(params).directions)
    cov = R @ (np.eye(len(mean)) + U.T @ U) @ R.T
    return mean, cov, gaussian_kl(mean, cov)


def fork_kl(guide, params):
    """Return the KL of a `Fork` guide's q(v) from the prior, by quadrature."""
    mean, R = dense(guide, params)
    U = columns(guide.adversarial_pair(params).directions)
    s = np.linspace(-8, 8, 2001)
    weights, h = stats.norm.pdf(s) * (s[1] - s[0]), 2 * np.tanh(5 * s)
    cov = R @ (np.eye(len(mean)) + (weights @ h**2) * U.T @ U) @ R.T
    length = np.linalg.norm(U)
    a = np.linspace(-1, 1, 2001) * (2 * length + 8)
    density = stats.norm.pdf(a[:, None], length * h) @ weights
    normal = stats.norm.logpdf(a, 0, np.sqrt(1 + length**2 * weights @ h**2))
    return gaussian_kl(mean, cov) + np.sum(density * (np.log(density) - normal)) * (a[1] - a[0])
