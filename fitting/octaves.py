"""Octaves of whole numbers, for compiled loops."""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

import numpy as np

from fitting.compiled import inlined

_FRACTION_BITS, _BIAS = 52, 1023


@inlined
def octave_part(number: int, bits: int) -> int:
    """Octaves from 1 to a number, each in 2^bits even parts; exact below 2^53.

    The exponent of a float and the first bits of its fraction say it, which needs no search.
    """
    return (np.float64(number).view(np.int64) >> (_FRACTION_BITS - bits)) - (_BIAS << bits)
