"""The tables of a comparison: every pair drawn, its ratios and its ties by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppw.duels import unit_of_price
from ppw.errors import PpwError
from ppw.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppw.duels import Duel, Duels
    from ppw.objectives import Rates
    from ppw.prepare import Prepared
    from ppw.sides import Pair


def asked_range(prepared: Prepared, asked: Sequence[float | None]) -> tuple[Any, Any]:
    """Lowest and highest frequency (Hz) that each group may be asked for."""
    measured = prepared.runs["freq_hz"].groupby(prepared.groups.codes)
    low, high = measured.min().to_numpy(), measured.max().to_numpy()
    for frequency in asked:
        if frequency is not None:
            low, high = np.minimum(low, frequency), np.maximum(high, frequency)
    return low, high


def all_duels(
    duels: Duels,
    prepared: Prepared,
    pairs: Sequence[Pair],
    asked: Sequence[float | None],
    prices: Sequence[float],
) -> list[Duel]:
    """Draw every pair that was measured in all that is compared; NaN prices are the column's."""
    made = []
    for pair in pairs:
        if not duels.able(pair):
            continue
        at = [duels.highest(g) if f is None else f for g, f in zip(pair, asked, strict=True)]
        paid = [
            _price(prepared, g) if np.isnan(p) else p for g, p in zip(pair, prices, strict=True)
        ]
        made.append(duels.of(pair, (at[0], at[1]), (paid[0], paid[1])))
    if not made:
        raise PpwError("no pair of groups was measured in all that is compared: ask for fewer")
    return made


def _price(prepared: Prepared, group: int) -> float:
    """Mean of the column ``price`` over a group; NaN where not known."""
    if "price" not in prepared.runs:
        return float("nan")
    rows = prepared.groups.codes == group
    price = float(prepared.runs["price"].to_numpy(dtype=np.float64)[rows].mean())
    return price if price > 0 else float("nan")


def refuse_no_price(duels: Sequence[Duel]) -> None:
    """Raise `PpwError` where a side has no price."""
    for duel in duels:
        for side in (duel.a, duel.b):
            if np.isnan(side.price):
                raise PpwError(
                    f"no price of {side.name}: perf_per_dollar takes a column price above 0, or "
                    f"--price-{side.name.lower()}"
                )


def ratio_table(
    duels: Sequence[Duel],
    metrics: Sequence[str],
    prepared: Prepared,
    by: Sequence[str],
    rates: Rates,
) -> pd.DataFrame:
    """One row a pair and metric, as `ppw.comparison.Comparison.table`."""
    rows = [
        {**_named(prepared, by, duel), **duel.ratio(metric)} for duel in duels for metric in metrics
    ]
    units = {m: METRICS[m].unit for m in metrics} | {"perf_per_dollar": unit_of_price(rates)}
    table = pd.DataFrame(rows)
    table.insert(len(by) + 1, "unit", table["metric"].map(units))
    return table


def break_even_table(duels: Sequence[Duel], prepared: Prepared, by: Sequence[str]) -> pd.DataFrame:
    """One row a pair and kind of tie, as `ppw.comparison.Comparison.break_even`."""
    rows = [{**_named(prepared, by, duel), **row} for duel in duels for row in duel.break_even()]
    return pd.DataFrame(rows)


def _named(prepared: Prepared, by: Sequence[str], duel: Duel) -> dict[str, Any]:
    keys = prepared.groups.keys.iloc[duel.a.group]
    return {column: keys[column] for column in by}
