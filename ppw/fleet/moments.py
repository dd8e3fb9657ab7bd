"""Runs of an engine's table to moments, and moments to moments: one expression each."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from measurements.quantities import HIGHEST_FREQUENCY_HZ, LOWEST_FREQUENCY_HZ
from measurements.schema import COLUMNS, HIGHEST_SHARE
from ppw.checks.check import FLAGS, UNUSABLE
from ppw.condensed import (
    LOG,
    RUNS,
    VALUE,
    count_column,
    finest_column,
    least_column,
    mean_column,
    most_column,
    squares_column,
    tally_column,
)
from ppw.fleet.canonical import is_number
from ppw.fleet.checks import recorded_step, with_decades, wrong_alone
from ppw.fleet.layout import FREQUENCY, metric_of
from ppw.full_load import FULL_LOAD
from ppw.metrics import quantity, source_columns
from ppw.table_caveats import achieved_off, energy_off

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ibis.expr.types as ir
    import pandas as pd

    from ppw.fleet.layout import Layout

_INFINITE = float("inf")
_TALLIES = {"energy_off": energy_off, "achieved_off": achieved_off}


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
    told = {
        tally_column(name): _count(_TALLIES[name]({c: table[c] for c in table.columns}))
        for name in layout.tallies
    }
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
    if "energy_off" in layout.tallies:
        names |= dict.fromkeys(("energy_j", "power_w", "time_s"))
    if "achieved_off" in layout.tallies:
        names["freq_achieved_hz"] = None
    return [name for name in names if is_number(name)]


def rule(table: ir.Table, column: str) -> ir.BooleanValue:
    """Tell where a value is none that a runs table may have; NULL where it is missing."""
    value, kind = table[column], COLUMNS[column].kind
    if column in (FREQUENCY, "freq_achieved_hz"):
        return ~value.between(LOWEST_FREQUENCY_HZ, HIGHEST_FREQUENCY_HZ)
    if kind in ("positive", "net"):
        above = value > 0
    else:
        above = value >= 0 if kind in ("non-negative", "count", "share") else value > -_INFINITE
    if kind == "share":
        return ~(above & (value <= HIGHEST_SHARE))
    # NaN is above every number here, and so is refused with infinity.
    return ~(above & (value < _INFINITE))


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
    unusable = reduce(lambda a, b: a | b, bad, table[FREQUENCY].isnull())  # noqa: PD003 — no pandas
    flags = unusable.fill_null(False).ifelse(UNUSABLE, 0)
    if layout.finest:
        for bit, wrong in wrong_alone({c: table[c] for c in table.columns}).items():
            flags = flags + wrong.fill_null(False).ifelse(bit, 0)
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
    value = quantity(metric, columns, lambda rate, other: rate.coalesce(other))
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
    for name, coordinate in _coordinates(layout):
        count, mean = together[count_column(name)], together[mean_column(name, coordinate)]
        total = (count * mean).sum().over(window) / count.sum().over(window).nullif(0)
        centres[f"centre__{name}__{coordinate}"] = total
    centred = together.mutate(**centres)
    made: dict[str, Any] = {RUNS: centred[RUNS].sum()}
    for name in layout.quantities:
        made[count_column(name)] = centred[count_column(name)].sum()
    for name, coordinate in _coordinates(layout):
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


def _coordinates(layout: Layout) -> list[tuple[str, str]]:
    return [(name, c) for name, coordinates in layout.quantities.items() for c in coordinates]
