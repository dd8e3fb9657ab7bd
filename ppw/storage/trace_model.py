"""`fit_trace`: a block trace as a hierarchical state diagram, small enough to hand on.

`choose_level`: how many levels a state diagram needs, by throughput and by held-out likelihood. The
published rule takes the first level at which the IOPS that a device completes change by less than
2 % (Delimitrou et al. 2011); the rate of an open-loop trace never moves, so a device has to say.
Held-out likelihood asks how well the first half of the trace forecasts the addresses of the second.
By the one-standard-error rule (Breiman et al. 1984), the smallest level is taken that is as good as
the best one but for what parts of the second half differ by; a model larger than the trace is none.
"""

from __future__ import annotations

import base64
import re
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from fitting.compiled.loops import BoolArray, FloatArray, IntArray
from fitting.storage import transitions
from fitting.storage.interarrival import KNOTS, LAWS, GapLaws, fit_interarrivals
from fitting.storage.passages import MOST_KEPT, PassageRecorder, Passages, RecordedRequests
from fitting.storage.survey import BLOCK, KINDS, Diagram, SizeClasses, Survey
from fitting.storage.transitions import TransitionCounts
from measurements.table.units import size_text
from measurements.traces.requests import OPERATIONS
from ppw.errors import CaveatWarning, PpwError
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.storage import fitted_devices as fd, generate, trace_source as ts
from ppw.storage.trace_source import Batches

