"""Answers of a table's groups at any frequency, with their intervals: one way for all callers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.conformal import conformal_factor, fewest_scores
from fitting.bayes.draws import CurvePosterior, curve_posteriors
from fitting.bayes.steps import SAME_STEP, LackOfFit, lack_of_fit
from fitting.regression.models import Prediction
from ppw.errors import PpwError
from ppw.projection.caveats import bent, far_findings, fit_findings, posterior_findings
from ppw.projection.curves import Curves, Factor, fit_curves, predict, reached
from ppw.projection.options import FitOptions, VoltageTable
from ppw.projection.posteriors import Cells, Distribution, Posteriors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.results.caveats import Finding
    from ppw.runs.metrics import Metric
    from ppw.runs.prepare import Prepared

    Mask = NDArray[np.bool_]
    from collections.abc import Mapping

    from fitting.bayes.pooling import Curve


# Metrics that both forms answer.
WITH_OTHER_FORM = ("time", "cpi", "throughput")
_NO_ERRORS: Mapping[str, float] = {}


class Answer(NamedTuple):
    """What is said of a metric at some cells; one element a cell.

    ``distribution`` is None where the interval is not a posterior's.
    """

    cells: Cells
    factors: list[Factor]
    prediction: Prediction
    distribution: Distribution | None


@dataclass(frozen=True)
class Answers:
    """Curves and posteriors through the chosen rows of a table."""

    prepared: Prepared
    options: FitOptions
    curves: Curves
    posteriors: Posteriors

    @classmethod
    def of(cls, prepared: Prepared, options: FitOptions, rows: Mask | None = None) -> Answers:
        """Fit all that the table's metrics need to the chosen rows (all of them by default)."""
        runs, groups = prepared.runs, prepared.groups
        voltage = VoltageTable.of(runs, groups, options.voltages)
        return cls(
            prepared,
            options,
            fit_curves(runs, groups, prepared.metrics, options, rows),
            Posteriors.of(runs, groups, prepared.metrics, options, voltage, rows),
        )

    def at(self, metric: Metric, cells: Cells, level: float) -> Answer:
        """Answer for each cell; a group may have several."""
        return self.product(self.options.fitted(metric), cells, level)

    def product(
        self,
        powers: Mapping[str, int],
        cells: Cells,
        level: float,
        *,
        constant: float = 1.0,
        clock_power: int = 0,
        errors: Mapping[str, float] = _NO_ERRORS,
    ) -> Answer:
        """Answer constant · f^clock_power · Π fit^power for each cell.

        Parameters
        ----------
        powers : mapping of str to int
            Power of each fit ("time", "cpi", "power", …).
        errors : mapping of str to float
            Variance of the logarithm of further factors, by what they are.
        """
        factors = self.curves.factors(powers, cells.group)
        straight = predict(
            factors,
            cells.frequency,
            level=level,
            repeats=cells.runs,
            constant=constant,
            clock_power=clock_power,
        )
        if not self.options.product_has_posterior(powers):
            if self.options.interval == "none":
                nothing = np.full(len(cells.group), np.nan)
                straight = straight._replace(lower=nothing, upper=nothing)
            return Answer(cells, factors, straight, None)
        known = self.posteriors.at(powers, cells, level)
        for source, variance in errors.items():
            known = known.widened(source, variance, level)
        factor = constant * cells.frequency**clock_power
        value, lower, upper = (end * factor for end in (known.value, known.lower, known.upper))
        share = reached(value, straight.limit, len(factors))
        return Answer(cells, factors, Prediction(value, lower, upper, straight.limit, share), known)

    def other_form(self, metric: Metric) -> Answers | None:
        """Fit the other form to the groups whose curve is faster than the clock, if there are any.

        The other form is the reciprocal one beside the bounded, and the reverse.
        """
        if metric.name not in WITH_OTHER_FORM:
            return None
        line, form = self.curves.fits[metric.name].line, self.options.form
        if form == "reciprocal":
            faster = line.slope < 0
        else:
            coefficient = line.slope if metric.name == "cpi" else line.intercept
            faster = coefficient <= 0 if form == "amdahl" else coefficient < 0
        if not faster.any():
            return None
        options = FitOptions(
            form="amdahl" if form == "reciprocal" else "reciprocal",
            interval="none" if self.options.interval == "none" else "t",
        )
        runs, groups = self.prepared.runs, self.prepared.groups
        curves = fit_curves(runs, groups, [metric], options, faster[groups.codes])
        return replace(self, options=options, curves=curves)

    def findings(self, answer: Answer) -> list[tuple[str, Finding]]:
        """Caveats of the fits and intervals of an answer."""
        posterior = answer.distribution is not None
        frequency = answer.cells.frequency
        found = fit_findings(answer.factors, frequency, posterior=posterior)
        for factor in answer.factors:
            measured = self.curves.clocks[factor.name].take(answer.cells.group)
            found += far_findings(factor, measured, frequency)
        if not posterior:
            return found
        found += posterior_findings(answer.factors, answer.prediction)
        for name in (f.name for f in answer.factors if f.name != "power"):
            test = lack_of_fit(self.posteriors.steps[name], usual=self.posteriors.time.prior.noise)
            of_cells = LackOfFit(*(part[answer.cells.group] for part in test))
            found += [(name, f) for f in bent(of_cells)]
        return found


