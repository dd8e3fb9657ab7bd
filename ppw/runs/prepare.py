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
from measurements.table.headers import list_names
from measurements.table.schema import DOUBTS
from ppw.errors import PpwError, UnknownColumnError
from ppw.results.arguments import as_names
from ppw.runs import checks as ck
from ppw.runs import groups as gr
from ppw.runs import metrics as mt
from ppw.runs import quality
from ppw.runs.caveats import table_caveats

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.runs.checks import Mask


# Which runs show what a host can do: some were held at a share of the load that it can take.


# Share of the highest throughput from which a run is at full load.
FULL_LOAD = 0.995


def at_full_load(runs: pd.DataFrame, group: IntArray | None = None) -> Mask:
    """Tell the runs at full load, by the number of each run's group; all are one by default.

    Where the column ``load`` says that some runs of a group are at full load, only these are:
    others were held at a rate, or had too few clients. Where it says so of none, those are of
    which it says nothing.
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
    """Checked runs, their groups, and the metrics asked."""

    # Without the rows left out and the runs held below what their host can do.
    runs: pd.DataFrame
    groups: gr.Groups
    metrics: list[mt.Metric]
    # A row for each row that cannot be right and each check that says so, as of `check_quality`.
    left_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    below_full_load: int = 0
    # Whether the rows left out could be used if they were kept.
    keepable: bool = True

    def caveats(self, learnt: Mask | None = None) -> list[str]:
        """Caveats of the table and its grouping; of hosts only where curves are ``learnt``."""
        found = table_caveats(self.runs, self.groups, self.metrics, learnt)
        found = [*self.runs.attrs.get(DOUBTS, ()), *found]
        return self.left_out_texts() + found

    def left_out_texts(self) -> list[str]:
        """Say which rows take no part, and why."""
        found = left_out_caveats(self.left_out, self.keepable)
        if self.below_full_load:
            found.append(
                f"{self.below_full_load} runs below full load (column load) take no part: curves "
                "are of what a host can do; --keep-all uses them"
            )
        return found

    def flagged_rows(self, rows: Mask, *, but: Collection[str] = ()) -> Mask:
        """Rows that cannot be right, judged by the chosen rows alone; others are False.

        ``but`` names checks that are not made.
        """
        where = np.flatnonzero(rows)
        groups = replace(self.groups, codes=self.groups.codes[where])
        names = [m.name for m in self.metrics]
        found = quality.find_flagged_rows(self.runs.take(where), groups, metric=names)
        suspect = np.zeros(len(rows), dtype=bool)
        for suspects in found:
            if suspects.check.name not in but:
                suspect[where[suspects.rows]] = True
        return suspect

    def measured_means(self) -> pd.DataFrame:
        """Mean of each metric by group and frequency, with the number of runs."""
        every = np.ones(len(self.runs), dtype=bool)
        index = ["group", "freq_hz"]
        by_metric = {m.name: measured_cells(self, m, every).set_index(index) for m in self.metrics}
        means = pd.DataFrame({name: cells["measured"] for name, cells in by_metric.items()})
        if gr.is_cell_table(self.runs):
            runs = pd.concat([cells["runs"] for cells in by_metric.values()], axis=1).max(axis=1)
        else:
            runs = self.runs.groupby([self.groups.codes, "freq_hz"], sort=True).size()
            means = means.reindex(runs.index.set_names(index))
        means = means.assign(runs=runs).reset_index()
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
    tidy = gr.canonical(runs)
    by = None if by is None else as_names(by)
    metrics = mt.answerable(tidy) if metric is None else mt.parse_metrics(metric)
    needed = mt.needed_columns(metrics, tidy)
    hopeless = without_power(tidy)
    ignored = {} if keep_all else dict.fromkeys(("power_w", "energy_j"), hopeless)
    checked = check_runs(tidy, needed=needed, by=by, ignore=ignored)
    groups = gr.group_runs(checked, by)
    left_out = pd.DataFrame()
    kept = np.ones(len(checked), dtype=bool)
    if not keep_all:
        kept = ~below_full_load(checked, groups)
    held = int((~kept).sum())
    if not keep_all and drop:
        left_out = _rows_to_leave_out(checked, groups, metrics)
    keepable = True
    if len(left_out):
        position = left_out["position"].to_numpy()
        kept[position] = False
        keepable = not hopeless[position].any()
    if not kept.all():
        if not kept.any():
            raise PpwError(
                f"{runs.attrs.get('source', 'runs')}: every row is flagged, so nothing is left to "
                f"learn from: see ppw check{', or keep them with --keep-all' * keepable}"
            )
        checked = checked[kept]
        groups = gr.group_runs(checked, by)
    if len(checked) <= _ORDERED_ROWS:
        order = np.lexsort([*(checked[c].to_numpy() for c in needed), groups.codes])
        checked, groups = checked.take(order), replace(groups, codes=groups.codes[order])
    return Prepared(checked, groups, metrics, left_out, held, keepable)


def below_full_load(runs: pd.DataFrame, groups: gr.Groups) -> Mask:
    """Runs held below what their host can do, of groups that have others too."""
    full = at_full_load(runs, groups.codes)
    some = np.bincount(groups.codes, full) > 0
    below: Mask = ~full & some[groups.codes]
    return below


def without_power(runs: pd.DataFrame) -> Mask:
    """Rows whose watts cannot be a host's, as of a sensor that subtracts too much; or cells."""
    none: Mask = np.zeros(len(runs), dtype=bool)
    if ck.FLAGS in runs.columns:
        none = (runs[ck.FLAGS].to_numpy() & ck.NO_WATTS) > 0
    elif "power_w" in runs.columns:
        none = as_numbers(runs["power_w"]).to_numpy() <= 0
    return none


