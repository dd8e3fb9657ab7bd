"""Runs of an engine's table to moments, one row a cell, and cells as the runs that answers take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from measurements.table.checks import refuse_absent, value_rules
from measurements.table.schema import FILE_COLUMN, IDENTITY, NUMERIC
from ppw.errors import PpwError
from ppw.fleet import engine as eng, run_files as rf
from ppw.fleet.engine import ibis
from ppw.projection.answers import WITH_OTHER_FORM, FitOptions
from ppw.results.text import as_names, key_texts
from ppw.runs import checks as ck, groups as gr, metrics as mt, prepare

if TYPE_CHECKING:
    import ibis.expr.types as ir


T = TypeVar("T")

# What a moment table holds: its keys, quantities and counts.
FREQUENCY = "freq_hz"
_COORDINATES = (gr.VALUE, gr.LOG, gr.INVERSE)
# Columns that split a cell because a caveat, a check or a noise level asks for them.
_SHADES = ("power_source", "power_label", "simulator", "load")
# Sources of watts say simulators too, whose times are exact: they stay.
_OF_WATTS = ("power_label",)
_JUDGED_BY_DIGITS = ("time_s", "throughput_ops_s", "power_w")
# What the evidence of a check quotes.
_FIGURES = ("energy_j", "idle_power_w", "freq_achieved_hz", "other_cpu_share")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns of a moment table (see `ppw.runs.groups`)."""

    # Columns that tell groups apart, and further key columns, which split cells but no groups.
    by: tuple[str, ...]
    shades: tuple[str, ...]
    metrics: tuple[str, ...]  # names of the metrics asked for
    # By quantity its co-ordinates: the value, its logarithm, its inverse.
    quantities: Mapping[str, tuple[str, ...]]
    tallies: tuple[str, ...] = ()  # properties whose runs are counted
    # Columns whose finest recorded decimal step and whose range are kept, for the checks.
    finest: tuple[str, ...] = ()
    # Shades that may tell settings apart, and so are kept as they are.
    settings: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns of a cell."""
        return (*self.by, FREQUENCY, *self.shades)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in their order."""
        names = [*self.keys, gr.RUNS]
        for quantity, coordinates in self.quantities.items():
            names.append(gr.count_column(quantity))
            for c in coordinates:
                names += [gr.mean_column(quantity, c), gr.squares_column(quantity, c)]
        names += map(gr.tally_column, self.tallies)
        for of_digits in (gr.finest_column, gr.least_column, gr.most_column):
            names += map(of_digits, self.finest)
        return tuple(names)

    @property
    def counts(self) -> list[str]:
        """Columns of numbers of runs."""
        quantities = map(gr.count_column, self.quantities)
        return [gr.RUNS, *quantities, *map(gr.tally_column, self.tallies)]

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Layout:
        """Read the layout that JSON has; a damaged document raises one of `DAMAGE`."""
        optional: dict[str, Any] = {"finest": (), "settings": ()}
        parts = {name: (optional | {**document})[name] for name in cls.__dataclass_fields__}
        quantities = {name: names_of(c) for name, c in parts.pop("quantities").items()}
        return cls(quantities=quantities, **{name: names_of(v) for name, v in parts.items()})


def names_of(values: Iterable[object]) -> tuple[str, ...]:
    """Check a list of names from a document. Raises TypeError for a text, or what is none in it."""
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
    """Choose what to keep of a table, as `ppw.fleet.run_files.filled_columns` finds it.

    Without ``options`` all co-ordinates are kept, so that any curve may be fitted; ``lines_only``
    keeps what least squares need. ``settings`` are columns with few values that may tell settings
    apart: with them, what `ppw.runs.quality` needs is kept too.
    """
    metrics = mt.answerable(known) if metric is None else mt.parse_metrics(metric)
    needed = mt.needed_columns(metrics, known)
    refuse_absent(known, needed, str(known.attrs.get("source", "runs")))
    groups = gr.group_runs(known, None if by is None else as_names(by))
    present = [c for c in known.columns if known[c].notna().any()]
    watts = bool(ck.OF_WATTS & {m.name for m in metrics})
    shades = [c for c in _SHADES if c in present and (watts or c not in _OF_WATTS)]
    split = dict.fromkeys((*(c for c in IDENTITY if c in present), *shades, *(settings or ())))
    quantities = _quantities_to_fit(metrics, options, lines_only=lines_only)
    if "voltage_v" in present:
        quantities["voltage_v"] = (gr.VALUE,)
    finest = [c for c in _JUDGED_BY_DIGITS if c in present and settings is not None]
    if settings is not None:
        quantities |= dict.fromkeys(finest, _COORDINATES)
        quantities |= {c: (gr.VALUE,) for c in _FIGURES if c in present}
    there, properties = {*present, FREQUENCY}, prepare.PROPERTIES
    tallies = [name for name, (needs, _) in properties.items() if needs <= there]
    return Layout(
        by=tuple(groups.by),
        shades=(*(c for c in split if c not in groups.by), gr.FLAGS),
        metrics=tuple(m.name for m in metrics),
        quantities=dict(sorted(quantities.items())),
        tallies=tuple(name for name in tallies if watts or name != "energy_off"),
        finest=tuple(finest),
        settings=tuple(settings or ()),
    )


