"""Split conformal calibration: how wide an interval must be, learnt from other groups' misses.

A projection of a group that was measured at the target has a score, |ln measured − ln projected|
in units of the posterior's standard deviation. The interval of another group reaches as far as
the score that the wanted share of them does not exceed. It holds whatever the distribution, as far
as the groups are exchangeable; the group's own cluster takes no part in its calibration. Source:
Vovk, Gammerman & Shafer (2005), *Algorithmic Learning in a Random World*; Lei et al. (2018),
https://doi.org/10.1080/01621459.2017.1307116 (normalised scores).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray, IntArray


def fewest_scores(level: float) -> int:
    """Number of scores that an interval at ``level`` takes: 9 at 0.90."""
    return math.ceil(round(level / (1 - level), 9))


def conformal_factor(
    score: FloatArray, cluster: IntArray, asked: IntArray, level: float
) -> FloatArray:
    """Half width of the interval (standard deviations) for groups of the clusters ``asked``.

    ``score`` and ``cluster`` are those of the groups measured at the target; a score of NaN takes
    no part. The half width is the ⌈(n + 1)·level⌉-th smallest of the n scores of other clusters;
    NaN where n is less than `fewest_scores`.
    """
    known = ~np.isnan(score)
    order = np.argsort(score[known], kind="stable")
    ascending, of = score[known][order], cluster[known][order]
    made = np.full(len(asked), np.nan)
    for number in np.unique(asked):
        others = ascending[of != number]
        # Rounded, because 10·0.9 must not become the tenth by its last bit.
        rank = math.ceil(round((len(others) + 1) * level, 9))
        if rank <= len(others):
            made[asked == number] = others[rank - 1]
    return made
