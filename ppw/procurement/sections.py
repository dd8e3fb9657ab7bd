"""The printed tables of the answer, for the terminal and the page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ppw.estimate import shown, shown_interval
from ppw.procurement.sensitivities import YEARS
from ppw.procurement.words import FIGURE_WORDS, money

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from ppw.procurement.result import Procurement

_ADDING_UP = {"tco": 2, "energy": 1, "carbon": 1}
# These carry their unit, with a prefix; of all others it stands in the name.
_WITH_PREFIX = ("W", "B")
_SIZES = ((1e9, "10⁹ "), (1e6, "million "), (1e5, "thousand "))


class Section(NamedTuple):
    """One table: the first ``keys`` columns are names; ``note`` says what cannot be seen."""

    title: str
    header: list[str]
    rows: list[list[str]]
    keys: int
    note: str = ""


def sections(result: Procurement, most: int | None = None) -> list[Section]:
    """All tables but that of the inputs, each with at most ``most`` rows where there are many."""
    names = list(result.candidates["candidate"])
    made = [Section("What to buy", ["figure", *names], _figure_rows(result), 1), *_parts(result)]
    made.append(_moves(result, most))
    if len(result.crossovers):
        made.append(_turns(result, most))
    return made


def input_section(result: Procurement) -> Section:
    """Every figure that the answer rests on, with who says so."""
    rows = [
        [
            _named(row),
            row["label"],
            row["source"],
            _number(row["value"], row["unit"]),
            shown_interval(row["value"], row["low"], row["high"], row["unit"]),
        ]
        for row in result.inputs.to_dict(orient="records")
    ]
    header = ["figure", "who says so", "source", "value", "range"]
    return Section("What it rests on", header, rows, 3)


def _parts(result: Procurement) -> Iterator[Section]:
    """Money, energy and carbon: one row a part, one column a candidate; they add up."""
    for title, table, unit, decimals in (
        ("Money, present value", result.costs, result.currency, 2),
        ("Energy", result.energy, "kWh", 1),
        ("Carbon", result.carbon, "kg CO2e", 1),
    ):
        if table.drop(columns="candidate").notna().any(axis=None):
            header = [f"part ({unit})", *table["candidate"]]
            yield Section(title, header, _part_rows(table, decimals), 1)


def _moves(result: Procurement, most: int | None) -> Section:
    rows = [
        [
            _named(row),
            row["range"],
            _cheapest_then(row),
            _number(row["low"], row["unit"]),
            _number(row["high"], row["unit"]),
            shown_interval(row["apart_at_low"], row["apart_at_low"], row["apart_at_high"], "1"),
        ]
        for row in _first(result.sensitivities, most)
    ]
    header, note = ["figure moved", "range", "cheapest then", "from", "to"], "Cost at either end."
    what = "cost" if result.runner_up is None else "lead"
    if result.runner_up is not None:
        note = f"Lead: what {result.runner_up} costs more than {result.cheapest}, at either end."
    note += _cut(result.sensitivities, most)
    header.append(f"{what} ({result.currency})")
    return Section("What moves the answer", header, rows, 3, note)


def _turns(result: Procurement, most: int | None) -> Section:
    rows = [
        [
            _named(row),
            f"{row['criterion']}, {row['rival']}",
            _rival_better(row),
            _number(row["now"], row["unit"]),
            _number(row["value"], row["unit"]),
            shown_interval(row["value"], row["lower"], row["upper"], row["unit"]),
        ]
        for row in _first(result.crossovers, most)
    ]
    header = ["figure", "alike in", "rival better", "now", "tie"]
    note = (
        f"Where {result.cheapest} and a rival are alike; without an interval all else is at its "
        f"value.{_cut(result.crossovers, most)}"
    )
    return Section(
        "Where the answer turns", [*header, f"{result.level:.0%} interval"], rows, 3, note
    )


def _first(table: pd.DataFrame, most: int | None) -> list[dict[Any, Any]]:
    rows = table if most is None else table.head(most)
    return rows.to_dict(orient="records")


def _cut(table: pd.DataFrame, most: int | None) -> str:
    more = 0 if most is None else len(table) - most
    return f" {more} more rows are in the JSON." if more > 0 else ""


def _named(row: Mapping[Any, Any]) -> str:
    """Name of a figure, with its unit where numbers do not carry it."""
    bare = row["unit"] == "1" or row["unit"] in _WITH_PREFIX
    return str(row["what"]) if bare else f"{row['what']} ({row['unit']})"


def _rival_better(row: Mapping[Any, Any]) -> str:
    """Side of a tie on which the rival is the better one."""
    if row["key"] == YEARS:
        return "then"
    up = row["value"] > row["now"]
    return "above" if up == (row["beyond"] == row["rival"]) else "below"


def _number(value: float, unit: str) -> str:
    return shown(value, unit if unit in _WITH_PREFIX else "1")


def _figure_rows(result: Procurement) -> list[list[str]]:
    """What to buy, and every figure with its interval and probability, one column a candidate."""
    table = result.candidates.to_dict("records")
    level = f"  {result.level:.0%} interval"
    rows = [
        ["servers", *(f"{r['servers']:.0f}" for r in table)],
        [level, *(_whole_interval(r, "servers") for r in table)],
        ["racks", *(f"{r['racks']:.0f}" for r in table)],
        ["fits the site", *("yes" if r["fits"] else "no" for r in table)],
        ["peak power (kW)", *(shown(r["peak_power_w"] / 1000) for r in table)],
        ["mean load", *(f"{r['mean_load']:.0%}" for r in table)],
        [f"paid at the start ({result.currency})", *(money(r["at_start"]) for r in table)],
    ]
    for figure, group in result.figures.groupby("figure", sort=False):
        size, times = (1.0, "") if figure in _ADDING_UP else _scale(group["value"])
        numbers = ["value", "lower", "upper"]
        found = group.assign(**{n: group[n] / size for n in numbers}).to_dict("records")
        name = f"{FIGURE_WORDS[str(figure)]} ({times}{found[0]['unit']})"
        rows.append([name, *(_value(r) for r in found)])
        rows.append(
            [level, *(shown_interval(r["value"], r["lower"], r["upper"], "1") for r in found)]
        )
        if len(found) > 1:
            rows.append(["  P(best)", *(_share(r["p_best"]) for r in found)])
    if len(table) > 1:
        rows.append(["P(no other beats it)", *(_share(r["p_on_front"]) for r in table)])
    return rows


def _scale(values: pd.Series[float]) -> tuple[float, str]:
    """What to divide large values by, and its word."""
    most = float(values.max())
    return next(((size, word) for size, word in _SIZES if most >= size), (1.0, ""))


def _whole_interval(row: Mapping[Any, Any], name: str) -> str:
    return f"{np.floor(row[f'{name}_lower']):.0f} … {np.ceil(row[f'{name}_upper']):.0f}"


def _value(row: Mapping[Any, Any]) -> str:
    if row["figure"] not in _ADDING_UP or np.isnan(row["value"]):
        return shown(row["value"])
    return f"{row['value']:,.{_ADDING_UP[row['figure']]}f}"


def _share(share: float) -> str:
    return "–" if np.isnan(share) else f"{share:.0%}"


def _part_rows(table: pd.DataFrame, decimals: int) -> list[list[str]]:
    """One row a part and one column a candidate; parts that are 0 everywhere are left out."""
    parts = [c for c in table.columns if c != "candidate"]
    return [
        [_part_name(part), *("–" if np.isnan(v) else f"{v:,.{decimals}f}" for v in table[part])]
        for part in parts
        if part == parts[-1] or not (table[part] == 0).all()
    ]


def _part_name(part: str) -> str:
    plain = part.removesuffix("_kwh").removesuffix("_kg").replace("_", " ")
    return {"tco": "total cost", "facility": "cooling and supply"}.get(plain, plain)


def _cheapest_then(row: Mapping[Any, Any]) -> str:
    low, high = row["cheapest_at_low"], row["cheapest_at_high"]
    return low if low == high else f"{low} … {high}"
