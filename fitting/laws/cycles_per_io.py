"""Cycles per I/O: the arithmetic between cycles, utilisation, I/O rate, servers and energy.

An I/O is 512 bytes throughout. With µ the utilisation (0 to 1), N cores of F hertz and c cycles per
I/O, a server does µ·N·F/c I/Os per second. All functions take scalars or arrays that broadcast.

References
----------
S. Akram, M. Marazakis, A. Bilas, "Understanding Scalability and Performance Requirements of
I/O-Intensive Applications on Future Multicore Servers", MASCOTS 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fitting.errors import FittingError
from fitting.laws.cycles_per_io_scaling import fit_scaling
from fitting.regression.lines import BoolArray, FloatArray

IO_BYTES = 512

# Laws of the I/O rate against cores. With cpio a line against cores and a constant utilisation, the
# rate is µ·F·n/(a + b·n): that is Amdahl's law. The first law adds a utilisation that changes with
# cores; Gunther's adds a term of the square of the cores, cores waiting for each other to agree.
LINEAR_CPIO = "linear cpio"
AMDAHL = "Amdahl"
GUNTHER = "Universal Scalability"
LAWS = (LINEAR_CPIO, AMDAHL, GUNTHER)
# Residuals below this are rounding: laws that fit so well are told apart by their parameters.
_ROUNDING = 1e-10


def cycles_per_io(cycles: ArrayLike, ios: ArrayLike) -> FloatArray:
    """Divide CPU cycles by 512-byte I/Os; NaN where there was no I/O."""
    ios = _floats(ios)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ios > 0, _floats(cycles) / ios, np.nan)


def io_rate(
    utilisation: ArrayLike, cores: ArrayLike, frequency: ArrayLike, cpio: ArrayLike
) -> FloatArray:
    """512-byte I/Os per second of a server, µ·N·F/c; infinite where ``cpio`` is 0 or less."""
    cpio = _floats(cpio)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = _floats(utilisation) * _floats(cores) * _floats(frequency) / cpio
    return np.where(cpio <= 0, np.inf, rate)


def grow(base: ArrayLike, growth_per_year: ArrayLike, years: ArrayLike) -> FloatArray:
    """Size of a market that grows by a share each year, base·(1 + g)^years."""
    return _floats(base) * (1.0 + _floats(growth_per_year)) ** _floats(years)


def mean_power(
    full_power_w: ArrayLike, utilisation: ArrayLike, idle_share: ArrayLike
) -> FloatArray:
    """Mean power (W) of a server busy for a share of the time, P·(µ + i·(1 − µ))."""
    busy = _floats(utilisation)
    return _floats(full_power_w) * (busy + _floats(idle_share) * (1.0 - busy))


def servers_to_sweep(data_bytes: ArrayLike, seconds: ArrayLike, iops: ArrayLike) -> FloatArray:
    """Return how many servers of ``iops`` (512 B), not rounded, read a data set in ``seconds``."""
    with np.errstate(divide="ignore"):
        return _floats(data_bytes) / IO_BYTES / (_floats(iops) * _floats(seconds))


def thread_worth(
    cores_alone: ArrayLike, with_threads: ArrayLike, as_cores: ArrayLike
) -> FloatArray:
    """Return the share of a full core that a second hardware thread is worth; NaN if unknown.

    From the rates of n cores with one thread each, of the same n cores with m threads, and of m
    cores with one thread each: 0 where threads add nothing, 1 where they are as good as cores; NaN
    where more cores add nothing either.
    """
    start = _floats(cores_alone)
    by_cores = _floats(as_cores) - start
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_cores > 0, (_floats(with_threads) - start) / by_cores, np.nan)


def bandwidth_at_rise(bandwidth: FloatArray, cpio: FloatArray, rise: float) -> FloatArray:
    """Return the memory bandwidth (B/s a core) where cpio is ``rise`` above that at the highest.

    Straight lines join neighbouring levels; the first crossing from the highest bandwidth counts.
    NaN where cpio has not risen so far at any level. ``bandwidth`` is that of each core (B/s), each
    level once, in any order; ``cpio`` (…, levels) are the cycles per I/O at these; a ``rise`` of
    0.10 is 10 %.
    """
    down = np.argsort(-np.asarray(bandwidth))
    at = _floats(bandwidth)[down]
    increase = np.asarray(cpio)[..., down] / np.asarray(cpio)[..., down[:1]] - 1.0
    above = increase >= rise
    reached = above.any(axis=-1)
    first = np.maximum(np.argmax(above, axis=-1), 1)[..., None]
    low, high = (np.take_along_axis(increase, i, axis=-1)[..., 0] for i in (first - 1, first))
    before, after = at[first - 1][..., 0], at[first][..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = before + (after - before) * (rise - low) / (high - low)
    return np.where(reached, crossing, np.nan)


def _floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


class IoRuns(NamedTuple):
    """Runs of one application: (runs,) arrays."""

    cores: FloatArray
    rate: FloatArray  # 512-byte I/Os per second
    cpio: FloatArray
    utilisation: FloatArray
    frequency: FloatArray  # Hz

    def take(self, rows: BoolArray) -> IoRuns:
        """Select the runs that are marked."""
        return IoRuns._make(part[rows] for part in self)


class RateLaw(NamedTuple):
    """A law fitted to one application."""

    # 512-byte I/Os per second at core counts; NaN where the law has no answer.
    rate: Callable[[FloatArray], FloatArray]
    # (lower, upper) of the mean of one new run at a core count and level.
    interval: Callable[[float, float], tuple[float, float]]
    parameters: int  # free ones, those of the law only


class LawScore(NamedTuple):
    """How well a law does; NaN where there are too few runs."""

    parameters: int
    aicc: float  # Akaike's criterion with the correction for few runs
    weight: float  # Akaike weight among the laws that have one, 0 to 1
    held_out: float  # error at the most cores when fitted to the runs on fewer, as a share


def fit_laws(runs: IoRuns, *, floor: float, frequency: float) -> dict[str, RateLaw]:
    """Fit each law of the I/O rate to runs; leave out those that the runs cannot determine.

    ``floor`` is the lowest utilisation of the first law, ``frequency`` (Hz) that of the server to
    predict; rates of Amdahl's and Gunther's laws go in proportion to it.
    """
    scale = frequency / runs.frequency
    fits: dict[str, Callable[[], RateLaw]] = {
        LINEAR_CPIO: lambda: _fit_linear_cpio(runs, floor, frequency),
        AMDAHL: lambda: _fit_over_cores(AMDAHL, runs.cores, runs.rate * scale),
        GUNTHER: lambda: _fit_over_cores(GUNTHER, runs.cores, runs.rate * scale),
    }
    found: dict[str, RateLaw] = {}
    for name, fit in fits.items():
        with suppress(FittingError):
            found[name] = fit()
    return found


def score_laws(runs: IoRuns, laws: Mapping[str, RateLaw], *, floor: float) -> dict[str, LawScore]:
    """Score laws by Akaike's criterion and hold-out error, at the core frequency of the runs."""
    own = float(np.median(runs.frequency))
    at_own = fit_laws(runs, floor=floor, frequency=own)
    rate = runs.rate * own / runs.frequency
    criteria = {name: _aicc(rate, at_own[name], runs.cores) for name in laws}
    # Akaike weights: the likelihood of each law among those that have a criterion; they sum to 1.
    least = np.nanmin([*criteria.values(), np.inf])
    likely = {name: np.exp(-0.5 * (value - least)) for name, value in criteria.items()}
    total = np.nansum([*likely.values()])
    errors = _test_laws(runs, rate, floor, own)
    return {
        name: LawScore(
            laws[name].parameters, criteria[name], likely[name] / total, errors.get(name, np.nan)
        )
        for name in laws
    }


