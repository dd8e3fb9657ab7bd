"""Variances of many small samples, each estimated from its own values and from all other samples.

Equation
--------
Sample i has the variance s² with d degrees of freedom. The true variances scatter: 1/σ² is a scaled
chi-square variable with d0 degrees of freedom about 1/s0². Then (d0·s0² + d·s²)/(d0 + d) estimates
σ² with d0 + d degrees of freedom. d0 and s0² follow from variance and mean of ln s².

References
----------
G. K. Smyth, "Linear Models and Empirical Bayes Methods for Assessing Differential Expression in
Microarray Experiments", Statist. Appl. Genet. Mol. Biol. 3 (2004),
https://doi.org/10.2202/1544-6115.1027.
"""

import numpy as np

from fitting.regression.lines import FloatArray

# A sample without scatter counts as having this share of the typical variance.
_LEAST_SHARE = 1e-5


def moderate_variances(variance: FloatArray, freedom: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Estimate the variance of each sample, and its degrees of freedom, with those of all samples.

    A sample without degrees of freedom gets what the others show; where none has any, variances
    are NaN and degrees of freedom 0. Samples without any scatter keep the variance 0.
    """
    from scipy.special import digamma, polygamma

    some = freedom > 0
    scattered = variance[some & (variance > 0)]
    if not scattered.size:
        return np.full(len(variance), 0.0 if some.any() else np.nan), freedom
    if some.sum() == 1:
        return np.full(len(variance), scattered[0]), np.full(len(variance), freedom.max())
    half = freedom[some] / 2
    log = np.log(np.maximum(variance[some], _LEAST_SHARE * np.median(scattered)))
    log += np.log(half) - digamma(half)
    # The scatter beyond that of sampling is taken as large as it may well be: a few samples that
    # look alike are no proof that all have one variance.
    most = 1 + np.sqrt(2 / (len(log) - 1))
    scatter = most * log.var(ddof=1) - polygamma(1, half).mean()
    halves = np.geomspace(0.05, 5e5, 500)
    prior = 2 * float(np.interp(-scatter, -polygamma(1, halves), halves))
    centre = np.exp(log.mean() + digamma(prior / 2) - np.log(prior / 2))
    own = freedom * np.where(some, variance, 0.0)
    return (prior * centre + own) / (prior + freedom), np.minimum(prior + freedom, freedom.sum())
