"""Octaves of whole numbers against those of Python's whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.octaves import octave_part


@pytest.mark.parametrize("bits", [0, 1, 2])
@given(number=st.one_of(st.integers(1, 5000), st.integers(1, 2**53 - 1)))
def test_the_first_bits_of_a_number_say_it(number, bits):
    octave = number.bit_length() - 1
    part = (number - 2**octave) * 2**bits // 2**octave
    assert octave_part(number, bits) == (octave << bits) + part
