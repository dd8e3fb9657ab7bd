"""Runs of an engine's table to moments, and moments to moments: one expression each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from measurements.table.checks import refuse_absent, value_rules
from measurements.table.schema import IDENTITY, is_number
from ppw.errors import PpwError
from ppw.fleet.run_files import register_table
from ppw.projection.answers import WITH_OTHER_FORM
from ppw.results.arguments import as_names
from ppw.runs import groups as gr
from ppw.runs import metrics as mt
from ppw.runs.caveats import PROPERTIES
from ppw.runs.checks import FLAGS, OF_WATTS, UNUSABLE, digit_step
from ppw.runs.checks.readings import CONTRADICTIONS
from ppw.runs.checks.repeats import MEASURED
from ppw.runs.expressions import any_of
from ppw.runs.prepare import FULL_LOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import ibis.expr.types as ir

    from ppw.fleet.run_files import FleetRuns
    from ppw.projection.options import FitOptions


# What a moment table holds: its keys, quantities and counts.


FREQUENCY = "freq_hz"
_COORDINATES = (gr.VALUE, gr.LOG, gr.INVERSE)
# Columns that split a cell because a caveat, a check or a noise level asks for them.
_SHADES = ("power_source", "power_label", "simulator", "load")
# Sources of watts say simulators too, whose times are exact: they stay.
_OF_WATTS = ("power_label",)
_JUDGED_BY_DIGITS = ("time_s", "throughput_ops_s", "power_w")
# What the evidence of a check quotes.
_FIGURES = ("energy_j", "idle_power_w", "freq_achieved_hz")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns of a moment table (see `ppw.runs.groups`)."""

    # Columns that tell groups apart, and further key columns, which split cells but no groups.
    by: tuple[str, ...]
    shades: tuple[str, ...]
    # Names of the metrics asked for.
    metrics: tuple[str, ...]
    # By quantity its co-ordinates: the value, its logarithm, its inverse.
    quantities: Mapping[str, tuple[str, ...]]
    # Properties whose runs are counted.
    tallies: tuple[str, ...] = ()
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

    def to_dict(self) -> dict[str, Any]:
        """Layout as JSON knows it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Layout:
        """Read `to_dict` back; a damaged document raises one of `DAMAGE`."""
        optional: dict[str, Any] = {"finest": (), "settings": ()}
        parts = {name: (optional | {**document})[name] for name in cls.__dataclass_fields__}
        quantities = {name: names_of(c) for name, c in parts.pop("quantities").items()}
        return cls(quantities=quantities, **{name: names_of(v) for name, v in parts.items()})


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
        As `ppw.fleet.run_files.filled_columns` finds it.
    by, metric
        As for `ppw.project_runs`, which raises the same errors.
    options : FitOptions, optional
        How curves are fitted; without, all co-ordinates are kept, so that any may be.
    settings : sequence of str, optional
        Columns with few values that may tell settings apart: keep what `ppw.runs.quality` needs
        too.
    lines_only : bool
        Keep what least-squares curves need, and no posterior.
    """
    metrics = mt.answerable(known) if metric is None else mt.parse_metrics(metric)
    needed = mt.needed_columns(metrics, known)
    refuse_absent(known, needed, str(known.attrs.get("source", "runs")))
    groups = gr.group_runs(known, None if by is None else as_names(by))
    present = [c for c in known.columns if known[c].notna().any()]
    watts = bool(OF_WATTS & {m.name for m in metrics})
    shades = [c for c in _SHADES if c in present and (watts or c not in _OF_WATTS)]
    split = dict.fromkeys((*(c for c in IDENTITY if c in present), *shades, *(settings or ())))
    quantities = _quantities(metrics, options, lines_only=lines_only)
    if "voltage_v" in present:
        quantities["voltage_v"] = (gr.VALUE,)
    finest = [c for c in _JUDGED_BY_DIGITS if c in present and settings is not None]
    if settings is not None:
        quantities |= dict.fromkeys(finest, _COORDINATES)
        quantities |= {c: (gr.VALUE,) for c in _FIGURES if c in present}
    tallies = [name for name, (needs, _) in PROPERTIES.items() if needs <= {*present, FREQUENCY}]
    return Layout(
        by=tuple(groups.by),
        shades=(*(c for c in split if c not in groups.by), FLAGS),
        metrics=tuple(m.name for m in metrics),
        quantities=dict(sorted(quantities.items())),
        tallies=tuple(name for name in tallies if watts or name != "energy_off"),
        finest=tuple(finest),
        settings=tuple(settings or ()),
    )


