"""What projections of the time of a job to more data and to other core counts share.

A subclass of `TimeProjection` names what is projected over and has its law; `project_time` is the
way from runs to its table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd

from fitting.bayes.steps import lack_of_fit
from measurements import check_runs
from ppw import caveats as cv
from ppw.arguments import as_names, as_share
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown, shown_interval
from ppw.grouping import group_runs
from ppw.names import plot_label
from ppw.prepare import canonical
from ppw.result import (
    as_floats,
    frame_digest,
    numbers_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.tabled_result import rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fitting.bayes.steps import Steps
    from fitting.laws.data_size import ExtentLine
    from fitting.regression.lines import FloatArray, IntArray

# Usual scatter of ln(time) from run to run, until repeats have shown their own.
_USUAL = 0.02
LACK_OF_FIT = 0.01
# Values from which on a law can be judged.
JUDGED = 3
_ANSWER = ("projected", "lower", "upper", "measured", "error_pct")


class Rows(NamedTuple):
    """Runs as arrays: the group of each, its value of the target's column, its time (s)."""

    codes: IntArray
    value: FloatArray
    time_s: FloatArray
    groups: int

    def take(self, mask: NDArray[np.bool_]) -> Rows:
        """The runs of a mask."""
        return Rows(self.codes[mask], self.value[mask], self.time_s[mask], self.groups)

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Mean time of each group, NaN without runs, and how many there are."""
        count = np.bincount(self.codes, minlength=self.groups).astype(float)
        with np.errstate(invalid="ignore"):
            return np.bincount(self.codes, self.time_s, self.groups) / count, count

    def extreme(self, choose: np.ufunc, start: float) -> FloatArray:
        """Least or greatest value of each group, NaN without runs."""
        found = np.full(self.groups, start)
        choose.at(found, self.codes, self.value)
        return np.where(np.isinf(found), np.nan, found)


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeProjection:
    """Times projected to one target, a row a group.

    Attributes
    ----------
    table : pandas.DataFrame
        The group's keys; the target; ``projected``, ``lower`` and ``upper`` (s; prediction
        interval for the mean of the runs at the target, or of one run); ``measured`` (s, mean of
        the runs at the target, which no fit has read; NaN without any), ``error_pct`` and
        ``covered``; what the fit found, and from how many ``runs``.
    by : tuple of str
        Columns of the keys.
    level : float
        Of the intervals.
    caveats : tuple of str
    """

    kind: ClassVar[str]
    # Column of what is projected over, its unit, and how tables and caveats call it.
    target: ClassVar[str]
    unit: ClassVar[str]
    word: ClassVar[str]
    few: ClassVar[str]
    # Columns of what is found, and of how many values were measured, the least and the greatest.
    found_columns: ClassVar[tuple[str, ...]]
    # Those that are infinite where JSON has null.
    unbounded: ClassVar[tuple[str, ...]] = ()
    measured_columns: ClassVar[tuple[str, str, str]]

    table: pd.DataFrame
    by: tuple[str, ...]
    level: float
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

    @property
    def coverage(self) -> float | None:
        """Share of the groups measured at the target whose mean is inside its interval."""
        covered = self.table["covered"].dropna()
        return float(covered.astype(float).mean()) if len(covered) else None

    def summary(self) -> str:
        """Table and verdict as text."""
        header, rows = self.cells()
        lines = [text_table(header, rows), *self.verdict()]
        return summary_text(lines, self.caveats)

    def telling_keys(self) -> list[str]:
        """Columns that tell the groups of this table apart."""
        return [name for name in self.by if len(self.table[name].unique()) > 1] or list(self.by[:1])

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of the table as they are printed, the telling keys first."""
        keys = self.telling_keys()
        header = [*keys, self.word, "projected", f"{self.level:.0%} interval", "measured", "error"]
        rows = []
        for row in rows_of(self.table):
            error = row["error_pct"]
            rows.append(
                [
                    *key_texts(keys, row),
                    shown(row[self.target], self.unit),
                    shown(row["projected"], "s"),
                    shown_interval(row["projected"], row["lower"], row["upper"], "s"),
                    shown(row["measured"], "s"),
                    "–" if error != error else f"{error:+.1f} %",
                ]
            )
        return header, rows

    def verdict(self) -> list[str]:
        """Say the fits in sentences."""
        keys, said = self.telling_keys(), []
        for row in rows_of(self.table):
            name = " ".join(key_texts(keys, row)) if len(self.table) > 1 else "the job"
            said.append(f"{name}: {self.law(row)}")
        if self.coverage is not None:
            count = int(self.table["covered"].notna().sum())
            said.append(f"{self.coverage:.0%} of {count} measured times are inside their interval")
        return said

    def title(self) -> str:
        """Heading of the report."""
        raise NotImplementedError

    def law(self, row: dict[str, Any]) -> str:
        """What was fitted to the group of a row, in words."""
        raise NotImplementedError

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Points of the curve of a row, in the target's unit and s."""
        raise NotImplementedError

    def axis(self) -> tuple[str, float]:
        """Label of the plot's abscissa, and its unit in the target's."""
        raise NotImplementedError

    @classmethod
    def usual_keys(cls, runs: pd.DataFrame) -> list[str]:
        """Columns that tell groups apart."""
        raise NotImplementedError

    @classmethod
    def learns(cls, values: FloatArray, target: float) -> NDArray[np.bool_]:
        """Which values are fitted, of those that are not the target: all."""
        return np.ones(len(values), dtype=np.bool_)

    @classmethod
    def fit(cls, rows: Rows, target: float) -> tuple[Steps, ExtentLine]:
        """Steps of the runs and the line of each group."""
        raise NotImplementedError

    @classmethod
    def found(cls, line: ExtentLine) -> dict[str, FloatArray]:
        """Parameters of each group."""
        raise NotImplementedError

    @classmethod
    def too_few(cls, target: float) -> str:
        """What to measure where no group can be projected."""
        raise NotImplementedError

    @classmethod
    def caveats_of(cls, rows: pd.DataFrame) -> Iterable[str]:
        """What could mislead in the rows of a table, with their P-value of ``lack_of_fit``."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def to_json(self) -> str:
        """JSON document; missing values are null."""
        body = {
            "level": self.level,
            "by": list(self.by),
            "groups": records(self.table),
            "coverage": self.coverage,
            "caveats": list(self.caveats),
        }
        return write_document(self.kind, self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Self:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = read_document(text, cls.kind)
        by = tuple(document["by"])
        counted, *ends = cls.measured_columns
        columns = [*by, cls.target, *_ANSWER, *cls.found_columns, counted, "runs", *ends, "covered"]
        table = pd.DataFrame(document["groups"], columns=columns)
        table = as_floats(table, but=[*by, "covered"]).astype({"covered": object})
        table[[*cls.unbounded]] = table[[*cls.unbounded]].fillna(np.inf)
        return cls(
            table=table,
            by=by,
            level=document["level"],
            caveats=tuple(document["caveats"]),
            input_digest=document["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each group's curve, its interval at the target and what was measured there."""
        from ppw.plots import new_axes

        ax = new_axes(ax)
        label, unit = self.axis()
        for row in rows_of(self.table):
            x, y = self.curve(row)
            (line,) = ax.plot(x / unit, y)
            line.set_label(plot_label(" ".join(key_texts(self.telling_keys(), row))))
            at = row[self.target] / unit
            if row["lower"] == row["lower"]:
                ax.vlines(at, row["lower"], row["upper"], colors=line.get_color(), linewidth=4)
            if row["measured"] == row["measured"]:
                ax.plot([at], [row["measured"]], "o", color=line.get_color())
        ax.set_xlabel(label)
        ax.set_ylabel("time (s)")
        if self.telling_keys():
            ax.legend()
        return ax


