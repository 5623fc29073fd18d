import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from numpyro import handlers
from numpyro.infer.util import log_density
from support.diffusion import Z, bases, diagonal_fit, shaken, wavy
from support.helpers import (
    KEY,
    assert_mean,
    bound,
    one_layer,
    regression,
    slow,
    spread,
    start,
    two_layers,
)

import dgp_ppl as dgp
from dgp_ppl._partition import Call
from dgp_ppl.core._inducing import DiagonalInducing
from dgp_ppl.inference import evaluate
from dgp_ppl.inference.evidence._importance import importance_evidence
from dgp_ppl.inference.guides.diffusion._elbo import DiffusionELBO
from dgp_ppl.inference.guides.diffusion._guide import Diffusion


@pytest.mark.parametrize("base", ["mean-field", slow("diagonal"), slow("global")])
def test_without_control_the_guide_is_its_base_draw_by_draw(base, x64):
    """The log weight of every path is the base's at the same inducing values."""
    x, y = regression(rows=6)
    own = bases(two_layers)[base]
    guide = Diffusion(two_layers, steps=4, base=own).drawn()
    params = start(two_layers, guide, x, y, z=Z)
    params = shaken({n: a for n, a in params.items() if "diffusion" not in n}) | {
        n: a for n, a in params.items() if "diffusion" in n
    }

    def both(key):
        log_q, trace = log_density(handlers.seed(guide, key), (x, y), {"z": Z}, params)
        drawn = {n: trace[n]["value"] for n in ("l1.v", "l2.v")}
        posteriors = {}

        def keep(site, posterior):
            posteriors[site] = posterior
            return DiagonalInducing(drawn[site], jnp.zeros((5, 1)))

        with handlers.seed(rng_seed=key), handlers.block(), handlers.substitute(data=params):
            own.transport(Call((x, y), {"z": Z}), keep)
        return log_q, sum(posteriors[n].log_prob(v) for n, v in drawn.items())

    paths, alone = jax.jit(jax.vmap(both))(random.split(KEY, 20))
    np.testing.assert_allclose(paths, alone, rtol=1e-9)


def test_the_last_step_may_be_integrated_or_drawn():
    """The cost in closed form and the cost at the states drawn have one expectation."""
    x, y = regression(rows=6)
    guide = Diffusion(two_layers, steps=3, base="prior", score=wavy)
    params = shaken(start(two_layers, guide, x, y, z=Z), 0.2) | {"noise": 1.0}
    values = [
        bound(two_layers, g, params, x, y, z=Z, keys=random.split(random.key(i), 2000))
        for i, g in enumerate((guide, guide.drawn()))
    ]
    assert_mean(values[0] - values[1], 0.0)


@pytest.mark.slow
def test_trained_it_comes_near_the_evidence_and_not_above():
    """One conjugate layer, whose posterior no diagonal Gaussian can match."""
    (x, y), options = regression(rows=8), {"progress": False}
    diagonal, first, truth, gap = diagonal_fit(x, y)
    guide = Diffusion(one_layer, base=diagonal, steps=8)
    result = dgp.fit(
        KEY, one_layer, guide, x, y, steps=1500,
        loss=DiffusionELBO(16), start=first.params, z=x, **options,
    )  # fmt: skip
    elbo, error = evaluate(KEY, one_layer, guide, result.params, x, y, z=x, num_draws=4000)
    assert elbo < truth + 4.5 * error
    assert truth - elbo < 0.35 * gap
    found = importance_evidence(KEY, one_layer, guide, result.params, x, y, z=x, num_paths=2000)
    assert abs(found.log_evidence - truth) < 4.5 * found.standard_error + 1e-3
    assert found.standard_error < 0.1
    assert found.elbo < found.log_evidence
    assert 20 < found.effective_paths < 2000


def test_a_base_whose_mean_has_its_own_inducing_inputs_has_no_drawn_paths():
    x, y = regression(rows=6)
    guide = Diffusion(one_layer, base=dgp.Decoupled(one_layer, spread(7)), steps=2)
    params = start(one_layer, guide, x, y, z=Z)
    assert np.isfinite(bound(one_layer, guide, params, x, y, z=Z))
    with pytest.raises(TypeError, match="a mean with separate inducing inputs"):
        bound(one_layer, guide.drawn(), params, x, y, z=Z)
