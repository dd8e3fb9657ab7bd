"""`project`: from a few measured points to a frequency that was not measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.bayes.posterior import SAME_STEP
from fitting.errors import FittingError, OutOfRangeError
from fitting.laws.execution_time import execution_time
from fitting.regression.lines import FloatArray
from measurements import check_runs, tidy_runs
from measurements.table.units import implausible_frequency
from ppw.errors import PpwError
from ppw.projection import caveats as cv, plots
from ppw.projection.answers import Answers, CellAnswers, FitOptions, TargetCells
from ppw.results import axes, text as tx
from ppw.results.axes import Axes
from ppw.results.result import Estimate, PrintedTable, Result, numbers_digest, warn_caveats
from ppw.runs import metrics, prepare
from ppw.runs.groups import group_runs

if TYPE_CHECKING:
    from fitting.laws.estimators import LogPathLength
    from ppw.projection.answers import Interval
    from ppw.runs.metrics import Form, PowerForm

    Points = (
        Iterable[tuple[float | str, float]]
        | Iterable[Sequence[float | str]]
        | Mapping[float, float]
        | Mapping[str, float]
        | pd.Series[float]
        | NDArray[Any]
        | pd.DataFrame
    )

_CPI, _POWER = metrics.METRICS["cpi"], metrics.METRICS["power"]


# Programs that wait for memory most of the time stay below it.
_MOST_CPI = 20.0


class MeasuredPoints(NamedTuple):
    """CPI and power points as (Hz, value) rows, and the caveats that came with them."""

    cpi: FloatArray
    power: FloatArray
    power_source: str | None
    caveats: list[str]

    @classmethod
    def of(
        cls, cpi_pts: Points, power_pts: Points | None, family: str | None, source: str | None
    ) -> MeasuredPoints:
        """Read the CPI and power points that `ppw.project` was given, with their caveats."""
        cpi, cpi_runs = _read_points(cpi_pts, "cpi")
        power, power_runs = np.empty((0, 2)), None
        if power_pts is None and cpi_runs is not None and metrics.columns_for(_POWER, cpi_runs):
            power_pts = cpi_runs
        caveats = []
        if power_pts is not None:
            power, power_runs = _read_points(power_pts, "power")
            known = prepare.is_named_source(source)
            if power_runs is not None and prepare.all_sources_named(power_runs):
                known, sources = known or source is None, power_runs["power_source"].unique()
                source = source or (str(sources[0]) if len(sources) == 1 else None)
            caveats = [] if known else [prepare.UNKNOWN_WATTS]
        if cpi_runs is None and (most := cpi[:, 1].max()) > _MOST_CPI:
            caveats.append(
                f"points without a metric are cycles per instruction, and one is {most:.4g}: "
                'give metric="time" for times'
            )
        tables = [runs for runs in (cpi_runs, power_runs) if runs is not None]
        if tables:
            caveats += _family_caveats(tables, family)
        return cls(cpi, power, source, caveats)


def _read_points(points: Any, name: str) -> tuple[FloatArray, pd.DataFrame | None]:
    """Read (Hz, value) rows, sorted, of pairs, a mapping or a runs table; and the table or None."""
    runs = None
    if hasattr(points, "columns"):
        points, runs = _points_of_runs(points, name)
    try:
        pairs = list(points.items() if hasattr(points, "items") else points)
        known = [(tx.as_frequency(p[0]), p[1]) if _has_unit(p) else p for p in pairs]
        array = np.asarray(known, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FittingError(f"{name} points are not numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != 2:
        raise FittingError(
            f"{name} points have shape {array.shape}; give (Hz, {name}) pairs, a mapping or a "
            "2-column array"
        )
    for place, (f, v) in enumerate(array, start=1):
        if not (0 < f < np.inf and 0 < v < np.inf):
            raise FittingError(
                f"{name} point {place} is ({f:g} Hz, {v:g}): both must be positive and finite"
            )
    if reason := next(filter(None, map(implausible_frequency, array[:, 0])), None):
        raise FittingError(f"{name} points: {reason}")
    array = array[np.lexsort((array[:, 1], array[:, 0]))]
    if not (np.diff(array[:, 0]) > SAME_STEP * array[1:, 0]).any():
        raise FittingError(
            f"{name} points: {len(array)} at one distinct frequency; a curve takes two: measure at "
            "one more"
        )
    return array, runs


def table_of_points(points: Any, metric: str) -> pd.DataFrame:
    """Make a runs table of (frequency, value) points of a metric that one column holds."""
    by_name = {m.name: m.columns[0] for m in metrics.METRICS.values() if len(m.columns[0]) == 1}
    tx.check_choice("metric", metric, tuple(by_name))
    array, _ = _read_points(points, metric)
    return pd.DataFrame(array, columns=["freq_hz", *by_name[metric]])


def _has_unit(pair: Any) -> bool:
    """Tell whether the frequency of a point is a text: ("1.2GHz", 1.31)."""
    return isinstance(pair, tuple | list) and bool(pair) and isinstance(pair[0], str)


def _points_of_runs(frame: Any, name: str) -> tuple[FloatArray, pd.DataFrame]:
    """Read (Hz, value) rows of a runs table. Raises `PpwError` for more than one group."""
    metric, tidy = metrics.METRICS[name], tidy_runs(frame)
    runs = check_runs(tidy, needed=metrics.needed_columns([metric], tidy))
    groups = group_runs(runs)
    if len(groups) > 1:
        raise PpwError(
            f"the runs table holds {len(groups)} groups by {', '.join(groups.by)}: choose one "
            "group, or use ppw.project for all"
        )
    return np.column_stack([runs["freq_hz"], metrics.values(metric, runs)]), runs


def _family_caveats(tables: list[pd.DataFrame], family: str | None) -> list[str]:
    """Caveat on points of another family, or of several; none where families agree."""
    families = {f for t in tables if "family" in t.columns for f in t["family"].dropna()}
    if family is not None and families and families != {family}:
        return [
            f"family mismatch: points of {', '.join(sorted(families))} projected onto {family}; a "
            "baseline holds within one microarchitecture family"
        ]
    return [prepare.FAMILY_MISMATCH] if len(families) > 1 else []


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
_OF_POWER = ("power_w", "perf_per_watt", "energy_j")
# Quantities whose width is reported by where it comes from.
_BUDGETS = ("cpi", "time_s", "power_w", "energy_j", "perf_per_watt", "perf_per_dollar")


class _Product(NamedTuple):
    """A quantity as constant · f^clock_power · Π fit^power."""

    unit: str
    powers: Mapping[str, int]
    constant: float = 1.0
    clock_power: int = 0


def _products(instructions: float | None, cores: float, efficiency: float) -> dict[str, _Product]:
    """Fits, factors and unit of each quantity; time and energy only with ``instructions``."""
    work, speed, seconds = "instructions", cores, 1.0
    if instructions is not None:
        # Seconds of one run at CPI 1 and 1 Hz; the fits and the frequency bring in the rest.
        run = {"data": 1.0, "cpi": 1.0, "path_length": instructions, "frequency_hz": 1.0}
        seconds = float(execution_time(**run, cores=cores, efficiency=efficiency))
        work, speed = "runs", 1 / seconds
    made = {
        "cpi": _Product("1", {"cpi": 1}),
        "instructions_per_s": _Product("instructions/s", {"cpi": -1}, cores, 1),
        "performance": _Product(f"{work}/s", {"cpi": -1}, speed, 1),
        "power_w": _Product("W", {"power": 1}),
        "perf_per_watt": _Product(f"{work}/J", {"cpi": -1, "power": -1}, speed, 1),
    }
    if instructions is not None:
        made["time_s"] = _Product("s", {"cpi": 1}, seconds, -1)
        made["energy_j"] = _Product("J/run", {"cpi": 1, "power": 1}, 1 / speed, -1)
    return made


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
    parameters : dict
        Of the laws through the answer and the highest measured frequency; a posterior's curve bends
        between them. Without a posterior those of the least-squares laws.
    least_squares, standard_errors : dict
        Parameters of the least-squares laws; a standard error is None where there is none.
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
    least_squares: dict[str, float] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """One row a quantity: value, unit, lower, upper, limit, limit_share."""
        rows = {name: q.to_dict() for name in QUANTITIES if (q := getattr(self, name)) is not None}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the quantities with their intervals and limits."""
        rows = [[name, _quantity_text(q, self.level)] for name, q in self._estimates().items()]
        return [PrintedTable("Quantities", ["quantity", "projected"], rows, 2)]

    def summary(self) -> str:
        """Give the quantities with intervals and limits, then the caveats, as text."""
        lines = [
            f"Projected to {tx.shown(self.freq_hz, 'Hz')} on {self.cores:g} "
            f"core{'s' * (self.cores != 1)}, form {self.form}"
        ]
        lines += [f"  {n:20} {_quantity_text(q, self.level)}" for n, q in self._estimates().items()]
        for name, parts in self.error_budget.items():
            if name in ("time_s", "power_w", "perf_per_watt"):
                said = ", ".join(f"{k} {v:.0%}" for k, v in parts.items() if v >= 0.005)
                lines.append(f"  width of {name} from: {said}")
        lines += [f"  caveat: {tx.printable(c)}" for c in self.caveats]
        return tx.printable_lines("\n".join(lines))

    def _estimates(self) -> dict[str, Estimate]:
        """Estimates that are not None, in print order, with the CPI by the other form."""
        other = "bounded" if self.form == "reciprocal" else "reciprocal"
        found = {name: getattr(self, name) for name in QUANTITIES}
        if self.time_s is None:  # Performance then is instructions per second.
            del found["performance"]
        found[f"cpi, {other}"] = self.other_form_cpi
        return {name: estimate for name, estimate in found.items() if estimate is not None}

    def _document_fields(self) -> dict[str, Any]:
        body = super()._document_fields()
        return {k: v.to_dict() if isinstance(v, Estimate) else v for k, v in body.items()}

    @classmethod
    def _read_fields(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        body = super()._read_fields(document)
        for name in (*QUANTITIES, "other_form_cpi"):
            body[name] = None if body[name] is None else Estimate.from_dict(body[name])
        for name in ("cpi_points", "power_points"):
            body[name] = tuple((f, v) for f, v in body[name])
        return body

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the measured CPI, the fitted curve with its interval, and the projection."""
        runs = pd.DataFrame(self.cpi_points, columns=["freq_hz", "cpi"])
        prepared = prepare.prepare(runs, by=[], metric="cpi")
        options, at = FitOptions(form=self.form, interval=self.interval), self.freq_hz
        points, curve = plots.group_curves(prepared, options, _CPI, [0], at, self.level)[0]
        drawn = plots.plot_curve(axes.new_axes(ax), _CPI, points, curve, at)
        drawn.legend(frameon=False)
        return drawn


def project_points(
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
    form: Form = "amdahl",
    power_form: PowerForm | None = None,
    exponent: float | None = None,
    voltages: Mapping[float, float] | None = None,
    level: float = 0.90,
    interval: Interval = "bayes",
    workload: str | None = None,
    family: str | None = None,
    power_source: str | None = None,
) -> Projection:
    """Project CPI, and what follows from it, to a core frequency that was not measured.

    Parameters
    ----------
    cpi_pts : pairs, mapping, Series, 2-column array or runs table
        Measured (frequency, cycles per instruction), frequencies in Hz or as "1.2GHz"; repeats are
        points of their own. A runs table must be of one group (`ppw.project` takes many) and brings
        its power along.
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
        `fitting.bayes.priors`, and so from two points on; Student's t
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

    Notes
    -----
    T = D·CPI·PL·efficiency/(f·n), Issa & Figueira (2012), eq. 2. Instructions, cores, efficiency
    and price are taken as exact; the intervals hold the errors of the CPI and power fits, and from
    "bayes" that of a fitted path length.
    """
    tx.check_choice("interval", interval, ("bayes", "t", "none"))
    options = FitOptions(
        form=form, power_form=power_form, exponent=exponent, voltages=voltages, interval=interval
    )
    points = MeasuredPoints.of(cpi_pts, power_pts, family, power_source)
    given = {"cores": cores, "data_bytes": data_bytes, "instructions": instructions}
    for name, value in (given | {"efficiency": efficiency, "price": price}).items():
        if value is not None:
            tx.as_positive(name, value)
    errors: dict[str, float] = {}
    outside: list[str] = []
    if path_length is not None:
        if instructions is not None:
            raise PpwError(
                "give instructions or path_length, not both: each of them determines the time"
            )
        if data_bytes is None:
            raise PpwError("path_length is per byte of input: give data_bytes with it")
        instructions = data_bytes * path_length.at(cores, workload=workload)
        errors, outside = _doubts_of_path_length(path_length, cores)
    at = tx.as_frequency(freq)
    answers = _fit_points(points, options)
    cells = TargetCells(np.arange(1), np.array([at]), np.ones(1))
    products = _products(instructions, cores, efficiency)
    quantities, made = _answer_products(answers, products, cells, level, errors, price)
    fitted = [made[name] for name in ("cpi", "power_w") if name in made]
    findings = [answers.findings(a) + a.compare_least_squares()[1] for a in fitted]
    caveats = [*points.caveats, *cv.tally(chain(*findings)), *outside]
    warn_caveats(caveats)
    fits = [pair for c in answers.curves.values() for pair in c.fit.parameters().items()]
    widths = {name: made[name].distribution for name in _BUDGETS if quantities[name] is not None}
    return Projection(
        freq_hz=at,
        cores=float(cores),
        level=level,
        form=form,
        power_form=power_form,
        interval=interval,
        **quantities,
        error_budget={
            name: {source: float(part[0]) for source, part in width.budget_shares().items()}
            for name, width in widths.items()
            if width
        },
        parameters=_answering_parameters(answers, cells),
        least_squares={name: float(value[0]) for name, (value, _) in fits},
        standard_errors={
            name: None if np.isnan(error[0]) else float(error[0]) for name, (_, error) in fits
        },
        caveats=tuple(caveats),
        cpi_points=tuple((float(f), float(v)) for f, v in points.cpi),
        power_points=tuple((float(f), float(v)) for f, v in points.power),
        input_digest=numbers_digest(points.cpi, points.power),
    )


def _fit_points(points: MeasuredPoints, options: FitOptions) -> Answers:
    """Fit CPI and power points as a runs table of one group; each row has one of the two."""
    parts = [("cpi", points.cpi), ("power_w", points.power)]
    frames = [pd.DataFrame({"freq_hz": p[:, 0], name: p[:, 1]}) for name, p in parts if len(p)]
    runs = pd.concat(frames, ignore_index=True)
    if points.power_source is not None:
        runs["power_source"] = points.power_source
    return Answers.of(
        prepare.PreparedRuns(runs, group_runs(runs, []), [_CPI, _POWER][: len(frames)]), options
    )


def _answer_products(
    answers: Answers,
    products: Mapping[str, _Product],
    cells: TargetCells,
    level: float,
    errors: Mapping[str, float],
    price: float | None,
) -> tuple[dict[str, Any], dict[str, CellAnswers]]:
    """Answer each quantity whose fits exist, None for others; and the answers behind them."""
    made: dict[str, CellAnswers] = {}
    for name, product in products.items():
        if product.powers.keys() <= answers.curves.keys():
            # The error of a path length enters what is per run, and nothing else.
            of_work = None if name in _WITHOUT_WORK else errors
            made[name] = answers.product(product.powers, cells, level, *product[2:], errors=of_work)
    if np.isnan(made["cpi"].prediction.value[0]):
        _refuse_unanswered(answers, float(cells.frequency[0]))
    if other := answers.other_form(_CPI):
        made["other_form_cpi"] = other.at(_CPI, cells, level)
    quantities: dict[str, Any] = dict.fromkeys((*QUANTITIES, "other_form_cpi"))
    for name, answer in made.items():
        parts = {p: float(np.ravel(v)[0]) for p, v in answer.prediction._asdict().items()}
        unit = products[name].unit if name in products else "1"
        quantities[name] = Estimate(parts.pop("value"), unit, **parts)
    if price is not None:
        rate = quantities["performance"]
        quantities["perf_per_dollar"] = rate.scaled(1 / price, f"{rate.unit} per price")
        made["perf_per_dollar"] = made["performance"]
    # What has no positive answer is no quantity, nor is what it is a factor of.
    for name, without in (("power_w", _OF_POWER), ("other_form_cpi", ("other_form_cpi",))):
        if name in made and np.isnan(quantities[name]):
            quantities |= dict.fromkeys(without)
    return quantities, made


def _answering_parameters(answers: Answers, cells: TargetCells) -> dict[str, float]:
    """Parameters of each fit's law through the answer and the highest (else lowest) step."""
    found: dict[str, float] = {}
    for name, (fit, lowest, highest) in answers.curves.items():
        apart = abs(cells.frequency[0] / highest[0] - 1) > SAME_STEP
        other = cells._replace(frequency=highest if apart else lowest)
        law = answers.law_through(name, cells, other)
        if law is None:
            law = {parameter: value for parameter, (value, _) in fit.parameters().items()}
        found |= {parameter: float(value[0]) for parameter, value in law.items()}
    return found


def _refuse_unanswered(answers: Answers, at: float) -> NoReturn:
    """Raise `OutOfRangeError` where the CPI curve has no positive answer at a frequency (Hz)."""
    cpi, form = answers.curves["cpi"].fit, answers.options.form
    pole = getattr(cpi.model, "pole", None)
    where = f"; its pole is at {tx.shown(float(pole(cpi.line)[0]), 'Hz')}" if pole else ""
    raise OutOfRangeError(
        f"the {form} form {cpi.model.equation} has no positive answer at {tx.shown(at, 'Hz')}"
        f"{where}: ask for another frequency or form"
    )


def _doubts_of_path_length(
    path_length: LogPathLength, cores: float
) -> tuple[dict[str, float], list[str]]:
    """Variance of ln(path length), if it was fitted; and a caveat outside its core range."""
    error = float(path_length.model_fit_.relative_error(cores, repeats=np.inf)[0])
    low, high = path_length.cores_
    outside = (
        f"path length outside its range: measured at {low:g} to {high:g} cores, used at {cores:g}"
    )
    return {"path length": error**2} if error > 0 else {}, [outside] * (not low <= cores <= high)


def _quantity_text(q: Estimate, level: float) -> str:
    """Write an estimate with its interval and its limit, where it has them."""
    text = tx.shown(float(q), q.unit)
    if q.lower is not None:
        text += f"  [{tx.shown_interval(q, q.lower, q.upper, q.unit)}] at {level:.0%}"
    if q.limit_share is not None:
        text += f"  limit {tx.shown(q.limit, q.unit)}, {q.limit_share:.0%} reached"
    return text