def calibrated(
    answer: Answer, measured: FloatArray, at: Answer, cluster: IntArray, level: float
) -> Answer:
    """Give ``answer`` the interval that the misses of other clusters' groups call for.

    Parameters
    ----------
    answer : Answer
        Whose interval is to be replaced.
    measured : float array
        Measurements of the metric at the cells of ``at``.
    at : Answer
        Projections to those cells that have not seen them.
    cluster : (groups,) int array
    """
    if answer.distribution is None or at.distribution is None:
        return answer
    deviation = np.sqrt(at.distribution.mixture.moments()[1])
    score = np.abs(np.log(measured / at.prediction.value)) / deviation
    asked = cluster[answer.cells.group]
    factor = conformal_factor(score, cluster[at.cells.group], asked, level)
    reach = np.exp(factor * np.sqrt(answer.distribution.mixture.moments()[1]))
    value = answer.prediction.value
    ends = answer.prediction._replace(lower=value / reach, upper=value * reach)
    return answer._replace(prediction=ends)


def too_few(level: float) -> str:
    """Say how many groups a conformal interval takes."""
    return (
        f"a conformal interval at {level:.0%} takes {fewest_scores(level)} groups of other "
        "workloads measured at the target frequency: ask for --interval bayes, or measure more "
        "of them there"
    )


# Draws of the curves of a runs table: what depends on several frequencies at once is counted.


POWER = "power"
FEWEST_DRAWS = 100


@dataclass(frozen=True)
class CurveDraws:
    """Posterior curves of all groups, ready to be drawn.

    Attributes
    ----------
    known : mapping of str to mapping of int to CurvePosterior
        By what is fitted ("time", "throughput", "performance", "power") and group.
    draws, seed : int
        The same group has the same draws whenever it is asked for the same frequencies.
    """

    known: Mapping[str, Mapping[int, CurvePosterior]]
    draws: int
    seed: int

    @classmethod
    def of(
        cls,
        answers: Answers,
        lowest: FloatArray,
        highest: FloatArray,
        *,
        draws: int,
        seed: int,
    ) -> CurveDraws:
        """Prepare all that was fitted.

        Parameters
        ----------
        answers : Answers
        lowest, highest : (groups,) float array
            Range of frequencies (Hz) that each group will be asked for; NaN for a group that will
            not be asked.
        draws : int
            Curves a group, 100 or more.
        seed : int
        """
        if draws < FEWEST_DRAWS:
            raise PpwError(f"{draws} draws are too few to count: ask for {FEWEST_DRAWS} or more")
        made = {
            name: _posteriors(answers.posteriors, name, lowest, highest)
            for name in answers.posteriors.steps
        }
        return cls(made, draws, seed)

    def has(self, name: str, group: int) -> bool:
        """Tell whether a group can be drawn."""
        return group in self.known[name]

    def is_curve(self, name: str, group: int) -> bool:
        """Tell whether a group has two steps or more, and so more than its one frequency."""
        return self.has(name, group) and self.steps(name, group).size > 1

    def steps(self, name: str, group: int) -> FloatArray:
        """Measured frequencies (Hz) of a group, rising."""
        measured: FloatArray = self.known[name][group].sweep.frequency[0]
        return measured

    def log_time(self, name: str, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(seconds a unit of work), the reciprocal of a rate: (draws, frequencies)."""
        return self._draw(name, group, frequencies, 0)

    def log_power(self, group: int, frequencies: FloatArray) -> FloatArray:
        """Draw ln(watts): (draws, frequencies)."""
        return self._draw(POWER, group, frequencies, 1)

    def _draw(self, name: str, group: int, frequencies: FloatArray, stream: int) -> FloatArray:
        known = self.known[name][group]
        asked = np.asarray(frequencies, dtype=float)
        if len(known.sweep.frequency[0]) == 1:
            asked = _at_the_only_step(asked, known)
        # One stream for all that is a time, so that a rate and its reciprocal are one curve.
        return known.draw(asked, self.draws, np.random.default_rng((self.seed, group, stream)))


def _at_the_only_step(asked: FloatArray, known: CurvePosterior) -> FloatArray:
    only = known.sweep.frequency[0, 0]
    if (np.abs(asked / only - 1) > SAME_STEP).any():
        raise PpwError(
            f"measured at {only / 1e9:.4g} GHz only: no curve leads to "
            f"{asked[np.argmax(np.abs(asked - only))] / 1e9:.4g} GHz; measure at a second frequency"
        )
    return np.full_like(asked, only)


def _posteriors(
    posteriors: Posteriors, name: str, lowest: FloatArray, highest: FloatArray
) -> dict[int, CurvePosterior]:
    steps, neighbours = posteriors.steps[name], posteriors.neighbours
    made: dict[int, CurvePosterior] = {}
    for curve, groups in _laws(posteriors, name, lowest, highest):
        made |= curve_posteriors(curve, steps, neighbours, groups)
    # A host without frequency scaling has one step: nothing of it informs the others.
    alone: Curve = posteriors.power if name == POWER else posteriors.time
    for group in np.flatnonzero(steps.count == 1):
        made |= curve_posteriors(alone, steps, neighbours, np.array([group]))
    return made


def _laws(
    posteriors: Posteriors, name: str, lowest: FloatArray, highest: FloatArray
) -> list[tuple[Curve, IntArray]]:
    """Curves with the groups that they hold for: power by a V-f table where it covers all asked."""
    steps = posteriors.steps[name]
    able = steps.count > 1
    if name != POWER:
        return [(posteriors.time, np.flatnonzero(able))]
    voltage = posteriors.voltage
    covered = voltage.covers(steps, lowest) & voltage.covers(steps, highest)
    with_table = replace(posteriors.power, voltage=voltage.at)
    both = [(with_table, able & covered), (posteriors.power, able & ~covered)]
    return [(curve, np.flatnonzero(mask)) for curve, mask in both if mask.any()]
