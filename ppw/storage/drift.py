"""How a load drifts: parts of a trace, or several traces, compared with the part before.

`trace_drift` judges hours, days or files by the bands by which `ppw.validate_trace` judges what is
generated. `half_drift` compares a model of a trace's first half with its second. No model of the
past can be nearer to what comes than the workload itself stays the same; so the distance of the
model is shown beside that of the two halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ppw.errors import PpwError
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.storage import (
    fidelity as fy,
    fitted_devices as fd,
    generate,
    trace_model,
    trace_source as ts,
)
from ppw.storage.trace_source import Batches

# A part of fewer requests is too short to compare, and one that is cut to less of its period.
_LEAST_REQUESTS, _WHOLE = 100, 0.9
# Figures that a sentence names, at most.
_NAMED = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceDrift(ts.TraceResult):
    """Parts of a load, each compared with the part before.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a part.
    figures : pandas.DataFrame
        One row a part and figure, from the second part on; ``original`` is the part before.
    """

    kind: ClassVar[str] = "trace_drift"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            part         | text      | part       | hours or days since the begin, or a trace
            requests     | count     | requests   | number of requests
            rate         | 1         | requests/s | requests per second
            bytes_s      | B         | bytes/s    | bytes per second
            read_share   | share .1% | reads      | share of requests that read
            random_share | share .1% | random     | share that does not go on where the last ended
            judged       | count     |            | figures judged against the part before
            off          | count     | off        | figures that are out of their bands
            verdict      | text      | verdict    | pass, fail, or "–" for the first part
            """,
            "Parts",
            most=100,
        ),
        rs.Table(
            "figures",
            """
            part      | text | part   | part that is compared with the part before
            group     | text |        | features, performance, queues, spatial, temporal
            figure    | text | figure | figure that is compared
            unit      | text |        | unit of its values
            original  | unit | before | value of the part before
            synthetic | unit | part   | value of the part
            off       | 1    | off    | difference from the part before
            kind      | text |        | relative; points, for shares; moved, the share that would \
have to move to make two distributions one; difference
            tolerance | 1    | band   | largest allowed `off`
            lower     | 1    |        | band of the part before, where that is the tolerance
            upper     | 1    |        | its upper end
            verdict   | text |        | pass, fail, or "–" where there is no tolerance
            """,
            "Figures out of their bands",
            show=fy.SHOW,
        ),
    )

    table: pd.DataFrame
    figures: pd.DataFrame

    @property
    def passed(self) -> bool:
        """Whether every part is within the bands of the part before."""
        return not (self.table["verdict"] == fy.FAILED).any()

    def verdict(self) -> list[str]:
        """Say whether the load drifts, and in which parts."""
        failed = self.table["part"][self.table["verdict"] == fy.FAILED].tolist()
        compared = len(self.table) - 1
        if not failed:
            return [f"No drift: {compared} of {compared} parts are within the bands of the last."]
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        return [
            f"The load drifts: {len(failed)} of {compared} parts are out of the bands of the part "
            f"before: {', '.join(failed[:_NAMED])}{more}."
        ]

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        off = self.figures[self.figures["verdict"] == fy.FAILED]
        printed = [self.printed_tables()[0]]
        if len(off):
            printed.append(self.tables[1].print_rows(self, self.tables[1].most, off))
        return [*self.sentences(), *(line for one in printed for line in ("", *one.lines()))]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw requests per second by part; parts that are out of the bands stand out."""
        ax, at = axes.new_axes(ax), np.arange(len(self.table))
        failed = (self.table["verdict"] == fy.FAILED).to_numpy()
        for mask, color, label in (
            (~failed, axes.BAND, "within the bands of the part before"),
            (failed, axes.PROJECTED, "out of them"),
        ):
            ax.bar(at[mask], self.table["rate"][mask], color=color, label=label)
        ax.set_xticks(at, [tx.plot_label(part) for part in self.table["part"]], rotation=90)
        ax.set(xlabel="part", ylabel="requests per second")
        ax.legend(frameon=False)
        return ax


def trace_drift(
    trace: Batches | str | PathLike[str],
    *others: Batches | str | PathLike[str],
    period_s: float | None = None,
    device: str = "ssd",
    seed: int = 0,
) -> TraceDrift:
    """Compare parts of a load, each with the part before, by the bands of `ppw.validate_trace`.

    Parameters
    ----------
    trace : Trace or path
    *others : Trace or path
        Later traces of the load; the parts are then whole traces.
    period_s : float, optional
        Length (s) of the parts of a single trace, as 3600 for hours. Default: its two halves.
    device : str
        ``ssd`` or ``disk``, with parameters if need be: the model that latency is computed by.
    seed : int
        Random seed of the resamples that bands rest on.

    Returns
    -------
    TraceDrift

    Raises
    ------
    PpwError
        For periods of several traces, or fewer than two parts of a hundred requests.
    """
    if others and period_s is not None:
        raise PpwError("periods are parts of one trace: give one trace, or no period")
    sources = [ts.open_trace(one) for one in (trace, *others)]
    known = ts.survey(sources[0])
    remarks: list[str] = []
    if others:
        parts = [(_trace_name(one, k), one) for k, one in enumerate(sources, 1)]
    else:
        parts = _parts_of(sources[0], known, period_s, remarks)
    drive = fd.parse_device(device).reaching(known.survey.high_lbn)
    rows, figures = [], []
    before: fy.TraceFeatures | None = None
    for name, part in parts:
        found = ts.survey(part)
        here = fy.TraceFeatures(part, found.survey, known.survey, drive.model, sources[0].names)
        verdicts = [] if before is None else [*fy.TraceComparison(before, [here]).figures(seed)]
        figures += [(name, *row) for row in verdicts]
        off = sum(row.verdict == fy.FAILED for row in verdicts)
        judged = sum(row.verdict != fy.NOT_JUDGED for row in verdicts)
        verdict = fy.NOT_JUDGED if before is None else fy.FAILED if off else "pass"
        shares = here.read_share, here.random_share
        rows.append((name, here.requests, here.rate, here.bytes_s, *shares, judged, off, verdict))
        before = here
    remarks.append(drive.caveat)
    rs.warn_caveats(remarks)
    return TraceDrift(
        table=pd.DataFrame(rows, columns=TraceDrift.tables[0].names),
        figures=pd.DataFrame(figures, columns=["part", *fy.FigureRow._fields]),
        caveats=tuple(remarks),
        input_digest=rs.numbers_digest(known.digest, len(sources), period_s),
    )


def _trace_name(trace: Batches, number: int) -> str:
    """Name a trace by its file, or by its number where it has none."""
    return str(getattr(trace, "source", f"trace {number}"))


def _parts_of(
    trace: Batches, known: ts.TraceSurvey, period_s: float | None, remarks: list[str]
) -> list[tuple[str, Batches]]:
    """Cut a trace in periods, or in halves of its requests; tell which are left out."""
    requests = known.survey.requests + known.flushes
    if period_s is None:
        bounds = [("first half", 0, requests // 2), ("second half", requests // 2, requests)]
    else:
        length_s, first_s = tx.as_positive("period (s)", period_s), known.survey.first_s
        periods = known.survey.duration_s / length_s
        number = np.zeros(max(1, round(np.ceil(periods - 1e-6))), dtype=np.int64)
        for batch in trace.batches():
            since_s = batch.column("time_s").to_numpy() - first_s
            period = np.clip(since_s / length_s, 0, len(number) - 1).astype(np.int64)
            number += np.bincount(period, minlength=len(number))
        ends = np.cumsum(number)
        names = [f"{tx.shown(k * length_s, 's')} on" for k in range(len(number))]
        bounds = list(zip(names, (ends - number).tolist(), ends.tolist(), strict=True))
        if periods - len(number) + 1 < _WHOLE and len(bounds) > 1:
            bounds.pop()
            remarks.append("the last period is cut short by the end of the trace: it is left out")
    long = [bound for bound in bounds if bound[2] - bound[1] >= _LEAST_REQUESTS]
    if len(long) < len(bounds):
        remarks.append(
            f"{len(bounds) - len(long)} of {len(bounds)} parts have fewer than {_LEAST_REQUESTS} "
            "requests: they are left out"
        )
    if len(long) < 2:
        raise PpwError(
            f"{len(long)} parts of {_LEAST_REQUESTS} requests or more: give a shorter period or a "
            "longer trace"
        )
    return [(name, ts.part_of(trace, first, end)) for name, first, end in long]


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfDrift(rs.Result):
    """Figures of both halves of a trace, and of what a model of the first half makes.

    Differences are relative for rates and variation, and in points for shares. Distances are
    shares of the requests that would have to move; of those there is no value of a half itself.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a figure.
    verdicts : tuple of str
        Whether the second half, and the model, are within the bands of `ppw.validate_trace`.
    """

    kind: ClassVar[str] = "trace_half_drift"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            figure      | text  | figure      | figure that is compared
            first_half  | 1 .4g | first half  | value of the first half
            second_half | 1 .4g | second half | value of the second half
            model       | 1 .4g | model       | value of the model of the first half
            drift       | 1 .4g | drift       | second half less first
            model_off   | 1 .4g | model off   | model less second half
            kind        | text  |             | relative; points, for shares; moved, the share \
that would have to move to make two distributions one
            """,
            "Figures",
            show={
                "drift": lambda row: fy.off_text({"kind": "relative", **row, "off": row["drift"]}),
                "model_off": lambda row: fy.off_text(
                    {"kind": "relative", **row, "off": row["model_off"]}
                ),
            },
        ),
    )

    table: pd.DataFrame
    verdicts: tuple[str, ...] = ()

    def verdict(self) -> list[str]:
        """Say whether the halves are alike, and whether the model is like the second."""
        return list(self.verdicts)

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        lead = (
            "Model of the first half compared with the second half, and the drift between the "
            "halves"
        )
        return [lead, "", *super().text_parts()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how far the model and the first half are from the second."""
        ax, at = axes.new_axes(ax), np.arange(len(self.table))
        ax.barh(at - 0.2, self.table["drift"].abs(), 0.4, color=axes.MEASURED, label="halves")
        ax.barh(at + 0.2, self.table["model_off"].abs(), 0.4, color=axes.PROJECTED, label="model")
        ax.set_yticks(at, [tx.plot_label(name) for name in self.table["figure"]])
        ax.invert_yaxis()
        ax.set(xlabel="distance from the second half", ylabel="figure")
        ax.legend()
        return ax


def half_drift(trace: Batches | str | PathLike[str], *, seed: int = 0, **options: Any) -> HalfDrift:
    """Fit a model to the first half of a trace's requests and compare it with the second.

    Parameters
    ----------
    trace : Trace or path
    seed : int
        Random seed of the requests generated, as many as the second half has.
    **options
        Of `ppw.fit_trace`.

    Returns
    -------
    HalfDrift

    Raises
    ------
    PpwError
        For a trace of fewer than a hundred requests.
    """
    source = ts.open_trace(trace)
    known = ts.survey(source)
    requests = known.survey.requests + known.flushes
    if requests < _LEAST_REQUESTS:
        raise PpwError(
            f"{requests} requests are too few to compare their halves: give {_LEAST_REQUESTS} or "
            "more"
        )
    half = requests // 2
    parts = ts.part_of(source, 0, half), ts.part_of(source, half, requests)
    device = fd.parse_device("ssd").model
    model = trace_model.fit_trace(parts[0], **options)
    made = generate.generate_trace(model, seed=seed, count=requests - half)
    # One space for all three, or their places could not be compared.
    figures = [
        fy.TraceFeatures(t, ts.survey(t).survey, known.survey, device) for t in (*parts, made)
    ]
    # The fit has warned.
    first, second, of_model = figures
    drift, off = (
        pd.DataFrame(fy.TraceComparison(a, [b]).figures(seed), columns=fy.FigureRow._fields)
        for a, b in ((first, second), (second, of_model))
    )
    return HalfDrift(
        table=_compare_halves(*figures),
        verdicts=(
            f"Second half, by the bands of the first: {_count_off(drift)}.",
            f"Model of the first half, by the bands of the second: {_count_off(off)}.",
        ),
        caveats=model.caveats,
        input_digest=known.digest,
    )


def _count_off(figures: pd.DataFrame) -> str:
    """Say how many of the judged figures are off, and which; "pass" where none is."""
    judged = figures[figures["verdict"] != fy.NOT_JUDGED]
    off = judged["figure"][judged["verdict"] == fy.FAILED].tolist()
    if not off:
        return f"pass, all {len(judged)} judged figures are within them"
    more = f", and {len(off) - _NAMED} more" if len(off) > _NAMED else ""
    return f"fail, {len(off)} of {len(judged)} judged figures are off: " + (
        ", ".join(off[:_NAMED]) + more
    )


def _compare_halves(
    first: fy.TraceFeatures, second: fy.TraceFeatures, model: fy.TraceFeatures
) -> pd.DataFrame:
    """Tabulate figures of both halves and of the model, and how far they are from the second."""
    ratios: dict[str, fy.Measure] = {
        "requests a second": lambda f: f.rate,
        "variation of inter-arrival times": lambda f: f.gap_variation,
    }
    shares: dict[str, fy.Measure] = {
        "reads": lambda f: f.read_share,
        "random requests": lambda f: f.random_share,
        **{
            fy.hits_figure(c): partial(fy.TraceFeatures.hit_ratio, cache=c, of=second)
            for c in fy.CACHES
        },
    }
    rows = []
    for figure, measure in (ratios | shares).items():
        a, b, c = (measure(f) for f in (first, second, model))
        scale = b if figure in ratios else 1.0
        kind = "relative" if figure in ratios else "points"
        rows.append((figure, a, b, c, (b - a) / scale, (c - b) / scale, kind))
    laws = {
        "distance in 64ths of the space": [f.bins for f in (first, second, model)],
        "distance in reuse distances": [f.reuse.distances() for f in (first, second, model)],
    }
    for figure, (a, b, c) in laws.items():
        rows.append((figure, np.nan, np.nan, np.nan, fy.distance(a, b), fy.distance(c, b), "moved"))
    return pd.DataFrame(rows, columns=HalfDrift.tables[0].names)
