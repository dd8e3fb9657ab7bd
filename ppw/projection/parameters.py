"""`fit_runs`: the parameters of every curve of a runs table, with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pandas as pd

from fitting.regression.lines import FREE, INTERCEPT_AT_ZERO, SLOPE_AT_ZERO
from ppw.errors import PpwError
from ppw.projection.answers import fit_curves
from ppw.projection.options import FitOptions, ModelOptions
from ppw.projection.runs import nothing_to_fit, unfitted_groups
from ppw.results import caveats as cv
from ppw.results.axes import CURVE, new_axes
from ppw.results.result import Result, Table, frame_digest
from ppw.results.text import shown
from ppw.runs.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.regression.lines import ModelFit
    from ppw.projection.answers import CurveFit
    from ppw.runs.groups import Groups
    from ppw.runs.prepare import Prepared


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedParameters(Result):
    """Parameters of the curves of every group.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group and parameter.
    by : tuple of str
        Columns that tell groups apart.
    caveats : tuple of str
    """

    kind = "parameters"
    tables = (
        Table(
            "table",
            """
            metric         | text  | metric         | what the curve is of
            equation       | text  |                | equation of the curve
            parameter      | text  | parameter      | name of the parameter, which carries its unit
            value          | 1     | value          | least-squares value
            standard_error | 1     | standard error | NaN without degrees of freedom, or held at 0
            held           | flag  |                | whether its bound holds it at 0
            points         | count |                | number of runs
            degrees_of_freedom | count | freedom    | degrees of freedom of the fit
            """,
            title="Parameters",
            key="parameters",
            most=60,
            show={
                "standard_error": lambda row: (
                    "held at 0" if row["held"] else shown(row["standard_error"])
                )
            },
        ),
    )

    table: pd.DataFrame
    by: tuple[str, ...]

    def verdict(self) -> list[str]:
        """Return the equation of each metric."""
        laws = zip(self.table["metric"], self.table["equation"], strict=True)
        return list(dict.fromkeys(f"{metric}: {equation}" for metric, equation in laws))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each parameter as a share of its median over the groups."""
        return plot_parameters(self, ax)


def fit_runs(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    **fitting: Unpack[ModelOptions],
) -> FittedParameters:
    """Fit the curves of a runs table and give their parameters.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`).
    by, metric
        As for `ppw.project_runs`.
    **fitting
        ``form``, ``power_form``, ``exponent``, ``voltages``, ``via``: as for `ppw.project_runs`.

    Returns
    -------
    FittedParameters
        Parameters of the curves of every group.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.project_runs`.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    options = FitOptions(**fitting)
    fitted = fit_prepared(prepare(runs, by=by, metric=metric), options)
    cv.warn(fitted.caveats)
    return fitted


def fit_prepared(prepared: Prepared, options: FitOptions) -> FittedParameters:
    """Fit the curves of prepared runs, as `fit_runs` does, and without warnings."""
    curves = fit_curves(prepared, options)
    tables = [_rows(name, c.fit, prepared.groups) for name, c in curves.items()]
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise PpwError(nothing_to_fit(prepared))
    caveats = [*prepared.caveats(), *_bound_caveats(prepared, curves)]
    caveats += unfitted_groups(curves, prepared)
    return FittedParameters(
        table=table,
        by=tuple(prepared.groups.by),
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
    )


def _rows(name: str, fitted: ModelFit, groups: Groups) -> pd.DataFrame:
    line = fitted.line
    parts = [
        groups.keys.assign(
            metric=name,
            equation=fitted.model.equation,
            parameter=parameter,
            value=value,
            standard_error=error,
            held=line.bound == at,
            points=line.moments.points,
            degrees_of_freedom=line.degrees_of_freedom,
        )
        for (parameter, (value, error)), at in zip(
            fitted.parameters().items(), (INTERCEPT_AT_ZERO, SLOPE_AT_ZERO), strict=True
        )
    ]
    fitted_groups = ~np.isnan(line.slope)
    both = pd.concat([p[fitted_groups] for p in parts])
    return both.sort_index(kind="stable")


def _bound_caveats(prepared: Prepared, curves: Mapping[str, CurveFit]) -> list[str]:
    texts = []
    for name, curve in curves.items():
        held = int((curve.fit.line.bound != FREE).sum())
        if held:
            texts.append(
                f"{name} ({held} of {len(prepared.groups)} groups): a parameter is held at 0 by "
                "its bound; the form 'unbounded' lifts it"
            )
    return texts


def plot_parameters(result: FittedParameters, ax: Axes | None = None) -> Axes:
    """Draw the parameters of each group, as shares of their median over the groups."""
    axes = new_axes(ax)
    names = list(dict.fromkeys(result.table["parameter"]))
    for place, name in enumerate(names):
        value = result.table.loc[result.table["parameter"] == name, "value"].to_numpy()
        middle = np.median(value)
        if middle:
            axes.plot(np.full(len(value), place), value / middle, ".", color=CURVE, alpha=0.5)
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.set_ylabel("share of the median")
    return axes
