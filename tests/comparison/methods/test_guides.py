"""Guides that a comparison fits in stages."""

import pytest
from support.comparisons import TINY

import dgp_ppl


@pytest.mark.slow
@pytest.mark.parametrize(("method", "guide"), [("diffusion", "Diffusion"), ("flow", "Flow")])
def test_guides_on_the_coupled_guide_share_its_steps(method, guide):
    """Half of the steps fit a mean field, a quarter the coupled guide, the rest all of it."""
    found = dgp_ppl.compare("step", (method,), **(TINY | {"splits": 1, "steps": 8})).fits[method]
    fitted = found.fitted
    assert type(fitted.guide).__name__ == guide
    assert isinstance(fitted.guide.base, dgp_ppl.GlobalInducing)
    assert len(fitted.result.losses) == 8
    assert fitted.guide.rate == dgp_ppl.GlobalInducing.rate


@pytest.mark.slow
@pytest.mark.parametrize("method", ["diffusion", "flow"])
def test_they_are_not_below_the_coupled_guide_with_as_many_steps(method):
    options = TINY | {"splits": 1, "steps": 400, "inducing": 8}
    rows = dgp_ppl.compare("step", ("global_inducing", method), **options).splits
    coupled, found = (row["elbo_per_datum"] for row in rows)
    assert found > coupled
