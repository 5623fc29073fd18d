"""Reference integrals over a Gaussian, by panels that shrink towards given places."""

import numpy as np
from scipy import special, stats

_X, _W = np.polynomial.legendre.leggauss(20)


def panels(mean, sd, places, reach=40.0):
    """Nodes and weights for integrals over mean ± reach sd of functions that vary near `places`."""
    near = np.logspace(-8, 2, 120) * sd
    ends = [mean + sd * np.linspace(-reach, reach, 801), *([p] for p in places)]
    ends += [p + s * near for p in places for s in (-1, 1)]
    ends = np.unique(np.concatenate(ends))
    ends = ends[np.abs(ends - mean) <= reach * sd]
    low, high = ends[:-1, None], ends[1:, None]
    return (low + high + (high - low) * _X).ravel() / 2, ((high - low) * _W).ravel() / 2


def log_expectation(log_p, mean, sd, places):
    """log E[p(f)] for f ~ N(mean, sd²)."""
    f, w = panels(mean, sd, places)
    return special.logsumexp(log_p(f) + stats.norm.logpdf(f, mean, sd), b=w)


def expectation(function, mean, sd, places):
    """E[function(f)] for f ~ N(mean, sd²)."""
    f, w = panels(mean, sd, places, reach=12.0)
    return np.sum(w * stats.norm.pdf(f, mean, sd) * function(f))


def largest_probability(mean, var, c):
    """P(f_c is the largest) for independent f ~ N(mean, var)."""
    sd = np.sqrt(var)
    others = [i for i in range(len(mean)) if i != c]
    places = (mean[others] - mean[c]) / sd[c]
    f, w = panels(0.0, 1.0, places, reach=12.0)
    below = special.log_ndtr((sd[c] * (f[:, None] - places)) / sd[others])
    return np.sum(w * stats.norm.pdf(f) * np.exp(below.sum(axis=1)))
