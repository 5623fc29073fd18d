"""Arguments of `importance_evidence`."""

import pytest
from support.diffusion import Z
from support.helpers import KEY, one_layer, regression, start

import dgp_ppl as dgp
from dgp_ppl.inference.evidence._importance import importance_evidence
from dgp_ppl.inference.guides.diffusion._guide import Diffusion


def test_evidence_takes_all_rows():
    x, y = regression(rows=6)
    guide = Diffusion(one_layer, steps=2)
    params = start(one_layer, guide, x, y, z=Z)
    with pytest.raises(ValueError, match=r"plate 'data' takes 3 of 6 rows.*leave out batch_size"):
        importance_evidence(KEY, one_layer, guide, params, x, y, z=Z, batch_size=3)
    with pytest.raises(ValueError, match="num_paths is 1, wanted at least 2"):
        importance_evidence(KEY, one_layer, guide, params, x, y, z=Z, num_paths=1)
    with pytest.raises(TypeError, match="guide is a MeanField, wanted a Diffusion"):
        importance_evidence(KEY, one_layer, dgp.MeanField(one_layer), params, x, y, z=Z)
