"""Meters: a SCPI server on a socket through PyVISA-py, and a device file of pyvisa-sim."""

import contextlib
import functools
import gc
import math
import socket
import sys
import time

import pytest
import pyvisa
import refusals
from peers.scpi_meter import LOCAL, NO_DATA, OVERRANGE, VALUES, ScpiMeter, write_sim

from measurements.power import source as sources
from measurements.power.meter import QUICK_S, open_source
from measurements.power.source import Channel, SensorError, SourceSettings

RESOURCES = (
    *("TCPIP0::localhost::inst0::INSTR", "TCPIP0::localhost::10001::SOCKET"),
    *("USB0::0x0B21::0x0025::C2RD01234V::0::INSTR", "GPIB0::1::INSTR", "ASRL1::INSTR"),
)
WITH_ENERGY = ("U,1", "I,1", "P,1", "WH,1")
# By its text: what is not known of it is NaN, which equals nothing.
WT310E = repr((Channel("meter:wt310e", "power", "wall", window_s=0.5),))
AMPLE_S, AT_ONCE_S = 60.0, 0.05


@contextlib.contextmanager
def opened(meter, timeout_s=AMPLE_S, **options):
    resource = meter if isinstance(meter, str) else meter.resource
    settings = SourceSettings(timeout_s=timeout_s, options=options)
    with contextlib.closing(open_source(resource, settings)) as source:
        # A busy machine may take longer than a meter that runs.
        source._instrument._timeout_s = timeout_s
        source._instrument._device.timeout = 1000 * timeout_s
        yield source


@contextlib.contextmanager
def metered(watts=298.77, *, open_with=None, **known):
    with ScpiMeter(watts, **known) as meter, opened(meter, **(open_with or {})) as source:
        yield meter, source


refusal = functools.partial(refusals.refusal, begins="meter", error=SensorError)


def refused_opening(meter, **given):
    return refusal(opened(meter, **given).__enter__)


def power(source):
    return source.read()[0].value


def test_a_meter_on_a_socket_tells_moving_watts_and_nothing_is_set_on_it():
    known = {"items": WITH_ENERGY, "others": {"WH": 2.0}, "open_with": {"energy": "yes"}}
    with metered(250.0, **known) as (meter, source):
        assert source.period_s == 0.5
        for expected in range(100, 150):
            meter.watts = float(expected)
            before = time.monotonic()
            reading = source.read()[0]
            assert before <= reading.at_s <= time.monotonic()
            assert reading == ("meter:wt310e", reading.at_s, float(expected), None)
        assert meter.connections == 1
        hang_up(meter, source)
        source.read()
        assert all(line.endswith("?") for line in meter.asked)
    with metered() as (_, source):
        assert repr(source.channels) == WT310E


@pytest.mark.peer("meter")
@pytest.mark.parametrize("resource", RESOURCES)
def test_every_bus_of_a_simulated_meter_is_read(tmp_path, resource):
    backend = write_sim(tmp_path, RESOURCES)
    spec = sources.parse_spec(f"meter@{resource},backend={backend},name=wall")
    with contextlib.closing(sources.open_source(spec, SourceSettings())) as source:
        assert source.read()[0][0::2] == ("meter:wall", 298.77)
    with opened(resource, backend=backend) as source:
        assert repr(source.channels) == WT310E
        assert power(source) == 298.77
    # Another reader of the same file agrees on which number is the power.
    manager = pyvisa.ResourceManager(backend)
    device = manager.open_resource(resource, read_termination="\n", write_termination="\n")
    assert device.query_ascii_values(VALUES)[2] == 298.77
    device.close()
    manager.close()


@pytest.mark.peer("meter")
def test_a_simulated_meter_that_does_not_list_its_items_or_answers_errors(tmp_path):
    simulated = RESOURCES[0]
    backend = write_sim(tmp_path, RESOURCES, items=None, rate=None)
    message = refused_opening(simulated, backend=backend)
    assert "none of its items is P (the items are: unknown)" in message
    with opened(simulated, backend=backend, item="3") as source:
        assert power(source) == 298.77
        assert source.channels[0].window_s == source.period_s == 0.0
    assert "answers nothing to *IDN?" in refused_opening("GPIB0::9::INSTR", backend=backend)
    (tmp_path / "errors").mkdir()
    backend = write_sim(tmp_path / "errors", RESOURCES, values=None)
    said = f"answers 'ERROR' to {VALUES} instead of numbers"
    assert said in refused_opening(simulated, backend=backend)


def test_headers_and_blocks_of_floats_are_read_as_the_meter_was_set():
    with metered(123.25, headers=True, binary=True) as (meter, source):
        assert source.channels[0].window_s == 0.5
        assert power(source) == 123.25
        # A block that contains the end-of-line byte.
        meter.watts = 2.5 + 0x0A / 2**20
        assert power(source) == meter.watts
        meter.watts = NO_DATA
        assert math.isnan(power(source))
        meter.watts = 5.0
        meter.next_said.append(b"no block\n")
        assert power(source) == 5.0
        meter.next_said.extend([b"no block\n"] * 2)
        assert "meter at" in refusal(source.read)


