"""From a runs table as given to checked, grouped runs and the metrics asked of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from measurements import check_runs
from measurements.errors import MeasurementError
from measurements.power.energy import POWER_SUFFIX, column_stem, power_column
from measurements.table.checks import as_numbers
from measurements.table.headers import shown as shown_names
from measurements.table.schema import DOUBTS
from ppw.errors import PpwError, UnknownColumnError
from ppw.results.arguments import as_names
from ppw.runs.caveats import table_caveats
from ppw.runs.checks import FLAGS, NO_WATTS
from ppw.runs.groups import Groups, canonical, counts, group_runs, is_condensed, is_condensed_table
from ppw.runs.metrics import Metric, answerable, known_metrics, needed_columns, values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.lines import IntArray

    Mask = NDArray[np.bool_]
    from collections.abc import Collection, Iterable, Sequence

    from fitting.regression.lines import FloatArray


# Which runs show what a host can do: some were held at a share of the load that it can take.


# Share of the highest throughput from which a run is at full load.
FULL_LOAD = 0.995


def at_full_load(runs: pd.DataFrame, group: IntArray | None = None) -> Mask:
    """Tell the runs at full load, group by group.

    Where the column ``load`` says that some runs of a group are at full load, only these are:
    others were held at a rate, or had too few clients. Where it says so of none, those are of
    which it says nothing.

    Parameters
    ----------
    runs : pandas.DataFrame
    group : (runs,) int array, optional
        Number of each run's group; by default all are one group.
    """
    if "load" not in runs.columns or not len(runs):
        return np.ones(len(runs), dtype=bool)
    load = as_numbers(runs["load"]).to_numpy()
    group = np.zeros(len(runs), dtype=np.int64) if group is None else group
    full = load >= FULL_LOAD
    some = np.bincount(group, full) > 0
    found: Mask = np.where(some[group], full, np.isnan(load))
    return found


# Rows are brought to one order before summing, so that printed digits do not depend on theirs;
# beyond this many rows the ordering would cost more than the fits.
_ORDERED_ROWS = 200_000


@dataclass(frozen=True)
class Prepared:
    """Checked runs, their groups, and the metrics asked.

    ``left_out`` has a row for each row of the input that cannot be right and each check that says
    so, as the table of `ppw.check_quality`; ``runs`` has none of them, nor the runs that were held
    below what their host can do, which ``below_full_load`` counts. ``keepable`` tells whether the
    rows left out could be used if they were kept.
    """

    runs: pd.DataFrame
    groups: Groups
    metrics: list[Metric]
    left_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    below_full_load: int = 0
    keepable: bool = True

    def caveats(self, learnt: Mask | None = None) -> list[str]:
        """Caveats of the table and its grouping; of hosts only where curves are ``learnt``."""
        found = table_caveats(self.runs, self.groups, self.metrics, learnt)
        found = [*self.runs.attrs.get(DOUBTS, ()), *found]
        return self.said_of_left_out() + found

    def said_of_left_out(self) -> list[str]:
        """Say which rows take no part, and why."""
        found = left_out_caveats(self.left_out, self.keepable)
        if self.below_full_load:
            found.append(
                f"{self.below_full_load} runs below full load (column load) take no part: curves "
                "are of what a host can do; --keep-all uses them"
            )
        return found

    def suspects(self, rows: Mask, *, but: Collection[str] = ()) -> Mask:
        """Rows that cannot be right, judged by the chosen rows alone; others are False.

        ``but`` names checks that are not made.
        """
        from ppw.runs.quality import find_suspects

        where = np.flatnonzero(rows)
        groups = replace(self.groups, codes=self.groups.codes[where])
        names = [m.name for m in self.metrics]
        found = find_suspects(self.runs.take(where), groups, metric=names)
        suspect = np.zeros(len(rows), dtype=bool)
        for suspects in found:
            if suspects.check.name not in but:
                suspect[where[suspects.rows]] = True
        return suspect

    def measured(self) -> pd.DataFrame:
        """Mean of each metric by group and frequency, with the number of runs."""
        if is_condensed_table(self.runs):
            return self._measured_in_cells()
        columns = {m.name: values(m, self.runs) for m in self.metrics}
        frame = pd.DataFrame(
            {"group": self.groups.codes, "freq_hz": self.runs["freq_hz"].to_numpy(), **columns}
        )
        cells = frame.groupby(["group", "freq_hz"], sort=True)
        means = cells.mean().assign(runs=cells.size()).reset_index()
        keys = self.groups.keys.take(means.pop("group").to_numpy()).reset_index(drop=True)
        return pd.concat([keys, means], axis=1)

    def _measured_in_cells(self) -> pd.DataFrame:
        every = np.ones(len(self.runs), dtype=bool)
        index = ["group", "freq_hz"]
        by_metric = {m.name: measured_cells(self, m, every).set_index(index) for m in self.metrics}
        means = pd.DataFrame({name: cells["measured"] for name, cells in by_metric.items()})
        each = pd.concat([cells["runs"] for cells in by_metric.values()], axis=1)
        means = means.assign(runs=each.max(axis=1)).reset_index()
        keys = self.groups.keys.take(means.pop("group").to_numpy()).reset_index(drop=True)
        return pd.concat([keys, means], axis=1)


def prepare(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    keep_all: bool = True,
    drop: bool = True,
) -> Prepared:
    """Bring runs to canonical columns, check them, group them and put them in one order.

    Unless ``keep_all``, runs below full load are left out where there are others, and rows that
    cannot be right are no error and are left out; or, without ``drop``, kept for the caller to
    choose among.
    """
    tidy = canonical(runs)
    by = None if by is None else as_names(by)
    metrics = answerable(tidy) if metric is None else known_metrics(metric)
    needed = needed_columns(metrics, tidy)
    hopeless = without_watts(tidy)
    ignored = {} if keep_all else dict.fromkeys(("power_w", "energy_j"), hopeless)
    checked = check_runs(tidy, needed=needed, by=by, ignore=ignored)
    groups = group_runs(checked, by)
    left_out = pd.DataFrame()
    kept = np.ones(len(checked), dtype=bool)
    if not keep_all:
        kept = ~below_full_load(checked, groups)
    held = int((~kept).sum())
    if not keep_all and drop:
        left_out = _suspect_rows(checked, groups, metrics)
    keepable = True
    if len(left_out):
        position = left_out["position"].to_numpy()
        kept[position] = False
        keepable = not hopeless[position].any()
    if not kept.all():
        if not kept.any():
            raise PpwError(
                f"{runs.attrs.get('source', 'runs')}: every row is suspect, so nothing is left to "
                f"learn from: see ppw check{', or keep them with --keep-all' * keepable}"
            )
        checked = checked[kept]
        groups = group_runs(checked, by)
    if len(checked) <= _ORDERED_ROWS:
        order = np.lexsort([*(checked[c].to_numpy() for c in needed), groups.codes])
        checked, groups = checked.take(order), replace(groups, codes=groups.codes[order])
    return Prepared(checked, groups, metrics, left_out, held, keepable)


def below_full_load(runs: pd.DataFrame, groups: Groups) -> Mask:
    """Runs held below what their host can do, of groups that have others too."""
    full = at_full_load(runs, groups.codes)
    some = np.bincount(groups.codes, full) > 0
    below: Mask = ~full & some[groups.codes]
    return below


def without_watts(runs: pd.DataFrame) -> Mask:
    """Rows whose watts cannot be a host's, as of a sensor that subtracts too much; or cells."""
    none: Mask = np.zeros(len(runs), dtype=bool)
    if FLAGS in runs.columns:
        none = (runs[FLAGS].to_numpy() & NO_WATTS) > 0
    elif "power_w" in runs.columns:
        none = as_numbers(runs["power_w"]).to_numpy() <= 0
    return none


