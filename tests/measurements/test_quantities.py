"""Units in headers and in typed quantities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements import MeasurementError, parse_frequency, parse_quantity
from measurements.quantities import UNITS, implausible_frequency, split_unit

# Typed here from the definition of each unit, so that a slip in the registry shows.
SI_FACTORS = {
    "hz": ("hz", 1),
    "khz": ("hz", 1_000),
    "mhz": ("hz", 1_000_000),
    "ghz": ("hz", 1_000_000_000),
    "s": ("s", 1),
    "ms": ("s", 1 / 1_000),
    "us": ("s", 1 / 1_000_000),
    "ns": ("s", 1 / 1_000_000_000),
    "min": ("s", 60),
    "h": ("s", 60 * 60),
    "w": ("w", 1),
    "mw": ("w", 1 / 1_000),
    "kw": ("w", 1_000),
    "bytes": ("bytes", 1),
    "b": ("bytes", 1),
    "kb": ("bytes", 1_000),
    "mb": ("bytes", 1_000_000),
    "gb": ("bytes", 1_000_000_000),
    "tb": ("bytes", 10**12),
    "pb": ("bytes", 10**15),
    "eb": ("bytes", 10**18),
    "zb": ("bytes", 10**21),
    "kib": ("bytes", 1024),
    "mib": ("bytes", 1024**2),
    "gib": ("bytes", 1024**3),
    "tib": ("bytes", 1024**4),
    "pib": ("bytes", 1024**5),
    "j": ("j", 1),
    "uj": ("j", 1 / 1_000_000),
    "mj": ("j", 1 / 1_000),
    "kj": ("j", 1_000),
    "wh": ("j", 3_600),
    "kwh": ("j", 3_600_000),
    "v": ("v", 1),
    "mv": ("v", 1 / 1_000),
    "c": ("c", 1),
}


def test_the_registry_has_the_units_of_the_definition_and_no_others() -> None:
    assert set(UNITS) == set(SI_FACTORS)


@pytest.mark.parametrize("name", SI_FACTORS)
@pytest.mark.parametrize("form", ["x_{}", "x ({})", "x [{}]", "x({})", "x[ {} ]"])
@pytest.mark.parametrize("case", [str.lower, str.capitalize])
def test_every_unit_is_split_off_a_header(name: str, form: str, case) -> None:
    spelt = case(name)
    base, unit = split_unit(form.format(spelt))
    # "Mj" and "Mw" are in no standard, and stay milli.
    si, factor = SI_FACTORS[name]
    assert (base, unit.si) == ("x", si)
    assert unit.factor == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize("name", SI_FACTORS)
def test_every_unit_is_read_behind_a_number(name: str) -> None:
    si, factor = SI_FACTORS[name]
    assert parse_quantity(f"2.5{name}", si) == pytest.approx(2.5 * factor, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "si", "value"),
    [
        ("3.0GHz", "hz", 3e9),
        ("  3.0  GHz ", "hz", 3e9),
        ("2400MHz", "hz", 2.4e9),
        ("128MiB", "bytes", 134_217_728),
        ("128MB", "bytes", 128_000_000),
        ("95W", "w", 95),
        ("95", "w", 95),
        ("-3.5", "w", -3.5),
        ("+.5kW", "w", 500),
        ("1e3ms", "s", 1),
        ("1E-3", "s", 1e-3),
        ("5µs", "s", 5e-6),
        ("5μs", "s", 5e-6),
        ("5us", "s", 5e-6),
        ("1.5 kWh", "j", 5.4e6),
        ("2 hours", "s", 7200),
        ("30d", "s", 30 * 86_400),
        ("1 year", "s", 365 * 86_400),
        ("40°C", "c", 40),
    ],
)
def test_quantities_are_read_in_si(text: str, si: str, value: float) -> None:
    assert parse_quantity(text, si) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "si", "value"),
    [("5mJ", "j", 5e-3), ("5MJ", "j", 5e6), ("5mW", "w", 5e-3), ("5MW", "w", 5e6)],
)
def test_small_m_is_milli_and_capital_m_is_mega(text: str, si: str, value: float) -> None:
    assert parse_quantity(text, si) == value


@pytest.mark.parametrize(
    ("header", "factor"),
    [
        ("Energy (mJ)", 1e-3),
        ("Energy (MJ)", 1e6),
        ("energy_MJ", 1e6),
        ("energy_mj", 1e-3),
        ("ENERGY_MJ", 1e-3),
        ("POWER (MW)", 1e-3),
    ],
)
def test_a_header_all_in_capitals_says_nothing_about_its_m(header: str, factor: float) -> None:
    assert split_unit(header)[1].factor == factor


@pytest.mark.parametrize(
    ("header", "base", "si", "factor"),
    [
        ("Time (seconds)", "Time", "s", 1),
        ("Time (sec)", "Time", "s", 1),
        ("run_minutes", "run", "s", 60),
        ("Time [hours]", "Time", "s", 3600),
        ("Power (Watts)", "Power", "w", 1),
        ("Energy (Joules)", "Energy", "j", 1),
        ("Temperature (°C)", "Temperature", "c", 1),
        ("Latency [μs]", "Latency", "s", 1e-6),
        ("Latency (p99) [ms]", "Latency (p99)", "s", 1e-3),
    ],
)
def test_units_in_words_and_signs(header: str, base: str, si: str, factor: float) -> None:
    assert split_unit(header) == (base, (si, factor))


@pytest.mark.parametrize(
    "header",
    ["workload", "_s", "(s)", "", "time_", "freq_thz", "CoreMarks (iter/s)", "Time (s", "Time s)"],
)
def test_a_header_without_a_known_unit_is_left_whole(header: str) -> None:
    assert split_unit(header) == (header, None)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "GHz", "3.0.0GHz", ".", "3,0GHz", "3 0GHz", "1_000", "0x10", "nan", "inf"),
        *("3THz", "3GHzz", "3 G Hz", "--3", "3e", "1e999GHz", "3\nGHz!", "3GHz 4GHz"),
    ],
)
def test_what_is_no_quantity_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(MeasurementError) as refused:
        parse_quantity(text, "hz")
    message = str(refused.value)
    assert repr(text) in message
    assert "hz, khz, mhz, ghz" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", SI_FACTORS)
def test_a_unit_of_something_else_is_refused(name: str) -> None:
    other = "s" if SI_FACTORS[name][0] != "s" else "hz"
    with pytest.raises(MeasurementError, match="is not a quantity in"):
        parse_quantity(f"1{name}", other)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_plain_number_is_si_to_the_last_bit(value: float) -> None:
    assert parse_quantity(repr(value), "w") == value


@given(st.text(max_size=20))
def test_any_text_is_a_finite_number_or_one_line_of_refusal(text: str) -> None:
    value, refusal = 0.0, ""
    try:
        value = parse_quantity(text, "bytes")
    except MeasurementError as error:
        refusal = str(error)
    assert math.isfinite(value)
    assert "\n" not in refusal


@given(st.text(max_size=20))
def test_any_header_is_split_into_a_part_of_itself(header: str) -> None:
    base, unit = split_unit(header)
    assert header.startswith(base)
    assert unit is not None or base == header


@pytest.mark.parametrize(
    ("text", "value"),
    [("3.0GHz", 3e9), ("2400000kHz", 2.4e9), ("1.2e9", 1.2e9), ("10MHz", 1e7), ("20GHz", 2e10)],
)
def test_frequencies(text: str, value: float) -> None:
    assert parse_frequency(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2.4", "is it in GHz or MHz"),
        ("2400", "is it in GHz or MHz"),
        ("2400kHz", "is it in GHz or MHz"),
        ("9.9MHz", "under 10 MHz"),
        ("20.1GHz", "is the unit too large"),
        ("2400GHz", "is the unit too large"),
        ("0", "greater than 0"),
        ("-1GHz", "greater than 0"),
        ("3W", "not a quantity in Hz"),
        ("fast", "not a quantity in Hz"),
    ],
)
def test_a_frequency_of_no_core_is_refused_with_a_hint(text: str, reason: str) -> None:
    with pytest.raises(MeasurementError, match=reason) as refused:
        parse_frequency(text)
    assert repr(text) in str(refused.value)


def test_the_plausible_frequencies_include_their_limits() -> None:
    assert implausible_frequency(1e7) is None
    assert implausible_frequency(2e10) is None
    assert "under" in implausible_frequency(math.nextafter(1e7, 0))
    assert "over" in implausible_frequency(math.nextafter(2e10, math.inf))