def _quantities(
    metrics: Sequence[mt.Metric], options: FitOptions | None, *, lines_only: bool
) -> dict[str, tuple[str, ...]]:
    """Quantities that metrics are fitted from, and the co-ordinates of each."""
    found: dict[str, set[str]] = {m.name: {gr.VALUE} for m in metrics}
    for metric in metrics:
        every = (metric.name, *(metric.factors or ()))
        for name in every if options is None else options.fit_powers(metric):
            coordinates = _coordinates(metric, name, options, lines_only)
            found.setdefault(name, {gr.VALUE}).update(coordinates)
    return {name: tuple(c for c in _COORDINATES if c in of) for name, of in found.items()}


def _coordinates(
    metric: mt.Metric, name: str, options: FitOptions | None, lines_only: bool
) -> set[str]:
    if options is None:
        return {gr.LOG, gr.INVERSE}
    # The other form, which is shown beside a curve that gains more than the clock, is in one too.
    inverse = options.model(name).reciprocal or (name in WITH_OTHER_FORM and not lines_only)
    log = options.has_posterior(options.fit_powers(metric)) and not lines_only
    return ({gr.INVERSE} if inverse else set()) | ({gr.LOG} if log else set())


def metric_of(quantity: str) -> mt.Metric | None:
    """Metric that a quantity is; None for a column of the runs."""
    return (mt.METRICS | {mt.PERFORMANCE.name: mt.PERFORMANCE}).get(quantity)


def runs_for(
    table: ir.Table, layout: Layout, known: pd.DataFrame, *, keep: Sequence[str] = ()
) -> ir.Table:
    """Keys, flags and quantities of each run: what `moments` condenses; ``keep`` as they are."""
    table = table.mutate(**{FLAGS: _flags(table, layout, known)})
    table = _with_decades(table, layout.finest)
    columns: dict[str, Any] = {name: table[name] for name in keep}
    columns |= {name: _key(table, name, layout.settings) for name in layout.keys}
    columns |= {name: _quantity(table, name, known) for name in layout.quantities}
    for name in layout.tallies:
        found = PROPERTIES[name][1](table)
        columns[gr.tally_column(name)] = found.fill_null(False).cast("int64")
    for name in layout.finest:
        mantissa, decade = table[f"{name}__mantissa"], table[f"{name}__decade"]
        columns[gr.finest_column(name)] = digit_step(mantissa, decade)
        columns[gr.least_column(name)] = table[name]
    return table.select(**columns)


def _with_decades(table: ir.Table, columns: Sequence[str]) -> ir.Table:
    """Add what `digit_step` takes of each column: its power of ten, and the value over that."""
    sizes = {name: table[name].abs() for name in columns}
    # 0 has no digits, nor has what could not be read.
    sizes = {n: ((s > 0) & (s < float("inf"))).ifelse(s, None) for n, s in sizes.items()}
    table = table.mutate(**{f"{name}__decade": s.log10().floor() for name, s in sizes.items()})
    return table.mutate(
        **{f"{name}__mantissa": s / 10.0 ** table[f"{name}__decade"] for name, s in sizes.items()}
    )


def columns_read(layout: Layout, known: pd.DataFrame) -> list[str]:
    """List the canonical columns of numbers that a layout needs."""
    names: dict[str, None] = dict.fromkeys(c for c in layout.keys if c in known.columns)
    for name in layout.quantities:
        metric = metric_of(name)
        names |= dict.fromkeys([name] if metric is None else mt.source_columns(metric, known))
    for name in layout.tallies:
        names |= dict.fromkeys(sorted(PROPERTIES[name][0]))
    return [name for name in names if is_number(name)]


def is_impossible(table: ir.Table, column: str) -> ir.BooleanValue:
    """Tell where a value is none that a runs table may have; NULL where it is missing."""
    # In an engine NaN is above every number, and so is refused with infinity.
    return any_of(rule.broken(table[column]) for rule in value_rules(column))


