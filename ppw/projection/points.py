"""`project`: from a few measured points to a frequency that was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.posterior import Target
from fitting.bayes.steps import step_counts
from fitting.errors import FittingError, OutOfRangeError
from fitting.laws.execution_time import execution_time
from fitting.regression.lines import SLOPE_AT_ZERO
from fitting.regression.models import fit
from measurements.table.units import implausible_frequency
from ppw.errors import PpwError
from ppw.projection.caveats import far_findings, fit_findings, posterior_findings
from ppw.projection.curves import ClockRange, Factor, predict, reached
from ppw.projection.options import FitOptions
from ppw.projection.plots import group_curves, plot_curve
from ppw.projection.posteriors import Posteriors
from ppw.results import caveats as cv
from ppw.results.arguments import as_frequency, as_positive, known_choice
from ppw.results.axes import new_axes
from ppw.results.caveats import tally
from ppw.results.estimate import Estimate
from ppw.results.result import numbers_digest, read_document, reads_document, write_document
from ppw.results.text import printable, printable_lines, shown, shown_interval
from ppw.runs.caveats import FAMILY_MISMATCH, UNKNOWN_WATTS, is_known_source, sources_known
from ppw.runs.metrics import METRICS, columns_for, values
from ppw.runs.prepare import prepare

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fitting.regression.lines import FloatArray

    Points = Sequence[tuple[float, float]] | Mapping[float, float] | ArrayLike | pd.DataFrame

    from fitting.laws.estimators import LogPathLength
    from fitting.regression.models import ModelFit
    from ppw.projection.posteriors import Distribution


# Measured points as `ppw.project` takes them: pairs, a mapping, an array or a runs table.


@dataclass(frozen=True)
class MeasuredPoints:
    """CPI and power points as (Hz, value) rows, and the caveats that came with them."""

    cpi: FloatArray
    power: FloatArray
    power_source: str | None
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls, cpi_pts: Points, power_pts: Points | None, family: str | None, source: str | None
    ) -> MeasuredPoints:
        """Read the points that `ppw.project` was given. Raises as it says."""
        cpi, cpi_runs = _points(cpi_pts, "cpi")
        power, power_runs = np.empty((0, 2)), None
        if power_pts is not None:
            power, power_runs = _points(power_pts, "power")
        elif cpi_runs is not None and columns_for(METRICS["power"], cpi_runs):
            power, power_runs = _points(cpi_runs, "power")
        caveats = _source_caveats(len(power) > 0, power_runs, source)
        caveats += _family_caveats([r for r in (cpi_runs, power_runs) if r is not None], family)
        return cls(cpi, power, source or _one_source(power_runs), tuple(caveats))


def _points(points: Points, name: str) -> tuple[FloatArray, pd.DataFrame | None]:
    """(Hz, value) rows, sorted so that sums do not depend on their order; and the runs table."""
    if hasattr(points, "columns"):
        array, runs = _points_of_runs(points, name)
    else:
        pairs = list(points.items()) if isinstance(points, Mapping) else points
        array, runs = _as_pairs(pairs, name), None
    bad = np.flatnonzero(~(np.isfinite(array).all(axis=1) & (array > 0).all(axis=1)))
    if bad.size:
        f, v = array[bad[0]]
        raise FittingError(
            f"{name} point {bad[0] + 1} is ({f:g} Hz, {v:g}): both must be positive and finite"
        )
    if reason := next(filter(None, map(implausible_frequency, array[:, 0])), None):
        raise FittingError(f"{name} points: {reason}")
    if step_counts(np.zeros(len(array), dtype=np.int64), array[:, 0], 1)[0] < 2:
        raise FittingError(
            f"{name} points: {len(array)} at one distinct frequency; a curve takes two: measure at "
            "one more"
        )
    return array[np.lexsort((array[:, 1], array[:, 0]))], runs


def _as_pairs(pairs: Any, name: str) -> FloatArray:
    try:
        array = np.asarray(pairs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FittingError(f"{name} points are not numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != 2:
        raise FittingError(
            f"{name} points have shape {array.shape}; give (Hz, {name}) pairs, a mapping or a "
            "2-column array"
        )
    return array


def _points_of_runs(frame: Any, name: str) -> tuple[FloatArray, pd.DataFrame]:
    from measurements import check_runs, tidy_runs
    from ppw.runs.groups import group_runs
    from ppw.runs.metrics import needed_columns

    metric = METRICS[name]
    tidy = tidy_runs(frame)
    runs = check_runs(tidy, needed=needed_columns([metric], tidy))
    groups = group_runs(runs)
    if len(groups) > 1:
        raise PpwError(
            f"the runs table holds {len(groups)} groups by {', '.join(groups.by)}: choose one, or "
            "use ppw.project_runs for all"
        )
    return np.column_stack([runs["freq_hz"], values(metric, runs)]), runs


def _one_source(runs: pd.DataFrame | None) -> str | None:
    """Power source of a runs table where all rows have the same."""
    if runs is None or not sources_known(runs):
        return None
    sources = runs["power_source"].unique()
    return str(sources[0]) if len(sources) == 1 else None


def _source_caveats(powered: bool, runs: pd.DataFrame | None, source: str | None) -> list[str]:
    in_table = source is None and runs is not None and sources_known(runs)
    known = in_table or is_known_source(source)
    return [UNKNOWN_WATTS] if powered and not known else []


def _family_caveats(tables: list[pd.DataFrame], family: str | None) -> list[str]:
    families = {f for t in tables if "family" in t.columns for f in t["family"].dropna()}
    if family is not None and families and families != {family}:
        return [
            f"family mismatch: points of {', '.join(sorted(families))} projected onto {family}; a "
            "baseline holds within one microarchitecture family"
        ]
    return [FAMILY_MISMATCH] if len(families) > 1 else []


# Estimates at one frequency from single measured points; `ppw.projection.answers` has those of
# tables.


QUANTITIES = (
    "cpi",
    "instructions_per_s",
    "time_s",
    "performance",
    "power_w",
    "energy_j",
    "perf_per_watt",
    "perf_per_dollar",
)

# What each quantity is made of, with its power; the rest are exact factors.
_MADE_OF: dict[str, dict[str, int]] = {
    "cpi": {"cpi": 1},
    "time_s": {"cpi": 1},
    "power_w": {"power": 1},
    "energy_j": {"cpi": 1, "power": 1},
    "perf_per_watt": {"cpi": -1, "power": -1},
    "perf_per_dollar": {"cpi": -1},
}


@dataclass(frozen=True)
class PointAnswers:
    """Estimates from the fits of CPI and power at one frequency.

    Attributes
    ----------
    cpi, power : ModelFit
        Of one group; no power without watts.
    at : float
        Frequency (Hz).
    cores : float
    level : float
        Of the intervals.
    posteriors : Posteriors or None
        For the intervals; None for Student's t and for none.
    path_length_variance : float
        Variance of ln(path length); 0 where it is taken as exact.
    options : FitOptions
    """

    cpi: ModelFit
    power: ModelFit | None
    at: float
    cores: float
    level: float
    posteriors: Posteriors | None
    path_length_variance: float
    options: FitOptions

    @classmethod
    def of(
        cls,
        table: MeasuredPoints,
        options: FitOptions,
        at: float,
        *,
        cores: float,
        level: float,
        path_length_variance: float = 0.0,
    ) -> PointAnswers:
        """Fit the points; raises `OutOfRangeError` where the curve of CPI has no answer."""
        cpi = fit_points(options, "cpi", table.cpi)
        refuse_unanswered(cpi, at, options.form)
        power = fit_points(options, "power", table.power) if len(table.power) else None
        posteriors = None
        if options.interval == "bayes":
            posteriors = Posteriors.of_points(table.cpi, table.power, options, table.power_source)
        return cls(cpi, power, at, cores, level, posteriors, path_length_variance, options)

    def estimate(
        self,
        unit: str,
        powers: Mapping[str, int],
        *,
        constant: float = 1.0,
        clock: int = 0,
        counted: bool = False,
    ) -> Estimate:
        """Estimate constant · f^clock · Π fit^power; ``counted`` where instructions enter."""
        fits = {"cpi": self.cpi, "power": self.power}
        factors = [Factor(n, f, p) for n, p in powers.items() if (f := fits[n]) is not None]
        straight = predict(factors, self.at, level=self.level, constant=constant, clock_power=clock)
        rest = {name: float(np.ravel(v)[0]) for name, v in straight._asdict().items()}
        if self.options.interval == "none":
            rest |= {"lower": np.nan, "upper": np.nan}
        if self.has_posterior(powers):
            known = self.distribution(powers, counted=counted)
            factor = constant * self.at**clock
            for name in ("value", "lower", "upper"):
                rest[name] = float(getattr(known, name)[0]) * factor
            value, limit = np.array([rest["value"]]), np.array([rest["limit"]])
            rest["limit_share"] = float(reached(value, limit, len(powers))[0])
        return Estimate(rest.pop("value"), unit, **rest)

    def has_posterior(self, powers: Mapping[str, int]) -> bool:
        """Tell whether a product of the fits has a posterior."""
        return self.posteriors is not None and all(n in self.posteriors.steps for n in powers)

    def distribution(self, powers: Mapping[str, int], *, counted: bool) -> Distribution:
        """Posterior of the product, with the error of the path length where instructions enter."""
        assert self.posteriors is not None
        target = Target(np.array([self.at]), np.ones(1))
        made = self.posteriors.product(powers, target, self.level)
        if not (counted and self.path_length_variance):
            return made
        return made.widened("path length", self.path_length_variance, self.level)

    def budget(self, made: Mapping[str, Estimate | None]) -> dict[str, dict[str, float]]:
        """Shares of the variance of the logarithm, by quantity and source of width."""
        if self.posteriors is None:
            return {}
        shares = {}
        for name, powers in _MADE_OF.items():
            if made.get(name) is None or not self.has_posterior(powers):
                continue
            known = self.distribution(powers, counted=name not in ("cpi", "power_w"))
            parts = {k: float(v[0]) for k, v in known.budget.items()}
            total = sum(parts.values())
            shares[name] = {k: v / total for k, v in parts.items()}
        return shares

    def quantities(
        self, instructions: float | None, efficiency: float, price: float | None
    ) -> dict[str, Any]:
        """All that the inputs allow, by name."""
        n = self.cores
        rate = self.estimate("instructions/s", {"cpi": -1}, constant=n, clock=1)
        made: dict[str, Any] = dict.fromkeys(QUANTITIES)
        made |= {"cpi": self.estimate("1", {"cpi": 1}), "instructions_per_s": rate}
        work, speed = "instructions", n
        if instructions is not None:
            # Seconds of one run at CPI 1 and 1 Hz; estimate() brings in both.
            seconds = float(
                execution_time(
                    data=1.0,
                    cpi=1.0,
                    path_length=instructions,
                    frequency_hz=1.0,
                    cores=n,
                    efficiency=efficiency,
                )
            )
            work, speed = "runs", 1 / seconds
            made["time_s"] = self.estimate(
                "s", {"cpi": 1}, constant=seconds, clock=-1, counted=True
            )
        made["performance"] = self.estimate(
            f"{work}/s", {"cpi": -1}, constant=speed, clock=1, counted=True
        )
        if price is not None:
            made["perf_per_dollar"] = made["performance"].scaled(1 / price, f"{work}/s per price")
        if self.power is not None:
            made |= self._with_power(work, speed, instructions is not None)
        return made

    def _with_power(self, work: str, speed: float, timed: bool) -> dict[str, Estimate | None]:
        per_watt = {"cpi": -1, "power": -1}
        ratio = self.estimate(f"{work}/J", per_watt, constant=speed, clock=1, counted=True)
        joules = {"cpi": 1, "power": 1}
        energy = self.estimate("J/run", joules, constant=1 / speed, clock=-1, counted=True)
        watts = self.estimate("W", {"power": 1})
        if np.isnan(watts):
            return {}
        return {"power_w": watts, "perf_per_watt": ratio, "energy_j": energy if timed else None}

    def other_form(self, points: FloatArray) -> Estimate | None:
        """CPI by the other form, where the one asked for hits the clock's speed or passes it."""
        if not (self.cpi.line.slope[0] < 0 or self.cpi.line.bound[0] == SLOPE_AT_ZERO):
            return None
        other = FitOptions(form="amdahl" if self.options.form == "reciprocal" else "reciprocal")
        second = fit_points(other, "cpi", points)
        if np.isnan(second.predict(self.at)[0]):
            return None
        return replace(self, cpi=second, posteriors=None).estimate("1", {"cpi": 1})

    def caveats(self, table: MeasuredPoints) -> list[str]:
        """Say what could mislead in the fits of the points and in their intervals."""
        found = []
        fits = (("cpi", self.cpi, table.cpi), ("power", self.power, table.power))
        for name, fitted, points in fits:
            if fitted is None:
                continue
            factors, powers = [Factor(name, fitted, 1)], {name: 1}
            posterior = self.has_posterior(powers)
            found += fit_findings(factors, self.at, posterior=posterior)
            measured = ClockRange(points[:1, 0], points[-1:, 0])
            found += far_findings(factors[0], measured, self.at)
            if posterior:
                known = self.distribution(powers, counted=False)
                ends = predict(factors, self.at, level=self.level)
                ends = ends._replace(value=known.value, lower=known.lower, upper=known.upper)
                found += posterior_findings(factors, ends)
        return tally(found)


