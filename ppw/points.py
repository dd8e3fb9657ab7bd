"""Measured points as `ppw.project` takes them: pairs, a mapping, an array or a runs table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.bayes.steps import step_counts
from fitting.errors import FittingError
from measurements.quantities import implausible_frequency
from ppw.errors import PpwError
from ppw.metrics import METRICS, columns_for
from ppw.table_caveats import FAMILY_MISMATCH, UNKNOWN_WATTS, is_known_source, sources_known

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from fitting.regression.lines import FloatArray

    Points = Sequence[tuple[float, float]] | Mapping[float, float] | ArrayLike | pd.DataFrame


@dataclass(frozen=True)
class MeasuredPoints:
    """CPI and power points as (Hz, value) rows, and the caveats that came with them."""

    cpi: FloatArray
    power: FloatArray
    power_source: str | None
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls, cpi_pts: Points, power_pts: Points | None, family: str | None, source: str | None
    ) -> MeasuredPoints:
        """Read the points that `ppw.project` was given. Raises as it says."""
        cpi, cpi_runs = _points(cpi_pts, "cpi")
        power, power_runs = np.empty((0, 2)), None
        if power_pts is not None:
            power, power_runs = _points(power_pts, "power")
        elif cpi_runs is not None and columns_for(METRICS["power"], cpi_runs):
            power, power_runs = _points(cpi_runs, "power")
        caveats = _source_caveats(len(power) > 0, power_runs, source)
        caveats += _family_caveats([r for r in (cpi_runs, power_runs) if r is not None], family)
        return cls(cpi, power, source or _one_source(power_runs), tuple(caveats))


def _points(points: Points, name: str) -> tuple[FloatArray, pd.DataFrame | None]:
    """(Hz, value) rows, sorted so that sums do not depend on their order; and the runs table."""
    if hasattr(points, "columns"):
        array, runs = _points_of_runs(points, name)
    else:
        pairs = list(points.items()) if isinstance(points, Mapping) else points
        array, runs = _as_pairs(pairs, name), None
    bad = np.flatnonzero(~(np.isfinite(array).all(axis=1) & (array > 0).all(axis=1)))
    if bad.size:
        f, v = array[bad[0]]
        raise FittingError(
            f"{name} point {bad[0] + 1} is ({f:g} Hz, {v:g}): both must be positive and finite"
        )
    if reason := next(filter(None, map(implausible_frequency, array[:, 0])), None):
        raise FittingError(f"{name} points: {reason}")
    if step_counts(np.zeros(len(array), dtype=np.int64), array[:, 0], 1)[0] < 2:
        raise FittingError(
            f"{name} points: {len(array)} at one distinct frequency; a curve takes two: measure at "
            "one more"
        )
    return array[np.lexsort((array[:, 1], array[:, 0]))], runs


def _as_pairs(pairs: Any, name: str) -> FloatArray:
    try:
        array = np.asarray(pairs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FittingError(f"{name} points are not numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != 2:
        raise FittingError(
            f"{name} points have shape {array.shape}; give (Hz, {name}) pairs, a mapping or a "
            "2-column array"
        )
    return array


def _points_of_runs(frame: Any, name: str) -> tuple[FloatArray, pd.DataFrame]:
    from measurements import check_runs, tidy_runs
    from ppw.grouping import group_runs
    from ppw.metrics import needed_columns, values

    metric = METRICS[name]
    tidy = tidy_runs(frame)
    runs = check_runs(tidy, needed=needed_columns([metric], tidy))
    groups = group_runs(runs)
    if len(groups) > 1:
        raise PpwError(
            f"the runs table holds {len(groups)} groups by {', '.join(groups.by)}: choose one, or "
            "use ppw.project_runs for all"
        )
    return np.column_stack([runs["freq_hz"], values(metric, runs)]), runs


def _one_source(runs: pd.DataFrame | None) -> str | None:
    """Power source of a runs table where all rows have the same."""
    if runs is None or not sources_known(runs):
        return None
    sources = runs["power_source"].unique()
    return str(sources[0]) if len(sources) == 1 else None


def _source_caveats(powered: bool, runs: pd.DataFrame | None, source: str | None) -> list[str]:
    in_table = source is None and runs is not None and sources_known(runs)
    known = in_table or is_known_source(source)
    return [UNKNOWN_WATTS] if powered and not known else []


def _family_caveats(tables: list[pd.DataFrame], family: str | None) -> list[str]:
    families = {f for t in tables if "family" in t.columns for f in t["family"].dropna()}
    if family is not None and families and families != {family}:
        return [
            f"family mismatch: points of {', '.join(sorted(families))} projected onto {family}; a "
            "baseline holds within one microarchitecture family"
        ]
    return [FAMILY_MISMATCH] if len(families) > 1 else []