def _suspect_rows(runs: pd.DataFrame, groups: Groups, metrics: Sequence[Metric]) -> pd.DataFrame:
    from ppw.runs.quality import find_suspects, suspect_table

    found = find_suspects(runs, groups, metric=[m.name for m in metrics])
    if not any(len(s.rows) for s in found):
        return pd.DataFrame()
    return suspect_table(found, runs, groups)


def left_out_caveats(left_out: pd.DataFrame, keepable: bool) -> list[str]:
    """Say by check how many rows take no part, with the evidence of the first of them."""
    if left_out.empty:
        return []
    return [
        f"{_how_many(rows)} rows left out ({str(name).replace('_', ' ')}), such as "
        f"{_place(rows.iloc[0])}: {rows['evidence'].iloc[0]}; {remedy_of_left_out(keepable)}"
        for name, rows in left_out.groupby("check", sort=True)
    ]


def remedy_of_left_out(keepable: bool) -> str:
    """Say what can be done about rows that were left out."""
    if keepable:
        return "ppw check lists them, --keep-all uses them"
    return "ppw check lists them; correct or drop watts of 0 and less, which --keep-all cannot use"


def _how_many(left_out: pd.DataFrame) -> int:
    return int(left_out["runs"].sum()) if "runs" in left_out else len(left_out)


def _place(row: pd.Series[Any]) -> str:
    if "row" in row:
        return f"row {row['row']}"
    return "one" if row["runs"] == 1 else f"{row['runs']} of one group and frequency"


def measured_cells(prepared: Prepared, metric: Metric, rows: Mask) -> pd.DataFrame:
    """Mean of a metric and number of runs by ``group`` and ``freq_hz``, of the chosen rows."""
    runs = prepared.runs
    frame = pd.DataFrame(
        {
            "group": prepared.groups.codes,
            "freq_hz": runs["freq_hz"].to_numpy(),
            "measured": values(metric, runs),
        }
    )
    if is_condensed(runs, metric.name):
        return _merged(frame.assign(runs=counts(runs, metric.name))[rows].dropna())
    cells = frame[rows].dropna().groupby(["group", "freq_hz"], sort=True)["measured"]
    return (
        cells.agg(["mean", "size"])
        .reset_index()
        .rename(columns={"mean": "measured", "size": "runs"})
    )


