"""What could mislead in the fits of a table: bounds, far clocks, long levers, bends, width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fitting.laws.frequency import ReciprocalCpi
from fitting.regression.lines import INTERCEPT_AT_ZERO, SLOPE_AT_ZERO
from ppw.results.caveats import Finding
from ppw.results.text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.bayes.steps import LackOfFit
    from fitting.regression.lines import FloatArray
    from fitting.regression.models import ModelFit, Prediction
    from ppw.projection.curves import ClockRange, Factor
    from ppw.results.caveats import Mask

# From two points at 1.2 and 1.8 GHz to 2.4 GHz the gain is 2.6; from 1.2 and 1.3 GHz it is 16.
_LONG_LEVER = 4.0
# Past this many times the clocks measured, nothing measured speaks for the law.
_FAR = 2.0
# A curve whose points scatter about it by more than this is hardly their law.
_POOR_FIT = 0.05
# What a posterior says by the width of its interval, and never: it always has an answer.
_LEAST_SQUARES_ONLY = ("long_lever", "no_interval", "no_answer")
# P-value of the straight line below which a bend is said: a table has many groups.
_LACK_OF_FIT = 1e-2
# An interval this many times as high as it is low hardly supports a purchase.
_WIDE = 1.5

_FASTER_THAN_CLOCK = (
    "faster than 1/f: the published form 1/CPI = c − k/f gains more than the clock does, which a "
    "core alone cannot; the bounded form is shown beside it"
)
_FASTER_UNBOUNDED = (
    "faster than 1/f, which a core alone cannot be, and no bound was asked for; the reciprocal "
    "form is shown beside it"
)
# What an intercept, and a slope, of zero says.
_AT_BOUNDS = (
    "faster than 1/f, which a core alone cannot be; the bounded curve is 1/f, and the reciprocal "
    "form is shown beside it",
    "no gain from frequency was measured; the bounded curve is a constant",
)
_CPI_AT_BOUNDS = (
    "CPI grows faster than in proportion to frequency; the bounded curve is proportional to it",
    "measured CPI falls as frequency rises (faster than 1/f), which a core alone cannot do; the "
    "bounded curve is a constant CPI, and the reciprocal form is shown beside it",
)


def fit_findings(
    factors: Sequence[Factor], frequency: FloatArray | float, *, posterior: bool = False
) -> list[tuple[str, Finding]]:
    """Find what fits hold at a bound, guess from afar or cannot answer; with the fit's name."""
    return [
        (f.name, found)
        for f in factors
        for found in _findings(f.name, f.fit, frequency)
        if not (posterior and _of_least_squares(f.name, found))
    ]


def _of_least_squares(name: str, finding: Finding) -> bool:
    """Tell whether a finding is about a least-squares line that a posterior does not use."""
    return finding.name in _LEAST_SQUARES_ONLY or (name == "power" and finding.name == "poor_fit")


def _findings(name: str, fit: ModelFit, frequency: FloatArray | float) -> list[Finding]:
    fitted = ~np.isnan(fit.line.slope)
    answered = ~np.isnan(fit.predict(frequency))
    highest = float(np.max(frequency))
    return [
        *_held_at_bounds(name, fit),
        _long_lever(fit, frequency, fitted & answered),
        Finding(
            "no_interval",
            "no interval: as many parameters as measured points leave nothing to judge the fit "
            "by; add repeats or a third frequency",
            fitted & answered & (fit.line.degrees_of_freedom == 0),
        ),
        _poor_fit(fit, fitted),
        Finding(
            "no_answer",
            f"no answer at {shown(highest, 'Hz')}: the fitted {fit.model.equation} is not positive "
            "there",
            fitted & ~answered,
            highest,
        ),
        Finding("faster_than_clock", *_faster_than_clock(name, fit)),
    ]


def _held_at_bounds(name: str, fit: ModelFit) -> list[Finding]:
    """Find the groups whose intercept, and whose slope, is held at zero."""
    texts = _CPI_AT_BOUNDS if name == "cpi" else _AT_BOUNDS
    return [
        Finding(f"{parameter.name}=0", text, fit.line.bound == bound)
        for parameter, text, bound in zip(
            fit.model.parameters, texts, (INTERCEPT_AT_ZERO, SLOPE_AT_ZERO), strict=True
        )
    ]


