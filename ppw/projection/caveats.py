"""Caveats of the fits of a table: bounds, far extrapolation, lack of fit, wide intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.laws.frequency import ReciprocalCpi
from fitting.regression.lines import (
    INTERCEPT_AT_ZERO,
    SLOPE_AT_ZERO,
    FloatArray,
    IntArray,
    ModelFit,
    Prediction,
)
from ppw.results.text import shown
from ppw.runs.groups import Mask

if TYPE_CHECKING:
    from fitting.bayes.posterior import LackOfFit


class Caveat(NamedTuple):
    """A caveat that some groups have: its short name, its sentence, which groups, and how bad."""

    name: str
    text: str
    groups: Mask
    size: float = 0.0


def join_frequencies(findings: Iterable[tuple[str, Caveat]]) -> list[tuple[str, Caveat]]:
    """Join caveats of a kind over frequencies: each group counts once, and the worst text stays."""
    joined: dict[tuple[str, str], Caveat] = {}
    for metric, finding in findings:
        before = joined.get((metric, finding.name), finding)
        worse = max(finding, before, key=lambda f: f.size)
        joined[metric, finding.name] = worse._replace(groups=finding.groups | before.groups)
    return [(metric, finding) for (metric, _), finding in joined.items()]


def tally(
    findings: Iterable[tuple[str, Caveat]],
    what: str = "groups",
    name_of: Callable[[int], str] | None = None,
) -> list[str]:
    """Write each caveat once, with the fits that have it and the number of their groups.

    Up to three of many groups are named, where ``name_of`` gives the name of each.
    """
    counts: dict[tuple[str, str], tuple[str, str, int, int]] = {}
    sizes: dict[tuple[str, str], float] = {}
    for metric, finding in findings:
        key, more = (metric, finding.name), int(finding.groups.sum())
        text, named, count, total = counts.get(key, ("", "", 0, 0))
        # Folds differ in how bad it is: the worst speaks for all.
        if more and finding.size >= sizes.get(key, 0.0):
            text, sizes[key] = finding.text, finding.size
        if name_of and 0 < more <= _MOST_NAMED < finding.groups.size:
            named = f": {'; '.join(map(name_of, np.flatnonzero(finding.groups).tolist()))}"
        counts[key] = (text, named, count + more, total + finding.groups.size)
    # The same curve under two names, time and its performance, is one sentence.
    metrics: dict[tuple[str, str, int, int], list[str]] = {}
    for (metric, _), found in counts.items():
        if found[2]:
            metrics.setdefault(found, []).append(metric)
    return [
        f"{', '.join(names)}{'' if total == 1 else f' ({count} of {total} {what}{named})'}: {text}"
        for (text, named, count, total), names in metrics.items()
    ]


# Groups that a caveat names, where the table has more.
_MOST_NAMED = 3
# From two points at 1.2 and 1.8 GHz to 2.4 GHz the gain is 2.6; from 1.2 and 1.3 GHz it is 16.
_LONG_LEVER = 4.0
# Past this many times the clocks measured, nothing measured speaks for the law.
_FAR = 2.0
# A curve whose points scatter about it by more than this is hardly their law.
_POOR_FIT = 0.05
# P-value of the straight line below which a bend is said: a table has many groups.
_LACK_OF_FIT, _BY_CHANCE = 1e-2, 0.05
# An interval this many times as high as it is low hardly supports a purchase.
_WIDE = 1.5

_FASTER_THAN_CLOCK = (
    "faster than 1/f: the published form 1/CPI = c − k/f gains more than the frequency, which is "
    "impossible for a core alone; the bounded form is shown beside it"
)
_FASTER_UNBOUNDED = (
    "faster than 1/f, which is impossible for a core alone, and --form unbounded sets no bound; "
    "the reciprocal form is shown beside it"
)
# What an intercept, and a slope, of zero says.
_AT_BOUNDS = (
    "faster than 1/f, which is impossible for a core alone; the bounded curve is 1/f, and the "
    "reciprocal form is shown beside it",
    "no gain from a higher frequency was measured; the bounded curve is a constant",
)
_CPI_AT_BOUNDS = (
    "CPI grows faster than in proportion to frequency; the bounded curve is proportional to it",
    "measured CPI falls as frequency rises (faster than 1/f), which a core alone cannot do; the "
    "bounded curve is a constant CPI, and the reciprocal form is shown beside it",
)
_GAINS_LESS = (
    "the highest frequency gains less than the line through the other frequencies predicts (lack "
    "of fit): a full memory bus, a power cap or throttling may begin there and continue above"
)
_GAINS_MORE = (
    "the highest frequency gains more than the line through the other frequencies predicts (lack "
    "of fit): the cause may be turbo above the set frequency, a bus frequency that rises with it, "
    "or a disturbed run at a low frequency"
)


def fit_findings(
    name: str, fit: ModelFit, frequency: FloatArray, posterior: bool
) -> Iterator[Caveat]:
    """Find groups held at a bound, extrapolated far, poorly fitted or without an answer.

    A ``posterior`` always has an answer, and the width of its interval shows a far extrapolation.
    """
    texts = _CPI_AT_BOUNDS if name == "cpi" else _AT_BOUNDS
    bounds = (INTERCEPT_AT_ZERO, SLOPE_AT_ZERO)
    for name_of_parameter, text, bound in zip(fit.model.parameters, texts, bounds, strict=True):
        yield Caveat(f"{name_of_parameter}=0", text, fit.line.bound == bound)
    fitted = ~np.isnan(fit.line.slope)
    answered = fitted if posterior else fitted & ~np.isnan(fit.predict(frequency))
    if not posterior:
        yield _long_lever(fit, frequency, answered)
        yield Caveat(
            "no_interval",
            "no interval, because the curve has as many parameters as measured points: add "
            "repeats or a third frequency",
            answered & (fit.line.degrees_of_freedom == 0),
        )
    if name != "power" or not posterior:
        yield _poor_fit(fit, fitted)
    if not posterior:
        highest = float(np.max(frequency))
        text = f"no answer at {shown(highest, 'Hz')}: the fitted {fit.model.equation} is not "
        yield Caveat("no_answer", text + "positive there", fitted & ~answered, highest)
    text, coefficient = _FASTER_UNBOUNDED, fit.line.intercept
    if isinstance(fit.model, ReciprocalCpi):
        text, coefficient = _FASTER_THAN_CLOCK, fit.line.slope
    elif name == "cpi":
        coefficient = fit.line.slope
    elif name in ("power", "perf_per_watt"):
        # Neither need follow the frequency.
        return
    yield Caveat("faster_than_clock", text, coefficient < 0)


def _long_lever(fit: ModelFit, frequency: FloatArray, answered: Mask) -> Caveat:
    """Find the groups in which the noise of measured points is amplified many times."""
    gain = fit.noise_gain(frequency)
    far = answered & (gain > _LONG_LEVER)
    worst = float(np.max(gain[far])) if far.any() else 0.0
    at = shown(float(np.max(frequency)), "Hz")
    return Caveat(
        "long_lever",
        f"far extrapolation: 1 % of noise in the measured points becomes up to {worst:.0f} % at "
        f"{at}; measure nearer to it or further apart",
        far,
        worst,
    )


def _poor_fit(fit: ModelFit, fitted: Mask) -> Caveat:
    """Find the groups whose points miss their curve by a large relative error."""
    with np.errstate(invalid="ignore"):
        miss = np.sqrt(fit.line.variance) / fit.line.moments.mean_y
        poor = fitted & (miss > _POOR_FIT)
    worst = float(miss[poor].max(initial=0))
    return Caveat(
        "poor_fit",
        f"the curve misses the measured points by up to {worst:.0%} (root mean square): "
        f"{fit.model.equation} is not their form, or they are noisy; compare another form by ppw "
        "validate",
        poor,
        worst,
    )


def far_findings(
    fit: ModelFit, lowest: FloatArray, highest: FloatArray, frequency: FloatArray
) -> Iterator[Caveat]:
    """Find groups asked for far above or far below their measured frequencies."""
    fitted = ~np.isnan(fit.line.slope)
    with np.errstate(divide="ignore"):
        above = np.where(fitted, frequency / highest, 0.0)
        below = np.where(fitted, lowest / frequency, 0.0)
    for name, times, end in (("far_above", above, highest), ("far_below", below, lowest)):
        far, text, size = times > _FAR, "", 0.0
        if far.any():
            # The farthest speaks for all.
            worst = int(np.argmax(times))
            size = float(times[worst])
            by = f"{round(size, 1 if size < 10 else 0):g}"
            asked, measured = (shown(float(x[worst]), "Hz") for x in (frequency, end))
            text = (
                f"{asked} is {by} times the highest frequency measured ({measured})"
                if name == "far_above"
                else f"the lowest frequency measured ({measured}) is {by} times {asked}"
            )
            text += ": no measurement near it supports the law"
        yield Caveat(name, text, far, size)


def improbable(p_value: FloatArray) -> Mask:
    """Mark the groups whose p value is too low for chance among as many groups; NaN is not.

    Of marked groups a share of `_BY_CHANCE` at most is marked by chance (Benjamini & Hochberg
    1995), and of tables without any lack of fit so many have a mark.
    """
    ordered = np.sort(p_value[~np.isnan(p_value)])
    low = ordered <= _BY_CHANCE * np.arange(1, len(ordered) + 1) / len(ordered)
    return p_value <= min(_LACK_OF_FIT, ordered[low].max(initial=-1.0))


def bend_findings(test: LackOfFit, groups: IntArray) -> Iterator[Caveat]:
    """Find groups whose steps show a lack of fit: they gain less, or more, at the top."""
    at_top = test.at_top[groups]
    with np.errstate(invalid="ignore"):
        off = improbable(test.p_value)[groups]
        yield Caveat("gains_less", _GAINS_LESS, off & (at_top > 0))
        yield Caveat("gains_more", _GAINS_MORE, off & (at_top <= 0))


def wide_interval(prediction: Prediction) -> Caveat:
    """Find the groups whose interval has ends too far apart to decide by."""
    with np.errstate(invalid="ignore"):
        ratio = prediction.upper / prediction.lower
        wide = ratio > _WIDE
    worst = float(ratio[wide].max(initial=0.0))
    text = (
        f"wide interval: its upper end is up to {worst:.3g} times its lower one, too wide for a "
        "decision; measure nearer to the target, at frequencies further apart, or more often "
        "(ppw plan)"
    )
    return Caveat("wide_interval", text, wide, worst)


def least_squares_apart(name: str, ratio: FloatArray) -> Caveat:
    """Find groups whose least-squares answer differs by more than noise: ``ratio`` is not NaN."""
    apart = np.abs(np.log(ratio))
    worst = float(ratio[np.nanargmax(apart)]) if (~np.isnan(apart)).any() else 1.0
    weighed = (
        "a voltage that rises with the frequency"
        if name == "power"
        else "laws that the measured points cannot rule out, and the usual share of stalls"
    )
    text = (
        f"the least-squares law answers up to {abs(worst - 1):.1%} "
        f"{'more' if worst > 1 else 'less'}: the posterior also weighs {weighed}"
    )
    return Caveat("least_squares", text, ~np.isnan(ratio), float(np.nanmax(apart, initial=0.0)))
