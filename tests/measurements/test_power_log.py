"""CSV logs that grow, turn over and break off, and the clock offset of one by its runs."""

import contextlib
import csv
import dataclasses
import functools
import json
import math
import os
import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
import refusals
from hypothesis import given, strategies as st
from peers.waiting import wait_for
from processes import ppw_process
from scipy.stats import chi2

from measurements.errors import MeasurementError
from measurements.power import power_log as pl
from measurements.power.energy import estimate_clock_offset
from measurements.power.sampler import HEADER as SAMPLES_HEADER
from measurements.power.source import Channel, SensorError, SourceSettings
from measurements.sweep.session import Session, session_rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
HEADER = "time,power_w\n"


def rows(*watts, start=NOON):
    return "".join(f"{start + n},{value}\n" for n, value in enumerate(watts))


@pytest.fixture
def log(tmp_path):
    return tmp_path / "wall.csv"


@contextlib.contextmanager
def opened(log, text=None, **options):
    if text is not None:
        log.write_text(text)
    with contextlib.closing(pl.open_source(str(log), SourceSettings(options=options))) as source:
        yield source


def append(log, text):
    with log.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def figures(source):
    return [reading.value for reading in source.read()]


refusal = functools.partial(refusals.refusal, error=SensorError)


def refused_opening(log, text=None, **options):
    return refusal(opened(log, text, **options).__enter__)


def test_rows_come_once_and_with_their_own_time(log):
    with opened(log, HEADER + rows(100, 101, 102)) as source:
        (channel,) = source.channels
        assert (channel.label, channel.quantity, channel.domain) == ("log:wall", "power", "other")
        assert channel.window_s == source.period_s == 1.0
        assert channel.note == ""
        assert source.read() == []
        now, here = time.time(), time.monotonic()
        append(log, rows(200, 201, 202, start=now))
        readings = source.read()
        assert [r.value for r in readings] == [200.0, 201.0, 202.0]
        assert [r.source_at_s for r in readings] == pytest.approx([now, now + 1, now + 2])
        # The log's now is this host's now.
        assert readings[0].at_s == pytest.approx(here, abs=5.0)
        assert readings[2].at_s - readings[0].at_s == pytest.approx(2.0, abs=1e-3)
        assert source.read() == []


def test_earlier_rows_are_given_if_asked_for_and_growth_costs_what_is_new(log, monkeypatch):
    log.write_text(HEADER + rows(*range(1, 20001)))
    assert log.stat().st_size > 2 * pl.RECENT_BYTES
    taken, pread = [], os.pread
    with opened(log) as source:
        append(log, rows(5, start=NOON + 20000))
        assert figures(source) == [5.0]
    with opened(log, past="yes") as source:
        assert source.period_s == 1.0
        assert figures(source) == [float(n) for n in range(1, 20001)] + [5.0]
        monkeypatch.setattr(os, "pread", lambda *w: taken.append(block := pread(*w)) or block)
        for n in range(100):
            append(log, rows(7, start=NOON + n))
            assert figures(source) == [7.0]
            assert figures(source) == []
    assert sum(map(len, taken)) < 100 * 200


