"""Meters: a SCPI server on a socket through PyVISA-py, and a device file of pyvisa-sim."""

from __future__ import annotations

import contextlib
import gc
import math
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import pyvisa
from peers.scpi_meter import ITEMS, LOCAL, NO_DATA, OVERRANGE, VALUES, ScpiMeter, write_sim

from measurements.power import registry
from measurements.power.meter import QUICK_S, MeterSource, open_source
from measurements.power.protocol import Channel, SensorError, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RESOURCES = (
    "TCPIP0::localhost::inst0::INSTR",
    "TCPIP0::localhost::10001::SOCKET",
    "USB0::0x0B21::0x0025::C2RD01234V::0::INSTR",
    "GPIB0::1::INSTR",
    "ASRL1::INSTR",
)
SIMULATED = RESOURCES[0]
WITH_ENERGY = ("U,1", "I,1", "P,1", "WH,1")


def settings(timeout_s: float = 10.0, **options: str) -> SourceSettings:
    return SourceSettings(timeout_s=timeout_s, options=options)


@contextlib.contextmanager
def opened(meter: ScpiMeter | str, **given: Any) -> Iterator[MeterSource]:
    resource = meter if isinstance(meter, str) else meter.resource
    with contextlib.closing(open_source(resource, settings(**given))) as source:
        yield source


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(SensorError) as refused:
        read()
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("meter")
    return message


def refused_opening(meter: ScpiMeter | str, **given: Any) -> str:
    def read() -> None:
        with opened(meter, **given):
            pass

    return refusal(read)


def power(source: MeterSource) -> float:
    return source.read()[0].value


def test_a_meter_on_a_socket_tells_moving_watts() -> None:
    said = iter([250.0, *range(100, 150)])
    with ScpiMeter(lambda: float(next(said))) as meter, opened(meter) as source:
        # By their texts: what is not known of them is NaN, which equals nothing.
        known = (Channel("meter:wt310e", "power", "wall", window_s=0.5),)
        assert repr(source.channels) == repr(known)
        assert source.period_s == 0.5
        for expected in range(100, 150):
            before = time.monotonic()
            (reading,) = source.read()
            assert before <= reading.at_s <= time.monotonic()
            assert reading == ("meter:wt310e", reading.at_s, float(expected), None)
        assert meter.connections == 1


def test_nothing_is_set_on_the_meter() -> None:
    with ScpiMeter(items=WITH_ENERGY, others={"WH": 2.0}) as meter:
        with opened(meter, timeout_s=0.3, energy="yes") as source:
            source.read()
            meter.drops = 1
            source.read()
        assert all(line.endswith("?") for line in meter.asked)


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_bus_of_a_simulated_meter_is_read(tmp_path: Path, resource: str) -> None:
    backend = write_sim(tmp_path, RESOURCES)
    with opened(resource, backend=backend) as source:
        assert repr(source.channels) == repr(
            (Channel("meter:wt310e", "power", "wall", window_s=0.5),)
        )
        assert power(source) == 298.77
    # Another reader of the same file agrees on which number is the power.
    manager = pyvisa.ResourceManager(backend)
    device = manager.open_resource(resource, read_termination="\n", write_termination="\n")
    assert device.query_ascii_values(VALUES)[2] == 298.77
    device.close()
    manager.close()


def test_headers_and_blocks_of_floats_are_read_as_the_meter_was_set() -> None:
    with ScpiMeter(123.25, headers=True, binary=True) as meter, opened(meter) as source:
        assert source.channels[0].window_s == 0.5
        assert power(source) == 123.25
        # A block that contains the end-of-line byte.
        meter.watts = 2.5 + 0x0A / 2**20
        assert power(source) == meter.watts
        meter.watts = NO_DATA
        assert math.isnan(power(source))


@pytest.mark.parametrize(
    "said", ["NAN", "INF", "-INF", "9.9E37", "9.91E+37", f"{OVERRANGE:.6E}", "0.0000E+00", "-1.2"]
)
def test_what_is_no_figure_is_missing_and_never_0(said: str) -> None:
    with ScpiMeter(298.77) as meter, opened(meter) as source:
        meter.watts = said
        assert math.isnan(power(source))
        meter.watts = 298.77
        assert power(source) == 298.77


def test_a_host_that_is_off_at_first_and_one_that_draws_little() -> None:
    with ScpiMeter(0.0) as meter, opened(meter) as source:
        assert math.isnan(power(source))
        meter.watts = 0.5
        assert power(source) == 0.5


@pytest.mark.parametrize("rate", ["AUTO", "NAN", "9.91E37", "0", "-1"])
def test_an_update_rate_that_says_nothing_is_no_window(rate: str) -> None:
    with ScpiMeter(rate=rate) as meter, opened(meter) as source:
        assert source.channels[0].window_s == source.period_s == 0.0


@pytest.mark.parametrize(
    ("items", "position"), [(("P,1",), 0), (("NONE", "P,1", "U,1"), 1), (("U,1", "p,sigma"), 1)]
)
def test_the_item_that_is_power_is_found(items: tuple[str, ...], position: int) -> None:
    with ScpiMeter(87.5, items=items) as meter, opened(meter) as source:
        assert power(source) == 87.5
        assert source._question.power == position


