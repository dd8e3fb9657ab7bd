"""`check_quality`: rows of a runs table that cannot be right, named with the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.table.checks import find_bad_values
from measurements.table.headers import list_names
from measurements.table.schema import FILE_COLUMN
from ppw.errors import PpwError, UnknownColumnError
from ppw.results.axes import Axes
from ppw.results.result import PrintedTable, Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_names
from ppw.runs import checks as ck, groups as gr, metrics as mt

if TYPE_CHECKING:
    import pandas as pd

# Columns that say where a row stands.
_PLACES = ("file", "row", "line", "position", "runs")


@dataclass(frozen=True, kw_only=True, eq=False)
class Quality(Result):
    """Rows of a runs table that cannot be right.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a suspect row and check; of a fleet, one a cell, with its ``runs``.
    counts : dict
        Suspect rows by check, for the checks that were made.
    not_made : dict
        The columns that were lacking, by check, for the others.
    rows : int
        Rows of the input.
    by : tuple of str
        Columns that tell groups apart.
    """

    kind = "quality"
    tables = (
        Table(
            "table",
            """
            freq_hz  | Hz    | at       | frequency of the row
            check    | text  | check    | short name of the check
            evidence | text  | evidence | what is wrong, with the figures
            file     | text  |          | file that the row stands in
            row      | count |          | 1 is the first below the header of the file
            line     | count |          | line of the file, the header's included
            position | count |          | place in the whole input, from 0
            runs     | count |          | runs of the cell, where the input is a fleet
            """,
            title="Suspect rows",
            key="suspects",
        ),
    )

    table: pd.DataFrame
    counts: dict[str, int] = field(metadata={"key": "checks"})
    not_made: dict[str, str]
    rows: int
    by: tuple[str, ...]

    @property
    def passed(self) -> gr.Mask:
        """Mark the rows that no check names, in the order of the input."""
        if "runs" in self.table:
            raise PpwError(
                "a fleet's flagged rows are named by cell: see the column runs of the table"
            )
        good = np.ones(self.rows, dtype=bool)
        good[self.table["position"].to_numpy(dtype=np.int64)] = False
        return good

    @property
    def suspects(self) -> int:
        """Number of rows that some check names."""
        if "runs" in self.table:
            return int(self.table.drop_duplicates("position")["runs"].sum())
        return int((~self.passed).sum())

    def verdict(self) -> str:
        """Say in a sentence how many rows cannot be right, or are not of the command alone."""
        if not self.suspects:
            return f"None of {self.rows} rows is flagged."
        noted = self.table["check"].isin([n for n, c in ck.CHECKS.items() if not c.leaves_out])
        wrong = replace(self, table=self.table[~noted]).suspects
        parts = [f"{wrong} of {self.rows} rows cannot be right"] * bool(wrong)
        if noted.any():
            parts.append(f"other work ran beside {self.counts['other_work']} of {self.rows} rows")
        return f"{'; '.join(parts).capitalize()}."

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the checks with counts, and the suspect rows with file and row number."""
        made = [[name, str(count)] for name, count in self.counts.items()]
        made += [[name, f"– (no {lacks})"] for name, lacks in self.not_made.items()]
        checks = PrintedTable("Checks", ["check", "rows"], made, 1)
        (suspects,) = super().printed_tables(most)
        if not len(self.table):
            return [checks]
        places = map(self._row_place_text, rows_of(self.table.head(len(suspects.rows))))
        return [
            checks,
            suspects._replace(
                header=[self._place, *suspects.header],
                rows=[[place, *row] for place, row in zip(places, suspects.rows, strict=True)],
                keys=len(suspects.header) + 1,
            ),
        ]

    def remedies(self) -> list[str]:
        """Say what to do about each check that names rows; [] where none does."""
        return [f"{name}: {ck.CHECKS[name].remedy}" for name, count in self.counts.items() if count]

    def text_parts(self) -> list[str]:
        """Return the verdict, the checks with what to do, and the suspect rows."""
        checks, *suspects = self.printed_tables()
        rows = [line for table in suspects for line in table.lines()]
        return [self.verdict(), *checks.lines(), *self.remedies(), *rows]

    @property
    def _place(self) -> str:
        """Name the column that says where a row stands."""
        return next(name for name in ("runs", "line", "row") if name in self.table)

    def _row_place_text(self, row: Mapping[Any, Any]) -> str:
        place = str(row[self._place])
        if self._place == "runs":
            return place
        several = len(self.table["file"].unique()) > 1 and FILE_COLUMN not in self.by
        return f"{row['file']}:{place}" if several else place

    def _document_fields(self) -> dict[str, Any]:
        """Fields of the document, and which of its columns say where a row stands."""
        return {**super()._document_fields(), "places": [c for c in self.table if c in _PLACES]}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how many rows each check names."""
        from ppw.results.axes import PROJECTED, new_axes

        axes = new_axes(ax)
        names = [name.replace("_", " ") for name in self.counts]
        axes.barh(names, list(self.counts.values()), color=PROJECTED)
        axes.invert_yaxis()
        axes.set_xlim(0, max(1, 1.06 * max(self.counts.values())))
        axes.set_xlabel(f"flagged rows, of {self.rows}")
        axes.set_ylabel("check")
        return axes


def check(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
) -> Quality:
    """Name the rows of a runs table that cannot be right, each with the evidence.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`), or a frame with columns such as ``freq_ghz``, ``time_ms``.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    metric : str or several, optional
        Make only the checks that matter for these metrics; by default all.

    Returns
    -------
    Quality

    Raises
    ------
    PpwError
        For a metric or column that is not there, or when no check has its columns.
    """
    tidy = gr.canonical(runs)
    by = None if by is None else as_names(by)
    asked = [*mt.METRICS.values()] if metric is None else mt.parse_metrics(metric)
    # A value that nobody can use is flagged: text in a number, a negative time, one that is missing
    # where other runs of the group have it. Power may be missing: a sensor's gaps are its own.
    watts = ("power_w", "energy_j")
    complete = [c for m in asked for c in mt.columns_for(m, tidy) or () if c not in watts]
    checked, bad = find_bad_values(tidy, needed=["freq_hz"], by=by, complete=complete)
    # Several values of a row that cannot be are one piece of evidence.
    named = bad["column"] + ": " + bad["value"].map(_value_text) + bad["reason"]
    texts = named.groupby((bad["row"].astype(np.int64) - 1).rename("position")).agg("; ".join)
    unusable = texts.rename("what").to_frame()
    quality = check_prepared(checked, gr.group_runs(checked, by), metric, unusable)
    warn_caveats(quality.caveats)
    return quality


def _value_text(value: object) -> str:
    missing = value is None or value != value
    return "" if missing else f"{value!r}"[:60] + " "


def check_prepared(
    checked: pd.DataFrame,
    groups: gr.Groups,
    metric: str | Iterable[str] | None,
    unusable: pd.DataFrame | None = None,
) -> Quality:
    """Check canonical runs, or their cells, as `check_quality` does, without warnings.

    ``unusable`` says by position what values of a row are (``what``); other checks leave it out.
    """
    for column in groups.by:
        # A key of one of these names would be overwritten by the answer.
        if column in ("freq_hz", "check", "evidence", "file", "row", "position"):
            raise UnknownColumnError(
                f"cannot group by {column!r}: ppw's results have a column of that name; rename "
                "the column in your table"
            )
    metrics = [*mt.METRICS.values()] if metric is None else mt.parse_metrics(metric)
    bad = np.array([] if unusable is None else unusable.index, dtype=np.int64)
    usable = np.delete(np.arange(len(checked)), bad)
    parts = replace(groups, codes=groups.codes[usable])
    flagged = ck.find_flagged_rows(checked.take(usable), parts, metrics, every=True)
    for found in flagged.values():
        found.index = usable[found.index]
    if not flagged and not len(bad):
        raise UnknownColumnError(
            f"{checked.attrs.get('source', 'runs')}: nothing to check: no time_s, "
            "throughput_ops_s, power_w, energy_j or freq_achieved_hz among the columns "
            f"{list_names(list(checked.columns))}: rename a column, or use --map time_s=COLUMN"
        )
    names = {metric.name for metric in metrics}
    others = {n: c for n, c in ck.CHECKS.items() if c.spoils & names and n not in flagged}
    idle = "power_at_or_below_idle" in flagged
    each = gr.run_counts(checked)
    if unusable is not None and len(bad):
        flagged = {ck.UNUSABLE: unusable, **flagged}
    return Quality(
        table=ck.evidence_table(flagged, checked, groups),
        counts={name: int(each[found.index].sum()) for name, found in flagged.items()},
        not_made={name: check.lacks(checked) for name, check in others.items()},
        rows=gr.run_count(checked),
        by=tuple(groups.by),
        caveats=tuple(ck.scope_caveats(checked) if idle else ()),
        input_digest=frame_digest(checked),
    )
