"""How much of its rate a server may be given before its latency passes a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray


def share_within(share: FloatArray, latency: FloatArray, limit: float) -> float:
    """Largest share of the full rate at which latency keeps a limit.

    Parameters
    ----------
    share : (k,) float array
        Rates at which latency was measured, over the full rate; in any order.
    latency : (k,) float array
        Seconds at each. Where it falls as the rate rises, the higher one of before counts.
    limit : float
        Seconds.

    Returns
    -------
    float
        Between a point that keeps the limit and the next, which does not, ln(latency) is taken as
        straight in the rate. Never more than the highest rate measured, nor than 1; 0 where no
        point keeps the limit.
    """
    order = np.argsort(share)
    share, worst = share[order], np.maximum.accumulate(latency[order])
    kept = int(np.count_nonzero(worst <= limit))
    if kept == 0:
        return 0.0
    if kept == len(share):
        return float(min(share[-1], 1.0))
    left, right = np.log(worst[kept - 1 : kept + 1])
    # Latencies may differ where their logarithms do not.
    part = (np.log(limit) - left) / (right - left) if right > left else 0.0
    return float(min(share[kept - 1] + part * (share[kept] - share[kept - 1]), 1.0))
