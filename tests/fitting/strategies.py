"""What the property tests of the fits draw: clock sweeps, positive coefficients."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

GHZ = 1e9


def sizes(low: float, high: float) -> st.SearchStrategy[float]:
    """Positive numbers spread evenly over the decades between two."""
    return st.floats(np.log(low), np.log(high)).map(lambda x: float(np.exp(x)))


def frequencies(least: int = 2, most: int = 8) -> st.SearchStrategy[np.ndarray]:
    """Different core frequencies (Hz), 0.8 to 4.8 GHz in steps of 100 MHz, in any order."""
    steps = st.lists(st.integers(8, 48), min_size=least, max_size=most, unique=True)
    return steps.map(lambda tenths: np.array(tenths) * 1e8)


def core_counts(least: int = 2, most: int = 8) -> st.SearchStrategy[np.ndarray]:
    counts = st.lists(st.integers(1, 256), min_size=least, max_size=most, unique=True)
    return counts.map(lambda n: np.array(n, dtype=float))


@st.composite
def sweeps(draw: st.DrawFn, least: int = 2, most: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies (Hz) and any positive metric of one order of magnitude."""
    f = draw(frequencies(least, most))
    scale = draw(sizes(1e-6, 1e9))
    factors = st.lists(st.floats(0.1, 10), min_size=len(f), max_size=len(f))
    return f, scale * np.array(draw(factors))


@st.composite
def amdahl_times(draw: st.DrawFn, least: int = 2) -> tuple[np.ndarray, float, float]:
    """Frequencies (Hz), t_fixed (s) and work (cycles) of a program that neither part dwarfs."""
    f = draw(frequencies(least))
    fixed, clocked = draw(sizes(1e-3, 1e3)), draw(sizes(0.1, 10))
    return f, fixed, fixed * clocked * 2e9
