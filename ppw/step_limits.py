"""What a frequency step must keep to: a time by which the work is done, and watts to stay under."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.quantities import parse_quantity
from ppw.arguments import as_positive
from ppw.errors import PpwError
from ppw.estimate import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.regression.lines import FloatArray

_MOST_SAID = 3


class Limits(NamedTuple):
    """Limits of a step; None where there is none.

    Attributes
    ----------
    deadline_s : float or None
        Of one run.
    power_cap_w : float or None
        Of the watts while it runs, idle power included.
    level : float
        Probability with which a step has to keep to both.
    """

    deadline_s: float | None = None
    power_cap_w: float | None = None
    level: float = 0.90

    @classmethod
    def checked(
        cls, deadline: float | str | None, power_cap: float | str | None, level: float
    ) -> Limits:
        """Read quantities: "60s", "120W" or numbers in SI units.

        Raises
        ------
        MeasurementError
            For what is no such quantity.
        PpwError
            For one that is not above 0.
        """
        return cls(_read("deadline", deadline, "s"), _read("power cap", power_cap, "w"), level)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self.deadline_s is not None or self.power_cap_w is not None

    def refuse_rates(self, work: str) -> None:
        """Raise `PpwError` for a deadline of runs that tell a rate: ``work`` is "op"."""
        if self.deadline_s is not None and work == "op":
            raise PpwError(
                "a deadline is of a run, and these runs have throughput_ops_s, which tells no time"
            )

    def p_kept(self, log_time: FloatArray, log_power: FloatArray | None) -> FloatArray:
        """Share of the draws, rows, in which each step, a column, keeps to the limits."""
        share: FloatArray = (self._excess(log_time, log_power) <= 0).mean(axis=0)
        return share

    def nearest(self, log_time: FloatArray, log_power: FloatArray | None) -> int:
        """Step, by number, that is least beyond a limit."""
        return int(np.argmin(np.median(self._excess(log_time, log_power), axis=0)))

    def _excess(self, log_time: FloatArray, log_power: FloatArray | None) -> FloatArray:
        """Logarithm of what is used of a limit, the larger of the two."""
        excess = np.full(log_time.shape, -np.inf)
        if self.deadline_s is not None:
            excess = log_time - np.log(self.deadline_s)
        if self.power_cap_w is not None and log_power is not None:
            excess = np.maximum(excess, log_power - np.log(self.power_cap_w))
        return excess

    def words(self) -> str:
        """Limits as a sentence goes on: " within 60 s and 120 W"; nothing where there are none."""
        both = [
            shown(limit, unit)
            for limit, unit in ((self.deadline_s, "s"), (self.power_cap_w, "W"))
            if limit is not None
        ]
        return f" within {' and '.join(both)}" if both else ""


NO_LIMITS = Limits()


class Missed(NamedTuple):
    """A group none of whose steps keeps to the limits, and the step that most probably would."""

    label: str
    step_hz: float
    p_kept: float

    def said(self, limits: Limits) -> str:
        """Say so."""
        return (
            f"{self.label}: no step stays{limits.words()} with a probability of "
            f"{limits.level:.0%}: {shown(self.step_hz, 'Hz')} comes nearest, with "
            f"{self.p_kept:.0%}"
        )


def first_said(missed: Sequence[str]) -> str:
    """Say the first three sentences, and how many groups more there are; "" where there is none."""
    more = len(missed) - _MOST_SAID
    rest = [f"and {more} more group{'s' * (more > 1)} likewise"] if more > 0 else []
    return "; ".join([*missed[:_MOST_SAID], *rest])


def _read(name: str, amount: float | str | None, unit: str) -> float | None:
    if amount is None:
        return None
    return as_positive(name, parse_quantity(amount, unit) if isinstance(amount, str) else amount)
