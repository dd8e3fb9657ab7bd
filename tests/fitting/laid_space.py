"""Spaces laid out by hand, and what a walk remembers of them."""

from __future__ import annotations

import numpy as np

from fitting.marks import new_marks, note_begin, touched_row
from fitting.memory import Law, Memory
from fitting.places import Pending, Stretches
from fitting.recency import new_recency
from fitting.request_kinds import KINDS
from fitting.reuse import age_bounds
from fitting.walk_draws import Batches

PIECE, STATE = 8, 256


def given(named, /, **fields):
    """Named tuple of arrays that are given, or of a nought of the kind that is annotated."""
    floats = {n for n, annotation in named.__annotations__.items() if "Float" in str(annotation)}
    nothing = {n: np.zeros(1, dtype=float if n in floats else np.int64) for n in named._fields}
    return named(**nothing | {name: laid(value) for name, value in fields.items()})


def laid(value):
    """Array of a list; anything else as it is."""
    return np.array(value) if isinstance(value, list) else value


def space(**changes):
    """States of 256 blocks from block 1000 on: 0, 2 and 3 of stream 0, 1 and 2 of stream 1.

    All are of kind 0, but for state 3, which is of kind 1; runs start at 4 modulo 8 in them.
    """
    first = 1000 + STATE * np.array([0, 2, 3, 1, 2])
    starts = [0, 2, *[3] * (KINDS - 1), *[5] * KINDS]
    return Stretches(
        **{
            "first_lbn": 1000,
            "end_lbn": 1000 + 4 * STATE,
            "state_blocks": STATE,
            "levels": 1,
            "alignment": np.full(5, 8),
            "offset": np.full(5, 4),
            "origin_start": np.array(starts),
            "state": np.array([0, 2, 3, 1, 2]),
            "device": np.array([0, 1]),
            "place": np.arange(5),
            "stop": np.arange(5),
            "low": first + 4,
            "high": first + STATE - 4,
        }
        | changes
    )


def pending(streams=2, **changes):
    """Streams that have made nothing yet."""
    whole = {name: np.full(streams, -1, dtype=np.int64) for name in Pending._fields}
    times = {name: np.zeros(streams) for name in ("due", "gap", "resumes")}
    return Pending(**whole | times | {name: laid(value) for name, value in changes.items()})


def memory(states=5, devices=2, *, start=None, chance=(1.0,), class_=(0,), **changes):
    """Memory of two devices whose law has, in every state, the same class unless it is given."""
    law = Law(
        np.minimum(np.arange(states + 1), 1) if start is None else np.array(start),
        np.array(chance, dtype=float),
        np.array(class_, dtype=np.int16),
    )
    made = Memory(
        new_marks(PIECE, devices, 256),
        new_recency(np.full(states, 40.0), stops=False),
        new_recency(np.full(states, 40.0), stops=True),
        np.zeros(devices, dtype=np.int64),
        np.zeros((devices, 2), dtype=np.int64),
        np.zeros(devices),
        law,
        Batches(*(np.full(states, of) for of in (0, 1, 0, 7))),
        age_bounds(),
    )
    return made._replace(**{name: laid(value) for name, value in changes.items()})


def touch(m, device, lbn, clock, *, begins=True):
    """Touch the piece of a block."""
    marks, piece = m.marks, lbn >> m.marks.bits
    row = touched_row(marks, device, piece)
    marks.clock[row, piece % 8] = clock
    if begins:
        note_begin(marks, row, lbn)


def clock_of(m, device, lbn):
    """Clock of a piece."""
    piece = lbn >> m.marks.bits
    return int(m.marks.clock[touched_row(m.marks, device, piece), piece % 8])


def entries(lists, state):
    """What a list holds."""
    first = lists.start[state]
    return [tuple(entry) for entry in lists.entry[first : first + lists.used[state]].tolist()]
