"""`TraceModel`: a block trace as a hierarchical state diagram, small enough to hand on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.storage import placement, reuse_distance, run_lengths
from fitting.storage.cascade import Cascade, Windows
from fitting.storage.diagram import KINDS, Diagram
from fitting.storage.interarrival import KNOTS, LAWS, GapLaws, fit_interarrivals
from fitting.storage.run_lengths import Runs
from fitting.storage.survey import BLOCK, SizeClasses, Survey
from fitting.storage.transitions import GAPS, HISTOGRAM_CLASSES, SUM, SUMS, TransitionCounts
from measurements.table.units import size_text
from ppw.errors import PpwError
from ppw.results.axes import new_axes
from ppw.results.result import read_document, reads_document, write_document
from ppw.results.text import shown, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from fitting.compiled.loops import FloatArray, IntArray

KIND = "trace_model"
# Version 1 had no runs, or reuse by stream instead of by device; 2 no busiest windows.
_VERSION = 3
OPERATIONS = ("read", "write", "discard", "flush")
# A plot of more states than these is too fine for a page.
_MOST_STATES = 64
# Digits kept: means set the rate; of laws and shares a trace tells less.
_DIGITS, _LAW_DIGITS = 6, 4
_WHOLE = ("origin", "pair", "op", "sequential", "size_class")
_CASCADE = tuple(field.name for field in fields(Cascade) if field.name != "windows")
_ROUNDED = ("small", "gaps", "chain")
_STATES = ("state_origin", "state", "occupancy", "lowest", "highest", "departures", "arrivals")


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
    runs : fitting.storage.Runs
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
        """Requests per second: the reciprocal of the mean inter-arrival time."""
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
        pairs = zip(self.classes.sizes, self.classes.counts, strict=True)
        mean = [float((size * count).sum() / count.sum()) for size, count in pairs]
        return np.asarray(mean)[self.counts.size_class]

    def read_share(self) -> float:
        """Share of the requests that read."""
        return self._share(self.counts.op == 0)

    def random_share(self) -> float:
        """Share of the requests that do not go on where the stream's last one ended."""
        return self._share(self.counts.sequential == 0)

    def _share(self, chosen: Any) -> float:
        """Share of the requests that a mask of transitions has."""
        return float(self.counts.count[chosen].sum() / self.counts.count.sum())

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
                "after_kind": counts.origin % KINDS,
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
        keys = ["stream", "device", "level", "from_state", "to_state"]
        pairs = self.to_frame().groupby(keys)["count"].sum().reset_index()
        # Transitions out of each state of each level, at whatever level they part.
        counts, levels, k = self.counts, self.diagram.levels, self.diagram.fan_out
        stream = counts.state_origin // KINDS
        names = {"stream": self.survey.streams[stream], "device": self.survey.devices[stream]}
        left = pd.DataFrame({**names, "left": counts.departures.sum(axis=1)})
        made = pd.concat(
            left.assign(level=level, from_state=counts.state // k ** (levels - level))
            for level in range(1, levels + 1)
        )
        made_in = made.groupby(keys[:-1])["left"].sum()
        state = pd.MultiIndex.from_frame(pairs[keys[:-1]])
        pairs["probability"] = pairs["count"] / made_in.reindex(state).to_numpy()
        pairs["joint"] = pairs["count"] / pairs["count"].sum()
        return pairs

    def summary(self) -> str:
        """The model as text."""
        survey, diagram = self.survey, self.diagram
        sizes = [
            [size_text(int(size)), f"{number / survey.requests:.1%}"]
            for size, number in zip(survey.sizes[:5], survey.size_counts[:5], strict=True)
        ]
        law = self.laws.law
        laws = [
            [LAWS[code], str(int((law == code).sum())), f"{self._share(law == code):.1%}"]
            for code in np.unique(law)
        ]
        parts = [
            f"{survey.requests} requests in {shown(survey.duration_s, 's')}, "
            f"{shown(self.rate)} a second; {len(survey.streams)} streams",
            f"{diagram.levels} levels of {diagram.fan_out} states over "
            f"{shown(diagram.blocks * BLOCK, 'B')}: {len(np.unique(self.counts.pair))} of "
            f"{diagram.transitions} pairs of states occur",
            f"reads {self.read_share():.1%}, random {self.random_share():.1%}",
            "",
            text_table(["size", "share"], sizes),
            "",
            text_table(["inter-arrival law", "transitions", "requests"], laws),
        ]
        return summary_text(parts, self.caveats)

    def coarser(self) -> TraceModel:
        """The same trace with one level less; the laws of merged gaps need their sums.

        Raises
        ------
        PpwError
            Of a model of one level, or one read back from JSON, which has no sums.
        """
        if self.diagram.levels < 2 or np.isnan(self.counts.sums).any():
            raise PpwError("a model can be made coarser where it was fitted, down to one level")
        counts = self.counts.coarser()
        laws = fit_interarrivals(counts.sums, counts.histogram, self.survey.tick_s)
        # States of one origin and one coarser state become one, in the order of both.
        state = self.counts.state_origin * 2**32 + self.counts.state // self.diagram.fan_out
        _, first, group = np.unique(state, return_index=True, return_inverse=True)
        reuse = None if self.reuse is None else np.add.reduceat(self.reuse, first)
        runs = self.runs.group_runs(group)
        return replace(self, counts=counts, laws=laws, runs=runs, reuse=reuse)

    def to_json(self) -> str:
        """JSON document on one line; numbers that are not whole with six digits, laws with four."""
        return re.sub(r"\n *", "", write_document(KIND, self.input_digest, _body(self), _VERSION))

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> TraceModel:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = read_document(text, KIND, _VERSION, remedy="fit the trace again")
        return cls(**_parts(document), input_digest=document["input_digest"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw shares of the transitions between the states of the deepest level that fits."""
        ax, counts, k = new_axes(ax), self.counts, self.diagram.fan_out
        level = self.diagram.levels
        while k**level > _MOST_STATES and level > 1:
            level -= 1
        pairs = self.diagram.pairs(counts.pair)
        states, shares = k**level, np.zeros((k**level, k**level))
        for at in range(1, self.diagram.levels + 1):
            here, depth = pairs.level == at, min(at, level)
            part, width = k ** (at - depth), k ** (level - depth)
            coarse = np.zeros((k**depth, k**depth))
            ends = pairs.source[here] // part, pairs.target[here] // part
            np.add.at(coarse, ends, counts.count[here].astype(np.float64))
            # What is recorded above the drawn level is anywhere in the coarse states, alike.
            shares += np.kron(coarse, np.full((width, width), 1 / width**2))
        logs = np.log10(shares / shares.sum() + 1e-6)
        ax.imshow(logs, origin="lower", cmap="Blues", aspect="auto")
        ax.set(xlabel=f"to state ({states} of level {level})", ylabel="from state")
        return ax


def _body(model: TraceModel) -> dict[str, Any]:
    """All of a model but its head, as the body of a JSON document."""
    counts, laws, cascade, runs = model.counts, model.laws, model.cascade, model.runs
    late, started = cascade.lateness, runs.lowest >= 0
    # Most laws of a depth are alike: different rows, and which depth has which.
    large = _round(cascade.large, _LAW_DIGITS)
    rows, row = np.unique(large.reshape(-1, large.shape[-1]), axis=0, return_inverse=True)
    return {
        "survey": asdict(model.survey),
        "size_classes": {"sizes": model.classes.sizes, "counts": model.classes.counts},
        "diagram": asdict(counts.diagram),
        "transitions": {
            **{name: getattr(counts, name) for name in (*_WHOLE, "count")},
            "gap_law": laws.law,
            "gap_mean_s": _round(laws.mean_s),
            "gap_shape": _round(laws.shape, _LAW_DIGITS),
        },
        "gap_quantiles": _round(laws.quantiles, _LAW_DIGITS),
        "states": {name: getattr(counts, name) for name in _STATES},
        # Where runs started, within what was touched of their state.
        "runs": {
            **_pack_counts(runs.counts),
            "after_lowest": np.where(started, runs.lowest - counts.lowest, 0),
            "before_highest": np.where(started, counts.highest - runs.highest, 0),
        },
        "reuse": None if model.reuse is None else _pack_counts(model.reuse),
        "windows": asdict(cascade.windows),
        "cascade": {
            **{name: getattr(cascade, name) for name in _CASCADE},
            "halves": cascade.halves._asdict(),
            "large": {"rows": rows, "row": row},
            **{name: _round(getattr(cascade, name), _LAW_DIGITS) for name in _ROUNDED},
            "lateness": {
                **asdict(late),
                "cycle": _round(late.cycle),
                "quantiles": _round(late.quantiles),
                "correlation": float(_round(late.correlation)),
            },
        },
        "names": model.names,
        "caveats": list(model.caveats),
    }


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a document into the arguments of a `TraceModel` but its digest."""
    transitions, states = document["transitions"], document["states"]
    laws = GapLaws(
        np.array(transitions["gap_law"], np.int8),
        _floats(transitions["gap_mean_s"]),
        _floats(transitions["gap_shape"]),
        _floats(document["gap_quantiles"]).reshape(-1, len(KNOTS)),
    )
    _check_lengths("transitions", transitions)
    _check_lengths("states", states)
    count = _ints(transitions["count"])
    # A document has the means, not the sums that they came from: it cannot be made coarser.
    sums = np.full((len(count), SUMS), np.nan)
    sums[:, GAPS], sums[:, SUM] = count, count * laws.mean_s
    counts = TransitionCounts(
        Diagram(**document["diagram"]),
        **{name: _ints(transitions[name]) for name in _WHOLE},
        sums=sums,
        histogram=np.zeros((len(count), HISTOGRAM_CLASSES), np.uint32),
        **{name: _ints(states[name]) for name in _STATES},
    )
    classes, reuse = document["size_classes"], document["reuse"]
    survey: dict[str, Any] = {
        k: _ints(v) if isinstance(v, list) else v for k, v in document["survey"].items()
    }
    return {
        "survey": Survey(**survey),
        "classes": SizeClasses(*(tuple(map(_ints, classes[k])) for k in ("sizes", "counts"))),
        "counts": counts,
        "laws": laws,
        "cascade": _read_cascade(Windows(**document["windows"]), document["cascade"]),
        "runs": _read_runs(document["runs"], counts),
        "reuse": None if reuse is None else _unpack_counts(reuse, reuse_distance.COLUMNS),
        "names": {k: tuple(v) for k, v in document["names"].items()},
        "caveats": tuple(document["caveats"]),
    }


def _check_lengths(what: str, columns: Mapping[str, Any]) -> None:
    """Raise ValueError for columns of different lengths."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of {what} have {' and '.join(map(str, sorted(lengths)))} rows")


def _read_runs(document: Mapping[str, Any], counts: TransitionCounts) -> Runs:
    numbers = _unpack_counts(document, run_lengths.COLUMNS)
    started = numbers.any(axis=1)
    lowest = counts.lowest + _ints(document["after_lowest"])
    highest = counts.highest - _ints(document["before_highest"])
    return Runs(numbers, np.where(started, lowest, -1), np.where(started, highest, -1))


def _read_cascade(windows: Windows, parts: Mapping[str, Any]) -> Cascade:
    depths, halves, late = windows.depth - windows.kept, parts["halves"], parts["lateness"]
    large = np.zeros((0, *placement.LARGE_SHAPE))
    if depths:
        large = _floats(parts["large"]["rows"])[_ints(parts["large"]["row"])]
    return Cascade(
        windows,
        counts=_ints(parts["counts"]),
        loose=np.array(parts["loose"], dtype=np.bool_),
        halves=placement.Halves(halves["least"], _ints(halves["first"])),
        small=_floats(parts["small"]).reshape(depths, *placement.SMALL_SHAPE),
        large=large.reshape(depths, *placement.LARGE_SHAPE),
        stop=parts["stop"],
        placement=parts["placement"],
        gaps=_floats(parts["gaps"]),
        chain=_floats(parts["chain"]),
        lateness=placement.Lateness(
            _floats(late["cycle"]), _floats(late["quantiles"]), late["correlation"], late["drift"]
        ),
        tick_s=parts["tick_s"],
    )


def _round(values: Any, digits: int = _DIGITS) -> Any:
    """Round numbers to so many digits."""
    array = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(array))))
        near = np.round(array * scale) / scale
    return np.where(np.isfinite(near), near, array)


def _pack_counts(counts: IntArray) -> dict[str, IntArray]:
    """Counts that are not 0, row by row: how many in each, their classes, the counts."""
    row, class_ = np.nonzero(counts)
    in_row = np.bincount(row, minlength=len(counts))
    return {"in_row": in_row, "class": class_, "count": counts[row, class_]}


def _unpack_counts(sparse: Mapping[str, Any], columns: int) -> IntArray:
    number = _ints(sparse["in_row"])
    counts = np.zeros((len(number), columns), dtype=np.int64)
    row = np.repeat(np.arange(len(number)), number)
    counts[row, _ints(sparse["class"])] = _ints(sparse["count"])
    return counts


def _ints(values: Any) -> IntArray:
    return np.array(values, dtype=np.int64)


def _floats(values: Any) -> FloatArray:
    return np.array(values, dtype=np.float64)
