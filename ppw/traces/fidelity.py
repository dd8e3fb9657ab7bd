"""`validate_trace`: a synthetic trace held against its original, figure by figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ppw import caveats as cv
from ppw.arguments import as_positive
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.result import numbers_digest
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table
from ppw.traces.comparing import FAILED, NOT_JUDGED, POINTS, Tolerances, compare_features
from ppw.traces.devices import ASSUMED, described, parse_device, reaching, time_text
from ppw.traces.features import OCTANTS, Space, features
from ppw.traces.source import WithoutLocality, opened, survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from matplotlib.axes import Axes

    from ppw.traces.features import TraceFeatures
    from ppw.traces.source import Batches

_MOST_STREAMS = 20
_MORE_SEEDS = (
    "One trace may be off by chance: make some with other seeds (ppw trace generate --seed) and "
    "give all of them, whose mean is judged."
)
# Cache sizes that the curve is drawn at, as shares of the footprint.
_CURVE = np.geomspace(0.001, 1.0, 31)


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceFidelity(TabledResult):
    """How near a synthetic trace comes to its original.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a figure: ``group`` (features, performance, spatial, temporal, ablation),
        ``figure``, ``unit``, ``original``, ``synthetic`` (mean over the synthetic traces),
        ``off``, ``kind`` of it (relative; points, for shares; moved, the share that would have to
        move to make two distributions one; difference), ``tolerance``,
        ``lower`` and ``upper`` (band of the original, where that is the tolerance), ``verdict``
        (pass, fail, or "–" where there is no tolerance).
    streams : pandas.DataFrame
        One row a thread, of either trace: share, rate, fluctuation (coefficient of variation of
        its load over 60 spells), type.
    curve : pandas.DataFrame
        Hit ratio of LRU caches: ``cache_share`` of the original's footprint, ``original``,
        ``synthetic``, ``ablation`` (NaN where it was not asked for).
    synthetic_traces : float
        Their number.
    device : str
        Model that latency and completed requests are of.
    """

    kind: ClassVar[str] = "trace_fidelity"

    table: pd.DataFrame
    streams: pd.DataFrame
    curve: pd.DataFrame
    synthetic_traces: float
    device: str

    @property
    def passed(self) -> bool:
        """Whether no figure is out of its tolerance."""
        return not (self.table["verdict"] == FAILED).any()

    def verdict(self) -> list[str]:
        """Say whether it passed, and what is worst, in sentences."""
        judged = self.table[self.table["verdict"] != NOT_JUDGED]
        failed = judged[judged["verdict"] == FAILED]
        n = len(judged)
        if failed.empty:
            said = [f"The synthetic trace passes: all {n} figures are within their tolerances."]
        else:
            names = ", ".join(failed["figure"])
            said = [f"The synthetic trace fails: {len(failed)} of {n} figures are off: {names}."]
            if self.synthetic_traces == 1:
                said.append(_MORE_SEEDS)
        return said + self._not_judged() + self._ablation()

    def _not_judged(self) -> list[str]:
        table = self.table
        judged = (table["verdict"] != NOT_JUDGED) | table["off"].isna()
        # Figures of the original by itself, for comparison.
        alone = (table["group"] == "ablation") | table["figure"].str.contains("original's halves")
        rows = rows_of(table[~judged & ~alone])
        figures = (f"{row['figure']} ({_off(row['off'], row['kind'])})" for row in rows)
        return [f"Not judged: {'; '.join(figures)}."] if rows else []

    def _ablation(self) -> list[str]:
        rows = self.table[self.table["group"] == "ablation"]
        if rows.empty:
            return []
        worst = rows_of(rows.sort_values("off", key=abs, ascending=False, kind="stable"))[0]
        return [
            f"With uniform places, {worst['figure'].partition(': ')[2]} are "
            f"{worst['synthetic']:.1%} instead of "
            f"{worst['original']:.1%}: the effect of a cache is in the places, which the synthetic "
            "trace has to keep."
        ]

    def to_frame(self) -> pd.DataFrame:
        """One row a figure."""
        return self.table

    def summary(self) -> str:
        """Text: the verdict, the figures, the threads and the caveats."""
        lines = [*self.verdict(), "", text_table(self.header(), self.cells()), ""]
        lines += [text_table(self.stream_header(), self.stream_cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["figure", "original", "synthetic", "off", "tolerance", "verdict"]

    def cells(self) -> list[list[str]]:
        """The figures as they are printed."""
        return [
            [
                row["figure"],
                _value(row["original"], row["unit"]),
                _value(row["synthetic"], row["unit"]),
                _off(row["off"], row["kind"]),
                _tolerance(row),
                row["verdict"],
            ]
            for row in rows_of(self.table)
        ]

    def stream_header(self) -> list[str]:
        """Name the columns of `stream_cells`."""
        return [
            *("thread", "share", "requests/s", "fluctuation", "type"),
            *("synthetic share", "synthetic type"),
        ]

    def stream_cells(self) -> list[list[str]]:
        """The threads of the original, and beside them share and type in the synthetic trace."""
        return [
            [
                row["stream"],
                _value(row["original_share"], "share"),
                shown(row["original_rate"]),
                shown(row["original_fluctuation"]),
                row["original_type"] or "–",
                _value(row["synthetic_share"], "share"),
                row["synthetic_type"] or "–",
            ]
            for row in rows_of(self.streams.head(_MOST_STREAMS))
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the hit ratio curves."""
        from ppw.report.trace_fidelity_page import plot_hit_ratios

        return plot_hit_ratios(self, ax)


