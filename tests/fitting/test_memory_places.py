"""Places that a walk chooses and what it keeps of them: in a space laid out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from known_draws import ahead, begun, giving
from laid_space import STATE, clock_of, entries, memory, pending, space, touch

from fitting.marks import begun_at, new_marks, row_of
from fitting.memory import (
    _ahead,
    _behind,
    choose_address,
    fresh,
    remember,
)
from fitting.places import anywhere
from fitting.random_numbers import uniform
from fitting.recency import put
from fitting.request_kinds import KINDS
from fitting.reuse import AGAIN, FRESH

NONE = {"start": [0] * 6, "chance": (), "class_": ()}


class TestRemember:
    def remembered(self, lbn, size=4096, *, end=-1, fresh_=0, m=None, kind=0):
        """A request of stream 1, of device 0, in touched state 3, at the clock 7."""
        m = m or memory(5)
        m.clock[:] = 7, 100
        p = pending(end=[-9, end], kind=[-9, 0], made=[-9, 5], fresh=[1 - fresh_, fresh_])
        d = space(device=np.array([1, 0]), place=np.array([9, 9, 9, 2, 9]))
        remember(d, m, p, 1, 3, kind, lbn, size)
        return m, p

    def test_touches_every_piece_and_notes_where_it_began(self):
        m, p = self.remembered(1300, 20 * 512, kind=2)
        # From 1300 to 1319: pieces 162 to 164.
        assert [clock_of(m, 0, lbn) for lbn in range(1288, 1336, 8)] == [0, 7, 7, 7, 0, 0]
        assert [clock_of(m, 1, lbn) for lbn in range(1288, 1336, 8)] == [0] * 6
        begun_ = [begun_at(m.marks, row_of(m.marks, 0, k), k) for k in range(161, 166)]
        assert begun_ == [-1, 1300, -1, -1, -1]
        assert entries(m.begins, 2) == [(7, 1300)]
        assert (p.kind.tolist(), p.made.tolist()) == ([-9, 2], [-9, 7])
        assert not m.pieces_met.any()

    @pytest.mark.parametrize(("blocks", "last"), [(4, 162), (5, 163), (12, 163), (13, 164)])
    def test_touches_up_to_the_last_block(self, blocks, last):
        m, _ = self.remembered(1300, blocks * 512 + 511)
        assert [clock_of(m, 0, 8 * k) > 0 for k in range(162, 166)] == [
            k <= last for k in range(162, 166)
        ]

    def test_touches_a_piece_where_it_is_of_no_block(self):
        m, _ = self.remembered(1304, 0)
        assert [clock_of(m, 0, 8 * k) for k in (162, 163, 164)] == [0, 7, 0]

    def test_passes_rows_of_eight_pieces(self):
        m, _ = self.remembered(1340, 200 * 512)
        pieces = range(1340 // 8 - 1, 1539 // 8 + 2)
        assert [clock_of(m, 0, 8 * k) for k in pieces] == [0, *[7] * (len(pieces) - 2), 0]

    def test_comes_by_where_others_began(self):
        m = memory(5)
        for lbn in (1300, 1310, 1319):
            touch(m, 0, lbn, 3)
        self.remembered(1301, 20 * 512, end=1301, m=m)
        # It goes on at 1301: where one began in this piece stays, and others have their turn.
        assert entries(m.begins, 2) == [(7, 1300), (7, 1310), (7, 1319)]

    @pytest.mark.parametrize(
        ("lbn", "end", "noted"), [(1300, 1400, [(5, 1400)]), (1400, 1400, []), (1300, 2024, [])]
    )
    def test_notes_where_the_one_before_stopped_if_it_does_not_go_on(self, lbn, end, noted):
        m, _ = self.remembered(lbn, end=end)
        assert entries(m.ends, 3) == noted
        assert m.ends.used.sum() == len(noted)

    @pytest.mark.parametrize(
        ("lbn", "end", "pieces"),
        # It begins: those after the first; it goes on: the first as well where it begins with it.
        [
            (1300, -1, [163, 164]),
            (1300, 1300, [163, 164]),
            (1304, 1304, [163, 164, 165]),
            (1304, -1, [164, 165]),
        ],
    )
    def test_counts_what_a_fresh_run_goes_on_to(self, lbn, end, pieces):
        m = memory(5)
        touch(m, 0, 8 * 164, 3)
        m, _ = self.remembered(lbn, 20 * 512, end=end, fresh_=1, m=m)
        assert m.pieces_met.tolist() == [[len(pieces), 1], [0, 0]]


class TestAhead:
    @pytest.mark.parametrize(
        ("lbn", "blocks", "touched", "expected"),
        [
            (0, 64, 8, 8),
            (0, 64, 0, 0),
            (4, 64, 8, 8),
            (0, 576, 32, 36),
            (0, 577, 32, 577),
            (0, 577, 40, 40),
            (4, 14, 16, 13),
            (4, 14, 24, 14),
            (4, 13, 16, 12),
            (4, 12, 16, 12),
        ],
    )
    def test_are_the_blocks_that_are_looked_at(self, lbn, blocks, touched, expected):
        """Every eighth, or 64 of them, and the last."""
        m = memory()
        touch(m, 1, touched, 1)
        assert _ahead(m, 1, lbn, blocks) == expected
        assert _ahead(m, 0, lbn, blocks) == blocks


class TestBehind:
    """State 0 begins at block 1000, so that the first place is 1004, in piece 125."""

    def behind(self, touched, wanted=16, best=5, most=0, **changes):
        m = memory(marks=new_marks(8, 2, 4096))
        for piece in touched:
            touch(m, 0, 8 * piece, 1)
        return _behind(space(**changes), m, 0, 0, wanted, best, most)

    def test_is_the_first_place_with_room(self):
        assert self.behind([]) == 1004
        assert self.behind([125]) == 1012
        assert self.behind([*range(125, 131)]) == 1052
        assert self.behind([127]) == 1020 + 8
        assert self.behind([125], offset=np.full(5, 7)) == 1015
        # Of a later state: from its own begin on.
        m = memory()
        assert _behind(space(), m, 0, 4, 16, 5, 0) == 1516

    def test_is_the_one_with_the_most_room_up_to_the_end_of_the_space(self):
        # 124 pieces and more are touched but two alone and two together.
        taken = set(range(125, 260)) - {130, 140, 141, 150}
        assert self.behind(taken, wanted=24) == 1124
        assert self.behind(taken, wanted=24, best=77, most=15) == 1124
        assert self.behind(taken, wanted=24, best=77, most=16) == 77
        assert self.behind(taken, wanted=8, best=77, most=8) == 77
        # The last place with room for 16 starts at 2008.
        assert self.behind(range(125, 251), wanted=16) == 5
        assert self.behind(range(125, 250), wanted=16) == 2004
        assert self.behind(range(125, 250), wanted=20) == 2004
        assert self.behind(range(125, 250), wanted=21) == 5

    @pytest.mark.parametrize(("alignment", "step"), [(1, 8), (3, 9), (8, 8), (12, 12), (16, 16)])
    def test_goes_on_by_whole_alignments_of_a_piece_or_more(self, alignment, step):
        first = 1000 + -1000 % alignment
        found = self.behind(
            [125, first // 8],
            wanted=24,
            alignment=np.full(5, alignment),
            offset=np.zeros(5, dtype=np.int64),
        )
        places = [first + k * step for k in range(9)]
        assert found == next(at for at in places if at // 8 not in (125, first // 8))

    def test_passes_room_that_is_too_short_at_once(self):
        # From 1004 on 44 blocks are free, up to piece 131: the next place looked at is 1044.
        assert self.behind([131], wanted=200, best=5, most=50) == 1060

    def test_passes_hundreds_of_them_in_few_steps(self):
        """Of 50 pieces one was touched: the first place with 64 free ones is behind the last."""
        touched = range(125, 1126, 50)
        found = self.behind(touched, wanted=512, state_blocks=8192, end_lbn=33_768)
        assert found == 1004 + 8 * 1001

    @pytest.mark.parametrize(("taken", "expected"), [(511, 1004 + 8 * 511), (512, 5)])
    def test_looks_at_so_many(self, taken, expected):
        found = self.behind(range(125, 125 + taken), state_blocks=8192, end_lbn=33_768)
        assert found == expected


class TestFresh:
    def test_is_anywhere_with_room(self):
        r = begun(1)
        expected = anywhere(space(), 3, 16, r.copy())
        assert fresh(space(), memory(), 1, 3, 16, r) == expected
        (_, then) = ahead(begun(1), 2)
        assert ahead(r, 1) == [then]

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("free", [[], [160], [170, 171], [180, 181, 182, 183]])
    def test_is_the_best_of_sixteen_or_behind_them(self, free, seed):
        m, d, r = memory(), space(), begun(seed)
        for piece in set(range(156, 260)) - set(free):
            touch(m, 1, 8 * piece, 1)
        copy, best, most = r.copy(), -1, -1
        for _ in range(16):
            lbn = anywhere(d, 3, 24, copy)
            room = _ahead(m, 1, lbn, 24)
            if room > most:
                best, most = lbn, room
            if most == 24:
                break
        assert fresh(d, m, 1, 3, 24, r) == _behind(d, m, 1, 3, 24, best, most)
        assert r == copy

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize(("met", "wanted"), [(0, 1), (1, 24), (2, 24)])
    def test_is_for_a_block_only_where_runs_are_to_meet_more(self, met, wanted, seed):
        """Of ten pieces a tenth is to be met; every other one was touched."""
        m = memory(met=[0.0, 0.1], pieces_met=[[9, 9], [10, met]])
        for piece in range(156, 260, 2):
            touch(m, 1, 8 * piece, 1)
        r, tries = begun(seed), begun(seed)
        lbn = fresh(space(), m, 1, 3, 24, r)
        places = [anywhere(space(), 3, 24, tries) for _ in range(16)]
        untouched = [at for at in places if at // 8 % 2]
        assert lbn == untouched[0]
        used = places.index(lbn) + 1 if wanted == 1 else 16
        assert ahead(r, 1) == ahead(begun(seed), used + 1)[used:]


class TestChooseAddress:
    def chosen(self, m, *, sequential=0, end=1300, reuse=FRESH, size=4096, kind=0, d=None, u=0.5):
        p = pending(
            end=[-9, end],
            sequential=[1, sequential],
            state=[0, 4],
            reuse=[0, reuse],
            blocks=[1, 16],
            size=[1, size],
            kind=[0, 0],
            made=[0, 1],
            fresh=[7, 7],
        )
        lbn = choose_address(d or space(), m, p, 1, kind, giving(u))
        assert p.end.tolist() == [-9, lbn + size // 512]
        assert p.fresh[0] == 7
        return lbn, p

    def test_goes_on_where_it_stopped(self):
        for m in (memory(), memory(**NONE)):
            lbn, p = self.chosen(m, sequential=1)
            assert (lbn, p.fresh[1], p.state[1]) == (1300, 7, 4)
            assert m.clock.tolist() == [0, 1]
            assert (clock_of(m, 1, 1300) == 1) == (len(m.law.chance) > 0)

    @pytest.mark.parametrize("end", [2024, 2025])
    def test_goes_on_at_the_begin_from_the_end_of_the_space(self, end):
        """At a fresh place in the first state of its kind."""
        lbn, p = self.chosen(memory(), sequential=1, end=end)
        assert (lbn, p.fresh[1], p.state[1]) == (anywhere(space(), 3, 16, giving(0.5)), 1, 3)
        assert self.chosen(memory(), sequential=1, end=2023)[0] == 2023
        # Touched state 5 is state 3, by the second kind.
        starts = [0, 2, *[3] * (KINDS - 1), 5, *[6] * (KINDS - 1)]
        d = space(origin_start=np.array(starts), state=np.array([0, 2, 3, 1, 2, 3]))
        d = d._replace(**{n: np.append(getattr(d, n), 8) for n in ("alignment", "offset")})
        d = d._replace(place=np.arange(6), stop=np.arange(6))
        d = d._replace(low=np.append(d.low, 1800), high=np.append(d.high, 1900))
        lbn, p = self.chosen(memory(6), sequential=1, end=end, kind=1, d=d)
        assert (lbn, p.state[1]) == (anywhere(d, 5, 16, giving(0.5)), 5)

    def test_is_anywhere_without_a_law(self):
        m = memory(**NONE)
        lbn, p = self.chosen(m)
        assert (lbn, p.fresh[1], p.state[1]) == (anywhere(space(), 4, 16, giving(0.5)), 1, 4)
        assert not m.marks.key.any()
        assert p.made[1] == 1

    def test_comes_back_by_the_law(self):
        for first in (1000, 0):
            m, d = memory(clock=[0, 4]), space(first_lbn=first)
            at = first + 2 * STATE
            touch(m, 1, at, 4)
            put(m.begins, m.marks, 1, 4, at, 4)
            lbn, p = self.chosen(m, reuse=AGAIN, d=d)
            assert (lbn, p.fresh[1]) == (at, 0)
            assert clock_of(m, 1, at) == 5

    def test_comes_back_to_the_first_block_of_all(self):
        m = memory(clock=[0, 4])
        touch(m, 1, 0, 4)
        put(m.begins, m.marks, 1, 4, 0, 4)
        assert self.chosen(m, reuse=AGAIN)[0] == 0

    def test_does_not_go_on_by_chance(self):
        m = memory(clock=[0, 4])
        touch(m, 1, 1300, 4)
        put(m.begins, m.marks, 1, 4, 1300, 4)
        lbn, p = self.chosen(m, reuse=AGAIN)
        r = giving(0.5)
        uniform(r)
        assert (lbn, p.fresh[1]) == (anywhere(space(), 4, 16, r), 1)

    def test_is_fresh_by_the_law(self):
        m, first = memory(), int(anywhere(space(), 4, 16, giving(0.5)))
        touch(m, 1, first, 0xFFFF)
        lbn, p = self.chosen(m)
        assert (clock_of(m, 1, first), clock_of(m, 1, lbn)) == (0xFFFF, 1)
        assert p.fresh[1] == 1

    def test_remembers_what_it_chose(self):
        m = memory()
        lbn, p = self.chosen(m, size=24 * 512, kind=2)
        assert [clock_of(m, 1, lbn + k) for k in (0, 8, 16, 24)] == [1, 1, 1, 1 if lbn % 8 else 0]
        assert (p.kind[1], p.made[1]) == (2, 1)
        assert entries(m.begins, 4) == [(1, lbn)]
        assert entries(m.ends, 3) == [(1, 1300)]
