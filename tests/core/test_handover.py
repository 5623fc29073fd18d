import numpyro
import numpyro.distributions as dist
from support.helpers import regression, spread, two_layers

import dgp_ppl as dgp


def test_a_layer_is_hidden_if_it_is_sampled_from():
    """A site of the user's whose name looks like a layer's noise does not count."""

    def model(x, y=None, *, z):
        numpyro.sample("l2.epsilon", dist.Normal(0, 1))
        two_layers(x, y, z=z)

    guide = dgp.MeanField(model)
    guide.setup(*regression(rows=5), z=spread(4))
    assert {n: layer.hidden for n, layer in guide.layers.items()} == {"l1.v": True, "l2.v": False}
