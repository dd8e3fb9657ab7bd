"""Runs of an engine's table to moments, and moments to moments: one expression each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from measurements.table.checks import refuse_absent, value_rules
from measurements.table.schema import IDENTITY, is_number
from ppw.errors import PpwError
from ppw.fleet.canonical import recorded_step, with_decades
from ppw.fleet.run_files import registered
from ppw.projection.answers import WITH_OTHER_FORM
from ppw.results.arguments import as_names
from ppw.runs.caveats import PROPERTIES
from ppw.runs.checks import FLAGS, OF_WATTS, UNUSABLE
from ppw.runs.checks.readings import CONTRADICTIONS
from ppw.runs.checks.repeats import MEASURED
from ppw.runs.expressions import any_of
from ppw.runs.groups import (
    INVERSE,
    LOG,
    RUNS,
    SINGLE,
    VALUE,
    count_column,
    finest_column,
    group_runs,
    least_column,
    mean_column,
    most_column,
    squares_column,
    tally_column,
)
from ppw.runs.metrics import (
    METRICS,
    PERFORMANCE,
    answerable,
    known_metrics,
    needed_columns,
    quantity,
    source_columns,
)
from ppw.runs.prepare import FULL_LOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import ibis.expr.types as ir

    from ppw.fleet.run_files import FleetRuns
    from ppw.projection.options import FitOptions
    from ppw.runs.metrics import Metric


# What a moment table holds: its keys, quantities and counts.


FREQUENCY = "freq_hz"
# Columns that split a cell because a caveat, a check or a noise level asks for them.
_SHADES = ("power_source", "power_label", "simulator", "load")
# Sources of watts say simulators too, whose times are exact: they stay.
_OF_WATTS = ("power_label",)
_JUDGED_BY_DIGITS = ("time_s", "throughput_ops_s", "power_w")
# What the evidence of a check quotes.
_FIGURES = ("energy_j", "idle_power_w", "freq_achieved_hz")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns of a moment table (see `ppw.runs.groups`).

    Attributes
    ----------
    by : tuple of str
        Columns that tell groups apart.
    shades : tuple of str
        Further key columns, which split cells but no groups.
    metrics : tuple of str
        Names of the metrics asked for.
    quantities : mapping of str to tuple of str
        Quantity to its co-ordinates, of `VALUE`, `LOG` and `INVERSE`.
    tallies : tuple of str
        Properties whose runs are counted.
    finest : tuple of str
        Columns of the runs whose finest recorded decimal step and whose range are kept, for the
        checks.
    settings : tuple of str
        Shades that may tell settings apart, and so are kept as they are.
    """

    by: tuple[str, ...]
    shades: tuple[str, ...]
    metrics: tuple[str, ...]
    quantities: Mapping[str, tuple[str, ...]]
    tallies: tuple[str, ...] = ()
    finest: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns of a cell."""
        return (*self.by, FREQUENCY, *self.shades)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in their order."""
        moments = (
            name
            for quantity, coordinates in self.quantities.items()
            for name in (
                count_column(quantity),
                *(f"{quantity}__{c}{part}" for c in coordinates for part in ("mean", "m2")),
            )
        )
        rest = [tally_column(name) for name in self.tallies]
        for of_digits in (finest_column, least_column, most_column):
            rest += [of_digits(name) for name in self.finest]
        return (*self.keys, RUNS, *moments, *rest)

    def to_dict(self) -> dict[str, Any]:
        """Layout as JSON knows it."""
        return {
            "by": list(self.by),
            "shades": list(self.shades),
            "metrics": list(self.metrics),
            "quantities": {name: list(c) for name, c in self.quantities.items()},
            "tallies": list(self.tallies),
            "finest": list(self.finest),
            "settings": list(self.settings),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Layout:
        """Read `to_dict` back."""
        return cls(
            by=names_of(document["by"]),
            shades=names_of(document["shades"]),
            metrics=names_of(document["metrics"]),
            quantities={name: names_of(c) for name, c in document["quantities"].items()},
            tallies=names_of(document["tallies"]),
            finest=names_of(document.get("finest", ())),
            settings=names_of(document.get("settings", ())),
        )


def names_of(values: Iterable[object]) -> tuple[str, ...]:
    """Names in a document. Raises TypeError for a single text, or what is no text in a list."""
    given = [*values]
    names = tuple(name for name in given if isinstance(name, str))
    if isinstance(values, str) or len(names) < len(given):
        raise TypeError(f"{str(values)[:60]!r} is no list of names")
    return names


def layout_of(
    known: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    options: FitOptions | None = None,
    settings: Sequence[str] | None = None,
    lines_only: bool = False,
) -> Layout:
    """Choose what to keep of a table for a question.

    Parameters
    ----------
    known : pandas.DataFrame
        Columns of the table with a value where any run has one, as `ppw.fleet.run_files` finds
        them.
    by, metric
        As for `ppw.project_runs`.
    options : FitOptions, optional
        How curves are fitted; without, all co-ordinates are kept, so that any may be.
    settings : sequence of str, optional
        Columns with few values that may tell settings apart: keep what `ppw.runs.quality` needs
        too.
    lines_only : bool
        Keep what least-squares curves need, and no posterior.

    Raises
    ------
    PpwError, MeasurementError
        As `ppw.project_runs`, for metrics and columns that are not there.
    """
    metrics = answerable(known) if metric is None else known_metrics(metric)
    needed = needed_columns(metrics, known)
    refuse_absent(known, needed, str(known.attrs.get("source", "runs")))
    groups = group_runs(known, None if by is None else as_names(by))
    present = [c for c in known.columns if known[c].notna().any()]
    watts = bool(OF_WATTS & {m.name for m in metrics})
    shades = [c for c in _SHADES if c in present and (watts or c not in _OF_WATTS)]
    split = dict.fromkeys((*(c for c in IDENTITY if c in present), *shades, *(settings or ())))
    quantities = _quantities(metrics, options, present, lines_only=lines_only)
    finest = [c for c in _JUDGED_BY_DIGITS if c in present and settings is not None]
    if settings is not None:
        quantities |= dict.fromkeys(finest, (VALUE, LOG, INVERSE))
        quantities |= {c: (VALUE,) for c in _FIGURES if c in present}
    return Layout(
        by=tuple(groups.by),
        shades=(*(c for c in split if c not in groups.by), FLAGS),
        metrics=tuple(m.name for m in metrics),
        quantities=dict(sorted(quantities.items())),
        tallies=_tallies(present, watts=watts),
        finest=tuple(finest),
        settings=tuple(settings or ()),
    )


def _quantities(
    metrics: Sequence[Metric],
    options: FitOptions | None,
    present: Sequence[str],
    *,
    lines_only: bool,
) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {m.name: {VALUE} for m in metrics}
    for metric in metrics:
        for name in (
            (metric.name, *(metric.factors or ())) if options is None else options.fitted(metric)
        ):
            found.setdefault(name, {VALUE}).update(_coordinates(metric, name, options, lines_only))
    if "voltage_v" in present:
        found["voltage_v"] = {VALUE}
    order = (VALUE, LOG, INVERSE)
    return {name: tuple(c for c in order if c in of) for name, of in found.items()}


def _coordinates(
    metric: Metric, name: str, options: FitOptions | None, lines_only: bool
) -> set[str]:
    if options is None:
        return {LOG, INVERSE}
    # The other form, which is shown beside a curve that gains more than the clock, is in one too.
    inverse = options.model(name).reciprocal or (name in WITH_OTHER_FORM and not lines_only)
    log = options.has_posterior(options.fitted(metric)) and not lines_only
    return ({INVERSE} if inverse else set()) | ({LOG} if log else set())


def _tallies(present: Sequence[str], *, watts: bool) -> tuple[str, ...]:
    names = [name for name, (columns, _) in PROPERTIES.items() if columns <= {*present, FREQUENCY}]
    return tuple(name for name in names if watts or name != "energy_off")


def metric_of(quantity: str) -> Metric | None:
    """Metric that a quantity is; None for a column of the runs."""
    return PERFORMANCE if quantity == PERFORMANCE.name else METRICS.get(quantity)


def runs_for(
    table: ir.Table, layout: Layout, known: pd.DataFrame, *, keep: Sequence[str] = ()
) -> ir.Table:
    """Keys, flags and quantities of each run: what `moments` condenses.

    Parameters
    ----------
    table : ibis Table
        With canonical columns.
    layout : Layout
    known : pandas.DataFrame
        As for `layout_of`.
    keep : sequence of str
        Columns to keep as they are.
    """
    table = table.mutate(**{FLAGS: _flags(table, layout, known)})
    table = with_decades(table, layout.finest)
    keys = {name: _key(table, name, layout.settings) for name in layout.keys}
    found = {name: _quantity(table, name, known) for name in layout.quantities}
    told = {tally_column(name): _count(PROPERTIES[name][1](table)) for name in layout.tallies}
    steps = {finest_column(name): recorded_step(table, name) for name in layout.finest}
    steps |= {least_column(name): table[name] for name in layout.finest}
    kept = {name: table[name] for name in keep if name not in found}
    return table.select(**kept, **keys, **found, **told, **steps)


def columns_read(layout: Layout, known: pd.DataFrame) -> list[str]:
    """List the canonical columns of numbers that a layout needs."""
    names: dict[str, None] = dict.fromkeys(c for c in layout.keys if c in known.columns)
    for name in layout.quantities:
        metric = metric_of(name)
        names |= dict.fromkeys([name] if metric is None else source_columns(metric, known))
    for name in layout.tallies:
        names |= dict.fromkeys(sorted(PROPERTIES[name][0]))
    return [name for name in names if is_number(name)]


def rule(table: ir.Table, column: str) -> ir.BooleanValue:
    """Tell where a value is none that a runs table may have; NULL where it is missing."""
    # In an engine NaN is above every number, and so is refused with infinity.
    return any_of(each.broken(table[column]) for each in value_rules(column))


def _flags(table: ir.Table, layout: Layout, known: pd.DataFrame) -> ir.IntegerValue:
    """What is wrong with each run by itself, as bits."""
    columns = columns_read(layout, known)
    hopeless = (
        (table.power_w <= 0).fill_null(False) if layout.finest and "power_w" in columns else None
    )
    bad = [
        rule(table, c) & ~hopeless
        if hopeless is not None and c in ("power_w", "energy_j")
        else rule(table, c)
        for c in columns
    ]
    unusable = any_of([table[FREQUENCY].isnull(), *bad])  # noqa: PD003 — no pandas
    flags = unusable.fill_null(False).ifelse(UNUSABLE, 0)
    if layout.finest:
        readings = {c: table[c] for c in table.columns}
        for bit, (needed, wrong) in CONTRADICTIONS.items():
            if needed <= readings.keys():
                flags = flags + wrong(readings).fill_null(False).ifelse(bit, 0)
    return flags.cast("int16")


def _key(table: ir.Table, name: str, settings: Sequence[str]) -> ir.Value:
    if name == "load" and name not in settings:
        # All that a curve asks of the load is whether it was full.
        full = (table.load >= FULL_LOAD).ifelse(1.0, 0.0)
        return table.load.isnull().ifelse(None, full).cast("float64")  # noqa: PD003 — no pandas
    return table[name]


def _quantity(table: ir.Table, name: str, known: pd.DataFrame) -> ir.NumericValue:
    """A quantity of usable runs; a metric is above zero, or none."""
    metric = metric_of(name)
    # An odd number has the first bit, UNUSABLE.
    usable = table[FLAGS] % 2 == 0
    if metric is None:
        return usable.ifelse(table[name], None).cast("float64")
    columns = {c: table[c] for c in source_columns(metric, known)}
    value = quantity(metric, columns)
    return (usable & (value > 0)).ifelse(value, None).cast("float64")


def _count(found: Any) -> ir.IntegerValue:
    return found.fill_null(False).cast("int64")


def moments(runs: ir.Table, layout: Layout) -> ir.Table:
    """Condense what `runs_for` gives: one row a cell, by Welford's recurrence in the engine."""
    of_quantity = {
        column: value
        for name, coordinates in layout.quantities.items()
        for column, value in _moments_of(runs[name], name, coordinates).items()
    }
    told = {name: runs[name].sum() for name in map(tally_column, layout.tallies)}
    for name in layout.finest:
        told[finest_column(name)] = runs[finest_column(name)].min()
        told[least_column(name)] = runs[least_column(name)].min()
        told[most_column(name)] = runs[least_column(name)].max()
    cells = runs.group_by(list(layout.keys)).aggregate(
        **{RUNS: runs.count()}, **of_quantity, **told
    )
    return cells.select(*layout.columns)


def _moments_of(
    value: ir.NumericColumn, name: str, coordinates: Sequence[str]
) -> Mapping[str, ir.Scalar]:
    made: dict[str, Any] = {count_column(name): value.count()}
    # Columns of the runs may hold what has no logarithm, such as watts below nothing.
    above = value if metric_of(name) else (value > 0).ifelse(value, None)
    for coordinate in coordinates:
        y = value if coordinate == VALUE else above.ln() if coordinate == LOG else 1 / above
        made[mean_column(name, coordinate)] = y.mean()
        made[squares_column(name, coordinate)] = y.var(how="pop") * value.count()
    return made


def merge(tables: Sequence[ir.Table], layout: Layout) -> ir.Table:
    """Moments of all runs from the moments of parts, which may share cells.

    N = Σn, mean = Σ(n·meanᵢ)/N, m2 = Σ(m2ᵢ + n·(meanᵢ − mean)²): the formulas of Chan, Golub and
    LeVeque for any number of parts at once; no difference of large sums is taken.
    """
    import ibis

    parts = [table.select(*layout.columns) for table in tables]
    together = parts[0] if len(parts) == 1 else ibis.union(*parts)
    return _merged(together, layout)


def _merged(together: ir.Table, layout: Layout) -> ir.Table:
    import ibis

    window = ibis.window(group_by=list(layout.keys))
    centres = {}
    for name, coordinate in _group_coordinates(layout):
        count, mean = together[count_column(name)], together[mean_column(name, coordinate)]
        total = (count * mean).sum().over(window) / count.sum().over(window).nullif(0)
        centres[f"centre__{name}__{coordinate}"] = total
    centred = together.mutate(**centres)
    made: dict[str, Any] = {RUNS: centred[RUNS].sum()}
    for name in layout.quantities:
        made[count_column(name)] = centred[count_column(name)].sum()
    for name, coordinate in _group_coordinates(layout):
        count, mean = centred[count_column(name)], centred[mean_column(name, coordinate)]
        centre = centred[f"centre__{name}__{coordinate}"]
        squares = centred[squares_column(name, coordinate)]
        made[mean_column(name, coordinate)] = centre.max()
        made[squares_column(name, coordinate)] = (
            squares + count * (mean - centre) * (mean - centre)
        ).sum()
    for name in map(tally_column, layout.tallies):
        made[name] = centred[name].sum()
    for name in layout.finest:
        made |= {c: centred[c].min() for c in (finest_column(name), least_column(name))}
        made[most_column(name)] = centred[most_column(name)].max()
    return centred.group_by(list(layout.keys)).aggregate(**made).select(*layout.columns)


def _group_coordinates(layout: Layout) -> list[tuple[str, str]]:
    return [(name, c) for name, coordinates in layout.quantities.items() for c in coordinates]


# Groups in which runs at different frequencies agree in every digit: kept run by run.
#
# Moments do not show such runs. Cells whose ranges do not overlap cannot hold them, which leaves
# few groups to look through; of those that do hold some, the runs take the place of the cells.


# Runs kept one by one; a record so coarse that more coincide tells nothing of them.
_MOST_RUNS = 5_000_000
_MARK = "agrees__"


def with_single_runs(
    cells: pd.DataFrame, layout: Layout, runs: FleetRuns, known: pd.DataFrame
) -> pd.DataFrame:
    """Cells, those of groups with runs that agree in every digit replaced by their single runs.

    Raises
    ------
    PpwError
        When more runs agree than can be looked at.
    """
    overlapping = _overlapping(cells, layout)
    if overlapping is None:
        return cells
    rows = runs_for(runs.table, layout, known, keep=_columns(layout, known))
    rows = rows.filter(rows[FLAGS] % 2 == 0).mutate(**{_MARK: _pace(rows)})
    groups = _of_groups(rows, overlapping, runs) if len(overlapping) else rows
    agreeing = _agreeing(groups, layout)
    found = runs.connection.to_pyarrow(agreeing)
    if not found.num_rows:
        return cells
    single = _of_groups(rows, found.to_pandas(), runs)
    count = runs.connection.to_pyarrow(single.aggregate(n=single.count())).to_pylist()[0]["n"]
    if count > _MOST_RUNS:
        raise PpwError(
            f"{runs.name}: {count} runs are of groups in which runs at different frequencies agree "
            "in every digit: record times to more digits, or use the runs as they are by --keep-all"
        )
    alone = _as_cells(runs.connection.to_pyarrow(single).to_pandas(), layout)
    return _replaced(cells, alone, layout)


def _columns(layout: Layout, known: pd.DataFrame) -> list[str]:
    names = dict.fromkeys((*layout.finest, *MEASURED))
    return [c for c in names if c in known and known[c].notna().any()]


def _pace(rows: ir.Table) -> ir.NumericValue:
    time, rate = (rows[c] if c in rows.columns else None for c in ("time_s", "throughput_ops_s"))
    if time is None or rate is None:
        return rate if time is None else time
    return time.coalesce(rate)


def _overlapping(cells: pd.DataFrame, layout: Layout) -> pd.DataFrame | None:
    """Keys of the groups whose cells overlap in time; all of them is an empty frame, none None."""
    timed = [c for c in ("time_s", "throughput_ops_s") if c in layout.finest]
    if not timed:
        return None
    usable = cells[(cells[FLAGS].to_numpy() & UNUSABLE) == 0]
    groups = group_runs(usable, layout.by)
    both = np.zeros(len(groups), dtype=bool)
    for column in timed:
        least, most = (usable[of(column)].to_numpy() for of in (least_column, most_column))
        known = ~np.isnan(least)
        order = np.lexsort((least[known], groups.codes[known]))
        code, low, high = groups.codes[known][order], least[known][order], most[known][order]
        highest = pd.Series(high).groupby(code).cummax().to_numpy()
        touching = (code[1:] == code[:-1]) & (low[1:] <= highest[:-1])
        both[code[1:][touching]] = True
    if not both.any():
        return None
    return groups.keys.iloc[:0] if both.all() else groups.keys[both]


def _of_groups(rows: ir.Table, keys: pd.DataFrame, runs: FleetRuns) -> ir.Table:
    """Rows of the groups with these keys."""
    import pyarrow as pa

    if not len(keys.columns):
        return rows
    wanted = registered(runs.connection, pa.Table.from_pandas(keys, preserve_index=False))
    return rows.semi_join(wanted, [rows[c].identical_to(wanted[c]) for c in keys.columns])


def _agreeing(rows: ir.Table, layout: Layout) -> ir.Table:
    """Keys of the groups in which runs of two frequencies agree in pace and watts."""
    by = [*layout.by, _MARK]
    by += ["power_w"] if "power_w" in rows.columns else []
    frequency = rows[FREQUENCY]
    sets = rows.group_by(by).aggregate(slowest=frequency.min(), fastest=frequency.max())
    sets = sets.filter(sets.fastest > (1 + SAME_STEP) * sets.slowest)
    return sets.select(*layout.by).distinct() if layout.by else sets.select(_MARK).limit(1)


def _as_cells(rows: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """One cell a run."""
    made: dict[str, Any] = {RUNS: 1, SINGLE: True}
    for name, coordinates in layout.quantities.items():
        value = rows[name].to_numpy(dtype=np.float64)
        missing = np.isnan(value)
        made[count_column(name)] = (~missing).astype(np.int64)
        for coordinate in coordinates:
            y = value if coordinate == VALUE else np.log(value) if coordinate == LOG else 1 / value
            made[mean_column(name, coordinate)] = y
            made[squares_column(name, coordinate)] = np.where(missing, np.nan, 0.0)
    for name in layout.finest:
        made[most_column(name)] = rows[least_column(name)]
    kept = [finest_column(name) for name in layout.finest]
    return rows.assign(**made).astype(dict.fromkeys(kept, np.float64))


def _replaced(cells: pd.DataFrame, alone: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    together = pd.concat([cells, alone], ignore_index=True)
    of_run = together[SINGLE].eq(True).to_numpy()
    groups = group_runs(together, layout.by)
    kept = np.zeros(len(groups), dtype=bool)
    kept[groups.codes[of_run]] = True
    bad = (together[FLAGS].to_numpy() & UNUSABLE) > 0
    made = together[of_run | bad | ~kept[groups.codes]]
    columns = [*layout.columns, SINGLE, *(c for c in MEASURED if c in alone and c not in cells)]
    made = made[columns].assign(**{SINGLE: of_run[made.index]})
    made = made.sort_values(list(layout.keys), kind="stable", ignore_index=True)
    made.attrs = cells.attrs
    return made
