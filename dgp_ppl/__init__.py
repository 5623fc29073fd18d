"""Deep Gaussian processes as probabilistic programs, on NumPyro.

A deep GP is a NumPyro model: `gp` draws a layer, `observe` attaches a likelihood, and `minibatch`
enters the data plate. A guide such as `MeanField` or `GlobalInducing` approximates its posterior.

>>> import numpy as np
>>> import numpyro
>>> import numpyro.distributions as dist
>>> from jax import random
>>> import dgp_ppl as dgp
>>> def model(x, y=None, *, z):
...     noise = numpyro.param("noise", 0.1, constraint=dist.constraints.positive)
...     f1 = dgp.gp("l1", dgp.kernels.Matern52.learned("l1", 1), z, mean=dgp.means.identity)
...     f2 = dgp.gp("l2", dgp.kernels.Matern52.learned("l2", 1), z)
...     with dgp.minibatch(x, y) as (x, y):
...         f = f2(f1.sample(x))
...         numpyro.sample("y", dgp.observe(f, lambda f: dist.Normal(f, noise)), obs=y)
>>> x = np.linspace(-1, 1, 20)[:, None]
>>> y, z = np.sin(3 * x[:, 0]), x[::4]
>>> guide = dgp.MeanField(model)
>>> result = dgp.fit(random.key(0), model, guide, x, y, z=z, steps=20, progress=False)
>>> dgp.predict(random.key(1), model, guide, result.params, x[:3], z=z).mean.shape
(3,)

The names that most programs need are here. Each room, such as `dgp_ppl.inference`, exports the
rest. ``import dgp_ppl`` loads nothing but this file: a name loads its room when it is first used.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.3.0"
