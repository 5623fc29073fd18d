"""The optimiser that `fit` builds for a guide."""

import jax
import numpy as np
import pytest
from numpyro.infer import SVI
from support.curves import curve
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.inference.svi._setup import guide_optimizer

gplvm = models.gplvm


@pytest.mark.slow
def test_a_minibatch_moves_its_own_rows_alone():
    """With `fit`'s optimiser, rows outside the batch do not move, not even by momentum."""
    y = curve(rows=30)[0]
    layout, first = initialize.gplvm(KEY, y, 2, num_inducing=8)
    options = dict(layout, out=4, batch_size=5)
    guide = dgp.Implicit(gplvm)  # it has an optimiser of its own
    guide.setup(None, y, **options)
    optimizer = guide_optimizer(guide, 0.1, 100)
    svi = SVI(gplvm, guide, optimizer, guide.default_loss)
    state = svi.init(KEY, None, y, init_params=first, **options)
    update = jax.jit(lambda s: svi.update(s, None, y, **options)[0])
    moved = []
    for _ in range(8):
        before = svi.get_params(state)["latent_auto_loc"]
        state = update(state)
        after = svi.get_params(state)["latent_auto_loc"]
        moved.append(int((np.asarray(before) != np.asarray(after)).any(axis=1).sum()))
    assert moved == [5] * 8
