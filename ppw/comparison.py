"""`compare`: how many times better one host does the same work than another, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppw import caveats as cv
from ppw import comparison_words as words
from ppw.answers import Answers
from ppw.arguments import as_frequency, as_positive, as_share
from ppw.curve_draws import CurveDraws
from ppw.curves import FitOptions
from ppw.duel_tables import (
    all_duels,
    asked_range,
    break_even_table,
    ratio_table,
    refuse_no_price,
)
from ppw.duels import Duel, Duels, duel_caveats
from ppw.errors import PpwError
from ppw.estimate import key_texts, telling_keys
from ppw.metrics import METRICS, answerable, columns_for, known_metrics
from ppw.names import plot_label
from ppw.objectives import Rates
from ppw.prepare import canonical, prepare
from ppw.result import (
    as_floats,
    frame_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.selection import columns_asked
from ppw.sides import check_scopes, columns_to_group, match
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes


COMPARED = ("time", "throughput", "power", "energy", "perf_per_watt", "perf_per_dollar")
_WATTS = ("power", "energy", "perf_per_watt")


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """A against B, group by group and metric by metric.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a pair of groups and metric: the columns ``by`` that they agree in, ``metric``,
        ``unit``, ``a_hz`` and ``b_hz``, the medians ``a`` and ``b``, their ``ratio`` A:B with
        ``lower`` and ``upper``, ``p_a_better``, ``better`` ("A", "B" or "undecided"), the
        frequency of A at which it ties with B as given (``tie_hz``, ``tie_lower_hz``,
        ``tie_upper_hz``, NaN where fewer than half of the draws tie; ``p_tie`` is how many), and
        ``measure_next`` where it is undecided.
    break_even : pandas.DataFrame
        One row a pair and kind: ``what`` ties the cost of a unit of work ("price of A",
        "electricity"), ``unit``, ``value``, ``lower``, ``upper``, ``p_tie`` and
        ``measure_next`` where it is undecided whether they tie.
    by : tuple of str
    a, b : mapping of str to value
        What tells the sides.
    level : float
    electricity, lifetime_hours : float or None
    draws, seed : int
    caveats : tuple of str
    """

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
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``table``."""
        return self.table.copy()

    def summary(self) -> str:
        """Show who is better, the ratios (at most 40 rows), equal costs, what to measure next."""
        lines = [*self.verdict(), text_table(self.header(), self.cells(40))]
        if len(self.table) > 40:
            lines.append(f"… {len(self.table) - 40} more rows: use --format csv or to_frame()")
        lines += ["", words.COSTS_ALIKE, text_table(self.tie_header(), self.tie_cells(20))]
        lines += [f"undecided: {text}" for text in self.undecided()]
        return summary_text(lines, self.caveats)

    def verdict(self) -> list[str]:
        """Say in a line which side is better in what, then metric by metric by how much."""
        return words.verdict(self)

    def undecided(self) -> list[str]:
        """Say what to measure next for each row that is not decided, the first ten."""
        return words.to_measure(self)

    def header(self) -> list[str]:
        """Names of `cells`."""
        return words.header(self)

    def cells(self, most: int) -> list[list[str]]:
        """Rows of ``table`` as they are printed."""
        return words.cells(self, most)

    def tie_header(self) -> list[str]:
        """Names of `tie_cells`."""
        return words.cost_header(self)

    def tie_cells(self, most: int) -> list[list[str]]:
        """Rows of ``break_even`` as they are printed."""
        return words.cost_cells(self, most)

    def to_json(self) -> str:
        """JSON document with ``schema_version``; one object a row in ``ratios``, ``break_even``."""
        body = {name: getattr(self, name) for name in _PLAIN}
        body |= {"ratios": records(self.table), "break_even": records(self.break_even)}
        return write_document("comparison", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Comparison:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "comparison")
        rest = {name: d[name] for name in _PLAIN}
        rest |= {"by": tuple(d["by"]), "caveats": tuple(d["caveats"])}
        table, ties = (
            as_floats(pd.DataFrame(d[n]), but=(*d["by"], *_NOT_FLOATS))
            for n in ("ratios", "break_even")
        )
        return cls(table=table, break_even=ties, input_digest=d["input_digest"], **rest)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ratios with their intervals, the first thirty, on a logarithmic axis."""
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        from ppw.plots import BAND, MEASURED, PROJECTED, new_axes

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


_PLAIN = (*("by", "a", "b", "level", "electricity", "lifetime_hours", "draws", "seed", "caveats"),)
_NOT_FLOATS = ("metric", "unit", "better", "measure_next", "what")


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
