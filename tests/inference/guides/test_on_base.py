"""What `Diffusion` and `Flow` have in common: a base guide."""

import pytest
from support.helpers import one_layer, regression, spread, two_layers

import dgp_ppl as dgp


def test_it_guides_the_model_that_its_base_guides():
    """A base may not learn what the guide's model holds fixed."""
    x, y, z = *regression(rows=6), spread(5)
    free = dgp.models.deep_gp
    fixed = dgp.freeze(free, {"noise": 0.2})
    for guide in (dgp.Diffusion, dgp.Flow):
        for message, model, base, layers in (
            (r"base is of a model with the layers.*of one", two_layers, one_layer, z),
            (r"base is of a model with the params \['noise'\]", fixed, free, (z, z)),
        ):
            with pytest.raises(ValueError, match=message):
                guide(model, base=dgp.MeanField(base)).setup(x, y, z=layers)
        guide(fixed, base=dgp.MeanField(fixed)).setup(x, y, z=(z, z))
        with pytest.raises(ValueError, match=r": base is 3, wanted MeanField\(model\)"):
            guide(one_layer, base=3)
