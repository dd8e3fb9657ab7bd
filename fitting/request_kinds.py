"""Kinds of requests: reads and others, each in three sizes.

What a request does depends on the one before it: large reads go on with large reads. The chain of a
state diagram therefore remembers, beside its state, the kind of the last request; published
counts by pair of states are sums over kinds.
"""

from __future__ import annotations

from fitting.compiled import compiled

KINDS = 6
# Pieces that a request touches on average, at most, and 512-byte blocks of the least piece.
_MOST_PIECES = 16
_LEAST_PIECE = 8


def piece_blocks(mean_size_bytes: float) -> int:
    """Length in 512-byte blocks of the pieces that sizes are counted in: a power of two."""
    piece = _LEAST_PIECE
    while mean_size_bytes / (512 * piece) > _MOST_PIECES:
        piece *= 2
    return piece


@compiled
def kind(op: int, size_bytes: int, piece: int) -> int:
    """Kind of a request: of under two, under eight, or more pieces."""
    pieces = size_bytes // (512 * piece)
    return 3 * min(op, 1) + (0 if pieces < 2 else 1 if pieces < 8 else 2)
