"""`TraceModel`: a block trace as a hierarchical state diagram, small enough to hand on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.storage.cascade import Cascade, Windows
from fitting.storage.diagram import Diagram
from fitting.storage.interarrival import KNOTS, LAWS, GapLaws
from fitting.storage.placement import Halves, Lateness
from fitting.storage.reuse_distance import COLUMNS
from fitting.storage.run_lengths import COLUMNS as RUN_COLUMNS
from fitting.storage.run_lengths import Runs
from fitting.storage.survey import BLOCK, SizeClasses, Survey
from fitting.storage.transitions import GAPS, HISTOGRAM_CLASSES, SUM, SUMS, TransitionCounts
from fitting.storage.windows import LARGE_SHAPE, SMALL_SHAPE
from measurements.table.units import size_text
from ppw.errors import PpwError
from ppw.results.axes import new_axes
from ppw.results.result import read_document, reads_document, write_document
from ppw.results.text import shown, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    IntArray = np.ndarray[Any, np.dtype[np.int64]]
    FloatArray = np.ndarray[Any, np.dtype[np.float64]]


# A `ppw.storage.trace_model.TraceModel` as the body of a JSON document, and back.


# Digits kept: means set the rate; of laws and shares a trace tells less.
_DIGITS, _LAW_DIGITS = 6, 4
_WHOLE = ("origin", "pair", "op", "sequential", "size_class")
_STATES = ("state_origin", "state", "occupancy", "lowest", "highest", "departures", "arrivals")


def body_of(model: TraceModel) -> dict[str, Any]:
    """All of a model but its head."""
    counts, laws, cascade = model.counts, model.laws, model.cascade
    return {
        "survey": asdict(model.survey),
        "size_classes": {"sizes": model.classes.sizes, "counts": model.classes.counts},
        "diagram": asdict(counts.diagram),
        "transitions": {
            **{name: getattr(counts, name) for name in _WHOLE},
            "count": counts.count,
            "gap_law": laws.law,
            "gap_mean_s": _rounded(laws.mean_s),
            "gap_shape": _rounded(laws.shape, _LAW_DIGITS),
        },
        "gap_quantiles": _rounded(laws.quantiles, _LAW_DIGITS),
        "states": {name: getattr(counts, name) for name in _STATES},
        "runs": _runs_body(model),
        "reuse": None if model.reuse is None else _sparse(model.reuse),
        "windows": asdict(cascade.windows),
        "cascade": {
            "counts": cascade.counts,
            "loose": cascade.loose.tolist(),
            "halves": cascade.halves._asdict(),
            "small": _rounded(cascade.small, _LAW_DIGITS),
            "large": _distinct(_rounded(cascade.large, _LAW_DIGITS)),
            "stop": cascade.stop,
            "placement": cascade.placement,
            "gaps": _rounded(cascade.gaps, _LAW_DIGITS),
            "chain": _rounded(cascade.chain, _LAW_DIGITS),
            "lateness": _lateness_body(cascade.lateness),
            "tick_s": cascade.tick_s,
        },
        "names": model.names,
        "caveats": list(model.caveats),
    }


def parts_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a document into the arguments of a `TraceModel` but its digest."""
    transitions, states = document["transitions"], document["states"]
    laws = GapLaws(
        np.array(transitions["gap_law"], np.int8),
        _floats(transitions["gap_mean_s"]),
        _floats(transitions["gap_shape"]),
        _floats(document["gap_quantiles"]).reshape(-1, len(KNOTS)),
    )
    count = _ints(transitions["count"])
    _refuse_uneven("transitions", transitions)
    _refuse_uneven("states", states)
    sums = np.full((len(count), SUMS), np.nan)
    sums[:, GAPS], sums[:, SUM] = count, count * laws.mean_s
    counts = TransitionCounts(
        Diagram(**document["diagram"]),
        **{name: _ints(transitions[name]) for name in _WHOLE},
        sums=sums,
        histogram=np.zeros((len(count), HISTOGRAM_CLASSES), np.uint32),
        **{name: _ints(states[name]) for name in _STATES},
    )
    reuse, survey, classes = document["reuse"], document["survey"], document["size_classes"]
    return {
        "survey": _survey(survey),
        "classes": SizeClasses(*(tuple(map(_ints, classes[k])) for k in ("sizes", "counts"))),
        "counts": counts,
        "laws": laws,
        "cascade": _cascade(document),
        "runs": _runs(document["runs"], counts),
        "reuse": None if reuse is None else _dense(reuse, COLUMNS),
        "names": {k: tuple(v) for k, v in document["names"].items()},
        "caveats": tuple(document["caveats"]),
    }


