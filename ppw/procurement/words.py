"""The answer in words: the verdict's sentences and the cells of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.estimate import shown
from ppw.procurement.crossovers import COST
from ppw.procurement.sensitivities import YEARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppw.procurement.result import Procurement

FIGURE_WORDS = {
    "tco": "total cost",
    "energy": "energy",
    "carbon": "carbon",
    "perf_per_watt": "performance per watt",
    "perf_per_dollar": "performance per price",
    "work_per_cost": "work per total cost",
}
_MOST_TURNS = 2


def verdict(result: Procurement) -> list[str]:
    """What to buy, how sure that is, who is best by the other figures, what would change it."""
    said = [] if result.any_fits else [_nobody_fits(result)]
    said += [_cheapest(result), _servers(result)]
    said += _others(result) if len(result.candidates) > 1 else []
    said += _turns(result)
    if result.learn_next:
        said.append(f"What to learn next: {', then '.join(result.learn_next)}.")
    return said


def _nobody_fits(result: Procurement) -> str:
    why = "; ".join(
        f"{row['candidate']}: {row['why_not']}" for row in result.candidates.to_dict("records")
    )
    return f"No candidate fits the site ({why}); what follows is as if there were room."


def _cheapest(result: Procurement) -> str:
    row = result.figure(result.cheapest, "tco")
    ends = f"{money(row['lower'])} … {money(row['upper'])}"
    ends = "" if np.isnan(row["lower"]) else f" ({result.level:.0%}: {ends})"
    span = f"{result.years} years" if result.years > 1 else "one year"
    over = f"Over {span} {result.cheapest} costs"
    if len(result.candidates) == 1:
        return f"{over} {money(row['value'])} {result.currency}{ends}."
    known = not np.isnan([row["lower"], row["p_best"]]).any()
    sure = f", with probability {row['p_best']:.0%}" if known else ""
    cost = f"{money(row['value'])} {result.currency}"
    return f"{over} least: {cost}{ends}{sure}."


def _servers(result: Procurement) -> str:
    (row,) = result.candidates[result.candidates["candidate"] == result.cheapest].to_dict("records")
    by = "memory" if row["by_memory"] > row["by_rate"] else "rate"
    spare = f", {row['spare']:.0f} of them to spare" if row["spare"] else ""
    bought = f"{_count(row['servers'], 'server')} (as many as the {by} asks for{spare})"
    start = f"{money(row['at_start'])} {result.currency} at the start"
    text = f"It takes {bought} in {_count(row['racks'], 'rack')} and {start}"
    if result.runner_up is None:
        return f"{text}."
    costs = dict(zip(result.costs["candidate"], result.costs["tco"], strict=True))
    more = costs[result.runner_up] - costs[result.cheapest]
    return f"{text}; {result.runner_up}, the next, costs {money(more)} {result.currency} more."


def _others(result: Procurement) -> list[str]:
    """Who is best by each of the other figures."""
    parts = []
    for figure in ("perf_per_watt", "perf_per_dollar", "carbon"):
        rows = result.figures[result.figures["figure"] == figure]
        if rows["p_best"].isna().all():
            continue
        best = max(rows.to_dict("records"), key=lambda row: row["p_best"])
        parts.append(f"{FIGURE_WORDS[figure]}: {best['candidate']} ({best['p_best']:.0%})")
    return [f"Best by the other figures: {', '.join(parts)}."] if parts else []


def _turns(result: Procurement) -> list[str]:
    """The nearest ties of the total cost among what the market or the buyer decides."""
    if result.crossovers.empty:
        return []
    rows = result.crossovers[result.crossovers["criterion"] == COST]
    rows = rows[rows["key"].map(_in_buyers_hands).astype(bool)]
    nearest = rows.iloc[(rows["value"] / rows["now"] - 1).abs().argsort(kind="stable")]
    first = nearest.drop_duplicates("key").head(_MOST_TURNS)
    said = [turn(row) for row in first.to_dict("records")]
    return [f"What would change that: {'; '.join(said)}."] if said else []


def _in_buyers_hands(key: str) -> bool:
    return key.startswith(("site.", "costs.", "demand.")) or key.endswith(".price")


def turn(row: Mapping[Any, Any]) -> str:
    """Say one tie of the total cost."""
    side = "above" if row["value"] > row["now"] else "below"
    if row["key"] == YEARS:
        when = f"{row['value']:.0f} years in place of {row['now']:.0f}"
    else:
        when = (
            f"{row['what']} {side} {shown(row['value'], row['unit'])} "
            f"(now {shown(row['now'], row['unit'])})"
        )
    return f"{when}, where {row['beyond']} costs less"


def _count(number: float, what: str) -> str:
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"


def money(value: float) -> str:
    """Write money to the cent."""
    return "–" if np.isnan(value) else f"{value:,.2f}"
