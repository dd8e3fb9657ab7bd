"""What a two-parameter law is, and how one is fitted to many groups.

A law that becomes the straight line y = a + b·x after a change of co-ordinates is a `LineModel`:
one small class whose docstring is the equation and its source. `fit` and `ModelFit` do the rest
for all of them, for any number of groups at once.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from fitting.regression.lines import (
    FloatArray,
    IntArray,
    LineFit,
    Number,
    Repeats,
    fit_groups,
    fit_points,
    fit_repeats,
)


class Parameter(NamedTuple):
    """Name (with its unit) and unit of one coefficient of a law."""

    name: str
    unit: str


class Asymptote(NamedTuple):
    """A metric far out, as coefficient·x^exponent; NaN where the law ends. One element a group."""

    coefficient: FloatArray
    exponent: FloatArray

    def limit(self) -> FloatArray:
        """Limit of the metric: 0, the coefficient, or inf by the sign of the exponent."""
        limit = np.select(
            [self.exponent > 0, self.exponent < 0, self.exponent == 0],
            [np.inf, 0.0, self.coefficient],
            np.nan,
        )
        return np.where(np.isnan(self.coefficient), np.nan, limit)


class LineModel:
    """A law of a metric in one predictor (frequency or core count) that is a line once transformed.

    By default the metric itself, or its reciprocal, is a line in the predictor.
    """

    equation: ClassVar[str]  # as printed to users
    parameters: ClassVar[tuple[Parameter, Parameter]]  # meaning of intercept and slope
    nonnegative: bool = False  # hold both at or above zero
    reciprocal: ClassVar[bool] = False  # ordinate in proportion to the metric's reciprocal

    def abscissa(self, predictor: FloatArray) -> FloatArray:
        """Abscissa of the line at the predictor."""
        return predictor

    def ordinate(self, metric: FloatArray, predictor: FloatArray) -> FloatArray:
        """Ordinate of the line for a measured metric."""
        return 1 / metric if self.reciprocal else metric

    def metric(self, ordinate: FloatArray, predictor: FloatArray) -> FloatArray:
        """Metric for an ordinate: the inverse of `ordinate`."""
        return 1 / ordinate if self.reciprocal else ordinate

    def asymptote(self, line: LineFit) -> Asymptote:
        """What the metric becomes as the predictor x grows: coefficient·x^exponent."""
        return asymptote_of_line(line)

    def parameter_values(
        self, intercept: FloatArray, slope: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Intercept and slope as the law's parameters, where their signs differ from the line's."""
        return intercept, slope


class Prediction(NamedTuple):
    """A metric at a predictor that was not measured; one element a group."""

    value: FloatArray  # NaN where the law has no answer (a metric that would not be positive)
    lower: FloatArray  # NaN where there is no interval
    upper: FloatArray
    limit: FloatArray
    limit_share: FloatArray  # limit/value of a falling metric, value/limit of a rising one


