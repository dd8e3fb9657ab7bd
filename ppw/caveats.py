"""Reasons to read a number with care, found in the fits and in the table, said in words."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fitting.line import INTERCEPT_AT_ZERO, SLOPE_AT_ZERO
from fitting.reciprocal import ReciprocalCpi
from measurements.headers import shown as shown_names
from measurements.schema import COLUMNS
from ppw.condensed import is_condensed_table, run_count, tally_column
from ppw.errors import CaveatWarning
from ppw.estimate import shown
from ppw.grouping import varies, varying_identity
from ppw.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.lack_of_fit import LackOfFit
    from fitting.line import FloatArray
    from fitting.models import ModelFit, Prediction
    from ppw.curves import Factor
    from ppw.grouping import Groups
    from ppw.metrics import Metric

    Mask = NDArray[np.bool_]

T = TypeVar("T")

# From two points at 1.2 and 1.8 GHz to 2.4 GHz the gain is 2.6; from 1.2 and 1.3 GHz it is 16.
LONG_LEVER = 4.0
# A curve whose points scatter about it by more than this is hardly their law.
_POOR_FIT = 0.05
_ACHIEVED_OFF = 0.02
# Looking for rows that repeat costs more than the fits of a larger table.
_COMPARED_ROWS = 200_000
_ENERGY_OFF = 0.02

FASTER_THAN_CLOCK = (
    "faster than 1/f: the published form 1/CPI = c − k/f gains more than the clock does, which a "
    "core alone cannot; the bounded form is shown beside it"
)
FASTER_UNBOUNDED = (
    "faster than 1/f, which a core alone cannot be, and no bound was asked for; the reciprocal "
    "form is shown beside it"
)
# What the column ``power_label`` says of watts that a sensor showed, and not a calibration.
MEASURED = "measured"
SIMULATED = (
    "simulated, not hardware: how these figures change with the clock says more than their size, "
    "and they have no watts"
)
UNKNOWN_WATTS = (
    "watts of unknown source: package, node and wall watts are not comparable; say which in "
    "power_source"
)


class Finding(NamedTuple):
    """A caveat that some groups have: its short name, its sentence, which groups, and how bad."""

    name: str
    text: str
    groups: Mask
    size: float = 0.0

    def joined(self, other: Finding) -> Finding:
        """Join with the same finding at another frequency: the worse sentence, all its groups."""
        worse = max(self, other, key=lambda f: f.size)
        return worse._replace(groups=self.groups | other.groups)


# What a posterior says by the width of its interval, and never: it always has an answer.
_LEAST_SQUARES_ONLY = ("long_lever", "no_interval", "no_answer")
# P-value of the straight line below which a bend is said: a table has many groups.
_LACK_OF_FIT = 1e-2
# An interval this many times as high as it is low hardly supports a purchase.
_WIDE = 1.5


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


def _of_least_squares(name: str, finding: Finding) -> bool:
    """Tell whether a finding is about a least-squares line that a posterior does not use."""
    return finding.name in _LEAST_SQUARES_ONLY or (name == "power" and finding.name == "poor_fit")


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


def _findings(name: str, fit: ModelFit, frequency: FloatArray | float) -> list[Finding]:
    fitted = ~np.isnan(fit.line.slope)
    gain = fit.noise_gain(frequency)
    answered = ~np.isnan(fit.predict(frequency))
    far = fitted & answered & (gain > LONG_LEVER)
    worst = np.max(gain[far]) if far.any() else 0.0
    with np.errstate(invalid="ignore"):
        miss = np.sqrt(fit.line.variance) / fit.line.moments.mean_y
        poor = fitted & (miss > _POOR_FIT)
    highest = float(np.max(frequency))
    at = shown(highest, "Hz")
    names = [p.name for p in fit.model.parameters]
    falls = name == "cpi"
    held_intercept = (
        "CPI grows faster than in proportion to frequency; the bounded curve is proportional to it"
        if falls
        else "faster than 1/f, which a core alone cannot be; the bounded curve is 1/f, and the "
        "reciprocal form is shown beside it"
    )
    held_slope = (
        "measured CPI falls as frequency rises (faster than 1/f), which a core alone cannot do; "
        "the bounded curve is a constant CPI, and the reciprocal form is shown beside it"
        if falls
        else "no gain from frequency was measured; the bounded curve is a constant"
    )
    return [
        Finding(f"{names[0]}=0", held_intercept, fit.line.bound == INTERCEPT_AT_ZERO),
        Finding(f"{names[1]}=0", held_slope, fit.line.bound == SLOPE_AT_ZERO),
        Finding(
            "long_lever",
            f"long lever: 1 % of noise in the measured points becomes up to {worst:.0f} % at {at}; "
            "measure nearer to it or further apart",
            far,
            worst,
        ),
        Finding(
            "no_interval",
            "no interval: as many parameters as measured points leave nothing to judge the fit "
            "by; add repeats or a third frequency",
            fitted & answered & (fit.line.degrees_of_freedom == 0),
        ),
        Finding(
            "poor_fit",
            f"the curve misses the measured points by up to {miss[poor].max(initial=0):.0%} (root "
            f"mean square): {fit.model.equation} is not their form, or they are noisy; compare "
            "another form by ppw validate",
            poor,
            float(miss[poor].max(initial=0)),
        ),
        Finding(
            "no_answer",
            f"no answer at {at}: the fitted {fit.model.equation} is not positive there",
            fitted & ~answered,
            highest,
        ),
        Finding("faster_than_clock", *_faster_than_clock(name, fit)),
    ]


def _faster_than_clock(name: str, fit: ModelFit) -> tuple[str, Mask]:
    """Groups whose curve gains more than the clock does and that no bound holds back."""
    if isinstance(fit.model, ReciprocalCpi):
        return FASTER_THAN_CLOCK, fit.line.slope < 0
    if name in ("power", "perf_per_watt"):
        return "", np.zeros(len(fit.line.slope), dtype=bool)
    return FASTER_UNBOUNDED, (fit.line.slope if name == "cpi" else fit.line.intercept) < 0


def over_frequencies(findings: Iterable[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """Join what the same groups show at several frequencies, so that each group counts once."""
    joined: dict[tuple[str, str], Finding] = {}
    for metric, finding in findings:
        key = (metric, finding.name)
        joined[key] = finding.joined(joined[key]) if key in joined else finding
    return [(metric, finding) for (metric, _), finding in joined.items()]


def tally(findings: Iterable[tuple[str, Finding]], what: str = "groups") -> list[str]:
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


def table_caveats(
    runs: pd.DataFrame, groups: Groups, metrics: Sequence[Metric], learnt: Mask | None = None
) -> list[str]:
    """Find what in a table, or in its grouping, could mislead.

    ``learnt`` are the rows that curves go through, where that is not all of them.
    """
    caveats = [
        f"runs of one group differ in {column}, which is not in --by: their curve is a mixture"
        for column in varying_identity(runs, groups)
        if column != "host"
    ]
    if "host" in runs.columns and "host" not in groups.by:
        rows = slice(None) if learnt is None else learnt
        caveats += _across_hosts(runs[rows], replace(groups, codes=groups.codes[rows]))
        if "family" in runs.columns and varies(runs["family"], groups).any():
            caveats.append(FAMILY_MISMATCH)
    if any({"power", "energy", "perf_per_watt"} & {m.name} for m in metrics):
        caveats += _watts(runs, groups)
    caveats += _simulated(runs)
    return caveats + _achieved(runs) + _repeated_rows(runs) + _one_group(runs, groups)


def _simulated(runs: pd.DataFrame) -> list[str]:
    """Say that rows are of a simulator, which the column ``simulator`` names."""
    if "simulator" not in runs.columns:
        return []
    count, total = run_count(runs, runs["simulator"].notna().to_numpy()), run_count(runs)
    if not count:
        return []
    if count == total:
        return [f"all runs are {SIMULATED}"]
    return [
        f"{count} of {total} runs are {SIMULATED}; the others are not simulated: a difference "
        "between the two kinds is no difference between machines"
    ]


def _repeated_rows(runs: pd.DataFrame) -> list[str]:
    if len(runs) > _COMPARED_ROWS or is_condensed_table(runs):
        return []
    count = int(runs.duplicated().sum())
    if not count:
        return []
    return [
        f"{count} of {len(runs)} rows repeat another one in every column: a run that is counted "
        "twice makes intervals too short"
    ]


def _one_group(runs: pd.DataFrame, groups: Groups) -> list[str]:
    if groups.by or len(runs.columns) <= 2:
        return []
    unused = [c for c in runs.columns if c not in COLUMNS]
    rest = f"; not used: {shown_names(unused)}" if unused else ""
    return [f"no host or workload is named: all rows are one group{rest}; see --by and --map"]


def _across_hosts(runs: pd.DataFrame, groups: Groups) -> list[str]:
    several = varies(runs["host"], groups) & varies(runs["freq_hz"], groups)
    if not several.any():
        return []
    steps = runs["freq_hz"].groupby([groups.codes, runs["host"]], dropna=False).nunique()
    swept = np.zeros(len(groups), dtype=bool)
    swept[steps.index.get_level_values(0)[steps > 1]] = True
    caveats = []
    if (several & ~swept).any():
        caveats.append(
            "host and frequency are confounded: no host was measured at two frequencies, so a "
            "difference between the hosts looks like an effect of the clock"
        )
    if (several & swept).any():
        caveats.append("one baseline goes through several hosts: their difference is in the curve")
    return caveats


FAMILY_MISMATCH = (
    "family mismatch: a baseline holds within one microarchitecture family, and these runs are of "
    "several"
)


def sources_known(runs: pd.DataFrame) -> bool:
    """Tell whether every row says which sensor its watts come from."""
    if "power_source" not in runs.columns:
        return False
    return all(map(is_known_source, runs["power_source"].unique()))


def is_known_source(source: object) -> bool:
    """Tell whether a power source is named; "unknown" names none."""
    return isinstance(source, str) and source.strip().lower() not in ("", "unknown")


def _watts(runs: pd.DataFrame, groups: Groups) -> list[str]:
    caveats = []
    if not sources_known(runs):
        caveats.append(UNKNOWN_WATTS)
    if "power_source" in runs.columns and varies(runs["power_source"], groups).any():
        caveats.append(
            "the watts of one group come from several sources, which may differ in scope"
        )
    if "power_label" in runs.columns:
        labels = runs["power_label"]
        total = run_count(runs)
        said = [
            f"{run_count(runs, (labels == label).to_numpy())} of {total} are {label}"
            for label in labels.dropna().unique()
            if label != MEASURED
        ]
        if said:
            caveats.append(
                f"not all watts are measured: {' and '.join(sorted(said))}, by another sensor's "
                "calibration, whose error is not in the interval"
            )
    if off := _having(runs, "energy_off", energy_off):
        caveats.append(
            f"energy_j and power_w·time_s differ by more than {_ENERGY_OFF:.0%} in "
            f"{off} of {run_count(runs)} rows: energy is taken from energy_j as measured "
            "and projected from power and time"
        )
    return caveats


def energy_off(columns: Mapping[str, T]) -> T | None:
    """Tell where energy is not power times time; None without the columns."""
    if not {"energy_j", "power_w", "time_s"} <= columns.keys():
        return None
    c: Mapping[str, Any] = columns
    off: T = (c["energy_j"] / (c["power_w"] * c["time_s"]) - 1).abs() > _ENERGY_OFF
    return off


def achieved_off(columns: Mapping[str, T]) -> T | None:
    """Tell where the achieved frequency is not the one asked for; None without the columns."""
    if not {"freq_hz", "freq_achieved_hz"} <= columns.keys():
        return None
    c: Mapping[str, Any] = columns
    off: T = (c["freq_achieved_hz"] / c["freq_hz"] - 1).abs() > _ACHIEVED_OFF
    return off


def _having(
    runs: pd.DataFrame,
    property_: str,
    tell: Callable[[Mapping[str, pd.Series[Any]]], pd.Series[Any] | None],
) -> int:
    """How many runs have a property: counted, or as the cells of a condensed table say."""
    if is_condensed_table(runs):
        column = tally_column(property_)
        return int(runs[column].sum()) if column in runs.columns else 0
    found = tell({str(name): column for name, column in runs.items()})
    return 0 if found is None else int(found.sum())


def _achieved(runs: pd.DataFrame) -> list[str]:
    off = _having(runs, "achieved_off", achieved_off)
    if not off:
        return []
    return [
        f"the achieved frequency is more than {_ACHIEVED_OFF:.0%} off the one asked for in "
        f"{off} of {run_count(runs)} rows; the fit uses the one asked for"
    ]


def warn(caveats: Iterable[str]) -> None:
    """Raise each caveat as a `CaveatWarning` at the caller's caller."""
    for caveat in caveats:
        warnings.warn(printable(caveat), CaveatWarning, stacklevel=3)
