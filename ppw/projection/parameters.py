"""`fit_runs`: the parameters of every curve of a runs table, with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd

from fitting.regression.lines import FREE, INTERCEPT_AT_ZERO, SLOPE_AT_ZERO
from ppw.errors import PpwError
from ppw.projection.curves import fit_curves
from ppw.projection.options import FitOptions, ModelOptions
from ppw.projection.runs import nothing_to_fit, unfitted_groups
from ppw.results import caveats as cv
from ppw.results.axes import CURVE, new_axes
from ppw.results.result import frame_digest, read_document, reads_document, records, write_document
from ppw.results.text import shown, summary_text, text_table
from ppw.runs.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.regression.models import ModelFit
    from ppw.runs.groups import Groups
    from ppw.runs.prepare import Prepared


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedParameters:
    """Parameters of the curves of every group.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group and parameter: key columns, ``metric``, ``equation``, ``parameter`` (its
        name carries the unit), ``value``, ``standard_error`` (NaN without degrees of freedom and
        for a parameter held at zero), ``held`` (at zero by its bound), ``points`` and
        ``degrees_of_freedom``.
    by : tuple of str
    caveats : tuple of str
    """

    table: pd.DataFrame
    by: tuple[str, ...]
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``table``."""
        return self.table.copy()

    def summary(self) -> str:
        """Show a table of at most 60 parameters, then the caveats."""
        header = [*self.by, "metric", "parameter", "value", "standard error", "freedom"]
        rows = [self._cells(row) for row in self.table.head(60).to_dict(orient="records")]
        laws = zip(self.table["metric"], self.table["equation"], strict=True)
        lines = list(dict.fromkeys(f"{metric}: {equation}" for metric, equation in laws))
        lines.append(text_table(header, rows))
        if len(self.table) > 60:
            lines.append(f"… {len(self.table) - 60} more rows: use --format csv or to_frame()")
        return summary_text(lines, self.caveats)

    def _cells(self, row: Mapping[Any, Any]) -> list[str]:
        keys = [shown(v) if isinstance(v, float) else str(v) for v in (row[k] for k in self.by)]
        error = "held at 0" if row["held"] else shown(row["standard_error"])
        answers = [row["parameter"], shown(row["value"]), error, str(row["degrees_of_freedom"])]
        return [*keys, row["metric"], *answers]

    def to_json(self) -> str:
        """JSON document with ``schema_version``; one object a row in ``parameters``."""
        body = {"by": self.by, "parameters": records(self.table), "caveats": self.caveats}
        return write_document("parameters", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> FittedParameters:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "parameters")
        table = pd.DataFrame(d["parameters"]).astype({"value": float, "standard_error": float})
        return cls(
            table=table,
            by=tuple(d["by"]),
            caveats=tuple(d["caveats"]),
            input_digest=d["input_digest"],
        )

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
    curves = fit_curves(prepared.runs, prepared.groups, prepared.metrics, options)
    tables = [_rows(name, f, prepared.groups) for name, f in curves.fits.items()]
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise PpwError(nothing_to_fit(prepared))
    caveats = [*prepared.caveats(), *_bound_caveats(prepared, curves.fits)]
    caveats += unfitted_groups(curves, prepared)
    return FittedParameters(
        table=table,
        by=tuple(prepared.groups.by),
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
    )


def _rows(name: str, fitted: ModelFit, groups: Groups) -> pd.DataFrame:
    line = fitted.line
    values, errors = fitted.parameters(), fitted.standard_errors()
    parts = [
        groups.keys.assign(
            metric=name,
            equation=fitted.model.equation,
            parameter=parameter,
            value=values[parameter],
            standard_error=errors[parameter],
            held=line.bound == at,
            points=line.moments.points,
            degrees_of_freedom=line.degrees_of_freedom,
        )
        for parameter, at in zip(values, (INTERCEPT_AT_ZERO, SLOPE_AT_ZERO), strict=True)
    ]
    fitted_groups = ~np.isnan(line.slope)
    both = pd.concat([p[fitted_groups] for p in parts])
    return both.sort_index(kind="stable")


def _bound_caveats(prepared: Prepared, fits: Mapping[str, ModelFit]) -> list[str]:
    texts = []
    for name, fitted in fits.items():
        held = int((fitted.line.bound != FREE).sum())
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
