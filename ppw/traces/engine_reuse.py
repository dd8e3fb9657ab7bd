"""How soon addresses are used again, as `fitting.storage.reuse_distance` does, by an engine.

A request that does not go on where the last one of its stream ended comes back to a piece that its
device touched before, or goes on where an earlier request stopped and nothing has been since, or
is fresh. Both are lags: over what touched a piece, and over what happened at a block. Of runs that
began fresh, all further pieces are counted, and those that were touched before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.reuse_distance import AGAIN, AGE_CLASSES, COLUMNS, FRESH, MET, PIECES
from ppw.traces.engine_requests import held
from ppw.traces.engine_runs import runs_of

if TYPE_CHECKING:
    import ibis

    from fitting.storage.run_lengths import Runs
    from fitting.storage.survey import Survey
    from fitting.storage.transitions import TransitionCounts

_BEGINS, _ENDS = 0, 1


def reuse_of(requests: ibis.Table, survey: Survey, counts: TransitionCounts) -> tuple[Any, Runs]:
    """Count reuse by touched state, in the order of the counts, and its columns.

    The runs are counted with it, which tells where they start.

    Parameters
    ----------
    requests : ibis.Table
        As `ppw.traces.engine_counts.located` gives them.
    survey : Survey
    counts : TransitionCounts
    """
    touched = counts.state_origin * counts.diagram.states + counts.state
    table = np.zeros((len(touched), COLUMNS), dtype=np.int64)
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
