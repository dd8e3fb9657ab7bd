"""`check_changes`: whether new runs are worse than base runs by more than limits allow."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from fitting.regression.variances import moderate_variances
from measurements import check_runs, identity_columns
from measurements.table import checks, headers, schema
from ppw.decision import compare as cp
from ppw.errors import CaveatWarning, PpwError
from ppw.results import axes as drawing, result as rs, text as tx
from ppw.runs import checks as ck, groups as gr, metrics as mt, prepare as pr

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.decision.objectives import FloatArray

FAILS, PASSES, UNCLEAR = "fails", "passes", "cannot tell"
_SIDES = ("base", "new")
# Probability with which the recommended number of runs leads to a decision, and the most runs that
# are recommended.
_POWER, _MOST_RUNS = 0.8, 1000
_MOST_NAMED, _MANY, _SURE = 10, 1e9, 0.9999
# Column that tells the sides apart where curves answer.
_SIDE = "side of the check"
_LIMIT = re.compile(r"\s*([\w/$]+)\s*([<>])=?\s*([+-]?\d+(?:\.\d+)?)\s*(%?)\s*")
_ALIASES = {"perf/W": "perf_per_watt", "perf/$": "perf_per_dollar"}
_MORE_IS_BETTER = ("throughput", "perf_per_watt", "perf_per_dollar")


class LimitError(PpwError):
    """A limit that cannot be read, or that the runs cannot answer."""


class Limit(NamedTuple):
    """Largest change of a metric that is allowed, as "time > 3%"."""

    text: str
    metric: str
    share: float  # 0.03 for 3 %
    sign: int  # 1 where more than the share fails, -1 where less does

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read a limit. Raises `LimitError` with the limit, what is wrong and what to write.

        >>> Limit.parse("perf/W < -5%")
        Limit(text='perf/W < -5%', metric='perf_per_watt', share=-0.05, sign=-1)
        """
        match = _LIMIT.fullmatch(text)
        if not match:
            raise LimitError(
                f"limit {text!r} is not METRIC > PERCENT% or METRIC < PERCENT%: write 'time > 3%' "
                "or 'throughput < -3%'"
            )
        name, sign, number, percent = match.groups()
        if not percent:
            raise LimitError(f"limit {text!r}: {number} has no unit: write {number}% for percent")
        metric, share = _ALIASES.get(name, name), float(number) / 100
        if share <= -1:
            raise LimitError(f"limit {text!r}: no metric falls by 100 % or more: write 'time > 3%'")
        worse = "<" if metric in _MORE_IS_BETTER else ">"
        if metric in mt.METRICS and sign != worse:
            change = f"{name} {worse} {'-' if worse == '<' else ''}{number.lstrip('+-')}%"
            raise LimitError(
                f"limit {text!r} would fail where {name} gets better: write '{change}'"
            )
        return cls(text.strip(), metric, share, 1 if sign == ">" else -1)

    @property
    def unit(self) -> str:
        """Unit of the metric."""
        known = mt.METRICS.get(self.metric) or schema.COLUMNS.get(self.metric)
        return known.unit if known else "1"

    def values(self, runs: pd.DataFrame) -> FloatArray:
        """Values of the metric, one a run: of a metric of ppw, or of a column with numbers."""
        if self.metric in mt.METRICS:
            return mt.values(mt.METRICS[self.metric], runs)
        return runs[self.metric].to_numpy(dtype=np.float64)

    def columns(self, runs: pd.DataFrame, side: str) -> tuple[str, ...]:
        """Columns that the metric is taken from. Raises `LimitError` where a side lacks them."""
        metric = mt.METRICS.get(self.metric)
        source = " ".join(filter(None, [side, runs.attrs.get("source", "")]))
        if metric is None and self.metric in runs.select_dtypes("number"):
            return (self.metric,)
        if metric and (found := mt.columns_for(metric, runs)):
            return found
        if metric:
            ways = ", or ".join(" and ".join(columns) for columns in metric.columns)
            raise LimitError(
                f"limit {self.text!r}: {source} has no {ways}: measure it, or leave this limit out"
            )
        known = [*mt.METRICS, *runs.select_dtypes("number").columns]
        listed = [str(c) for c in runs if c not in (schema.FILE_COLUMN, schema.ROW_COLUMN)]
        raise LimitError(
            f"limit {self.text!r}: {source} has no metric or column of numbers "
            f"{self.metric!r}{headers.nearest(self.metric, known)}: the metrics are "
            f"{', '.join(mt.METRICS)}, and the columns {headers.list_names(listed)}"
        )