def validate_trace(
    original: Batches | str | PathLike[str],
    synthetic: Batches | str | PathLike[str] | Sequence[Batches | str | PathLike[str]],
    *,
    device: str = "ssd",
    features_tolerance: float = 0.05,
    performance_tolerance: float = 0.067,
    hit_ratio_tolerance: float = 0.03,
    no_locality: bool = False,
    seed: int = 0,
) -> TraceFidelity:
    """Hold synthetic traces against the original they stand for.

    Both traces are read twice, in bounded memory. Hit ratios come from all blocks of 4 KiB up to
    four million accesses, and from a sample of the blocks beyond.

    Parameters
    ----------
    original : Trace or path
    synthetic : Trace, path, or a sequence of them
        Several are repeats with other seeds: their mean is judged, and their spread.
    device : str
        ``ssd`` or ``disk``, with parameters if need be, as ``disk,average_seek=9ms``: the model
        that latency is computed by, where either trace has no latencies of its own.
    features_tolerance, performance_tolerance : float
        Relative; published: 5 %, and 6.7 % for the worst and 3.4 % for the mean of performance.
    hit_ratio_tolerance : float
        Of LRU hit ratios at 1, 5 and 20 % of the footprint (difference of ratios).
    no_locality : bool
        Show beside it what becomes of the original when its places are uniform.
    seed : int
        Of the ablation and of the resamples that bands rest on.

    Returns
    -------
    TraceFidelity

    Raises
    ------
    MeasurementError
        Where a trace cannot be read.
    PpwError
        For a trace without arrival times, or tolerances that cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    limits = Tolerances(
        features=as_positive("tolerance of features", features_tolerance),
        performance=as_positive("tolerance of performance", performance_tolerance),
        hit_ratio=as_positive("tolerance of hit ratios", hit_ratio_tolerance),
    )
    name, model = parse_device(device)
    first = opened(original)
    known = survey(first)
    model = reaching(model, known.survey.high_lbn)
    space = Space(known.survey.low_lbn, known.survey.high_lbn)
    ours = features(first, known, space, model, first.names)
    theirs, digests = [], [known.digest]
    for one in _several(synthetic):
        found = survey(one)
        digests.append(found.digest)
        theirs.append(features(one, found, space, model, first.names))
    ablated = None
    if no_locality:
        without = WithoutLocality(first, known.survey, seed)
        ablated = features(without, survey(without), space, model)
    table = compare_features(ours, theirs, ablated, limits, seed)
    caveats = tuple(_caveats(ours, theirs, f"{name}: {described(model)}", name))
    cv.warn(caveats)
    return TraceFidelity(
        table=table,
        streams=_streams(ours, theirs[0]),
        curve=_curve(ours, theirs, ablated),
        synthetic_traces=float(len(theirs)),
        device=f"{name}: {described(model)}",
        caveats=caveats,
        input_digest=numbers_digest(*digests),
    )


def _several(synthetic: Any) -> list[Batches]:
    single = isinstance(synthetic, str) or hasattr(synthetic, "__fspath__")
    traces = [synthetic] if single or hasattr(synthetic, "batches") else list(synthetic)
    if not traces:
        raise PpwError("no synthetic trace was given")
    return [opened(one) for one in traces]


def _caveats(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], said: str, name: str
) -> Iterable[str]:
    if not _both_recorded(ours, theirs):
        yield ASSUMED.format(name=name, said=said.partition(": ")[2])
    if ours.reuse.halvings or any(one.reuse.halvings for one in theirs):
        yield (
            "hit ratios are of a sample of the blocks: they are off by about a point at small "
            "caches"
        )
    by_chance = _share_by_chance(ours)
    if by_chance > POINTS:
        yield (
            f"requests start anew {ours.random_share * ours.requests:.0f} times: chance alone "
            f"moves the share of an eighth of the space by {100 * by_chance:.1f} points, so that "
            "this trace is too short to tell whether places are kept to their tolerance"
        )
    if any(abs(one.duration_s / ours.duration_s - 1) > 0.05 for one in theirs):
        yield (
            "the traces differ in length by more than 5 %: hit ratios and dispersion depend on it; "
            "without --count and --duration one is made as long as its original"
        )
    if max(f.storage.utilisation for f in (ours, *theirs)) > 0.99:
        yield (
            "a modelled device is busy all the time: latency is that of a queue that only grows, "
            "and says little"
        )


def _share_by_chance(ours: TraceFeatures) -> float:
    """Standard error of the share of an even eighth: a run goes where its start leads."""
    starts = max(1.0, ours.random_share * ours.requests)
    return float(np.sqrt((1 - 1 / OCTANTS) / OCTANTS / starts))


def _both_recorded(ours: TraceFeatures, theirs: Sequence[TraceFeatures]) -> bool:
    return all(f.recorded.requests > f.requests / 2 for f in (ours, *theirs))


def _curve(
    ours: TraceFeatures, theirs: Sequence[TraceFeatures], ablated: TraceFeatures | None
) -> pd.DataFrame:
    blocks = np.maximum((_CURVE * ours.reuse.footprint).astype(np.int64), 1)
    return pd.DataFrame(
        {
            "cache_share": _CURVE,
            "original": ours.reuse.hit_ratio(blocks),
            "synthetic": np.mean([one.reuse.hit_ratio(blocks) for one in theirs], axis=0),
            "ablation": np.nan if ablated is None else ablated.reuse.hit_ratio(blocks),
        }
    )


def _streams(ours: TraceFeatures, theirs: TraceFeatures) -> pd.DataFrame:
    tables = []
    for which, found in (("original", ours.streams), ("synthetic", theirs.streams)):
        tables.append(
            pd.DataFrame(
                {
                    "stream": found.name,
                    f"{which}_share": found.share,
                    f"{which}_rate": found.rate,
                    f"{which}_fluctuation": found.fluctuation,
                    f"{which}_read_share": found.read_share,
                    f"{which}_random_share": found.random_share,
                    f"{which}_mean_size": found.mean_size,
                    f"{which}_type": found.types(),
                }
            )
        )
    both = tables[0].merge(tables[1], on="stream", how="outer", sort=False)
    both = both.sort_values("original_share", ascending=False, kind="stable", ignore_index=True)
    text = ["original_type", "synthetic_type"]
    return both.assign(**{c: both[c].astype(object).where(both[c].notna(), "") for c in text})


def _value(value: float, unit: str) -> str:
    if np.isnan(value):
        return "–"
    if unit == "share":
        return f"{value:.2%}"
    if unit == "s":
        return time_text(value)
    return f"{shown(value, 'B')}/s" if unit == "B/s" else shown(value, unit)


def _off(value: float, kind: str) -> str:
    if np.isnan(value):
        return "–"
    return {
        "relative": f"{value:+.2%}",
        "points": f"{100 * value:+.2f} points",
        "moved": f"{value:.2%}",
        "difference": f"{value:+.3f}",
    }[kind]


def _tolerance(row: dict[str, Any]) -> str:
    if np.isfinite(row["lower"]):
        return f"{shown(row['lower'])} to {shown(row['upper'])}"
    if np.isnan(row["tolerance"]):
        return "–"
    points = row["kind"] == "points"
    return f"{100 * row['tolerance']:.3g}{' points' if points else ' %'}"
