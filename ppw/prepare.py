"""From a runs table as given to checked, grouped runs and the metrics asked of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from measurements import check_runs, tidy_runs
from ppw.arguments import as_names
from ppw.caveats import table_caveats
from ppw.errors import PpwError
from ppw.grouping import Groups, group_runs
from ppw.metrics import Metric, answerable, known_metrics, needed_columns, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

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

    def caveats(self, learnt: Mask | None = None) -> list[str]:
        """Caveats of the table and its grouping; of hosts only where curves are ``learnt``."""
        return table_caveats(self.runs, self.groups, self.metrics, learnt)

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


def canonical(runs: pd.DataFrame) -> pd.DataFrame:
    """Bring a runs table to canonical columns. Raises `PpwError` for what is no DataFrame."""
    if not isinstance(runs, pd.DataFrame):
        raise PpwError(
            f"runs is a {type(runs).__name__}, not a DataFrame: read a file with ppw.read_runs"
        )
    return tidy_runs(runs)


def prepare(
    runs: pd.DataFrame, *, by: Sequence[str] | None, metric: str | Iterable[str] | None
) -> Prepared:
    """Bring runs to canonical columns, check them, group them and put them in one order."""
    tidy = canonical(runs)
    by = None if by is None else as_names(by)
    metrics = answerable(tidy) if metric is None else known_metrics(metric)
    needed = needed_columns(metrics, tidy)
    checked = check_runs(tidy, needed=needed, by=by)
    groups = group_runs(checked, by)
    if len(checked) <= _ORDERED_ROWS:
        order = np.lexsort([*(checked[c].to_numpy() for c in needed), groups.codes])
        checked, groups = checked.take(order), replace(groups, codes=groups.codes[order])
    return Prepared(checked, groups, metrics)