def test_items_without_or_with_several_powers_are_named() -> None:
    with ScpiMeter(items=("U,1", "I,1")) as meter:
        message = refused_opening(meter)
        assert "none of its items is P (the items are: 1 U,1, 2 I,1): set that" in message
        assert "item=N" in message
    with ScpiMeter(items=("P,1", "P,2", "U,1")) as meter:
        assert "2 of its items are P (the items are: 1 P,1, 2 P,2, 3 U,1)" in refused_opening(meter)
        with opened(meter, item="2") as source:
            assert source._question.power == 1
        message = refused_opening(meter, item="4")
        assert f"answers 3 numbers to {VALUES}, and item 4 is wanted" in message


def test_a_meter_that_does_not_list_its_items_needs_the_option(tmp_path: Path) -> None:
    backend = write_sim(tmp_path, RESOURCES, items=None, rate=None)
    message = refused_opening(SIMULATED, backend=backend)
    assert "none of its items is P (the items are: unknown)" in message
    with opened(SIMULATED, backend=backend, item="3") as source:
        assert power(source) == 298.77
        assert source.channels[0].window_s == source.period_s == 0.0


def test_another_kind_of_meter_is_asked_what_the_option_says() -> None:
    with ScpiMeter(identity="ACME,PM-7,1,1") as meter:
        meter.next_said.extend([b"ACME,PM-7,1,1\n", *[b"12.5\n"] * 3])
        with opened(meter, query="MEAS:POW?") as source:
            assert repr(source.channels) == repr((Channel("meter:pm-7", "power", "wall"),))
            assert power(source) == 12.5
        assert set(meter.asked) == {"*IDN?", "MEAS:POW?"}
        meter.next_said.extend([b"ACME,PM-7,1,1\n", b"230.0, 12.5\n"])
        message = refused_opening(meter, query="MEAS?")
        assert "answers 2 numbers to MEAS?: write item=N for the watts" in message
        meter.next_said.extend([b"ACME,PM-7,1,1\n", *[b"230.0, 12.5\n"] * 3])
        with opened(meter, query="MEAS?", item="2") as source:
            assert power(source) == 12.5


def test_energy_of_a_running_integration_is_read_in_joules_and_contains_the_power() -> None:
    with ScpiMeter(298.77, items=WITH_ENERGY, others={"WH": 1.25}) as meter:
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
    with ScpiMeter() as meter:
        assert "none of its items is WH or WP" in refused_opening(meter, energy="yes")


def test_swapped_leads_are_told() -> None:
    with ScpiMeter(-298.77) as meter:
        message = refused_opening(meter)
        assert "reads -298.77 W: swap its two current leads" in message


@pytest.mark.parametrize(
    ("identity", "label"),
    [
        ("YOKOGAWA,WT500,C1,F1", "meter:wt500"),
        ("YOKOGAWA,760203-C2-SX,C1,F1", "meter:760203-c2-sx"),
        ("ACME Power / 7", "meter:acme-power-7"),
        (",,", "meter:scpi"),
    ],
)
def test_the_label_is_of_the_model(identity: str, label: str) -> None:
    with ScpiMeter(identity=identity) as meter, opened(meter) as source:
        assert source.channels[0].label == label


def test_two_meters_of_a_model_are_told_apart_by_name() -> None:
    with ScpiMeter(100.0) as left, ScpiMeter(200.0) as right:
        specs = [registry.parse_spec(f"meter@{m.resource}") for m in (left, right)]
        with pytest.raises(SensorError, match="two sources have a channel meter:wt310e"):
            registry.open_sources(specs, settings())
        named = [registry.parse_spec(f"meter@{left.resource},name=psu1"), specs[1]]
        first, second = registry.open_sources(named, settings())
        assert first.read()[0][0::2] == ("meter:psu1", 100.0)
        # Closing one leaves the other open, though PyVISA shares what is beneath them.
        first.close()
        assert second.read()[0][0::2] == ("meter:wt310e", 200.0)
        second.close()
        second.close()
        assert (left.connections, right.connections) == (2, 2)


# Faults.


def test_one_lost_connection_is_made_again() -> None:
    with ScpiMeter() as meter, opened(meter, timeout_s=0.3) as source:
        meter.drops = 1
        assert power(source) == 298.77
        meter.hang_up()
        assert power(source) == 298.77
        assert meter.connections == 3
        meter.drops = 2
        assert "no answer within 0.3 s" in refusal(source.read)
        assert power(source) == 298.77


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    with ScpiMeter(100.0) as meter, opened(meter, timeout_s=0.5) as source:
        meter.late_s = 30.0
        begun = time.monotonic()
        assert f"no answer within 0.5 s to {VALUES}" in refusal(source.read)
        assert time.monotonic() - begun < 10.0
        meter.late_s, meter.watts = 0.0, 200.0
        assert power(source) == 200.0
        meter.late_s = 0.05
        assert power(source) == 200.0