def _long_lever(fit: ModelFit, frequency: FloatArray | float, answered: Mask) -> Finding:
    gain = fit.noise_gain(frequency)
    far = answered & (gain > _LONG_LEVER)
    worst = float(np.max(gain[far])) if far.any() else 0.0
    at = shown(float(np.max(frequency)), "Hz")
    return Finding(
        "long_lever",
        f"long lever: 1 % of noise in the measured points becomes up to {worst:.0f} % at {at}; "
        "measure nearer to it or further apart",
        far,
        worst,
    )


def _poor_fit(fit: ModelFit, fitted: Mask) -> Finding:
    with np.errstate(invalid="ignore"):
        miss = np.sqrt(fit.line.variance) / fit.line.moments.mean_y
        poor = fitted & (miss > _POOR_FIT)
    worst = float(miss[poor].max(initial=0))
    return Finding(
        "poor_fit",
        f"the curve misses the measured points by up to {worst:.0%} (root mean square): "
        f"{fit.model.equation} is not their form, or they are noisy; compare another form by ppw "
        "validate",
        poor,
        worst,
    )


def far_findings(
    factor: Factor, measured: ClockRange, frequency: FloatArray | float
) -> list[tuple[str, Finding]]:
    """Find the groups asked about far above or far below the clocks they were measured at."""
    at = np.broadcast_to(np.asarray(frequency, dtype=float), measured.lowest.shape)
    fitted = ~np.isnan(factor.fit.line.slope)
    with np.errstate(divide="ignore"):
        above = np.where(fitted, at / measured.highest, 0.0)
        below = np.where(fitted, measured.lowest / at, 0.0)
    found = (
        _far("far_above", above, at, measured.highest),
        _far("far_below", below, at, measured.lowest),
    )
    return [(factor.name, f) for f in found]


def _far(name: str, times: FloatArray, at: FloatArray, end: FloatArray) -> Finding:
    """Find where a clock is far from an end of the measured ones; the farthest speaks for all."""
    far = times > _FAR
    if not far.any():
        return Finding(name, "", far)
    worst = int(np.argmax(times))
    size = float(times[worst])
    by = f"{round(size, 1 if size < 10 else 0):g}"
    asked, met = shown(float(at[worst]), "Hz"), shown(float(end[worst]), "Hz")
    text = (
        f"{asked} is {by} times the highest clock measured ({met})"
        if name == "far_above"
        else f"the lowest clock measured ({met}) is {by} times {asked}"
    )
    text += ": the law is taken on trust there"
    return Finding(name, text, far, size)


def _faster_than_clock(name: str, fit: ModelFit) -> tuple[str, Mask]:
    """Groups whose curve gains more than the clock does and that no bound holds back."""
    if isinstance(fit.model, ReciprocalCpi):
        return _FASTER_THAN_CLOCK, fit.line.slope < 0
    if name in ("power", "perf_per_watt"):
        return "", np.zeros(len(fit.line.slope), dtype=bool)
    return _FASTER_UNBOUNDED, (fit.line.slope if name == "cpi" else fit.line.intercept) < 0


def bent(test: LackOfFit) -> list[Finding]:
    """Find the groups whose steps do not lie on one line in 1/f, by the way it bends at the top."""
    with np.errstate(invalid="ignore"):
        off = test.p_value < _LACK_OF_FIT
        less, more = off & (test.at_top > 0), off & (test.at_top <= 0)
    texts = (
        "the highest clock gains less than the line through the other steps says (lack of fit): a "
        "full memory bus, a power cap or throttling begins there, and goes on above it",
        "the highest clock gains more than the line through the other steps says (lack of fit): "
        "turbo above the clock asked for, a bus clock that rises with it, or a low step that was "
        "disturbed",
    )
    return [
        Finding(name, text, mask)
        for name, text, mask in zip(("gains_less", "gains_more"), texts, (less, more), strict=True)
    ]


def posterior_findings(
    factors: Sequence[Factor], prediction: Prediction
) -> list[tuple[str, Finding]]:
    """Find the groups whose interval is too wide to decide by."""
    with np.errstate(invalid="ignore"):
        ratio = prediction.upper / prediction.lower
        wide = ratio > _WIDE
    worst = float(ratio[wide].max(initial=0.0))
    text = (
        f"wide interval: its upper end is up to {worst:.3g} times its lower one, too far apart to "
        "buy by; measure nearer to the target, further apart, or more often (ppw plan)"
    )
    return [(" and ".join(f.name for f in factors), Finding("wide_interval", text, wide, worst))]
