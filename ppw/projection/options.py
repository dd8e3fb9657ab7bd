"""Options of the fits: model, power model, voltages, intervals and pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fitting.laws import frequency as laws
from fitting.laws.power import CmosExponent, CmosVoltage, PowerLine
from fitting.regression.lines import FloatArray, IntArray, LineModel
from ppw.errors import PpwError
from ppw.results.arguments import check_choice
from ppw.runs.metrics import FORMS, POWER_FORMS

if TYPE_CHECKING:
    import pandas as pd

    from fitting.bayes.posterior import MeasuredSteps
    from ppw.runs.groups import Groups
    from ppw.runs.metrics import Metric

    Mask = NDArray[np.bool_]

INTERVALS = ("bayes", "conformal", "t", "none")
# Rounding of a frequency must not put it outside its own table.
_EDGE = 1e-3


class ModelOptions(TypedDict, total=False):
    """Keywords of `ppw.fit_runs` that choose the models; each is an attribute of `FitOptions`."""

    form: str
    power_form: str | None
    exponent: float | None
    voltages: Mapping[float, float] | pd.DataFrame | None
    via: str


class FittingOptions(ModelOptions, total=False):
    """Keywords of `ppw.project_runs` and `ppw.validate` that choose models and intervals."""

    interval: str
    pool: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Models of time and power, and the intervals of their projections.

    Every function that fits curves takes these as keywords.

    Attributes
    ----------
    form : {"amdahl", "unbounded", "reciprocal"}
        Model of time and CPI. "amdahl" is CPI = cpi_core + m·f with both terms at least 0,
        "unbounded" is the same without that bound, "reciprocal" is 1/CPI = c − k/f.
    power_form : {None, "linear", "cmos"}
        Model of power: P0 + s·f ("linear"), or P0 + c·f^``exponent``, with ``voltages``
        P0 + c·f·V² ("cmos"). None is the model of the interval: CMOS with unknown voltage for
        "bayes", the published line for "t" and "none".
    exponent : float or None
        Exponent of f in the CMOS model. None is unknown for "bayes", and 3 otherwise.
    voltages : mapping of Hz to V, DataFrame or None
        Core voltage by frequency for the CMOS model; a DataFrame has ``freq_hz``, ``voltage_v``
        and, where hosts differ, ``host``. None takes the column ``voltage_v`` of the runs, where it
        covers the frequency; an empty mapping takes no voltages.
    via : {"fits", "ratio"}
        perf/W as the quotient of a performance and a power fit, or by one regression on
        performance/power, as published.
    interval : {"bayes", "conformal", "t", "none"}
        "bayes" is a posterior of the bounded curves. "conformal" is as wide as the errors of the
        groups that were measured at the frequency. "t" is Student's t about the least-squares
        curve, where there are degrees of freedom. "none" is the least-squares curve alone.
    pool : bool
        Whether the groups of a table inform each other; ``pulled_pct`` says how much they did.

    Raises
    ------
    PpwError
        For a choice that does not exist, and for voltages or an exponent of a linear power model.
    """

    form: str = "amdahl"
    power_form: str | None = None
    exponent: float | None = None
    voltages: Mapping[float, float] | pd.DataFrame | None = None
    via: str = "fits"
    interval: str = "bayes"
    pool: bool = True

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        check_choice("via", self.via, ("fits", "ratio"))
        check_choice("interval", self.interval, INTERVALS)
        if self.power_form is not None:
            check_choice("power form", self.power_form, POWER_FORMS)
        if self.voltages is not None and not isinstance(self.voltages, Mapping):
            check_columns(self.voltages)
        if self.voltages is not None and len(self.voltages) and self.power_form == "linear":
            raise PpwError("a V-f table takes --power-form cmos")
        if self.exponent is not None and self.power_form == "linear":
            raise PpwError("an exponent takes --power-form cmos")
        a_host_each = not isinstance(self.voltages, Mapping | None) and "host" in self.voltages
        if a_host_each and self.interval in ("t", "none"):
            raise PpwError(
                "least squares take one V-f table for all hosts, and this one tells hosts apart: "
                "ask for --interval bayes, or one host at a time"
            )

    def fields_of_results(self) -> dict[str, Any]:
        """Return the options that results store, by the names of their fields."""
        names = ("form", "power_form", "via", "interval", "pool")
        return {name: getattr(self, name) for name in names}

    def for_curves(self) -> FitOptions:
        """Options with the posterior's intervals in place of conformal ones, for whole curves."""
        # Misses to be calibrated with are known at the frequency asked for only.
        return replace(self, interval="bayes") if self.interval == "conformal" else self

    def fit_powers(self, metric: Metric) -> dict[str, int]:
        """Names of the fits that a metric is made of, each with its power in the product."""
        if metric.factors is None or (metric.name == "perf_per_watt" and self.via == "ratio"):
            return {metric.name: 1}
        return dict(metric.factors)

    def has_posterior(self, powers: Mapping[str, int]) -> bool:
        """Tell whether a product of fits is answered from a posterior; not all models have one."""
        if self.interval not in ("bayes", "conformal") or "perf_per_watt" in powers:
            return False
        return self.form == "amdahl" or set(powers) == {"power"}

    def model(self, name: str) -> LineModel:
        """Choose the law of what is fitted: a metric, or "performance".

        Power is the published line unless another form, an exponent or voltages were asked for;
        "perf_per_watt" is the published regression on performance/power itself.
        """
        if name == "power":
            table = self._one_table()
            cmos = table or self.exponent is not None or self.power_form == "cmos"
            if self.power_form == "linear" or not cmos:
                return PowerLine()
            exponent = 3.0 if self.exponent is None else self.exponent
            return CmosVoltage(voltages=table) if table else CmosExponent(exponent=exponent)
        if name == "perf_per_watt":
            return laws.AmdahlEfficiency()
        if self.form == "reciprocal":
            return laws.RECIPROCAL.get(name, laws.ReciprocalRate)()
        return laws.AMDAHL.get(name, laws.AmdahlRate)(nonnegative=self.form == "amdahl")

    def _one_table(self) -> Mapping[float, float] | None:
        """Return the V-f table that holds for all hosts; None without one, or with one a host."""
        if self.voltages is None or isinstance(self.voltages, Mapping):
            return self.voltages
        if "host" in self.voltages:
            return None
        return dict(self.voltages.groupby("freq_hz")["voltage_v"].mean())


