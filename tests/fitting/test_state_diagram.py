"""Hierarchical state diagrams: counts of transitions, codes, levels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.errors import FittingError
from fitting.state_diagram import Diagram


@pytest.mark.parametrize(
    ("levels", "published"), [(1, 16), (2, 76), (3, 316), (4, 1276), (5, 5116), (10, 5_242_876)]
)
def test_transitions_as_published(levels, published):
    assert Diagram(levels).transitions == published


@pytest.mark.parametrize(("levels", "fan_out"), [(1, 4), (2, 4), (3, 4), (3, 2), (2, 3)])
def test_every_pair_has_one_code_and_they_are_as_many_as_counted(levels, fan_out):
    diagram = Diagram(levels, fan_out)
    pairs = np.array(list(itertools.product(range(diagram.states), repeat=2)))
    codes = diagram.pair_code(pairs[:, 0], pairs[:, 1])
    assert len(np.unique(codes)) == diagram.transitions
    assert codes.max() == diagram.pair_codes - 1


@given(st.integers(1, 6), st.integers(2, 5), st.data())
def test_a_pair_parts_at_the_coarsest_level_at_which_its_states_differ(levels, fan_out, data):
    diagram = Diagram(levels, fan_out)
    a, b = (data.draw(st.integers(0, diagram.states - 1)) for _ in range(2))
    found = diagram.pairs(diagram.pair_code(a, b))
    apart = [
        i
        for i in range(1, levels + 1)
        if a // fan_out ** (levels - i) != b // fan_out ** (levels - i)
    ]
    level = apart[0] if apart else levels
    size = fan_out ** (levels - level)
    assert (found.level, found.source, found.target) == (level, a // size, b // size)


@given(st.integers(2, 6), st.integers(2, 5), st.data())
def test_one_level_less_is_the_code_of_the_coarser_states(levels, fan_out, data):
    diagram = Diagram(levels, fan_out)
    a, b = (data.draw(st.integers(0, diagram.states - 1)) for _ in range(2))
    coarser = diagram.coarser()
    expected = coarser.pair_code(a // fan_out, b // fan_out)
    assert diagram.coarser_codes(np.array([diagram.pair_code(a, b)]))[0] == expected


def test_states_divide_the_space_evenly():
    diagram = Diagram.over(100, 100 + 1000, levels=2)
    assert diagram.state_blocks == 63
    assert diagram.state([100, 162, 163, 1099]).tolist() == [0, 0, 1, 15]


@pytest.mark.parametrize(("levels", "fan_out"), [(0, 4), (2, 1), (13, 4)])
def test_what_is_no_diagram_is_refused(levels, fan_out):
    with pytest.raises(FittingError, match="give"):
        Diagram(levels, fan_out)