def _rows_to_leave_out(
    runs: pd.DataFrame, groups: gr.Groups, metrics: Sequence[mt.Metric]
) -> pd.DataFrame:
    found = quality.find_flagged_rows(runs, groups, metric=[m.name for m in metrics])
    if not any(len(s.rows) for s in found):
        return pd.DataFrame()
    return quality.evidence_table(found, runs, groups)


def left_out_caveats(left_out: pd.DataFrame, keepable: bool) -> list[str]:
    """Say by check how many rows take no part, with the evidence of the first of them."""
    if left_out.empty:
        return []
    return [
        f"{_how_many(rows)} rows left out ({str(name).replace('_', ' ')}); the first, "
        f"{_place(rows.iloc[0])}: {rows['evidence'].iloc[0]}; {remedy_of_left_out(keepable)}"
        for name, rows in left_out.groupby("check", sort=True)
    ]


def remedy_of_left_out(keepable: bool) -> str:
    """Say what can be done about rows that were left out."""
    if keepable:
        return "ppw check lists them, --keep-all uses them"
    return "ppw check lists them; correct or drop power of 0 and less, which --keep-all cannot use"


def _how_many(left_out: pd.DataFrame) -> int:
    return int(left_out["runs"].sum()) if "runs" in left_out else len(left_out)


def _place(row: pd.Series[Any]) -> str:
    if "row" in row:
        return f"row {row['row']}"
    return "one" if row["runs"] == 1 else f"{row['runs']} of one group and frequency"


def measured_cells(prepared: Prepared, metric: mt.Metric, rows: Mask) -> pd.DataFrame:
    """Mean of a metric and number of runs by ``group`` and ``freq_hz``, of the chosen rows."""
    runs = prepared.runs
    frame = pd.DataFrame(
        {
            "group": prepared.groups.codes,
            "freq_hz": runs["freq_hz"].to_numpy(),
            "measured": mt.values(metric, runs),
        }
    )
    if gr.is_aggregated(runs, metric.name):
        return _merge_cells(frame.assign(runs=gr.counts(runs, metric.name))[rows].dropna())
    cells = frame[rows].dropna().groupby(["group", "freq_hz"], sort=True)["measured"]
    return (
        cells.agg(["mean", "size"])
        .reset_index()
        .rename(columns={"mean": "measured", "size": "runs"})
    )


