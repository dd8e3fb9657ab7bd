"""What a moment table holds: its keys, quantities and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from measurements.checks import refuse_absent
from measurements.schema import IDENTITY
from ppw.arguments import as_names
from ppw.checks.check import FLAGS, OF_WATTS
from ppw.condensed import (
    INVERSE,
    LOG,
    RUNS,
    VALUE,
    count_column,
    finest_column,
    least_column,
    most_column,
    tally_column,
)
from ppw.grouping import group_runs
from ppw.metrics import METRICS, PERFORMANCE, answerable, known_metrics, needed_columns
from ppw.runs_projection import WITH_OTHER_FORM

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from ppw.curves import FitOptions
    from ppw.metrics import Metric

FREQUENCY = "freq_hz"
# Columns that split a cell because a caveat, a check or a noise level asks for them.
_SHADES = ("power_source", "power_label", "simulator", "load")
# Sources of watts say simulators too, whose times are exact: they stay.
_OF_WATTS = ("power_label",)
_JUDGED_BY_DIGITS = ("time_s", "throughput_ops_s", "power_w")
# What the evidence of a check quotes.
_FIGURES = ("energy_j", "idle_power_w", "freq_achieved_hz")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns of a moment table (see `ppw.condensed`).

    Attributes
    ----------
    by : tuple of str
        Columns that tell groups apart.
    shades : tuple of str
        Further key columns, which split cells but no groups.
    metrics : tuple of str
        Names of the metrics asked for.
    quantities : mapping of str to tuple of str
        Quantity to its co-ordinates, of `VALUE`, `LOG` and `INVERSE`.
    tallies : tuple of str
        Properties whose runs are counted.
    finest : tuple of str
        Columns of the runs whose finest recorded decimal step and whose range are kept, for the
        checks.
    settings : tuple of str
        Shades that may tell settings apart, and so are kept as they are.
    """

    by: tuple[str, ...]
    shades: tuple[str, ...]
    metrics: tuple[str, ...]
    quantities: Mapping[str, tuple[str, ...]]
    tallies: tuple[str, ...] = ()
    finest: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns of a cell."""
        return (*self.by, FREQUENCY, *self.shades)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in their order."""
        moments = (
            name
            for quantity, coordinates in self.quantities.items()
            for name in (
                count_column(quantity),
                *(f"{quantity}__{c}{part}" for c in coordinates for part in ("mean", "m2")),
            )
        )
        rest = [tally_column(name) for name in self.tallies]
        for of_digits in (finest_column, least_column, most_column):
            rest += [of_digits(name) for name in self.finest]
        return (*self.keys, RUNS, *moments, *rest)

    def to_dict(self) -> dict[str, Any]:
        """Layout as JSON knows it."""
        return {
            "by": list(self.by),
            "shades": list(self.shades),
            "metrics": list(self.metrics),
            "quantities": {name: list(c) for name, c in self.quantities.items()},
            "tallies": list(self.tallies),
            "finest": list(self.finest),
            "settings": list(self.settings),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Layout:
        """Read `to_dict` back."""
        return cls(
            by=names_of(document["by"]),
            shades=names_of(document["shades"]),
            metrics=names_of(document["metrics"]),
            quantities={name: names_of(c) for name, c in document["quantities"].items()},
            tallies=names_of(document["tallies"]),
            finest=names_of(document.get("finest", ())),
            settings=names_of(document.get("settings", ())),
        )


def names_of(values: Iterable[object]) -> tuple[str, ...]:
    """Names in a document. Raises TypeError for a single text, or what is no text in a list."""
    given = [*values]
    names = tuple(name for name in given if isinstance(name, str))
    if isinstance(values, str) or len(names) < len(given):
        raise TypeError(f"{str(values)[:60]!r} is no list of names")
    return names


def layout_of(
    known: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    options: FitOptions | None = None,
    settings: Sequence[str] | None = None,
    lines_only: bool = False,
) -> Layout:
    """Choose what to keep of a table for a question.

    Parameters
    ----------
    known : pandas.DataFrame
        Columns of the table with a value where any run has one, as `ppw.fleet.facts` finds them.
    by, metric
        As for `ppw.project_runs`.
    options : FitOptions, optional
        How curves are fitted; without, all co-ordinates are kept, so that any may be.
    settings : sequence of str, optional
        Columns with few values that may tell settings apart: keep what `ppw.quality` needs too.
    lines_only : bool
        Keep what least-squares curves need, and no posterior.

    Raises
    ------
    PpwError, MeasurementError
        As `ppw.project_runs`, for metrics and columns that are not there.
    """
    metrics = answerable(known) if metric is None else known_metrics(metric)
    needed = needed_columns(metrics, known)
    refuse_absent(known, needed, str(known.attrs.get("source", "runs")))
    groups = group_runs(known, None if by is None else as_names(by))
    present = [c for c in known.columns if known[c].notna().any()]
    watts = bool(OF_WATTS & {m.name for m in metrics})
    shades = [c for c in _SHADES if c in present and (watts or c not in _OF_WATTS)]
    split = dict.fromkeys((*(c for c in IDENTITY if c in present), *shades, *(settings or ())))
    quantities = _quantities(metrics, options, present, lines_only=lines_only)
    finest = [c for c in _JUDGED_BY_DIGITS if c in present and settings is not None]
    if settings is not None:
        quantities |= dict.fromkeys(finest, (VALUE, LOG, INVERSE))
        quantities |= {c: (VALUE,) for c in _FIGURES if c in present}
    return Layout(
        by=tuple(groups.by),
        shades=(*(c for c in split if c not in groups.by), FLAGS),
        metrics=tuple(m.name for m in metrics),
        quantities=dict(sorted(quantities.items())),
        tallies=_tallies(present, watts=watts),
        finest=tuple(finest),
        settings=tuple(settings or ()),
    )


def _quantities(
    metrics: Sequence[Metric],
    options: FitOptions | None,
    present: Sequence[str],
    *,
    lines_only: bool,
) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {m.name: {VALUE} for m in metrics}
    for metric in metrics:
        for name in (
            (metric.name, *(metric.factors or ())) if options is None else options.fitted(metric)
        ):
            found.setdefault(name, {VALUE}).update(_coordinates(metric, name, options, lines_only))
    if "voltage_v" in present:
        found["voltage_v"] = {VALUE}
    order = (VALUE, LOG, INVERSE)
    return {name: tuple(c for c in order if c in of) for name, of in found.items()}


def _coordinates(
    metric: Metric, name: str, options: FitOptions | None, lines_only: bool
) -> set[str]:
    if options is None:
        return {LOG, INVERSE}
    # The other form, which is shown beside a curve that gains more than the clock, is in one too.
    inverse = options.model(name).reciprocal or (name in WITH_OTHER_FORM and not lines_only)
    log = options.has_posterior(metric) and not lines_only
    return ({INVERSE} if inverse else set()) | ({LOG} if log else set())


def _tallies(present: Sequence[str], *, watts: bool) -> tuple[str, ...]:
    tallies = []
    if watts and {"energy_j", "power_w", "time_s"} <= set(present):
        tallies.append("energy_off")
    if "freq_achieved_hz" in present:
        tallies.append("achieved_off")
    return tuple(tallies)


def metric_of(quantity: str) -> Metric | None:
    """Metric that a quantity is; None for a column of the runs."""
    return PERFORMANCE if quantity == PERFORMANCE.name else METRICS.get(quantity)