def percent_text(value: float, lower: float, upper: float) -> str:
    """Write a change in percent with no more digits than half its interval has two of.

    >>> percent_text(0.10231, 0.0789, 0.1256)
    '+10.2%'
    """
    half = 50 * (upper - lower)
    digits = 1 - math.floor(math.log10(half)) if 0 < half < math.inf else 1
    # Adding 0 turns -0 into 0.
    rounded = round(100 * value, digits := min(max(digits, 0), 6)) + 0.0
    return f"{rounded:+.{digits}f}%" if math.isfinite(value) else "–"


def _interval_text(row: rs.Row) -> str:
    ends = row["lower"], row["upper"]
    return " … ".join(percent_text(end, *ends) for end in ends) if ends[0] == ends[0] else "–"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeCheck(rs.Result):
    """Changes from base runs to new runs, and which of them exceed their limits.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per limit, group and frequency.
    by : tuple of str
        Columns that tell groups apart.
    limits : tuple of str
        Limits as given.
    confidence : float
        Probability with which a table without any excess has no failing row.
    level : float
        Probability of the intervals, whose ends are bounds with probability ``confidence`` each.
    """

    kind = "change_check"
    tables = (
        rs.Table(
            "table",
            """
            limit     | text  | fails if | limit that the row is checked against
            freq_hz   | Hz if any | at   | core frequency, NaN where the runs have none
            unit      | text  |          | unit of `base` and `new`
            base      | unit  | base     | geometric mean of the base runs
            new       | unit  | new      | geometric mean of the new runs
            change    | share [lower, upper] | change | new over base, less 1
            lower     | share |          | lower end of the interval
            upper     | share |          | upper end of the interval
            p_over    | share .1% | P(over limit) | probability that the change is over the limit
            p_adjusted | 1    |          | p-value of the excess, corrected for the number of rows
            noise     | share .1% | noise | standard deviation of single runs
            runs_base | count | base runs | number of base runs
            runs_new  | count | new runs | number of new runs
            verdict   | text  | verdict  | "fails", "passes" or "cannot tell"
            measure_next | text |        | what to measure where ppw cannot tell
            """,
            title="Changes",
            key="changes",
            show={
                "change": lambda r: percent_text(r["change"], r["lower"], r["upper"]),
                "lower": _interval_text,
            },
        ),
    )

    table: pd.DataFrame
    by: tuple[str, ...]
    limits: tuple[str, ...]
    confidence: float
    level: float

    @property
    def passed(self) -> bool:
        """Whether no row fails."""
        return FAILS not in set(self.table["verdict"])

    def failure(self) -> str | None:
        """Say which rows fail, the first ten; None where none does."""
        rows = rs.rows_of(self.table[self.table["verdict"] == FAILS])
        more = f"; and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
        texts = [f"{self._label(row)} {_change_text(row)}" for row in rows[:_MOST_NAMED]]
        return "; ".join(texts) + more if rows else None

    def verdict(self) -> list[str]:
        """Say how many rows fail and pass, then which fail, and what to measure for the rest."""
        counts, total = self.table["verdict"].value_counts(), len(self.table)
        words = ((FAILS, "fail"), (PASSES, "pass"), (UNCLEAR, "cannot be told at this noise"))
        parts = [f"{counts[verdict]} {text}" for verdict, text in words if verdict in counts]
        limit = f" with {self.limits[0]}" * (len(self.limits) == 1)
        found = [f"Of {total} comparison{'s' * (total > 1)}{limit}: {', '.join(parts)}."]
        if total > 1:
            least = 1 - (1 - self.confidence) / max(int(self.table["p_over"].notna().sum()), 1)
            found.append(
                f"The first failing row needs P(over limit) of {least:.2%}, which keeps false "
                f"alarms of the whole table below {1 - self.confidence:.2g}."
            )
        for verdict, text in ((FAILS, _change_text), (UNCLEAR, lambda r: r["measure_next"])):
            rows = rs.rows_of(self.table[self.table["verdict"] == verdict])
            found += [f"{verdict}: {self._label(row)} {text(row)}." for row in rows[:_MOST_NAMED]]
            if len(rows) > _MOST_NAMED:
                found.append(f"{verdict}: {len(rows) - _MOST_NAMED} more rows of the table.")
        return found

    def _label(self, row: rs.Row) -> str:
        keys = tx.telling_keys(self.by, rs.rows_of(self.table)) if self.by else []
        at = [tx.shown(row["freq_hz"], "Hz")] if row["freq_hz"] == row["freq_hz"] else []
        return ", ".join([row["limit"], *tx.key_texts(keys, row), *at]) + ":"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the changes with their intervals and limits, the first thirty rows."""
        axes, rows = drawing.new_axes(ax), self.table.head(cp.MOST_DRAWN)
        place, limits = np.arange(len(rows)), [Limit.parse(text).share for text in rows["limit"]]
        axes.hlines(place, 100 * rows["lower"], 100 * rows["upper"], color=drawing.BAND, lw=5)
        axes.plot(100 * rows["change"], place, "D", color=drawing.PROJECTED, ms=5, label="change")
        axes.plot(100 * np.array(limits), place, "|", color=drawing.MEASURED, ms=12, label="limit")
        labels = [tx.plot_label(self._label(row).rstrip(":")) for row in rs.rows_of(rows)]
        axes.set_yticks(place, labels)
        axes.invert_yaxis()
        axes.set_xlabel(f"change (%), {self.level:.0%} interval")
        axes.set_ylabel("limit and group")
        axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return axes


def _change_text(row: rs.Row) -> str:
    over = "over" if Limit.parse(row["limit"]).sign > 0 else "below"
    return (
        f"changed by {percent_text(row['change'], row['lower'], row['upper'])} "
        f"({_interval_text(row)}), {over} the limit with probability "
        f"{'above 99.99%' if row['p_over'] > _SURE else format(row['p_over'], '.2%')}"
    )


def check_changes(
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    fail_if: str | Sequence[str],
    confidence: float = 0.95,
    by: Sequence[str] | None = None,
) -> ChangeCheck:
    """Check whether new runs changed by more than limits allow, group by group.

    Parameters
    ----------
    before, after : pandas.DataFrame
        Runs tables (`ppw.read_runs`) of the two sides; or parts of one table, as the runs of two
        hosts. Groups are paired by their identity columns; a column with one value in all of
        ``before`` and another in all of ``after`` describes the sides.
    fail_if : str or sequence of str
        Limits: "time > 3%", "energy > 5%", "perf/W < -3%". The metric is one of ppw, or a column
        with numbers, as "latency_p99_s > 10%".
    confidence : float
        A row fails where its change is over the limit with this confidence, corrected for the
        number of rows by the method of Holm: in a table without any excess, no row fails with this
        probability. A row passes where its change is within the limit with this confidence.
    by : sequence of str, optional
        Columns that tell groups apart; by default the identity columns present.

    Returns
    -------
    ChangeCheck
        Changes from base runs to new runs, and which of them exceed their limits.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For a limit that cannot be read or answered, or sides without a group in common.

    Notes
    -----
    A change is the ratio of geometric means at one frequency. The variance of single runs is that
    of their group, moderated by the groups of the same side (`fitting.regression.variances`). All
    rows count, also those that `ppw.check` flags, because a regression looks like a wrong
    row. Where two sides share no frequency of a group, they are compared by `ppw.compare`.

    References
    ----------
    S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6 (1979).

    Examples
    --------
    >>> result = check_changes(before, after, fail_if="time > 3%")  # doctest: +SKIP
    >>> result.passed  # doctest: +SKIP
    True
    """
    tx.as_share("confidence", confidence)
    if confidence <= 0.5:
        raise PpwError(f"confidence {confidence!r} must be above 0.5; try 0.95")
    limits = [Limit.parse(text) for text in tx.as_names(fail_if)]
    if not limits:
        raise LimitError("no limit is given: write 'time > 3%'")
    sides = _Sides.of((before, after), limits, by)
    cells = [sides.project(limit, sides.cells(limit)) for limit in limits]
    rows = _judge(pd.concat(cells, ignore_index=True), limits, 1 - confidence)
    caveats = [*sides.caveats, *_noise_caveats(rows)]
    rs.warn_caveats(caveats)
    keys = sides.groups.keys.take(rows.pop("group").to_numpy()).reset_index(drop=True)
    return ChangeCheck(
        table=pd.concat([keys, rows], axis=1),
        by=tuple(map(str, keys)),
        limits=tuple(limit.text for limit in limits),
        confidence=confidence,
        level=2 * confidence - 1,
        caveats=tuple(caveats),
        input_digest=rs.numbers_digest(*map(rs.frame_digest, (before, after))),
    )


def choose_side(runs: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Choose the runs of one side, named for messages by what selects it."""
    side = gr.choose_runs(runs, where)
    is_file = [*where] == [schema.FILE_COLUMN]
    side.attrs["source"] = " ".join(map(str, where.values())) if is_file else gr.words(where)
    return side