def _quantities_to_fit(
    metrics: Sequence[mt.Metric], options: FitOptions | None, *, lines_only: bool
) -> dict[str, tuple[str, ...]]:
    """Quantities that metrics are fitted from, each with the co-ordinates of its moments."""
    found: dict[str, set[str]] = {m.name: {gr.VALUE} for m in metrics}
    for metric in metrics:
        every = (metric.name, *(metric.factors or ()))
        for name in every if options is None else options.fit_powers(metric):
            coordinates = _coordinates_of_fit(metric, name, options, lines_only)
            found.setdefault(name, {gr.VALUE}).update(coordinates)
    return {name: tuple(c for c in _COORDINATES if c in of) for name, of in found.items()}


def _coordinates_of_fit(
    metric: mt.Metric, name: str, options: FitOptions | None, lines_only: bool
) -> set[str]:
    """Co-ordinates (log, inverse) in which the fit of a quantity needs moments."""
    if options is None:
        return {gr.LOG, gr.INVERSE}
    # The other form, which is shown beside a curve that gains more than the clock, is in one too.
    inverse = options.model(name).reciprocal or (name in WITH_OTHER_FORM and not lines_only)
    log = options.has_posterior(options.fit_powers(metric)) and not lines_only
    return ({gr.INVERSE} if inverse else set()) | ({gr.LOG} if log else set())


def metric_of(quantity: str) -> mt.Metric | None:
    """Metric of a quantity's name; None for a quantity that is a plain column of the runs."""
    return (mt.METRICS | {mt.PERFORMANCE.name: mt.PERFORMANCE}).get(quantity)


def runs_for(
    table: ir.Table, layout: Layout, known: pd.DataFrame, *, keep: Sequence[str] = ()
) -> ir.Table:
    """Select keys, flags and quantities of each run for `moments`; columns in ``keep`` stay too."""
    table = table.mutate(**{gr.FLAGS: _flag_bits(table, layout, known)})
    table = _with_decades(table, layout.finest)
    columns: dict[str, Any] = {name: table[name] for name in keep}
    columns |= {name: _key_column(table, name, layout.settings) for name in layout.keys}
    columns |= {name: _quantity_column(table, name, known) for name in layout.quantities}
    for name in layout.tallies:
        found = prepare.PROPERTIES[name][1](table)
        columns[gr.tally_column(name)] = found.fill_null(False).cast("int64")
    for name in layout.finest:
        mantissa, decade = table[f"{name}__mantissa"], table[f"{name}__decade"]
        columns[gr.finest_column(name)] = gr.digit_step(mantissa, decade)
        columns[gr.least_column(name)] = table[name]
    return table.select(**columns)


def _with_decades(table: ir.Table, columns: Sequence[str]) -> ir.Table:
    """Add the power of ten of each column's values, and the values over it; NULL for 0."""
    sizes = {name: table[name].abs() for name in columns}
    # 0 has no digits, nor has what could not be read.
    sizes = {n: ((s > 0) & (s < float("inf"))).ifelse(s, None) for n, s in sizes.items()}
    decades = {f"{name}__decade": s.log10().floor() for name, s in sizes.items()}
    table = table.mutate(**decades)
    sizes = {f"{n}__mantissa": s / 10.0 ** table[f"{n}__decade"] for n, s in sizes.items()}
    return table.mutate(**sizes)


