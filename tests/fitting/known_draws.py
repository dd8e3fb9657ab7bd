"""Random numbers that a test knows ahead: SplitMix64 in Python's own integers, and backwards."""

from __future__ import annotations

import numpy as np

_WHOLE = 2**64
_WEYL, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def begun(seed=0):
    return np.array([seed * 0x123456789ABCDEF % _WHOLE], dtype=np.uint64)


def bits_ahead(r, number):
    """Bits that a sequence will give, which stays where it is."""
    found = []
    for k in range(1, number + 1):
        z = (int(r[0]) + k * _WEYL) % _WHOLE
        z = (z ^ z >> 30) * _FIRST % _WHOLE
        z = (z ^ z >> 27) * _SECOND % _WHOLE
        found.append(z ^ z >> 31)
    return found


def ahead(r, number):
    """Draws from [0, 1) that a sequence will give."""
    return [(bits >> 11) / 2**53 for bits in bits_ahead(r, number)]


def giving_bits(bits):
    """Sequence whose next bits are given."""
    z = _unmixed(bits, 31) * pow(_SECOND, -1, _WHOLE) % _WHOLE
    z = _unmixed(z, 27) * pow(_FIRST, -1, _WHOLE) % _WHOLE
    return np.array([(_unmixed(z, 30) - _WEYL) % _WHOLE], dtype=np.uint64)


def giving(u):
    """Sequence whose next draw from [0, 1) is given, but for what 2^-53 does not tell."""
    return giving_bits(int(u * 2**53) << 11)


def made(r, number):
    """Whether so many numbers, and no more, have been drawn of a copy of a sequence."""
    return lambda copy: int(copy[0]) == (int(r[0]) + number * _WEYL) % _WHOLE


def _unmixed(z, shift):
    found = z
    for _ in range(64 // shift):
        found = z ^ found >> shift
    return found