class ModelFit(NamedTuple):
    """A law fitted to each group: the model and its lines."""

    model: LineModel
    line: LineFit

    def predict(self, predictor: Number) -> FloatArray:
        """Metric at ``predictor``; NaN where the law would make it zero or negative."""
        at = np.asarray(predictor, dtype=float)
        ordinate = self.line.value(self.model.abscissa(at))
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.model.metric(np.where(ordinate > 0, ordinate, np.nan), at)

    def interval(
        self, predictor: Number, *, level: float = 0.90, repeats: Number = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval for the mean of ``repeats`` runs at ``predictor``.

        A metric is positive, so an end that the line puts at or below zero becomes 0, or inf
        where the ordinate is the metric's reciprocal.
        """
        at = np.asarray(predictor, dtype=float)
        ends = self.line.interval(self.model.abscissa(at), level=level, repeats=repeats)
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = (self.model.metric(np.maximum(end, 0.0), at) for end in ends)
        unanswered = np.isnan(self.predict(at))
        lower, upper = np.minimum(a, b), np.maximum(a, b)
        return np.where(unanswered, np.nan, lower), np.where(unanswered, np.nan, upper)

    def asymptote(self) -> Asymptote:
        """What the metric becomes as the predictor grows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.model.asymptote(self.line)

    def limit(self) -> FloatArray:
        """What the metric tends to as the predictor grows without bound."""
        return self.asymptote().limit()

    def relative_error(self, predictor: Number, *, repeats: Number = 1) -> FloatArray:
        """Standard error of the mean of ``repeats`` new runs, as a share of the prediction."""
        x = self.model.abscissa(np.asarray(predictor, dtype=float))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(self.line.prediction_error(x, repeats) / self.line.value(x))

    def take(self, groups: IntArray) -> ModelFit:
        """Select the fits of some groups, in the order given and possibly several times."""
        return ModelFit(self.model, self.line.take(groups))

    def prediction(
        self, predictor: Number, *, level: float = 0.90, repeats: Number = 1
    ) -> Prediction:
        """Value, interval, limit and share of the limit at ``predictor``."""
        value, limit = self.predict(predictor), self.limit()
        lower, upper = self.interval(predictor, level=level, repeats=repeats)
        return Prediction(value, lower, upper, limit, share_of_limit(value, limit))

    def noise_gain(self, predictor: Number) -> FloatArray:
        """Percent of error at ``predictor`` for each percent of noise in the points."""
        x = self.model.abscissa(np.asarray(predictor, dtype=float))
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.abs(self.line.moments.mean_y / self.line.value(x))
            return np.sqrt(self.line.leverage(x)) * size

    def parameters(self) -> dict[str, FloatArray]:
        """Parameter name (with unit) to its value in each group."""
        values = self.model.parameter_values(self.line.intercept, self.line.slope)
        return {p.name: v for p, v in zip(self.model.parameters, values, strict=True)}

    def standard_errors(self) -> dict[str, FloatArray]:
        """Parameter name to its standard error; NaN where held at zero or without freedom."""
        errors = self.line.standard_errors()
        return {p.name: e for p, e in zip(self.model.parameters, errors, strict=True)}


def fit(
    model: LineModel, codes: IntArray, predictor: FloatArray, metric: FloatArray, groups: int
) -> ModelFit:
    """Fit ``model`` to each group of labelled rows; arguments as `fit_groups`."""
    x, y = model.abscissa(predictor), model.ordinate(metric, predictor)
    return ModelFit(model, fit_groups(codes, x, y, groups, nonnegative=model.nonnegative))


def fit_aggregated(
    model: LineModel, codes: IntArray, predictor: FloatArray, metric: Repeats, groups: int
) -> ModelFit:
    """Fit ``model`` to runs aggregated by group and predictor, as `fit` does to the runs.

    ``metric`` is of the metric, or of its reciprocal where the model is ``reciprocal``.
    """
    # The ordinate is linear in either at one predictor: this is its factor.
    y = metric.scaled(model.ordinate(np.ones_like(predictor), predictor))
    x = model.abscissa(predictor)
    return ModelFit(model, fit_repeats(codes, x, y, groups, nonnegative=model.nonnegative))


def fit_table(model: LineModel, predictor: FloatArray, metric: FloatArray) -> ModelFit:
    """Fit ``model`` to each row of ``(groups, points)`` arrays; one predictor row may serve all."""
    x, y = model.abscissa(predictor), model.ordinate(metric, predictor)
    return ModelFit(model, fit_points(x, y, nonnegative=model.nonnegative))


def share_of_limit(value: FloatArray, limit: FloatArray) -> FloatArray:
    """Share of the limit reached, 0 to 1; NaN where the metric has no finite limit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.minimum(value / limit, limit / value)
    return np.where(np.isfinite(limit), share, np.nan)


def asymptote_of_line(line: LineFit, exponent: float = 1.0) -> Asymptote:
    """Asymptote of intercept + slope·x^exponent; NaN where a falling line ends at zero."""
    rises = line.slope > 0
    coefficient = np.where(rises, line.slope, np.where(line.slope == 0, line.intercept, np.nan))
    return Asymptote(coefficient, np.where(rises, exponent, 0.0))
