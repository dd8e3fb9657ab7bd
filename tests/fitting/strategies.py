"""What the property tests of the fits draw: clock sweeps, positive coefficients."""

import numpy as np
from hypothesis import strategies as st

GHZ = 1e9


def sizes(low, high):
    """Positive numbers spread evenly over the decades between two."""
    return st.floats(np.log(low), np.log(high)).map(lambda x: float(np.exp(x)))


def frequencies(least=2, most=8):
    """Different core frequencies (Hz), 0.8 to 4.8 GHz in steps of 100 MHz, in any order."""
    steps = st.lists(st.integers(8, 48), min_size=least, max_size=most, unique=True)
    return steps.map(lambda tenths: np.array(tenths) * 1e8)


@st.composite
def sweeps(draw, least=2, most=8):
    """Frequencies (Hz) and any positive metric of one order of magnitude."""
    f = draw(frequencies(least, most))
    scale = draw(sizes(1e-6, 1e9))
    factors = st.lists(st.floats(0.1, 10), min_size=len(f), max_size=len(f))
    return f, scale * np.array(draw(factors))
