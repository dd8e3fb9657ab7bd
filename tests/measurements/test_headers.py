"""Foreign headers to canonical columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements import MeasurementError
from measurements.headers import MOST_COLUMNS, Renaming, nearest, rename_headers, shown, unit_of
from measurements.quantities import UNITS
from measurements.schema import COLUMNS, SYNONYMS, UNIT_IN_NAME

WITH_UNIT = [name for name in COLUMNS if unit_of(name)]
CONVERSIONS = [
    (canonical, name, unit.factor)
    for canonical in WITH_UNIT
    for name, unit in UNITS.items()
    if unit.si == unit_of(canonical)
]


def renamed(*headers: str, **mapping: str) -> dict[str, Renaming]:
    return rename_headers(headers, mapping, "runs.csv")


def refusal(*headers: str, **mapping: str) -> str:
    with pytest.raises(MeasurementError) as refused:
        renamed(*headers, **mapping)
    message = str(refused.value)
    assert message.startswith("runs.csv: ")
    assert "\n" not in message
    return message


def test_every_column_whose_unit_can_be_written_has_it_in_its_name() -> None:
    spelt = {"Hz": "hz", "s": "s", "W": "w", "B": "bytes", "J": "j", "V": "v", "°C": "c"}
    assert {name: unit_of(name) for name in WITH_UNIT} == {
        name: spelt[column.unit] for name, column in COLUMNS.items() if column.unit in spelt
    }
    assert {unit_of(name) for name in WITH_UNIT} == {unit.si for unit in UNITS.values()}


@pytest.mark.parametrize("canonical", COLUMNS)
@pytest.mark.parametrize("form", ["{}", " {} "])
def test_every_canonical_name_stands_for_itself_in_any_case(canonical: str, form: str) -> None:
    for header in (form.format(canonical), form.format(canonical.upper())):
        assert renamed(header) == {header: Renaming(canonical)}


@pytest.mark.parametrize(("canonical", "unit", "factor"), CONVERSIONS)
def test_every_suffix_and_bracketed_unit_converts(canonical: str, unit: str, factor: float) -> None:
    base = canonical.rpartition("_")[0]
    for form in ("{}_{}", "{} ({})", "{} [{}]", "{}({})"):
        header = form.format(base, unit)
        assert renamed(header) == {header: Renaming(canonical, factor)}
        assert renamed(header.title()) == {header.title(): Renaming(canonical, factor)}


@pytest.mark.parametrize("synonym", SYNONYMS)
def test_every_synonym_stands_for_its_column(synonym: str) -> None:
    canonical = SYNONYMS[synonym]
    needs_unit = bool(unit_of(canonical)) and synonym not in UNIT_IN_NAME
    expected = Renaming(canonical, 1.0, unit_in_cells=needs_unit)
    assert renamed(synonym) == {synonym: expected}
    assert renamed(synonym.upper()) == {synonym.upper(): expected}


@pytest.mark.parametrize(("canonical", "unit", "factor"), CONVERSIONS)
def test_every_synonym_converts_by_its_unit(canonical: str, unit: str, factor: float) -> None:
    for synonym in (s for s, c in SYNONYMS.items() if c == canonical and s not in UNIT_IN_NAME):
        header = f"{synonym} ({unit})"
        assert renamed(header) == {header: Renaming(canonical, factor)}


@pytest.mark.parametrize("header", ["Elapsed Time (s)", "elapsed-time [s]", "elapsed_time_s"])
def test_spaces_dashes_and_underscores_in_a_synonym_do_not_matter(header: str) -> None:
    assert renamed(header) == {header: Renaming("time_s")}


@pytest.mark.parametrize(
    ("header", "factor"),
    [
        ("throughput_ops_s", 1.0),
        ("throughput_ops_ms", 1e3),
        ("throughput_ops_min", 1 / 60),
        ("throughput_ops_h", 1 / 3600),
    ],
)
def test_a_rate_per_minute_is_a_sixtieth_of_one_per_second(header: str, factor: float) -> None:
    expected = Renaming("throughput_ops_s", pytest.approx(factor, rel=1e-15))
    assert renamed(header) == {header: expected}
    assert renamed("jobs_per_x", **{header: "jobs_per_x"}) == {"jobs_per_x": expected}


def test_the_unit_of_a_mapped_rate_is_a_rate_too() -> None:
    assert renamed("jobs_per_min", throughput_ops_s="jobs_per_min") == {
        "jobs_per_min": Renaming("throughput_ops_s", 1 / 60)
    }


@pytest.mark.parametrize("header", ["user", "system", "idle", "data", "load_avg", "temperature"])
def test_a_bare_word_that_only_looks_like_a_column_is_left_alone(header: str) -> None:
    assert renamed(header, "time_s") == {"time_s": Renaming("time_s")}


@pytest.mark.parametrize("header", ["power_kwh", "time_mhz", "Power (s)", "freq_s", "nsamples"])
def test_a_header_with_a_unit_of_something_else_is_left_alone(header: str) -> None:
    assert renamed(header) == {}


@pytest.mark.parametrize(
    ("real", "synonym"),
    [
        ("time_s", "duration (s)"),
        ("Power (mW)", "watts"),
        ("host", "machine"),
        ("freq_mhz", "frequency"),
    ],
)
def test_a_synonym_beside_the_real_column_is_left_untouched(real: str, synonym: str) -> None:
    assert set(renamed(synonym, real)) == {real}


@pytest.mark.parametrize(
    ("headers", "canonical"),
    [
        (("freq_hz", "freq_mhz"), "freq_hz"),
        (("freq_khz", "freq_ghz"), "freq_hz"),
        (("Time (s)", "time_ms"), "time_s"),
        (("host", "HOST"), "host"),
        (("machine", "server"), "host"),
        (("duration_s", "elapsed_s"), "time_s"),
    ],
)
def test_a_canonical_column_given_twice_is_an_error_that_map_resolves(
    headers: tuple[str, str], canonical: str
) -> None:
    message = refusal(*headers)
    assert f"columns {headers[0]}, {headers[1]} would all be {canonical}" in message
    assert f"choose with --map {canonical}=COLUMN" in message
    first = renamed(*headers, **{canonical: headers[0]})
    assert set(first) == {headers[0]}
    assert first[headers[0]].canonical == canonical


def test_a_header_twice_is_an_error() -> None:
    assert "names note more than once" in refusal("note", "time_s", "note")


def test_nameless_headers_may_be_several() -> None:
    assert renamed("", "", "host") == {"host": Renaming("host")}


@pytest.mark.parametrize(
    ("target", "header", "expected"),
    [
        ("freq_hz", "clock", Renaming("freq_hz")),
        ("freq_mhz", "clock", Renaming("freq_hz", 1e6)),
        ("freq_khz", "clock", Renaming("freq_hz", 1e3)),
        ("Freq (GHz)", "clock", Renaming("freq_hz", 1e9)),
        ("freq_hz", "Clock (kHz)", Renaming("freq_hz", 1e3)),
        ("freq_khz", "Clock (kHz)", Renaming("freq_hz", 1e3)),
        ("power_w", "P_mw", Renaming("power_w", 1e-3)),
        ("energy_j", "Total (MJ)", Renaming("energy_j", 1e6)),
        ("time_s", "wall (hours)", Renaming("time_s", 3600.0)),
        ("power_w", "power_c", Renaming("power_w")),
        ("workload", "CPU", Renaming("workload")),
        ("workload", "test_c", Renaming("workload")),
        ("cores", "n_c", Renaming("cores")),
        ("throughput_ops_s", "CoreMarks (iter/s)", Renaming("throughput_ops_s")),
        ("rack", "Zone", Renaming("rack")),
    ],
)
def test_map(target: str, header: str, expected: Renaming) -> None:
    assert renamed("x", header, **{target: header}) == {header: expected}


def test_map_takes_precedence_over_what_a_header_says_by_itself() -> None:
    assert renamed("time_s", latency_p99_s="time_s") == {"time_s": Renaming("latency_p99_s")}


def test_map_with_two_units_is_an_error_that_names_the_way_out() -> None:
    message = refusal("Clock (kHz)", freq_mhz="Clock (kHz)")
    assert "--map freq_mhz=Clock (kHz): the two names carry different units" in message
    assert "write freq_hz=Clock (kHz)" in message


def test_map_to_a_column_of_another_dimension_is_an_error() -> None:
    assert "the column is not in W, by its header" in refusal("E (J)", power_w="E (J)")


def test_map_of_a_header_that_is_not_there_names_the_nearest() -> None:
    message = refusal("Frequency (kHz)", "Time (s)", freq_hz="Frequenzy (kHz)")
    assert "'Frequenzy (kHz)', which is not there (did you mean 'Frequency (kHz)'?)" in message
    assert "the columns are Frequency (kHz), Time (s)" in message


def test_map_of_a_header_like_no_other_suggests_none() -> None:
    message = refusal("a", "b", freq_hz="Frequency")
    assert "did you mean" not in message
    assert "the columns are a, b" in message


@pytest.mark.parametrize(
    ("target", "meant"),
    [("freq_hzz", "freq_hz"), ("tme_s", "time_s"), ("powr_w", "power_w"), ("frequency", "freq_hz")],
)
def test_map_to_a_misspelt_column_is_an_error(target: str, meant: str) -> None:
    assert f"no column {target!r} (did you mean {meant!r}?)" in refusal("x", **{target: "x"})


def test_map_of_one_header_to_two_columns_is_an_error() -> None:
    message = refusal("f", freq_hz="f", freq_achieved_hz="f")
    assert "makes column 'f' all of freq_hz, freq_achieved_hz" in message


@pytest.mark.parametrize(("target", "header"), [("time_s", "wall_s"), ("rack", "zone")])
def test_map_to_a_name_that_is_taken_is_an_error(target: str, header: str) -> None:
    message = refusal(target, header, **{target: header})
    assert f"would all be {target}: drop or rename the column {target}" in message


def test_map_to_both_of_two_columns_in_different_units_is_an_error() -> None:
    message = refusal("a", "b", freq_hz="a", freq_mhz="b")
    assert "columns a, b would all be freq_hz" in message


def test_far_too_many_columns_are_an_error_that_gives_their_number() -> None:
    assert f"{MOST_COLUMNS + 1} columns" in refusal(*map(str, range(MOST_COLUMNS + 1)))
    assert renamed(*map(str, range(MOST_COLUMNS))) == {}


@given(st.lists(st.text(max_size=12), unique=True, max_size=8))
def test_any_headers_are_renamed_once_each_or_refused_in_one_line(headers: list[str]) -> None:
    refusal = ""
    renamings: dict[str, Renaming] = {}
    try:
        renamings = renamed(*headers)
    except MeasurementError as error:
        refusal = str(error)
    assert "\n" not in refusal
    final = [renamings[h].canonical if h in renamings else h for h in headers]
    assert set(renamings) <= set(headers)
    assert len(set(final)) == len(final)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("Hots", " (did you mean 'Host'?)"), ("HOST", " (did you mean 'Host'?)"), ("qqq", "")],
)
def test_nearest_suggests_in_any_case_and_the_spelling_that_is_there(
    name: str, suggestion: str
) -> None:
    assert nearest(name, ["Host", "time_s"]) == suggestion


def test_shown_names_the_first_and_counts_the_rest_in_one_line() -> None:
    assert shown(["a", "b\nc"]) == "a, b c"
    assert shown(["x"] * 12) == ", ".join(["x"] * 12)
    assert shown(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
    assert shown(["y" * 41]) == "y" * 37 + "…"


@pytest.mark.parametrize(
    "header",
    ["Load (%)", "load_pct", "load_percent", "Load %", "LOAD%", "load [%]", "Load (percent)"],
)
def test_a_share_may_be_in_percent_by_its_header(header: str) -> None:
    assert renamed(header) == {header: Renaming("load", 0.01)}
    assert renamed("u", load_pct="u") == {"u": Renaming("load", 0.01)}
    assert renamed("Use (%)", load="Use (%)") == {"Use (%)": Renaming("load", 0.01)}
    assert "would all be load" in refusal(header, "load")


def test_a_setting_or_a_header_of_the_same_name_is_no_slip_of_another_column() -> None:
    assert renamed("Conns", connections="Conns") == {"Conns": Renaming("connections")}
    assert renamed("Instruction", instruction="Instruction") == {
        "Instruction": Renaming("instruction")
    }


@pytest.mark.parametrize("header", ["load_avg", "time_pct", "Cores (%)", "run_pct", "payload_pct"])
def test_percent_of_what_is_no_share_is_left_alone(header: str) -> None:
    assert renamed(header) == {}
