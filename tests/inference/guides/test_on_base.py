"""What `Diffusion` and `Flow` have in common: a base guide."""

import pytest
from support.helpers import one_layer, regression, spread, two_layers

import dgp_ppl as dgp

Z = spread(5)
GUIDES = pytest.mark.parametrize("guide", [dgp.Diffusion, dgp.Flow])


@GUIDES
def test_it_guides_the_model_that_its_base_guides(guide):
    x, y = regression(rows=6)
    with pytest.raises(ValueError, match=r"base is of a model with the layers.*make both of one"):
        guide(two_layers, base=dgp.MeanField(one_layer)).setup(x, y, z=Z)
    with pytest.raises(ValueError, match=r": base is 3, wanted MeanField\(model\)"):
        guide(one_layer, base=3)


@GUIDES
def test_a_base_that_learns_what_the_model_holds_fixed(guide):
    x, y = regression(rows=6)
    free = dgp.models.deep_gp
    fixed = dgp.freeze(free, {"noise": 0.2})
    layers = {"z": (Z, Z)}
    with pytest.raises(ValueError, match=r"base is of a model with the params \['noise'\]"):
        guide(fixed, base=dgp.MeanField(free)).setup(x, y, **layers)
    guide(fixed, base=dgp.MeanField(fixed)).setup(x, y, **layers)
