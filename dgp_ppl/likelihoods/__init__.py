"""Likelihoods p(y | f) that NumPyro lacks, for use with `observe`.

`observe` accepts any function from f to a NumPyro distribution, so most likelihoods need nothing
from here. The functions `bernoulli_probit`, `bernoulli_logit`, `robust_max`, `softmax`, `student_t`
and `heteroscedastic` are ready to pass: ``observe(f(x), likelihoods.robust_max)``. `PoissonLog` and
`NegativeBinomialLog` take the log of a rate, so that their gradients are finite for any f. A
subclass of `AnalyticLikelihood` computes its expectations over a Gaussian f, and `observe` uses
these instead of quadrature or Monte Carlo.
"""

from __future__ import annotations

from dgp_ppl.likelihoods._analytic import AnalyticLikelihood
from dgp_ppl.likelihoods._censored import CensoredNormal
from dgp_ppl.likelihoods._classes import (
    BernoulliProbit,
    RobustMax,
    bernoulli_logit,
    bernoulli_probit,
    robust_max,
    softmax,
)
from dgp_ppl.likelihoods._counts import NegativeBinomialLog, PoissonLog
from dgp_ppl.likelihoods._heteroscedastic import HeteroscedasticNormal, heteroscedastic
from dgp_ppl.likelihoods._mixed import MixedNormal
from dgp_ppl.likelihoods._mixture import Mixture
from dgp_ppl.likelihoods._observe import Likelihood, Observed, log_density, observe
from dgp_ppl.likelihoods._student_t import StudentT, student_t
from dgp_ppl.likelihoods._survival import IntervalCensored, LeftCensored, RightCensored

__all__ = [
    "AnalyticLikelihood", "BernoulliProbit", "CensoredNormal", "HeteroscedasticNormal",
    "IntervalCensored", "LeftCensored", "Likelihood", "MixedNormal",
    "Mixture", "NegativeBinomialLog", "Observed", "PoissonLog",
    "RightCensored", "RobustMax", "StudentT", "bernoulli_logit", "bernoulli_probit",
    "heteroscedastic", "log_density", "observe", "robust_max", "softmax", "student_t",
]  # fmt: skip
