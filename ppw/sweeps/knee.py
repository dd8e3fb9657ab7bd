"""`find_knees`: where a sweep stops paying, and where to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.regression.knee import FEWEST_LEVELS, fit_knees
from ppw import caveats as cv
from ppw.arguments import as_share, known_choice
from ppw.result import frame_digest
from ppw.sweeps.direction import higher_is_better
from ppw.sweeps.operating_point import POINT_COLUMNS, bounds, operating_point, usable
from ppw.sweeps.points import column_unit, sweep_points
from ppw.sweeps.result import FAILS, FEW, KNEE, STRAIGHT, SweepKnees
from ppw.tabled_result import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.regression.knee import Knees
    from ppw.sweeps.points import Sweeps

# A bend that chance makes as often as this is none; two lines that fit as badly as this are not
# the form of the curve.
_BY_CHANCE = 0.05
_FOUND_COLUMNS = (
    *("sweep", "finding", "levels", "knee", "lower", "upper", "slope_before", "slope_after"),
    *("knee_value", "linear_from", "linear_to", "measured_to", "p_value"),
    *("lack_of_fit", "failed_below", "failed_above"),
)
_TEXTS = ("next_failure",)


def find_knees(
    runs: pd.DataFrame,
    *,
    over: str,
    of: str,
    by: Sequence[str] | None = None,
    scale: str = "log",
    level: float = 0.90,
    goal: str | None = None,
) -> SweepKnees:
    """Find the knee and the operating point of each sweep in a runs table.

    Parameters
    ----------
    runs : pandas.DataFrame
        Rows that failed are kept: they end the range. See `ppw.sweeps.points.sweep_points`.
    over : str
        What was set: ``"threads"``, ``"connections"``, ``"object_size"``, or any column.
    of : str
        What came of it: ``"throughput"``, ``"latency"`` (99th percentile), ``"time"``,
        ``"power"``, or any column.
    by : sequence of str, optional
        Columns that tell sweeps apart; by default all that set-ups differ in.
    scale : {"log", "linear"}
        In which co-ordinates the two lines are straight; in the logarithm, errors are relative.
    level : float
        Of the knee's interval, inside (0, 1).
    goal : {"higher", "lower"}, optional
        What is better; by default lower where the name speaks of latency, time, waiting, watts,
        energy, cost, CPI or misses; a name that does not say is taken as higher, with a caveat.

    Returns
    -------
    SweepKnees
        The knee and the operating point of each sweep of a runs table.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        Where a column is not there, or nothing was measured.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("level", level)
    known_choice("scale", scale, ("log", "linear"))
    known_choice("goal", goal or "higher", ("higher", "lower"))
    sweeps = sweep_points(runs, over=over, of=of, by=by)
    known = higher_is_better(sweeps.of) if goal is None else goal == "higher"
    higher = known is not False
    tables = [_levels(part) for _, part in sweeps.points.groupby("sweep")]
    fits = _fits(sweeps, tables, scale, level)
    rows = [_row(i, table, fits, sweeps, higher) for i, table in enumerate(tables)]
    columns = [*sweeps.keys.columns, *_FOUND_COLUMNS, *POINT_COLUMNS]
    knees = pd.DataFrame(rows, columns=columns)
    caveats = _caveats(runs, sweeps, knees, higher)
    if known is None:
        caveats.append(
            f"the name {sweeps.of} does not say which way is better: higher is taken as better; "
            "--goal lower (goal='lower') turns it"
        )
    cv.warn(caveats)
    return SweepKnees(
        knees=_typed(knees, [*sweeps.keys.columns, "sweep", "finding", *_TEXTS]),
        levels=pd.concat(
            [t.assign(sweep=sweeps.names[i]) for i, t in enumerate(tables)], ignore_index=True
        )[["sweep", *_LEVEL_COLUMNS]],
        over=sweeps.over,
        over_unit=column_unit(sweeps.over),
        of=sweeps.of,
        of_unit=sweeps.of_unit,
        higher_is_better=higher,
        scale=scale,
        level=float(level),
        caveats=tuple(caveats),
        input_digest=frame_digest(runs),
    )


_LEVEL_COLUMNS = ("x", "runs", "failed", "value", "performance", "power_w", "per_watt", "failure")


def _levels(points: pd.DataFrame) -> pd.DataFrame:
    levels = points.groupby("x", sort=True).agg(
        runs=("x", "size"),
        failed=("failed", "sum"),
        value=("y", "mean"),
        performance=("performance", "mean"),
        power_w=("power_w", "mean"),
        failure=("failure", "max"),
    )
    return levels.assign(per_watt=levels["performance"] / levels["power_w"]).reset_index()


def _fits(sweeps: Sweeps, tables: list[pd.DataFrame], scale: str, level: float) -> Knees | None:
    """Fit all sweeps at once, each through the levels that can be used."""
    points = sweeps.points
    last = np.array([_last(table) for table in tables])
    used = points[points["y"].notna() & (points["x"] <= last[points["sweep"]])]
    mixed = {(i, x) for i, t in enumerate(tables) for x in t.loc[t["failed"] > 0, "x"]}
    used = used[[key not in mixed for key in zip(used["sweep"], used["x"], strict=True)]]
    if used.empty:
        return None
    # A sweep without a point still has its number.
    codes, kept = pd.factorize(used["sweep"], sort=True)
    fit = fit_knees(codes, used["x"], used["y"], scale=scale, level=level)  # type: ignore[arg-type]
    return _numbered(fit, kept.to_numpy(), len(tables))