@dataclass(frozen=True)
class _Sides:
    """Checked runs of both sides in one table, and their groups."""

    runs: pd.DataFrame
    is_new: gr.Mask
    groups: gr.Groups
    step: FloatArray  # frequency (Hz) of each run; NaN where the runs have none
    caveats: list[str]

    @classmethod
    def of(cls, sides: Sequence[pd.DataFrame], limits: Sequence[Limit], by: Any) -> _Sides:
        """Check and group the runs. Raises `PpwError` for sides without a group in common."""
        parts, columns = [], {"freq_hz": None}
        for side, name in zip(map(gr.canonical, sides), _SIDES, strict=True):
            if side.empty:
                raise PpwError(f"{name} has no run: give a table with runs, or other sides")
            columns |= dict.fromkeys(c for limit in limits for c in limit.columns(side, name))
            # Messages name the file and row of each value.
            place = {schema.ROW_COLUMN: checks.row_numbers(side)}
            if schema.FILE_COLUMN not in side:
                place[schema.FILE_COLUMN] = side.attrs.get("source", name)
            parts.append(side.assign(**place))
        is_new = np.repeat([False, True], [*map(len, parts)])
        twice = parts[0].merge(parts[1], on=[schema.FILE_COLUMN, schema.ROW_COLUMN])
        if len(twice) and "source" in sides[0].attrs:
            raise PpwError("base and new share runs: choose them so that no run is in both")
        runs = pd.concat(parts, ignore_index=True)
        runs = check_runs(runs, needed=[c for c in columns if c in runs], by=by)
        keys, caveats = _shared_keys(runs, is_new, by)
        groups = gr.group_runs(runs, keys)
        full = pr.at_full_load(runs, 2 * groups.codes + is_new)
        if not full.all():
            caveats.append(f"{int((~full).sum())} runs below full load (column load) are left out")
        runs, is_new = runs[full].reset_index(drop=True), is_new[full]
        groups = gr.Groups(groups.by, groups.codes[full], groups.keys)
        there = [set(groups.codes[is_new == side].tolist()) for side in (False, True)]
        if not there[0] & there[1]:
            raise PpwError(
                f"no combination of {', '.join(keys)} is in both base and new: give --by without "
                "the columns that differ"
            )
        has_steps = "freq_hz" in runs
        step = _merge_steps(runs["freq_hz"].to_numpy()) if has_steps else np.full(len(runs), np.nan)
        if count := _count_flagged_rows(runs, is_new, groups, limits):
            caveats.append(
                f"{count} rows are probably wrong (ppw check lists them); they count here, because "
                "a regression looks like a wrong row"
            )
        return cls(runs, is_new, groups, step, caveats)

    def cells(self, limit: Limit) -> pd.DataFrame:
        """Mean and variance of logarithms, and number of runs, of both sides by group and step."""
        values = limit.values(self.runs)
        if (bad := (values <= 0) | np.isinf(values)).any():
            row = self.runs[bad].iloc[0]
            raise PpwError(
                f"limit {limit.text!r}: {int(bad.sum())} values are not above 0, the first in row "
                f"{row[schema.ROW_COLUMN]} of {row[schema.FILE_COLUMN]}: correct or drop these rows"
            )
        self._refuse_scopes(limit)
        point = ["group", "freq_hz", "side"]
        side = np.where(self.is_new, "new", "base")
        frame = pd.DataFrame(dict(zip(point, (self.groups.codes, self.step, side), strict=True)))
        frame = frame.assign(log=np.log(values)).dropna(subset="log")
        if "host" in self.runs and "host" not in self.groups.by:
            # Runs of one host are alike: where a side mixes hosts, each host counts once.
            host = self.runs["host"].astype(str).take(frame.index.to_numpy())
            mixed = host.groupby([frame[c] for c in point], dropna=False).transform("nunique") > 1
            one = np.where(mixed, host, frame.index.astype(str))
            frame = frame.groupby([*point, one], dropna=False)["log"].mean().reset_index()
        found = frame.groupby(point, dropna=False)["log"].agg(["mean", "var", "size"])
        figures = pd.MultiIndex.from_product([["mean", "var", "size"], _SIDES])
        table = pd.DataFrame(found.unstack("side")).reindex(columns=figures)  # noqa: PD010
        table.columns = ["_".join(names) for names in figures]
        sizes = {f"size_{side}": table[f"size_{side}"].fillna(0.0) for side in _SIDES}
        return _estimate_changes(table.assign(**sizes).reset_index()).assign(limit=limit.text)

    def _refuse_scopes(self, limit: Limit) -> None:
        """Raise `PpwError` for power of different scope on the two sides."""
        base, new = (cp.scopes_of(self.runs[self.is_new == side]) for side in (False, True))
        if limit.metric in cp.OF_POWER and base and new and base != new:
            raise PpwError(
                f"limit {limit.text!r}: the power of base is of {' and '.join(sorted(base))}, that "
                f"of new of {' and '.join(sorted(new))}: measure both with one kind of sensor, or "
                "leave this limit out"
            )

    def project(self, limit: Limit, cells: pd.DataFrame) -> pd.DataFrame:
        """Drop steps of one side, and compare groups that share no step by fitted curves."""
        shared = cells["size_base"].gt(0) & cells["size_new"].gt(0)
        most = cells.groupby("group")[["size_base", "size_new"]].transform("max")
        both = most.gt(0).all(axis=1)
        apart = both & ~shared.groupby(cells["group"]).transform("any")
        if count := int((both & ~apart & ~shared).sum()):
            self.caveats.append(f"{limit.text}: {count} frequencies of one side alone are left out")
        # Curves answer at the highest frequency of the new side.
        top = cells[apart & cells["size_new"].gt(0)].groupby("group").tail(1)
        if len(top):
            self.caveats.append(
                f"{limit.text}: {len(top)} groups share no frequency of both sides: fitted curves "
                "are compared"
            )
        curves = [{**row, **self._compare_curves(limit, row)} for row in rs.rows_of(top)]
        return pd.concat([cells[shared | ~both], pd.DataFrame(curves)], ignore_index=True)

    def _compare_curves(self, limit: Limit, row: rs.Row) -> dict[str, float]:
        """Change of one group by curves of both sides; {} where they have none."""
        runs = self.runs.assign(**{_SIDE: np.where(self.is_new, "new", "base")})
        runs, at = runs[self.groups.codes == row["group"]], float(row["freq_hz"])
        sides, by = ({_SIDE: "new"}, {_SIDE: "base"}), self.groups.by
        try:
            with warnings.catch_warnings(action="ignore", category=CaveatWarning):
                found = cp.compare(runs, *sides, freq_a=at, freq_b=at, metric=limit.metric, by=by)
        except PpwError:
            return {}
        ratio, lower, upper = found.table[["ratio", "lower", "upper"]].iloc[0]
        error = np.log(upper / lower) / (2 * 1.645)
        change = {"log": np.log(ratio), "error": error, "freedom": _MANY}
        return {**change, "size_new": 0.0, "noise": np.nan}