KIND = "trace_model"
# Versions 1 to 3 had laws of runs, reuse and bursts in place of passages.
_VERSION = 4
# A plot of more states than these is too fine for a page.
_MOST_STATES = 64
# Digits kept: means set the rate; of laws and shares a trace tells less.
_DIGITS, _LAW_DIGITS = 6, 4
_WHOLE = ("origin", "pair", "op", "sequential", "size_class")
_STATE = ["stream", "device", "level", "from_state"]
_PASSAGES = ("start", "number", "begin_s", "window_s", "tick_s", "reuse")
_STATES = ("state_origin", "state", "occupancy", "lowest", "highest", "departures", "arrivals")
# A trace of so many requests is kept in memory (a third of a gigabyte) and not read again.
_MOST_KEPT = 10_000_000
# A trace of fewer requests tells little of single transitions.
_FEW = 1000
# Levels whose IOPS differ by less are alike.
STEADY = 0.02
# Parts of the second half of a trace, whose differences say how sure a likelihood is; and bytes of
# a request in a trace (a vscsi record): a model of more has no use.
_HELD_OUT_PARTS, _BYTES_OF_REQUEST = 8, 32
# Requests generated to find the IOPS of a level, or of a time scale.
MOST_SIMULATED = 200_000


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
    counts : fitting.storage.TransitionCounts
        Transitions counted.
    laws : fitting.storage.interarrival.GapLaws
        Inter-arrival law of every transition.
    passages : fitting.storage.passages.Passages
        Requests in the order of the trace: who requests what, when, and after which others.
    names : dict of str to tuple of str
        Names of streams and devices.
    caveats : tuple of str
    input_digest : str
    """

    survey: Survey
    classes: SizeClasses
    counts: TransitionCounts
    laws: GapLaws
    passages: Passages
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
        """Share of the requests that read, the first ones of streams too."""
        reads = self.counts.state_origin % KINDS < KINDS // 2
        return float(self.counts.occupancy[reads].sum() / self.counts.occupancy.sum())

    def random_share(self) -> float:
        """Share of the requests that do not go on where the stream's last one ended."""
        on = self.counts.count[self.counts.sequential == 1].sum()
        return float(1 - on / self.counts.occupancy.sum())

    def _share(self, chosen: Any) -> float:
        """Share of the transitions that a mask has."""
        return float(self.counts.count[chosen].sum() / self.counts.count.sum())

    def to_frame(self) -> pd.DataFrame:
        """Transitions, one a row.

        ``probability`` is conditional on the state that is left, its level and the kind of the
        request before; ``state_probability`` on the state that is left alone, at whatever level,
        so its sums over all else are P(next state | state) as published; ``joint`` is the share of
        all transitions. A kind is an operation and a size.
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
        table["state_probability"] = table["count"] / self._departures(table)
        table["joint"] = table["count"] / table["count"].sum()
        return table

    def _departures(self, table: pd.DataFrame) -> FloatArray:
        """Count the transitions out of each row's state, at whatever level they part."""
        counts, levels, k = self.counts, self.diagram.levels, self.diagram.fan_out
        stream = counts.state_origin // KINDS
        names = {"stream": self.survey.streams[stream], "device": self.survey.devices[stream]}
        left = pd.DataFrame({**names, "left": counts.departures.sum(axis=1)})
        made = pd.concat(
            left.assign(level=level, from_state=counts.state // k ** (levels - level))
            for level in range(1, levels + 1)
        )
        made_in = made.groupby(_STATE)["left"].sum()
        state = pd.MultiIndex.from_frame(table[_STATE])
        return np.asarray(made_in.reindex(state), dtype=np.float64)

    def state_pairs(self) -> pd.DataFrame:
        """Pairs of states, one a row, summed over all else: what the diagram itself counts.

        ``probability`` is the share of the requests made in ``from_state``, at its level, that
        the pair has; ``joint`` its share of all transitions.
        """
        pairs = self.to_frame().groupby([*_STATE, "to_state"])["count"].sum().reset_index()
        pairs["probability"] = pairs["count"] / self._departures(pairs)
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
            f"{survey.requests} requests in {tx.shown(survey.last_s - survey.first_s, 's')}, "
            f"{tx.shown(self.rate)} per second; {len(survey.streams)} streams",
            f"{diagram.levels} levels of {diagram.fan_out} states over "
            f"{tx.shown(diagram.blocks * BLOCK, 'B')}: {len(np.unique(self.counts.pair))} of "
            f"{diagram.transitions} pairs of states occur",
            f"reads {self.read_share():.1%}, random {self.random_share():.1%}",
            "",
            tx.text_table(["size", "share"], sizes),
            "",
            tx.text_table(["inter-arrival law", "transitions", "requests"], laws),
        ]
        return tx.summary_text(parts, self.caveats)

    def coarser(self) -> TraceModel:
        """The same trace with one level less; the laws of merged gaps need their sums.

        Raises
        ------
        PpwError
            Of a model of one level, or one read back from JSON, which has no sums.
        """
        if self.diagram.levels < 2 or np.isnan(self.counts.sums).any():
            raise PpwError(
                "only a model that was just fitted can be made coarser, down to one level"
            )
        counts = self.counts.coarser()
        laws = fit_interarrivals(counts.sums, counts.histogram, self.survey.tick_s)
        passages = self.passages.coarser(self.diagram.fan_out)
        return replace(self, counts=counts, laws=laws, passages=passages)

    def to_json(self) -> str:
        """JSON document on one line; numbers that are not whole with six digits, laws with four."""
        document = rs.write_document(KIND, self.input_digest, _body(self), _VERSION)
        return re.sub(r"\n *", "", document)

    @classmethod
    @rs.reads_document
    def from_json(cls, text: str) -> TraceModel:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = rs.read_document(text, KIND, _VERSION, remedy="fit the trace again")
        return cls(**_parts(document), input_digest=document["input_digest"])

    def plot(self, ax: Axes | None = None, *, conditional: bool = False) -> Axes:
        """Draw shares of the transitions between the states of the deepest level that fits.

        With ``conditional`` they are of those out of each state: P(next state | state).
        """
        ax, counts, k = axes.new_axes(ax), self.counts, self.diagram.fan_out
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
        whole = shares.sum(axis=1, keepdims=True) if conditional else shares.sum()
        logs = np.log10(shares / np.maximum(whole, 1e-300) + 1e-6)
        ax.imshow(logs, origin="lower", cmap="Blues", aspect="auto")
        ax.set(xlabel=f"to state ({states} of level {level})", ylabel="from state")
        return ax


