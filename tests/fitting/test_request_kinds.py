"""Kinds of requests and the pieces they are counted in, by hand."""

from __future__ import annotations

import pytest

from fitting.request_kinds import KINDS, kind, piece_blocks

PIECE = 8 * 512


@pytest.mark.parametrize(
    ("pieces", "size"), [(0.5, 0), (1, 0), (1.9, 0), (2, 1), (7.9, 1), (8, 2), (100, 2)]
)
def test_three_sizes_of_reads_and_of_all_others(pieces, size):
    assert kind(0, int(pieces * PIECE), 8) == size
    for op in (1, 2, 3):
        assert kind(op, int(pieces * PIECE), 8) == 3 + size < KINDS


@pytest.mark.parametrize(
    ("mean_kib", "blocks"), [(4, 8), (64, 8), (64.1, 16), (128, 16), (129, 32), (1024, 128)]
)
def test_a_mean_request_has_sixteen_pieces_at_most(mean_kib, blocks):
    assert piece_blocks(mean_kib * 1024) == blocks
