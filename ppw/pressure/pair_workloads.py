"""`pair_workloads`: which of a set of recorded workloads can share a host, two by two."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ppw.errors import CaveatWarning, PpwError
from ppw.pressure.co_locate import co_locate
from ppw.pressure.demand import BREAKS, FITS, TIGHT, amount, as_recordings, as_series, percent
from ppw.results import caveats as cv
from ppw.results.axes import new_axes
from ppw.results.result import TabledResult, frame_digest, numbers_digest, rows_of
from ppw.results.text import plot_label, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from measurements.timeseries.series import TimeSeries
    from ppw.pressure.co_locate import CoLocation


_OF_FIRST = ("value", "unit", "capacity", "share", "threshold", "over", "breaks_at", "column")
PAIR_COLUMNS = (
    *("workload", "with", "finding", "first", *_OF_FIRST, "confidence", "not_measured"),
)
_ORDER = {FITS: 0, TIGHT: 1, BREAKS: 2, "": 3}


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairing(TabledResult):
    """Pairs of workloads, the best first.

    Attributes
    ----------
    pairs : pandas.DataFrame
        One row a pair: ``workload``, ``with``; ``first``, the resource that breaks first or is
        nearest to it; the columns of `CoLocation.resources` for that; ``finding`` ("breaks",
        "tight" or "fits" by it; "" where nothing could be judged); ``not_measured``, the resources
        that were not judged.
    workloads : tuple of str
    caveats : tuple of str
    """

    kind: ClassVar[str] = "pairing"

    pairs: pd.DataFrame
    workloads: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row a pair."""
        return self.pairs

    def verdict(self) -> list[str]:
        """Say which pair is the best and which cannot be."""
        rows = rows_of(self.pairs)
        best = rows[0]
        said = [
            f"{best['workload']} and {best['with']} go together best: {_why(best)}"
            if best["finding"] in (FITS, TIGHT)
            else "no two of these workloads can share this host"
        ]
        broken = [f"{r['workload']} + {r['with']} ({r['first']})" for r in rows if _breaks(r)]
        return [*said, f"not together: {', '.join(broken)}"] if broken else said

    def summary(self) -> str:
        """Text: the sentences, the matrix, the evidence and the caveats."""
        lines = [
            *self.verdict(),
            text_table(self.matrix_header(), self.matrix()),
            text_table(self.header(), self.cells()),
        ]
        return summary_text(lines, self.caveats)

    def matrix_header(self) -> list[str]:
        """Name the columns of `matrix`."""
        return ["", *self.workloads]

    def matrix(self) -> list[list[str]]:
        """Share of what breaks first, each workload against each other, as printed."""
        cells = {}
        for row in rows_of(self.pairs):
            said = f"{row['first']} {percent(row['share'])}{'!' if _breaks(row) else ''}"
            cells[row["workload"], row["with"]] = cells[row["with"], row["workload"]] = said
        return [[a, *(cells.get((a, b), "·") for b in self.workloads)] for a in self.workloads]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [
            *("workload", "with", "finding", "first", "column", "value", "capacity", "share"),
            *("threshold", "time over", "confidence", "not judged"),
        ]

    def cells(self) -> list[list[str]]:
        """The pairs as they are printed."""
        return [
            [
                row["workload"],
                row["with"],
                row["finding"] or "–",
                row["first"] or "–",
                row["column"] or "–",
                amount(row["value"], row["unit"]),
                amount(row["capacity"], row["unit"]),
                percent(row["share"]),
                percent(row["threshold"]),
                percent(row["over"]),
                percent(row["confidence"]),
                row["not_measured"] or "–",
            ]
            for row in rows_of(self.pairs)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the matrix: the darker, the fuller."""
        return plot_pairing(self, ax)


def pair_workloads(recordings: Mapping[str, TimeSeries], **options: Any) -> Pairing:
    """Hold every two of a set of workloads against a host.

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
    if len(as_recordings(recordings)) < 2:
        raise PpwError(f"{len(recordings)} workload was given: two or more make pairs")
    critical = options.pop("latency_critical", ())
    # A name that is none is an error, not a workload that no pair has.
    unknown = [name for name in critical if name not in recordings]
    if unknown:
        raise PpwError(f"no workload is called {unknown[0]!r}: one of {', '.join(recordings)}")
    if options.get("capacity") is None and options.get("host") is None:
        options["capacity"] = _first_capacity(recordings)
    rows, caveats = [], list[str]()
    for pair in combinations(recordings, 2):
        both = {name: recordings[name] for name in pair}
        own = [name for name in critical if name in pair]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaveatWarning)
            found = co_locate(both, latency_critical=own, **options)
        rows.append(_row(pair, found))
        caveats += found.caveats
    table = pd.DataFrame(rows, columns=list(PAIR_COLUMNS))
    order = table["finding"].map(_ORDER)
    table = table.assign(order=order).sort_values(
        ["order", "breaks_at", "workload", "with"], ascending=[True, False, True, True]
    )
    said = list(dict.fromkeys(caveats))
    cv.warn(said)
    return Pairing(
        pairs=table.drop(columns="order").reset_index(drop=True),
        workloads=tuple(recordings),
        caveats=tuple(said),
        input_digest=numbers_digest(
            *[frame_digest(series.frame) for series in recordings.values()]
        ),
    )


def _first_capacity(recordings: Mapping[str, TimeSeries]) -> Any:
    """One host for all pairs: that of the first recording."""
    from ppw.pressure.capacity import capacity_of

    name, first = next(iter(recordings.items()))
    return capacity_of(as_series(first, name))


def _row(pair: tuple[str, ...], found: CoLocation) -> dict[str, Any]:
    names = dict(zip(("workload", "with"), pair, strict=True))
    unjudged = [r["resource"] for r in rows_of(found.resources) if np.isnan(r["threshold"])]
    blank = {"finding": "", "first": "", "unit": "", "column": "", "confidence": np.nan}
    row = {**dict.fromkeys(_OF_FIRST, np.nan), **blank}
    if found.first:
        of = found.resources.set_index("resource").loc[found.first]
        row |= {name: of[name] for name in (*_OF_FIRST, "finding", "confidence")}
        row["first"] = found.first
    return {**names, **row, "not_measured": ", ".join(unjudged)}


def _breaks(row: dict[str, Any]) -> bool:
    return bool(row["finding"] == BREAKS)


def _why(row: dict[str, Any]) -> str:
    return (
        f"{row['first']} is the fullest, {amount(row['value'], row['unit'])} of "
        f"{amount(row['capacity'], row['unit'])} ({percent(row['share'])})"
    )


def plot_pairing(result: Pairing, ax: Axes | None = None) -> Axes:
    """Draw the matrix: the darker, the fuller."""
    axes = new_axes(ax)
    names = list(result.workloads)
    held = np.full((len(names), len(names)), np.nan)
    for row in rows_of(result.pairs):
        a, b = names.index(row["workload"]), names.index(row["with"])
        held[a, b] = held[b, a] = 100 * row["share"] / row["threshold"]
    axes.imshow(held, cmap="Blues", vmin=0, vmax=150)
    for (a, b), value in np.ndenumerate(held):
        if np.isfinite(value):
            colour = "white" if value > 90 else "black"
            axes.text(b, a, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
    labels = list(map(plot_label, names))
    axes.set_xticks(range(len(names)), labels, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylabel("workload")
    return axes