def _refuse_uneven(what: str, columns: Mapping[str, Any]) -> None:
    """Raise ValueError for columns of different lengths."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of {what} have {' and '.join(map(str, sorted(lengths)))} rows")


def _runs_body(model: TraceModel) -> dict[str, Any]:
    """Runs; where they started, within what was touched of their state."""
    runs, counts = model.runs, model.counts
    started = runs.lowest >= 0
    return {
        **_sparse(runs.counts),
        "after_lowest": np.where(started, runs.lowest - counts.lowest, 0),
        "before_highest": np.where(started, counts.highest - runs.highest, 0),
    }


def _runs(document: Mapping[str, Any], touched: TransitionCounts) -> Runs:
    counts = _dense(document, RUN_COLUMNS)
    started = counts.any(axis=1)
    return Runs(
        counts,
        np.where(started, touched.lowest + _ints(document["after_lowest"]), -1),
        np.where(started, touched.highest - _ints(document["before_highest"]), -1),
    )


def _survey(fields: Mapping[str, Any]) -> Survey:
    read: dict[str, Any] = {k: _ints(v) if isinstance(v, list) else v for k, v in fields.items()}
    return Survey(**read)


def _cascade(document: Mapping[str, Any]) -> Cascade:
    windows, cascade = Windows(**document["windows"]), document["cascade"]
    depths = windows.depth - windows.kept
    large = cascade["large"]
    rows = _floats(large["rows"])[_ints(large["row"])] if depths else np.zeros((0, *LARGE_SHAPE))
    return Cascade(
        windows,
        _ints(cascade["counts"]),
        np.array(cascade["loose"], dtype=np.bool_),
        Halves(cascade["halves"]["least"], _ints(cascade["halves"]["first"])),
        _floats(cascade["small"]).reshape(depths, *SMALL_SHAPE),
        rows.reshape(depths, *LARGE_SHAPE),
        cascade["stop"],
        cascade["placement"],
        _floats(cascade["gaps"]),
        _floats(cascade["chain"]),
        Lateness(
            _floats(cascade["lateness"]["cycle"]),
            _floats(cascade["lateness"]["quantiles"]),
            cascade["lateness"]["correlation"],
            cascade["lateness"]["drift"],
        ),
        cascade["tick_s"],
    )


def _lateness_body(lateness: Lateness) -> dict[str, Any]:
    return {
        "cycle": _rounded(lateness.cycle),
        "quantiles": _rounded(lateness.quantiles),
        "correlation": float(_rounded(lateness.correlation)),
        "drift": lateness.drift,
    }


def _rounded(values: Any, digits: int = _DIGITS) -> Any:
    """Numbers to so many digits."""
    array = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(array))))
        near = np.round(array * scale) / scale
    return np.where(np.isfinite(near), near, array)


def _distinct(laws: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Laws by depth and octave, most of them alike, as different rows and which is whose."""
    rows, row = np.unique(laws.reshape(-1, laws.shape[-1]), axis=0, return_inverse=True)
    return {"rows": rows, "row": row}