def columns_read(layout: Layout, known: pd.DataFrame) -> list[str]:
    """List the canonical numeric columns that a layout reads from the runs."""
    names: dict[str, None] = dict.fromkeys(c for c in layout.keys if c in known.columns)
    for name in layout.quantities:
        metric = metric_of(name)
        names |= dict.fromkeys([name] if metric is None else mt.source_columns(metric, known))
    for name in layout.tallies:
        names |= dict.fromkeys(sorted(prepare.PROPERTIES[name][0]))
    return [name for name in names if name in NUMERIC]


def is_impossible(table: ir.Table, column: str) -> ir.BooleanValue:
    """Tell which values break a rule of the runs table; NULL where the value is missing."""
    # In an engine NaN is above every number, and so is refused with infinity.
    return gr.any_of(rule.broken(table[column]) for rule in value_rules(column))


def _flag_bits(table: ir.Table, layout: Layout, known: pd.DataFrame) -> ir.IntegerValue:
    """Flags of each run as bits: unusable, or the contradictions between its columns."""
    columns = columns_read(layout, known)
    bad = {c: is_impossible(table, c) for c in columns}
    if layout.finest and "power_w" in columns:
        # Watts of zero or less are no error of the checks, which name them.
        hopeless = (table.power_w <= 0).fill_null(False)
        bad |= {c: bad[c] & ~hopeless for c in ("power_w", "energy_j") if c in bad}
    unusable = gr.any_of([table[FREQUENCY].isnull(), *bad.values()])  # noqa: PD003 — no pandas
    flags = unusable.fill_null(False).ifelse(gr.UNUSABLE, 0)
    values = {c: table[c] for c in table.columns} if layout.finest else {}
    for bit, (needs, contradict) in ck.CONTRADICTIONS.items():
        if needs <= values.keys():
            flags = flags + contradict(values).fill_null(False).ifelse(bit, 0)
    return flags.cast("int16")


def _key_column(table: ir.Table, name: str, settings: Sequence[str]) -> ir.Value:
    """Key column of the runs; load becomes 1 for full and 0 for less, unless it is a setting."""
    if name == "load" and name not in settings:
        # All that a curve asks of the load is whether it was full.
        full = (table.load >= prepare.FULL_LOAD).ifelse(1.0, 0.0)
        return table.load.isnull().ifelse(None, full).cast("float64")  # noqa: PD003 — no pandas
    return table[name]


def _quantity_column(table: ir.Table, name: str, known: pd.DataFrame) -> ir.NumericValue:
    """Quantity of each run, NULL for unusable runs and for a metric that is not above 0."""
    metric = metric_of(name)
    # An odd number has the first bit, UNUSABLE.
    usable = table[gr.FLAGS] % 2 == 0
    if metric is None:
        return usable.ifelse(table[name], None).cast("float64")
    value = mt.quantity(metric, {c: table[c] for c in mt.source_columns(metric, known)})
    return (usable & (value > 0)).ifelse(value, None).cast("float64")


def moments(runs: ir.Table, layout: Layout) -> ir.Table:
    """Condense what `runs_for` gives: one row a cell, by Welford's recurrence in the engine."""
    made: dict[str, Any] = {gr.RUNS: runs.count()}
    for name, coordinates in layout.quantities.items():
        made |= _moments_of(runs[name], name, coordinates)
    made |= {name: runs[name].sum() for name in map(gr.tally_column, layout.tallies)}
    for name in layout.finest:
        value = runs[gr.least_column(name)]
        made[gr.finest_column(name)] = runs[gr.finest_column(name)].min()
        made |= {gr.least_column(name): value.min(), gr.most_column(name): value.max()}
    return runs.group_by(list(layout.keys)).aggregate(**made).select(*layout.columns)


def _moments_of(
    value: ir.NumericColumn, name: str, coordinates: Sequence[str]
) -> Mapping[str, ir.Scalar]:
    """Count of a column, and its mean and centred squares in each co-ordinate, by column name."""
    made: dict[str, Any] = {gr.count_column(name): value.count()}
    # Columns of the runs may hold what has no logarithm, such as watts below nothing.
    above = value if metric_of(name) else (value > 0).ifelse(value, None)
    for coordinate in coordinates:
        y = {gr.VALUE: value, gr.LOG: above.ln(), gr.INVERSE: 1 / above}[coordinate]
        made[gr.mean_column(name, coordinate)] = y.mean()
        made[gr.squares_column(name, coordinate)] = y.var(how="pop") * value.count()
    return made


