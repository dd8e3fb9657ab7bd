"""From a runs table as given to checked, grouped runs and the metrics asked of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from measurements import MeasurementError, check_runs, parse_frequency, tidy_runs
from measurements.quantities import implausible_frequency
from ppw.caveats import table_caveats
from ppw.errors import PpwError
from ppw.grouping import Groups, group_runs
from ppw.metrics import Metric, answerable, known_metrics, needed_columns, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Rows are brought to one order before summing, so that printed digits do not depend on theirs;
# beyond this many rows the ordering would cost more than the fits.
_ORDERED_ROWS = 200_000

# Frequencies are the same step when they agree to a thousandth: counters and kHz tables round.
SAME_STEP = 1e-3


@dataclass(frozen=True)
class Prepared:
    """Checked runs, their groups, and the metrics asked."""

    runs: pd.DataFrame
    groups: Groups
    metrics: list[Metric]

    def caveats(self) -> list[str]:
        """Caveats of the table and its grouping."""
        return table_caveats(self.runs, self.groups, self.metrics)

    def measured(self) -> pd.DataFrame:
        """Mean of each metric by group and frequency, with the number of runs."""
        columns = {m.name: values(m, self.runs) for m in self.metrics}
        frame = pd.DataFrame(
            {"group": self.groups.codes, "freq_hz": self.runs["freq_hz"].to_numpy(), **columns}
        )
        cells = frame.groupby(["group", "freq_hz"], sort=True)
        means = cells.mean().assign(runs=cells.size()).reset_index()
        keys = self.groups.keys.take(means.pop("group").to_numpy()).reset_index(drop=True)
        return pd.concat([keys, means], axis=1)


def prepare(
    runs: pd.DataFrame, *, by: Sequence[str] | None, metric: str | Iterable[str] | None
) -> Prepared:
    """Bring runs to canonical columns, check them, group them and put them in one order."""
    tidy = tidy_runs(runs)
    if metric is None:
        metrics = answerable(tidy)
    else:
        metrics = known_metrics([metric] if isinstance(metric, str) else metric)
    needed = needed_columns(metrics, tidy)
    checked = check_runs(tidy, needed=needed, by=by)
    groups = group_runs(checked, by)
    if len(checked) <= _ORDERED_ROWS:
        order = np.lexsort([*(checked[c].to_numpy() for c in needed), groups.codes])
        checked, groups = checked.take(order), replace(groups, codes=groups.codes[order])
    return Prepared(checked, groups, metrics)


def as_frequencies(freq: float | str | Iterable[float | str]) -> list[float]:
    """Read frequencies given as numbers (Hz) or text with a unit ("3.0GHz")."""
    given = [freq] if isinstance(freq, (str, float, int)) else list(freq)
    if not given:
        raise PpwError("no frequency was given")
    return [_as_frequency(f) for f in given]


def _as_frequency(freq: float | str) -> float:
    if isinstance(freq, str):
        return parse_frequency(freq)
    value = float(freq)
    if reason := implausible_frequency(value) if np.isfinite(value) else "must be finite":
        raise MeasurementError(f"frequency {freq!r}: {reason}")
    return value