P = TypeVar("P", bound=TimeProjection)


def project_time(
    kind: type[P], runs: pd.DataFrame, target: float, by: Sequence[str] | None, level: float
) -> P:
    """Project the time of every group of runs to a target of one kind.

    Parameters
    ----------
    kind : subclass of TimeProjection
    runs : pandas.DataFrame
        With the column of the target and ``time_s``.
    target : float
        Above 0, in the column's unit.
    by : sequence of str or None
        Columns that tell groups apart; None for the usual ones of this kind.
    level : float
        Of the intervals, inside (0, 1).

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no group can be projected.
    """
    as_share("level", level)
    tidy = canonical(runs)
    names = kind.usual_keys(tidy) if by is None else as_names(by)
    checked = check_runs(tidy, needed=[kind.target, "time_s"], by=names)
    groups = group_runs(checked, names)
    values, times = (checked[c].to_numpy(dtype=np.float64) for c in (kind.target, "time_s"))
    fitted = _fitted(kind, Rows(groups.codes, values, times, len(groups)), target, level)
    answered = fitted["projected"].notna()
    if not answered.any():
        raise PpwError(f"{runs.attrs.get('source', 'runs')}: {kind.too_few(target)}")
    rows = fitted[answered]
    caveats = list(kind.caveats_of(rows))
    if left := int((~answered).sum()):
        caveats.insert(0, f"{left} groups have runs at less than two {kind.few} and are left out")
    cv.warn(caveats)
    keys = groups.keys[answered.to_numpy()].reset_index(drop=True)
    table = rows.drop(columns="lack_of_fit").reset_index(drop=True)
    return kind(
        table=pd.concat([keys, table], axis=1),
        by=tuple(names),
        level=float(level),
        caveats=tuple(caveats),
        input_digest=numbers_digest(frame_digest(runs), target, level),
    )


def _fitted(kind: type[TimeProjection], rows: Rows, target: float, level: float) -> pd.DataFrame:
    """Columns of the table, one row a group; NaN where it cannot be projected."""
    at = np.isclose(rows.value, target, rtol=1e-9, atol=0.0)
    learnt = rows.take(kind.learns(rows.value, target) & ~at)
    steps, found = kind.fit(learnt, target)
    measured, measured_runs = rows.take(at).means()
    lower, upper = found.interval(level=level, repeats=np.maximum(measured_runs, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        covered = ((lower <= measured) & (measured <= upper)).astype(object)
        test = lack_of_fit(steps, usual=_USUAL)
        columns = kind.found(found)
    covered[np.isnan(lower) | np.isnan(measured)] = None
    counted, least, most = kind.measured_columns
    return pd.DataFrame(
        {
            kind.target: np.full(rows.groups, target),
            "projected": found.projected,
            "lower": lower,
            "upper": upper,
            "measured": measured,
            "error_pct": 100 * (found.projected / measured - 1),
            **columns,
            counted: steps.count.astype(float),
            "runs": np.bincount(learnt.codes, minlength=rows.groups).astype(float),
            least: learnt.extreme(np.minimum, np.inf),
            most: learnt.extreme(np.maximum, -np.inf),
            "covered": covered,
            "lack_of_fit": test.p_value,
        }
    )


def with_clock(runs: pd.DataFrame, names: list[str]) -> list[str]:
    """Add the clock where it was set; as it was found, it is a reading and no set-up."""
    return [*names, "freq_hz"] if "freq_hz" in runs and "freq_source" not in runs else names