def _merge_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells of one group and frequency made one: the mean of all their runs."""
    total = cells.assign(measured=cells["measured"] * cells["runs"])
    merged = total.groupby(["group", "freq_hz"], sort=True).sum()
    return merged.assign(measured=merged["measured"] / merged["runs"]).reset_index()


# Which columns of a runs table hold a power source's watts, found by the source's label.


# What a processor draws: its packages and, where it counts them, the memory modules. Cores are
# inside the packages and the platform domain is around them: neither is added.
_PROCESSOR = {"rapl": ("rapl:package", "rapl:dram")}


class SourcePower(NamedTuple):
    """Power of one source, or of several added."""

    # Labels of the parts, joined by "+".
    label: str
    # Columns that were added.
    columns: tuple[str, ...]
    # W a run; NaN where a part is missing or the sum is not above 0.
    watts: FloatArray


def source_power(runs: pd.DataFrame, asked: str) -> SourcePower:
    """Find the mean power of every run as a source saw it.

    ``asked`` is a label ("rapl:package", "meter:wt310e"), its beginning where only one source
    begins so ("meter"), or several joined by "+"; "rapl" is the packages and, where counted, the
    memory modules. Channels that are numbered ("rapl:package-0") are added. Raises
    `UnknownColumnError` when no column holds it, or several may, and `MeasurementError` for text
    where watts should be.
    """
    parts = [part.strip() for part in asked.split("+")]
    found = [source for part in parts for source in _part(runs, part)]
    columns = tuple(dict.fromkeys(column for source in found for column in source.columns))
    if len(columns) < sum(len(source.columns) for source in found):
        raise UnknownColumnError(f"{asked!r} adds a column to itself: name each source once")
    total = np.sum([source.watts for source in found], axis=0)
    total[~(np.isfinite(total) & (total > 0))] = np.nan
    return SourcePower("+".join(source.label for source in found), columns, total)


def _part(runs: pd.DataFrame, label: str) -> list[SourcePower]:
    if label in _PROCESSOR:
        first, *others = (_power_of(runs, part) for part in _PROCESSOR[label])
        if first is not None:
            # A domain that this processor does not count may still have its column.
            counted = [o for o in others if o is not None and np.isfinite(o.watts).any()]
            return [first, *counted]
    exact = _power_of(runs, label)
    if exact is not None:
        return [exact]
    begins = [name for name in _labels(runs) if column_stem(name).startswith(column_stem(label))]
    if len(begins) == 1 and label and (only := _power_of(runs, begins[0])) is not None:
        return [only]
    source = runs.attrs.get("source", "runs")
    if begins and label:
        raise UnknownColumnError(
            f"{source}: {label!r} may be {list_names(begins)}: name one, or several joined by +"
        )
    there = list_names(_labels(runs)) or "none"
    raise UnknownColumnError(
        f"{source}: no power of {label!r}, which would be in column {power_column(label)}; the "
        f"sources are {there}: measure with both (ppw measure --power …), or rename a column"
    )


def _power_of(runs: pd.DataFrame, label: str) -> SourcePower | None:
    """Watts by the label's own column, by its numbered channels, or by ``power_w``."""
    own = power_column(label)
    numbered = re.compile(rf"{re.escape(column_stem(label))}(_(die_)?\d+)+{POWER_SUFFIX}")
    columns = [own] if own in runs else [str(c) for c in runs if numbered.fullmatch(str(c))]
    if columns:
        total = np.sum([_numbers(runs, column) for column in columns], axis=0)
        return SourcePower(label, tuple(columns), total)
    if {"power_w", "power_source"} <= set(runs.columns):
        of_label = (runs["power_source"].astype(object) == label).to_numpy(dtype=bool)
        if of_label.any():
            watts = np.where(of_label, _numbers(runs, "power_w"), np.nan)
            return SourcePower(label, ("power_w",), watts)
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
            "a power in W: correct it or leave the cell empty"
        )
    return np.asarray(numbers, dtype=np.float64)
