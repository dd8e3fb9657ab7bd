"""CSV logs that grow, turn over and break off, and the clock offset of one."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from measurements.errors import MeasurementError
from measurements.power import registry
from measurements.power.clock_offset import ClockOffset, estimate_clock_offset
from measurements.power.log_columns import Wanted, find_layout
from measurements.power.log_tail import Lines, Tail
from measurements.power.log_times import BadTimeError, TimeReader
from measurements.power.power_log import RECENT_BYTES, PowerLog, open_source
from measurements.power.protocol import SensorError, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
HEADER = "time,power_w\n"


def rows(*watts: object, start: float = NOON) -> str:
    return "".join(f"{start + n},{value}\n" for n, value in enumerate(watts))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "wall.csv"


@contextlib.contextmanager
def opened(log: Path, **options: str) -> Iterator[PowerLog]:
    with contextlib.closing(open_source(str(log), SourceSettings(options=options))) as source:
        yield source


def append(log: Path, text: str | bytes) -> None:
    with log.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def figures(source: PowerLog) -> list[float]:
    return [reading.value for reading in source.read()]


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(SensorError) as refused:
        read()
    message = str(refused.value)
    assert "\n" not in message
    return message


def refused_opening(log: Path, **options: str) -> str:
    def read() -> None:
        with opened(log, **options):
            pass

    return refusal(read)


# Rows.


def test_rows_come_once_and_with_their_own_time(log: Path) -> None:
    log.write_text(HEADER + rows(100, 101, 102))
    with opened(log) as source:
        (channel,) = source.channels
        assert (channel.label, channel.quantity, channel.domain) == ("log:wall", "power", "other")
        assert channel.window_s == source.period_s == 1.0
        assert channel.note == ""
        assert source.read() == []
        now = time.time()
        append(log, rows(200, 201, 202, start=now))
        readings = source.read()
        assert [r.value for r in readings] == [200.0, 201.0, 202.0]
        assert [r.source_at_s for r in readings] == pytest.approx([now, now + 1, now + 2])
        # The log's now is this host's now.
        assert readings[0].at_s == pytest.approx(time.monotonic(), abs=5.0)
        assert readings[2].at_s - readings[0].at_s == pytest.approx(2.0, abs=1e-3)
        assert source.read() == []


def test_rows_from_before_the_opening_are_given_if_asked_for(log: Path) -> None:
    log.write_text(HEADER + rows(*range(1, 20001)))
    assert log.stat().st_size > 2 * RECENT_BYTES
    with opened(log) as source:
        append(log, rows(5, start=NOON + 20000))
        assert figures(source) == [5.0]
    with opened(log, past="yes") as source:
        assert source.period_s == 1.0
        assert figures(source) == [float(n) for n in range(1, 20001)] + [5.0]
        assert figures(source) == []


@given(st.data())
def test_however_a_log_is_written_each_row_comes_once_and_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = tmp_path_factory.mktemp("log") / "wall.csv"
    watts = data.draw(st.lists(st.integers(1, 10**6), max_size=30))
    text = "".join(f'{NOON + n},"{value}.5"\r\n' for n, value in enumerate(watts)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    log.write_text(HEADER)
    seen = []
    with opened(log) as source:
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            append(log, text[start:end])
            seen += figures(source)
    assert seen == [value + 0.5 for value in watts]


def test_a_last_line_waits_for_its_end(log: Path) -> None:
    log.write_text(HEADER + rows(100) + f"{NOON + 1},20")
    with opened(log) as source:
        assert figures(source) == []
        append(log, "0.5")
        assert figures(source) == []
        append(log, "\n")
        assert figures(source) == [200.5]


def test_growth_costs_what_is_new_and_not_the_whole_file(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text(HEADER + rows(*range(1, 20001)))
    taken = []
    pread = os.pread

    def counted(file: int, count: int, offset: int) -> bytes:
        block = pread(file, count, offset)
        taken.append(len(block))
        return block

    with opened(log) as source:
        monkeypatch.setattr(os, "pread", counted)
        for n in range(100):
            append(log, rows(7, start=NOON + n))
            assert figures(source) == [7.0]
    assert sum(taken) < 100 * 200


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("245.5", 245.5),
        (" 245.5 ", 245.5),
        ("245.5 W", 245.5),
        ("0.2455kW", 245.5),
        ("2.455e2", 245.5),
        ('"245.5"', 245.5),
        *((said, math.nan) for said in ("", "0", "-3", "nan", "inf", "n/a", "12 V", "1.2.3")),
    ],
)
def test_figures_and_what_is_none(log: Path, said: str, value: float) -> None:
    log.write_text(HEADER)
    with opened(log) as source:
        append(log, rows(said))
        assert figures(source) == pytest.approx([value], nan_ok=True)


def test_short_rows_remarks_blank_lines_and_repeated_headers(log: Path) -> None:
    log.write_text(f"# Logger 7\n#\n\n{HEADER}")
    with opened(log) as source:
        append(log, f"{NOON}\n\n# restarted\n{HEADER},\n{rows(100)}{NOON},100,more\n")
        assert figures(source) == pytest.approx([math.nan, 100.0, 100.0], nan_ok=True)
        for line in ("# remark\n", HEADER, "\n"):
            append(log, 3 * line)
            assert figures(source) == []


def test_one_row_without_a_time_is_an_accident_and_three_are_not(log: Path) -> None:
    log.write_text(HEADER + rows(100))
    with opened(log) as source:
        append(log, "\0\0\0,5\n" + rows(101) + "later,102\n")
        assert figures(source) == [101.0]
        append(log, "later,103\nlater,104\n")
        message = refusal(source.read)
        assert message.startswith(f"{log}: 'later' is no time")
        append(log, "later,105\nlater,106\n")
        assert figures(source) == []
        append(log, rows(107))
        assert figures(source) == [107.0]
        append(log, "later,108\nlater,109\n")
        assert figures(source) == []


def test_a_log_without_rows_yet_has_no_period(log: Path) -> None:
    for lines_before in ("", "Logger 7, version 2\n"):
        log.write_text(lines_before + HEADER)
        for past in ("yes", "no"):
            with opened(log, past=past) as source:
                assert source.period_s == source.channels[0].window_s == 0.0
                assert source.read() == []


# Files that change under one's hands.


@pytest.mark.parametrize(
    ("but_bytes", "kept"),
    [(0, 0), (1, 0), (59, 0), (60, 1), (61, 1), (119, 1), (120, 2), (999, 7)],
)
def test_skipping_keeps_the_whole_lines_at_the_end(log: Path, but_bytes: int, kept: int) -> None:
    # Seven lines of 60 bytes.
    text = [f"{n:059}" for n in range(7)]
    log.write_text("".join(f"{line}\n" for line in text))
    tail = Tail(log)
    tail.skip(but_bytes)
    found = tail.poll()
    assert [line for lines in found for line in lines.lines] == text[7 - kept :]
    append(log, "more\n")
    assert tail.poll() == [Lines(["more"], first=False)]
    assert all(lines.first == (kept == 7) for lines in found)
    tail.close()
    tail.close()


def test_rotation_loses_no_row(log: Path) -> None:
    log.write_text(HEADER + rows(100))
    with opened(log) as source, log.open("a") as writer:
        log.rename(log.with_suffix(".1"))
        # The logger has the old file open until it is told.
        writer.write(rows(101, 102))
        writer.flush()
        assert figures(source) == [101.0, 102.0]
        log.touch()
        writer.write(rows(103))
        writer.flush()
        assert figures(source) == [103.0]
        writer.write(rows(104))
        writer.flush()
        log.write_text("power_mw,time\n" + f"105000,{NOON}\n")
        assert figures(source) == [104.0, 105.0]
        append(log, f"106000,{NOON}\n")
        assert figures(source) == [106.0]


def test_a_file_that_is_emptied_goes_on_with_or_without_a_header(log: Path) -> None:
    log.write_text(HEADER + rows(100, 101, 102))
    with opened(log) as source:
        log.write_text("")
        assert figures(source) == []
        append(log, rows(103))
        assert figures(source) == [103.0]
        log.write_text(HEADER + rows(104))
        assert figures(source) == [104.0]
        # Longer than what was read before, and still another text.
        log.write_text(HEADER + rows(*range(200, 220)))
        assert figures(source) == [float(n) for n in range(200, 220)]


def test_a_new_file_without_its_header_yet_is_waited_for(log: Path) -> None:
    log.write_text(HEADER + rows(100))
    with opened(log) as source:
        log.unlink()
        assert figures(source) == []
        log.write_text("Logger 7, version 2\n")
        assert figures(source) == []
        append(log, HEADER + rows(101))
        assert figures(source) == [101.0]
        log.unlink()
        log.write_text("voltage,current\n" * 100)
        assert "the time" in refusal(source.read)


def test_a_new_file_of_another_quantity_is_an_error(log: Path) -> None:
    log.write_text(HEADER + rows(100))
    with opened(log) as source:
        log.unlink()
        log.write_text("time,energy_j\n" + rows(100))
        assert "was begun anew with energy instead of power" in refusal(source.read)


def test_what_is_no_file_to_follow(log: Path, tmp_path: Path) -> None:
    assert "cannot be read: No such file or directory: start the logger first" in refused_opening(
        log
    )
    assert "is no file" in refused_opening(tmp_path)
    os.mkfifo(log)
    assert "is no file" in refused_opening(log)
    log.unlink()
    log.touch()
    assert "no line has two columns: start the logger first" in refused_opening(log)
    log.write_bytes(HEADER.encode("utf-16"))
    assert "is UTF-16" in refused_opening(log)
    log.write_text(HEADER + "9" * 200_000)
    assert "has a line of more than 64 KiB" in refused_opening(log)
    log.write_text("one\ntwo\n")
    assert "no line has two columns" in refused_opening(log)
    assert "log needs a file" in refusal(lambda: open_source(None, SourceSettings()))


def test_a_log_of_another_process_is_followed_while_it_writes(log: Path) -> None:
    code = textwrap.dedent(f"""
        import csv, sys, time
        with open({str(log)!r}, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Timestamp", "Power (W)"])
            for n in range(50):
                file.flush()
                writer.writerow([time.time(), 100 + n])
                time.sleep(0.005)
    """)
    with subprocess.Popen([sys.executable, "-c", code]) as logger:
        until = time.monotonic() + 30
        while not (log.exists() and log.stat().st_size) and time.monotonic() < until:
            time.sleep(0.005)
        begun = time.monotonic()
        with opened(log, past="yes") as source:
            readings = []
            while len(readings) < 50 and time.monotonic() < until:
                readings += source.read()
                time.sleep(0.01)
        assert logger.wait(30) == 0
    assert [reading.value for reading in readings] == [100.0 + n for n in range(50)]
    ats = [reading.at_s for reading in readings]
    assert ats == sorted(ats)
    assert begun - 30 < ats[0] < ats[-1] <= time.monotonic() + 0.1


# Columns.


@pytest.mark.parametrize(
    ("header", "value", "watts"),
    [
        ("time,power_w", "245.5", 245.5),
        ("Timestamp,Power (W),Note", "245.5", 245.5),
        ("DateTime;Power [mW];U [V]", "245500;230", 245.5),
        ("epoch\tkW", "0.2455", 245.5),
        ("#time|Watts", "245.5", 245.5),
        ("\ufefftime,watts", "245.5", 245.5),
        ('"time", "Power, total (W)"', "245.5", 245.5),
        ("Time;Active Power [W]", "245,5", 245.5),
    ],
)
def test_columns_are_found_by_name(log: Path, header: str, value: str, watts: float) -> None:
    delimiter = next(d for d in "|;\t," if d in header)
    log.write_text(header + "\n")
    with opened(log) as source:
        append(log, f"{NOON}{delimiter}{value}\n")
        assert figures(source) == [watts]


@pytest.mark.parametrize(
    ("unit", "joules"), [("J", 2.0), ("kJ", 2e3), ("Wh", 7.2e3), ("kWh", 7.2e6)]
)
def test_energy_is_a_counter_in_joules(log: Path, unit: str, joules: float) -> None:
    log.write_text("time,meter\n")
    for options in ({"unit": unit}, {"unit": unit, "quantity": "energy"}):
        with opened(log, value="meter", **options) as source:
            assert source.channels[0].quantity == "energy"
            assert source.channels[0].window_s == 0.0
            append(log, rows(0, 2, -1, start=NOON))
            first, second, third = figures(source)
            assert (first, second) == (0.0, joules)
            assert math.isnan(third)
    log.write_text(f"time,Energy ({unit})\n" + rows(1, 2, 3))
    with opened(log) as source:
        append(log, rows(2))
        assert figures(source) == [joules]


def test_energy_of_each_row_is_no_counter(log: Path) -> None:
    log.write_text("time,energy_j\n" + rows(*[5, 4] * 20))
    assert "the energy falls 20 times in 40 rows, so that it is no counter" in refused_opening(log)
    log.write_text("time,energy_j\n" + rows(5, 4, 5, 4, 5))
    assert "falls 2 times in 5 rows" in refused_opening(log)
    log.write_text("time,energy_j\n" + rows(5, 4))
    with opened(log) as source:
        assert source.channels[0].quantity == "energy"
    # A host that sleeps.
    log.write_text("time,energy_j\n" + rows(*[5] * 10))
    with opened(log) as source:
        assert source.channels[0].quantity == "energy"
    # Set back once.
    log.write_text("time,energy_j\n" + rows(*range(20), *range(20)))
    with opened(log) as source:
        assert source.channels[0].quantity == "energy"


def test_ambiguous_columns_are_named(log: Path) -> None:
    log.write_text("time,cpu_power_w,psu_power_w,energy_j,u\n")
    message = refused_opening(log)
    assert "several columns can be power or energy, by name: choose with value=COLUMN" in message
    assert message.endswith("among cpu_power_w, psu_power_w, energy_j")
    message = refused_opening(log, quantity="power")
    assert message.endswith(
        "can be power, by name: choose with value=COLUMN among cpu_power_w, psu_power_w"
    )
    for options in ({"quantity": "energy"}, {"unit": "kJ"}, {"value": "ENERGY_J"}, {"value": "4"}):
        with opened(log, **options) as source:
            assert source.channels[0].quantity == "energy"
    assert "no such column (did you mean 'psu_power_w'?)" in refused_opening(
        log, value="psu_powr_w"
    )
    assert "column 'energy_j' is of energy" in refused_opening(log, value="4", quantity="power")
    log.write_text("time,timestamp,power_w\n")
    assert "several columns can be the time" in refused_opening(log)
    log.write_text("date,time,timestamp,power_w\n")
    assert "choose with time=COLUMN among time, timestamp" in refused_opening(log)
    log.write_text("time,p,p\n")
    assert "2 columns are called 'p': give the number of one: value=2" in refused_opening(
        log, value="p", unit="W"
    )
    log.write_text("when,p,u\n")
    assert "no column can be the time, by name: choose with time=COLUMN among when, p, u" in (
        refused_opening(log)
    )
    assert "choose with value=COLUMN among when, p, u" in refused_opening(log, time="when")


def test_a_column_without_a_unit_needs_one(log: Path) -> None:
    log.write_text("time,power\n")
    assert "column 'power' names no unit: write unit=W" in refused_opening(log)
    with opened(log, unit="mW") as source:
        append(log, rows(2500))
        assert figures(source) == [2.5]
    # What the user says holds against the header.
    log.write_text("time,power_mw\n")
    with opened(log, unit="W") as source:
        append(log, rows(250))
        assert figures(source) == [250.0]


def test_a_log_without_a_header_is_read_by_numbers(log: Path) -> None:
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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"vlue": "p"}, "log has no option vlue: it has domain, name, offset, past"),
        ({"unit": "BTU"}, "unit=BTU: write one of W, mW, kW, J, kJ, Wh, kWh"),
        ({"quantity": "voltage"}, "quantity=voltage: write power or energy"),
        ({"quantity": "power", "unit": "Wh"}, "quantity=power is not what unit=Wh measures"),
        ({"offset": "soon"}, "offset=soon: write a number of seconds"),
        ({"offset": "inf"}, "offset=inf: write a number of seconds"),
        ({"past": "maybe"}, "past=maybe: write yes or no"),
        ({"domain": "room"}, "domain=room: write one of package, core"),
        ({"value": "9"}, "value=9: no such column; the columns are time, power_w"),
    ],
)
def test_options_that_cannot_be(log: Path, options: dict[str, str], expected: str) -> None:
    log.write_text(HEADER + rows(100))
    assert expected in refused_opening(log, **options)


@given(st.lists(st.text(max_size=40), max_size=5))
def test_any_text_is_a_log_or_a_reason_in_one_line(lines: list[str]) -> None:
    reason = "a.csv: "
    try:
        find_layout(lines, Wanted(), "a.csv")
    except SensorError as error:
        reason = str(error)
    assert reason.startswith("a.csv: ")
    assert len(reason.splitlines()) == 1


# Times.


@pytest.mark.parametrize(
    "text",
    [
        f"{NOON:.0f}",
        f"{NOON:.3f}",
        f"{NOON * 1e3:.0f}",
        f"{NOON * 1e6:.0f}",
        f"{NOON * 1e9:.0f}",
        "2026-03-01T12:00:00Z",
        "2026-03-01 12:00:00+00:00",
        "2026-03-01 13:00:00 +0100",
        "2026/03/01 12:00:00 UTC",
        "2026-03-01T12:00:00.000000000Z",
        "20260301T120000Z",
    ],
)
def test_times_of_many_kinds(log: Path, text: str) -> None:
    log.write_text(f"{HEADER}{text},100\n")
    with opened(log, past="yes") as source:
        (reading,) = source.read()
        assert reading.source_at_s == pytest.approx(NOON, abs=1e-3)
        assert source.channels[0].note == ""


def test_times_without_a_zone_are_local_and_say_so(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        log.write_text(f"{HEADER}2026-03-01 17:45:00,100\n")
        with opened(log, past="yes") as source:
            assert source.read()[0].source_at_s == NOON
            assert source.channels[0].note == "times without a zone are taken for local time"
        log.write_text("Time (UTC),power_w\n2026-03-01 12:00:00,100\n")
        with opened(log, past="yes") as source:
            assert source.read()[0].source_at_s == NOON
            assert source.channels[0].note == ""
    finally:
        monkeypatch.undo()
        time.tzset()


@given(
    st.datetimes(datetime(2000, 1, 2), datetime(2099, 12, 30)),
    st.integers(-14 * 60, 14 * 60),
)
def test_every_iso_time_with_a_zone_is_read_exactly(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert TimeReader().read(zoned.isoformat()) == zoned.timestamp()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("12:00:01", "has no date: name the column of the date too, such as time=Date+Time"),
        ("2026-03-01", "is no time: let the logger write ISO 8601"),
        ("01.03.2026 12:00", "is no time: let the logger write ISO 8601"),
        ("3/1/2026 12:00:00", "is no time"),
        ("12.5", "or give offset=SECONDS of the log's start since 1970"),
        ("nan", "is no time since 1970"),
        ("", "is no time"),
    ],
)
def test_times_that_cannot_be_read_are_refused_with_the_remedy(
    log: Path, text: str, remedy: str
) -> None:
    log.write_text(f"{HEADER}{text},100\n")
    assert remedy in refused_opening(log)


def test_the_unit_of_the_first_time_holds_for_all() -> None:
    times = TimeReader()
    assert times.read(f"{NOON * 1e3:.0f}") == NOON
    with pytest.raises(BadTimeError):
        times.read(f"{NOON:.0f}")


def test_numbers_are_times_of_this_century_only() -> None:
    for text in ("946684800", "4102444799", "946684800000"):
        assert TimeReader().read(text) in (946684800.0, 4102444799.0)
    for text in ("946684799", "4102444800"):
        with pytest.raises(BadTimeError):
            TimeReader().read(text)


def test_date_and_time_in_two_columns(log: Path) -> None:
    log.write_text("Date,Time,Power (W)\n2026-03-01,12:00:00Z,100\n")
    for options in ({}, {"time": "Date+Time"}, {"time": "1+2"}):
        with opened(log, past="yes", **options) as source:
            assert source.read()[0].source_at_s == NOON
    assert "has no date" in refused_opening(log, time="Time")
    log.write_text("Date+Time,Power (W)\n2026-03-01 12:00:00Z,100\n")
    with opened(log, past="yes", time="Date+Time") as source:
        assert source.read()[0].source_at_s == NOON


def test_an_offset_moves_the_log_to_this_clock(log: Path) -> None:
    log.write_text(HEADER + rows(100, start=NOON))
    with opened(log, past="yes") as source, opened(log, past="yes", offset="-2.5") as moved:
        (plain,), (shifted,) = source.read(), moved.read()
        assert shifted.at_s - plain.at_s == pytest.approx(-2.5, abs=0.1)
        assert shifted.source_at_s == plain.source_at_s == NOON
        assert moved.channels[0].note == "clock offset -2.5 s"
    # Seconds since the start of the log.
    log.write_text(HEADER + "0.5,100\n")
    with opened(log, past="yes", offset=f"{time.time():.1f}") as source:
        (reading,) = source.read()
        assert reading.at_s == pytest.approx(time.monotonic() + 0.5, abs=5.0)


def test_the_registry_opens_it(log: Path) -> None:
    log.write_text(HEADER + rows(100))
    spec = registry.parse_spec(f"log@{log},past=yes,name=psu,domain=wall,value=power_w")
    with contextlib.closing(registry.open_source(spec, SourceSettings())) as source:
        assert source.channels[0].label == "log:psu"
        assert source.channels[0].domain == "wall"
        assert [reading.value for reading in source.read()] == [100.0]
        source.close()


def test_nothing_heavy_is_imported() -> None:
    heavy = {"numpy", "pandas", "scipy"}
    code = f"import measurements.power.power_log, sys; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# The clock offset.

RUNS = [(100.0, 130.0), (145.0, 190.0), (250.0, 265.0)]


def made_up_log(offset_s: float, period_s: float, noise_w: float, seed: int = 1) -> Any:
    """Rows by a clock that is early by ``offset_s``: 100 W in pauses and 200 W in runs."""
    by_host = np.arange(0.0, 400.0, period_s) + 0.37 * period_s
    inside = np.any([(by_host >= start) & (by_host < end) for start, end in RUNS], axis=0)
    noise = np.random.default_rng(seed).normal(0.0, noise_w, len(by_host))
    return by_host - offset_s, 100.0 + 100.0 * inside + noise


@pytest.mark.parametrize("period_s", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("offset_s", [-41.3, 0.0, 17.77])
def test_the_offset_comes_back_within_its_uncertainty(offset_s: float, period_s: float) -> None:
    for seed in range(10):
        times, watts = made_up_log(offset_s, period_s, 10.0, seed)
        found = estimate_clock_offset(times, watts, RUNS)
        assert abs(found.offset_s - offset_s) <= found.uncertainty_s
        assert 0.499 * period_s < found.uncertainty_s < 2 * period_s
        assert found.share > 0.8


def test_the_best_offset_is_that_of_the_largest_correlation() -> None:
    times, watts = made_up_log(7.0, 1.0, 120.0)
    found = estimate_clock_offset(times, watts, RUNS)

    def share(offset: float) -> float:
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


def test_order_gaps_and_rows_without_a_figure_do_not_matter() -> None:
    times, watts = made_up_log(5.0, 1.0, 5.0)
    whole = estimate_clock_offset(times, watts, RUNS)
    order = np.random.default_rng(2).permutation(len(times))
    with_gaps = np.append(times[order], times[:3]), np.append(watts[order], [np.nan] * 3)
    assert estimate_clock_offset(*with_gaps, RUNS[::-1]) == whole
    assert isinstance(whole, ClockOffset)
    cut = [RUNS[0], (145.0, 160.0), (160.0, 190.0), RUNS[2]]
    assert estimate_clock_offset(times, watts, cut) == whole
    thrice = estimate_clock_offset(np.repeat(times, 3), np.repeat(watts, 3), RUNS)
    assert thrice.offset_s == pytest.approx(whole.offset_s, abs=0.5)


def test_runs_at_regular_intervals_fit_several_offsets() -> None:
    runs = [(100.0 + 20 * n, 110.0 + 20 * n) for n in range(10)]
    times = np.arange(0.0, 400.0, 0.5)
    endless = 100.0 + 100.0 * (times % 20 < 10)
    with pytest.raises(MeasurementError, match="the best one is at the limit of 60 s"):
        estimate_clock_offset(times, endless, runs)


@pytest.mark.parametrize(
    ("times", "watts", "runs", "reason"),
    [
        ([0, 1, 2], [1, 2, 3], RUNS, "3 rows with a figure, 4 at different times are needed"),
        ([0, 0, 0, 0], [1, 2, 3, 4], RUNS, "4 at different times are needed"),
        ([0, 1], [1], RUNS, r"\(2,\) times for \(1,\) watts"),
        (range(400), [100.0] * 400, RUNS, "do the runs take more watts than the pauses"),
        (range(400), range(400), [], "no runs: give"),
        (range(400), range(400), [(5, 5)], "must end after they start"),
        (range(400), range(400), [(5, 9), (8, 12)], "not overlap"),
    ],
)
def test_logs_and_runs_that_tell_no_offset(times: Any, watts: Any, runs: Any, reason: str) -> None:
    with pytest.raises(MeasurementError, match=reason):
        estimate_clock_offset(times, watts, runs)


def test_an_offset_beyond_reach_is_not_guessed() -> None:
    for offset_s in (-20.0, 20.0):
        times, watts = made_up_log(offset_s, 1.0, 5.0)
        with pytest.raises(MeasurementError, match="the best one is at the limit of 20 s"):
            estimate_clock_offset(times, watts, RUNS, reach_s=20.0)
    times, watts = made_up_log(100.0, 1.0, 5.0)
    assert estimate_clock_offset(times, watts, RUNS, reach_s=150.0).offset_s == pytest.approx(
        100, abs=1
    )