def _numbered(fit: Knees, kept: np.ndarray, sweeps: int) -> Knees:
    from dataclasses import fields, replace

    wide: dict[str, Any] = {}
    for one in fields(fit):
        part = getattr(fit, one.name)
        if isinstance(part, np.ndarray):
            whole = np.full(sweeps, np.nan if part.dtype.kind == "f" else 0, dtype=part.dtype)
            whole[kept] = part
            wide[one.name] = whole
    return replace(fit, **wide)


def _last(table: pd.DataFrame) -> float:
    good = usable(table)
    return float(good["x"].iloc[-1]) if len(good) else -np.inf


def _row(
    place: int, table: pd.DataFrame, fits: Knees | None, sweeps: Sweeps, higher: bool
) -> dict[str, Any]:
    good, ends = usable(table), bounds(table)
    keys = rows_of(sweeps.keys)[place] if len(sweeps.keys.columns) else {}
    row: dict[str, Any] = {
        **keys,
        "sweep": sweeps.names[place],
        "levels": float(len(good)),
        "failed_below": ends.below,
        "failed_above": ends.above,
        "next_failure": "",
    }
    if good.empty or fits is None:
        return row | {"finding": FAILS, "next_failure": str(table["failure"].max())}
    found = _found(place, fits, good, higher)
    if found["finding"] != KNEE and np.isfinite(ends.above):
        # What works and what does not enclose where it stops.
        found |= {"lower": float(good["x"].iloc[-1]), "upper": ends.above}
    elif found["finding"] == KNEE:
        found |= {
            "lower": np.fmax(found["lower"], ends.below),
            "upper": np.fmin(found["upper"], ends.above),
        }
    at = {name: found.get(name, np.nan) for name in ("knee", "lower", "upper")}
    return row | found | operating_point(table, at, higher=higher)


def _found(place: int, fits: Knees, good: pd.DataFrame, higher: bool) -> dict[str, Any]:
    """What two lines say of one sweep."""
    first, last = float(good["x"].iloc[0]), float(good["x"].iloc[-1])
    row = {
        name: float(getattr(fits, name)[place])
        for name in ("slope_before", "slope_after", "p_value", "lack_of_fit")
    }
    row["measured_to"] = last
    if len(good) < FEWEST_LEVELS:
        return row | {"finding": FEW, "linear_from": first, "linear_to": last}
    if not (row["p_value"] < _BY_CHANCE and _costs(row, higher)):
        return row | {"finding": STRAIGHT, "linear_from": first, "linear_to": last}
    knee = {name: float(getattr(fits, name)[place]) for name in ("knee", "lower", "upper")}
    knee["knee_value"] = float(fits.value[place])
    knee["lower"] = max(knee["lower"], 0.0)
    return row | knee | {"finding": KNEE, "linear_from": first, "linear_to": knee["knee"]}


def _costs(row: dict[str, float], higher: bool) -> bool:
    """Whether a step brings less after the knee than before it."""
    change = row["slope_after"] - row["slope_before"]
    return change < 0 if higher else change > 0


def _typed(table: pd.DataFrame, texts: list[str]) -> pd.DataFrame:
    """Numbers as such, where a column has nothing but missing values too."""
    numbers = [c for c in table.columns if c not in texts]
    return table.astype(dict.fromkeys(numbers, np.float64)).fillna({"next_failure": ""})


def _caveats(runs: pd.DataFrame, sweeps: Sweeps, knees: pd.DataFrame, higher: bool) -> list[str]:
    said = []
    if sweeps.held_back:
        said.append(
            f"{sweeps.held_back} runs at less than full load (column load) take no part: their "
            "rate was set"
        )
    limited = runs.get("client_limited", pd.Series(dtype=object)).eq(True).sum()
    if limited:
        said.append(
            f"{limited} of {len(runs)} runs were limited by their clients: a knee may be theirs"
        )
    others = runs.get("limited_by", pd.Series(dtype=object)).eq("others").sum()
    if others:
        said.append(
            f"in {others} of {len(runs)} runs other programs took the CPU time that was missing "
            "(limited_by): their levels say little of this workload"
        )
    poor = knees[(knees["finding"] == KNEE) & (knees["lack_of_fit"] < _BY_CHANCE)]
    if len(poor):
        said.append(
            f"{len(poor)} of {len(knees)} sweeps bend gradually: two lines miss their levels by "
            "more than runs scatter, so the knee is where the lines meet and its interval is of "
            "noise alone"
        )
    alone = knees[(knees["finding"] == KNEE) & knees["upper"].isna()]
    if len(alone):
        said.append(f"{len(alone)} knees have no interval: measure five levels, or repeat runs")
    open_ = knees[(knees["finding"] == KNEE) & np.isinf(knees["upper"])]
    if len(open_):
        said.append(f"{len(open_)} knees have no upper end: measure higher levels")
    good_bend = knees[(knees["finding"] == STRAIGHT) & (knees["p_value"] < _BY_CHANCE)]
    if len(good_bend):
        word = "faster" if higher else "further"
        said.append(
            f"{len(good_bend)} sweeps improve {word} after their bend, so that it is no limit"
        )
    return said
