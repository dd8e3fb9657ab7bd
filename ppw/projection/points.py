"""`project`: from a few measured points to a frequency that was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.steps import step_counts
from fitting.errors import FittingError, OutOfRangeError
from fitting.laws.execution_time import execution_time
from measurements.table.units import implausible_frequency
from ppw.errors import PpwError
from ppw.projection.answers import Answer, Answers
from ppw.projection.options import FitOptions
from ppw.projection.plots import group_curves, plot_curve
from ppw.projection.posteriors import Cells
from ppw.results import caveats as cv
from ppw.results.arguments import as_frequency, as_positive, known_choice
from ppw.results.axes import new_axes
from ppw.results.caveats import tally
from ppw.results.estimate import Estimate
from ppw.results.result import PrintedTable, Result, numbers_digest
from ppw.results.text import printable, printable_lines, shown, shown_interval
from ppw.runs.caveats import FAMILY_MISMATCH, UNKNOWN_WATTS, is_known_source, sources_known
from ppw.runs.groups import group_runs
from ppw.runs.metrics import METRICS, columns_for, values
from ppw.runs.prepare import Prepared, prepare

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fitting.regression.lines import FloatArray

    Points = Sequence[tuple[float, float]] | Mapping[float, float] | ArrayLike | pd.DataFrame

    from fitting.laws.estimators import LogPathLength
    from fitting.regression.models import ModelFit


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
# Quantities into which the instructions of a run do not enter.
_WITHOUT_WORK = ("cpi", "instructions_per_s", "power_w")
# Quantities whose width is reported by where it comes from.
_BUDGETS = ("cpi", "time_s", "power_w", "energy_j", "perf_per_watt", "perf_per_dollar")


# Unit, powers of the fits, constant, and power of the frequency.
_Product = tuple[str, dict[str, int], float, int]


def _fitted(table: MeasuredPoints, options: FitOptions) -> Answers:
    """Fit the points as a runs table of one group, in which each row has one of the metrics."""
    parts = [("cpi", table.cpi), ("power_w", table.power)]
    frames = [pd.DataFrame({"freq_hz": p[:, 0], name: p[:, 1]}) for name, p in parts if len(p)]
    runs = pd.concat(frames, ignore_index=True)
    if table.power_source is not None:
        runs["power_source"] = table.power_source
    metrics = [METRICS["cpi"], METRICS["power"]][: len(frames)]
    return Answers.of(Prepared(runs, group_runs(runs, []), metrics), options)


def _products(instructions: float | None, cores: float, efficiency: float) -> dict[str, _Product]:
    """Unit, powers of the fits, constant and power of the frequency of each quantity."""
    work, speed, seconds = "instructions", cores, None
    if instructions is not None:
        # Seconds of one run at CPI 1 and 1 Hz; the fits and the frequency bring in the rest.
        seconds = float(
            execution_time(
                data=1.0,
                cpi=1.0,
                path_length=instructions,
                frequency_hz=1.0,
                cores=cores,
                efficiency=efficiency,
            )
        )
        work, speed = "runs", 1 / seconds
    made: dict[str, _Product] = {
        "cpi": ("1", {"cpi": 1}, 1.0, 0),
        "instructions_per_s": ("instructions/s", {"cpi": -1}, cores, 1),
        "performance": (f"{work}/s", {"cpi": -1}, speed, 1),
        "power_w": ("W", {"power": 1}, 1.0, 0),
        "perf_per_watt": (f"{work}/J", {"cpi": -1, "power": -1}, speed, 1),
    }
    if seconds is not None:
        made["time_s"] = ("s", {"cpi": 1}, seconds, -1)
        made["energy_j"] = ("J/run", {"cpi": 1, "power": 1}, 1 / speed, -1)
    return made


def _answered(
    answers: Answers,
    products: Mapping[str, _Product],
    cells: Cells,
    level: float,
    errors: Mapping[str, float],
) -> dict[str, Answer]:
    """Answer all products of what was fitted."""
    return {
        name: answers.product(
            powers,
            cells,
            level,
            constant=constant,
            clock_power=clock,
            errors={} if name in _WITHOUT_WORK else errors,
        )
        for name, (_, powers, constant, clock) in products.items()
        if powers.keys() <= answers.curves.fits.keys()
    }


def _estimate(answer: Answer, unit: str) -> Estimate:
    parts = {name: float(np.ravel(v)[0]) for name, v in answer.prediction._asdict().items()}
    return Estimate(parts.pop("value"), unit, **parts)


def _budget(answer: Answer) -> dict[str, float]:
    """Shares of the variance of the logarithm by source of width; empty without a posterior."""
    if answer.distribution is None:
        return {}
    parts = {source: float(v[0]) for source, v in answer.distribution.budget.items()}
    return {source: part / sum(parts.values()) for source, part in parts.items()}


def _other_form_cpi(answers: Answers, cells: Cells, level: float) -> Estimate | None:
    """Estimate CPI by the other form, where the one asked for is faster than the clock."""
    other = answers.other_form(METRICS["cpi"])
    if other is None:
        return None
    found = _estimate(other.at(METRICS["cpi"], cells, level), "1")
    return None if np.isnan(found) else found


def _refuse_unanswered(cpi: ModelFit, at: float, form: str) -> None:
    """Raise `OutOfRangeError` where a curve has no positive answer at a frequency (Hz)."""
    if np.isnan(cpi.predict(at)[0]):
        pole = getattr(cpi.model, "pole", None)
        where = f"; its pole is at {shown(float(pole(cpi.line)[0]), 'Hz')}" if pole else ""
        raise OutOfRangeError(
            f"the {form} form {cpi.model.equation} has no positive answer at {shown(at, 'Hz')}"
            f"{where}: ask for another frequency or form"
        )


@dataclass(frozen=True, kw_only=True)
class Projection(Result):
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

    kind = "projection"

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
    cpi_points: tuple[tuple[float, float], ...]
    power_points: tuple[tuple[float, float], ...]

    def to_frame(self) -> pd.DataFrame:
        """One row a quantity: value, unit, lower, upper, limit, limit_share."""
        import pandas as pd

        rows = {name: q.to_dict() for name in QUANTITIES if (q := getattr(self, name)) is not None}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the quantities with their intervals and limits."""
        rows = [[name, _described(q, self.level)] for name, q in self._estimates().items()]
        return [PrintedTable("Quantities", ["quantity", "projected"], rows, 2)]

    def summary(self) -> str:
        """Give the quantities with intervals and limits, then the caveats, as text."""
        lines = [f"Projected to {shown(self.freq_hz, 'Hz')} on {self.cores:g} core(s), {self.form}"]
        lines += [f"  {n:20} {_described(q, self.level)}" for n, q in self._estimates().items()]
        for name, parts in self.error_budget.items():
            if name in ("time_s", "power_w", "perf_per_watt"):
                said = ", ".join(f"{k} {v:.0%}" for k, v in parts.items() if v >= 0.005)
                lines.append(f"  width of {name} from: {said}")
        lines += [f"  caveat: {printable(c)}" for c in self.caveats]
        return printable_lines("\n".join(lines))

    def _estimates(self) -> dict[str, Estimate]:
        other = "bounded" if self.form == "reciprocal" else "reciprocal"
        found = {name: getattr(self, name) for name in QUANTITIES}
        found[f"cpi, {other}"] = self.other_form_cpi
        return {name: estimate for name, estimate in found.items() if estimate is not None}

    def _body(self) -> dict[str, Any]:
        body = super()._body()
        return {k: v.to_dict() if isinstance(v, Estimate) else v for k, v in body.items()}

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        body = super()._read(document)
        for name in (*QUANTITIES, "other_form_cpi"):
            body[name] = None if body[name] is None else Estimate.from_dict(body[name])
        for name in ("cpi_points", "power_points"):
            body[name] = tuple((f, v) for f, v in body[name])
        return body

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
    uncertain = _path_length_errors(path_length, cores)
    answers, at = _fitted(table, options), as_frequency(freq)
    _refuse_unanswered(answers.curves.fits["cpi"], at, form)
    cells = Cells.all_groups(1, at)
    products = _products(count, cores, efficiency)
    made = _answered(answers, products, cells, level, uncertain)
    quantities: dict[str, Any] = dict.fromkeys(QUANTITIES)
    quantities |= {name: _estimate(answer, products[name][0]) for name, answer in made.items()}
    if price is not None:
        rate = quantities["performance"]
        quantities["perf_per_dollar"] = rate.scaled(1 / price, f"{rate.unit} per price")
        made["perf_per_dollar"] = made["performance"]
    if len(table.power) and np.isnan(quantities["power_w"]):
        quantities |= dict.fromkeys(("power_w", "perf_per_watt", "energy_j"))
    findings = [
        found
        for name in ("cpi", "power_w")
        if name in made
        for found in answers.findings(made[name])
    ]
    caveats = [*table.caveats, *tally(findings), *_path_length_caveats(path_length, cores)]
    cv.warn(caveats)
    fits = answers.curves.fits.values()
    budgets = {n: _budget(made[n]) for n in _BUDGETS if quantities[n] is not None}
    return Projection(
        freq_hz=at,
        cores=float(cores),
        level=level,
        form=form,
        power_form=power_form,
        interval=interval,
        **quantities,
        error_budget={name: budget for name, budget in budgets.items() if budget},
        other_form_cpi=_other_form_cpi(answers, cells, level),
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


def _path_length_errors(path_length: LogPathLength | None, cores: float) -> dict[str, float]:
    """Variance of ln(path length) by its fit; none for published coefficients and exact fits."""
    if path_length is None:
        return {}
    error = float(path_length.model_fit_.relative_error(cores, repeats=np.inf)[0])
    return {"path length": error**2} if error > 0 else {}


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
