"""What Awasthi et al. (2015) state of five applications, judged by one set of thresholds.

M. Awasthi, T. Suri, Z. Guz, A. Shayesteh, M. Ghosh, V. Balakrishnan: System-Level Characterization
of Datacenter Applications. ICPE 2015, pages 27–38. Cells with a figure in the text are judged by
it; cells for which it has words alone keep them, apart; nothing is filled in for the others. The
thresholds are those of `ppw.pressure.capacity`, which were fixed first.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pandas as pd

from fitting.demand.utilisation import grade
from ppw.pressure.capacity import RESOURCES, Thresholds
from ppw.pressure.matrix import NOT_MEASURED

CITATION = "Awasthi et al. 2015, ICPE"
APPLICATIONS = ("Memcache", "Cassandra", "Redis", "Nutch", "Data analytics")

# Peak memory bandwidth of the servers and line rate of their network.
MEMORY_BANDWIDTH_BYTES_S = 102.4e9
LINE_RATE_BYTES_S = 1.25e9


class Stated(NamedTuple):
    """A figure of the text, in the unit of its threshold, which the measure names."""

    application: str
    resource: str
    measure: str
    value: float
    # Whether the text gives a bound: the level is then the highest that it can be.
    at_most: bool
    text: str


class Word(NamedTuple):
    """A resource that the text names without a figure, by the level that the word stands for."""

    application: str
    resource: str
    level: str


BANDWIDTH, NETWORK = ("memory_bandwidth",) * 2, ("network", "network_utilisation")
FIGURES = (
    Stated("Memcache", *BANDWIDTH, 0.093, False, "9.3 %"),
    Stated("Memcache", *NETWORK, 1.25e9 / LINE_RATE_BYTES_S, False, "the line rate, 1.25 GB/s"),
    Stated("Redis", *BANDWIDTH, 10e9 / MEMORY_BANDWIDTH_BYTES_S, True, "under 10 of 102.4 GB/s"),
    Stated("Cassandra", "disk", "iowait", 0.5, False, "half the CPU time waiting"),
    Stated("Cassandra", *NETWORK, 0.01, False, "1 %"),
    Stated("Nutch", "cpu", "cpu_utilisation", 0.80, False, "80 %"),
    Stated("Nutch", "disk", "disk_rate", 250e6, False, "250 MB/s"),
    Stated("Data analytics", *BANDWIDTH, 0.20, True, "under 20 %"),
)
# Named as pressure points of the application, without a figure.
NAMED = ("Memcache", "memory"), ("Redis", "network"), ("Data analytics", "cpu")
WORDS = tuple(Word(*cell, "high") for cell in NAMED)


def published_matrix(thresholds: Thresholds | None = None) -> pd.DataFrame:
    """Judge the stated figures: a row for each application and resource, with its basis."""
    limits = thresholds or Thresholds()
    judged = {(f.application, f.resource): (_level(f, limits), "figure", f.text) for f in FIGURES}
    named = {(w.application, w.resource): (w.level, "word", "named") for w in WORDS}
    known, unknown = named | judged, (NOT_MEASURED, NOT_MEASURED, "")
    cells = [(*cell, *known.get(cell, unknown)) for cell in product(APPLICATIONS, RESOURCES)]
    return pd.DataFrame(cells, columns=["application", "resource", "level", "basis", "stated"])


def _level(figure: Stated, thresholds: Thresholds) -> str:
    threshold = thresholds[figure.measure]
    level = grade(figure.value, threshold.medium, threshold.high)
    return level if level == "low" or not figure.at_most else f"at most {level}"