def merge_moments(tables: Sequence[ir.Table], layout: Layout) -> ir.Table:
    """Merge moment tables whose cells may overlap into one, as if made of all their runs.

    N = Σn, mean = Σ(n·meanᵢ)/N, m2 = Σ(m2ᵢ + n·(meanᵢ − mean)²): the formulas of Chan, Golub and
    LeVeque for any number of parts at once; no difference of large sums is taken.
    """
    parts = [table.select(*layout.columns) for table in tables]
    together = parts[0] if len(parts) == 1 else ibis.union(*parts)
    window = ibis.window(group_by=list(layout.keys))
    each = [(name, c) for name, coordinates in layout.quantities.items() for c in coordinates]
    centres = {}
    for name, c in each:
        count, mean = together[gr.count_column(name)], together[gr.mean_column(name, c)]
        total = (count * mean).sum().over(window) / count.sum().over(window).nullif(0)
        centres[f"centre__{name}__{c}"] = total
    centred = together.mutate(**centres)
    made: dict[str, Any] = {name: centred[name].sum() for name in layout.counts}
    for name, c in each:
        centre = centred[f"centre__{name}__{c}"]
        count = centred[gr.count_column(name)]
        apart = centred[gr.mean_column(name, c)] - centre
        squares = centred[gr.squares_column(name, c)] + count * apart * apart
        made[gr.mean_column(name, c)] = centre.max()
        made[gr.squares_column(name, c)] = squares.sum()
    for name in layout.finest:
        least, most = (gr.finest_column(name), gr.least_column(name)), gr.most_column(name)
        made |= {column: centred[column].min() for column in least}
        made[most] = centred[most].max()
    return centred.group_by(list(layout.keys)).aggregate(**made).select(*layout.columns)


# Groups in which runs at different frequencies agree in every digit: kept run by run.
#
# Moments do not show such runs. Cells whose ranges do not overlap cannot hold them, which leaves
# few groups to look through; of those that do hold some, the runs take the place of the cells.

# Runs kept one by one; a record so coarse that more coincide tells nothing of them.
_MOST_RUNS = 5_000_000
_MARK = "agrees__"
_RECORDED = ("time_s", "throughput_ops_s")


def with_single_runs(
    cells: pd.DataFrame, layout: Layout, runs: rf.FleetRuns, known: pd.DataFrame
) -> pd.DataFrame:
    """Replace the cells of groups whose runs agree in every digit by their single runs."""
    overlapping = _overlapping_groups(cells, layout)
    if overlapping is None:
        return cells
    kept = dict.fromkeys((*layout.finest, *ck.repeats.MEASURED))
    kept_columns = [c for c in kept if c in known and known[c].notna().any()]
    rows = runs_for(runs.table, layout, known, keep=kept_columns)
    rows = rows.filter(rows[gr.FLAGS] % 2 == 0)
    time, *rate = (rows[c] for c in _RECORDED if c in rows.columns)
    rows = rows.mutate(**{_MARK: time.coalesce(*rate)})
    groups = _rows_of_groups(rows, overlapping, runs) if len(overlapping) else rows
    found = runs.connection.to_pyarrow(_agreeing_groups(groups, layout))
    if not found.num_rows:
        return cells
    single = _rows_of_groups(rows, found.to_pandas(), runs)
    count = runs.connection.to_pyarrow(single.aggregate(n=single.count())).to_pylist()[0]["n"]
    if count > _MOST_RUNS:
        raise PpwError(
            f"{runs.name}: too many runs ({count}) are in groups in which runs at different "
            "frequencies agree in every digit: record times to more digits, or use the runs as "
            "they are with --keep-all"
        )
    alone = _runs_as_cells(runs.connection.to_pyarrow(single).to_pandas(), layout)
    return _replace_groups(cells, alone, layout)


