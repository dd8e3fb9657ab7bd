"""`compare`: how many times better one host does the same work than another, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements import identity_columns
from ppw.decision.objectives import Rates
from ppw.decision.ratios import (
    Duel,
    Duels,
    Pair,
    all_duels,
    asked_range,
    break_even_table,
    duel_caveats,
    ratio_table,
    refuse_no_price,
)
from ppw.errors import PpwError
from ppw.projection.answers import Answers, CurveDraws
from ppw.projection.options import FitOptions
from ppw.results import caveats as cv
from ppw.results.arguments import as_frequency, as_positive, as_share
from ppw.results.result import Result, Table, frame_digest
from ppw.results.text import (
    key_texts,
    plot_label,
    shown,
    shown_interval,
    telling_keys,
)
from ppw.runs.caveats import is_known_source
from ppw.runs.groups import canonical, columns_asked, rows_where, words
from ppw.runs.metrics import METRICS, answerable, columns_for, known_metrics
from ppw.runs.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ppw.runs.groups import Groups
    from ppw.runs.prepare import Prepared

    Mask = NDArray[np.bool_]
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes


# The two sides of a comparison: which groups are A and B, who is whose like, whose watts match.


# What a sensor sees, by how its name begins; the first that fits.
_SCOPES = (
    ("rapl:dram", "memory"),
    ("rapl:core", "cores"),
    ("rapl:pp0", "cores"),
    ("rapl:psys", "platform"),
    ("rapl", "package"),
    ("nvml", "graphics card"),
    ("meter", "wall"),
    ("wall", "wall"),
    ("pdu", "wall"),
    ("ipmi", "wall"),
    ("redfish", "wall"),
)


class Matched(NamedTuple):
    """Pairs, the columns that they agree in, and what else tells the sides apart."""

    pairs: list[Pair]
    by: list[str]
    caveats: list[str]


def columns_to_group(
    runs: pd.DataFrame, by: Sequence[str] | None, *sides: Mapping[str, Any]
) -> list[str]:
    """Columns that tell groups apart: ``by`` or the identity columns, and those that sides name."""
    columns = list(identity_columns(runs) if by is None else by)
    named = dict.fromkeys(c for side in sides for c in side)
    if not named:
        raise PpwError("nothing tells A from B: name a column of each, such as a={'host': 'atom'}")
    return columns + [c for c in named if c not in columns]


def match(groups: Groups, a: Mapping[str, Any], b: Mapping[str, Any]) -> Matched:
    """Pair the groups of A with those of B by the columns that neither names.

    A column that has one value on either side, and another on each, describes the sides and does
    not count: an Atom has two cores and a Xeon six.
    """
    sides = [np.flatnonzero(rows_where(groups.keys, side)) for side in (a, b)]
    rest = [c for c in groups.by if c not in a and c not in b]
    described = [c for c in rest if _describes(groups.keys[c], *sides)]
    by = [c for c in rest if c not in described]
    of_a, of_b = ({_key(groups, by, g): int(g) for g in side} for side in sides)
    for side, found, which in zip(sides, (of_a, of_b), "AB", strict=True):
        if len(found) < len(side):
            raise PpwError(_several(groups, side, which, by))
    pairs = [Pair(of_a[key], of_b[key]) for key in of_a if key in of_b]
    if not pairs:
        raise PpwError(_unlike(groups, by, *sides))
    return Matched(pairs, by, _said(groups, described, by, sides, len(pairs)))


def _describes(column: pd.Series[Any], a: Any, b: Any) -> bool:
    of_a, of_b = (set(map(str, column.iloc[side])) for side in (a, b))
    return len(of_a) == len(of_b) == 1 and of_a != of_b


def _key(groups: Groups, by: Sequence[str], group: Any) -> tuple[str, ...]:
    return tuple(str(groups.keys[c].iloc[group]) for c in by)


def _several(groups: Groups, side: Any, which: str, by: Sequence[str]) -> str:
    keys = groups.keys.iloc[side]
    varying = [c for c in groups.by if c not in by and len(set(map(str, keys[c]))) > 1]
    return (
        f"{which} is several groups of the same {', '.join(by) or 'kind'}, which differ in "
        f"{', '.join(varying)}: name one of them for {which} as well"
    )


def _unlike(groups: Groups, by: Sequence[str], a: Any, b: Any) -> str:
    differ = []
    for column in by:
        of_a, of_b = ([*dict.fromkeys(map(str, groups.keys[column].iloc[s]))] for s in (a, b))
        if not set(of_a) & set(of_b):
            differ.append(f"{column} is {', '.join(of_a[:4])} in A and {', '.join(of_b[:4])} in B")
    why = "; ".join(differ) or f"no combination of {', '.join(by)} is in both"
    return f"no group of A has its like in B: {why}: name the groups, or leave columns out with by"


def _said(
    groups: Groups, described: Sequence[str], by: Sequence[str], sides: Sequence[Any], pairs: int
) -> list[str]:
    caveats = []
    for column in described:
        of_a, of_b = (groups.keys[column].iloc[side[0]] for side in sides)
        if column != "family":
            caveats.append(
                f"A and B also differ in {column}: {_value(of_a)} against {_value(of_b)}"
            )
    alone = [f"{len(s) - pairs} of {w}" for s, w in zip(sides, "AB", strict=True) if len(s) > pairs]
    if alone:
        caveats.append(f"groups without their like left out: {', '.join(alone)}")
    return caveats


def _value(value: object) -> str:
    return shown(float(value)) if isinstance(value, (int, float)) else str(value)


def scope_of(source: object) -> str | None:
    """What a power source sees, such as "package" or "wall"; None where that is not known."""
    if not is_known_source(source):
        return None
    # Calibrated watts are of what they were calibrated to: "rapl:package→meter:wt310e".
    name = str(source).rpartition("→")[2].strip().lower()
    return next((scope for begins, scope in _SCOPES if name.startswith(begins)), None)


def check_scopes(prepared: Prepared, pairs: Sequence[Pair], mixed: bool) -> list[str]:
    """Refuse watts of different scope, or say so in a caveat where ``mixed`` was asked for."""
    if "power_source" not in prepared.runs:
        return []
    sides = [_sources(prepared, [pair[i] for pair in pairs]) for i in (0, 1)]
    scopes = [{scope_of(s) for s in side} - {None} for side in sides]
    if len(scopes[0] | scopes[1]) < 2:
        return []
    a, b = (
        f"{' and '.join(sorted(map(str, scope)))} ({', '.join(sorted(source))})"
        for scope, source in zip(scopes, sides, strict=True)
    )
    if mixed:
        return [f"mixed scope, as asked for: the watts of A are of {a}, those of B of {b}"]
    raise PpwError(
        f"the watts of A are of {a}, those of B of {b}: not comparable; measure both alike, leave "
        "watts out with --metric time or throughput, or ask for --mixed-scope"
    )


def _sources(prepared: Prepared, groups: Sequence[int]) -> set[str]:
    rows = np.isin(prepared.groups.codes, groups)
    return set(prepared.runs["power_source"][rows].dropna().astype(str))


# A comparison in words: which side needs how much more of what, and where the two are alike.


UNDECIDED = "undecided"
# What a side needs, of which less is better, and what it has.
_NEEDS = {"time": "the time", "power": "the watts", "energy": "the energy per run"}
_HAS = {
    "throughput": "the throughput",
    "perf_per_watt": "the performance per watt",
    "perf_per_dollar": "the performance per price",
}
_MOST_TO_MEASURE = 10
COSTS_ALIKE = "Where the same work costs the same on A and on B, with what is given for the rest:"


def verdict(result: Comparison) -> list[str]:
    """Say in a line which side is better in what, then metric by metric by how much."""
    return [_answer(result), *(_sentence(result, m) for m in _answered_metrics(result))]


def _answered_metrics(result: Comparison) -> list[str]:
    return [*dict.fromkeys(result.table["metric"])]


def _rows(result: Comparison, metric: str) -> pd.DataFrame:
    return result.table[result.table["metric"] == metric]


def _answer(result: Comparison) -> str:
    said: dict[str, list[str]] = {}
    mixed: list[str] = []
    for metric in _answered_metrics(result):
        name = metric.replace("_", " ")
        found = set(_rows(result, metric)["better"])
        if len(found) == 1:
            said.setdefault(found.pop(), []).append(name)
        else:
            mixed.append(name)
    parts = [f"{side} is better in {_listed(said[side])}" for side in "AB" if side in said]
    if UNDECIDED in said:
        parts.append(f"the two cannot be told apart in {_listed(said[UNDECIDED])}")
    if mixed:
        parts.append(f"which is better in {_listed(mixed)} depends on the group")
    sides = f"A is {words(result.a)}, B is {words(result.b)}{_clocks(result.table)}"
    return f"{sides}: {'; '.join(parts)}."


def _clocks(table: pd.DataFrame) -> str:
    """Say at which clock the sides are, where it is one for all groups."""
    clocks = [table[column].unique() for column in ("a_hz", "b_hz")]
    if any(len(one) > 1 for one in clocks):
        return ""
    a, b = (shown(float(one[0]), "Hz") for one in clocks)
    return f", both at {a}" if a == b else f", at {a} and {b}"


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _sentence(result: Comparison, metric: str) -> str:
    rows = _rows(result, metric)
    name = metric.replace("_", " ")
    if len(rows) > 1:
        mean = float(np.exp(np.log(rows["ratio"]).mean()))
        return f"{name}: {_counted(rows)}; {_times(metric, mean)} (geometric mean)."
    row = rows.iloc[0]
    ends = row["lower"], row["upper"]
    if row["better"] == UNDECIDED:
        between = shown_interval(row["ratio"], *ends, "1")
        return (
            f"{name}: cannot be told apart: A:B is {shown(row['ratio'])} "
            f"({result.level:.0%} interval {between}); P(A better) = {row['p_a_better']:.0%}."
        )
    return f"{name}: {_times(metric, row['ratio'], ends, result.level)}."


def _counted(rows: pd.DataFrame) -> str:
    """Say in how many groups each side is better."""
    counts = {side: int((rows["better"] == side).sum()) for side in ("A", "B")}
    told = [f"{side} in {count}" for side, count in counts.items() if count]
    if told:
        told[0] = told[0].replace(" in ", " is better in ", 1)
    if undecided := len(rows) - sum(counts.values()):
        told.append(f"undecided in {undecided}")
    return f"{', '.join(told)} of {len(rows)} groups"


def _times(
    metric: str, ratio: float, ends: tuple[float, float] | None = None, level: float = 0.0
) -> str:
    """Say which side needs or gives how many times as much; ``ratio`` is A:B."""
    more, less = ("A", "B") if ratio >= 1 else ("B", "A")
    verb = "needs" if metric in _NEEDS else "has"
    times = ratio if ratio >= 1 else 1 / ratio
    text = f"{more} {verb} {shown(times)} times {(_NEEDS | _HAS)[metric]} of {less}"
    if ends is None:
        return text
    low, high = ends if ratio >= 1 else (1 / ends[1], 1 / ends[0])
    return f"{text} ({level:.0%} interval {shown_interval(times, low, high, '1')})"


def to_measure(result: Comparison) -> list[str]:
    """Say what to measure next for each row that is not decided, the first ten."""
    rows = [*_open_rows(result)][:_MOST_TO_MEASURE]
    one = len(result.table.drop_duplicates([*result.by])) == 1 if result.by else True
    keys = [] if one else telling_keys(result.by, rows)
    return [
        f"{', '.join([*key_texts(keys, row), row['what']])}: measure {row['measure_next']}"
        for row in rows
    ]


def _open_rows(result: Comparison) -> Iterator[Mapping[Any, Any]]:
    of_metrics = result.table.assign(what=result.table["metric"].str.replace("_", " "))
    of_ties = result.break_even.assign(what="equal cost by " + result.break_even["what"])
    for table in (of_metrics, of_ties):
        yield from (row for row in table.to_dict(orient="records") if row["measure_next"])


COMPARED = ("time", "throughput", "power", "energy", "perf_per_watt", "perf_per_dollar")
_WATTS = ("power", "energy", "perf_per_watt")


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison(Result):
    """A against B, group by group and metric by metric.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a pair of groups and metric.
    break_even : pandas.DataFrame
        One row a pair and kind of cost.
    by : tuple of str
        Columns that the pairs agree in.
    a, b : mapping of str to value
        Columns and values that tell each side.
    level : float
        Probability of the intervals.
    electricity, lifetime_hours : float or None
    draws, seed : int
    caveats : tuple of str
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
            show={"lower": lambda r: shown_interval(r["ratio"], r["lower"], r["upper"], "1")},
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
            show={"value": lambda row: f"{shown(row['value'])} {row['unit']}"},
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
        """Say in a line which side is better in what, then metric by metric by how much."""
        return verdict(self)

    def undecided(self) -> list[str]:
        """Say what to measure next for each row that is not decided, the first ten."""
        return to_measure(self)

    def text_parts(self) -> list[str]:
        """Return the verdict, the ratios, equal costs, and what to measure next."""
        ratios, costs = self.printed_tables()
        open_rows = [f"undecided: {text}" for text in self.undecided()]
        return [*self.verdict(), *ratios.lines(), "", COSTS_ALIKE, *costs.lines(), *open_rows]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ratios with their intervals, the first thirty, on a logarithmic axis."""
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        from ppw.results.axes import BAND, MEASURED, PROJECTED, new_axes

        axes, rows = new_axes(ax), self.table.head(30)
        place = np.arange(len(rows))
        axes.hlines(place, rows["lower"], rows["upper"], color=BAND, lw=5)
        axes.plot(rows["ratio"], place, "D", color=PROJECTED, ms=5)
        axes.axvline(1.0, color=MEASURED, lw=0.8)
        named = rows.to_dict("records")
        keys = telling_keys([*self.by, "metric"], named)
        names = [plot_label(", ".join(key_texts(keys, row))) for row in named]
        axes.set_yticks(place, names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        within_a_decade = np.nanmax(rows["upper"]) < 10 * np.nanmin(rows["lower"])
        axes.xaxis.set_major_locator(
            MaxNLocator(6) if within_a_decade else LogLocator(subs=(1.0, 2.0, 5.0))
        )
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"A:B, {self.level:.0%} interval")
        axes.set_ylabel("group and metric")
        return axes


def compare(
    runs: pd.DataFrame,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
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
        A runs table (`ppw.read_runs`), or a frame with columns such as ``freq_ghz``, ``time_ms``.
    a, b : mapping of str to value
        Column and value that tell each side, such as ``{"host": "atom"}``. Groups are paired by
        the other identity columns; those that have one value on either side describe the sides.
    freq_a, freq_b : float or str, optional
        Frequency of each side, in Hz or with a unit; by default each group's highest measured. A
        host measured at one frequency is compared there.
    metric : str or several, optional
        Of "time", "throughput", "power", "energy", "perf_per_watt" and, with prices,
        "perf_per_dollar"; by default all that the columns allow.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    price_a, price_b : float, optional
        Of one host; by default the mean of the column ``price``.
    electricity : float, optional
        Currency a kWh; takes ``lifetime_hours``. perf_per_dollar then is work over
        price·T/lifetime + energy·electricity, as `ppw.best_frequency`.
    lifetime_hours : float, optional
        Hours of work over which a price is spread; alone, for the electricity price that ties.
    mixed_scope : bool
        Compare watts of different scope, such as package and wall, and say so in a caveat.
    voltages, pool, level, keep_all
        As for `ppw.project_runs`; intervals are of the curves.
    draws, seed : int
        As for `ppw.best_frequency`.

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

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("interval level", level)
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, Mapping):
            raise PpwError(f"side {name} {side!r}: say by a column, as in {{'host': {side!r}}}")
    asked = [None if f is None else as_frequency(f) for f in (freq_a, freq_b)]
    if dict(a) == dict(b) and asked[0] == asked[1]:
        raise PpwError("A and B are the same: name another side or another frequency")
    rates = _rates(electricity, lifetime_hours)
    tidy = canonical(runs)
    a, b = (_of_columns(tidy, side) for side in (a, b))
    prices = [
        _known_price(name, p) for name, p in (("price of A", price_a), ("price of B", price_b))
    ]
    metrics = _metrics(tidy, metric, prices, rates)
    prepared = prepare(
        runs,
        by=columns_to_group(tidy, by, a, b),
        metric=_fitted(tidy, metrics, rates),
        keep_all=keep_all,
    )
    matched = match(prepared.groups, a, b)
    watts = any(METRICS["power"] is m or m.name in _WATTS for m in prepared.metrics)
    caveats = matched.caveats
    caveats += check_scopes(prepared, matched.pairs, mixed_scope) if watts else []
    answers = Answers.of(prepared, FitOptions(voltages=voltages, pool=pool))
    curves = CurveDraws.of(answers, *asked_range(prepared, asked), draws=draws, seed=seed)
    duels = Duels(curves, rates, lifetime_hours, level)
    made = all_duels(duels, prepared, matched.pairs, asked, prices)
    if "perf_per_dollar" in metrics:
        refuse_no_price(made)
    table = ratio_table(made, metrics, prepared, matched.by, rates)
    caveats = [*prepared.caveats(), *caveats, *duel_caveats(table, made), *_one_price(made)]
    cv.warn(caveats)
    return Comparison(
        table=table,
        break_even=break_even_table(made, prepared, matched.by),
        by=tuple(matched.by),
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


def _one_price(made: Sequence[Duel]) -> list[str]:
    """Say that one price alone makes no performance per price."""
    known = ~np.isnan([(duel.a.price, duel.b.price) for duel in made])
    return [
        f"no price of {side}: performance per price is not compared; give --price-{side.lower()}"
        for side, own, other in (("A", *known.T), ("B", *known.T[::-1]))
        if (other & ~own).any()
    ]


def _of_columns(runs: pd.DataFrame, side: Mapping[str, Any]) -> dict[str, Any]:
    """A side by columns of the table; it has one value of each."""
    asked = columns_asked(runs, side, "to tell A from B")
    for column, values in asked.items():
        if len(values) > 1:
            raise PpwError(f"a side has one {column}, and {len(values)} were given")
    return {column: values[0] for column, values in asked.items()}


def _rates(electricity: float | None, lifetime_hours: float | None) -> Rates:
    if electricity is not None:
        return Rates.checked(electricity, lifetime_hours)
    if lifetime_hours is not None:
        as_positive("lifetime (hours)", lifetime_hours)
    return Rates()


def _known_price(name: str, price: float | None) -> float:
    return float("nan") if price is None else as_positive(name, price)


def _metrics(
    runs: pd.DataFrame, metric: str | Iterable[str] | None, prices: Sequence[float], rates: Rates
) -> list[str]:
    """Metrics to compare: those asked for, or all that the columns and prices answer."""
    if metric is not None:
        names = [m.name for m in known_metrics(metric)]
        if "cpi" in names:
            raise PpwError(
                "cpi is not comparable across hosts, whose instructions differ: compare time"
            )
        return names
    names = [m.name for m in answerable(runs) if m.name in COMPARED]
    priced = not np.isnan(prices).any() or "price" in runs
    payable = rates.electricity is None or "perf_per_watt" in names
    if "perf_per_dollar" not in names and priced and payable and {"time", "throughput"} & {*names}:
        names.append("perf_per_dollar")
    if not names:
        raise PpwError("nothing to compare: no time_s, throughput_ops_s or power_w in the runs")
    return names


def _fitted(runs: pd.DataFrame, metrics: Sequence[str], rates: Rates) -> list[str]:
    """Metrics whose fits answer all that is asked; a price is no part of a fit."""
    needed = [m for m in metrics if m != "perf_per_dollar"]
    if rates.electricity is not None:
        needed.append("perf_per_watt")
    if "perf_per_dollar" in metrics or {*needed} <= {"power"}:
        needed.append("throughput" if columns_for(METRICS["throughput"], runs) else "time")
    return [*dict.fromkeys(needed)]
