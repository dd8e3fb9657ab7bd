"""Plain words for measurements that do not hold still, and what to do about it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from measurements.quantities import frequency_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Repeats further apart than this, highest to lowest as a share of their median, are not one value.
MOST_SPREAD = 0.03
# A clock further than this from the one asked for was not applied.
MOST_OFF = 0.02


class Instability(NamedTuple):
    """What does not hold still at a set-up, and the advice."""

    what: str
    message: str


def spreads(rows: Sequence[Mapping[str, object]], at: str) -> list[Instability]:
    """Repeats of one set-up that are too far apart, in time and in watts."""
    found = []
    for column, name, advice in (
        ("time_s", "time", "close other programs, fix the frequency, or let a run last longer"),
        ("power_w", "power", "let a run last longer, or wait for the fans and temperatures"),
    ):
        values = [v for row in rows if isinstance(v := row.get(column), float) and v == v]
        middle = median(values) if len(values) > 1 else 0.0
        spread = (max(values) - min(values)) / middle if middle > 0 else 0.0
        if spread > MOST_SPREAD:
            said = f"{name} at {at} spreads by {spread:.1%} over {len(values)} runs: {advice}"
            found.append(Instability(f"{name} spread", said))
    return found


def clock_off(row: Mapping[str, object]) -> list[Instability]:
    """A clock that was not what was asked for."""
    asked, achieved = row.get("freq_hz"), row.get("freq_achieved_hz")
    if not isinstance(asked, float) or not isinstance(achieved, float):
        return []
    if achieved != achieved or abs(achieved / asked - 1) <= MOST_OFF:
        return []
    return [
        Instability(
            "clock",
            f"{frequency_text(asked)} was asked for and the core ran at "
            f"{frequency_text(achieved)}: look for turbo, a power cap or heat; achieved is kept "
            "in freq_achieved_hz",
        )
    ]
