"""A projected number together with how sure it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from ppw.names import shown_name
from ppw.result import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Estimate(float):
    """A number that carries its unit, prediction interval and limit; arithmetic drops them.

    Attributes
    ----------
    unit : str
    lower, upper : float or None
        Prediction interval for the measured mean at the level of the result; None where there
        is none. An upper end of inf means unbounded.
    limit : float or None
        What the quantity tends to as frequency grows, inf where without bound, None if unknown.
    limit_share : float or None
        Share of a finite limit that is reached, 0 to 1.
    """

    unit: str
    lower: float | None
    upper: float | None
    limit: float | None
    limit_share: float | None

    def __new__(
        cls,
        value: float,
        unit: str = "1",
        *,
        lower: float | None = None,
        upper: float | None = None,
        limit: float | None = None,
        limit_share: float | None = None,
    ) -> Self:
        """Make an estimate; NaN in the optional numbers means None."""
        self = super().__new__(cls, value)
        self.unit = unit
        self.lower, self.upper = _known(lower), _known(upper)
        self.limit, self.limit_share = _known(limit), _known(limit_share)
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[float, str], dict[str, float | None]]:
        return (float(self), self.unit), self._rest()

    def _rest(self) -> dict[str, float | None]:
        return {
            "lower": self.lower,
            "upper": self.upper,
            "limit": self.limit,
            "limit_share": self.limit_share,
        }

    def to_dict(self) -> dict[str, Any]:
        """Value, unit, interval and limit as JSON knows them (inf and missing are null)."""
        return {"value": plain(float(self)), "unit": self.unit, **plain(self._rest())}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build an estimate from `to_dict`."""
        rest = dict(values)
        if rest["lower"] is not None and rest["upper"] is None:
            rest["upper"] = math.inf
        return cls(rest.pop("value"), rest.pop("unit"), **rest)

    def scaled(self, factor: float, unit: str) -> Estimate:
        """Multiply by an exact positive number."""
        rest = {k: None if v is None else v * factor for k, v in self._rest().items()}
        return Estimate(self * factor, unit, **{**rest, "limit_share": self.limit_share})


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def shown(value: float | None, unit: str = "") -> str:
    """Write a number for people: four significant digits, and a prefix for large or small units.

    >>> shown(3.0e9, "Hz")
    '3 GHz'
    >>> shown(139.5371, "s")
    '139.5 s'
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if unit in _PREFIXED and value:
        prefix, size = _prefix(value)
        return f"{value / size:.4g} {prefix}{unit}"
    number = f"{value:,.0f}" if 9999.5 <= abs(value) < 1e12 else f"{value:.4g}"
    return f"{number} {unit}".strip() if unit != "1" else number


def key_texts(by: Iterable[str], row: Mapping[Any, Any]) -> list[str]:
    """Write the keys of a table's row for people; "–" for one that is missing."""
    return [_key_text(row[name]) for name in by]


def telling_keys(by: Iterable[str], rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Choose the fewest of the leading keys that still tell all rows apart that all keys do."""
    by = list(by)

    def told_apart(names: Sequence[str]) -> int:
        return len({tuple(key_texts(names, row)) for row in rows})

    every = told_apart(by)
    found: list[str] = []
    for name in by:
        if told_apart(found) < min(told_apart([*found, name]), every):
            found.append(name)
    return found or by[:1]


def _key_text(value: object) -> str:
    if value is None or value != value:
        return "–"
    return shown(value) if isinstance(value, float) else shown_name(value)


def shown_interval(value: float, lower: float | None, upper: float | None, unit: str) -> str:
    """Write an interval in the prefix that `shown` gives its value.

    >>> shown_interval(1863.0, 1757.0, 1975.0, "J")
    '1.757 … 1.975'
    """
    if lower is None or upper is None or math.isnan(lower):
        return "–"
    size = _prefix(value)[1] if unit in _PREFIXED and value else 1.0
    return f"{shown(lower / size)} … {shown(upper / size)}"


def _prefix(value: float) -> tuple[str, float]:
    return next((p for p in _PREFIXES if abs(value) >= p[1]), ("", 1.0))


_PREFIXED = {"Hz", "W", "J", "J/run", "J/op", "B"}
_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6))
