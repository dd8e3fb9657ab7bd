"""`pair_workloads`: which of a set of recorded workloads can share a host, two by two."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppw.errors import CaveatWarning
from ppw.pressure.capacity import capacity_of
from ppw.pressure.co_locate import co_locate, recordings_digest
from ppw.pressure.demand import BREAKS, FITS, TIGHT, amount_in, check_workloads
from ppw.results import caveats as cv
from ppw.results.axes import new_axes
from ppw.results.result import PrintedTable, Result, Table, rows_of, value_text
from ppw.results.text import plot_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from measurements.timeseries.series import TimeSeries
    from ppw.pressure.co_locate import CoLocation


_ORDER = {FITS: 0, TIGHT: 1, BREAKS: 2, "": 3}
_OF_FIRST = (
    *("value", "unit", "capacity", "share", "threshold", "over", "breaks_at", "column"),
    "confidence",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairing(Result):
    """Pairs of workloads, the best first.

    Attributes
    ----------
    pairs : pandas.DataFrame
        One row per pair, with the resource that breaks first or is nearest to it.
    workloads : tuple of str
    """

    kind = "pairing"
    tables = (
        Table(
            "pairs",
            """
            workload     | text  | workload   | one of the pair
            with         | text  | with       | the other one
            finding      | text  | finding    | "breaks", "tight", "fits"; "" where none is judged
            first        | text  | first      | resource that breaks first or is nearest to it
            column       | text  | column     | columns of the log for it
            value        | unit  | value      | sum of its demands, as for `co_locate`
            unit         | text  |            | unit of the amounts
            capacity     | unit  | capacity   | its capacity
            share        | share | share      | `value` as a share of the capacity
            threshold    | share | threshold  | share of the capacity that may be used
            over         | share | time over  | share of the time above the threshold
            breaks_at    | 1     |            | times this load that it takes, NaN where unused
            confidence   | share | confidence | share of resampled recordings with the same finding
            not_measured | text  | not judged | resources that were not judged
            """,
            title="Pairs, best first",
            most=500,
            show={name: partial(amount_in, name) for name in ("value", "capacity")},
        ),
    )

    pairs: pd.DataFrame
    workloads: tuple[str, ...]

    def verdict(self) -> list[str]:
        """Say which pair is the best and which cannot be."""
        rows = rows_of(self.pairs)
        best = rows[0]
        said = [
            f"{best['workload']} and {best['with']} go together best: {_why(best)}"
            if best["finding"] in (FITS, TIGHT)
            else "no two of these workloads can share this host"
        ]
        broken = [
            f"{row['workload']} + {row['with']} ({row['first']})"
            for row in rows
            if row["finding"] == BREAKS
        ]
        return [*said, f"not together: {', '.join(broken)}"] if broken else said

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return each workload against each other, then the pairs."""
        note = "What breaks first and its share of the capacity; ! above what may be used."
        matrix = PrintedTable("Matrix", ["", *self.workloads], self.matrix(), 1, note)
        return [matrix, *super().printed_tables(most)]

    def matrix(self) -> list[list[str]]:
        """Share of what breaks first, each workload against each other, as printed."""
        cells = {}
        for row in rows_of(self.pairs):
            mark = "!" if row["finding"] == BREAKS else ""
            said = f"{row['first']} {value_text(row['share'], 'share')}{mark}"
            cells[row["workload"], row["with"]] = cells[row["with"], row["workload"]] = said
        return [[a, *(cells.get((a, b), "·") for b in self.workloads)] for a in self.workloads]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the matrix: the darker, the fuller."""
        axes = new_axes(ax)
        names = list(self.workloads)
        used = np.full((len(names), len(names)), np.nan)
        for row in rows_of(self.pairs):
            a, b = names.index(row["workload"]), names.index(row["with"])
            used[a, b] = used[b, a] = 100 * row["share"] / row["threshold"]
        axes.imshow(used, cmap="Blues", vmin=0, vmax=150)
        for (a, b), value in np.ndenumerate(used):
            if np.isfinite(value):
                colour = "white" if value > 90 else "black"
                axes.text(b, a, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
        labels = list(map(plot_label, names))
        axes.set_xticks(range(len(names)), labels, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), labels)
        axes.set_ylabel("workload")
        return axes


def _why(row: Mapping[str, Any]) -> str:
    return (
        f"{row['first']} is the fullest, {amount_in('value', row)} of "
        f"{amount_in('capacity', row)} ({value_text(row['share'], 'share')})"
    )


def pair_workloads(recordings: Mapping[str, TimeSeries], **options: Any) -> Pairing:
    """Compare every two of a set of workloads with a host.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries
    **options
        As for `co_locate`; ``latency_critical`` names count in the pairs that they are in.

    Returns
    -------
    Pairing
        Pairs of workloads, the best first.

    Raises
    ------
    PpwError
        As for `co_locate`.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    critical = options.pop("latency_critical", ())
    check_workloads(recordings, critical, "make pairs")
    if options.get("capacity") is None and options.get("host") is None:
        # One host for all pairs: that of the first recording.
        options["capacity"] = capacity_of(next(iter(recordings.values())))
    rows, caveats = [], list[str]()
    for pair in combinations(recordings, 2):
        both = {name: recordings[name] for name in pair}
        own = [name for name in critical if name in pair]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaveatWarning)
            found = co_locate(both, latency_critical=own, **options)
        rows.append(_row(*pair, found))
        caveats += found.caveats
    table = pd.DataFrame(rows)
    table = table.assign(order=table["finding"].map(_ORDER)).sort_values(
        ["order", "breaks_at", "workload", "with"], ascending=[True, False, True, True]
    )
    said = list(dict.fromkeys(caveats))
    cv.warn(said)
    return Pairing(
        pairs=table.drop(columns="order").reset_index(drop=True),
        workloads=tuple(recordings),
        caveats=tuple(said),
        input_digest=recordings_digest(recordings),
    )


def _row(one: str, other: str, found: CoLocation) -> dict[str, Any]:
    resources = found.resources.set_index("resource")
    of: Mapping[Any, Any] = dict.fromkeys(_OF_FIRST, np.nan)
    of = {**of, "finding": "", "unit": "", "column": ""}
    if found.first:
        of = resources.loc[found.first].to_dict()
    unjudged = resources.index[resources["threshold"].isna()]
    return {
        "workload": one,
        "with": other,
        "finding": of["finding"],
        "first": found.first,
        **{name: of[name] for name in _OF_FIRST},
        "not_measured": ", ".join(unjudged),
    }