@dataclass(frozen=True)
class VoltageTable:
    """V-f points of each group: those of its host, of all hosts, or none.

    Attributes
    ----------
    tables : tuple of (frequency (Hz), voltage (V)) arrays
        Sorted by frequency.
    of_group : (groups,) int array
        Table of each group; −1 for none.
    """

    tables: tuple[tuple[FloatArray, FloatArray], ...] = ()
    of_group: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        groups: Groups,
        given: Mapping[float, float] | pd.DataFrame | None,
    ) -> VoltageTable:
        """Make V-f tables of the voltages given, else of the runs' ``voltage_v``; none without.

        Parameters
        ----------
        given : mapping of Hz to V, DataFrame or None
            A frame has the columns ``freq_hz`` and ``voltage_v``, and ``host`` where the hosts
            differ. An empty mapping means to use none.

        Raises
        ------
        PpwError
            For a frame without these columns, or values that are not positive.
        """
        if isinstance(given, Mapping):
            table = np.array(sorted(given.items()), dtype=float).reshape(-1, 2).T
            one = np.zeros(len(groups), dtype=np.int64)
            return cls((_require_positive(*table),), one) if table.size else cls()
        if given is not None:
            check_columns(given)
        elif "voltage_v" not in runs.columns:
            return cls()
        source = runs if given is None else given
        known = source[source["voltage_v"].notna() & source["freq_hz"].notna()]
        if not len(known):
            return cls()
        by_host = "host" in known.columns and "host" in groups.by
        tables: list[tuple[FloatArray, FloatArray]] = []
        number: dict[object, int] = {}
        for host, part in known.groupby("host", sort=True) if by_host else [(None, known)]:
            means = part.groupby("freq_hz", sort=True)["voltage_v"].mean()
            number[host] = len(tables)
            tables.append(_require_positive(means.index.to_numpy(float), means.to_numpy(float)))
        of_group = np.zeros(len(groups), dtype=np.int64)
        if by_host:
            numbers = groups.keys["host"].map(number).fillna(-1)
            of_group = numbers.to_numpy().astype(np.int64)
        return cls(tuple(tables), of_group)

    def covers(self, steps: MeasuredSteps, *asked: FloatArray) -> Mask:
        """Mark groups whose table spans their measured steps and the frequencies asked (Hz)."""
        covered = np.zeros(len(steps.count), dtype=bool)
        for number, (frequency, _) in enumerate(self.tables):
            mine = np.flatnonzero((self.of_group == number) & (steps.count > 0))
            low, high = frequency[0] * (1 - _EDGE), frequency[-1] * (1 + _EDGE)
            lowest = steps.frequency[steps.first[mine]]
            inside = (lowest >= low) & (steps.highest(mine)[0] <= high)
            for target in asked:
                inside &= (target[mine] >= low) & (target[mine] <= high)
            covered[mine] = inside
        return covered

    def at(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Voltage (V) at (groups, k) frequencies (Hz), linear between the table's entries."""
        voltage = np.full(frequency.shape, np.nan)
        for number, table in enumerate(self.tables):
            mine = self.of_group[groups] == number
            voltage[mine] = np.interp(frequency[mine], *table)
        return voltage


def check_columns(table: pd.DataFrame) -> None:
    """Raise `PpwError` for a V-f table without its two columns."""
    if not {"freq_hz", "voltage_v"} <= set(table.columns):
        found = ", ".join(map(str, table.columns)) or "none"
        raise PpwError(
            f"the V-f table needs the columns freq_hz and voltage_v; its columns are {found}"
        )


# A voltage of 0 or less, or none at all, would silently make power of nothing.
def _require_positive(frequency: FloatArray, voltage: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the frequencies (Hz) and voltages (V). Raises `PpwError` unless all are positive."""
    if not (np.isfinite(voltage).all() and (voltage > 0).all() and (frequency > 0).all()):
        raise PpwError("the V-f table needs positive frequencies (Hz) and voltages (V)")
    return frequency, voltage