@given(st.data())
def test_however_a_log_is_written_each_row_comes_once_and_whole(tmp_path_factory, data):
    log = tmp_path_factory.mktemp("log") / "wall.csv"
    watts = data.draw(st.lists(st.integers(1, 10**6), max_size=30))
    text = "".join(f'{NOON + n},"{value}.5"\r\n' for n, value in enumerate(watts)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    seen = []
    with opened(log, HEADER) as source:
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            append(log, text[start:end])
            seen += figures(source)
    assert seen == [value + 0.5 for value in watts]


def test_figures_and_what_is_none(log):
    said = ("245.5", " 245.5 ", "245.5 W", "0.2455kW", "2.455e2", '"245.5"')
    none = ("", "0", "-3", "nan", "inf", "n/a", "12 V", "1.2.3")
    with opened(log, HEADER) as source:
        for text in (*said, *none):
            append(log, rows(text))
            value = 245.5 if text in said else math.nan
            assert figures(source) == pytest.approx([value], nan_ok=True), text


def test_short_rows_remarks_blank_lines_and_repeated_headers(log):
    with opened(log, f"# Logger 7\n#\n\n{HEADER}") as source:
        assert source.period_s == source.channels[0].window_s == 0.0
        append(log, f"{NOON}\n\n# restarted\n{HEADER},\n{rows(100)}{NOON},100,more\n")
        assert figures(source) == pytest.approx([math.nan, 100.0, 100.0], nan_ok=True)
        for line in ("# remark\n", HEADER, "\n"):
            append(log, 3 * line)
            assert figures(source) == []
    for past in ("yes", "no"):
        with opened(log, "Logger 7, version 2\n" + HEADER, past=past) as source:
            assert source.period_s == source.channels[0].window_s == 0.0
            assert source.read() == []


def test_one_row_without_a_time_is_an_accident_and_three_are_not(log):
    with opened(log, HEADER + rows(100)) as source:
        append(log, "\0\0\0,5\n" + rows(101) + "later,102\n")
        assert figures(source) == [101.0]
        append(log, "later,103\nlater,104\n")
        assert refusal(source.read).startswith(f"{log}: 'later' is no time")
        append(log, "later,105\nlater,106\n")
        assert figures(source) == []
        append(log, rows(107))
        assert figures(source) == [107.0]
        append(log, "later,108\nlater,109\n")
        assert figures(source) == []


def test_skipping_keeps_the_whole_lines_at_the_end(log):
    # Seven lines of 60 bytes.
    text = [f"{n:059}" for n in range(7)]
    for but_bytes, kept in {0: 0, 1: 0, 59: 0, 60: 1, 61: 1, 119: 1, 120: 2, 999: 7}.items():
        log.write_text("".join(f"{line}\n" for line in text))
        with contextlib.closing(pl.Tail(log)) as tail:
            tail.skip(but_bytes)
            found = tail.poll()
            assert [line for lines in found for line in lines.lines] == text[7 - kept :]
            append(log, "more\n")
            assert tail.poll() == [pl.FileLines(["more"], first=False)]
            assert all(lines.first == (kept == 7) for lines in found)
            tail.close()


def test_rotation_loses_no_row(log):
    with opened(log, HEADER + rows(100)) as source, log.open("a", buffering=1) as writer:
        log.rename(log.with_suffix(".1"))
        # The logger has the old file open until it is told.
        writer.write(rows(101, 102))
        assert figures(source) == [101.0, 102.0]
        log.touch()
        writer.write(rows(103))
        assert figures(source) == [103.0]
        writer.write(rows(104))
        log.write_text("power_mw,time\n" + f"105000,{NOON}\n")
        assert figures(source) == [104.0, 105.0]
        append(log, f"106000,{NOON}\n")
        assert figures(source) == [106.0]


def test_a_file_that_is_emptied_or_begun_anew_goes_on_with_or_without_a_header(log):
    with opened(log, HEADER + rows(100, 101, 102)) as source:
        log.write_text("")
        assert figures(source) == []
        append(log, rows(103))
        assert figures(source) == [103.0]
        # Longer than what was read before, and still another text.
        for watts in ((104,), range(200, 220)):
            log.write_text(HEADER + rows(*watts))
            assert figures(source) == [float(n) for n in watts]
        log.unlink()
        assert figures(source) == []
        log.write_text("Logger 7, version 2\n")
        assert figures(source) == []
        append(log, HEADER + rows(101))
        assert figures(source) == [101.0]
        for text, said in (
            ("voltage,current\n" * 100, "the time"),
            ("time,energy_j\n" + rows(100), "was started again with energy instead of power"),
        ):
            log.unlink()
            log.write_text(text)
            assert said in refusal(source.read)


def test_what_is_no_file_to_follow(log, tmp_path):
    said = "cannot be read: No such file or directory: start the logger first"
    assert said in refused_opening(log)
    assert "is no file" in refused_opening(tmp_path)
    os.mkfifo(log)
    assert "is no file" in refused_opening(log)
    log.unlink()
    assert "no line has two columns: start the logger first" in refused_opening(log, "")
    assert "no line has two columns" in refused_opening(log, "one\ntwo\n")
    long = f"{HEADER}{'9' * 200_000}"
    assert "has a line of more than 64 KiB" in refused_opening(log, long)
    with opened(log, HEADER) as source:
        append(log, long)
        assert "has a line of more than 64 KiB" in refusal(source.read)
    log.write_bytes(HEADER.encode("utf-16"))
    assert "is UTF-16" in refused_opening(log)
    assert "log needs a file" in refusal(lambda: pl.open_source(None, SourceSettings()))


def test_energy_is_a_counter_in_joules_and_energy_of_each_row_is_none(log):
    for unit, joules in {"J": 2.0, "kJ": 2e3, "Wh": 7.2e3, "kWh": 7.2e6}.items():
        for options in ({"unit": unit}, {"unit": unit, "quantity": "energy"}):
            with opened(log, "time,meter\n", value="meter", **options) as source:
                (channel,) = source.channels
                assert (channel.quantity, channel.window_s) == ("energy", 0.0)
                append(log, rows(0, 2, -1, start=NOON))
                assert figures(source) == pytest.approx([0.0, joules, math.nan], nan_ok=True)
        with opened(log, f"time,Energy ({unit})\n" + rows(1, 2, 3)) as source:
            append(log, rows(2))
            assert figures(source) == [joules]
    for said, reason in (
        ([5, 4] * 20, "the energy falls 20 times in 40 rows, so it is not a counter"),
        ([5, 4, 5, 4, 5], "falls 2 times in 5 rows"),
    ):
        assert reason in refused_opening(log, "time,energy_j\n" + rows(*said))
    # Short, of a host that sleeps, and set back once.
    for said in ([5, 4], [5] * 10, [*range(20), *range(20)]):
        with opened(log, "time,energy_j\n" + rows(*said)) as source:
            assert source.channels[0].quantity == "energy"


FOUR = "time,cpu_power_w,psu_power_w,energy_j,u"


@pytest.mark.cases(
    "header, options, said",
    (FOUR, {}, "choose with value=COLUMN among cpu_power_w, psu_power_w, energy_j"),
    (FOUR, {"quantity": "power"}, "can be power, by name: choose with value=COLUMN among cpu"),
    (FOUR, {"value": "psu_powr_w"}, "no such column (did you mean 'psu_power_w'?)"),
    (FOUR, {"value": "4", "quantity": "power"}, "column 'energy_j' is of energy"),
    (FOUR, {"value": "9"}, "value=9: no such column; the columns are time, cpu_power_w"),
    ("time,timestamp,power_w", {}, "several columns can be the time"),
    ("date,time,timestamp,power_w", {}, "choose with time=COLUMN among time, timestamp"),
    ("time,p,p", {"value": "p", "unit": "W"}, "2 columns are called 'p': give the number of"),
    ("when,p,u", {}, "no column can be the time, by name: choose with time=COLUMN among when"),
    ("when,p,u", {"time": "when"}, "choose with value=COLUMN among when, p, u"),
    ("time,power", {}, "column 'power' names no unit: write unit=W"),
    ("time,power_w", {"vlue": "p"}, "no option vlue: it has domain, name, offset, past"),
    (HEADER.strip(), {"unit": "BTU"}, "unit=BTU: write one of W, mW, kW, J, kJ, Wh, kWh"),
    (HEADER.strip(), {"quantity": "voltage"}, "quantity=voltage: write power or energy"),
    (HEADER.strip(), {"quantity": "power", "unit": "Wh"}, "is not what unit=Wh measures"),
    (HEADER.strip(), {"offset": "soon"}, "offset=soon: write a number of seconds"),
    (HEADER.strip(), {"offset": "inf"}, "offset=inf: write a number of seconds"),
    (HEADER.strip(), {"past": "maybe"}, "past=maybe: write yes or no"),
    (HEADER.strip(), {"domain": "room"}, "domain=room: write one of package, core"),
)
def test_what_is_ambiguous_or_cannot_be_is_named(log, header, options, said):
    assert said in refused_opening(log, header + "\n", **options)


def test_columns_are_found_by_name_or_as_chosen(log):
    for header, options, said, value in (
        *(("time,power_w", {}, "245.5", 245.5), ("Timestamp,Power (W),Note", {}, "245.5", 245.5)),
        *(("epoch\tkW", {}, "0.2455", 245.5), ("Date;Power [mW];U [V]", {}, "245500;2", 245.5)),
        *(("#time|Watts", {}, "245.5", 245.5), ("\ufefftime,watts", {}, "245.5", 245.5)),
        ('"time", "Power, total (W)"', {}, "245.5", 245.5),
        ("DateTime;Active Power [W]", {}, "245,5", 245.5),
        *((FOUR, {"quantity": "energy"}, "1,2,3,4", 3.0), (FOUR, {"unit": "kJ"}, "1,2,3,4", 3e3)),
        *((FOUR, {"value": column}, "1,2,3,4", 3.0) for column in ("ENERGY_J", "4")),
        ("time,power", {"unit": "mW"}, "2500", 2.5),
        # What the user says holds against the header.
        ("time,power_mw", {"unit": "W"}, "250", 250.0),
    ):
        delimiter = next(d for d in "|;\t," if d in header)
        with opened(log, header + "\n", **options) as source:
            assert source.channels[0].quantity == ("energy" if header == FOUR else "power")
            append(log, f"{NOON}{delimiter}{said}\n")
            assert figures(source) == [value]


def test_a_log_without_a_header_is_read_by_numbers(log):
    log.write_text(rows(100, 101))
    assert "choose with time=COLUMN" in refused_opening(log)
    assert "names no unit" in refused_opening(log, time="1", value="2")
    with opened(log, time="1", value="2", unit="W", past="yes") as source:
        assert source.period_s == 1.0
        assert figures(source) == [100.0, 101.0]
        append(log, rows(102))
        assert figures(source) == [102.0]
        log.write_text("# restarted\n" + rows(103, 104))
        assert figures(source) == [103.0, 104.0]


def test_times_of_many_kinds(log):
    for text in (
        *(f"{NOON:.3f}", *(f"{NOON * unit:.0f}" for unit in (1, 1e3, 1e6, 1e9))),
        *("2026-03-01T12:00:00Z", "2026-03-01 12:00:00+00:00", "2026-03-01 13:00:00 +0100"),
        *("2026/03/01 12:00:00 UTC", "2026-03-01T12:00:00.000000000Z", "20260301T120000Z"),
    ):
        with opened(log, f"{HEADER}{text},100\n", past="yes") as source:
            (reading,) = source.read()
            assert reading.source_at_s == pytest.approx(NOON, abs=1e-3), text
            assert source.channels[0].note == ""


def test_times_without_a_zone_are_local_and_say_so(log, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        for header, text, note in (
            ("time", "2026-03-01 17:45:00", "times without a time zone are taken as local time"),
            ("Time (UTC)", "2026-03-01 12:00:00", ""),
        ):
            with opened(log, f"{header},power_w\n{text},100\n", past="yes") as source:
                assert source.read()[0].source_at_s == NOON
                assert source.channels[0].note == note
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.datetimes(datetime(2000, 1, 2), datetime(2099, 12, 30)), st.integers(-14 * 60, 14 * 60))
def test_every_iso_time_with_a_zone_is_read_exactly(moment, minutes):
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert pl.TimeReader().read(zoned.isoformat()) == zoned.timestamp()


def test_times_that_cannot_be_read_are_refused_with_the_remedy(log):
    for text, remedy in {
        "12:00:01": "has no date: name the column of the date too (time=Date+Time)",
        "2026-03-01": "is no time: let the logger write ISO 8601",
        "01.03.2026 12:00": "is no time: let the logger write ISO 8601",
        "3/1/2026 12:00:00": "is no time",
        "12.5": "or give offset=SECONDS of the log's start since 1970",
        "nan": "is no time since 1970",
        "": "is no time",
    }.items():
        assert remedy in refused_opening(log, f"{HEADER}{text},100\n"), text


def test_the_unit_of_the_first_time_holds_for_all_and_numbers_are_of_this_century():
    times = pl.TimeReader()
    assert times.read(f"{NOON * 1e3:.0f}") == NOON
    for text in ("946684800", "4102444799", "946684800000"):
        assert pl.TimeReader().read(text) in (946684800.0, 4102444799.0)
    for reader, text in (
        (times, NOON),
        (pl.TimeReader(), 946684799),
        (pl.TimeReader(), 4102444800),
    ):
        with pytest.raises(pl.BadTimeError):
            reader.read(f"{text:.0f}")


def test_date_and_time_in_two_columns(log):
    two = "Date,Time,Power (W)\n2026-03-01,12:00:00Z,100\n"
    one = "Date+Time,Power (W)\n2026-03-01 12:00:00Z,100\n"
    for text, time_column in ((two, ""), (two, "Date+Time"), (two, "1+2"), (one, "Date+Time")):
        options = {"time": time_column} if time_column else {}
        with opened(log, text, past="yes", **options) as source:
            assert source.read()[0].source_at_s == NOON
    assert "has no date" in refused_opening(log, two, time="Time")


def test_an_offset_moves_the_log_to_this_clock(log):
    log.write_text(HEADER + rows(100, start=NOON))
    with opened(log, past="yes") as source, opened(log, past="yes", offset="-2.5") as moved:
        (plain,), (shifted,) = source.read(), moved.read()
        assert shifted.at_s - plain.at_s == pytest.approx(-2.5, abs=0.1)
        assert shifted.source_at_s == plain.source_at_s == NOON
        assert moved.channels[0].note == "clock offset -2.5 s"
        assert not moved.channels[0].other_clock
    with opened(log, offset="auto", name="psu", domain="wall", value="power_w") as source:
        (channel,) = source.channels
        assert (channel.label, channel.domain, channel.other_clock) == ("log:psu", "wall", True)
    # Seconds since the start of the log.
    here = time.monotonic() + 0.5
    with opened(log, HEADER + "0.5,100\n", past="yes", offset=f"{time.time():.1f}") as source:
        assert source.read()[0].at_s == pytest.approx(here, abs=5.0)


RUNS = [(100.0, 130.0), (145.0, 190.0), (250.0, 265.0)]


def made_up_log(offset_s, period_s, noise_w, seed=1, runs=RUNS):
    """Rows by a clock that is early by ``offset_s``: 100 W in pauses and 200 W in runs."""
    by_host = np.arange(0.0, 400.0, period_s) + 0.37 * period_s
    inside = np.any([(by_host >= start) & (by_host < end) for start, end in runs], axis=0)
    noise = np.random.default_rng(seed).normal(0.0, noise_w, len(by_host))
    return by_host - offset_s, 100.0 + 100.0 * inside + noise


@pytest.mark.parametrize("period_s", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("offset_s", [-41.3, 0.0, 17.77])
def test_the_offset_comes_back_within_its_uncertainty(offset_s, period_s):
    for seed in range(10):
        times, watts = made_up_log(offset_s, period_s, 10.0, seed)
        found = estimate_clock_offset(times, watts, RUNS)
        assert abs(found.offset_s - offset_s) <= found.uncertainty_s
        assert 0.499 * period_s < found.uncertainty_s < 2 * period_s
        assert found.share > 0.8


def test_the_best_offset_is_that_of_the_largest_correlation():
    times, watts = made_up_log(7.0, 1.0, 120.0)
    found = estimate_clock_offset(times, watts, RUNS)

    def share(offset):
        inside = np.any([(times >= s - offset) & (times < e - offset) for s, e in RUNS], axis=0)
        return np.corrcoef(inside, watts)[0, 1] ** 2

    offsets = np.linspace(-60.0, 60.0, 2401)
    shares = np.array([share(offset) for offset in offsets])
    assert found.share == pytest.approx(shares.max())
    # Offsets that a test of their likelihood ratio at 0.10 does not reject.
    ratio = -len(times) * (np.log1p(-shares.max()) - np.log1p(-shares))
    fitting = offsets[ratio < chi2.ppf(0.90, 1)]
    assert np.ptp(fitting) > 1.5
    assert found.offset_s == pytest.approx((fitting[0] + fitting[-1]) / 2)
    assert found.uncertainty_s == pytest.approx(np.ptp(fitting) / 2)


def test_order_gaps_and_rows_without_a_figure_do_not_matter():
    times, watts = made_up_log(5.0, 1.0, 5.0)
    whole = estimate_clock_offset(times, watts, RUNS)
    order = np.random.default_rng(2).permutation(len(times))
    with_gaps = np.append(times[order], times[:3]), np.append(watts[order], [np.nan] * 3)
    assert estimate_clock_offset(*with_gaps, RUNS[::-1]) == whole
    cut = [RUNS[0], (145.0, 160.0), (160.0, 190.0), RUNS[2]]
    assert estimate_clock_offset(times, watts, cut) == whole
    thrice = estimate_clock_offset(np.repeat(times, 3), np.repeat(watts, 3), RUNS)
    assert thrice.offset_s == pytest.approx(whole.offset_s, abs=0.5)


def test_runs_at_regular_intervals_or_out_of_reach_give_no_offset():
    runs = [(100.0 + 20 * n, 110.0 + 20 * n) for n in range(10)]
    times = np.arange(0.0, 400.0, 0.5)
    endless = times, 100.0 + 100.0 * (times % 20 < 10)
    early, late = made_up_log(-20.0, 1.0, 5.0), made_up_log(20.0, 1.0, 5.0)
    for shown, spans, reach_s in ((endless, runs, 60.0), (early, RUNS, 20.0), (late, RUNS, 20.0)):
        with pytest.raises(MeasurementError, match=f"is at the limit of {reach_s:g} s"):
            estimate_clock_offset(*shown, spans, reach_s=reach_s)
    found = estimate_clock_offset(*made_up_log(100.0, 1.0, 5.0), RUNS, reach_s=150.0)
    assert found.offset_s == pytest.approx(100, abs=1)


def test_logs_and_runs_that_tell_no_offset():
    any_s = range(400)
    for times, watts, runs, reason in (
        ([0, 1, 2], [1, 2, 3], RUNS, "3 rows with a figure, 4 at different times are needed"),
        ([0, 0, 0, 0], [1, 2, 3, 4], RUNS, "4 at different times are needed"),
        ([0, 1], [1], RUNS, r"\(2,\) times for \(1,\) power values"),
        (any_s, [100.0] * 400, RUNS, "do the runs take more power than the pauses"),
        *((any_s, any_s, [], "no runs: give"), (any_s, any_s, [(5, 5)], "must end after they st")),
        (any_s, any_s, [(5, 9), (8, 12)], "not overlap"),
    ):
        with pytest.raises(MeasurementError, match=reason):
            estimate_clock_offset(times, watts, runs)


def sweep(folder, offset_s, quantity, runs=3):
    """Sweep with the rows of a log that is early by ``offset_s``: 100 W idle, 200 W in runs."""
    own, watts = made_up_log(offset_s, 0.5, 3.0, runs=RUNS[:runs])
    at = np.floor(2 * (own + offset_s)) / 2
    window_s = 0.5 if quantity == "power" else 0.0
    channel = Channel("log:pdu", quantity, "wall", window_s=window_s, other_clock=True)
    known = {k: None if v != v else v for k, v in dataclasses.asdict(channel).items()}
    plan = {"host": "far", "family": None, "workload": "w", "data_bytes": None, "price": None}
    session = Session.create(folder, plan | {"channels": [known]})
    values = watts if quantity == "power" else np.cumsum(watts * 0.5)
    spans = [("idle", 61.0, 99.0), *(("run", *span) for span in RUNS[:runs])]
    begin = 0.0
    for number, (kind, start, end) in enumerate(spans):
        # A log is read as it grows: what came since the last run is in the file of the next.
        until = 300.0 if number == len(spans) - 1 else end
        chosen = (at > begin) & (at <= until)
        begin = until
        with session.samples(number).open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(SAMPLES_HEADER)
            for t, value in zip(at[chosen], values[chosen], strict=True):
                out.writerow(("log:pdu", f"{t - offset_s:.6f}", repr(float(value)), repr(float(t))))
        record = {"run": number, "kind": kind, "start_s": start, "end_s": end, "repeat": number}
        record |= {"exit_code": 0, "executions": 1, "freq_hz": 2e9, "cores": 1}
        session.append(record | {"facts": {}, "failures": {}, "started_at": "2026-01-01T00:00:00Z"})
    return session


@pytest.mark.parametrize("quantity", ["power", "energy"])
@pytest.mark.parametrize("offset_s", [-31.5, 0.0, 12.25])
def test_watts_of_a_clock_that_is_off_are_those_of_one_that_is_right(tmp_path, offset_s, quantity):
    found = session_rows(sweep(tmp_path / "sweep", offset_s, quantity))
    right = session_rows(sweep(tmp_path / "right", 0.0, quantity))
    for row, as_right in zip(found, right, strict=True):
        assert row["power_w"] == pytest.approx(as_right["power_w"], rel=0.05)
        assert row["power_w"] == pytest.approx(200.0, rel=0.05)
        assert row["idle_power_w"] == pytest.approx(100.0, rel=0.05)
        told = float(row["notes"].split("log:pdu: clock offset ")[1].split(" s")[0])
        assert told == pytest.approx(offset_s, abs=0.8)


def test_an_offset_that_is_not_known_leaves_no_watts(tmp_path):
    (row,) = session_rows(sweep(tmp_path / "sweep", 90.0, "power", runs=1))
    assert "power_w" not in row
    assert "log:pdu: clock offset: " in row["notes"]


@pytest.mark.peer("measure")
def test_measured_with_a_log_whose_clock_is_off(tmp_path):
    log, load, ended = tmp_path / "watts.csv", tmp_path / "load", threading.Event()

    def write():
        """Log a host's watts under load by a clock that is ahead by 7 s."""
        with log.open("w") as file:
            file.write(HEADER)
            while not ended.wait(0.05):
                watts = (250.0 if load.exists() else 50.0) + 5 * np.sin(time.time())
                file.write(f"{time.time() + 7.0:.3f},{watts}\n")
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    wait_for(lambda: log.exists() and log.stat().st_size > 200)
    work = f"sleep 0.4; touch {load}; sleep 1; rm {load}; sleep 0.4"
    done = ppw_process(
        *("measure", "-o", "runs.jsonl", "--power", f"log@{log},offset=auto,domain=wall"),
        *("--idle", "1s", "--settle", "0s", "--as-found", "--clock", "2GHz", "--repeats", "3"),
        *("--metric", "time,power", "--", "sh", "-c", work),
        cwd=tmp_path,
    )
    ended.set()
    thread.join()
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    told = [float(row["notes"].split("clock offset ")[1].split(" s")[0]) for row in measured]
    assert told == [pytest.approx(-7.0, abs=0.7)] * 3
    assert [row["power_w"] for row in measured] == [pytest.approx(175.0, abs=60.0)] * 3
