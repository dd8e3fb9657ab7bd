"""Where two sides tie: the frequency of A, the electricity price and A's own price, in draws.

Cost of a unit of work: C = price·T/L + e·E, with lifetime L (s), electricity e (currency a J), and
E = P·T. Equal costs give e* = (price_B·T_B − price_A·T_A)/(L·(E_A − E_B)) and
price_A* = (price_B·T_B + L·e·(E_B − E_A))/T_A; without electricity price_A*/price_B is the speed-up
T_B/T_A (Issa & Figueira 2012, https://doi.org/10.1186/2192-113X-1-10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray


class Tie(NamedTuple):
    """Where the sides tie: median and interval over the draws that tie, and their share.

    ``value`` and its ends are NaN where fewer than half of the draws tie.
    """

    value: float
    lower: float
    upper: float
    p_tie: float


NO_TIE = Tie(np.nan, np.nan, np.nan, 0.0)


def tie_of(draws: FloatArray, level: float) -> Tie:
    """Summarise the ties of the draws; NaN stands for a draw without one."""
    there = draws[~np.isnan(draws)]
    share = len(there) / len(draws)
    if share < 0.5:
        return NO_TIE._replace(p_tie=share)
    value, lower, upper = np.quantile(there, [0.5, 0.5 - level / 2, 0.5 + level / 2])
    return Tie(float(value), float(lower), float(upper), share)


def crossing(frequency: FloatArray, apart: FloatArray, near: float) -> FloatArray:
    """Frequency (Hz) of each draw at which a difference changes its sign.

    Parameters
    ----------
    frequency : (k,) float array
        Hz, rising.
    apart : (draws, k) float array
        Difference of logarithms, taken as straight in ln f between the frequencies.
    near : float
        Hz; of several crossings the nearest to it counts.

    Returns
    -------
    (draws,) float array
        NaN where the sign never changes.
    """
    x = np.log(frequency)
    left, right = apart[:, :-1], apart[:, 1:]
    crosses = (left > 0) != (right > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(crosses, x[:-1] + np.diff(x) * left / (left - right), np.inf)
    nearest = np.argmin(np.abs(at - np.log(near)), axis=1)
    found = np.take_along_axis(at, nearest[:, None], 1)[:, 0]
    made: FloatArray = np.where(np.isinf(found), np.nan, np.exp(found))
    return made


def electricity_tie(
    time: tuple[FloatArray, FloatArray],
    energy: tuple[FloatArray, FloatArray],
    price: tuple[float, float],
    lifetime_s: float,
) -> FloatArray:
    """Electricity price (currency a J) of each draw at which A and B cost the same; NaN for none.

    ``time`` (s), ``energy`` (J) and ``price`` are of A and B; one draw an element.
    """
    saved = (price[1] * time[1] - price[0] * time[0]) / lifetime_s
    with np.errstate(divide="ignore", invalid="ignore"):
        tie = saved / (energy[0] - energy[1])
    made: FloatArray = np.where((tie > 0) & np.isfinite(tie), tie, np.nan)
    return made


def price_tie(
    time: tuple[FloatArray, FloatArray],
    energy: tuple[FloatArray, FloatArray] | None,
    price_b: float,
    paid: float,
) -> FloatArray:
    """Price of A of each draw at which A and B cost the same; NaN where not even for nothing.

    ``paid`` is what a watt costs over the lifetime, L·e (currency a W); ``energy`` may be None
    where it is 0.
    """
    budget = price_b * time[1]
    if energy is not None:
        budget = budget + paid * (energy[1] - energy[0])
    tie = budget / time[0]
    return np.where(tie > 0, tie, np.nan)