def test_what_is_no_figure_is_missing_and_never_0():
    # Of a host that is off at first.
    with metered(0.0) as (meter, source):
        words = ("NAN", "INF", "-INF", "9.9E37", "9.91E+37", f"{OVERRANGE:.6E}", "0.0000E+00")
        for said in (*words, "-1.2"):
            meter.watts = said
            assert math.isnan(power(source))
            meter.watts = 0.5
            assert power(source) == 0.5


def test_an_update_rate_is_a_window_the_label_is_of_the_model_and_power_of_its_item():
    rates = {"2.0E+00": 2.0, **dict.fromkeys(("AUTO", "NAN", "9.91E37", "0"), 0.0)}
    for rate, window_s in rates.items():
        with ScpiMeter(rate=rate) as meter:
            settings = SourceSettings(timeout_s=AMPLE_S)
            with contextlib.closing(open_source(meter.resource, settings)) as source:
                assert source.channels[0].window_s == source.period_s == window_s
                assert source._instrument._timeout_s == QUICK_S + window_s
    for identity, label in {
        "YOKOGAWA,WT500,C1,F1": "meter:wt500",
        "YOKOGAWA,760203-C2-SX,C1,F1": "meter:760203-c2-sx",
        "ACME Power / 7": "meter:acme-power-7",
        ",,": "meter:scpi",
    }.items():
        with metered(identity=identity) as (_, source):
            assert source.channels[0].label == label
    # The item that is power is found.
    for items in (("P,1",), ("NONE", "P,1", "U,1"), ("U,1", "p,sigma")):
        with metered(87.5, items=items) as (_, source):
            assert power(source) == 87.5


def test_items_without_or_with_several_powers_are_named():
    with ScpiMeter(items=("U,1", "I,1")) as meter:
        message = refused_opening(meter)
        assert "none of its items is P (the items are: 1 U,1, 2 I,1): set that" in message
        assert "item=N" in message
        assert "none of its items is WH or WP" in refused_opening(meter, item="1", energy="yes")
        meter.next_said.extend([b"A,B\n", b"ASC\n", b"many\n"])
        assert "(the items are: unknown)" in refused_opening(meter)
    with ScpiMeter(items=("P,1", "P,2", "U,1"), others={"U": 7.0}) as meter:
        assert "2 of its items are P (the items are: 1 P,1, 2 P,2, 3 U,1)" in refused_opening(meter)
        with opened(meter, item="3") as source:
            assert power(source) == 7.0
        message = refused_opening(meter, item="4")
        assert f"answers 3 numbers to {VALUES}, but not item 4" in message


def test_another_kind_of_meter_is_asked_what_the_option_says():
    with ScpiMeter(identity="ACME,PM-7,1,1") as meter:
        meter.next_said.extend([b"ACME,PM-7,1,1\n", *[b"12.5\n"] * 3])
        with opened(meter, query="MEAS:POW?") as source:
            assert repr(source.channels) == repr((Channel("meter:pm-7", "power", "wall"),))
            assert power(source) == 12.5
        assert set(meter.asked) == {"*IDN?", "MEAS:POW?"}
        meter.next_said.extend([b"ACME,PM-7,1,1\n", b"230.0, 12.5\n"])
        message = refused_opening(meter, query="MEAS?")
        assert "answers 2 numbers to MEAS?: write item=N for the power" in message
        meter.next_said.extend([b"ACME,PM-7,1,1\n", *[b"230.0, 12.5\n"] * 3])
        with opened(meter, query="MEAS?", item="2") as source:
            assert power(source) == 12.5


def test_energy_of_a_running_integration_is_read_in_joules_and_contains_the_power():
    with ScpiMeter(items=WITH_ENERGY, others={"WH": 1.25}) as meter:
        with opened(meter, energy="yes") as source:
            watts, joules = source.channels
            assert (watts.label, watts.inside) == ("meter:wt310e", "meter:wt310e-energy")
            assert repr(joules) == repr(Channel("meter:wt310e-energy", "energy", "wall"))
            assert [reading.value for reading in source.read()] == [298.77, 4500.0]
            meter.others["WH"] = "NAN"
            assert math.isnan(source.read()[1].value)
        meter.integrating = "RES"
        message = refused_opening(meter, energy="yes")
        assert "integration is not running (state RES): start it on the meter" in message
        with opened(meter) as source:
            assert len(source.channels) == 1
        meter.watts = -298.77
        assert "reads -298.77 W: swap its two current leads" in refused_opening(meter)


