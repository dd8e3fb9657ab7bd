"""Runs of one host that two power sources saw, and the levels that they are repeats of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements import identity_columns
from measurements.headers import shown as shown_names
from measurements.schema import FILE_COLUMN
from ppw.arguments import as_names
from ppw.errors import PpwError
from ppw.grouping import Groups, group_runs
from ppw.power_columns import SourceWatts, source_watts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Columns of a calibration's table beside the keys of its levels.
LEVEL_COLUMNS = ("runs", "sensor_w", "reference_w", "fitted_w", "residual_w", "outlier")
# What else than a group's identity changes the load.
_SETTINGS = ("freq_hz", "load")


@dataclass(frozen=True, kw_only=True)
class PairedRuns:
    """Runs that have watts of both sources.

    Attributes
    ----------
    runs : pandas.DataFrame
    sensor, reference : SourceWatts
        One figure a row of ``runs``.
    levels : Groups
        Level of each row; every row is one where nothing tells levels apart.
    host : str or None
    left_out : int
        Runs of the host that lack watts of either.
    """

    runs: pd.DataFrame
    sensor: SourceWatts
    reference: SourceWatts
    levels: Groups
    host: str | None
    left_out: int

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        sensor: str,
        reference: str,
        *,
        host: str | None,
        by: Sequence[str] | None,
    ) -> PairedRuns:
        """Find them in a checked runs table. Raises `PpwError` where there are none."""
        x, y = (source_watts(runs, asked) for asked in (sensor, reference))
        if set(x.columns) & set(y.columns) - {"power_w"} or x.label == y.label:
            raise PpwError(f"{sensor!r} and {reference!r} are the same watts: name two sources")
        name, rows = _of_host(runs, host)
        both = rows & np.isfinite(x.watts) & np.isfinite(y.watts)
        if not both.any():
            raise PpwError(
                f"{_source(runs)}: no run has watts of both {x.label} and {y.label}: measure some "
                "with both (ppw measure --power …)"
            )
        seen = runs[both]
        return cls(
            runs=seen,
            sensor=x._replace(watts=x.watts[both]),
            reference=y._replace(watts=y.watts[both]),
            levels=_levels(seen, _level_columns(seen) if by is None else as_names(by)),
            host=name,
            left_out=int((rows & ~both).sum()),
        )

    def caveats(self) -> list[str]:
        """Say how many runs were left out."""
        if not self.left_out:
            return []
        return [
            f"{self.left_out} of {len(self.runs) + self.left_out} runs left out: no watts of "
            f"{self.sensor.label} or of {self.reference.label}"
        ]

    def latest(self) -> str | None:
        """When the latest run started, where recorded."""
        if "started_at" not in self.runs or self.runs["started_at"].isna().all():
            return None
        return str(self.runs["started_at"].dropna().astype(str).max())


def _source(runs: pd.DataFrame) -> str:
    return str(runs.attrs.get("source", "runs"))


def _of_host(runs: pd.DataFrame, host: str | None) -> tuple[str | None, NDArray[np.bool_]]:
    """Name of the one host, and which rows are its."""
    if "host" not in runs or runs["host"].isna().all():
        return host, np.ones(len(runs), dtype=bool)
    names = runs["host"].astype(object)
    known = sorted(map(str, names.dropna().unique()))
    if host is None and len(known) > 1:
        raise PpwError(
            f"{_source(runs)}: runs of {shown_names(known)}: a calibration is of one host; choose "
            "with --host"
        )
    if host is not None and host not in known:
        raise PpwError(
            f"{_source(runs)}: no run of host {host!r}; the hosts are {shown_names(known)}"
        )
    chosen = host or known[0]
    return chosen, np.array([str(name) == chosen for name in names], dtype=bool)


def _level_columns(runs: pd.DataFrame) -> list[str]:
    identity = [c for c in identity_columns(runs) if c not in ("host", FILE_COLUMN)]
    return [*identity, *(c for c in _SETTINGS if c in runs and runs[c].notna().any())]


def _levels(runs: pd.DataFrame, by: Sequence[str]) -> Groups:
    for column in by:
        if column in LEVEL_COLUMNS:
            raise PpwError(f"cannot tell levels apart by {column!r}: results have such a column")
    if not by:
        each: Any = np.arange(len(runs))
        return Groups([], each, pd.DataFrame(index=range(len(runs))))
    return group_runs(runs, by)