def _shared_keys(runs: pd.DataFrame, is_new: gr.Mask, by: Any) -> tuple[list[str], list[str]]:
    """Columns that pair groups of the sides, and caveats on those that tell the sides apart."""
    if by is not None:
        return tx.as_names(by), []
    keys, caveats = [], []
    for column in identity_columns(runs):
        base, new = (list(map(str, runs[column][is_new == s].unique())) for s in (False, True))
        if column == schema.FILE_COLUMN or (len(base) == len(new) == 1 and base != new):
            if column not in (schema.FILE_COLUMN, "family"):
                caveats.append(f"base and new also differ in {column}: {base[0]} against {new[0]}")
        elif set(base) & set(new):
            keys.append(column)
        else:
            raise PpwError(
                f"{column} is {', '.join(base[:4])} in base and {', '.join(new[:4])} in new: give "
                f"--by without {column} to compare over all of them, or choose one for each side"
            )
    return keys, caveats


def _merge_steps(frequency: FloatArray) -> FloatArray:
    """Give frequencies (Hz) that differ by rounding one value."""
    steps, place = np.unique(frequency, return_inverse=True)
    starts = np.diff(np.log(steps), prepend=-np.inf) > SAME_STEP
    return steps[starts][np.cumsum(starts) - 1][place]


