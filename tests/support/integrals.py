"""Reference integrals over a Gaussian, by adaptive Gauss-Legendre panels in float64."""

import numpy as np
from scipy import special, stats

_RULES = [np.polynomial.legendre.leggauss(n) for n in (12, 25)]


def adaptive(function, ends, tolerance=1e-9):
    """Integrate over panels, halving those where two rules differ."""
    low, high, total = ends[:-1], ends[1:], 0.0
    for _ in range(60):
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        coarse, fine = (
            half * (function(middle[:, None] + half[:, None] * x) @ w) for x, w in _RULES
        )
        bad = np.abs(coarse - fine) > tolerance * np.abs(total + fine.sum())
        total += fine[~bad].sum()
        if not bad.any():
            return total
        low, high = (
            np.concatenate([low[bad], middle[bad]]),
            np.concatenate([middle[bad], high[bad]]),
        )
    return total + fine[bad].sum()


def panels(mean, sd, places):
    """Ends of panels around the mean and around places where the function is not smooth."""
    far = np.concatenate([np.linspace(0, 40, 81), np.logspace(np.log10(40.5), 6, 60)])
    near = np.concatenate([sd * np.logspace(-8, 2, 41), np.logspace(-6, 3, 19)])
    ends = [mean + s * sd * far for s in (-1, 1)] + [np.asarray(places, float)]
    return np.unique(np.concatenate([*ends, *(p + s * near for p in places for s in (-1, 1))]))


def _largest(function, x):
    """The place of the largest value of a function with one peak between the ends of x."""
    for _ in range(40):
        best = np.argmax(function(x))
        x = np.linspace(x[max(best - 1, 0)], x[min(best + 1, len(x) - 1)], 20)
    return x[10]


def log_expectation(log_p, mean, sd, places):
    """log E[p(f)] for f ~ N(mean, sd²); `places` are where p is not smooth."""

    def terms(f):
        found = log_p(f) + stats.norm.logpdf(f, mean, sd)
        return np.where(np.isnan(found), -np.inf, found)

    with np.errstate(all="ignore"):
        ends = panels(mean, sd, places)
        mode = _largest(terms, ends)
        top, near = terms(mode), sd * np.logspace(-9, 2, 45)
        ends = np.unique(np.concatenate([ends, [mode], mode + near, mode - near]))
        return top + np.log(adaptive(lambda f: np.exp(terms(f) - top), ends))


def expectation(function, mean, sd, places):
    """E[function(f)] for f ~ N(mean, sd²)."""

    def terms(f):
        weights = stats.norm.pdf(f, mean, sd)
        return weights * np.where(weights > 0, function(f), 0.0)

    with np.errstate(all="ignore"):
        return adaptive(lambda f: np.nan_to_num(terms(f), nan=0.0), panels(mean, sd, places))


def largest_probability(mean, var, c):
    """P(f_c is the largest) for independent f ~ N(mean, var)."""
    sd = np.sqrt(var)
    others = [i for i in range(len(mean)) if i != c]
    places = (mean[others] - mean[c]) / sd[c]

    def below(f):
        return np.exp(special.log_ndtr(sd[c] * (f[..., None] - places) / sd[others]).sum(axis=-1))

    return expectation(below, 0.0, 1.0, places)
