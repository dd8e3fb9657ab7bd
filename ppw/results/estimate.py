"""A projected number together with how sure it is."""

from __future__ import annotations

import math
from typing import Any, Self

from ppw.results.result import plain


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