def _overlapping_groups(cells: pd.DataFrame, layout: Layout) -> pd.DataFrame | None:
    """Keys of groups whose cells overlap in time; an empty frame for all groups, None for none."""
    usable = cells[~unusable_mask(cells)]
    groups = gr.group_runs(usable, layout.by)
    both = np.zeros(len(groups), dtype=bool)
    for column in (c for c in _RECORDED if c in layout.finest):
        least, most = (usable[of(column)].to_numpy() for of in (gr.least_column, gr.most_column))
        known = ~np.isnan(least)
        order = np.lexsort((least[known], groups.codes[known]))
        code, low, high = (values[known][order] for values in (groups.codes, least, most))
        highest = pd.Series(high).groupby(code).cummax().to_numpy()
        touching = (code[1:] == code[:-1]) & (low[1:] <= highest[:-1])
        both[code[1:][touching]] = True
    if not both.any():
        return None
    return groups.keys.iloc[:0] if both.all() else groups.keys[both]


def _rows_of_groups(rows: ir.Table, keys: pd.DataFrame, runs: rf.FleetRuns) -> ir.Table:
    """Rows of the groups with these keys; all rows where there are no key columns."""
    if not len(keys.columns):
        return rows
    wanted = rf.register_frame(runs.connection, keys)
    return rows.semi_join(wanted, [rows[c].identical_to(wanted[c]) for c in keys.columns])


def _agreeing_groups(rows: ir.Table, layout: Layout) -> ir.Table:
    """Keys of groups in which runs at two frequencies agree in time and power."""
    by = [*layout.by, _MARK, *(c for c in rows.columns if c == "power_w")]
    frequency = rows[FREQUENCY]
    sets = rows.group_by(by).aggregate(slowest=frequency.min(), fastest=frequency.max())
    sets = sets.filter(sets.fastest > (1 + SAME_STEP) * sets.slowest)
    return sets.select(*layout.by).distinct() if layout.by else sets.select(_MARK).limit(1)