def _count_flagged_rows(
    runs: pd.DataFrame, is_new: gr.Mask, groups: gr.Groups, limits: Sequence[Limit]
) -> int:
    """Number of rows that `ppw check` would flag on either side."""
    metrics = [mt.METRICS[limit.metric] for limit in limits if limit.metric in mt.METRICS]
    if "freq_hz" not in runs:
        return 0
    keys = groups.keys.take(np.repeat(np.arange(len(groups)), 2))
    by_side = gr.Groups(groups.by, 2 * groups.codes + is_new, keys)
    found = ck.find_flagged_rows(runs, by_side, metrics)
    return len({row for rows in found.values() for row in rows.index})


def _estimate_changes(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the change of each row as a logarithm, its standard error and degrees of freedom."""
    sizes, estimates = [cells[f"size_{side}"].to_numpy() for side in _SIDES], []
    for side, size in zip(_SIDES, sizes, strict=True):
        variance = cells[f"var_{side}"].to_numpy()
        estimates.append(moderate_variances(variance, np.maximum(size - 1, 0.0)))
    # A side without a repeated run has the noise of the other one.
    ends = zip(estimates, estimates[::-1], strict=True)
    estimates = [own if own[1].any() else other for own, other in ends]
    (var_base, df_base), (var_new, df_new) = estimates
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(var_base / sizes[0] + var_new / sizes[1])
    return cells.assign(
        log=cells["mean_new"] - cells["mean_base"],
        error=error,
        # The fewer of both: a large quiet side does not vouch for a small noisy one.
        freedom=np.minimum(df_base, df_new),
        noise=np.sqrt((var_base + var_new) / 2),
    )


def _judge(cells: pd.DataFrame, limits: Sequence[Limit], alpha: float) -> pd.DataFrame:
    """Give each row its interval, probability and verdict, and say what to measure next."""
    from scipy.special import stdtr, stdtrit

    by_text = {limit.text: limit for limit in limits}
    sign = np.array([by_text[text].sign for text in cells["limit"]])
    allowed = np.log1p([by_text[text].share for text in cells["limit"]])
    log, error, freedom = (cells[c].to_numpy() for c in ("log", "error", "freedom"))
    over = sign * (log - allowed)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Probability that the change is within the limit, which is the p-value of an excess.
        within = np.where(over == 0, 0.5, stdtr(freedom, -over / error))
        half = stdtrit(freedom, 1 - alpha) * error
    within[~((freedom > 0) & (error >= 0))] = np.nan
    adjusted = _holm(within)
    verdict = np.where(within >= 1 - alpha, PASSES, UNCLEAR)
    verdict = np.where(adjusted <= alpha, FAILS, verdict)
    tests = max(int(np.isfinite(within).sum()), 1)
    needed = _runs_needed(over, cells, np.where(over > 0, alpha / tests, alpha))
    rows = cells.assign(
        unit=[by_text[text].unit for text in cells["limit"]],
        base=np.exp(cells["mean_base"]),
        new=np.exp(cells["mean_new"]),
        change=np.expm1(log),
        lower=np.expm1(log - half),
        upper=np.expm1(log + half),
        p_over=1 - within,
        p_adjusted=adjusted,
        runs_base=cells["size_base"].astype(np.int64),
        runs_new=cells["size_new"].astype(np.int64),
        verdict=verdict,
    )
    texts = [
        _measure_next(row, need) if row["verdict"] == UNCLEAR else ""
        for row, need in zip(rs.rows_of(rows), needed, strict=True)
    ]
    columns = [c for c in ChangeCheck.tables[0].names if c != "measure_next"]
    return rows[["group", *columns]].assign(measure_next=texts)


def _holm(p: FloatArray) -> FloatArray:
    """Correct p-values for their number by the method of Holm; NaN stays."""
    order = np.argsort(p)
    count = int(np.isfinite(p).sum())
    factor = np.maximum(count - np.arange(len(p)), 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(factor * p[order]), 1.0)
    return adjusted


def _runs_needed(over: FloatArray, cells: pd.DataFrame, alpha: FloatArray) -> FloatArray:
    """Number of runs a side that decide an excess, or lack, of this size with a probability."""
    from scipy.special import stdtrit

    needed = np.full(len(over), 2.0)
    spread, least = np.sqrt(2) * cells["noise"].to_numpy(), cells["freedom"].to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        # Few runs have wide quantiles, so the number is found in a few rounds.
        for _ in range(5):
            freedom = np.maximum(least, 2 * needed - 2)
            quantiles = stdtrit(freedom, 1 - alpha) + stdtrit(freedom, _POWER)
            needed = np.maximum(np.ceil((quantiles * spread / over) ** 2), 2.0)
    return needed


def _measure_next(row: rs.Row, needed: float) -> str:
    """Say which runs would decide a row."""
    sizes = {side: int(row[f"runs_{side}"]) for side in _SIDES}
    lacking = [side for side, size in sizes.items() if not size]
    if lacking and math.isnan(row["mean_base"]) != math.isnan(row["mean_new"]):
        return f"{lacking[0]} has no run of it: measure it there"
    if lacking:
        return "no frequency is on both sides: measure both at one frequency"
    if math.isnan(row["p_over"]):
        return "no run is repeated, so the noise is not known: measure 2 more runs a side"
    if not needed <= _MOST_RUNS:
        return (
            f"at a noise of {row['noise']:.1%} the change is too close to the limit: more than "
            f"{_MOST_RUNS} runs a side would decide it"
        )
    short = [side for side, size in sizes.items() if needed > size]
    more = [f"{max(int(needed) - sizes[side], 1)} more in {side}" for side in short]
    what = " and ".join(more) or "1 more on each side"
    return f"at a noise of {row['noise']:.1%}: measure {what}"


def _noise_caveats(rows: pd.DataFrame) -> list[str]:
    """Say where a side has no repeated run."""
    checked = rows[(rows["runs_base"] > 0) & (rows["runs_new"] > 0)]
    lacking = [side for side in _SIDES if len(checked) and checked[f"runs_{side}"].max() == 1]
    what = "has no repeated run: its noise is taken to be that of the other side"
    return [f"{lacking[0]} {what}"] if len(lacking) == 1 else []
