"""Runs tables for property tests."""

from __future__ import annotations

import pandas as pd
from hypothesis import strategies as st

# Any text but what no text file can hold, and the blank cell, which is missing.
names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12
).filter(lambda name: name.strip() == name)

frequencies = st.floats(min_value=1e7, max_value=2e10)
positive = st.floats(min_value=5e-324, allow_infinity=False)
net = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def runs_tables(draw: st.DrawFn) -> pd.DataFrame:
    """One to six runs with every kind of column, some of their values missing."""
    size = draw(st.integers(min_value=1, max_value=6))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return draw(st.lists(values, min_size=size, max_size=size))

    return pd.DataFrame(
        {
            "host": pd.Series(column(names), dtype="str"),
            "freq_hz": pd.Series(column(frequencies), dtype="float64"),
            "time_s": pd.Series(column(positive | st.none()), dtype="float64"),
            "power_w": pd.Series(column(net | st.none()), dtype="float64"),
            "site": pd.Series(column(names.map("site {}".format)), dtype="str"),
        }
    )
