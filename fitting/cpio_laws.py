"""Laws of the I/O rate against cores side by side: linear cycles per I/O, Amdahl, Gunther.

With cpio a line against cores and a constant utilisation, the rate is µ·F·n/(a + b·n): that is
Amdahl's law. What the first law has more is a utilisation that changes with cores; what Gunther's
has more is a term of the square of the cores, cores waiting for each other to agree.

The likelihood is that of normal errors of ln(rate) about each law as fitted by its own least
squares, so Akaike's criterion is a little too large for a law that is fitted otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.cpio import io_rate
from fitting.cpio_scaling import fit_scaling
from fitting.errors import FittingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fitting.line import FloatArray
    from fitting.scaling import AmdahlScaling, UniversalScalability

LINEAR_CPIO = "linear cpio"
AMDAHL = "Amdahl"
GUNTHER = "Universal Scalability"
LAWS = (LINEAR_CPIO, AMDAHL, GUNTHER)
# Residuals below this are rounding: laws that fit so well are told apart by their parameters.
_ROUNDING = 1e-10


class IoRuns(NamedTuple):
    """Runs of one application: (runs,) arrays; ``rate`` in 512-byte I/Os a second."""

    cores: FloatArray
    rate: FloatArray
    cpio: FloatArray
    utilisation: FloatArray
    frequency: FloatArray

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> IoRuns:
        """Choose some of the runs."""
        return IoRuns._make(part[rows] for part in self)


class Law(NamedTuple):
    """A law fitted to one application.

    Attributes
    ----------
    rate : function
        512-byte I/Os a second at core counts; NaN where the law has no answer.
    interval : function
        (lower, upper) of the mean of one new run at a core count and level.
    parameters : int
        Free ones, those of the law only.
    """

    rate: Callable[[FloatArray], FloatArray]
    interval: Callable[[float, float], tuple[float, float]]
    parameters: int


class LawScore(NamedTuple):
    """How well a law does.

    Attributes
    ----------
    parameters : int
    aicc : float
        Akaike's criterion with the correction for few runs; NaN where there are too few.
    weight : float
        Akaike weight among the laws that have one: how much speaks for it, 0 to 1.
    held_out : float
        Error at the most cores when fitted to the runs on fewer, as a share; NaN where too few.
    """

    parameters: int
    aicc: float
    weight: float
    held_out: float


def fit_laws(runs: IoRuns, *, floor: float, frequency: float) -> dict[str, Law]:
    """Fit every law that the runs can tell.

    Parameters
    ----------
    runs : IoRuns
    floor : float
        Lowest utilisation of the first law.
    frequency : float
        Hz of the server that is asked for; rates of Amdahl's and Gunther's laws go in proportion
        to it, as cycles per I/O do in the first.
    """
    found: dict[str, Law] = {}
    for name, fit in _FITS.items():
        try:
            found[name] = fit(runs, floor, frequency)
        except FittingError:
            continue
    return found


def score_laws(runs: IoRuns, laws: Mapping[str, Law], *, floor: float) -> dict[str, LawScore]:
    """Score fitted laws; all rates are compared at the frequency of their runs."""
    own = float(np.median(runs.frequency))
    at_own = fit_laws(runs, floor=floor, frequency=own)
    rate = runs.rate * own / runs.frequency
    criteria = {name: _aicc(rate, at_own[name], runs.cores) for name in laws}
    least = np.nanmin([*criteria.values(), np.inf])
    likely = {name: np.exp(-0.5 * (value - least)) for name, value in criteria.items()}
    total = np.nansum([*likely.values()])
    errors = _held_out(runs, rate, floor, own)
    return {
        name: LawScore(
            laws[name].parameters, criteria[name], likely[name] / total, errors.get(name, np.nan)
        )
        for name in laws
    }


def _aicc(rate: FloatArray, law: Law, cores: FloatArray) -> float:
    n, k = len(rate), law.parameters + 1
    residual = np.log(rate / law.rate(cores))
    if n - k - 1 <= 0 or not np.isfinite(residual).all():
        return float("nan")
    spread = max(float(np.mean(residual**2)), _ROUNDING**2)
    return float(n * np.log(spread) + 2 * k + 2 * k * (k + 1) / (n - k - 1))


def _held_out(runs: IoRuns, rate: FloatArray, floor: float, frequency: float) -> dict[str, float]:
    last = runs.cores == runs.cores.max()
    if last.all():
        return {}
    most = runs.cores[last][:1]
    truth = float(np.exp(np.log(rate[last]).mean()))
    laws = fit_laws(runs.take(~last), floor=floor, frequency=frequency)
    return {name: abs(float(law.rate(most)[0]) / truth - 1.0) for name, law in laws.items()}


def _linear_cpio(runs: IoRuns, floor: float, frequency: float) -> Law:
    if len(np.unique(runs.cores)) < 2:
        raise FittingError("a line of cycles per I/O needs two core counts")
    codes = np.zeros(len(runs.cores), dtype=np.int64)
    fit = fit_scaling(codes, runs.cores, runs.cpio, runs.utilisation, 1)

    def rate(cores: FloatArray) -> FloatArray:
        busy = np.clip(fit.utilisation.value(cores), floor, 1.0)
        return io_rate(busy, cores, frequency, fit.cpio.value(cores))

    # Its interval is that of the projection itself, which has more to say than the law.
    return Law(rate, lambda cores, level: (np.nan, np.nan), 4 - int(fit.falls[0]))


def _amdahl(runs: IoRuns, floor: float, frequency: float) -> Law:
    from fitting.scaling import AmdahlScaling

    scale = frequency / runs.frequency
    model = AmdahlScaling().fit(runs.cores, 1.0 / (runs.rate * scale))

    def interval(cores: float, level: float) -> tuple[float, float]:
        lower, upper = (float(end[0]) for end in model.predict_interval([cores], level=level))
        # A time that may be nothing is a rate without an upper end.
        return 1.0 / upper, 1.0 / lower if lower > 0 else np.inf if lower == lower else np.nan

    return Law(lambda cores: 1.0 / model.predict(cores), interval, _free(model))


def _gunther(runs: IoRuns, floor: float, frequency: float) -> Law:
    from fitting.scaling import UniversalScalability

    scale = frequency / runs.frequency
    model = UniversalScalability().fit(runs.cores, runs.rate * scale)

    def interval(cores: float, level: float) -> tuple[float, float]:
        lower, upper = (float(end[0]) for end in model.predict_interval([cores], level=level))
        return max(lower, 0.0) if lower == lower else np.nan, upper

    return Law(lambda cores: model.predict(cores), interval, _free(model))


def _free(model: AmdahlScaling | UniversalScalability) -> int:
    held = len(model.bound_.split(", ")) if model.bound_ else 0
    return len(model.theta_) - held


_FITS: dict[str, Callable[[IoRuns, float, float], Law]] = {
    LINEAR_CPIO: _linear_cpio,
    AMDAHL: _amdahl,
    GUNTHER: _gunther,
}
