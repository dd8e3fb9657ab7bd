"""`project`: one name for the projection of points, of runs tables, and over cores or data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import pandas as pd

from ppw.errors import PpwError
from ppw.projection.points import Projection, project_points, table_of_points
from ppw.projection.runs import RunsProjection, project_runs
from ppw.projection.time import (
    CoreCountProjection,
    DataSizeProjection,
    project_core_count,
    project_data_size,
)

if TYPE_CHECKING:
    from ppw.projection.answers import FittingOptions
    from ppw.projection.points import Points
    from ppw.runs.metrics import Form, PowerForm


@overload
def project(  # type: ignore[overload-overlap]  # a frame is an array, too
    points: pd.DataFrame,
    *,
    freq: float | str | Iterable[float | str],
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    level: float = 0.90,
    keep_all: bool = False,
    **options: Unpack[FittingOptions],
) -> RunsProjection: ...
@overload
def project(
    points: pd.DataFrame,
    *,
    cores: float,
    metric: str = "time",
    by: Sequence[str] | None = None,
    level: float = 0.90,
) -> CoreCountProjection: ...
@overload
def project(
    points: pd.DataFrame,
    *,
    data_bytes: float | str,
    by: Sequence[str] | None = None,
    level: float = 0.90,
) -> DataSizeProjection: ...
@overload
def project(
    points: Points | Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]],
    *,
    freq: float | str | Iterable[float | str],
    metric: str,
    **options: Any,
) -> RunsProjection: ...
@overload
def project(
    points: Points,
    *,
    freq: float | str,
    form: Form = ...,
    power_form: PowerForm | None = ...,
    interval: Literal["bayes", "t", "none"] = ...,
    **options: Any,
) -> Projection: ...
@overload
def project(
    points: Points,
    *,
    freq: Sequence[float | str],
    form: Form = ...,
    power_form: PowerForm | None = ...,
    interval: Literal["bayes", "t", "none"] = ...,
    **options: Any,
) -> list[Projection]: ...
def project(points: Any, **options: Any) -> Any:
    """Project what was measured to a frequency, core count or data size that was not.

    Parameters
    ----------
    points : DataFrame, records, pairs, mapping, Series or 2-column array
        A runs table (`ppw.read_runs`, or a frame or list of records with columns like ``freq_ghz``,
        ``time_ms``), of which every group is projected; or measured (frequency, value) points, with
        frequencies in Hz or as "1.2GHz". Values are cycles per instruction, or those of ``metric``.
    **options
        ``freq``, in Hz or with a unit ("3.0GHz"), or several. For a runs table in its place
        ``cores``, a number of cores, or ``data_bytes``, a data size such as "512MB". The other
        options are those of `ppw.projection.runs.project_runs`,
        `ppw.projection.time.project_core_count`, `ppw.projection.time.project_data_size` and, for
        points, `ppw.project_points`.

    Returns
    -------
    RunsProjection, CoreCountProjection or DataSizeProjection
        For a runs table, and for points of a ``metric``.
    Projection or list of Projection
        For points of CPI: one, or one a frequency where several were asked for.

    Raises
    ------
    MeasurementError, FittingError
        For values that cannot be, or cannot be fitted.
    PpwError
        For no target or several, and for what is not there.

    Examples
    --------
    >>> import ppw
    >>> answer = ppw.project([(1.2e9, 1.31), (1.8e9, 1.44), (2.4e9, 1.58)], freq="3GHz")
    >>> round(float(answer.cpi), 2)
    1.72
    >>> times = ppw.project({"1.2GHz": 20.1, "1.8GHz": 14.2}, freq="2.4GHz", metric="time")
    >>> round(float(times.table["projected"][0]), 1)
    11.2
    """
    points = _table_or_points(points, options.get("metric"))
    if not _is_table(points):
        if "freq" not in options:
            raise PpwError("no target of the projection: give freq")
        freq = options.pop("freq")
        if isinstance(freq, str) or not hasattr(freq, "__len__"):
            return project_points(points, freq=freq, **options)
        points = points if hasattr(points, "__len__") else list(points)
        return [project_points(points, freq=f, **options) for f in freq]
    targets = {"freq": project_runs, "cores": project_core_count, "data_bytes": project_data_size}
    given = [name for name in targets if name in options]
    if len(given) != 1:
        raise PpwError(f"{len(given)} targets of the projection: give one of {', '.join(targets)}")
    answer: Any = targets[given[0]]
    return answer(points, **options)


def _is_table(points: Any) -> bool:
    return isinstance(points, str | Path) or hasattr(points, "columns")


def _table_or_points(points: Any, metric: Any) -> Any:
    """Make a runs table of records, columns or points of a metric; else return the points."""
    if _is_table(points):
        return points
    if isinstance(points, Mapping) and any(isinstance(v, list | tuple) for v in points.values()):
        return pd.DataFrame(points)
    if isinstance(points, list | tuple) and all(isinstance(run, Mapping) for run in points):
        return pd.DataFrame(list(points))
    return points if metric is None else table_of_points(points, metric)
