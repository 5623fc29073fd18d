"""Short annealing runs, and their comparison with a known evidence."""

from support.helpers import KEY

from dgp_ppl.inference.evidence._annealing import annealed_evidence


def assert_evidence(found, truth, errors=4.0):
    assert abs(found.log_evidence - truth) < errors * found.standard_error + 2e-3
    assert found.standard_error < 0.3


def annealed(model, guide, params, *args, **options):
    return annealed_evidence(
        KEY, model, guide, params, *args, **({"num_particles": 64, "progress": False} | options)
    )
