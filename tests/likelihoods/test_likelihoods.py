"""Every likelihood of the library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgp_ppl import likelihoods

F = jnp.linspace(-100.0, 80.0, 361)
SCALAR = {
    "bernoulli_logit": (likelihoods.bernoulli_logit, (0, 1)),
    "bernoulli_probit": (likelihoods.bernoulli_probit, (0, 1)),
    "BernoulliProbit": (likelihoods.BernoulliProbit, (0, 1)),
    "CensoredNormal": (
        lambda f: likelihoods.CensoredNormal(f, 0.01, -1.0, 1.0), (-1.0, 0.3, 1.0)
    ),
    "PoissonLog": (likelihoods.PoissonLog, (0, 1, 10_000)),
    "NegativeBinomialLog": (lambda f: likelihoods.NegativeBinomialLog(f, 3.0), (0, 1, 10_000)),
    "student_t": (likelihoods.student_t, (-50.0, 0.3)),
    "StudentT": (lambda f: likelihoods.StudentT(2.5, f, 1e-3), (-50.0, 0.3)),
}  # fmt: skip
CLASSES = {"softmax": likelihoods.softmax, "robust_max": likelihoods.robust_max}
CLASSES["RobustMax"] = likelihoods.RobustMax
NOISE = dict.fromkeys(("heteroscedastic", "HeteroscedasticNormal"), likelihoods.heteroscedastic)


@pytest.mark.parametrize("name", [*SCALAR, *CLASSES, *NOISE])
def test_values_and_gradients_are_finite_for_any_latent(name):
    """In float32, for f from -100 to 80; the log of the noise from -25 to 20."""
    if name in SCALAR:
        make, targets, f = *SCALAR[name], F
    elif name in NOISE:
        make, targets, f = NOISE[name], (-2.0, 80.0), jnp.stack([F, F[::-1] / 4], axis=-1)
    else:
        make, targets, f = CLASSES[name], (0, 1, 2), jnp.stack([F, 0 * F, F[::-1]], axis=-1)
    for y in targets:
        value, gradient = jax.value_and_grad(lambda f, y=y: make(f).log_prob(y).sum())(f)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_no_likelihood_is_left_out():
    others = {"AnalyticLikelihood", "Likelihood", "Mixture", "Observed", "log_density", "observe"}
    assert set(likelihoods.__all__) == {*SCALAR, *CLASSES, *NOISE, *others}