def fit_trace(
    trace: Batches | str | PathLike[str],
    *,
    levels: int = 4,
    fan_out: int = 4,
    space_bytes: float | None = None,
    window_s: float = 1800.0,
    laws: str = "likelihood",
    reuse: bool = True,
) -> TraceModel:
    """Fit a hierarchical state diagram to a block trace.

    The trace is read in bounded memory: once up to ten million requests, else twice.

    Parameters
    ----------
    trace : Trace or path
        What `measurements.traces.read_trace` gives or reads. A stream is a pair of ``stream`` and
        ``device``. Flushes have no address and are left out.
    levels : int
        Levels of the diagram, from 1; `ppw.choose_level` helps to choose.
    fan_out : int
        States that a state is divided in; published: 4.
    space_bytes : float, optional
        Provisioned space (B) that the states divide evenly, from address 0. Default: from the
        first to the last block touched.
    window_s : float
        Activity windows (s): their load keeps its place in the day.
    laws : str
        Inter-arrival laws to choose among: ``"likelihood"`` all, ``"published"`` those of the
        publication, or one law for all. Each keeps its mean.
    reuse : bool
        Whether to count how soon addresses are used again.

    Returns
    -------
    TraceModel

    Raises
    ------
    MeasurementError
        Where the trace cannot be read.
    FittingError
        Where it holds too few requests, or any ahead of the one before it.
    PpwError
        Where the space does not hold what was touched.
    """
    source = ts.open_trace(trace)
    found = ts.survey(source, most_kept=_MOST_KEPT)
    known = found.survey
    diagram = diagram_of(known, levels, fan_out, space_bytes)
    classes = known.size_classes()
    counter = transitions.TransitionCounter(diagram, known, classes)
    window = tx.as_positive("window (s)", window_s)
    recorder = PassageRecorder(diagram, known, window_s=window, reuse=reuse)
    for batch in ts.columns(source) if found.kept is None else found.kept:
        seen = counter.add(*batch[:6])
        recorder.add(seen, batch.time_s, batch.lbn, batch.size_bytes, batch.op)
    return assemble_model(
        found,
        counter.counts(),
        laws,
        passages=recorder.passages(),
        names={k: v for k, v in source.names.items() if k in ("stream", "device")},
        findings=source.findings,
    )


def assemble_model(
    found: ts.TraceSurvey,
    counts: TransitionCounts,
    laws: str,
    *,
    findings: tuple[str, ...] = (),
    **parts: Any,
) -> TraceModel:
    """Build a model of what was counted, and warn of its caveats; ``parts`` are other fields."""
    if not len(counts.pair):
        raise PpwError(
            "no stream of the trace has two requests, so no model can be fitted: give a longer "
            "trace"
        )
    known, single = found.survey, int((found.survey.stream_counts < 2).sum())
    few = (
        f"{known.requests} requests are few: rates and shares of single transitions are not "
        "reliable"
    )
    # What could mislead, and whether it applies; the findings of the trace come first.
    texts = {
        f"{found.flushes} flushes have no address and are left out": found.flushes,
        few: known.requests < _FEW,
        f"{single} streams have a single request, so they show no transition": single,
    }
    remarks = (*findings, *(text for text, applies in texts.items() if applies))
    rs.warn_caveats(remarks)
    return TraceModel(
        survey=known,
        classes=known.size_classes(),
        counts=counts,
        laws=fit_interarrivals(counts.sums, counts.histogram, known.tick_s, laws),
        caveats=remarks,
        input_digest=found.digest,
        **parts,
    )


