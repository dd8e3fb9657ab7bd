"""What a task of the table of accuracy came to, and the statistics of one line of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

LEVEL = 0.90
SEED = 20120101
RESAMPLED = 1000

IN_VIEW, UNSEEN, NO_PRIORS = "in view", "unseen", "–"


class Outcome(NamedTuple):
    """Projections held against what was measured, one row a case.

    Attributes
    ----------
    data, task : str
        Name of the set, and what was projected from what.
    priors : str
        Whether the task was in view when priors were set: `IN_VIEW`, `UNSEEN`, or `NO_PRIORS`
        where the law has none.
    cases : pandas.DataFrame
        ``name``, ``cluster`` (cases that stand and fall together), ``projected``, ``measured``,
        ``lower``, ``upper`` (NaN without an interval).
    line : float array
        What the simplest least-squares curve of the same law answers.
    naive : float array
        What scaling in proportion from the nearest measurement answers.
    textbook : (float array, float array) or None
        Student's t interval about the curve without bounds.
    """

    data: str
    task: str
    priors: str
    cases: pd.DataFrame
    line: FloatArray
    naive: FloatArray
    textbook: tuple[FloatArray, FloatArray] | None = None


HEADER = [
    *("data", "task", "n", "median", "p90", "mean", "covered", "score"),
    *("line", "line ±10 %", "score / t", "naive", "priors"),
]


def row_of(outcome: Outcome) -> list[str]:
    """One line of the table."""
    cases = outcome.cases
    measured, lower, upper = (cases[c].to_numpy() for c in ("measured", "lower", "upper"))
    size = error_pct(cases["projected"].to_numpy(), measured)
    scores = interval_score(measured, lower, upper)
    band = interval_score(measured, 0.9 * outcome.line, 1.1 * outcome.line)
    of_line = error_pct(outcome.line, measured)
    return [
        outcome.data,
        outcome.task,
        str(len(cases)),
        *(_shown(f(size)) for f in (np.median, _p90, np.mean)),
        coverage(cases),
        _shown(_mean(scores), 1),
        median_and_p90(of_line) + (", nearer" if line_is_nearer(size, of_line) else ""),
        _shown(_mean(band), 1),
        _shown(_beside_textbook(outcome, scores)),
        median_and_p90(error_pct(outcome.naive, measured)),
        outcome.priors,
    ]


def error_pct(projected: FloatArray, measured: FloatArray) -> FloatArray:
    """Absolute errors in percent of the measured value."""
    size: FloatArray = 100 * np.abs(projected / measured - 1)
    return size


def interval_score(measured: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Interval score of each case in percent of the measured value, NaN without an interval.

    Width plus 2/(1 - level) times every miss (Gneiting & Raftery 2007, doi:10.1198/
    016214506000001437).
    """
    misses = np.maximum(lower - measured, 0) + np.maximum(measured - upper, 0)
    score: FloatArray = 100 * ((upper - lower) + 2 / (1 - LEVEL) * misses) / measured
    return score


def inside(cases: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each interval holds what was measured."""
    held = (cases["lower"] <= cases["measured"]) & (cases["measured"] <= cases["upper"])
    return held.to_numpy(dtype=bool)


def coverage(cases: pd.DataFrame) -> str:
    """Share of the intervals that hold, with its range when whole clusters are resampled."""
    known = cases[cases["lower"].notna()]
    if known.empty:
        return "no interval"
    covered = inside(known)
    of = "" if len(known) == len(cases) else f" of {len(known)}"
    parts = known.assign(covered=covered.astype(float)).groupby("cluster")["covered"]
    several = parts.agg(["sum", "size"]).to_numpy()
    if len(several) < 3:
        return f"{covered.mean():.0%}{of}"
    rng = np.random.default_rng(SEED)
    drawn = several[rng.integers(len(several), size=(RESAMPLED, len(several)))].sum(axis=1)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [5, 95])
    return f"{covered.mean():.0%}{of} ({low:.0%} … {high:.0%})"


def median_and_p90(size: FloatArray) -> str:
    """Of the absolute errors that there are."""
    answered = size[np.isfinite(size)]
    if not answered.size:
        return "no answer"
    return f"{np.median(answered):.2f} / {_p90(answered):.2f}"


def line_is_nearer(size: FloatArray, of_line: FloatArray) -> bool:
    """Whether the line's median error is less by more than a tenth and by 0.1 points."""
    ours, theirs = float(np.median(size)), float(np.median(of_line))
    return ours > 1.1 * theirs and ours > theirs + 0.1


def _mean(scores: FloatArray) -> float:
    """Mean of the scores that there are: infinite where an interval has no end."""
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if known.size else float("nan")


def _p90(size: FloatArray) -> float:
    return float(np.quantile(size, 0.9))


def _beside_textbook(outcome: Outcome, scores: FloatArray) -> float:
    """Ratio of mean scores over the cases that have both intervals; NaN without any."""
    if outcome.textbook is None:
        return float("nan")
    lower, upper = outcome.textbook
    theirs = interval_score(outcome.cases["measured"].to_numpy(), lower, upper)
    both = np.isfinite(theirs) & np.isfinite(scores)
    return float(scores[both].mean() / theirs[both].mean()) if both.any() else float("nan")


def _shown(value: float, digits: int = 2) -> str:
    if np.isinf(value):
        return "∞"
    return "–" if np.isnan(value) else f"{value:.{digits}f}"
