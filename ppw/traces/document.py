"""A `ppw.traces.model.TraceModel` as the body of a JSON document, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.cascade import Cascade, Windows
from fitting.storage.diagram import Diagram
from fitting.storage.interarrival import KNOTS, GapLaws
from fitting.storage.placement import Halves, Lateness
from fitting.storage.reuse_distance import COLUMNS
from fitting.storage.run_lengths import COLUMNS as RUN_COLUMNS
from fitting.storage.run_lengths import Runs
from fitting.storage.survey import SizeClasses, Survey
from fitting.storage.transitions import GAPS, HISTOGRAM_CLASSES, SUM, SUMS, TransitionCounts
from fitting.storage.windows import LARGE_SHAPE, SMALL_SHAPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppw.traces.model import TraceModel

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
