"""Which candidate is the best, counted over joint draws, and which ones no other beats in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]


def share_best(values: FloatArray, fits: Mask, more_is_better: bool) -> FloatArray:
    """Share of the draws in which each candidate is the best.

    Parameters
    ----------
    values : (candidates, draws) float array
        NaN where it is not known; a draw with an unknown value of a candidate that fits is no draw.
    fits : (candidates, draws) bool array
        A candidate that does not fit is never the best.
    more_is_better : bool

    Returns
    -------
    (candidates,) float array
        Candidates that tie share their draw. NaN for all where no draw tells.
    """
    cost = -values if more_is_better else values
    known = ~(np.isnan(cost) & fits).any(axis=0) & fits.any(axis=0)
    if not known.any():
        return np.full(len(values), np.nan)
    cost = np.where(fits, cost, np.inf)[:, known]
    best = cost == cost.min(axis=0)
    shares: FloatArray = (best / best.sum(axis=0)).mean(axis=1)
    return shares


def on_front(costs: FloatArray, fits: Mask) -> Mask:
    """Tell which candidates no other one beats: none is as good in all costs and better in one.

    Parameters
    ----------
    costs : (criteria, candidates, draws) float array
        Less is better.
    fits : (candidates, draws) bool array

    Returns
    -------
    (candidates, draws) bool array
    """
    one, other = costs[:, :, None], costs[:, None]
    as_good = (other <= one).all(axis=0)
    better = (other < one).any(axis=0)
    beaten = (as_good & better & fits[None]).any(axis=1)
    front: Mask = fits & ~beaten
    return front
