"""Answers of a table's groups at any frequency, with their intervals: one way for all callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.conformal import conformal_factor, fewest_scores
from fitting.bayes.steps import LackOfFit, lack_of_fit
from fitting.regression.models import Prediction
from ppw.curve_caveats import bent, far_findings, fit_findings, posterior_findings
from ppw.curves import Curves, Factor, FitOptions, fit_curves, predict, reached
from ppw.posteriors import Distribution, Posteriors
from ppw.voltage import VoltageTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.caveats import Finding
    from ppw.metrics import Metric
    from ppw.prepare import Prepared

    Mask = NDArray[np.bool_]


class Cells(NamedTuple):
    """Where answers are asked: group, frequency (Hz) and runs averaged, one element a cell."""

    group: IntArray
    frequency: FloatArray
    runs: FloatArray

    @classmethod
    def all_groups(cls, groups: int, frequency: float) -> Cells:
        """Every group once, at one frequency."""
        return cls(np.arange(groups), np.full(groups, float(frequency)), np.ones(groups))

    def take(self, cells: Mask) -> Cells:
        """Select some cells."""
        return Cells(self.group[cells], self.frequency[cells], self.runs[cells])


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
        factors = self.curves.of(metric, cells.group)
        straight = predict(factors, cells.frequency, level=level, repeats=cells.runs)
        if not self.options.has_posterior(metric):
            if self.options.interval == "none":
                nothing = np.full(len(cells.group), np.nan)
                straight = straight._replace(lower=nothing, upper=nothing)
            return Answer(cells, factors, straight, None)
        known = self.posteriors.at(metric, cells, level)
        limit = straight.limit
        share = reached(known.value, limit, len(factors))
        prediction = Prediction(known.value, known.lower, known.upper, limit, share)
        return Answer(cells, factors, prediction, known)

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
