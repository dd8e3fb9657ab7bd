"""A comparison in words: which side needs how much more of what, and where the two are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.estimate import key_texts, shown, shown_interval, telling_keys
from ppw.selection import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from ppw.comparison import Comparison

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
    return [_answer(result), *(_sentence(result, m) for m in _metrics(result))]


def _metrics(result: Comparison) -> list[str]:
    return [*dict.fromkeys(result.table["metric"])]


def _rows(result: Comparison, metric: str) -> pd.DataFrame:
    return result.table[result.table["metric"] == metric]


def _answer(result: Comparison) -> str:
    said: dict[str, list[str]] = {}
    mixed: list[str] = []
    for metric in _metrics(result):
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


def header(result: Comparison) -> list[str]:
    """Names of `cells`."""
    interval = f"{result.level:.0%} interval"
    asked = ["metric", "A at", "B at", "A", "B", "A:B", f"{interval} of A:B", "P(A better)"]
    ties = ["equal with A at", interval] if _ties(result) else []
    return [*result.by, *asked, "better", *ties]


def _ties(result: Comparison) -> bool:
    """Whether A equals B as given anywhere between its frequencies."""
    return bool(result.table["tie_hz"].notna().any())


def cells(result: Comparison, most: int) -> list[list[str]]:
    """Rows of the table of ratios as they are printed."""
    ties = _ties(result)
    return [
        [
            *key_texts(result.by, row),
            row["metric"],
            shown(row["a_hz"], "Hz"),
            shown(row["b_hz"], "Hz"),
            shown(row["a"], row["unit"]),
            shown(row["b"], row["unit"]),
            shown(row["ratio"]),
            shown_interval(row["ratio"], row["lower"], row["upper"], "1"),
            f"{row['p_a_better']:.0%}",
            row["better"],
            *(_tie_cells(row) if ties else ()),
        ]
        for row in result.table.head(most).to_dict(orient="records")
    ]


def _tie_cells(row: Mapping[Any, Any]) -> list[str]:
    ends = row["tie_lower_hz"], row["tie_upper_hz"]
    return [shown(row["tie_hz"], "Hz"), shown_interval(row["tie_hz"], *ends, "Hz")]


def cost_header(result: Comparison) -> list[str]:
    """Names of `cost_cells`."""
    return [
        *result.by,
        "figure",
        "costs are the same at",
        f"{result.level:.0%} interval",
        "P(they are)",
    ]


def cost_cells(result: Comparison, most: int) -> list[list[str]]:
    """Rows of the table of equal costs as they are printed."""
    return [
        [
            *key_texts(result.by, row),
            row["what"],
            f"{shown(row['value'])} {row['unit']}",
            shown_interval(row["value"], row["lower"], row["upper"], "1"),
            f"{row['p_tie']:.0%}",
        ]
        for row in result.break_even.head(most).to_dict(orient="records")
    ]
