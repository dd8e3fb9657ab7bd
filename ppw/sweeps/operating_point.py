"""The operating point of a sweep: the level to run at, and what the next one would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Without a knee, the smallest level that comes as near to the best as this is good enough.
NEAR_BEST = 0.05
POINT_COLUMNS = (
    *("recommended", "recommended_value", "per_watt", "most_per_watt_at"),
    *("next_step", "next_value_change", "next_performance_change", "next_power_change"),
    *("next_per_watt_change", "next_failure"),
)


class Bounds(NamedTuple):
    """Levels that failed next to those that worked: below and above them; NaN where none did."""

    below: float
    above: float


def bounds(levels: pd.DataFrame) -> Bounds:
    """Find the failures that enclose the levels that worked.

    Parameters
    ----------
    levels : pandas.DataFrame
        Of one sweep in order: ``x``, ``value``, ``failed`` (how many of its runs).
    """
    x, failed = levels["x"].to_numpy(), levels["failed"].to_numpy() > 0
    worked = x[~failed]
    if not len(worked):
        return Bounds(np.nan, np.nan)
    # What works again above a failure is not relied on.
    below, above = x[failed & (x < worked[0])], x[failed & (x > worked[0])]
    return Bounds(
        float(below[-1]) if len(below) else np.nan, float(above[0]) if len(above) else np.nan
    )


def usable(levels: pd.DataFrame) -> pd.DataFrame:
    """Levels that worked, up to the first above them that failed."""
    worked = levels[levels["failed"] == 0]
    above = bounds(levels).above
    return worked if np.isnan(above) else worked[worked["x"] < above]


def operating_point(levels: pd.DataFrame, knee: dict[str, Any], *, higher: bool) -> dict[str, Any]:
    """Choose the level to run at.

    Parameters
    ----------
    levels : pandas.DataFrame
        Of one sweep in order: ``x``, ``value``, ``performance``, ``power_w``, ``per_watt``,
        ``failed``, ``failure``.
    knee : dict
        ``knee``, ``lower``, ``upper``; the knee NaN where there is none that costs.
    higher : bool
        Whether a higher value is better.

    Returns
    -------
    dict
        `POINT_COLUMNS`: the level nearest to the knee inside its interval, else the last below
        it; without a knee the smallest that comes within 5 % of the best. Changes are shares.
    """
    good = usable(levels)
    if good.empty:
        return dict.fromkeys(POINT_COLUMNS)
    x, value = good["x"].to_numpy(), good["value"].to_numpy()
    at = _near_best(value, higher) if np.isnan(knee["knee"]) else _at_knee(x, knee)
    here = good.iloc[at]
    later = levels[levels["x"] > here["x"]]
    return {
        "recommended": here["x"],
        "recommended_value": here["value"],
        "per_watt": here["per_watt"],
        "most_per_watt_at": _most_per_watt(good),
        **(_next_step(here, later.iloc[0]) if len(later) else {}),
    }


def _near_best(value: FloatArray, higher: bool) -> int:
    benefit = value if higher else 1 / value
    return int(np.argmax(benefit >= (1 - NEAR_BEST) * benefit.max()))


def _at_knee(x: FloatArray, knee: dict[str, Any]) -> int:
    nearest = int(np.argmin(np.abs(np.log(x / knee["knee"]))))
    if knee["lower"] <= x[nearest] <= knee["upper"]:
        return nearest
    return max(int(np.searchsorted(x, knee["knee"], side="right")) - 1, 0)


def _most_per_watt(good: pd.DataFrame) -> float:
    known = good["per_watt"].notna().to_numpy()
    if not known.any():
        return np.nan
    best = np.argmax(good["per_watt"].to_numpy(dtype=np.float64)[known])
    return float(good["x"].to_numpy()[known][best])


def _next_step(here: pd.Series[Any], then: pd.Series[Any]) -> dict[str, Any]:
    changes = {
        f"next_{name}_change": then[column] / here[column] - 1
        for name, column in (
            ("value", "value"),
            ("performance", "performance"),
            ("power", "power_w"),
            ("per_watt", "per_watt"),
        )
    }
    return {"next_step": then["x"], **changes, "next_failure": then["failure"]}
