"""How well few levels tell the watts of a server at another load: one table.

``python benchmarks/accuracy_power_load.py [--data DIR]`` predicts the full-load watts of published
SPECpower_ssj2008 results (see ``tests/conftest.py`` for where they are, and
www.spec.org/power_ssj2008 for the source of every number) from two levels or more, and prints, a
line a set of levels: absolute errors beside those of the least-squares straight line, coverage of
the 90 % intervals over all years and by year, and the median half width of the intervals.

The three ratios of the shape of the curves were chosen with all years in view, so that the errors
flatter them; the widths of the intervals were fitted to the results of 2012 alone, and the years
before took no part in them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.power_load import PowerForecast, forecast_watts
from measurements.specpower import SpecPowerResult, read_specpower
from ppw.power_load import PowerLoadCurve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

ROOT = Path(__file__).resolve().parent.parent
LEVEL = 0.90
SETS = (
    *((50, 90), (40, 50, 90), (40, 60, 90), (10, 60, 90), (30, 60, 90), (10, 50, 90)),
    *((0, 50, 90), (50, 70, 90), (10, 30, 50, 70, 90), (0, 30, 60, 90), (20, 40, 60, 80)),
)
# In 2002 and 2007 there are 16 results.
YEARS = ((2002, 2008), (2009, 2009), (2010, 2010), (2011, 2011), (2012, 2012))


class Measured(NamedTuple):
    """Loads and watts of every result, (results, 11) from idle to full, and their years."""

    load: FloatArray
    watts: FloatArray
    year: FloatArray


def measured(results: list[SpecPowerResult]) -> Measured:
    """Levels of the results that have all eleven."""
    curves = [PowerLoadCurve.from_specpower(r) for r in results]
    kept = [(c, r.year) for c, r in zip(curves, results, strict=True) if len(c.load) == 11]
    return Measured(
        np.array([c.load for c, _ in kept]),
        np.array([c.power for c, _ in kept]),
        np.array([year for _, year in kept], dtype=float),
    )


def full_load(data: Measured, levels: tuple[int, ...], level: float = LEVEL) -> PowerForecast:
    """Watts at full load from some levels, named by their target in percent."""
    places = [at // 10 for at in levels]
    asked = np.ones(1)
    return forecast_watts(data.load[:, places], data.watts[:, places], asked, level=level)


def errors(predicted: FloatArray, data: Measured) -> tuple[float, float]:
    """Median and 90th percentile of the absolute error at full load, in percent."""
    size = 100 * np.abs(predicted / data.watts[:, -1] - 1)
    return float(np.median(size)), float(np.quantile(size, 0.9))


def covered(found: PowerForecast, data: Measured) -> NDArray[np.bool_]:
    """Whether each interval at full load holds the measured watts."""
    full = data.watts[:, -1]
    inside: NDArray[np.bool_] = (found.lower[:, 0] <= full) & (full <= found.upper[:, 0])
    return inside


def straight(data: Measured, levels: tuple[int, ...]) -> FloatArray:
    """Watts at full load on the least-squares line through the levels."""
    places = [at // 10 for at in levels]
    load, watts = data.load[:, places], data.watts[:, places]
    offset = load - load.mean(axis=1, keepdims=True)
    slope = (offset * watts).sum(axis=1) / (offset**2).sum(axis=1)
    line: FloatArray = watts.mean(axis=1) + slope * (1 - load.mean(axis=1))
    return line


def row_of(data: Measured, levels: tuple[int, ...]) -> list[str]:
    """One line of the table."""
    found = full_load(data, levels)
    inside = covered(found, data)
    half = np.median((found.upper - found.watts)[:, 0] / data.watts[:, -1])
    by_year = [
        f"{inside[(data.year >= first) & (data.year <= last)].mean():.0%}" for first, last in YEARS
    ]
    return [
        ", ".join(map(str, levels)),
        str(len(data.watts)),
        "{:.2f} / {:.2f}".format(*errors(found.watts[:, 0], data)),
        "{:.2f} / {:.2f}".format(*errors(straight(data, levels), data)),
        f"{100 * half:.1f}",
        f"{inside.mean():.0%}",
        *by_year,
    ]


def main() -> int:
    """Print the table."""
    from ppw.tables import text_table

    default = Path(os.environ.get("PPW_DATA_DIR", ROOT.parent / "shared" / "data"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=default)
    folder = parser.parse_args().data / "specpower"
    files = sorted(folder.glob("*.csv"))
    if not files:
        print(f"accuracy: no results in {folder}: give --data or set PPW_DATA_DIR", file=sys.stderr)
        return 1
    data = measured(read_specpower(files))
    header = ["levels (%)", "n", "error %", "line", "± %", "covered"]
    header += [f"to {last}" if first != last else str(last) for first, last in YEARS]
    print("watts at full load; median / 90th percentile of the absolute error")
    print(text_table(header, [row_of(data, levels) for levels in SETS]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