def _merged(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells of one group and frequency made one: the mean of all their runs."""
    total = cells.assign(measured=cells["measured"] * cells["runs"])
    merged = total.groupby(["group", "freq_hz"], sort=True).sum()
    return merged.assign(measured=merged["measured"] / merged["runs"]).reset_index()


# Which columns of a runs table hold a power source's watts, found by the source's label.


# What a processor draws: its packages and, where it counts them, the memory modules. Cores are
# inside the packages and the platform domain is around them: neither is added.
_PROCESSOR = {"rapl": ("rapl:package", "rapl:dram")}


class SourceWatts(NamedTuple):
    """Watts of one source, or of several added.

    Attributes
    ----------
    label : str
        Labels of the parts, joined by "+".
    columns : tuple of str
        Columns that were added.
    watts : (runs,) float array
        NaN where a part is missing or the sum is not above 0.
    """

    label: str
    columns: tuple[str, ...]
    watts: FloatArray


def source_watts(runs: pd.DataFrame, asked: str) -> SourceWatts:
    """Find the mean power of every run as a source saw it.

    Parameters
    ----------
    runs : pandas.DataFrame
        With canonical columns.
    asked : str
        A label ("rapl:package", "meter:wt310e"), its beginning where only one source begins so
        ("meter"), several joined by "+"; "rapl" is the packages and, where counted, the memory
        modules. Channels that are numbered ("rapl:package-0") are added.

    Raises
    ------
    UnknownColumnError
        When no column holds it, or several may.
    MeasurementError
        For text where watts should be.
    """
    parts = [part.strip() for part in asked.split("+")]
    found = [source for part in parts for source in _part(runs, part)]
    columns = tuple(dict.fromkeys(column for source in found for column in source.columns))
    if len(columns) < sum(len(source.columns) for source in found):
        raise UnknownColumnError(f"{asked!r} adds a column to itself: name each source once")
    total = np.sum([source.watts for source in found], axis=0)
    total[~(np.isfinite(total) & (total > 0))] = np.nan
    return SourceWatts("+".join(source.label for source in found), columns, total)


def _part(runs: pd.DataFrame, label: str) -> list[SourceWatts]:
    if label in _PROCESSOR:
        first, *others = (_known(runs, part) for part in _PROCESSOR[label])
        if first is not None:
            # A domain that this processor does not count may still have its column.
            counted = [o for o in others if o is not None and np.isfinite(o.watts).any()]
            return [first, *counted]
    exact = _known(runs, label)
    if exact is not None:
        return [exact]
    begins = [name for name in _labels(runs) if column_stem(name).startswith(column_stem(label))]
    if len(begins) == 1 and label and (only := _known(runs, begins[0])) is not None:
        return [only]
    source = runs.attrs.get("source", "runs")
    if begins and label:
        raise UnknownColumnError(
            f"{source}: {label!r} may be {shown_names(begins)}: name one, or several joined by +"
        )
    there = shown_names(_labels(runs)) or "none"
    raise UnknownColumnError(
        f"{source}: no watts of {label!r}, which would be in column {power_column(label)}; the "
        f"sources are {there}: measure with both (ppw measure --power …), or rename a column"
    )


def _known(runs: pd.DataFrame, label: str) -> SourceWatts | None:
    """Watts by the label's own column, by its numbered channels, or by ``power_w``."""
    own = power_column(label)
    numbered = re.compile(rf"{re.escape(column_stem(label))}(_(die_)?\d+)+{POWER_SUFFIX}")
    columns = [own] if own in runs else [str(c) for c in runs if numbered.fullmatch(str(c))]
    if columns:
        total = np.sum([_numbers(runs, column) for column in columns], axis=0)
        return SourceWatts(label, tuple(columns), total)
    if {"power_w", "power_source"} <= set(runs.columns):
        of_label = (runs["power_source"].astype(object) == label).to_numpy(dtype=bool)
        if of_label.any():
            watts = np.where(of_label, _numbers(runs, "power_w"), np.nan)
            return SourceWatts(label, ("power_w",), watts)
    return None


def _labels(runs: pd.DataFrame) -> list[str]:
    """Labels of the sources that a table holds, as far as column names tell them."""
    stems = [str(c).removesuffix(POWER_SUFFIX) for c in runs if str(c).endswith(POWER_SUFFIX)]
    # The first underscore of a column stands for the colon after the kind of source.
    columns = [stem.replace("_", ":", 1) for stem in stems if stem != "idle"]
    if "power_source" not in runs:
        return columns
    named = [str(s) for s in runs["power_source"].dropna().unique()]
    stands = {column_stem(name) for name in named}
    return [*named, *(c for c in columns if column_stem(c) not in stands)]


def _numbers(runs: pd.DataFrame, column: str) -> FloatArray:
    numbers = as_numbers(runs[column])
    wrong = (numbers.isna() & runs[column].notna()).to_numpy()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        cell: Any = runs[column].iloc[row]
        raise MeasurementError(
            f"{runs.attrs.get('source', 'runs')}: row {row + 1}, column {column}: {cell!r} is not "
            "a number of watts: correct it or leave the cell empty"
        )
    return np.asarray(numbers, dtype=np.float64)
