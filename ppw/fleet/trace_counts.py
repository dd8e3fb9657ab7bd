"""Transitions counted by an engine, as `fitting.storage.transitions` does, from lags and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fitting.storage.diagram import KINDS, kind
from fitting.storage.reuse_distance import AGAIN, AGE_CLASSES, FRESH, MET, PIECES
from fitting.storage.reuse_distance import COLUMNS as REUSE_COLUMNS
from fitting.storage.run_lengths import CLASSES, Runs, class_lows
from fitting.storage.run_lengths import COLUMNS as RUN_COLUMNS
from fitting.storage.survey import BLOCK
from fitting.storage.transitions import (
    HISTOGRAM_CLASSES,
    LARGEST,
    LOWEST_OCTAVE,
    OPERATIONS,
    PER_OCTAVE,
    SMALLEST,
    SUMS,
    TransitionCounts,
)
from ppw.fleet.run_files import registered
from ppw.fleet.trace_survey import PLACE, held, requests_of

if TYPE_CHECKING:
    import ibis

    from fitting.storage.diagram import Diagram
    from fitting.storage.survey import SizeClasses, Survey
    from ppw.fleet.trace_survey import EngineTrace

    IntArray = np.ndarray[Any, np.dtype[np.int64]]


# As the counter in memory has it: gaps of a transition are in classes from here on, of so many.
_HISTOGRAM_FROM = 32
_MOST_HISTOGRAMS = 65_536
_PER_NATURAL = float(1 / np.log(2))
# Logarithms of engines differ in their last digits: gaps so near to a bound of a class are put in
# their class here.
_NEAR_BOUND = 1e-9
_SUMS = ("gaps", "total", "squares", "logs", "log_squares", "g_logs", "smallest", "largest")


def located(
    source: EngineTrace, survey: Survey, classes: SizeClasses, diagram: Diagram
) -> ibis.Table:
    """Every request beside the one before it in its stream.

    Columns: ``time_s``, its `PLACE`, ``s`` and ``g`` (numbers of the stream and of its device),
    ``clock`` (which of the device's requests it is, from 1), ``lbn``, ``end`` (block after it),
    ``touched`` (state with origin), ``op``, ``size_class``, ``run`` (which of the stream's runs of
    requests that go on it is in, from 1); and of the one before, null for the first: ``before_s``,
    ``before_touched``, ``goes_on`` (whether it starts where that one ended).
    """
    import ibis

    table = _numbered(requests_of(source), survey)
    sizes = registered(table.get_backend(), _of_sizes(survey, classes))
    table = table.join(sizes, "size_bytes")
    state = (table.lbn - diagram.first_lbn) // diagram.state_blocks
    state = ibis.greatest(ibis.least(state, diagram.states - 1), 0)
    origin = table.s * KINDS + table.size_kind + (table["op"] > 0).ifelse(3, 0)
    table = table.select(
        *("time_s", *PLACE, "s", "g", "lbn", "op", "size_class"),
        end=table.lbn + table.size_bytes // BLOCK,
        touched=origin * diagram.states + state,
    )
    order = {"order_by": ["time_s", *PLACE]}
    stream = ibis.window(group_by="s", **order)
    table = table.mutate(
        clock=ibis.row_number().over(ibis.window(group_by="g", **order)) + 1,
        before_s=table.time_s.lag().over(stream),
        before_touched=table.touched.lag().over(stream),
        goes_on=(table.lbn == table.end.lag().over(stream)).fill_null(False),
    )
    so_far = ibis.window(group_by="s", following=0, **order)
    return table.mutate(run=(~table.goes_on).cast("int64").sum().over(so_far))


def counts_of(
    requests: ibis.Table, survey: Survey, classes: SizeClasses, diagram: Diagram
) -> TransitionCounts:
    """Count the transitions of located requests."""
    steps = _transitions(requests, survey, len(classes), diagram)
    key, sums, histogram = _tally(steps, survey.tick_s / 2)
    rest, size_class = np.divmod(key, len(classes))
    rest, sequential = np.divmod(rest, 2)
    rest, op = np.divmod(rest, OPERATIONS)
    origin, pair = np.divmod(rest, diagram.pair_codes)
    touched = _touched(requests)
    state_origin, state = np.divmod(touched["touched"], diagram.states)
    leaving, coming = (
        _by_level(steps, column, touched["touched"], diagram.levels)
        for column in ("before_touched", "touched")
    )
    return TransitionCounts(
        diagram,
        *(origin, pair, op, sequential, size_class, sums, histogram, state_origin, state),
        occupancy=touched["occupancy"],
        lowest=touched["lowest"],
        highest=touched["highest"],
        departures=leaving,
        arrivals=coming,
    )


def _numbered(table: ibis.Table, survey: Survey) -> ibis.Table:
    """Number the streams and devices as the survey has them."""
    import ibis

    if len(survey.streams) == 1:
        return table.mutate(s=ibis.literal(0, "int64"), g=ibis.literal(0, "int64"))
    streams = pa.table(
        {
            "stream": survey.streams.astype(np.int32),
            "device": survey.devices.astype(np.int32),
            "s": np.arange(len(survey.streams)),
            "g": survey.device_of_stream,
        }
    )
    return table.join(registered(table.get_backend(), streams), ["stream", "device"])


def _of_sizes(survey: Survey, classes: SizeClasses) -> pa.Table:
    """Class and kind of every size."""
    size = np.concatenate(classes.sizes)
    numbers = np.repeat(np.arange(len(classes)), [len(s) for s in classes.sizes])
    kinds = np.array([kind(0, int(s), survey.piece) for s in size])
    return pa.table({"size_bytes": size, "size_class": numbers, "size_kind": kinds})


def _transitions(
    requests: ibis.Table, survey: Survey, classes: int, diagram: Diagram
) -> ibis.Table:
    """Key, level and gap of every transition."""
    import ibis

    steps = requests.filter(requests.before_s.notnull())
    before_origin = steps.before_touched // diagram.states
    pair, level = _pair(
        steps.before_touched % diagram.states, steps.touched % diagram.states, diagram
    )
    code = (before_origin * diagram.pair_codes + pair) * OPERATIONS + steps["op"].cast("int64")
    gap = steps.time_s - steps.before_s
    return steps.select(
        *("time_s", *PLACE, "touched", "before_touched"),
        key=(2 * code + steps.goes_on.cast("int64")) * classes + steps.size_class,
        level=level,
        gap=gap,
        # A gap of 0 has no logarithm: below the clock's resolution it counts as half a tick.
        log=ibis.greatest(gap, survey.tick_s / 2).ln(),
    )


def _pair(before: Any, after: Any, diagram: Diagram) -> tuple[Any, Any]:
    """Code and level of a transition, as `fitting.storage.diagram.pair_code` has them."""
    import ibis

    k, levels = diagram.fan_out, diagram.levels
    codes, numbers = [], []
    for level in range(levels, 0, -1):
        a, b = (state // k ** (levels - level) for state in (before, after))
        first = k * k * (k ** (level - 1) - 1) // (k - 1)
        met = (a // k == b // k) if level > 1 else ibis.literal(True)
        codes.append((met, first + (a // k) * (k * k) + (a % k) * k + b % k))
        numbers.append((met, ibis.literal(level, "int64")))
    return ibis.cases(*codes), ibis.cases(*numbers)


def _tally(steps: ibis.Table, least_gap: float) -> tuple[IntArray, Any, Any]:
    """Sums and histograms of the gaps of each transition, in the order of their keys."""
    import ibis

    order = ibis.window(group_by="key", order_by=["time_s", *PLACE])
    ranked = steps.mutate(
        rank=ibis.row_number().over(order),
        octave=(steps.log * _PER_NATURAL - LOWEST_OCTAVE) * PER_OCTAVE,
    )
    classed = ranked.rank >= _HISTOGRAM_FROM - 1
    near = classed & ((ranked.octave - ranked.octave.round()).abs() < _NEAR_BOUND)
    found = (
        ranked.group_by(
            "key",
            gap_class=classed.ifelse(ranked.octave.floor(), -1.0).clip(-1, HISTOGRAM_CLASSES - 1),
            bound=near.ifelse(ranked.log, ibis.null("float64")),
            classed=classed,
        )
        .agg(
            gaps=ranked.count(),
            total=ranked.gap.sum(),
            squares=(ranked.gap * ranked.gap).sum(),
            logs=ranked.log.sum(),
            log_squares=(ranked.log * ranked.log).sum(),
            g_logs=(ranked.gap * ranked.log).sum(),
            smallest=ranked.gap.min(),
            largest=ranked.gap.max(),
            reached_s=ranked.time_s.min(where=classed),
        )
        .to_pyarrow()
    )
    return _summed({name: found[name].to_numpy() for name in found.column_names}, least_gap)


def _summed(found: dict[str, Any], least_gap: float) -> tuple[IntArray, Any, Any]:
    """Put the parts of each transition together."""
    key, row = np.unique(found["key"], return_inverse=True)
    sums = np.zeros((len(key), SUMS))
    sums[:, SMALLEST] = np.inf
    for column, name in enumerate(_SUMS):
        add = {SMALLEST: np.minimum, LARGEST: np.maximum}.get(column, np.add)
        add.at(sums[:, column], row, found[name])
    classed = found["classed"]
    class_ = found["gap_class"].copy()
    bound = np.flatnonzero(~np.isnan(found["bound"]))
    # The largest gap of a group whose logarithm is the bound is, to a digit, all of them.
    at_bound = np.log(np.maximum(found["largest"][bound], least_gap)) * _PER_NATURAL
    class_[bound] = np.floor((at_bound - LOWEST_OCTAVE) * PER_OCTAVE)
    histogram = np.zeros((len(key), HISTOGRAM_CLASSES), dtype=np.uint32)
    place = np.clip(class_[classed], 0, HISTOGRAM_CLASSES - 1).astype(np.int64)
    np.add.at(histogram, (row[classed], place), found["gaps"][classed].astype(np.uint32))
    reached = np.full(len(key), np.inf)
    np.minimum.at(reached, row[classed], found["reached_s"][classed])
    histogram[np.argsort(reached, kind="stable")[_MOST_HISTOGRAMS:]] = 0
    return key, sums, histogram


def _touched(requests: ibis.Table) -> dict[str, IntArray]:
    """Touched states in order: requests, first and last block at which one started."""
    found = (
        requests.group_by("touched")
        .agg(
            occupancy=requests.count(),
            lowest=requests.lbn.min(),
            highest=requests.lbn.max(),
        )
        .order_by("touched")
        .to_pyarrow()
    )
    return {name: found[name].to_numpy() for name in found.column_names}


def _by_level(steps: ibis.Table, column: str, touched: IntArray, levels: int) -> IntArray:
    """Transitions out of, or into, the touched states by the level at which they part."""
    found = steps.group_by(state=steps[column], level=steps.level).agg(n=steps.count())
    counted = found.to_pyarrow()
    table = np.zeros((len(touched), levels), dtype=np.int64)
    row = np.searchsorted(touched, counted["state"].to_numpy())
    table[row, counted["level"].to_numpy() - 1] = counted["n"].to_numpy()
    return table


# Runs of sequential requests, counted by an engine: what `fitting.storage.run_lengths` counts.


def runs_of(
    requests: ibis.Table, counts: TransitionCounts, again: ibis.Table | None = None
) -> Runs:
    """Count runs by the touched state they start in, in the order of the counts.

    Parameters
    ----------
    requests : ibis.Table
        As `ppw.fleet.trace_counts.located` gives them.
    counts : TransitionCounts
    again : ibis.Table, optional
        By stream ``s`` and ``run``, whether it starts where its device was touched before.
    """
    import ibis

    runs = requests.group_by("s", "run").agg(length=requests.count())
    starts = requests.filter(~requests.goes_on).select("s", "run", "touched", "lbn")
    runs = runs.join(starts, ["s", "run"])
    if again is None:
        runs = runs.mutate(again=ibis.literal(False))
    else:
        runs = runs.join(again, ["s", "run"])
    found = (
        runs.group_by("touched", "length", "again")
        .agg(n=runs.count(), lowest=runs.lbn.min(), highest=runs.lbn.max())
        .to_pyarrow()
    )
    return _counted(counts, {name: found[name].to_numpy() for name in found.column_names})


def _counted(counts: TransitionCounts, found: dict[str, IntArray]) -> Runs:
    """Put runs in their classes."""
    touched = counts.state_origin * counts.diagram.states + counts.state
    row, number = np.searchsorted(touched, found["touched"]), found["n"]
    lows = class_lows()
    # Classes of short runs that hold no length have the shortest length of the next one.
    held = np.append(lows[1:] > lows[:-1], True)
    class_ = np.flatnonzero(held)[np.searchsorted(lows[held], found["length"], side="right") - 1]
    table = np.zeros((len(touched), RUN_COLUMNS), dtype=np.int64)
    column = class_ + 2 * CLASSES * found["again"]
    np.add.at(table, (row, column), number)
    np.add.at(table, (row, column + CLASSES), number * (found["length"] - lows[class_]))
    lowest = np.full(len(touched), np.iinfo(np.int64).max)
    highest = np.full(len(touched), -1)
    np.minimum.at(lowest, row, found["lowest"])
    np.maximum.at(highest, row, found["highest"])
    return Runs(table, np.where(highest < 0, -1, lowest), highest)


# How soon addresses are used again, as `fitting.storage.reuse_distance` does, by an engine.
#
# A request that does not go on where the last one of its stream ended comes back to a piece that
# its device touched before, or goes on where an earlier request stopped and nothing has been since,
# or is fresh. Both are lags: over what touched a piece, and over what happened at a block. Of runs
# that began fresh, all further pieces are counted, and those that were touched before.


_BEGINS, _ENDS = 0, 1


def reuse_of(requests: ibis.Table, survey: Survey, counts: TransitionCounts) -> tuple[Any, Runs]:
    """Count reuse by touched state, in the order of the counts, and its columns.

    The runs are counted with it, which tells where they start.

    Parameters
    ----------
    requests : ibis.Table
        As `ppw.fleet.trace_counts.located` gives them.
    survey : Survey
    counts : TransitionCounts
    """
    touched = counts.state_origin * counts.diagram.states + counts.state
    table = np.zeros((len(touched), REUSE_COLUMNS), dtype=np.int64)
    pieces = _pieces(requests, survey.piece)
    with held(_starts(requests, pieces), requests.get_backend()) as starts:
        classes = starts.group_by("touched", "reuse_class").agg(n=starts.count()).to_pyarrow()
        further = _further(pieces, starts).to_pyarrow()
        again = starts.reuse_class.between(AGAIN, FRESH - 1)
        runs = runs_of(requests, counts, starts.select("s", "run", again=again))
    row = np.searchsorted(touched, classes["touched"].to_numpy())
    table[row, classes["reuse_class"].to_numpy()] = classes["n"].to_numpy()
    row = np.searchsorted(touched, further["touched"].to_numpy())
    table[row, PIECES], table[row, MET] = further["n"].to_numpy(), further["met"].to_numpy()
    return table, runs


def _starts(requests: ibis.Table, pieces: ibis.Table) -> ibis.Table:
    """Requests that do not go on at once: stream, run that they begin, state, class of reuse."""
    import ibis

    firsts = pieces.filter(~pieces.goes_on, pieces.piece == pieces.first_piece)
    both = _since_end(requests).join(firsts.select("g", "clock", "since_touched"), ["g", "clock"])
    # Where the request that stopped here was the last to touch the piece, it is gone on from.
    again = both.since_touched.notnull() & (
        both.since_end.isnull() | (both.since_touched != both.since_end)
    )
    return both.select(
        *("s", "run", "touched"),
        reuse_class=ibis.cases(
            (again, _age_class(both.since_touched) + AGAIN),
            (both.since_end.notnull(), _age_class(both.since_end)),
            else_=ibis.literal(FRESH, "int64"),
        ),
    )


def _since_end(requests: ibis.Table) -> ibis.Table:
    """Requests that do not go on at once, and how long ago one ended where they start, if last."""
    import ibis

    shared = ("s", "g", "clock", "run", "touched", "goes_on")
    begins = requests.select(*shared, block=requests.lbn, what=ibis.literal(_BEGINS))
    ends = requests.select(*shared, block=requests.end, what=ibis.literal(_ENDS))
    events = begins.union(ends)
    order = ibis.window(group_by=["g", "block"], order_by=["clock", "what"])
    events = events.mutate(
        before=events.what.lag().over(order), since=events.clock - events.clock.lag().over(order)
    )
    chosen = events.filter(events.what == _BEGINS, ~events.goes_on)
    ended = (chosen.before == _ENDS).ifelse(chosen.since, ibis.null("int64"))
    return chosen.select("s", "g", "clock", "run", "touched", since_end=ended)


def _pieces(requests: ibis.Table, piece: int) -> ibis.Table:
    """Pieces that each request touches, and how many requests ago that was done before, if ever."""
    import ibis

    first = requests.lbn // piece
    # The last block of a request without length is the one before its start.
    last = ibis.greatest((requests.end - 1) // piece, first)
    pieces = requests.select(
        *("s", "g", "clock", "run", "touched", "goes_on"),
        first_piece=first,
        aligned=requests.lbn % piece == 0,
        piece=ibis.range(first, last + 1).unnest(),
    )
    order = ibis.window(group_by=["g", "piece"], order_by="clock")
    return pieces.mutate(since_touched=pieces.clock - pieces.clock.lag().over(order))


def _further(pieces: ibis.Table, starts: ibis.Table) -> ibis.Table:
    """Pieces that runs from fresh places went on to, by state, and those touched before."""
    entered = (pieces.piece != pieces.first_piece) | (pieces.goes_on & pieces.aligned)
    fresh = starts.filter(starts.reuse_class == FRESH).select("s", "run")
    later = pieces.filter(entered).semi_join(fresh, ["s", "run"])
    return later.group_by("touched").agg(n=later.count(), met=later.since_touched.count())


def _age_class(age: Any) -> Any:
    """Class of an age, as `fitting.storage.reuse_distance.age_class` has it; null for none."""
    import ibis

    one = ibis.literal(1, "int64")
    # The logarithm may be off by a digit at powers of two.
    near = (age.cast("float64").ln() / float(np.log(2))).floor().cast("int64")
    octave = near - ((one << near) > age).cast("int64") + ((one << (near + 1)) <= age).cast("int64")
    upper = (2 * age >= (ibis.literal(3, "int64") << octave)).cast("int64")
    known = ibis.least(2 * octave + upper, AGE_CLASSES - 1)
    # The least of null and a number is the number.
    return age.isnull().ifelse(ibis.null("int64"), known)
