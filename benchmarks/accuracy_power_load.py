"""Tasks of the table of accuracy in which a server is at another load: SPECpower_ssj2008 results.

Full-load watts of published results (www.spec.org/power_ssj2008 is the source of every number) from
two levels or more. The three ratios of the shape of the curves were chosen with all years in view,
so that the errors flatter them; the widths of the intervals were fitted to the results of 2012
alone, and the years before took no part in them. How they widen for newer servers is shown on the
results of 2010 to 2012, with widths that are fitted to those of 2007 and 2008.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from outcomes import IN_VIEW, LEVEL, UNSEEN, Outcome

from fitting.laws.power_load import PowerForecast, forecast_power
from measurements.table.specpower import SpecPowerResult, read_specpower
from ppw.power.load_curve import PowerLoadCurve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SETS = (
    *((50, 90), (40, 50, 90), (40, 60, 90), (10, 60, 90), (30, 60, 90), (10, 50, 90)),
    *((0, 50, 90), (50, 70, 90), (10, 30, 50, 70, 90), (0, 30, 60, 90), (20, 40, 60, 80)),
)
# What the widths of the intervals were fitted to.
FITTED_YEAR = 2012
OLD_YEARS, NEW_YEARS = (2007, 2008), (2010, 2011, 2012)


class Measured(NamedTuple):
    """Loads and watts of every result, (results, 11) from idle to full; who made it, and when."""

    load: FloatArray
    watts: FloatArray
    year: FloatArray
    name: NDArray[np.str_]
    vendor: NDArray[np.str_]

    def before(self, year: int) -> Measured:
        """Results of earlier years."""
        return Measured(*(part[self.year < year] for part in self))

    def of_years(self, years: tuple[int, ...]) -> Measured:
        """Results of some years."""
        return Measured(*(part[np.isin(self.year, years)] for part in self))


def measured(results: list[SpecPowerResult]) -> Measured:
    """Levels of the results that have all eleven."""
    curves = [PowerLoadCurve.from_specpower(r) for r in results]
    kept = [(c, r) for c, r in zip(curves, results, strict=True) if len(c.load) == 11]
    return Measured(
        np.array([c.load for c, _ in kept]),
        np.array([c.power for c, _ in kept]),
        np.array([r.year for _, r in kept], dtype=float),
        np.array([r.system for _, r in kept]),
        np.array([r.vendor for _, r in kept]),
    )


def full_load(
    data: Measured, levels: tuple[int, ...], newer: FloatArray | float = 0.0
) -> PowerForecast:
    """Watts at full load from some levels, named by their target in percent."""
    places = [at // 10 for at in levels]
    learnt, asked = (data.load[:, places], data.watts[:, places]), np.ones(1)
    return forecast_power(*learnt, asked, level=LEVEL, years_newer=newer)


def errors(predicted: FloatArray, data: Measured) -> tuple[float, float]:
    """Median and 90th percentile of the absolute error at full load, in percent."""
    size = 100 * np.abs(predicted / data.watts[:, -1] - 1)
    return float(np.median(size)), float(np.quantile(size, 0.9))


def covered(found: PowerForecast, data: Measured) -> NDArray[np.bool_]:
    """Whether each interval at full load holds the measured watts."""
    full = data.watts[:, -1]
    held: NDArray[np.bool_] = (found.lower[:, 0] <= full) & (full <= found.upper[:, 0])
    return held


def straight(data: Measured, levels: tuple[int, ...]) -> FloatArray:
    """Watts at full load on the least-squares line through the levels."""
    places = [at // 10 for at in levels]
    load, watts = data.load[:, places], data.watts[:, places]
    offset = load - load.mean(axis=1, keepdims=True)
    slope = (offset * watts).sum(axis=1) / (offset**2).sum(axis=1)
    line: FloatArray = watts.mean(axis=1) + slope * (1 - load.mean(axis=1))
    return line


def outcome_of(
    data: Measured,
    levels: tuple[int, ...],
    note: str,
    priors: str,
    newer: FloatArray | float = 0.0,
    width: float = 1.0,
) -> Outcome:
    """Forecast the watts at full load of all results; half widths times ``width``."""
    found = full_load(data, levels, newer)
    found = found._replace(half_width=width * found.half_width)
    cases = pd.DataFrame(
        {
            "name": data.name,
            "cluster": data.vendor,
            "projected": found.watts[:, 0],
            "measured": data.watts[:, -1],
            "lower": found.lower[:, 0],
            "upper": found.upper[:, 0],
        }
    )
    highest = max(levels) // 10
    naive = data.watts[:, highest] / data.load[:, highest]
    title = ", ".join("idle" if at == 0 else f"{at}" for at in levels)
    task = f"power: {title} → 100 % load{note}"
    return Outcome("SPECpower", task, priors, cases, straight(data, levels), naive)


def newer_outcome(data: Measured, *, widened: bool) -> Outcome:
    """Forecast newer servers from all sets of levels, with widths fitted to older ones."""
    old, new = data.of_years(OLD_YEARS), data.of_years(NEW_YEARS)
    newer = (new.year - OLD_YEARS[-1]) * widened
    made = []
    for levels in SETS:
        found, full = full_load(old, levels), old.watts[:, -1:]
        width = float(np.quantile(np.abs(full - found.watts) / found.half_width, LEVEL))
        made.append(outcome_of(new, levels, "", "", newer, width))
    task = "power: 11 sets of levels → 100 % load, 2010 to 2012, widths of 2007 and 2008"
    return Outcome(
        "SPECpower",
        task + ", widened with age" * widened,
        IN_VIEW if widened else UNSEEN,
        pd.concat([one.cases for one in made]),
        *(np.concatenate([one[place] for one in made]) for place in (4, 5)),
    )


def read(folder: Path) -> Measured:
    """Results of the folder of sets."""
    return measured(read_specpower(sorted((folder / "specpower").glob("*.csv"))))


def outcomes(folder: Path) -> Iterator[Outcome]:
    """All tasks."""
    data = read(folder)
    for levels in SETS:
        yield outcome_of(data, levels, "", IN_VIEW)
    for levels in SETS[:2]:
        yield outcome_of(data.before(FITTED_YEAR), levels, f", to {FITTED_YEAR - 1}", UNSEEN)
    for widened in (False, True):
        yield newer_outcome(data, widened=widened)
