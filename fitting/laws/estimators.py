"""The laws as scikit-learn estimators: one fit of one column of positive predictors.

Each class is the one-group case of its `fitting.regression.lines.LineModel`; the equations live
there. They take X as a column ``(points, 1)`` or, because there is only one column, as
``(points,)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fitting.errors import FittingError, OutOfRangeError
from fitting.laws import frequency, power
from fitting.laws.execution_time import LogCores, path_length_refusal, positive_up_to
from fitting.regression import lines
from fitting.regression.lines import BoolArray, FloatArray, LineModel, ModelFit, fit

Metric = Literal["time", "cpi", "throughput"]

FASTER_THAN_CLOCK = (
    "faster than 1/f: this curve gains more speed than the core frequency, which "
    "is impossible for a core alone"
)


class PositiveRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no stubs
    """Input of all estimators: positive, finite numbers, refused in this package's error class."""

    _columns: ClassVar[tuple[str, ...]] = ("predictor",)
    _response: ClassVar[str] = "metric"
    # Least value of the first column, where it is not just above 0.
    _least: ClassVar[float] = 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = tags.target_tags.positive_only = True
        return tags

    def _read_points(self, X: ArrayLike) -> FloatArray:
        """Return predictors as a checked table; a single column may be one-dimensional."""
        return self._check_table(self._validate(X, reset=False))

    def _read_runs(self, X: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return a checked table of predictors and measured values, two rows at least."""
        table, response = self._validate(X, y=y, y_numeric=True, ensure_min_samples=2)
        table, observed = self._check_table(table), np.asarray(response, dtype=np.float64)
        self._check_cells(f"y ({self._response})", observed, observed > 0, "above 0")
        return table, observed

    def _validate(self, X: ArrayLike, **options: Any) -> Any:
        """Check shapes and types by scikit-learn; its errors become a `FittingError`."""
        try:
            if len(self._columns) == 1 and not hasattr(X, "columns") and np.asarray(X).ndim == 1:
                X = np.asarray(X)[:, None]
            return validate_data(self, X, dtype=np.float64, ensure_all_finite=False, **options)
        except ValueError as error:
            raise FittingError(
                f"{type(self).__name__} cannot use its input: {' '.join(str(error).split())}: "
                f"pass finite numbers, for X: {', '.join(self._columns)}; for y: one "
                f"{self._response} per row"
            ) from error

    def _check_table(self, table: FloatArray) -> FloatArray:
        """Return the table. Raises `FittingError` for wrong columns or values out of range."""
        name, columns = type(self).__name__, " and ".join(self._columns)
        if (table < 0).any():
            raise FittingError(f"Negative values in data passed to {name}: X must hold {columns}")
        if table.shape[1] != len(self._columns):
            raise FittingError(f"{name} got n_features = {table.shape[1]}: pass {columns} only")
        for number, (column, values) in enumerate(zip(self._columns, table.T, strict=True)):
            least = 0.0 if number else self._least
            in_range = values >= least if least else values > 0
            rule = f"{least:g} or more" if least else "above 0"
            self._check_cells(f"X ({column})", values, in_range, rule)
        return table

    def _check_cells(self, label: str, values: FloatArray, in_range: BoolArray, rule: str) -> None:
        """Raise `FittingError` for values out of range or not finite; ``rule`` says the range."""
        bad = np.flatnonzero(~(in_range & np.isfinite(values)))
        if bad.size:
            raise FittingError(
                f"{label} of {type(self).__name__} is {values[bad[0]]:g} in row {bad[0]} "
                f"({bad.size} of {values.size} rows are bad): it must be {rule}, not NaN or inf; "
                "correct or drop these rows"
            )


class LineRegressor(PositiveRegressor):
    """What the estimators of one column share: prediction and inference.

    Attributes
    ----------
    model_fit_ : fitting.regression.lines.ModelFit
        The one-group fit.
    parameters_, standard_errors_ : dict of float
        By parameter name, which carries its unit. A standard error is NaN where no degree of
        freedom is left, and for a parameter that its bound holds at zero.
    degrees_of_freedom_ : int
    bound_ : str or None
        Name of the parameter held at zero by its bound.
    limit_ : float
        What the metric tends to as the predictor grows; inf where it grows without bound.
    """

    def _choose_law(self, x: FloatArray, metric: FloatArray) -> LineModel:
        """Make the law that is to be fitted to these runs."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to predictors X (Hz, or cores) and the measured metric y, all positive.

        Raises
        ------
        FittingError
            When values are not positive and finite, or all predictors are one value.
        """
        table, metric = self._read_runs(X, y)
        x = table[:, 0]
        fitted = fit(self._choose_law(x, metric), np.zeros(len(x), dtype=np.int64), x, metric, 1)
        if np.isnan(fitted.line.slope[0]):
            raise FittingError(
                f"{type(self).__name__} needs two different predictor values; all {len(x)} "
                f"given are {x[0]:g}: measure at one more"
            )
        self._x, self._y = x, metric
        self._set_attributes(fitted)
        return self

    def _set_attributes(self, fitted: ModelFit) -> None:
        """Set the public attributes from a fit, or from published coefficients."""
        self.model_fit_ = fitted
        # What intervals are of.
        self._curve: ModelFit | power.FreeExponent = fitted
        self.n_features_in_ = 1
        known = {name: (float(v[0]), float(e[0])) for name, (v, e) in fitted.parameters().items()}
        self.parameters_ = {name: value for name, (value, _) in known.items()}
        self.standard_errors_ = {name: error for name, (_, error) in known.items()}
        self.degrees_of_freedom_ = int(fitted.line.degrees_of_freedom[0])
        intercept, slope = fitted.model.parameters
        held = {lines.INTERCEPT_AT_ZERO: intercept, lines.SLOPE_AT_ZERO: slope}
        self.bound_ = held.get(int(fitted.line.bound[0]))
        self.limit_ = float(fitted.limit()[0])

    def predict(self, X: ArrayLike) -> FloatArray:
        """Metric at X. Raises `OutOfRangeError` where the law has no positive answer."""
        x = self._read_prediction_points(X)
        value = self.model_fit_.predict(x)
        refused = np.isnan(value)
        if refused.any():
            raise OutOfRangeError(self._refusal_text(float(x[refused][0])))
        return value

    def predict_interval(
        self, X: ArrayLike, *, level: float = 0.90, repeats: float = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval for the mean of ``repeats`` new runs at X.

        ``repeats=numpy.inf`` gives the confidence interval of the curve. NaN where no degree of
        freedom is left: two points determine the line and leave nothing to judge it by.
        """
        # Before the curve, so that an estimator without a fit says so.
        x = self._read_prediction_points(X)
        return self._curve.interval(x, level=level, repeats=repeats)

    def statsmodels_results(self) -> Any:
        """Fit the same line by `statsmodels.api.OLS`, for its robust and influence inference.

        Its parameters carry the names of ``parameters_``. One that a bound holds at zero is left
        out of the regression; a power exponent is taken as known.

        Raises
        ------
        FittingError
            For published coefficients, which have no runs behind them.
        """
        from pandas import DataFrame
        from statsmodels.api import OLS

        check_is_fitted(self, "model_fit_")
        if not hasattr(self, "_x"):
            raise FittingError(
                f"this {type(self).__name__} has coefficients but no runs: call fit(X, y) first"
            )
        model = self.model_fit_.model
        abscissa = model.abscissa(self._x)
        # Columns with the signs of the parameters: the slope of 1/CPI = c − k/f is −k.
        columns = (np.ones_like(abscissa), model.slope_sign * abscissa)
        named = dict(zip(model.parameters, columns, strict=True))
        design = DataFrame(named).drop(columns=self.bound_ or [])
        return OLS(model.ordinate(self._y, self._x), design).fit()

    def _read_prediction_points(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self, "model_fit_")
        return self._read_points(X)[:, 0]

    def _refusal_text(self, x: float) -> str:
        """Say that the law has no answer at a predictor, and what to do."""
        return (
            f"{type(self).__name__} ({self.model_fit_.model.equation}) is not "
            f"positive at {x:g}: measure nearer to it or use another model"
        )


class AmdahlRegression(LineRegressor):
    """Time, CPI or throughput against core frequency by Amdahl's law; see `fitting.laws.frequency`.

    Parameters
    ----------
    metric : {"time", "cpi", "throughput"}
        T = t_fixed + w/f, CPI = cpi_core + m·f, or 1/X = t_fixed + w/f.
    bounded : bool
        Hold both parameters at or above zero, as a core alone obeys; ``bound_`` tells when one
        of them sits there.
    """

    def __init__(self, *, metric: Metric = "time", bounded: bool = True) -> None:
        self.metric = metric
        self.bounded = bounded

    def _choose_law(self, x: FloatArray, metric: FloatArray) -> LineModel:
        return frequency.AMDAHL[_check_metric(self.metric)](nonnegative=self.bounded)


class ReciprocalRegression(LineRegressor):
    """The published curve 1/CPI = c − k/f, faster than 1/f; see `fitting.laws.frequency`.

    Parameters
    ----------
    metric : {"cpi", "time", "throughput"}
        The same curve for the metric at hand.

    Attributes
    ----------
    pole_hz_ : float
        Frequency (Hz) at and below which `predict` raises `OutOfRangeError`; at and above
        which, where c < 0.
    caveats_ : tuple of str
    """

    def __init__(self, *, metric: Metric = "cpi") -> None:
        self.metric = metric

    def _choose_law(self, x: FloatArray, metric: FloatArray) -> LineModel:
        return frequency.RECIPROCAL[_check_metric(self.metric)]()

    def _set_attributes(self, fitted: ModelFit) -> None:
        super()._set_attributes(fitted)
        assert isinstance(fitted.model, frequency.ReciprocalCpi)
        self.pole_hz_ = float(fitted.model.pole(fitted.line)[0])
        self.caveats_ = (FASTER_THAN_CLOCK,) if fitted.line.slope[0] < 0 else ()

    @classmethod
    def from_coefficients(cls, *, c: float, k_hz: float) -> ReciprocalRegression:
        """Build the CPI curve of published coefficients: 1/CPI = c − k/f, k in Hz."""
        curve = cls()
        law = frequency.ReciprocalCpi()
        curve._set_attributes(lines.published_line(law, intercept=c, slope=-k_hz))
        return curve

    def _refusal_text(self, x: float) -> str:
        side = "above" if self.model_fit_.line.intercept[0] > 0 else "below"
        return (
            f"{self.model_fit_.model.equation} cannot be computed at {x / 1e9:g} GHz: its pole is "
            f"at {self.pole_hz_ / 1e9:g} GHz; ask {side} it or use AmdahlRegression"
        )


class LinearPower(LineRegressor):
    """Power (W) = P0 + s·f; see `fitting.laws.power.PowerLine`."""

    def __init__(self) -> None:
        pass

    def _choose_law(self, x: FloatArray, metric: FloatArray) -> LineModel:
        return power.PowerLine()


class CmosPower(LineRegressor):
    """Power (W) = P0 + c·f^γ, or P0 + c·f·V(f)²; see `fitting.laws.power`.

    Parameters
    ----------
    exponent : float or None
        γ, 1 to 5. None finds it by least squares, which takes three frequencies or more.
    voltages : mapping of Hz to V, optional
        V-f table; takes the exponent's place.

    Attributes
    ----------
    exponent_ : float or None
        γ in use; None with a V-f table.
    exponent_error_ : float
        Standard error of a γ that was fitted; NaN for one that was given or stands at 1 or 5.

    A γ that was fitted costs a degree of freedom, at its ends 1 and 5 too, where the intervals
    come out wide rather than narrow. Errors and intervals are then those of the linearised
    three-parameter curve.
    """

    def __init__(
        self, *, exponent: float | None = 3.0, voltages: Mapping[float, float] | None = None
    ) -> None:
        self.exponent = exponent
        self.voltages = voltages

    def _choose_law(self, x: FloatArray, metric: FloatArray) -> LineModel:
        if self.voltages is not None:
            return power.CmosVoltage(voltages=dict(self.voltages))
        exponent = power.best_exponent(x, metric) if self.exponent is None else self.exponent
        return power.CmosExponent(exponent=exponent)

    def _set_attributes(self, fitted: ModelFit) -> None:
        super()._set_attributes(fitted)
        self.exponent_ = getattr(fitted.model, "exponent", None)
        self.exponent_error_ = np.nan
        if self.exponent is None and self.voltages is None:
            self._curve = free = power.FreeExponent.of(fitted, self._x)
            self.model_fit_ = free.fit
            self.degrees_of_freedom_ = int(free.fit.line.degrees_of_freedom[0])
            *errors, of_exponent = free.standard_errors()
            self.standard_errors_ = dict(zip(self.parameters_, errors, strict=True))
            self.exponent_error_ = of_exponent if self.exponent_ not in (1.0, 5.0) else np.nan


class LogPathLength(LineRegressor):
    """Path length a·ln(n) + b against cores n; see `fitting.laws.execution_time`.

    Parameters
    ----------
    workload : str, optional
        Whose path length it is. Asking it for another workload is an error.

    Attributes
    ----------
    cores_ : (float, float)
        Smallest and largest core count that was fitted.
    positive_up_to_ : float
        Core count at which the curve reaches zero; from there on `predict` raises
        `OutOfRangeError`.
    """

    def __init__(self, *, workload: str | None = None) -> None:
        self.workload = workload

    def _choose_law(self, x: FloatArray, metric: FloatArray) -> LineModel:
        return LogCores()

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to core counts X and retired instructions per unit of data y."""
        super().fit(X, y)
        self.cores_ = (float(self._x.min()), float(self._x.max()))
        return self

    def _set_attributes(self, fitted: ModelFit) -> None:
        super()._set_attributes(fitted)
        self.positive_up_to_ = positive_up_to(self.parameters_["a"], self.parameters_["b"])

    @classmethod
    def from_coefficients(
        cls, *, a: float, b: float, cores: tuple[float, float], workload: str | None = None
    ) -> LogPathLength:
        """Build the path length of published coefficients, which were fitted to ``cores``."""
        known = cls(workload=workload)
        known._set_attributes(lines.published_line(LogCores(), intercept=b, slope=a))
        known.cores_ = cores
        return known

    def at(self, cores: float, *, workload: str | None = None) -> float:
        """Path length at a core count. Raises `FittingError` for another workload than its own."""
        if workload is not None and self.workload is not None and workload != self.workload:
            raise FittingError(
                f"this path length belongs to workload {self.workload!r}, not {workload!r}: "
                "measure the instructions of that workload"
            )
        return float(self.predict(np.array([[cores]]))[0])

    def _refusal_text(self, x: float) -> str:
        return path_length_refusal(x, self.positive_up_to_)


def _check_metric(metric: str) -> str:
    """Return the metric; raises `FittingError` for one that has no law."""
    if metric not in frequency.AMDAHL:
        raise FittingError(f"metric {metric!r} is not one of {', '.join(frequency.AMDAHL)}")
    return metric
