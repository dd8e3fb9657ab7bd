"""Caveats: reasons to read a number with care, joined, counted and raised as warnings.

What they are is found in the curves (`ppw.projection.caveats`) and in the table
(`ppw.runs.caveats`).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

from ppw.errors import CaveatWarning
from ppw.results.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


class Caveat(NamedTuple):
    """A caveat that some groups have: its short name, its sentence, which groups, and how bad."""

    name: str
    text: str
    groups: Mask
    size: float = 0.0

    def join(self, other: Caveat) -> Caveat:
        """Join with the same finding at another frequency: the worse sentence, all its groups."""
        worse = max(self, other, key=lambda f: f.size)
        return worse._replace(groups=self.groups | other.groups)


def over_frequencies(findings: Iterable[tuple[str, Caveat]]) -> list[tuple[str, Caveat]]:
    """Join what the same groups show at several frequencies, so that each group counts once."""
    joined: dict[tuple[str, str], Caveat] = {}
    for metric, finding in findings:
        key = (metric, finding.name)
        joined[key] = finding.join(joined[key]) if key in joined else finding
    return [(metric, finding) for (metric, _), finding in joined.items()]


def tally(findings: Iterable[tuple[str, Caveat]], what: str = "groups") -> list[str]:
    """Say each finding once, with the fits that have it and how many of their groups."""
    counts: dict[tuple[str, str], tuple[str, int, int]] = {}
    sizes: dict[tuple[str, str], float] = {}
    for metric, finding in findings:
        key, more = (metric, finding.name), int(finding.groups.sum())
        text, count, total = counts.get(key, ("", 0, 0))
        # Folds differ in how bad it is: the worst speaks for all.
        if more and finding.size >= sizes.get(key, 0.0):
            text, sizes[key] = finding.text, finding.size
        counts[key] = (text, count + more, total + finding.groups.size)
    # The same curve under two names, time and its performance, is one sentence.
    metrics: dict[tuple[str, int, int], list[str]] = {}
    for (metric, _), found in counts.items():
        if found[1]:
            metrics.setdefault(found, []).append(metric)
    return [
        f"{', '.join(names)}{'' if total == 1 else f' ({count} of {total} {what})'}: {text}"
        for (text, count, total), names in metrics.items()
    ]


def warn(caveats: Iterable[str]) -> None:
    """Raise each caveat as a `CaveatWarning` at the caller's caller."""
    for caveat in caveats:
        warnings.warn(printable(caveat), CaveatWarning, stacklevel=3)
