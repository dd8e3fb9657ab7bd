"""What a benchmark reports: a value over repeats, beside a peer's in the same process.

Each ``bench_*.py`` has ``figures(scale=1.0)``, which yields these; `scale` makes its inputs larger
or smaller. ``speed.py`` runs them all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NONE = float("nan")


class Figure(NamedTuple):
    """One line of the table of speed.

    Attributes
    ----------
    name : str
        What was measured, in words.
    value, low, high : float
        Median, smallest and largest of the repeats, in `unit`.
    unit : str
    peer : str
        What it is compared with; empty without.
    ratio, ratio_low, ratio_high : float
        How many times better than the peer, repeat by repeat: above 1 ppw is quicker, or smaller.
        NaN without a peer.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    peer: str = ""
    ratio: float = NONE
    ratio_low: float = NONE
    ratio_high: float = NONE


def in_turns(
    repeats: int, *works: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of several works, one after the other in each repeat.

    In turns, so that all of them meet the same neighbours on the machine; once before, uncounted,
    for imports, compilation and the page cache. ``clock`` may be `time.process_time`, for processor
    seconds.
    """
    for work in works:
        work()
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, spent in zip(works, seconds, strict=True):
            start = clock()
            work()
            spent.append(clock() - start)
    return seconds


def rate(
    name: str,
    unit: str,
    amount: float,
    seconds: Sequence[float],
    *,
    peer: str = "",
    peer_seconds: Sequence[float] = (),
    peer_amount: float | None = None,
) -> Figure:
    """Amount a second (more is better), beside a peer that did its amount in its seconds."""
    ours = amount / np.asarray(seconds)
    theirs = (amount if peer_amount is None else peer_amount) / np.asarray(peer_seconds)
    return Figure(name, *_spread(ours), unit, peer, *_ratio(ours, theirs))


def cost(
    name: str, unit: str, values: Sequence[float], *, peer: str = "", peers: Sequence[float] = ()
) -> Figure:
    """Seconds, bytes or shares (less is better), beside a peer's."""
    ours = np.asarray(values, dtype=float)
    return Figure(name, *_spread(ours), unit, peer, *_ratio(np.asarray(peers, dtype=float), ours))


def _spread(values: np.ndarray) -> tuple[float, float, float]:
    return float(np.median(values)), float(values.min()), float(values.max())


def _ratio(better: np.ndarray, than: np.ndarray) -> tuple[float, float, float]:
    if not better.size or not than.size:
        return NONE, NONE, NONE
    return _spread(better / than)