def fit_points(options: FitOptions, name: str, points: FloatArray) -> ModelFit:
    """Fit the law of ``name`` ("cpi", "power") to rows of (Hz, value): one group."""
    codes = np.zeros(len(points), dtype=np.int64)
    return fit(options.model(name), codes, points[:, 0], points[:, 1], 1)


def refuse_unanswered(cpi: ModelFit, at: float, form: str) -> None:
    """Raise `OutOfRangeError` where a curve has no positive answer at a frequency (Hz)."""
    if np.isnan(cpi.predict(at)[0]):
        pole = getattr(cpi.model, "pole", None)
        where = f"; its pole is at {shown(float(pole(cpi.line)[0]), 'Hz')}" if pole else ""
        raise OutOfRangeError(
            f"the {form} form {cpi.model.equation} has no positive answer at {shown(at, 'Hz')}"
            f"{where}: ask for another frequency or form"
        )


@dataclass(frozen=True, kw_only=True)
class Projection:
    """What one workload will do at a frequency that was not measured.

    Every quantity is an `Estimate` (a float with unit, interval and limit), or None where the
    inputs do not allow it.

    Attributes
    ----------
    freq_hz : float
        Frequency asked for.
    cores : float
    level : float
        Of the intervals.
    form, power_form, interval
        As asked for.
    cpi : Estimate
        Cycles per instruction.
    instructions_per_s : Estimate
        Of all cores together, n·f/CPI.
    time_s, energy_j : Estimate or None
        Of one run.
    performance : Estimate
        Runs per second where the time is known, else instructions per second; by unit.
    power_w, perf_per_watt, perf_per_dollar : Estimate or None
    other_form_cpi : Estimate or None
        CPI by the other form (reciprocal beside Amdahl, and the reverse) where the curve is
        faster than the clock.
    parameters, standard_errors : dict
        Of the fits; a standard error is None where there is none.
    error_budget : dict
        By quantity, the share of the variance of its logarithm that each source of width has.
    caveats : tuple of str
    cpi_points, power_points : tuple of (Hz, value)
        What was measured.
    input_digest : str
    """

    freq_hz: float
    cores: float
    level: float
    form: str
    power_form: str | None
    interval: str
    cpi: Estimate
    instructions_per_s: Estimate
    time_s: Estimate | None
    performance: Estimate
    power_w: Estimate | None
    energy_j: Estimate | None
    perf_per_watt: Estimate | None
    perf_per_dollar: Estimate | None
    other_form_cpi: Estimate | None
    parameters: dict[str, float]
    standard_errors: dict[str, float | None]
    error_budget: dict[str, dict[str, float]]
    caveats: tuple[str, ...]
    cpi_points: tuple[tuple[float, float], ...]
    power_points: tuple[tuple[float, float], ...]
    input_digest: str

    def to_frame(self) -> pd.DataFrame:
        """One row a quantity: value, unit, lower, upper, limit, limit_share."""
        import pandas as pd

        rows = {name: q.to_dict() for name in QUANTITIES if (q := getattr(self, name)) is not None}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")

    def summary(self) -> str:
        """Give the quantities with intervals and limits, then the caveats, as text."""
        lines = [f"Projected to {shown(self.freq_hz, 'Hz')} on {self.cores:g} core(s), {self.form}"]
        known = {name: q for name in QUANTITIES if (q := getattr(self, name)) is not None}
        lines += [f"  {name:20} {_described(q, self.level)}" for name, q in known.items()]
        if self.other_form_cpi is not None:
            other = "bounded" if self.form == "reciprocal" else "reciprocal"
            lines.append(f"  {'cpi, ' + other:20} {_described(self.other_form_cpi, self.level)}")
        for name, parts in self.error_budget.items():
            if name in ("time_s", "power_w", "perf_per_watt"):
                said = ", ".join(f"{k} {v:.0%}" for k, v in parts.items() if v >= 0.005)
                lines.append(f"  width of {name} from: {said}")
        lines += [f"  caveat: {printable(c)}" for c in self.caveats]
        return printable_lines("\n".join(lines))

    def to_json(self) -> str:
        """JSON document with ``schema_version``, package version and input digest."""
        body = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "input_digest"}
        body |= {k: v.to_dict() for k, v in body.items() if isinstance(v, Estimate)}
        return write_document("projection", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Projection:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = read_document(text, "projection")
        body = {f.name: document[f.name] for f in fields(cls)}
        for name in (*QUANTITIES, "other_form_cpi"):
            body[name] = None if body[name] is None else Estimate.from_dict(body[name])
        for name in ("cpi_points", "power_points"):
            body[name] = tuple((f, v) for f, v in body[name])
        return cls(**{**body, "caveats": tuple(body["caveats"])})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the measured CPI, the fitted curve with its interval, and the projection."""
        return plot_projection(self, ax)


def project(
    cpi_pts: Points,
    *,
    freq: float | str,
    power_pts: Points | None = None,
    cores: float = 1,
    data_bytes: float | None = None,
    path_length: LogPathLength | None = None,
    instructions: float | None = None,
    efficiency: float = 1.0,
    price: float | None = None,
    form: str = "amdahl",
    power_form: str | None = None,
    exponent: float | None = None,
    voltages: Mapping[float, float] | None = None,
    level: float = 0.90,
    interval: str = "bayes",
    workload: str | None = None,
    family: str | None = None,
    power_source: str | None = None,
) -> Projection:
    """Project CPI, and what follows from it, to a core frequency that was not measured.

    Parameters
    ----------
    cpi_pts : pairs, mapping, 2-column array or runs table
        Measured (Hz, cycles per instruction); repeats are points of their own. A runs table must
        be of one group (`ppw.project_runs` takes many) and brings its power along.
    freq : float or str
        Frequency to project to, in Hz or with a unit ("3.0GHz").
    power_pts : like cpi_pts, optional
        Measured (Hz, W). Brings in power and perf/W.
    cores : float
        Cores that share the work.
    data_bytes : float, optional
        Input size, with ``path_length``.
    path_length : fitting.LogPathLength, optional
        Retired instructions per byte against cores. Brings in time, with ``data_bytes``.
    instructions : float, optional
        Retired instructions of a run. Brings in time without a path length.
    efficiency : float
        Overhead factor that multiplies time; 1 for none.
    price : float, optional
        Of one host. Brings in performance per dollar, in the price's currency.
    form : {"amdahl", "unbounded", "reciprocal"}
        CPI = cpi_core + m·f with both bounded at zero, or not; or 1/CPI = c − k/f.
    power_form : {None, "linear", "cmos"}
        P0 + s·f; or P0 + c·f^``exponent``, or with ``voltages`` P0 + c·f·V². By default the
        interval's own: CMOS with unknown voltage for "bayes", the published line for "t".
    exponent : float, optional
        Of the CMOS form; unknown by default for "bayes", else 3.
    voltages : mapping of Hz to V, optional
        Core voltage by frequency for the CMOS form.
    level : float
        Of the prediction intervals, 0 to 1.
    interval : {"bayes", "t", "none"}
        From a posterior of the bounded curves, with priors that are stated in
        `fitting.bayes.priors` and `fitting.bayes.priors` and so from two points on; Student's t
        about the least-squares curve, where there are degrees of freedom; or none.
    workload : str, optional
        Checked against the path length's own.
    family : str, optional
        Microarchitecture family projected onto; another than the points' is a caveat.
    power_source : str, optional
        Sensor and domain of the watts, such as "rapl:package".

    Returns
    -------
    Projection

    Raises
    ------
    FittingError
        For points that cannot be fitted, a frequency at or below a pole, a path length of
        another workload or past its range.
    PpwError, MeasurementError
        For contradictory arguments and for runs tables that cannot be read.

    Warns
    -----
    CaveatWarning
        For each entry of the result's ``caveats``.

    Notes
    -----
    T = D·CPI·PL·efficiency/(f·n), Issa & Figueira (2012), eq. 2. Instructions, cores, efficiency
    and price are taken as exact; the intervals hold the errors of the CPI and power fits, and from
    "bayes" that of a fitted path length.
    """
    known_choice("interval", interval, ("bayes", "t", "none"))
    options = FitOptions(
        form=form,
        power_form=power_form,
        exponent=exponent,
        voltages=voltages,
        interval=interval,
    )
    table = MeasuredPoints.of(cpi_pts, power_pts, family, power_source)
    given = {"cores": cores, "data_bytes": data_bytes, "instructions": instructions}
    for name, value in (given | {"efficiency": efficiency, "price": price}).items():
        if value is not None:
            as_positive(name, value)
    count = _instructions(cores, data_bytes, path_length, instructions, workload)
    uncertain = _path_length_variance(path_length, cores)
    answers = PointAnswers.of(
        table,
        options,
        as_frequency(freq),
        cores=cores,
        level=level,
        path_length_variance=uncertain,
    )
    quantities = answers.quantities(count, efficiency, price)
    caveats = [*table.caveats, *answers.caveats(table), *_path_length_caveats(path_length, cores)]
    cv.warn(caveats)
    fits = [f for f in (answers.cpi, answers.power) if f is not None]
    return Projection(
        freq_hz=answers.at,
        cores=float(cores),
        level=level,
        form=form,
        power_form=power_form,
        interval=interval,
        **quantities,
        error_budget=answers.budget(quantities),
        other_form_cpi=answers.other_form(table.cpi),
        parameters={k: float(v[0]) for f in fits for k, v in f.parameters().items()},
        standard_errors={k: _number(v[0]) for f in fits for k, v in f.standard_errors().items()},
        caveats=tuple(caveats),
        cpi_points=tuple((float(f), float(v)) for f, v in table.cpi),
        power_points=tuple((float(f), float(v)) for f, v in table.power),
        input_digest=numbers_digest(table.cpi, table.power),
    )


def _instructions(
    cores: float,
    data_bytes: float | None,
    path_length: LogPathLength | None,
    instructions: float | None,
    workload: str | None,
) -> float | None:
    """Retired instructions of a run: given, or D·PL(n)."""
    if instructions is not None and path_length is not None:
        raise PpwError("give instructions or path_length, not both: each sets the time alone")
    if path_length is None:
        return instructions
    if data_bytes is None:
        raise PpwError("path_length is per byte of input: give data_bytes with it")
    return data_bytes * path_length.at(cores, workload=workload)


def _path_length_variance(path_length: LogPathLength | None, cores: float) -> float:
    """Variance of ln(path length) by its fit; 0 for published coefficients and exact fits."""
    if path_length is None:
        return 0.0
    error = float(path_length.model_fit_.relative_error(cores, repeats=np.inf)[0])
    return 0.0 if np.isnan(error) else error**2


def _path_length_caveats(path_length: LogPathLength | None, cores: float) -> list[str]:
    if path_length is None or path_length.cores_[0] <= cores <= path_length.cores_[1]:
        return []
    low, high = path_length.cores_
    return [
        f"path length outside its range: measured at {low:g} to {high:g} cores, used at {cores:g}"
    ]


def _described(q: Estimate, level: float) -> str:
    text = shown(float(q), q.unit)
    if q.lower is not None:
        text += f"  [{shown_interval(q, q.lower, q.upper, q.unit)}] at {level:.0%}"
    if q.limit_share is not None:
        text += f"  limit {shown(q.limit)}, {q.limit_share:.0%} reached"
    return text


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def plot_projection(result: Projection, ax: Axes | None = None) -> Axes:
    """Draw the CPI of a `Projection`."""
    runs = pd.DataFrame(result.cpi_points, columns=["freq_hz", "cpi"])
    prepared = prepare(runs, by=[], metric="cpi")
    options = FitOptions(form=result.form, interval=result.interval)
    metric, at = METRICS["cpi"], result.freq_hz
    points, curve = group_curves(prepared, options, metric, [0], at, result.level)[0]
    axes = plot_curve(new_axes(ax), METRICS["cpi"], points, curve, result.freq_hz)
    axes.legend(frameon=False)
    return axes