def _runs_as_cells(rows: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Make a cell of each run: its values are the means, its squares 0."""
    made: dict[str, Any] = {gr.RUNS: 1, gr.SINGLE: True}
    for name, coordinates in layout.quantities.items():
        value = rows[name].to_numpy(dtype=np.float64)
        missing = np.isnan(value)
        made[gr.count_column(name)] = (~missing).astype(np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ys = {gr.VALUE: value, gr.LOG: np.log(value), gr.INVERSE: 1 / value}
        for coordinate in coordinates:
            made[gr.mean_column(name, coordinate)] = ys[coordinate]
            made[gr.squares_column(name, coordinate)] = np.where(missing, np.nan, 0.0)
    for name in layout.finest:
        made[gr.most_column(name)] = rows[gr.least_column(name)]
    kept = map(gr.finest_column, layout.finest)
    return rows.assign(**made).astype(dict.fromkeys(kept, np.float64))


def _replace_groups(cells: pd.DataFrame, alone: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Replace the usable cells of groups by their single runs."""
    together = pd.concat([cells, alone], ignore_index=True)
    of_run = together[gr.SINGLE].eq(True).to_numpy()
    groups = gr.group_runs(together, layout.by)
    kept = np.zeros(len(groups), dtype=bool)
    kept[groups.codes[of_run]] = True
    made = together[of_run | unusable_mask(together) | ~kept[groups.codes]]
    more = [c for c in ck.repeats.MEASURED if c in alone and c not in cells]
    columns = [*layout.columns, gr.SINGLE, *more]
    made = made[columns].assign(**{gr.SINGLE: of_run[made.index]})
    made = made.sort_values(list(layout.keys), kind="stable", ignore_index=True)
    made.attrs = cells.attrs
    return made


# Cells in memory, as the prepared runs that the answers of this package take.
def cells_frame(cells: pd.DataFrame, layout: Layout, source: str) -> pd.DataFrame:
    """Sort a moment table by its keys, make its counts integers, and name its source."""
    cells = cells.astype(dict.fromkeys([*layout.counts, gr.FLAGS], np.int64))
    cells = cells.sort_values(list(layout.keys), ignore_index=True)
    cells.attrs["source"] = source
    return cells


def unusable_mask(cells: pd.DataFrame) -> gr.Mask:
    """Tell which cells have the flag that their runs cannot be used."""
    return np.asarray((cells[gr.FLAGS].to_numpy() & gr.UNUSABLE) > 0)


def prepare_cells(
    cells: pd.DataFrame, layout: Layout, *, keep_all: bool, drop: bool = True
) -> tuple[prepare.PreparedRuns, int, list[eng.Fault]]:
    """Prepare cells as `ppw.runs.prepare.prepare` does runs; count unusable runs, find faults."""
    source = str(cells.attrs.get("source", "runs"))
    bad = unusable_mask(cells)
    unusable = gr.run_count(cells, bad)
    usable = cells[~bad].reset_index(drop=True)
    if usable.empty:
        raise PpwError(f"{source}: holds no run that can be used ({unusable} cannot)")
    metrics = [mt.METRICS[name] for name in layout.metrics]
    prepared = prepare.PreparedRuns(usable, gr.group_runs(usable, layout.by), metrics)
    if not keep_all:
        hopeless = prepare.without_power(usable)
        prepared = prepare.leave_out_rows(prepared, layout.by, hopeless, drop)
    usable = _with_voltage(prepared.runs.reset_index(drop=True), layout)
    faults = [*_lacking_quantities(usable, prepared.groups, layout, source)]
    return replace(prepared, runs=usable), unusable, faults


def _lacking_quantities(
    cells: pd.DataFrame, groups: gr.Groups, layout: Layout, source: str
) -> Iterator[eng.Fault]:
    """Report each metric that some, but not all, runs of a group lack, as a fault."""
    # Watts below nothing are not missing, but suspect.
    there = np.where(cells[gr.FLAGS].to_numpy() & gr.NO_WATTS, 0, cells[gr.RUNS])
    runs = np.bincount(groups.codes, there, len(groups))
    for name in layout.metrics:
        known = np.bincount(groups.codes, gr.counts(cells, name), len(groups))
        partly = np.flatnonzero((known > 0) & (known < runs))
        if partly.size:
            lacking = int((runs - known)[partly].sum())
            texts = key_texts(groups.by, groups.keys.iloc[partly[0]].to_dict())
            of = ", ".join(map("=".join, zip(groups.by, texts, strict=True))) or "all runs"
            yield eng.Fault(
                source,
                f"{name} is missing in {lacking} runs of {partly.size} groups that have others "
                f"(the first: {of}): these runs take no part",
            )


def _with_voltage(cells: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Set each cell's voltage to the mean (V) of its host and frequency; NaN where it has none."""
    if not gr.is_aggregated(cells, "voltage_v"):
        return cells
    keys = [*(c for c in ("host",) if c in layout.by), FREQUENCY]
    number = np.asarray(cells.groupby(keys, dropna=False, sort=False).ngroup(), dtype=np.int64)
    _, mean = gr.merge_means(number, gr.repeats(cells, "voltage_v"), int(number.max()) + 1)
    known = gr.counts(cells, "voltage_v") > 0
    return cells.assign(voltage_v=np.where(known, mean[number], np.nan))


# A fleet's runs read once: its cells, and by name whatever could not be used.
@dataclass(frozen=True)
class FleetCells:
    """Cells of a fleet: the moment table, its layout, and the runs that it was made of."""

    frame: pd.DataFrame
    layout: Layout
    runs: rf.FleetRuns  # the ``faults`` of these are the files that were not read
    known: pd.DataFrame  # as `ppw.fleet.run_files.filled_columns`


def read_cells(
    runs: rf.FleetRuns,
    *,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    options: FitOptions | None = None,
    checked: bool = False,
    lines_only: bool = False,
    progress: Callable[[float], None] | None = None,
) -> FleetCells:
    """Read what a question needs of a fleet, in one pass over its rows.

    With ``lines_only`` the cells have no logarithms, which only posteriors need; with ``checked``
    they are fine enough for the checks of `ppw.runs.checks` too. A file that the engine cannot
    read is looked for, left out and named; so is one whose columns cannot answer. Raises as
    `ppw.project`, and where the engine fails for a reason that is in no file.
    """
    faults = lacking_faults(runs, metric)
    # Where no file has the columns it is no change over time: the question itself is refused.
    runs = runs if len(faults) in (0, len(runs.files)) else runs.without(faults)

    def read_part(part: rf.FleetRuns) -> FleetCells:
        known = rf.filled_columns(part)
        settings = rf.setting_candidates(part) if checked else None
        how: dict[str, Any] = {"options": options, "lines_only": lines_only}
        layout = layout_of(known, by=by, metric=metric, settings=settings, **how)
        with eng.report_progress(part.connection, progress):
            table = moments(runs_for(part.table, layout, known), layout)
            arrow = part.connection.to_pyarrow(table)
        cells = cells_frame(arrow.to_pandas(), layout, part.name)
        if checked:
            cells = with_single_runs(cells, layout, part, known)
        return FleetCells(cells, layout, part, known)

    return without_broken(runs, read_part)


def without_broken(runs: rf.FleetRuns, read: Callable[[rf.FleetRuns], T]) -> T:
    """Read runs; where the engine fails, leave the files out that cause it, and read again."""
    failures = eng.engine_errors(runs.connection)
    try:
        return read(runs)
    except failures as error:
        why = eng.first_line(error)
        if type(error).__name__ == "OutOfMemoryException" or "OutOfMemoryError" in str(error):
            raise PpwError(
                f"{runs.name}: more than the engine's memory limit: raise --memory-limit, or name "
                f"a folder with room by --temporary ({why})"
            ) from error
        if not runs.files:
            raise PpwError(f"{runs.name}: the engine failed: {why}") from error
        one = [_unreadable_fault(file, error) for file in runs.files[:1]]
        faults = _find_broken(runs, runs.files, read, failures) if len(runs.files) > 1 else one
        if len(faults) == len(runs.files):
            raise eng.UnusableFilesError(runs.name, (*runs.faults, *faults)) from error
        # Without a file to blame it was a worker's failure, which a second attempt may not have.
        again = runs.without(faults) if faults else runs
    try:
        return read(again)
    except failures as error:
        why = eng.first_line(error)
        raise PpwError(f"{runs.name}: the engine failed twice: {why}") from error


def _find_broken(
    runs: rf.FleetRuns,
    files: Sequence[str],
    read: Callable[[rf.FleetRuns], object],
    failures: tuple[type[Exception], ...],
) -> list[eng.Fault]:
    """Find the files that make ``read`` fail by halving the list, as faults."""
    try:
        read(runs.only(files))
    except failures as error:
        if len(files) == 1:
            return [_unreadable_fault(files[0], error)]
        middle = len(files) // 2
        halves = (files[:middle], files[middle:])
        return [fault for half in halves for fault in _find_broken(runs, half, read, failures)]
    except PpwError:
        # Readable, though it has no answer of its own.
        return []
    return []


def _unreadable_fault(file: str, error: Exception) -> eng.Fault:
    why = eng.first_line(error)
    return eng.Fault(file, f"cannot be read: {why}: write it again, or leave it out")


def lacking_faults(runs: rf.FleetRuns, metric: str | Iterable[str] | None) -> list[eng.Fault]:
    """Report each file whose columns lack the frequency, or what any metric asked for needs."""
    metrics = list(mt.METRICS.values()) if metric is None else mt.parse_metrics(metric)
    ways = [set(columns) for m in metrics for columns in m.columns]
    faults = []
    for part in runs.parts:
        lacks = [] if FREQUENCY in part.columns else [FREQUENCY]
        if not any(way <= part.columns for way in ways):
            lacks.append(" and ".join(sorted(ways[0])))
        if lacks:
            what = f"it has no column {', no '.join(lacks)}: rename the columns, or use --map"
            faults += [eng.Fault(file, what) for file in part.files]
    return faults


def unusable_faults(runs: rf.FleetRuns, columns: Sequence[str]) -> list[eng.Fault]:
    """Count the impossible values of some columns by file, in one pass: a fault a file."""
    table = runs.table
    bad = {column: is_impossible(table, column) for column in columns}
    if FREQUENCY in table.columns:
        bad["missing"] = table[FREQUENCY].isnull()  # noqa: PD003 — no pandas
    counts = {name: rows.cast("int64").sum() for name, rows in bad.items()}
    by_file = FILE_COLUMN in table.columns and len(runs.files) > 1
    counted = (table.group_by(FILE_COLUMN) if by_file else table).aggregate(**counts)
    faults, given = [], rf.given_names(runs.files)
    for row in runs.connection.to_pyarrow(counted).to_pylist():
        file, missing = str(row.pop(FILE_COLUMN, runs.name)), row.pop("missing", 0)
        texts = [f"{column} with impossible values in {n} runs" for column, n in row.items() if n]
        if missing:
            texts.append(f"no {FREQUENCY} in {missing} runs")
        if texts:
            what = f"{', '.join(texts)}: left out; correct or drop them"
            faults.append(eng.Fault(given.get(file, file), what))
    return sorted(faults)
