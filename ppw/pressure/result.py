"""The pressure matrix as a result: text, tables, JSON, plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ppw.estimate import shown
from ppw.pressure.levels import NO_CAPACITY, NOT_MEASURED
from ppw.pressure.measures import RESOURCE_WORDS, RESOURCES
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

WHOLE = "all"


@dataclass(frozen=True, kw_only=True, eq=False)
class PressureMatrix(TabledResult):
    """Applications by resources, with the evidence behind each cell.

    Attributes
    ----------
    cells : pandas.DataFrame
        One row an application, phase and resource: ``application``, ``phase`` ("all" or "phase 1"
        and so on), ``resource``, ``level`` ("low", "medium", "high", "no capacity" where demand is
        known and what it is a share of is not, "not measured") and ``because``, the measures that
        say so.
    runs : pandas.DataFrame
        One row an application and phase: ``start_s`` and ``end_s`` from the recording's start,
        ``intervals``, ``activity`` of the CPUs ("working", "waiting" for I/O, "idle"), shares of
        CPU time, ``context_switches_s``, ``cpu_cores`` busy and ``loopback_bytes_s``.
    evidence : pandas.DataFrame
        One row a measure: fields of `ppw.pressure.levels.Evidence`.
    thresholds : pandas.DataFrame
        ``measure``, ``medium``, ``high``, ``unit``, ``meaning``.
    thresholds_source : str
        "default", or the file that replaced some.
    caveats : tuple of str
    """

    kind: ClassVar[str] = "pressure_matrix"

    cells: pd.DataFrame
    runs: pd.DataFrame
    evidence: pd.DataFrame
    thresholds: pd.DataFrame
    thresholds_source: str

    def level(self, application: str, resource: str, phase: str = WHOLE) -> str:
        """Level of one cell; "" where there is no such cell."""
        cells = self.cells
        row = cells[
            (cells["application"] == application)
            & (cells["resource"] == resource)
            & (cells["phase"] == phase)
        ]
        return "" if row.empty else str(row["level"].iloc[0])

    def to_frame(self) -> pd.DataFrame:
        """One row an application and phase, with the level of each resource."""
        wide = self.cells.pivot_table(
            index=["application", "phase"],
            columns="resource",
            values="level",
            aggfunc="first",
            sort=False,
        )
        return self.runs.merge(wide[list(RESOURCES)].reset_index(), on=["application", "phase"])

    def verdict(self) -> list[str]:
        """One sentence an application: what it leans on."""
        return [self._sentence(row) for row in rows_of(self.to_frame()) if row["phase"] == WHOLE]

    def header(self) -> list[str]:
        """Name the columns of `matrix`."""
        phases = ["phase", "from", "to"] if self._has_phases() else []
        return ["application", *phases, *RESOURCE_WORDS.values(), "CPUs are"]

    def matrix(self) -> list[list[str]]:
        """Levels as they are printed."""
        rows = []
        for row in rows_of(self.to_frame()):
            times = [row["phase"], shown(row["start_s"], "s"), shown(row["end_s"], "s")]
            levels = [row[resource] for resource in RESOURCES]
            shown_phase = times if self._has_phases() else []
            rows.append([row["application"], *shown_phase, *levels, row["activity"]])
        return rows

    def evidence_header(self) -> list[str]:
        """Name the columns of `evidence_cells`."""
        return [
            *("application", "resource", "measure", "level", "of"),
            *("value", "p95", "medium from", "high from"),
        ]

    def evidence_cells(self) -> list[list[str]]:
        """Evidence of whole recordings as it is printed; what was not measured says so."""
        return [
            [
                row["application"],
                RESOURCE_WORDS[row["resource"]],
                row["measure"].replace("_", " "),
                row["level"] or row["note"],
                _of_capacity(row).removeprefix(" of ") or "–",
                _text(row["value"], row["unit"]),
                _text(row["p95"], row["unit"]),
                _text(row["medium"], row["unit"]),
                _text(row["high"], row["unit"]),
            ]
            for row in rows_of(self.evidence)
            if row["phase"] == WHOLE
        ]

    def summary(self) -> str:
        """Text: the matrix, the evidence of each cell, then the caveats."""
        lines = [text_table(self.header(), self.matrix()), ""]
        lines += [self._because(row) for row in rows_of(self.cells) if row["phase"] == WHOLE]
        lines += ["", f"thresholds: {self.thresholds_source}"]
        return summary_text(lines, self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the matrix."""
        from ppw.report.pressure_page import plot_matrix

        return plot_matrix(self, ax)

    def _has_phases(self) -> bool:
        return bool((self.runs["phase"] != WHOLE).any())

    def _sentence(self, row: dict[str, Any]) -> str:
        leans = [f"{RESOURCE_WORDS[r]} ({row[r]})" for r in RESOURCES if row[r] in _PRESSED]
        unknown = [RESOURCE_WORDS[r] for r in RESOURCES if row[r] in (NOT_MEASURED, NO_CAPACITY)]
        what = f"leans on {', '.join(leans)}" if leans else "leans on no resource that was judged"
        rest = f"; not judged: {', '.join(unknown)}" if unknown else ""
        return f"{row['application']} {what}{rest}. Its CPUs are {row['activity']}."

    def _because(self, cell: dict[str, Any]) -> str:
        rows = self.evidence
        mine = rows[
            (rows["application"] == cell["application"])
            & (rows["phase"] == cell["phase"])
            & (rows["resource"] == cell["resource"])
        ]
        names = cell["because"].split(", ")
        said = [_evidence_text(row) for row in rows_of(mine) if row["measure"] in names]
        if not said and cell["level"] == NO_CAPACITY:
            option = f" ({option_of(cell['resource'])})" * ("not known" in cell["because"])
            said = [f"{cell['because']}{option}", *self._carried(cell, mine)]
        head = f"{cell['application']}: {RESOURCE_WORDS[cell['resource']]} {cell['level']}"
        return f"{head}: {'; '.join(said)}" if said else head

    def _carried(self, cell: dict[str, Any], evidence: pd.DataFrame) -> list[str]:
        """What was asked of a resource without a capacity."""
        if cell["resource"] == "network":
            runs = self.runs
            mine = runs[
                (runs["application"] == cell["application"]) & (runs["phase"] == cell["phase"])
            ]
            within = float(mine["loopback_bytes_s"].iloc[0])
            return [] if within != within else [f"loopback {_text(within, 'B/s')}"]
        used = evidence[evidence["kind"] == "utilisation"]
        return [f"{shown(row['demand'])} in {row['columns']}" for row in rows_of(used)][:1]


def option_of(resource: str) -> str:
    """Option that states the capacity of a resource."""
    return {"cpu": "--cpus", "disk": "--disk-bandwidth"}.get(
        resource, f"--{resource.replace('_', '-')}"
    )


_PRESSED = ("medium", "high")


def _evidence_text(row: dict[str, Any]) -> str:
    name = row["measure"].replace("_", " ")
    value = _text(row["value"], row["unit"])
    limit = _of_capacity(row)
    bound = "high" if row["level"] == "high" else "medium"
    return f"{name} {value}{limit}, {bound} from {_text(row[bound], row['unit'])}"


def _of_capacity(row: dict[str, Any]) -> str:
    if row["capacity"] != row["capacity"]:
        return ""
    unit = {"memory_bytes": "B"}.get(row["columns"], "1")
    unit = "B/s" if "bytes_s" in row["columns"] else unit
    return f" of {_text(row['capacity'], unit)} ({row['capacity_source']})"


def _text(value: float, unit: str) -> str:
    if value != value:
        return "–"
    if unit == "B/s":
        return f"{shown(value, 'B')}/s"
    if unit == "share":
        return f"{100 * value:.3g} %"
    return shown(value, unit)