def diagram_of(survey: Survey, levels: int, fan_out: int, space_bytes: float | None) -> Diagram:
    """Make the diagram over the provisioned space (B), by default over what was touched."""
    if space_bytes is None:
        return Diagram.over(survey.low_lbn, survey.high_lbn, levels, fan_out)
    blocks = int(tx.as_positive("space (bytes)", space_bytes) // 512)
    if blocks < survey.high_lbn:
        raise PpwError(
            f"a space of {space_bytes:g} bytes ends before block {survey.high_lbn - 1}, which the "
            "trace accesses: give the provisioned size with --space, or leave --space out"
        )
    return Diagram.over(0, blocks, levels, fan_out)


def _body(model: TraceModel) -> dict[str, Any]:
    """All of a model but its head, as the body of a JSON document."""
    counts, laws, passages = model.counts, model.laws, model.passages
    requests = passages.requests._asdict()
    # The published probabilities are for readers: a model is read back from its counts.
    pairs = model.state_pairs()
    return {
        "survey": asdict(model.survey),
        "state_pairs": {
            name: pairs[name].to_numpy() if pairs[name].dtype.kind == "i" else _round(pairs[name])
            for name in (*_STATE, "to_state", "probability")
        },
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
        "passages": {
            **{name: getattr(passages, name) for name in _PASSAGES},
            **{name: _pack(column) for name, column in requests.items()},
        },
        "names": model.names,
        "caveats": list(model.caveats),
    }


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a document into the arguments of a `TraceModel` but its digest."""
    steps, states = document["transitions"], document["states"]
    laws = GapLaws(
        np.array(steps["gap_law"], np.int8),
        _floats(steps["gap_mean_s"]),
        _floats(steps["gap_shape"]),
        _floats(document["gap_quantiles"]).reshape(-1, len(KNOTS)),
    )
    _check_lengths("transitions", steps)
    _check_lengths("states", states)
    count = _ints(steps["count"])
    # A document has the means, not the sums that they came from: it cannot be made coarser.
    sums = np.full((len(count), transitions.SUMS), np.nan)
    sums[:, transitions.GAPS], sums[:, transitions.SUM] = count, count * laws.mean_s
    counts = TransitionCounts(
        Diagram(**document["diagram"]),
        **{name: _ints(steps[name]) for name in _WHOLE},
        sums=sums,
        histogram=np.zeros((len(count), transitions.HISTOGRAM_CLASSES), np.uint32),
        **{name: _ints(states[name]) for name in _STATES},
    )
    classes = document["size_classes"]
    survey: dict[str, Any] = {
        k: _ints(v) if isinstance(v, list) else v for k, v in document["survey"].items()
    }
    for names in (("streams", "devices", "stream_counts"), ("sizes", "size_counts")):
        _check_lengths("the survey", {name: survey[name] for name in names})
    known = Survey(**survey)
    return {
        "survey": known,
        "classes": SizeClasses(*(tuple(map(_ints, classes[k])) for k in ("sizes", "counts"))),
        "counts": counts,
        "laws": laws,
        "passages": _read_passages(document["passages"], known, counts),
        "names": {k: tuple(v) for k, v in document["names"].items()},
        "caveats": tuple(document["caveats"]),
    }


def _check_lengths(what: str, columns: Mapping[str, Any]) -> None:
    """Raise ValueError for columns of different lengths."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of {what} have {' and '.join(map(str, sorted(lengths)))} rows")


def _read_passages(
    document: Mapping[str, Any], survey: Survey, counts: TransitionCounts
) -> Passages:
    """Read passages; what compiled loops index with must be inside of what is there."""
    requests = RecordedRequests(*(_unpack(document[name]) for name in RecordedRequests._fields))
    _check_lengths("passages", requests._asdict())
    start, number = _ints(document["start"]), _ints(document["number"])
    rows, begin_s = len(requests.gap), _floats(document["begin_s"])
    shortest = np.diff(start, prepend=-1).min(initial=1)
    is_cut = len(start) == len(begin_s) == len(number) + 1 and start[0] == 0 and start[-1] == rows
    in_survey = requests.stream.max(initial=0) < len(survey.streams)
    has_states = bool(np.isin(requests.state, counts.state).all())
    least = min(
        column.min(initial=0)
        for name, column in requests._asdict().items()
        if name not in ("age", "place")
    )
    if not (is_cut and in_survey and has_states) or least < 0 or min(shortest, number.min()) < 1:
        raise ValueError("passages that do not fit the model")
    if not (np.isin(requests.size_bytes, survey.sizes).all() and (np.diff(begin_s) >= 0).all()):
        raise ValueError("passages of other requests")
    rest = document["window_s"], document["tick_s"], bool(document["reuse"])
    return Passages(requests, start, number, begin_s, *rest)


def _round(values: Any, digits: int = _DIGITS) -> Any:
    """Round numbers to so many digits."""
    array = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(array))))
        near = np.round(array * scale) / scale
    return np.where(np.isfinite(near), near, array)


def _pack(column: IntArray) -> str:
    """Pack whole numbers as text: bytes of all numbers by their place, deflated, in base 64."""
    planes = column.astype("<i8").view(np.uint8).reshape(-1, 8).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def _unpack(text: str) -> IntArray:
    """Unpack what `_pack` made; ValueError for anything else."""
    unpacker = zlib.decompressobj()
    try:
        planes = unpacker.decompress(base64.b64decode(text, validate=True), 8 * MOST_KEPT)
    except zlib.error as error:
        raise ValueError(f"packed numbers: {error}") from error
    return (
        np.frombuffer(planes, np.uint8).reshape(8, -1).T.copy().view("<i8")[:, 0].astype(np.int64)
    )


def _ints(values: Any) -> IntArray:
    return np.array(values, dtype=np.int64)


