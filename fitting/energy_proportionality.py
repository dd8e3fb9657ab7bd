"""Figures of energy proportionality: how nearly the watts of a server follow its load.

All take loads and watts of the levels, rising from idle (load 0) to full load (1).

References
----------
Ryckbosch, Polfliet & Eeckhout (2011), "Trends in Server Energy Proportionality", *Computer* 44(9),
69-72, https://doi.org/10.1109/MC.2011.130.

Varsamopoulos & Gupta (2010), "Energy Proportionality and the Future: Metrics and Directions",
ICPPW, https://doi.org/10.1109/ICPPW.2010.68.

Wong & Annavaram (2012), "KnightShift: Scaling the Energy Proportionality Wall through Server-Level
Heterogeneity", MICRO-45, https://doi.org/10.1109/MICRO.2012.20.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fitting.line import FloatArray


def idle_to_peak(watts: FloatArray) -> float:
    """P(idle)/P(full): 0 for a proportional server, 1 for one whose load costs nothing.

    Source: Varsamopoulos & Gupta (2010), there the idle-to-peak ratio, IPR.
    """
    return float(watts[0] / watts[-1])


def dynamic_range(watts: FloatArray) -> float:
    """1 − P(idle)/P(full): share of the full watts that follows the load.

    Source: Wong & Annavaram (2012).
    """
    return 1 - idle_to_peak(watts)


def energy_proportionality(load: FloatArray, watts: FloatArray) -> float:
    """EP = 1 − (A − 1/2)/(1/2), with A the area under P(u)/P(full) by trapezoids.

    1 for watts in proportion to load, 0 for constant watts, above 1 for a curve below the
    proportional line. For a straight line it is the dynamic range. Source: Ryckbosch et al. (2011).
    """
    area = float(np.trapezoid(watts / watts[-1], load))
    return 1 - (area - 0.5) / 0.5


def linear_deviation(load: FloatArray, watts: FloatArray) -> tuple[float, float]:
    """Largest relative distance from the line between idle and full load, and its load.

    LDR(u) = P(u)/(P(idle) + (P(full) − P(idle))·u) − 1, with its sign, at the level where its size
    is largest: above 0 the curve is above its line. Source: Varsamopoulos & Gupta (2010).
    """
    line = watts[0] + (watts[-1] - watts[0]) * load
    deviation = watts / line - 1
    at = int(np.argmax(np.abs(deviation)))
    return float(deviation[at]), float(load[at])


def proportionality_gap(load: FloatArray, watts: FloatArray) -> FloatArray:
    """PG(u) = P(u)/P(full) − u: watts above the proportional ones, as a share of the full ones.

    Source: Wong & Annavaram (2012).
    """
    gap: FloatArray = watts / watts[-1] - load
    return gap


def peak_efficiency(load: FloatArray, watts: FloatArray) -> tuple[float, float]:
    """Load at which work per joule is most, and how many times that of full load it is there."""
    relative = load * watts[-1] / watts
    at = int(np.argmax(relative))
    return float(load[at]), float(relative[at])
