"""Layouts of moments that grow: yesterday's runs had fewer columns than today's, or others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppw.checks.check import FLAGS
from ppw.condensed import INVERSE, LOG, RUNS, VALUE, count_column, tally_column
from ppw.errors import PpwError
from ppw.fleet.canonical import is_number
from ppw.fleet.layout import FREQUENCY
from ppw.metrics import METRICS, PERFORMANCE, columns_for

if TYPE_CHECKING:
    import ibis
    import pandas as pd

    from ppw.fleet.layout import Layout


def with_factors(layout: Layout, known: pd.DataFrame) -> Layout:
    """Layout that keeps what a metric of other files may be a product of: work per second.

    Parameters
    ----------
    layout : Layout
    known : pandas.DataFrame
        As for `ppw.fleet.layout.layout_of`.
    """
    name = PERFORMANCE.name
    if name in layout.quantities or not columns_for(PERFORMANCE, known):
        return layout
    quantities = {**layout.quantities, name: (VALUE, LOG, INVERSE)}
    return replace(layout, quantities=dict(sorted(quantities.items())))


def joint(before: Layout, new: Layout) -> Layout:
    """Layout that holds the moments of both.

    Raises
    ------
    PpwError
        Where a quantity was condensed in other co-ordinates.
    """
    differ = [
        name
        for name in before.quantities.keys() & new.quantities.keys()
        if set(before.quantities[name]) != set(new.quantities[name])
    ]
    if differ:
        raise PpwError(
            f"the state keeps {', '.join(differ)} in other co-ordinates than the new runs need: "
            "make it again from its runs"
        )
    keys = dict.fromkeys((*before.by, *before.shades, *new.by, *new.shades))
    shades = [name for name in keys if name not in before.by and name not in (FREQUENCY, FLAGS)]
    metrics = {*before.metrics, *new.metrics}
    return replace(
        before,
        shades=(*shades, FLAGS),
        metrics=tuple(name for name in METRICS if name in metrics),
        quantities=dict(sorted({**before.quantities, **new.quantities}.items())),
        tallies=tuple(sorted({*before.tallies, *new.tallies})),
        finest=tuple(dict.fromkeys((*before.finest, *new.finest))),
        settings=tuple(dict.fromkeys((*before.settings, *new.settings))),
    )


def widened(table: ibis.Table, own: Layout, wanted: Layout) -> ibis.Table:
    """Add the columns that a moment table lacks: nothing was counted, and nothing is known.

    Counts become int64; sums of them are of wider types in some engines, which Parquet has not.
    """
    counts = {RUNS, *map(count_column, wanted.quantities), *map(tally_column, wanted.tallies)}
    columns = {
        name: table[name] if name in own.columns else _nothing(name, counts, wanted)
        for name in wanted.columns
    }
    whole = {name: columns[name].cast("int64") for name in columns if name in counts}
    return table.select(**(columns | whole))


def _nothing(name: str, counts: set[str], wanted: Layout) -> Any:
    import ibis

    if name in counts:
        return ibis.literal(0, "int64")
    text = name in wanted.keys and not is_number(name)
    return ibis.null("string" if text else "float64")
