"""Estimates: a float that carries its unit and interval; numbers as people read them."""

from __future__ import annotations

import copy
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppw.estimate import Estimate, shown, telling_keys

WATTS = Estimate(50.0, "W", lower=45.0, upper=56.0, limit=math.inf)
PARTS = ("unit", "lower", "upper", "limit", "limit_share")


def parts(estimate):
    return float(estimate), *(getattr(estimate, name) for name in PARTS)


def test_it_is_a_float():
    assert WATTS == 50
    assert WATTS / 2 == 25
    assert type(WATTS / 2) is float
    assert f"{WATTS:.1f}" == "50.0"


def test_missing_parts_are_none():
    assert parts(Estimate(3.0)) == (3.0, "1", None, None, None, None)
    assert Estimate(3.0, lower=math.nan, limit_share=math.nan).lower is None


def test_scaled():
    half = Estimate(4.0, "1/s", lower=2.0, upper=math.inf, limit=8.0, limit_share=0.5)
    assert parts(half.scaled(0.5, "x")) == (2.0, "x", 1.0, math.inf, 4.0, 0.5)


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_copies_keep_all_parts(twin):
    assert parts(twin(WATTS)) == parts(WATTS)


def test_dictionary_comes_back_through_json():
    for estimate in (
        Estimate(1.5, "s", lower=1.0, upper=2.0, limit=0.5, limit_share=1 / 3),
        Estimate(1.5, "s"),
        Estimate(1.5, "s", lower=1.0, upper=math.inf),
    ):
        text = json.dumps(estimate.to_dict(), allow_nan=False)
        assert parts(Estimate.from_dict(json.loads(text))) == parts(estimate)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.0e9, "Hz", "3 GHz"),
        (822.3684e6, "Hz", "822.4 MHz"),
        (95.0, "W", "95 W"),
        (0.0251, "W", "25.1 mW"),
        (2.5e-9, "J", "2.5e-09 J"),
        (-250e6, "Hz", "-250 MHz"),
        (0.0, "W", "0 W"),
        (139.5371, "s", "139.5 s"),
        (1.0, "1", "1"),
        (1234567.8, "1", "1,234,568"),
        (9999.4, "s", "9999 s"),
        (9999.6, "s", "10,000 s"),
        (3.2e13, "1/s", "3.2e+13 1/s"),
        (math.inf, "s", "∞"),
        (math.nan, "s", "–"),
        (None, "s", "–"),
        (6.288, "", "6.288"),
    ],
)
def test_shown(value, unit, text):
    assert shown(value, unit) == text


@given(st.floats(1e-9, 1e15), st.sampled_from(["Hz", "W", "s", "1"]))
def test_shown_keeps_four_digits(value, unit):
    prefixes = {"G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6}
    number, _, rest = shown(value, unit).partition(" ")
    factor = prefixes.get(rest[:1], 1.0) if rest != unit else 1.0
    assert float(number.replace(",", "")) * factor == pytest.approx(value, rel=5.1e-4)


def test_the_fewest_keys_that_tell_rows_apart():
    rows = [
        {"host": "a", "workload": w, "cores": n, "data_bytes": size}
        for w, size in (("sort", 1e6), ("wc", 2e6))
        for n in (1, 2)
    ]
    keys = ["host", "workload", "cores", "data_bytes"]
    assert telling_keys(keys, rows) == ["workload", "cores"]
    assert telling_keys(keys, rows[:1]) == ["host"]
    assert telling_keys(keys, rows[::2]) == ["workload"]
    assert telling_keys([], rows) == []