def _aicc(rate: FloatArray, law: RateLaw, cores: FloatArray) -> float:
    """Return Akaike's criterion (AICc) of a law for I/O rates; NaN for too few runs."""
    n, k = len(rate), law.parameters + 1
    # Normal errors of ln(rate) about each law as fitted by its own least squares: the criterion is
    # a little too large for a law that is fitted otherwise.
    residual = np.log(rate / law.rate(cores))
    if n - k - 1 <= 0 or not np.isfinite(residual).all():
        return float("nan")
    spread = max(float(np.mean(residual**2)), _ROUNDING**2)
    return float(n * np.log(spread) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def _test_laws(runs: IoRuns, rate: FloatArray, floor: float, frequency: float) -> dict[str, float]:
    """Fit laws without the runs on most cores; return their relative errors there."""
    # A law is for core counts beyond the measured ones: it is judged by the most cores, unseen.
    last = runs.cores == runs.cores.max()
    if last.all():
        return {}
    most = runs.cores[last][:1]
    truth = float(np.exp(np.log(rate[last]).mean()))
    laws = fit_laws(runs.take(~last), floor=floor, frequency=frequency)
    return {name: abs(float(law.rate(most)[0]) / truth - 1.0) for name, law in laws.items()}


def _fit_linear_cpio(runs: IoRuns, floor: float, frequency: float) -> RateLaw:
    """Fit lines of cycles per I/O and of utilisation against cores, as a law of the I/O rate."""
    if len(np.unique(runs.cores)) < 2:
        raise FittingError("a line of cycles per I/O needs runs at two core counts or more")
    codes = np.zeros(len(runs.cores), dtype=np.int64)
    fit = fit_scaling(codes, runs.cores, runs.cpio, runs.utilisation, 1)

    def predict_rate(cores: FloatArray) -> FloatArray:
        busy = np.clip(fit.utilisation.value(cores), floor, 1.0)
        return io_rate(busy, cores, frequency, fit.cpio.value(cores))

    # Its interval is that of the projection itself, which has more to say than the law.
    return RateLaw(predict_rate, lambda cores, level: (np.nan, np.nan), 4 - int(fit.falls[0]))


def _fit_over_cores(name: str, cores: FloatArray, rate: FloatArray) -> RateLaw:
    """Fit Amdahl's law to the time per I/O, or Gunther's to the I/O rate, as a law of the rate."""
    from fitting.laws.cores import AmdahlScaling, UniversalScalability

    of_time = name == AMDAHL
    power = -1.0 if of_time else 1.0
    model = (AmdahlScaling() if of_time else UniversalScalability()).fit(cores, rate**power)

    def rate_interval(n: float, level: float) -> tuple[float, float]:
        ends = [float(end[0]) ** power for end in model.predict_interval([n], level=level)]
        return min(ends), max(ends)

    return RateLaw(lambda n: model.predict(n) ** power, rate_interval, int(model.free_.sum()))
