"""`compare`: how many times better one host does the same work than another, and how surely."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements import identity_columns
from measurements.table import schema
from ppw.decision import objectives as obj, ratios
from ppw.errors import CaveatWarning, PpwError
from ppw.projection import answers
from ppw.results import axes as drawing, text as tx
from ppw.results.result import Result, Table, frame_digest, rows_of, warn_caveats
from ppw.runs import groups as gr, metrics as mt, prepare as pr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


# What a sensor sees, by how its name begins; the first that fits.
_SCOPES = (
    ("rapl:dram", "memory"),
    ("rapl:core", "cores"),
    ("rapl:pp0", "cores"),
    ("rapl:psys", "platform"),
    ("rapl", "package"),
    ("nvml", "graphics card"),
    *((name, "wall") for name in ("meter", "wall", "pdu", "ipmi", "redfish")),
)


def match_groups(
    groups: gr.Groups, a: Mapping[str, Any], b: Mapping[str, Any]
) -> tuple[list[ratios.Pair], list[str], list[str]]:
    """Pair each group of A with its like in B: index pairs, key columns and caveats.

    A column that has one value in A and another in B describes the two and does not count: an Atom
    has two cores and a Xeon six.
    """
    sides = [np.flatnonzero(gr.rows_where(groups.keys, side)) for side in (a, b)]
    rest = [c for c in groups.by if c not in a and c not in b]
    keys = groups.keys
    values = {c: [list(dict.fromkeys(map(str, keys[c].iloc[s]))) for s in sides] for c in rest}
    # What is one thing in all of A and another in all of B tells what they are, not what they did.
    uniform = [c for c in rest if len(values[c][0]) == len(values[c][1]) == 1]
    described = [c for c in uniform if values[c][0] != values[c][1]]
    by = [c for c in rest if c not in described]
    of_a, of_b = ({tuple(map(str, keys[by].iloc[g])): int(g) for g in side} for side in sides)
    for side, found, which in zip(sides, (of_a, of_b), "AB", strict=True):
        if len(found) < len(side):
            keys = groups.keys.iloc[side]
            varying = [c for c in groups.by if c not in by and len(set(map(str, keys[c]))) > 1]
            raise PpwError(
                f"{which} is several groups of the same {', '.join(by) or 'kind'}, which differ in "
                f"{', '.join(varying)}: name one of them for {which} as well"
            )
    pairs = [(of_a[key], of_b[key]) for key in of_a if key in of_b]
    if not pairs:
        differ = [
            f"{column} is {', '.join(values[column][0][:4])} in A and "
            f"{', '.join(values[column][1][:4])} in B"
            for column in by
            if not {*values[column][0]} & {*values[column][1]}
        ]
        why = "; ".join(differ) or f"no combination of {', '.join(by)} is in both"
        raise PpwError(
            f"no group of A matches a group of B: {why}: name the groups to compare, or give --by "
            "without the columns that differ"
        )
    caveats = [
        f"A and B also differ in {column}: {_key_value_text(groups, column, sides[0])} against "
        f"{_key_value_text(groups, column, sides[1])}"
        for column in described
        if column != "family"
    ]
    alone = [(len(side) - len(pairs), which) for side, which in zip(sides, "AB", strict=True)]
    if counts := [f"{n} of {which}" for n, which in alone if n]:
        caveats.append(f"left out, because the other side has no such group: {', '.join(counts)}")
    return pairs, by, caveats


def _key_value_text(groups: gr.Groups, column: str, side: Any) -> str:
    value = groups.keys[column].iloc[side[0]]
    return tx.shown(float(value)) if isinstance(value, (int, float)) else str(value)


def scope_of(source: object) -> str | None:
    """Name what a power source sees: "package", "wall" and others; None where that is not known."""
    if not pr.is_named_source(source):
        return None
    # Calibrated power is of what it was calibrated to: "rapl:package→meter:wt310e".
    name = str(source).rpartition("→")[2].strip().lower()
    return next((scope for begins, scope in _SCOPES if name.startswith(begins)), None)


def scopes_of(runs: pd.DataFrame) -> frozenset[str]:
    """Scopes of the power sources of runs, as {"wall", "package"}; empty where none is known."""
    if "power_source" not in runs:
        return frozenset()
    found = map(scope_of, runs["power_source"].dropna().unique())
    return frozenset(scope for scope in found if scope is not None)


def check_scopes(prepared: pr.PreparedRuns, pairs: Sequence[ratios.Pair], mixed: bool) -> list[str]:
    """Refuse power of different scope, or return a caveat where ``mixed`` was asked for."""
    if "power_source" not in prepared.runs:
        return []
    texts, every = [], set[str]()
    for groups in zip(*pairs, strict=True):
        rows = prepared.runs[np.isin(prepared.groups.codes, groups)]
        sources, scopes = set(rows["power_source"].dropna().astype(str)), scopes_of(rows)
        texts.append(f"{' and '.join(sorted(scopes))} ({', '.join(sorted(sources))})")
        every |= scopes
    if len(every) < 2:
        return []
    a, b = texts
    if mixed:
        return [
            "power of different scope is compared, because --mixed-scope was given: the power of "
            f"A is of {a}, that of B of {b}"
        ]
    raise PpwError(
        f"the power of A is of {a}, that of B of {b}, so the two cannot be compared: measure both "
        "with one kind of sensor, leave power out with --metric time or throughput, or give "
        "--mixed-scope"
    )


UNDECIDED, _BY_GROUP = "undecided", ""
# How a summary says which of the two is better in what.
_BETTER = {
    "A": "A is better in {}",
    "B": "B is better in {}",
    UNDECIDED: "the two cannot be told apart in {}",
    _BY_GROUP: "which is better in {} depends on the group",
}
# What one needs, of which less is better, and what it has.
_NEEDS = {"time": "the time", "power": "the power", "energy": "the energy per run"}
_HAS = {
    "throughput": "the throughput",
    "perf_per_watt": "the performance per watt",
    "perf_per_dollar": "the performance per price",
}
COMPARED = ("time", "throughput", "power", "energy", "perf_per_watt", "perf_per_dollar")
OF_POWER = ("power", "energy", "perf_per_watt")
_MOST_TO_MEASURE, MOST_DRAWN = 10, 30
# Differences of logarithms below it are small, however sure.
_CLOSE = 0.01
# Key column of sides that are told by several columns.
_SIDE = "side"
COSTS_ALIKE = "Break-even: the price at which a unit of work costs the same on A and on B:"


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison(Result):
    """A against B, group by group and metric by metric.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per pair of groups and metric.
    break_even : pandas.DataFrame
        One row per pair and kind of cost.
    by : tuple of str
        Columns that the pairs agree in.
    a, b : mapping of str to value
        Columns and values that tell each side; of several B a list of values.
    level : float
        Probability of the intervals.
    electricity, lifetime_hours : float or None
    draws, seed : int
    """

    kind = "comparison"
    tables = (
        Table(
            "table",
            """
            metric       | text  | metric | what is compared
            unit         | text  |        | unit of `a` and `b`
            a_hz         | Hz    | A at   | frequency of A
            b_hz         | Hz    | B at   | frequency of B
            a            | unit  | A      | median of A
            b            | unit  | B      | median of B
            ratio        | 1     | A:B    | median of A:B
            lower        | 1     | {level:.0%} interval of A:B | lower end of the interval
            upper        | 1     |        | upper end of the interval
            p_a_better   | share | P(A better) | probability that A is better
            better       | text  | better | "A", "B" or "undecided"
            tie_hz       | Hz [tie_lower_hz, tie_upper_hz] if any | equal with A at | NaN if rarely
            tie_lower_hz | Hz    |        | lower end of its interval
            tie_upper_hz | Hz    |        | upper end of its interval
            p_tie        | share |        | share of the draws in which the two tie
            measure_next | text  |        | what to measure where it is undecided
            """,
            title="Ratios",
            key="ratios",
            show={"lower": lambda r: tx.shown_interval(r["ratio"], r["lower"], r["upper"], "1")},
        ),
        Table(
            "break_even",
            """
            what         | text  | figure | what makes the costs of a unit of work equal
            unit         | text  |        | unit of `value`
            value        | 1 [lower, upper] | costs are the same at | break-even value
            lower        | 1     |        | lower end of its interval
            upper        | 1     |        | upper end of its interval
            p_tie        | share | P(they are) | share of the draws in which there is one
            measure_next | text  |        | what to measure where it is undecided
            """,
            title=COSTS_ALIKE.rstrip(":"),
            most=20,
            # Money is a bare number, as prices have no currency here.
            show={
                "value": lambda r: tx.shown(r["value"], r["unit"].replace("currency", "").strip())
            },
        ),
    )

    table: pd.DataFrame
    break_even: pd.DataFrame
    by: tuple[str, ...]
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    level: float
    electricity: float | None
    lifetime_hours: float | None
    draws: int
    seed: int

    def verdict(self) -> list[str]:
        """Say in a line which is better in what, then metric by metric by how much."""
        ((key, sides), *_) = self.b.items()
        if isinstance(sides, list):
            of_side = self.table.groupby(key, sort=False)
            each = [replace(self, table=of_side.get_group(s), b={key: s}) for s in sides]
            return [sentence for one in each for sentence in one.verdict()]
        better: dict[str, list[str]] = {}
        sentences = []
        for metric, rows in self.table.groupby("metric", sort=False):
            found = set(rows["better"])
            side = found.pop() if len(found) == 1 else _BY_GROUP
            better.setdefault(side, []).append(_spaced_name(metric))
            sentences.append(f"{_spaced_name(metric)}: {self._sentence_of(str(metric), rows)}.")
        parts = [
            _BETTER[side].format(tx.join_words(better[side])) for side in _BETTER if side in better
        ]
        sides = f"A is {gr.words(self.a)}, B is {gr.words(self.b)}{_frequencies_text(self.table)}"
        return [f"{sides}: {'; '.join(parts)}.", *sentences]

    def _sentence_of(self, metric: str, rows: pd.DataFrame) -> str:
        logs = np.log(rows[["lower", "ratio", "upper"]].to_numpy())
        close = "; a difference below 1%" * bool((np.abs(logs[:, 1]) < _CLOSE).all())
        if len(rows) > 1:
            mean, half = logs[:, 1].mean(), np.ptp(logs, axis=1) / 2 / len(rows)
            error = float(np.sqrt((half**2).sum()))
            times = _times_text(metric, *np.exp([mean, mean - error, mean + error]))
            return f"{_count_better(rows)}; {times} (geometric mean){close}"
        row = rows.iloc[0]
        if row["better"] == UNDECIDED:
            between = tx.shown_interval(row["ratio"], row["lower"], row["upper"], "1")
            ratio = tx.shown_within(row["ratio"], row["lower"], row["upper"])
            return (
                f"cannot be told apart: A:B is {ratio} ({self.level:.0%} interval {between}); "
                f"P(A better) = {row['p_a_better']:.0%}"
            )
        ends = row["lower"], row["upper"]
        low, high = ends if row["ratio"] >= 1 else (1 / ends[1], 1 / ends[0])
        between = tx.shown_interval(max(row["ratio"], 1 / row["ratio"]), low, high, "1")
        sure = max(row["p_a_better"], 1 - row["p_a_better"])
        return (
            f"{_times_text(metric, row['ratio'], *ends)} ({self.level:.0%} interval {between}; "
            f"P({row['better']} better) = {sure:.0%}){close}"
        )

    def undecided(self) -> list[str]:
        """Say what to measure next for each row that is not decided, the first ten."""
        metrics = self.table.assign(what=self.table["metric"].map(_spaced_name))
        costs = self.break_even.assign(what="equal cost by " + self.break_even["what"])
        rows = [row for table in (metrics, costs) for row in rows_of(table) if row["measure_next"]]
        rows = rows[:_MOST_TO_MEASURE]
        several = self.by and len(self.table.drop_duplicates([*self.by])) > 1
        keys = tx.telling_keys(self.by, rows) if several else []
        return [
            f"{', '.join([*tx.key_texts(keys, row), row['what']])}: measure {row['measure_next']}"
            for row in rows
        ]

    def text_parts(self) -> list[str]:
        """Return the verdict, the ratios, equal costs, and what to measure next."""
        table, costs = self.printed_tables()
        open_rows = [f"undecided: {text}" for text in self.undecided()]
        return [*self.verdict(), *table.lines(), "", COSTS_ALIKE, *costs.lines(), *open_rows]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ratios with their intervals, the first thirty, on a logarithmic axis."""
        axes, rows = drawing.new_axes(ax), self.table.head(MOST_DRAWN)
        place = np.arange(len(rows))
        axes.hlines(place, rows["lower"], rows["upper"], color=drawing.BAND, lw=5)
        axes.plot(rows["ratio"], place, "D", color=drawing.PROJECTED, ms=5)
        keys = tx.telling_keys([*self.by, "metric"], rows_of(rows))
        names = [tx.plot_label(", ".join(tx.key_texts(keys, row))) for row in rows_of(rows)]
        draw_ratio_axes(axes, names, rows[["lower", "upper"]].to_numpy())
        axes.set_xlabel(f"A:B, {self.level:.0%} interval")
        axes.set_ylabel("group and metric")
        return axes


