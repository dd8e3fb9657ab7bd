"""Figures published in Issa & Figueira (2012), each typed from the paper; nothing is filled in.

J. Issa, S. Figueira: Hadoop and memcached: Performance and power characterization and analysis.
Journal of Cloud Computing 1:10 (2012), https://doi.org/10.1186/2192-113X-1-10.
"""

from __future__ import annotations

from typing import NamedTuple

CITATION = (
    "Issa & Figueira 2012, Journal of Cloud Computing 1:10, https://doi.org/10.1186/2192-113X-1-10"
)


class CpiCurve(NamedTuple):
    """Memcached on one machine: 1/CPI = c − k/f, with the cores and clocks it was measured at.

    The paper prints k for an x that is read as 1/f with f in MHz, which it does not say.
    """

    machine: str
    cores: int
    c: float
    k_hz: float
    measured_hz: tuple[float, ...]


ATOM = CpiCurve("Atom D525", 2, 0.304, 250e6, (1.66e9, 1.80e9))
WESTMERE = CpiCurve("Westmere L5640", 12, 0.505, 402e6, (2.27e9,))

# Memcached, Westmere L5640 (two sockets, 12 cores, 2.27 GHz) to Atom D525 (2 cores, 1.8 GHz).
THROUGHPUT_RATIO = 14.79
POWER_RATIO = 5.9

# Wordcount on Hadoop, PL(n) = a·ln(n) + b against cores; printed without a unit.
WORDCOUNT_A = -31500.0
WORDCOUNT_B = 70702.0
WORDCOUNT_CORES = (1, 9)