def _floats(values: Any) -> FloatArray:
    return np.array(values, dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelChoice(rs.Result):
    """Levels beside each other; made by `choose_level`.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a level.
    by_iops, by_likelihood : int
        Levels chosen.
    flat_iops : float or None
        IOPS of one level of as many states as the deepest hierarchy has; None if not asked for.
    original_iops, original_bytes_s : float or None
        Requests and bytes of the trace itself that the device completes per second.
    """

    kind: ClassVar[str] = "trace_levels"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            level          | count  | level         | number of levels
            transitions    | count  | transitions   | possible transitions
            occurring      | count  | occurring     | transitions that occur
            iops           | 1      | IOPS          | requests that a device completes per second
            iops_change    | 1 +.1% | change        | change of IOPS from one level less
            bytes_s        | B      | bytes/s       | bytes that a device completes per second
            log_likelihood | 1 .3f  | held-out ln L | log-likelihood (nats per request) of the \
second half of the trace under the first
            behind         | 1 .3f  | behind        | how far it is behind that of the best level \
that is no larger than the trace
            band           | 1 .3f  | band          | standard error of `behind`, by parts of the \
second half
            model_bytes    | B      | model         | size of the model (JSON)
            """,
            "Levels",
            key="levels",
        ),
    )

    table: pd.DataFrame
    by_iops: int
    by_likelihood: int
    flat_iops: float | None
    original_iops: float | None = None
    original_bytes_s: float | None = None

    def verdict(self) -> list[str]:
        """Say which level each rule chooses, and what the original and one flat level reach."""
        said = [
            f"level {self.by_iops}: the first whose IOPS differ by less than {STEADY:.0%} from "
            "those of one level less",
            f"level {self.by_likelihood}: the smallest level whose forecast of the second half of "
            "the trace is within the band of the best",
        ]
        last = int(self.table["level"].iloc[-1])
        if self.by_likelihood == last:
            said.append(f"level {last} is the highest level tried: more levels may be better")
        iops = self.table["iops"].iloc[-1]
        if self.original_iops is not None:
            moved = f"{tx.shown(self.original_bytes_s, 'B')}/s"
            said.append(
                f"original: {tx.shown(self.original_iops)} IOPS, {moved}; the model of level "
                f"{last}: {iops / self.original_iops - 1:+.1%} IOPS"
            )
        if self.flat_iops is not None:
            off = self.flat_iops / iops - 1
            said.append(f"one flat level instead: {off:+.1%} IOPS (published: under 5 %)")
        return said

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        return [*self.printed_tables()[0].lines(), "", *self.verdict()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw IOPS and held-out likelihood by level."""
        ax, level = axes.new_axes(ax), self.table["level"]
        ax.plot(level, self.table["iops"], "o-", color=axes.CURVE, label="IOPS")
        ax.set(xlabel="levels", ylabel="IOPS (1/s)")
        other = ax.twinx()
        other.plot(level, self.table["log_likelihood"], "s--", color=axes.PROJECTED)
        other.set_ylabel("held-out log-likelihood (nats a request)", color=axes.PROJECTED)
        if self.original_iops is not None:
            ax.axhline(self.original_iops, color=axes.MEASURED, lw=0.8, label="original")
        return ax


def choose_level(
    trace: Batches | str,
    *,
    levels: int = 6,
    device: str | Callable[[pa.Table], float] = "disk",
    flat: bool = False,
    seed: int = 0,
    **options: Any,
) -> LevelChoice:
    """Compare diagrams of 1, 2, … levels of one trace.

    Parameters
    ----------
    trace : Trace or path
        As `ppw.fit_trace` takes it; read three times at most.
    levels : int
        Largest number of levels, from 2.
    device : str or callable
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`);
        or what gives the IOPS completed of a table of requests, as a replay does.
    flat : bool
        Whether to fit one level of as many states too.
    seed : int
        Random seed of the requests generated.
    **options
        Of `ppw.fit_trace`: ``space_bytes``, ``window_s``, ``laws``, ``reuse``.

    Returns
    -------
    LevelChoice

    Raises
    ------
    PpwError
        For fewer than two levels.
    """
    if levels < 2:
        raise PpwError(f"levels {levels}: give 2 or more, so that ppw can choose")
    source = ts.open_trace(trace)
    model = deepest = fit_trace(source, levels=levels, **options)
    remarks: list[str] = []
    if isinstance(device, str):
        drive = fd.parse_device(device).reaching(model.survey.high_lbn)
        device, remarks = partial(fd.completed_iops, device=drive.model), [drive.caveat]
    count = min(MOST_SIMULATED, model.survey.requests)

    def complete(requests: pa.Table) -> tuple[float, float]:
        iops = device(requests)
        return iops, iops * float(np.mean(requests["size_bytes"]))

    def generate_and_complete(model: TraceModel) -> tuple[float, float]:
        return complete(generate.generate_trace(model, count=count, seed=seed).to_table())

    original = complete(ts.to_table(source, count))
    first, held_out = _count_halves(source, model)
    rows, likelihoods = [], []
    # From the deepest level up: a coarser diagram sums the counts of the finer one.
    for level in range(levels, 0, -1):
        occurring, size = len(np.unique(model.counts.pair)), len(model.to_json())
        iops, bytes_s = generate_and_complete(model)
        rows.append((level, model.diagram.transitions, occurring, iops, bytes_s, size))
        likelihoods.append([transitions.log_likelihood(first, part) for part in held_out])
        if level > 1:
            model, first = model.coarser(), first.coarser()
            held_out = [part.coarser() for part in held_out]
    names = ["level", "transitions", "occurring", "iops", "bytes_s", "model_bytes"]
    table = pd.DataFrame(rows[::-1], columns=names, dtype=np.float64)
    table.insert(4, "iops_change", table["iops"].pct_change())
    small = table["model_bytes"] <= _BYTES_OF_REQUEST * model.survey.requests
    small[0] = True
    compared = _compare_likelihoods(np.array(likelihoods[::-1]), small.to_numpy())
    for name, column in compared.items():
        table.insert(len(table.columns) - 1, name, column)
    steady = table["level"][table["iops_change"].abs() < STEADY]
    if steady.empty:
        remarks.insert(
            0, f"IOPS still change from the level before level {levels}: try more levels"
        )
    if not small.all():
        remarks.append(
            f"models of more than {int(small.sum())} levels are larger than the trace at "
            f"{_BYTES_OF_REQUEST} bytes per request: they are not chosen"
        )
    flat_iops = None
    if flat:
        with warnings.catch_warnings():
            # What it would say, the fit of the tree has said.
            warnings.simplefilter("ignore", CaveatWarning)
            states = deepest.diagram.states
            flat_model = fit_trace(source, levels=1, fan_out=states, **options)
            flat_iops = generate_and_complete(flat_model)[0]
    # The fit has warned of its own.
    rs.warn_caveats(remarks)
    return LevelChoice(
        table=table,
        by_iops=int(steady.iloc[0]) if len(steady) else levels,
        by_likelihood=int(table["level"][table["behind"] <= table["band"]].iloc[0]),
        flat_iops=flat_iops,
        original_iops=original[0],
        original_bytes_s=original[1],
        caveats=(*deepest.caveats, *remarks),
        input_digest=deepest.input_digest,
    )


def _compare_likelihoods(by_part: FloatArray, small: BoolArray) -> dict[str, FloatArray]:
    """Tabulate the mean likelihood of each level (row), and how far it is behind that of the best.

    The best is one of the ``small``. ``band`` is the standard error of differences by part.
    """
    mean = by_part.mean(axis=1)
    behind = by_part[np.where(small, mean, -np.inf).argmax()] - by_part
    band = behind.std(axis=1, ddof=1) / np.sqrt(by_part.shape[1])
    return {"log_likelihood": mean, "behind": behind.mean(axis=1), "band": band}


def _count_halves(
    source: Batches, model: TraceModel
) -> tuple[TransitionCounts, list[TransitionCounts]]:
    """Transitions of the first half of the requests, and of each part of the second."""
    parts, requests = (model.diagram, model.survey, model.classes), model.survey.requests
    number = max(2, min(_HELD_OUT_PARTS, requests // 4))
    ends = requests // 2 + (requests - requests // 2) * np.arange(number + 1) // number
    counters = [transitions.TransitionCounter(*parts) for _ in ends]
    done = 0
    for batch in ts.columns(source):
        for counter, low, high in zip(counters, [0, *ends[:-1]], ends, strict=True):
            rows = slice(max(0, low - done), max(0, high - done))
            counter.add(*batch.pick(rows)[:6])
        done += len(batch.time_s)
    first, *held_out = (counter.counts() for counter in counters)
    return first, held_out