def draw_ratio_axes(axes: Axes, names: Sequence[str], values: obj.FloatArray) -> None:
    """Name the rows of a plot of ratios, and set their axis: logarithmic, with a line at 1."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes.axvline(1.0, color=drawing.MEASURED, lw=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    narrow = np.nanmax(values) < 10 * np.nanmin(values)
    axes.xaxis.set_major_locator(MaxNLocator(6) if narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())


def _spaced_name(metric: object) -> str:
    return str(metric).replace("_", " ")


def _frequencies_text(table: pd.DataFrame) -> str:
    """Say at which frequencies A and B are compared; "" where these differ between groups."""
    both = [table[column].unique() for column in ("a_hz", "b_hz")]
    if any(len(one) > 1 for one in both):
        return ""
    a, b = (tx.shown(float(one[0]), "Hz") for one in both)
    return f", both at {a}" if a == b else f", at {a} and {b}"


def _count_better(rows: pd.DataFrame) -> str:
    """Say in how many groups A and B are better, and in how many it is undecided."""
    counts = rows["better"].value_counts()
    parts = [f"{side} in {counts[side]}" for side in ("A", "B", UNDECIDED) if side in counts]
    parts[0] = parts[0].replace("A in ", "A is better in ").replace("B in ", "B is better in ")
    return f"{', '.join(parts)} of {len(rows)} groups"


def _times_text(metric: str, ratio: float, lower: float, upper: float) -> str:
    """Say which of A and B needs or has more, and how many times; ``ratio`` is A over B."""
    more, less = ("A", "B") if ratio >= 1 else ("B", "A")
    verb = "needs" if metric in _NEEDS else "has"
    ends = (ratio, lower, upper) if ratio >= 1 else (1 / ratio, 1 / upper, 1 / lower)
    times = tx.shown_within(*ends)
    return f"{more} {verb} {times} times {(_NEEDS | _HAS)[metric]} of {less}"


def compare(
    runs: pd.DataFrame,
    a: Mapping[str, Any],
    b: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    *,
    freq: float | str | None = None,
    freq_a: float | str | None = None,
    freq_b: float | str | None = None,
    metric: str | Iterable[str] | None = None,
    by: Sequence[str] | None = None,
    price_a: float | None = None,
    price_b: float | None = None,
    electricity: float | None = None,
    lifetime_hours: float | None = None,
    mixed_scope: bool = False,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    pool: bool = True,
    level: float = 0.90,
    keep_all: bool = False,
    draws: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare two hosts, or two of anything that a column names, over the work that both did.

    Curves of both sides are drawn from their posteriors; ratios, probabilities and ties are
    counted over the draws. The noise of new runs is left out: it makes neither side better.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`), or a frame with columns like ``freq_ghz``, ``time_ms``.
    a, b : mapping of str to value
        Column and value that tell each side, as ``{"host": "atom"}``, or a list of values whose
        runs are taken together. Several ``b`` are each compared with ``a``, the baseline; by
        default they are all other values of the column of ``a``. Groups are paired by the other
        identity columns; those that have one value on either side describe the sides.
    freq, freq_a, freq_b : float or str, optional
        Frequency of both sides or of each, in Hz or with a unit; by default each group's highest
        measured. A host measured at one frequency is compared there.
    metric : str or several, optional
        Of "time", "throughput", "power", "energy", "perf_per_watt" and, with prices,
        "perf_per_dollar"; by default all that the columns allow.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    price_a, price_b : float, optional
        Price of one host; by default the mean of the column ``price``.
    electricity : float, optional
        Currency per kWh; takes ``lifetime_hours``. perf_per_dollar then is work over
        price·T/lifetime + energy·electricity, as `ppw.best`.
    lifetime_hours : float, optional
        Hours of work over which a price is spread; alone, for the electricity price that ties.
    mixed_scope : bool
        Compare watts of different scope, such as package and wall, and say so in a caveat.
    voltages, pool, level, keep_all
        As for `ppw.project`; intervals are of the curves.
    draws, seed : int
        As for `ppw.best`.

    Returns
    -------
    Comparison
        A against B, group by group and metric by metric.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For sides that no run has or that have no work in common, a frequency to which no curve
        leads, or watts of different scope.
    """
    options = {name: value for name, value in locals().items() if name not in ("runs", "a", "b")}
    if b is None or (isinstance(b, Sequence) and not isinstance(b, str)):
        return _compare_each(runs, a, b, options)
    tx.as_share("interval level", level)
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, Mapping):
            column, equals, value = str(side).partition("=")
            meant = {column: value} if equals else {"host": side}
            raise PpwError(f"side {name} {side!r}: say by a column, as in {meant}")
    sides = (freq if side is None else side for side in (freq_a, freq_b))
    asked = [None if f is None else tx.as_frequency(f) for f in sides]
    if dict(a) == dict(b) and asked[0] == asked[1]:
        raise PpwError("A and B are the same: name another side or another frequency")
    if electricity is None and lifetime_hours is not None:
        tx.as_positive("lifetime (hours)", lifetime_hours)
    rates = obj.Rates() if electricity is None else obj.Rates.of(electricity, lifetime_hours)
    tidy = gr.canonical(runs)
    tidy, (a, b), merged = _merge_values(tidy, (a, b))
    prices = [
        np.nan if price is None else tx.as_positive(f"price of {which}", price)
        for which, price in (("A", price_a), ("B", price_b))
    ]
    metrics = _choose_metrics(tidy, metric, prices, rates)
    prepared = pr.prepare(
        tidy,
        by=_grouping_columns(tidy, by, {**a, **b}),
        metric=_fitted_metrics(tidy, metrics, rates),
        keep_all=keep_all,
    )
    pairs, agreed, caveats = match_groups(prepared.groups, a, b)
    if any(m.name in OF_POWER for m in prepared.metrics):
        caveats += check_scopes(prepared, pairs, mixed_scope)
    fitted = answers.Answers.of(prepared, answers.FitOptions(voltages=voltages, pool=pool))
    # Lowest and highest frequency (Hz) that each group may be asked for.
    measured = prepared.runs["freq_hz"].groupby(prepared.groups.codes)
    given = [f for f in asked if f is not None]
    low = np.minimum(measured.min().to_numpy(), min(given, default=np.inf))
    high = np.maximum(measured.max().to_numpy(), max(given, default=0.0))
    for group, steps in prepared.projected_steps.items():
        low[group], high[group] = min(low[group], steps[0]), max(high[group], steps[-1])
    curves = answers.CurveDraws.of(fitted, low, high, draws=draws, seed=seed)
    terms = ratios.Terms(rates, lifetime_hours, level)
    compared = ratios.compare_pairs(curves, prepared, pairs, asked, prices, terms)
    if "perf_per_dollar" in metrics:
        ratios.refuse_no_price(compared)
    table, break_even = ratios.comparison_tables(compared, metrics, prepared, agreed)
    caveats = [*prepared.caveats(), *merged, *caveats]
    caveats += ratios.comparison_caveats(table, compared, len(pairs))
    warn_caveats(caveats)
    return Comparison(
        table=table,
        break_even=break_even,
        by=tuple(agreed),
        a=dict(a),
        b=dict(b),
        level=level,
        electricity=electricity,
        lifetime_hours=lifetime_hours,
        draws=draws,
        seed=seed,
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
    )


