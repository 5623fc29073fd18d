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


def cases():
    """Yield each likelihood's name, its function, targets and latent values."""
    for name, (make, targets) in SCALAR.items():
        yield name, make, targets, F
    for name, make in CLASSES.items():
        yield name, make, (0, 1, 2), jnp.stack([F, 0 * F, F[::-1]], axis=-1)
    for name, make in NOISE.items():
        yield name, make, (-2.0, 80.0), jnp.stack([F, F[::-1] / 4], axis=-1)


def test_values_and_gradients_are_finite_for_any_latent():
    """In float32, for f from -100 to 80; the log of the noise from -25 to 20."""
    for name, make, targets, f in cases():
        total = jax.jit(jax.value_and_grad(lambda f, y, make=make: make(f).log_prob(y).sum()))
        for y in targets:
            value, gradient = total(f, y)
            assert np.isfinite(value), name
            assert np.isfinite(gradient).all(), name
    others = {"AnalyticLikelihood", "Likelihood", "Mixture", "Observed", "log_density", "observe"}
    assert set(likelihoods.__all__) == {name for name, *_ in cases()} | others


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (likelihoods.RobustMax, r"latent.*\[\.\.\., C\].*out=C"),
        (likelihoods.heteroscedastic, r"latent.*\[\.\.\., 2\].*out=2"),
    ],
)
def test_a_latent_of_another_width_is_refused(make, pattern):
    with pytest.raises(ValueError, match=pattern):
        make(jnp.zeros((3, 1)))