def test_two_meters_of_a_model_are_told_apart_by_name():
    settings = SourceSettings(timeout_s=AMPLE_S)
    with ScpiMeter(100.0) as left, ScpiMeter(200.0) as right:
        specs = [sources.parse_spec(f"meter@{m.resource}") for m in (left, right)]
        with pytest.raises(SensorError, match="two sources have the channel meter:wt310e"):
            sources.open_sources(specs, settings)
        named = [sources.parse_spec(f"meter@{left.resource},name=psu1"), specs[1]]
        first, second = sources.open_sources(named, settings)
        assert first.read()[0][0::2] == ("meter:psu1", 100.0)
        # Closing one leaves the other open, though PyVISA shares what is beneath them.
        first.close()
        assert second.read()[0][0::2] == ("meter:wt310e", 200.0)
        second.close()
        second.close()
        assert (left.connections, right.connections) == (2, 2)
        for source in (first, second):
            assert "is closed" in refusal(source.read)


def test_one_lost_connection_is_made_again():
    with metered() as (meter, source):
        instrument = source._instrument
        hang_up(meter, source)
        assert power(source) == 298.77
        assert meter.connections == 2
        # A late answer is not taken for the next one.
        instrument._timeout_s = AT_ONCE_S
        meter.deaf.add(VALUES)
        hang_up(meter, source)
        assert f"no answer within {AT_ONCE_S:g} s to {VALUES}" in refusal(source.read)
        meter.deaf.clear()
        meter.watts, instrument._timeout_s = 200.0, AMPLE_S
        instrument.reopen()
        assert power(source) == 200.0
        meter.drops, instrument._timeout_s = 2, AT_ONCE_S
        instrument._device.timeout = 1000 * AT_ONCE_S
        assert f"meter at {meter.resource}: " in refusal(source.read)
        meter.stop()
        for _ in range(2):
            assert f"meter at {meter.resource}: " in refusal(source.read)


def hang_up(meter, source):
    """End the connection, of which PyVISA-py notices nothing until it has waited."""
    meter.hang_up()
    source._instrument._device.timeout = 1000 * AT_ONCE_S


def test_one_answer_that_is_no_number_is_forgiven_and_two_are_not():
    with metered() as (meter, source):
        for said in (b"ERROR\n", b"\xff\xfe\n", b"\n", b"1,2\n", b"230,1.3,abc\n", b"\x01\n"):
            meter.next_said.append(said)
            assert power(source) == 298.77
        for said, message in (
            (b"garbage 7\n", f"answers 'garbage 7' to {VALUES} instead of numbers"),
            (b"\xff\xfe\n", "with bytes that are no text"),
            (b"\x01\n", "with bytes that are no text"),
            (b"\n", f"answers nothing to {VALUES}: check its name and cable"),
            (b"1,2\n", "answers 2 numbers"),
        ):
            meter.next_said.extend([said] * 2)
            assert message in refusal(source.read)
        # Two answers to one question: the second is not taken for the next.
        meter.next_said.append(b"ERROR\n1,1,1\n")
        assert power(source) == 298.77


# PyVISA-py forgets to close the socket of a connection that is refused.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_names_that_lead_nowhere_and_meters_that_are_silent():
    with socket.socket() as reserved:
        reserved.bind((LOCAL, 0))
        port = reserved.getsockname()[1]
        assert "Connection refused" in refused_opening(f"TCPIP0::{LOCAL}::{port}::SOCKET")
    message = refused_opening(f"TCPIP0::{LOCAL}::inst0::INSTR", timeout_s=0.5)
    assert "cannot be opened" in message
    assert "check that the name is as the meter shows it" in message
    gc.collect()
    assert "no host is called" in refused_opening(f"TCPIP0::{'a' * 64}::5025::SOCKET")
    assert "Invalid resource reference" in refused_opening("wt310 on the desk")
    assert "needs a VISA name" in refusal(lambda: open_source(None, SourceSettings()))
    with ScpiMeter() as meter:
        meter.deaf.add("*IDN?")
        message = refused_opening(meter, timeout_s=AT_ONCE_S)
        assert f"no answer within {AT_ONCE_S:g} s to *IDN?" in message


def test_options_that_cannot_be_and_a_library_that_is_missing(monkeypatch):
    for options, expected in (
        ({"itm": "3"}, "no option itm: it has backend, energy, item, name, query"),
        ({"item": "0"}, "item=0: write a position from 1 to 255"),
        ({"item": "three"}, "item=three: write a position"),
        ({"energy": "maybe"}, "energy=maybe: write yes or no"),
        ({"query": "*RST"}, "query=*RST: write one question"),
        ({"query": ":RATE 5;:RATE?"}, "write one question"),
        ({"query": "MEAS?", "energy": "yes"}, "energy=yes works only with a Yokogawa WT"),
        ({"backend": "/absent.yaml@sim"}, "PyVISA has no back-end"),
        ({"backend": "@absent"}, "pip install 'perf-per-watt[measure]'"),
    ):
        assert expected in refused_opening(RESOURCES[0], **options)
    monkeypatch.setitem(sys.modules, "pyvisa", None)
    assert "pip install 'perf-per-watt[measure]'" in refused_opening(RESOURCES[0])
