"""The checks of single runs as expressions: what `ppw.checks` finds row by row."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from ppw.checks.check import ACHIEVED, BELOW_IDLE, ENERGY, KNOWN_IDLE, NO_WATTS
from ppw.checks.digits import BINARY, MOST_DIGITS
from ppw.checks.readings import ACHIEVED_SHARE, ENERGY_FACTOR, IDLE_SCATTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ibis.expr.types as ir


def wrong_alone(columns: Mapping[str, ir.NumericValue]) -> dict[int, ir.BooleanValue]:
    """Tell by bit what is wrong with a run by itself, where the columns are there."""
    found = {}
    if {"energy_j", "power_w", "time_s"} <= columns.keys():
        found[ENERGY] = _energy_off(columns)
    if "freq_achieved_hz" in columns:
        share = columns["freq_achieved_hz"] / columns["freq_hz"] - 1
        found[ACHIEVED] = share.abs() > ACHIEVED_SHARE
    if "power_w" in columns:
        found[NO_WATTS] = columns["power_w"] <= 0
    if {"power_w", "idle_power_w"} <= columns.keys():
        power, idle = columns["power_w"], columns["idle_power_w"]
        found[KNOWN_IDLE] = idle > 0
        found[BELOW_IDLE] = (idle > 0) & (power <= (1 - IDLE_SCATTER) * idle)
    return found


def _energy_off(columns: Mapping[str, ir.NumericValue]) -> ir.BooleanValue:
    """Energy many times power by time, whether or not one has the idle power taken off."""
    energy, power, time = (columns[c] for c in ("energy_j", "power_w", "time_s"))
    products = [power * time]
    if "idle_power_w" in columns:
        idle = columns["idle_power_w"].fill_null(0)
        products += [(power + idle) * time, (power - idle) * time]
    # Unknown where a product is not above zero, and then no reason to doubt.
    off = [
        (product <= 0) | (energy > ENERGY_FACTOR * product) | (energy * ENERGY_FACTOR < product)
        for product in products
    ]
    return (products[0] > 0) & reduce(lambda a, b: a & b, off)


def with_decades(table: ir.Table, columns: Sequence[str]) -> ir.Table:
    """Add what `recorded_step` takes of each column: its power of ten, and the value over that."""
    sized = table.mutate(
        **{_decade(name): _measurable(table[name]).log10().floor() for name in columns}
    )
    return sized.mutate(
        **{
            _mantissa(name): _measurable(sized[name]) / _power(sized[_decade(name)])
            for name in columns
        }
    )


def _measurable(value: ir.NumericValue) -> ir.NumericValue:
    """Size of a number that has digits: 0 has none, nor has what could not be read."""
    size = value.abs()
    return ((size > 0) & (size < float("inf"))).ifelse(size, None)


def recorded_step(table: ir.Table, column: str) -> ir.NumericValue:
    """Step of the last decimal digit of a number: `ppw.checks.digits.recorded_step`.

    ``table`` is of `with_decades`, so that powers, which cost most, are computed twice a number and
    not for each of its digits.
    """
    digits: Any = MOST_DIGITS
    for fewer in range(MOST_DIGITS - 1, 0, -1):
        scaled = table[_mantissa(column)] * 10.0 ** (fewer - 1)
        whole = (scaled - scaled.round()).abs() <= BINARY * scaled
        digits = whole.ifelse(fewer, digits)
    return _power(table[_decade(column)] - (digits - 1))


def _decade(column: str) -> str:
    return f"{column}__decade"


def _mantissa(column: str) -> str:
    return f"{column}__mantissa"


def _power(exponent: ir.NumericValue) -> ir.NumericValue:
    import ibis

    return ibis.literal(10.0) ** exponent
