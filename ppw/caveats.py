"""Reasons to read a number with care, found in the fits and in the table, said in words."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.line import INTERCEPT_AT_ZERO, SLOPE_AT_ZERO
from ppw.errors import CaveatWarning
from ppw.estimate import shown
from ppw.grouping import varies, varying_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.line import FloatArray
    from fitting.models import ModelFit
    from ppw.curves import Factor
    from ppw.grouping import Groups
    from ppw.metrics import Metric

    Mask = NDArray[np.bool_]

# From two points at 1.2 and 1.8 GHz to 2.4 GHz the gain is 2.6; from 1.2 and 1.3 GHz it is 16.
LONG_LEVER = 4.0
_ACHIEVED_OFF = 0.02
_ENERGY_OFF = 0.02

FASTER_THAN_CLOCK = (
    "faster than 1/f: the published form 1/CPI = c − k/f gains more than the clock does, which a "
    "core alone cannot; the bounded form is shown beside it"
)
UNKNOWN_WATTS = (
    "watts of unknown source: package, node and wall watts are not comparable; say which in "
    "power_source"
)


class Finding(NamedTuple):
    """A caveat that some groups have: its short name, its sentence, and which groups."""

    name: str
    text: str
    groups: Mask


def fit_findings(
    factors: Sequence[Factor], frequency: FloatArray | float
) -> list[tuple[str, Finding]]:
    """Find what fits hold at a bound, guess from afar or cannot answer; with the fit's name."""
    return [(f.name, found) for f in factors for found in _findings(f.name, f.fit, frequency)]


def _findings(name: str, fit: ModelFit, frequency: FloatArray | float) -> list[Finding]:
    fitted = ~np.isnan(fit.line.slope)
    gain = fit.noise_gain(frequency)
    answered = ~np.isnan(fit.predict(frequency))
    far = fitted & answered & (gain > LONG_LEVER)
    worst = np.max(gain[far]) if far.any() else 0.0
    at = shown(float(np.max(frequency)), "Hz")
    names = [p.name for p in fit.model.parameters]
    falls = name == "cpi"
    held_intercept = (
        "CPI grows faster than in proportion to frequency; cpi_core is held at 0"
        if falls
        else "faster than 1/f, which a core alone cannot be; t_fixed is held at 0, and the "
        "reciprocal form is shown beside it"
    )
    held_slope = (
        "measured CPI falls as frequency rises (faster than 1/f), which a core alone cannot do; "
        "a constant CPI is returned, and the reciprocal form is shown beside it"
        if falls
        else "no gain from frequency was measured; a constant is returned"
    )
    return [
        Finding(f"{names[0]}=0", held_intercept, fit.line.bound == INTERCEPT_AT_ZERO),
        Finding(f"{names[1]}=0", held_slope, fit.line.bound == SLOPE_AT_ZERO),
        Finding(
            "long_lever",
            f"long lever: 1 % of noise in the measured points becomes up to {worst:.0f} % at {at}; "
            "measure nearer to it or further apart",
            far,
        ),
        Finding(
            "no_interval",
            "no interval: as many parameters as measured points leave nothing to judge the fit "
            "by; add repeats or a third frequency",
            fitted & answered & (fit.line.degrees_of_freedom == 0),
        ),
        Finding(
            "no_answer",
            f"no answer at {at}: the fitted {fit.model.equation} is not positive there",
            fitted & ~answered,
        ),
    ]


def tally(findings: Iterable[tuple[str, Finding]], what: str = "groups") -> list[str]:
    """Say each finding once, with the fits that have it and how many of their groups."""
    counts: dict[tuple[str, str], tuple[str, int, int]] = {}
    for metric, finding in findings:
        text, count, total = counts.get((metric, finding.name), (finding.text, 0, 0))
        more = int(finding.groups.sum())
        counts[metric, finding.name] = (text, count + more, total + finding.groups.size)
    # The same curve under two names, time and its performance, is one sentence.
    metrics: dict[tuple[str, int, int], list[str]] = {}
    for (metric, _), found in counts.items():
        if found[1]:
            metrics.setdefault(found, []).append(metric)
    return [
        f"{', '.join(names)}{'' if total == 1 else f' ({count} of {total} {what})'}: {text}"
        for (text, count, total), names in metrics.items()
    ]


def table_caveats(runs: pd.DataFrame, groups: Groups, metrics: Sequence[Metric]) -> list[str]:
    """Find what in a table, or in its grouping, could mislead."""
    caveats = [
        f"runs of one group differ in {column}, which is not in --by: their curve is a mixture"
        for column in varying_identity(runs, groups)
        if column != "host"
    ]
    caveats += _across_hosts(runs, groups)
    if any({"power", "energy", "perf_per_watt"} & {m.name} for m in metrics):
        caveats += _watts(runs, groups)
    caveats += _achieved(runs)
    return caveats


def _across_hosts(runs: pd.DataFrame, groups: Groups) -> list[str]:
    if "host" not in runs.columns or "host" in groups.by or not varies(runs["host"], groups).any():
        return []
    caveats = []
    if not runs.groupby([groups.codes, "host"])["freq_hz"].nunique().gt(1).any():
        caveats.append(
            "host and frequency are confounded: no host was measured at two frequencies, so a "
            "difference between the hosts looks like an effect of the clock"
        )
    else:
        caveats.append("one baseline goes through several hosts: their difference is in the curve")
    if "family" in runs.columns and varies(runs["family"], groups).any():
        caveats.append(FAMILY_MISMATCH)
    return caveats


FAMILY_MISMATCH = (
    "family mismatch: a baseline holds within one microarchitecture family, and these runs are of "
    "several"
)


def _watts(runs: pd.DataFrame, groups: Groups) -> list[str]:
    caveats = []
    if "power_source" not in runs.columns or runs["power_source"].isna().any():
        caveats.append(UNKNOWN_WATTS)
    if "power_source" in runs.columns and varies(runs["power_source"], groups).any():
        caveats.append(
            "the watts of one group come from several sources, which may differ in scope"
        )
    if {"energy_j", "power_w", "time_s"} <= set(runs.columns):
        product = runs["power_w"] * runs["time_s"]
        off = (runs["energy_j"] / product - 1).abs() > _ENERGY_OFF
        if off.any():
            caveats.append(
                f"energy_j and power_w·time_s differ by more than {_ENERGY_OFF:.0%} in "
                f"{int(off.sum())} of {len(runs)} rows: energy is taken from energy_j as measured "
                "and projected from power and time"
            )
    return caveats


def _achieved(runs: pd.DataFrame) -> list[str]:
    if "freq_achieved_hz" not in runs.columns:
        return []
    off = (runs["freq_achieved_hz"] / runs["freq_hz"] - 1).abs() > _ACHIEVED_OFF
    if not off.any():
        return []
    return [
        f"the achieved frequency is more than {_ACHIEVED_OFF:.0%} off the one asked for in "
        f"{int(off.sum())} of {len(runs)} rows; the fit uses the one asked for"
    ]


def warn(caveats: Iterable[str]) -> None:
    """Raise each caveat as a `CaveatWarning` at the caller's caller."""
    for caveat in caveats:
        warnings.warn(caveat, CaveatWarning, stacklevel=3)
