"""The handover at a layer's site, with a guide and without one."""

import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from support.helpers import one_layer, regression, spread

import dgp_ppl as dgp
from dgp_ppl.core._handover import Handover, guide_site, handover_of, is_layer, with_handover
from dgp_ppl.core._inducing import DiagonalInducing

Q = DiagonalInducing(jnp.zeros((4, 1)), jnp.ones((4, 1)))


def traced(program=one_layer):
    x, y = regression(rows=5)
    with handlers.seed(rng_seed=0):
        return handlers.trace(program).get_trace(x, y, z=spread(4))


def test_a_layer_describes_itself():
    sites = traced()
    assert [n for n, s in sites.items() if is_layer(s)] == ["l1.v"]
    found = handover_of(sites["l1.v"])
    assert (found.guided, found.outputs, found.num_inputs) == (False, 1, 1)
    np.testing.assert_array_equal(found.z, spread(4))
    assert isinstance(found.kernel, dgp.kernels.SquaredExponential)
    assert not handover_of(sites["y"]).guided


def test_a_guides_handover_reaches_the_layer():
    """The layer integrates out q(v), or uses a draw of v."""
    draw = jnp.full((4, 1), 2.0)
    means = {}
    for name, handover in (("integrated", Handover(Q)), ("drawn", Handover(Q).drawn(draw))):
        guide = {"l1.v": guide_site("l1.v", handover, draw)}
        sites = traced(handlers.replay(one_layer, trace=guide))
        assert handover_of(sites["l1.v"]).guided
        means[name] = np.asarray(sites["y"]["fn"].marginals.mean)
    np.testing.assert_allclose(means["integrated"], 0.0, atol=1e-6)
    assert np.abs(means["drawn"]).max() > 0.1


def test_a_draw_keeps_its_distribution():
    drawn = Handover(Q).drawn(jnp.ones((4, 1)))
    assert drawn.q is None
    assert drawn.distribution is Q
    assert Handover(Q).distribution is Q


def test_fields_are_replaced_in_a_copy():
    site = {"infer": {"handover": Handover(Q), "other": 1}}
    changed = with_handover(site, outputs=3)
    assert (changed["handover"].outputs, changed["other"]) == (3, 1)
    assert handover_of(site).outputs == 1