def _flags(table: ir.Table, layout: Layout, known: pd.DataFrame) -> ir.IntegerValue:
    """What is wrong with each run by itself, as bits."""
    columns = columns_read(layout, known)
    bad = {c: is_impossible(table, c) for c in columns}
    if layout.finest and "power_w" in columns:
        # Watts of zero or less are no error of the checks, which name them.
        hopeless = (table.power_w <= 0).fill_null(False)
        bad |= {c: bad[c] & ~hopeless for c in ("power_w", "energy_j") if c in bad}
    unusable = any_of([table[FREQUENCY].isnull(), *bad.values()])  # noqa: PD003 — no pandas
    flags = unusable.fill_null(False).ifelse(UNUSABLE, 0)
    readings = {c: table[c] for c in table.columns} if layout.finest else {}
    for bit, (needs, contradict) in CONTRADICTIONS.items():
        if needs <= readings.keys():
            flags = flags + contradict(readings).fill_null(False).ifelse(bit, 0)
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
    made: dict[str, Any] = {gr.count_column(name): value.count()}
    # Columns of the runs may hold what has no logarithm, such as watts below nothing.
    above = value if metric_of(name) else (value > 0).ifelse(value, None)
    for coordinate in coordinates:
        y = {gr.VALUE: value, gr.LOG: above.ln(), gr.INVERSE: 1 / above}[coordinate]
        made[gr.mean_column(name, coordinate)] = y.mean()
        made[gr.squares_column(name, coordinate)] = y.var(how="pop") * value.count()
    return made


def merge(tables: Sequence[ir.Table], layout: Layout) -> ir.Table:
    """Moments of all runs from the moments of parts, which may share cells.

    N = Σn, mean = Σ(n·meanᵢ)/N, m2 = Σ(m2ᵢ + n·(meanᵢ − mean)²): the formulas of Chan, Golub and
    LeVeque for any number of parts at once; no difference of large sums is taken.
    """
    import ibis

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
        apart = centred[gr.mean_column(name, c)] - centre
        squares = (
            centred[gr.squares_column(name, c)] + centred[gr.count_column(name)] * apart * apart
        )
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
    cells: pd.DataFrame, layout: Layout, runs: FleetRuns, known: pd.DataFrame
) -> pd.DataFrame:
    """Cells, those of groups with runs that agree in every digit replaced by their single runs.

    Raises `PpwError` when more runs agree than can be looked at.
    """
    overlapping = _overlapping(cells, layout)
    if overlapping is None:
        return cells
    kept = dict.fromkeys((*layout.finest, *MEASURED))
    kept_columns = [c for c in kept if c in known and known[c].notna().any()]
    rows = runs_for(runs.table, layout, known, keep=kept_columns)
    rows = rows.filter(rows[FLAGS] % 2 == 0)
    time, *rate = (rows[c] for c in _RECORDED if c in rows.columns)
    rows = rows.mutate(**{_MARK: time.coalesce(*rate)})
    groups = _of_groups(rows, overlapping, runs) if len(overlapping) else rows
    found = runs.connection.to_pyarrow(_agreeing(groups, layout))
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
    return _replace_groups(cells, alone, layout)


def _overlapping(cells: pd.DataFrame, layout: Layout) -> pd.DataFrame | None:
    """Keys of the groups whose cells overlap in time; all of them is an empty frame, none None."""
    usable = cells[(cells[FLAGS].to_numpy() & UNUSABLE) == 0]
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


def _of_groups(rows: ir.Table, keys: pd.DataFrame, runs: FleetRuns) -> ir.Table:
    """Rows of the groups with these keys."""
    import pyarrow as pa

    if not len(keys.columns):
        return rows
    wanted = register_table(runs.connection, pa.Table.from_pandas(keys, preserve_index=False))
    return rows.semi_join(wanted, [rows[c].identical_to(wanted[c]) for c in keys.columns])


def _agreeing(rows: ir.Table, layout: Layout) -> ir.Table:
    """Keys of the groups in which runs of two frequencies agree in time and watts."""
    by = [*layout.by, _MARK, *(c for c in rows.columns if c == "power_w")]
    frequency = rows[FREQUENCY]
    sets = rows.group_by(by).aggregate(slowest=frequency.min(), fastest=frequency.max())
    sets = sets.filter(sets.fastest > (1 + SAME_STEP) * sets.slowest)
    return sets.select(*layout.by).distinct() if layout.by else sets.select(_MARK).limit(1)


def _as_cells(rows: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """One cell a run."""
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
    """Put single runs in the place of the cells of their groups."""
    together = pd.concat([cells, alone], ignore_index=True)
    of_run = together[gr.SINGLE].eq(True).to_numpy()
    groups = gr.group_runs(together, layout.by)
    kept = np.zeros(len(groups), dtype=bool)
    kept[groups.codes[of_run]] = True
    bad = (together[FLAGS].to_numpy() & UNUSABLE) > 0
    made = together[of_run | bad | ~kept[groups.codes]]
    columns = [*layout.columns, gr.SINGLE, *(c for c in MEASURED if c in alone and c not in cells)]
    made = made[columns].assign(**{gr.SINGLE: of_run[made.index]})
    made = made.sort_values(list(layout.keys), kind="stable", ignore_index=True)
    made.attrs = cells.attrs
    return made