def test_a_meter_that_runs_is_waited_for_no_longer_than_it_may_take() -> None:
    with ScpiMeter(rate="2.0E+00") as meter, opened(meter) as source:
        assert source._instrument._timeout_s == QUICK_S + 2.0


def test_one_answer_that_is_no_number_is_forgiven_and_two_are_not() -> None:
    with ScpiMeter() as meter, opened(meter) as source:
        for said in (b"ERROR\n", b"\xff\xfe\n", b"\n", b"1,2\n", b"230,1.3,abc\n"):
            meter.next_said.append(said)
            assert power(source) == 298.77
        meter.next_said.extend([b"garbage 7\n"] * 2)
        message = refusal(source.read)
        assert f"answers 'garbage 7' to {VALUES} instead of numbers" in message
        meter.next_said.extend([b"\xff\xfe\n"] * 2)
        assert "with bytes that are no text" in refusal(source.read)
        meter.next_said.extend([b"1,2\n"] * 2)
        assert "answers 2 numbers" in refusal(source.read)
        # Two answers to one question: the second is not taken for the next.
        meter.next_said.append(b"ERROR\n1,1,1\n")
        assert power(source) == 298.77


def test_a_broken_block_of_floats_is_forgiven_once() -> None:
    with ScpiMeter(123.25, binary=True) as meter, opened(meter) as source:
        meter.next_said.append(b"no block\n")
        assert power(source) == 123.25
        meter.next_said.extend([b"no block\n"] * 2)
        assert "meter at" in refusal(source.read)


def test_a_meter_that_answers_errors_says_so(tmp_path: Path) -> None:
    backend = write_sim(tmp_path, RESOURCES, values=None)
    message = refused_opening(SIMULATED, backend=backend)
    assert f"answers 'ERROR' to {VALUES} instead of numbers" in message


def test_a_meter_that_is_switched_off_and_on_again() -> None:
    with ScpiMeter() as meter, opened(meter, timeout_s=0.5) as source:
        meter.stop()
        for _ in range(2):
            assert f"meter at {meter.resource}: " in refusal(source.read)


def test_a_silent_meter_is_given_up_within_the_limit() -> None:
    with ScpiMeter() as meter:
        meter.deaf.add("*IDN?")
        begun = time.monotonic()
        message = refused_opening(meter, timeout_s=0.3)
        assert 0.3 <= time.monotonic() - begun < 10.0
        assert "no answer within 0.3 s to *IDN?" in message


def test_names_that_lead_nowhere() -> None:
    with socket.socket() as reserved:
        reserved.bind((LOCAL, 0))
        port = reserved.getsockname()[1]
        assert "Connection refused" in refused_opening(f"TCPIP0::{LOCAL}::{port}::SOCKET")
    assert "no host is called" in refused_opening(f"TCPIP0::{'a' * 64}::5025::SOCKET")
    assert "Invalid resource reference" in refused_opening("wt310 on the desk")
    assert "needs a VISA name" in refusal(lambda: open_source(None, SourceSettings()))


# PyVISA-py forgets to close the socket of a connection that is refused.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_network_instrument_that_is_not_there() -> None:
    message = refused_opening(f"TCPIP0::{LOCAL}::inst0::INSTR", timeout_s=0.5)
    assert "cannot be opened" in message
    assert "check that the name is as the meter shows it" in message
    gc.collect()


def test_back_ends_that_are_not_there(tmp_path: Path) -> None:
    message = refused_opening(SIMULATED, backend=f"{tmp_path / 'absent.yaml'}@sim")
    assert "PyVISA has no back-end" in message
    assert "pip install 'perf-per-watt[measure]'" in refused_opening(SIMULATED, backend="@absent")
    backend = write_sim(tmp_path, RESOURCES)
    assert "answers nothing to *IDN?" in refused_opening("GPIB0::9::INSTR", backend=backend)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"itm": "3"}, "no option itm: it has backend, energy, item, name, query"),
        ({"item": "0"}, "item=0: write a position from 1 to 255"),
        ({"item": "three"}, "item=three: write a position"),
        ({"energy": "maybe"}, "energy=maybe: write yes or no"),
        ({"query": "*RST"}, "query=*RST: write one question"),
        ({"query": ":RATE 5;:RATE?"}, "write one question"),
        ({"query": "MEAS?", "energy": "yes"}, "energy=yes is for a Yokogawa WT"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], expected: str) -> None:
    assert expected in refused_opening(SIMULATED, **options)


def test_the_registry_opens_it(tmp_path: Path) -> None:
    backend = write_sim(tmp_path, RESOURCES)
    spec = registry.parse_spec(f"meter@{SIMULATED},backend={backend},name=wall")
    with contextlib.closing(registry.open_source(spec, SourceSettings())) as source:
        assert source.read()[0][0::2] == ("meter:wall", 298.77)
    assert len(ITEMS) == 3


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyvisa", None)
    assert "pip install 'perf-per-watt[measure]'" in refused_opening(SIMULATED)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = {"pyvisa", "numpy", "pandas", "scipy"}
    code = f"import measurements.power.meter, sys; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