def _compare_each(
    runs: pd.DataFrame,
    a: Mapping[str, Any],
    sides: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> Comparison:
    """Compare each of several sides with the baseline: one result with a key column more."""
    import pandas as pd

    tidy = gr.canonical(runs)
    if sides is None:
        sides = _other_values(tidy, a)
    if options["price_b"] is not None and len(sides) > 1:
        raise PpwError(
            "a price of side B holds for one side: for several, give a column price in the table"
        )
    found: list[Comparison] = []
    caveats, left_out = dict[str, None](), []
    with warnings.catch_warnings(action="ignore", category=CaveatWarning):
        for side in sides:
            try:
                found.append(compare(tidy, a, side, **options))
            except PpwError as error:
                # A side without work in common does not stand in the way of the others.
                left_out.append(error)
                caveats[f"{gr.words(side)} is left out: {error}"] = None
    if not found:
        raise left_out[0] if left_out else PpwError(f"no side beside {gr.words(a)}")
    columns = {column for one in found for column in one.b}
    key = columns.pop() if len(columns) == 1 else _SIDE
    labels = [str(one.b[key]) if key in one.b else gr.words(one.b) for one in found]
    for one, label in zip(found, labels, strict=True):
        one.table.insert(0, key, label)
        one.break_even.insert(0, key, label)
        for text in one.caveats:
            # Counts are those of one side, though another may have the same.
            general = all(text in other.caveats for other in found) and not text[0].isdigit()
            caveats[text if general else f"{label}: {text}"] = None
    warn_caveats(caveats)
    return replace(
        found[0],
        table=pd.concat([one.table for one in found], ignore_index=True),
        break_even=pd.concat([one.break_even for one in found], ignore_index=True),
        by=(key, *dict.fromkeys(column for one in found for column in one.by)),
        b={key: labels},
        caveats=tuple(caveats),
    )


def _other_values(runs: pd.DataFrame, a: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Sides with each other value of the column that tells the baseline."""
    asked = gr.selected_columns(runs, a, "to tell A from B")
    if len(asked) != 1:
        raise PpwError(f"A is told by {len(asked)} columns: name B as well")
    ((column, values),) = asked.items()
    own = gr.rows_where(runs, {column: values})
    return [{column: value} for value in runs[column][~own].dropna().unique()]


def _merge_values(
    runs: pd.DataFrame, sides: Sequence[Mapping[str, Any]]
) -> tuple[pd.DataFrame, list[dict[str, Any]], list[str]]:
    """Give each side one value a column: runs, sides, and caveats on several values made one.

    Raises `PpwError` where the sides share such a value, or the values are numbers.
    """
    asked = [gr.selected_columns(runs, side, "to tell A from B") for side in sides]
    found, caveats = [{c: values[0] for c, values in side.items()} for side in asked], []
    for which, side, other, one in zip("AB", asked, asked[::-1], found, strict=True):
        for column, values in side.items():
            if len(values) == 1:
                continue
            if column in schema.NUMERIC:
                raise PpwError(f"{which} has one {column}, and {len(values)} were given")
            if shared := {*map(str, values)} & {*map(str, other.get(column, ()))}:
                raise PpwError(f"A and B share {column} {', '.join(sorted(shared))}")
            rows = gr.rows_where(runs, {column: values})
            one[column] = " and ".join(map(str, values))
            runs = runs.assign(**{column: runs[column].mask(rows, one[column])})
            caveats.append(
                f"{which} is {len(values)} values of {column}: one curve goes through the runs of "
                f"{one[column]}, so it includes their differences"
            )
    return runs, found, caveats


def _grouping_columns(
    runs: pd.DataFrame, by: Sequence[str] | None, named: Iterable[str]
) -> list[str]:
    """Columns that tell groups apart: ``by`` or the identity columns, and those of A and B."""
    if not named:
        raise PpwError(
            "no column tells A from B: choose each side by a column and its value: "
            "a={'host': 'atom'}"
        )
    return list(dict.fromkeys([*(identity_columns(runs) if by is None else by), *named]))


def _choose_metrics(
    runs: pd.DataFrame, metric: str | Iterable[str] | None, prices: list[float], rates: obj.Rates
) -> list[str]:
    """Metrics to compare: those asked for, or all that the columns and prices answer."""
    if metric is not None:
        names = [m.name for m in mt.parse_metrics(metric)]
        if "cpi" in names:
            raise PpwError(
                "cpi is not comparable across hosts, whose instructions differ: compare time"
            )
        return names
    names = [m.name for m in mt.answerable(runs) if m.name in COMPARED]
    priced = not np.isnan(prices).any() or "price" in runs
    payable = rates.electricity is None or "perf_per_watt" in names
    if "perf_per_dollar" not in names and priced and payable and {"time", "throughput"} & {*names}:
        names.append("perf_per_dollar")
    if not names:
        raise PpwError("nothing to compare: no time_s, throughput_ops_s or power_w in the runs")
    return names


def _fitted_metrics(runs: pd.DataFrame, metrics: Sequence[str], rates: obj.Rates) -> list[str]:
    """Metrics to fit for those asked for: perf_per_dollar is replaced by time or throughput."""
    needed = [m for m in metrics if m != "perf_per_dollar"]
    # A price of electricity makes energy a cost, and power alone is no work that is done.
    if rates.electricity is not None:
        needed.append("perf_per_watt")
    if "perf_per_dollar" in metrics or {*needed} <= {"power"}:
        needed.append("throughput" if mt.columns_for(mt.METRICS["throughput"], runs) else "time")
    return [*dict.fromkeys(needed)]
