"""Units of quantities and headers, and foreign headers to canonical columns."""

import math
from functools import partial

import pytest
import refusals
from hypothesis import given, strategies as st

from measurements import MeasurementError, parse_frequency, parse_quantity
from measurements.table import headers as hd
from measurements.table.schema import COLUMNS, SYNONYMS, UNIT_IN_NAME
from measurements.table.units import UNITS, implausible_frequency, split_unit

# Typed here from the definition of each unit, so that a slip in the registry shows.
SI_FACTORS = {
    "hz": {"hz": 1, "khz": 1_000, "mhz": 1_000_000, "ghz": 1_000_000_000},
    "s": {"s": 1, "ms": 1 / 1_000, "us": 1 / 1_000_000, "ns": 1 / 1_000_000_000, "min": 60}
    | {"h": 60 * 60},
    "w": {"w": 1, "mw": 1 / 1_000, "kw": 1_000},
    "bytes": {"bytes": 1, "b": 1, "kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000, "tb": 10**12}
    | {"pb": 10**15, "eb": 10**18, "zb": 10**21}
    | {"kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4, "pib": 1024**5},
    "j": {"j": 1, "uj": 1 / 1_000_000, "mj": 1 / 1_000, "kj": 1_000, "wh": 3_600, "kwh": 3_600_000},
    "v": {"v": 1, "mv": 1 / 1_000},
    "c": {"c": 1},
}
DEFINED = [(si, name, factor) for si, names in SI_FACTORS.items() for name, factor in names.items()]
WITH_UNIT = [name for name in COLUMNS if hd.unit_of(name)]
CONVERSIONS = [
    (canonical, name, unit.factor)
    for canonical in WITH_UNIT
    for name, unit in UNITS.items()
    if unit.si == hd.unit_of(canonical)
]
LACKS = "which the table does not have"
SLIPS = {"freq_hzz": "freq_hz", "tme_s": "time_s", "powr_w": "power_w", "frequency": "freq_hz"}


def renamed(*headers, **mapping):
    return hd.rename_headers(headers, mapping, "runs.csv")


def refusal(*headers, **mapping):
    return refusals.refusal(lambda: renamed(*headers, **mapping), "runs.csv: ")


def test_a_table_that_spells_its_seconds_as_ppw_does_has_no_other_time():
    assert renamed("host", "quota_throttled_s")["quota_throttled_s"].canonical == "time_s"
    assert "quota_throttled_s" not in renamed("host", "user_s", "quota_throttled_s")


class TestQuantities:
    def test_the_registry_has_the_units_of_the_definition_and_no_others(self):
        assert sorted(UNITS) == sorted(name for _, name, _ in DEFINED)

    @pytest.mark.parametrize(("si", "name", "factor"), DEFINED)
    def test_every_unit_is_read_behind_a_number_and_split_off_a_header(self, si, name, factor):
        assert parse_quantity(f"2.5{name}", si) == pytest.approx(2.5 * factor, rel=1e-15)
        with pytest.raises(MeasurementError, match="is not a quantity in"):
            parse_quantity(f"1{name}", "s" if si != "s" else "hz")
        # "Mj" and "Mw" are in no standard, and stay milli.
        for spelt in (name.lower(), name.capitalize()):
            for form in ("x_{}", "x ({})", "x [{}]", "x({})", "x[ {} ]"):
                base, unit = split_unit(form.format(spelt))
                assert (base, unit.si) == ("x", si)
                assert unit.factor == pytest.approx(factor, rel=1e-15)

    def test_quantities_are_read_in_si(self):
        for texts, si, value in (
            (["3.0GHz", "  3.0  GHz ", "3e9"], "hz", 3e9),
            *((["2400MHz"], "hz", 2.4e9), (["128MiB"], "bytes", 134_217_728)),
            *((["128MB"], "bytes", 128_000_000), (["95W", "95"], "w", 95), (["-3.5"], "w", -3.5)),
            *((["+.5kW"], "w", 500), (["1e3ms"], "s", 1), (["1E-3"], "s", 1e-3)),
            (["5µs", "5μs", "5us"], "s", 5e-6),
            *((["1.5 kWh"], "j", 5.4e6), (["2 hours"], "s", 7200)),
            *((["30d"], "s", 30 * 86_400), (["1 year"], "s", 365 * 86_400), (["40°C"], "c", 40)),
            # Small m is milli, capital M is mega.
            *((["5mJ"], "j", 5e-3), (["5MJ"], "j", 5e6), (["5mW"], "w", 5e-3), (["5MW"], "w", 5e6)),
        ):
            for text in texts:
                assert parse_quantity(text, si) == pytest.approx(value, rel=1e-15)

    def test_what_is_no_quantity_is_refused_in_one_line(self):
        for text in (
            *("", " ", "GHz", "3.0.0GHz", ".", "3,0GHz", "3 0GHz", "1_000", "0x10", "nan", "inf"),
            *("3THz", "3GHzz", "3 G Hz", "--3", "3e", "1e999GHz", "3\nGHz!", "3GHz 4GHz"),
        ):
            message = refusals.refusal(partial(parse_quantity, text, "hz"))
            assert repr(text) in message
            assert "hz, khz, mhz, ghz" in message

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_a_plain_number_is_si_to_the_last_bit(self, value):
        assert parse_quantity(repr(value), "w") == value

    def test_a_frequency_of_no_core_is_refused_with_a_hint(self):
        for texts, reason in (
            (["2.4", "2400", "2400kHz"], "is it in GHz or MHz"),
            (["9.9MHz"], "under 10 MHz"),
            (["20.1GHz", "2400GHz"], "is the unit too large"),
            (["0", "-1GHz"], "greater than 0"),
            (["3W", "fast"], "not a quantity in Hz"),
        ):
            for text in texts:
                with pytest.raises(MeasurementError, match=reason) as refused:
                    parse_frequency(text)
                assert repr(text) in str(refused.value)

    def test_frequencies_are_plausible_to_their_limits(self):
        for text, value in (("3.0GHz", 3e9), ("2400000kHz", 2.4e9), ("1.2e9", 1.2e9)):
            assert parse_frequency(text) == value
        assert (parse_frequency("10MHz"), parse_frequency("20GHz")) == (1e7, 2e10)
        assert "under" in implausible_frequency(math.nextafter(1e7, 0))
        assert "over" in implausible_frequency(math.nextafter(2e10, math.inf))


class TestUnitsInHeaders:
    def test_units_in_words_and_signs_and_headers_that_have_none(self):
        for header, base, si, factor in (
            *(("Time (seconds)", "Time", "s", 1), ("Time (sec)", "Time", "s", 1)),
            *(("run_minutes", "run", "s", 60), ("Time [hours]", "Time", "s", 3600)),
            *(("Power (Watts)", "Power", "w", 1), ("Energy (Joules)", "Energy", "j", 1)),
            *(("Temperature (°C)", "Temperature", "c", 1), ("Latency [μs]", "Latency", "s", 1e-6)),
            *(("Idle (p99) [ms]", "Idle (p99)", "s", 1e-3), ("Energy (mJ)", "Energy", "j", 1e-3)),
            ("Energy (MJ)", "Energy", "j", 1e6),
            *(("energy_MJ", "energy", "j", 1e6), ("energy_mj", "energy", "j", 1e-3)),
            # A header all in capitals says nothing about its m.
            *(("ENERGY_MJ", "ENERGY", "j", 1e-3), ("POWER (MW)", "POWER", "w", 1e-3)),
        ):
            assert split_unit(header) == (base, (si, factor))
        whole = ("workload", "_s", "(s)", "", "time_", "freq_thz", "Marks (iter/s)")
        for header in (*whole, "Time (s", "Time s)"):
            assert split_unit(header) == (header, None)

    def test_the_last_word_is_the_unit_of_a_quantity_that_is_known(self):
        for headers, si, factor in (
            (["run ms", "run in ms", "Time (in ms)", "Latency [ms] p99", "ms", "MS"], "s", 1e-3),
            (["RunMs", "CPUms", "p99ms", "elapsedms", "runms", "run.milliseconds"], "s", 1e-3),
            *((["run µs"], "s", 1e-6), (["Time S"], "s", 1.0), (["Input GB"], "bytes", 1e9)),
            (["ReqGB"], "bytes", 1e9),
            (["SizeKB", "size_kbytes", "Size kB", "sizekB"], "bytes", 1e3),
            *((["sizeKiB"], "bytes", 1024.0), (["diskB"], "bytes", 1.0)),
            *((["clock ghz"], "hz", 1e9), (["clockMHz", "CPUMHz"], "hz", 1e6)),
            *((["freqkHz"], "hz", 1e3), (["clockHz"], "hz", 1.0)),
            *((["avgmW"], "w", 1e-3), (["total MJ"], "j", 1e6)),
        ):
            assert {hd.unit_in_words(header, si) for header in headers} == {(si, factor)}
        # What only ends like a unit is none.
        for header in ("h", "items", "Columns", "time GB", "", "()", "wall"):
            assert hd.unit_in_words(header, "s") is None
        for header in ("run ms", "requests", "size"):
            assert hd.unit_in_words(header, "bytes") is None


class TestHeaders:
    def test_every_column_whose_unit_can_be_written_has_it_in_its_name(self):
        spelt = {"Hz": "hz", "s": "s", "W": "w", "B": "bytes", "J": "j", "V": "v", "°C": "c"}
        assert {name: hd.unit_of(name) for name in WITH_UNIT} == {
            name: spelt[column.unit] for name, column in COLUMNS.items() if column.unit in spelt
        }
        assert {hd.unit_of(name) for name in WITH_UNIT} == set(SI_FACTORS)

    @pytest.mark.parametrize("canonical", COLUMNS)
    def test_every_canonical_name_stands_for_itself_in_any_case(self, canonical):
        for header in (canonical, canonical.upper(), f" {canonical} ", f" {canonical.upper()} "):
            assert renamed(header) == {header: hd.Renaming(canonical)}

    @pytest.mark.parametrize(("canonical", "unit", "factor"), CONVERSIONS)
    def test_every_unit_behind_a_column_or_a_synonym_converts(self, canonical, unit, factor):
        base = canonical.rpartition("_")[0]
        headers = [form.format(base, unit) for form in ("{}_{}", "{} ({})", "{} [{}]", "{}({})")]
        headers += [header.title() for header in headers]
        synonyms = (s for s, c in SYNONYMS.items() if c == canonical and s not in UNIT_IN_NAME)
        for header in [*headers, *(f"{synonym} ({unit})" for synonym in synonyms)]:
            assert renamed(header) == {header: hd.Renaming(canonical, factor)}

    @pytest.mark.parametrize("synonym", SYNONYMS)
    def test_every_synonym_stands_for_its_column(self, synonym):
        canonical = SYNONYMS[synonym]
        needs_unit = bool(hd.unit_of(canonical)) and synonym not in UNIT_IN_NAME
        expected = hd.Renaming(canonical, 1.0, unit_in_cells=needs_unit)
        assert renamed(synonym) == {synonym: expected}
        assert renamed(synonym.upper()) == {synonym.upper(): expected}

    def test_a_rate_per_minute_is_a_sixtieth_of_one_per_second(self):
        for unit, factor in (("s", 1.0), ("ms", 1e3), ("min", 1 / 60), ("h", 1 / 3600)):
            header = f"throughput_ops_{unit}"
            expected = hd.Renaming("throughput_ops_s", pytest.approx(factor, rel=1e-15))
            assert renamed(header) == {header: expected}
            assert renamed("jobs_per_x", **{header: "jobs_per_x"}) == {"jobs_per_x": expected}
            header = f"jobs_per_{unit}"
            assert renamed(header, throughput_ops_s=header) == {header: expected}

    def test_spaces_dashes_underscores_and_forms_of_percent_do_not_matter(self):
        for header in ("Elapsed Time (s)", "elapsed-time [s]", "elapsed_time_s"):
            assert renamed(header) == {header: hd.Renaming("time_s")}
        percent = ("Load (%)", "load [%]", "Load %", "LOAD%", "load_pct")
        for header in (*percent, "load_percent", "Load (percent)"):
            assert renamed(header) == {header: hd.Renaming("load", 0.01)}
            assert "would all be load" in refusal(header, "load")

    def test_what_only_looks_like_a_column_is_left_alone(self):
        for header in (
            # A bare word that only looks like a column, a unit of something else, no share.
            *("user", "system", "idle", "data", "load_avg", "temperature"),
            *("power_kwh", "time_mhz", "Power (s)", "freq_s", "nsamples"),
            *("time_pct", "Cores (%)", "run_pct", "payload_pct"),
        ):
            assert renamed(header, "time_s") == {"time_s": hd.Renaming("time_s")}

    def test_a_synonym_beside_the_real_column_is_left_untouched(self):
        assert set(renamed("duration (s)", "time_s")) == {"time_s"}
        assert set(renamed("watts", "Power (mW)")) == {"Power (mW)"}
        assert set(renamed("frequency", "freq_mhz")) == {"freq_mhz"}

    def test_a_canonical_column_given_twice_is_an_error_that_map_resolves(self):
        for first, second, canonical in (
            *(("freq_hz", "freq_mhz", "freq_hz"), ("freq_khz", "freq_ghz", "freq_hz")),
            *(("Time (s)", "time_ms", "time_s"), ("host", "HOST", "host")),
            *(("machine", "server", "host"), ("duration_s", "elapsed_s", "time_s")),
        ):
            message = refusal(first, second)
            assert f"columns {first}, {second} would all be {canonical}" in message
            assert f"choose with --map {canonical}=COLUMN" in message
            assert renamed(first, second, **{canonical: first})[first].canonical == canonical
            assert len(renamed(first, second, **{canonical: first})) == 1

    def test_a_header_twice_is_an_error_and_nameless_ones_may_be_several(self):
        assert "names note more than once" in refusal("note", "time_s", "note")
        assert renamed("", "", "host") == {"host": hd.Renaming("host")}

    def test_map_uses_the_unit_of_the_header_or_else_of_the_target(self):
        for target, header, canonical, factor in (
            *(("freq_hz", "clock", "freq_hz", 1.0), ("freq_mhz", "clock", "freq_hz", 1e6)),
            *(("freq_khz", "clock", "freq_hz", 1e3), ("Freq (GHz)", "clock", "freq_hz", 1e9)),
            *((hz, "Clock (kHz)", "freq_hz", 1e3) for hz in ("freq_hz", "freq_khz")),
            *(("power_w", "P_mw", "power_w", 1e-3), ("energy_j", "Total (MJ)", "energy_j", 1e6)),
            *(("time_s", "wall (hours)", "time_s", 3600.0), ("time_s", "run ms", "time_s", 1e-3)),
            *(("time_ms", "run ms", "time_s", 1e-3), ("time_ms", "run", "time_s", 1e-3)),
            *(("data_bytes", "Input GB", "data_bytes", 1e9), ("rack", "Zone", "rack", 1.0)),
            *(("data_kib", "Input KB", "data_bytes", 1024.0), ("load_pct", "u", "load", 0.01)),
            ("throughput_ops_s", "jobs per min", "throughput_ops_s", 1 / 60),
            ("throughput_ops_s", "CoreMarks (iter/s)", "throughput_ops_s", 1.0),
            *(("power_w", "power_c", "power_w", 1.0), ("workload", "CPU", "workload", 1.0)),
            *(("workload", "test_c", "workload", 1.0), ("cores", "n_c", "cores", 1.0)),
            ("load", "Use (%)", "load", 0.01),
            # What a header says by itself counts less.
            ("latency_p99_s", "time_s", "latency_p99_s", 1.0),
            # A setting of the same name is no slip of another column.
            ("connections", "Conns", "connections", 1.0),
            ("instruction", "Instruction", "instruction", 1.0),
        ):
            found = renamed("x", header, **{target: header})
            assert found == {header: hd.Renaming(canonical, factor)}

    @pytest.mark.cases(
        "headers, mapping, said",
        (["f (kHz)"], {"freq_mhz": "f (kHz)"}, "--map freq_mhz=f (kHz): the two names carry"),
        (["run ms"], {"time_us": "run ms"}, "carry different units; write time_s=run ms"),
        (["E (J)"], {"power_w": "E (J)"}, "the column is not in W, by its header"),
        (["Clock"], {"freq_hz": "Clok"}, f"'Clok', {LACKS} (did you mean 'Clock'?)"),
        (["a", "b"], {"freq_hz": "Frequency"}, f"{LACKS}; the columns are a, b"),
        *(
            (["x"], {slip: "x"}, f"no column '{slip}' (did you mean '{column}'?)")
            for slip, column in SLIPS.items()
        ),
        (["f"], {"freq_hz": "f", "freq_achieved_hz": "f"}, "'f' all of freq_hz, freq_ach"),
        *(
            ([c, other], {c: other}, f"would all be {c}: drop or rename the column {c}")
            for c, other in (("time_s", "wall_s"), ("rack", "zone"))
        ),
        (["a", "b"], {"freq_hz": "a", "freq_mhz": "b"}, "columns a, b would all be freq_hz"),
    )
    def test_a_map_that_cannot_be_is_an_error_that_names_the_way_out(self, headers, mapping, said):
        assert said in refusal(*headers, **mapping)

    def test_units_of_one_dimension_that_differ_by_their_kilo_do_not_contradict_each_other(self):
        assert hd.mapped_factor("size_kib", "KB", 1024.0, 1e3, "size_bytes", "t.csv") == 1024.0

    def test_far_too_many_columns_are_an_error_that_gives_their_number(self):
        assert f"{hd.MOST_COLUMNS + 1} columns" in refusal(*map(str, range(hd.MOST_COLUMNS + 1)))
        assert renamed(*map(str, range(hd.MOST_COLUMNS))) == {}

    @given(st.lists(st.text(max_size=12), unique=True, max_size=8))
    def test_any_headers_are_renamed_once_each_or_refused_in_one_line(self, headers):
        refusal, renamings = "", {}
        try:
            renamings = renamed(*headers)
        except MeasurementError as error:
            refusal = str(error)
        assert "\n" not in refusal
        splits = {header: split_unit(header) for header in headers}
        assert all(h.startswith(base) for h, (base, _) in splits.items())
        assert all(base == h for h, (base, unit) in splits.items() if unit is None)
        final = [renamings[h].canonical if h in renamings else h for h in headers]
        assert set(renamings) <= set(headers)
        assert len(set(final)) == len(final)

    def test_nearest_suggests_in_any_case_and_the_spelling_that_is_there(self):
        for name in ("Hots", "HOST"):
            assert hd.nearest(name, ["Host", "time_s"]) == " (did you mean 'Host'?)"
        assert hd.nearest("qqq", ["Host", "time_s"]) == ""

    def test_shown_names_the_first_and_counts_the_rest_in_one_line(self):
        assert hd.list_names(["a", "b\nc"]) == "a, b c"
        assert hd.list_names(["x"] * 12) == ", ".join(["x"] * 12)
        assert hd.list_names(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
        assert hd.list_names(["y" * 41]) == "y" * 37 + "…"
