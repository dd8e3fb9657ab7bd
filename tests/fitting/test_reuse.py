"""Ages of reuse against a count by hand and by the definition."""

from __future__ import annotations

import numpy as np
import pytest

from fitting import reuse
from fitting.reuse import (
    AGAIN,
    COLUMNS,
    FRESH,
    MET,
    PIECES,
    ReuseCounter,
    age_bounds,
    age_class,
    reuse_law,
)
from fitting.transition_counter import Seen


def counted(lbn, blocks, sequential):
    n = len(lbn)
    counter = ReuseCounter(np.zeros(1, dtype=np.int64), 8)
    seen = Seen(np.zeros(n, np.int32), np.zeros(n, np.int64), np.array(sequential, dtype=bool))
    counter.add(seen, np.array(lbn, dtype=np.int64), np.array(blocks, dtype=np.int64) * 512)
    return counter.by_state(np.array([0]))[0]


def test_six_requests_by_hand():
    # Pieces of 8 blocks: 0 fresh, 10 fresh, 0 again after 2, on from where the second ended (2
    # ago), which is sequential to none; 10 again after 3; the sequential one is not counted.
    lbn, blocks = [0, 80, 0, 88, 80, 88], [8, 8, 8, 8, 8, 8]
    counts = counted(lbn, blocks, [False, False, False, False, False, True])
    assert counts[FRESH] == 2
    assert counts[AGAIN + age_class(2)] == 1
    assert counts[age_class(2)] == 1
    assert counts[AGAIN + age_class(3)] == 1
    assert counts.sum() == 5


@pytest.mark.parametrize(("lbn", "blocks", "met"), [(8, 9, 1), (12, 8, 0)])
def test_a_request_touches_the_piece_of_its_last_block(lbn, blocks, met):
    # Where the second starts, in the second piece, is not where the first ended.
    counts = counted([0, lbn], [blocks, 8], [False, False])
    assert counts[AGAIN + age_class(1)] == met
    assert counts[FRESH] == 2 - met


def of_devices(lbn, blocks, sequential, stream, devices):
    n = len(lbn)
    counter = ReuseCounter(np.array(devices), 8)
    row, goes_on = np.array(stream), np.array(sequential, dtype=bool)
    seen = Seen(row.astype(np.int32), row.astype(np.int64), goes_on)
    again = counter.add(seen, np.array(lbn), np.array(blocks) * 512)
    assert len(again) == n
    return counter.by_state(np.arange(max(stream) + 1)), again


class TestDevices:
    def test_streams_of_one_device_touch_the_same_pieces(self):
        """Stream 1 comes back to where stream 0 was two requests ago."""
        counts, again = of_devices([0, 800, 0], [8, 8, 8], [0, 0, 0], [0, 0, 1], [0, 0])
        assert counts[1, AGAIN + age_class(2)] == 1
        assert counts[0, FRESH] == 2
        assert again.tolist() == [False, False, True]

    def test_those_of_different_devices_do_not(self):
        counts, again = of_devices([0, 800, 0], [8, 8, 8], [0, 0, 0], [0, 0, 1], [0, 1])
        assert counts[1, FRESH] == 1
        assert not again.any()

    def test_ages_are_in_requests_of_the_device(self):
        """Nine requests of another device pass before stream 0 is back."""
        lbn, stream = [0, *range(80, 800, 80), 0], [0, *[1] * 9, 0]
        counts, _ = of_devices(lbn, [8] * 11, [0] * 11, stream, [0, 1])
        assert counts[0, AGAIN + age_class(1)] == 1


def test_pieces_that_a_run_from_a_fresh_place_goes_on_to_by_hand():
    """Runs of pieces 0 to 3, 10 and 11, 9 to 12; beyond their first that is 3, 1 and 3 pieces.

    The third comes to 10 and 11, which the second touched. A run from a piece that was touched is
    none of them, wherever it goes.
    """
    lbn, blocks = [0, 16, 80, 72, 0], [16, 16, 16, 32, 48]
    counts = counted(lbn, blocks, [False, True, False, False, False])
    assert counts[PIECES] == 3 + 1 + 3
    assert counts[MET] == 2
    assert counts[FRESH] == 3


def test_classes_are_half_octaves():
    bounds = age_bounds()
    for age in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 100, 1000, 10**6]:
        class_ = age_class(age)
        assert bounds[class_] <= age < bounds[class_ + 1]
    assert age_class(2**52) == AGAIN - 1


def test_a_law_leaves_the_rest_to_fresh_places():
    counts = np.zeros((1, COLUMNS), dtype=np.int64)
    counts[0, AGAIN + age_class(4)], counts[0, FRESH] = 30, 70
    law = reuse_law(counts, [10**9])
    assert law[0, FRESH] == 1
    assert law[0, FRESH - 1] == pytest.approx(0.3, abs=1e-6)


def test_an_age_that_few_could_have_is_likelier_for_those():
    counts = np.zeros((1, COLUMNS), dtype=np.int64)
    counts[0, AGAIN + age_class(500)], counts[0, FRESH] = 300, 700
    assert reuse_law(counts, [1000])[0, FRESH - 1] > 0.45


@pytest.mark.parametrize("before", [0, 30])
def test_a_request_longer_than_all_before_it(before):
    # 64 MiB in pieces of 4 KiB, then one of its last pieces.
    lbn = [*range(0, 8 * before, 8), 10**6, 10**6 + 8 * 16_000]
    counts = counted(lbn, [8] * before + [8 * 2**14, 8], [False] * (before + 2))
    # All requests but the first go on where the one before them ended.
    assert counts[age_class(1)] == max(0, before - 1)
    assert counts[FRESH] == min(1, before) + 1
    assert counts[AGAIN + age_class(1)] == 1
    assert counts[PIECES] == 2**14 - 1


def test_where_few_addresses_can_be_followed_the_law_stays(monkeypatch):
    # Once both know the space; ahead of that, more of what is new is followed than later.
    lbn = 8 * np.random.default_rng(6).integers(30_000, size=120_000)
    seen = Seen(np.zeros(60_000, np.int32), np.zeros(60_000, np.int64), np.zeros(60_000, bool))
    shares = []
    for most in (reuse._MOST_TRACKED, 2**13):
        monkeypatch.setattr(reuse, "_MOST_TRACKED", most)
        counter = ReuseCounter(np.zeros(1, dtype=np.int64), 8)
        for part in np.split(lbn, 2):
            before = counter.counts[0].copy()
            counter.add(seen, part, np.full(60_000, 4096))
        found = (counter.counts[0] - before)[AGAIN:FRESH]
        shares.append([found.sum(), *(np.cumsum(found)[[18, 22, 26, 28, 30]] / found.sum())])
    assert shares[1][0] < 0.3 * shares[0][0]
    assert shares[1][1:] == pytest.approx(shares[0][1:], abs=0.03)
