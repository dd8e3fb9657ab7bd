"""`project`: from a few measured points to a frequency that was not measured."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from ppw import caveats as cv
from ppw.arguments import as_frequency, as_positive, known_choice
from ppw.curves import FitOptions
from ppw.errors import PpwError
from ppw.estimate import Estimate, shown, shown_interval
from ppw.names import printable, printable_lines
from ppw.point_answers import QUANTITIES, PointAnswers
from ppw.points import MeasuredPoints
from ppw.result import numbers_digest, read_document, reads_document, write_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes

    from fitting.laws.estimators import LogPathLength
    from ppw.points import Points


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
        from ppw.plots import plot_projection

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