def _sparse(counts: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Counts that are not 0, row by row: how many in each, their classes, the counts."""
    row, class_ = np.nonzero(counts)
    return {
        "in_row": np.bincount(row, minlength=len(counts)),
        "class": class_,
        "count": counts[row, class_],
    }


def _dense(sparse: Mapping[str, Any], columns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    number = _ints(sparse["in_row"])
    counts = np.zeros((len(number), columns), dtype=np.int64)
    counts[np.repeat(np.arange(len(number)), number), _ints(sparse["class"])] = _ints(
        sparse["count"]
    )
    return counts


def _ints(values: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def _floats(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)


KIND = "trace_model"
# Version 1 had no runs, or reuse by stream instead of by device; 2 no busiest windows.
_VERSION = 3
OPERATIONS = ("read", "write", "discard", "flush")


@dataclass(frozen=True)
class TraceModel:
    """State diagram of a block trace, with all that regenerating it takes.

    Made by `ppw.fit_trace`.

    Parameters
    ----------
    survey : fitting.storage.survey.Survey
        Extent, streams, sizes and alignment of the trace.
    classes : fitting.storage.survey.SizeClasses
        Request sizes by class.
    counts : fitting.storage.transitions.TransitionCounts
        Transitions counted.
    laws : fitting.storage.interarrival.GapLaws
        Inter-arrival law of every transition.
    cascade : fitting.storage.cascade.Cascade
        How arrivals are spread over time.
    runs : fitting.storage.run_lengths.Runs
        Runs of sequential requests by the touched state they start in.
    reuse : array or None
        Touched states by columns of `fitting.storage.reuse_distance`: requests and pieces counted.
    names : dict of str to tuple of str
        Names of streams and devices.
    caveats : tuple of str
    input_digest : str
    """

    survey: Survey
    classes: SizeClasses
    counts: TransitionCounts
    laws: GapLaws
    cascade: Cascade
    runs: Runs
    reuse: IntArray | None
    names: dict[str, tuple[str, ...]]
    caveats: tuple[str, ...]
    input_digest: str

    @property
    def diagram(self) -> Diagram:
        """The ranges of logical block numbers."""
        return self.counts.diagram

    @property
    def rate(self) -> float:
        """Requests a second: the reciprocal of the mean inter-arrival time."""
        return self.survey.requests / self.survey.duration_s

    @property
    def weights(self) -> FloatArray:
        """Share of requests of every stream."""
        return np.asarray(self.survey.stream_counts / self.survey.requests)

    def paces(self) -> FloatArray:
        """Factor of each stream's gaps by which they fill the duration of the whole trace."""
        streams = len(self.survey.streams)
        gaps = np.bincount(self.counts.stream, self.counts.count * self.laws.mean_s, streams)
        number = np.bincount(self.counts.stream, self.counts.count, streams)
        with np.errstate(invalid="ignore", divide="ignore"):
            pace = self.survey.duration_s / self.survey.stream_counts * number / gaps
        return np.where(np.isfinite(pace), pace, 1.0)

    def transition_sizes(self) -> FloatArray:
        """Mean size (B) of the requests of every transition."""
        mean = [
            float((s * c).sum() / c.sum())
            for s, c in zip(self.classes.sizes, self.classes.counts, strict=True)
        ]
        return np.asarray(mean)[self.counts.size_class]

    def read_share(self) -> float:
        """Share of the requests that read."""
        count = self.counts.count
        return float(count[self.counts.op == 0].sum() / count.sum())

    def random_share(self) -> float:
        """Share of the requests that do not go on where the stream's last one ended."""
        count = self.counts.count
        return float(count[self.counts.sequential == 0].sum() / count.sum())

    def to_frame(self) -> pd.DataFrame:
        """Transitions, one a row.

        ``probability`` is conditional on the state that is left, its level and the kind of the
        request before; ``joint`` is the share of all transitions. A kind is an operation and a
        size; sums over kinds are what the state diagram counts.
        """
        counts, survey = self.counts, self.survey
        pairs = self.diagram.pairs(counts.pair)
        table = pd.DataFrame(
            {
                "stream": survey.streams[counts.stream],
                "device": survey.devices[counts.stream],
                "level": pairs.level,
                "from_state": pairs.source,
                "to_state": pairs.target,
                "after_kind": counts.origin % 6,
                "op": np.array(OPERATIONS)[counts.op],
                "sequential": counts.sequential.astype(bool),
                "size_bytes": self.transition_sizes(),
                "count": counts.count,
                "gap_law": np.array(LAWS)[self.laws.law],
                "gap_mean_s": self.laws.mean_s,
                "gap_variation": self.laws.variation(),
            }
        )
        left = ["stream", "device", "level", "from_state", "after_kind"]
        table["probability"] = table["count"] / table.groupby(left)["count"].transform("sum")
        table["joint"] = table["count"] / table["count"].sum()
        return table

    def state_pairs(self) -> pd.DataFrame:
        """Pairs of states, one a row, summed over all else: what the diagram itself counts.

        ``probability`` is the share of the requests made in ``from_state``, at its level, that
        the pair has; ``joint`` its share of all transitions.
        """
        table = self.to_frame()
        keys = ["stream", "device", "level", "from_state", "to_state"]
        pairs = table.groupby(keys)["count"].sum().reset_index()
        pairs["probability"] = pairs["count"] / self._made_in(pairs)
        pairs["joint"] = pairs["count"] / pairs["count"].sum()
        return pairs

    def _made_in(self, pairs: pd.DataFrame) -> FloatArray:
        """Transitions out of each pair's state, at whatever level they part."""
        counts, k = self.counts, self.diagram.fan_out
        stream = counts.state_origin // 6
        left = counts.departures.sum(axis=1)
        found = np.zeros(len(pairs))
        place = pairs["stream"].to_numpy(), pairs["device"].to_numpy()
        for level in range(1, self.diagram.levels + 1):
            coarse = counts.state // k ** (self.diagram.levels - level)
            made = (
                pd.DataFrame(
                    {
                        "stream": self.survey.streams[stream],
                        "device": self.survey.devices[stream],
                        "state": coarse,
                        "left": left,
                    }
                )
                .groupby(["stream", "device", "state"])["left"]
                .sum()
            )
            here = (pairs["level"] == level).to_numpy()
            keys = [place[0][here], place[1][here], pairs["from_state"].to_numpy()[here]]
            found[here] = made.reindex(pd.MultiIndex.from_arrays(keys)).to_numpy()
        return found

    def summary(self) -> str:
        """The model as text."""
        survey, top = self.survey, min(5, len(self.survey.sizes))
        lines = [
            f"{survey.requests} requests in {shown(survey.duration_s, 's')}, "
            f"{shown(self.rate)} a second; {len(survey.streams)} streams",
            f"{self.diagram.levels} levels of {self.diagram.fan_out} states over "
            f"{shown(self.diagram.blocks * BLOCK, 'B')}: {len(np.unique(self.counts.pair))} of "
            f"{self.diagram.transitions} pairs of states occur",
            f"reads {self.read_share():.1%}, random {self.random_share():.1%}",
            "",
            text_table(
                ["size", "share"],
                [
                    [size_text(int(s)), f"{c / survey.requests:.1%}"]
                    for s, c in zip(survey.sizes[:top], survey.size_counts[:top], strict=True)
                ],
            ),
            "",
            self._laws_table(),
        ]
        return summary_text(lines, self.caveats)

    def _laws_table(self) -> str:
        count = self.counts.count
        rows = []
        for code in np.unique(self.laws.law):
            of_law = self.laws.law == code
            share = count[of_law].sum() / count.sum()
            rows.append([LAWS[code], str(int(of_law.sum())), f"{share:.1%}"])
        return text_table(["inter-arrival law", "transitions", "requests"], rows)

    def coarser(self) -> TraceModel:
        """The same trace with one level less; the laws of merged gaps need their sums.

        Raises
        ------
        PpwError
            Of a model of one level, or one read back from JSON, which has no sums.
        """
        from fitting.storage.interarrival import fit_gaps

        if self.diagram.levels < 2 or np.isnan(self.counts.sums).any():
            raise PpwError("a model can be made coarser where it was fitted, down to one level")
        counts = self.counts.coarser()
        laws = fit_gaps(counts.sums, counts.histogram, self.survey.tick_s)
        stretch = self.counts.state_origin * 2**32 + self.counts.state // self.diagram.fan_out
        group = np.unique(stretch, return_inverse=True)[1]
        reuse = None
        if self.reuse is not None:
            reuse = np.zeros((len(counts.state), self.reuse.shape[1]), dtype=np.int64)
            np.add.at(reuse, group, self.reuse)
        return replace(self, counts=counts, laws=laws, runs=self.runs.merged(group), reuse=reuse)

    def to_json(self) -> str:
        """JSON document on one line; numbers that are not whole with six digits, laws with four."""
        return re.sub(r"\n *", "", write_document(KIND, self.input_digest, body_of(self), _VERSION))

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> TraceModel:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        remedy = "fit the trace again"
        document = read_document(text, KIND, _VERSION, remedy)
        return cls(**parts_of(document), input_digest=document["input_digest"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the state diagram: shares of the transitions between the finest states' parents."""
        return plot_states(self, ax)


_MOST_STATES = 64


def plot_states(model: TraceModel, ax: Axes | None = None) -> Axes:
    """Draw shares of transitions between the states of the deepest level that fits a page."""
    ax, counts, k = new_axes(ax), model.counts, model.diagram.fan_out
    level = model.diagram.levels
    while k**level > _MOST_STATES and level > 1:
        level -= 1
    pairs = model.diagram.pairs(counts.pair)
    states, shares = k**level, np.zeros((k**level, k**level))
    for at in range(1, model.diagram.levels + 1):
        here = pairs.level == at
        count = counts.count[here].astype(np.float64)
        if at >= level:
            part = k ** (at - level)
            np.add.at(shares, (pairs.source[here] // part, pairs.target[here] // part), count)
            continue
        # Recorded above this level: anywhere in the coarse states, alike.
        part = k ** (level - at)
        coarse = np.zeros((k**at, k**at))
        np.add.at(coarse, (pairs.source[here], pairs.target[here]), count)
        shares += np.kron(coarse, np.full((part, part), 1 / part**2))
    ax.imshow(np.log10(shares / shares.sum() + 1e-6), origin="lower", cmap="Blues", aspect="auto")
    ax.set_xlabel(f"to state ({states} of level {level})")
    ax.set_ylabel("from state")
    return ax
