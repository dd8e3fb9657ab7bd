"""Redfish: every figure and every fault, against sushy-static and DMTF's own client."""

from __future__ import annotations

import contextlib
import datetime
import logging
import math
import socket
import subprocess
import sys
import time
import traceback
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
import redfish as dmtf
from hypothesis import given
from hypothesis import strategies as st
from peers.redfish_bmc import CHASSIS, LOCAL, SESSIONS, V1, Authority, RedfishBmc, Said, linked

from measurements.power import registry
from measurements.power.protocol import Channel, Login, SensorError, SourceSettings
from measurements.power.redfish import PERIOD_S, RedfishSource, open_source
from measurements.power.redfish_figures import best_power, energy_counter, seconds, watts
from measurements.power.redfish_origin import Origin, parse_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., RedfishBmc]

USER, PASSWORD = "admin", "s3cret, with: äö"
ENVIRONMENT = f"{CHASSIS}/1/EnvironmentMetrics"
POWER = f"{CHASSIS}/1/Power"
SUPPLIES = f"{CHASSIS}/1/PowerSubsystem/PowerSupplies"
SENSOR = f"{CHASSIS}/1/Sensors/TotalPower"
GARBAGE = [0, None, -5, "240", True, [], {}, 65535, 4294967295, 4294967.295]
GARBAGE += [math.nan, math.inf, 10**400]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:
        yield lambda watts=240.0, **given: stack.enter_context(RedfishBmc(tmp_path, watts, **given))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings(
    *, timeout_s: float = 10.0, login: tuple[str, str] | None = None, **options: str
) -> SourceSettings:
    if login is None:
        return SourceSettings(timeout_s=timeout_s, options=options)
    return SourceSettings(
        login=lambda _kind, _host: Login(*login), timeout_s=timeout_s, options=options
    )


@contextlib.contextmanager
def opened(bmc: RedfishBmc | str, **given: Any) -> Iterator[RedfishSource]:
    address = bmc if isinstance(bmc, str) else bmc.address
    with contextlib.closing(open_source(address, settings(**given))) as source:
        yield source


def figures(source: RedfishSource) -> dict[str, float]:
    return {reading.label: reading.value for reading in source.read()}


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(SensorError) as refused:
        read()
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("redfish")
    told = "".join(traceback.format_exception(refused.value))
    assert PASSWORD not in told
    return message


def refused_opening(bmc: RedfishBmc | str, **given: Any) -> str:
    def read() -> None:
        with opened(bmc, **given) as source:
            source.read()

    return refusal(read)


def by_dmtf(bmc: RedfishBmc, path: str) -> Any:
    """Read a resource by the client of the standard's authors, past login and faults."""
    client = dmtf.redfish_client(base_url=bmc.direct)
    answer = client.get(path).dict
    client._session.close()
    return answer


def power_of(bmc: RedfishBmc, name: str) -> float:
    if name == "environment":
        return by_dmtf(bmc, ENVIRONMENT)["PowerWatts"]["Reading"]
    if name == "power":
        return by_dmtf(bmc, POWER)["PowerControl"][0]["PowerConsumedWatts"]
    members = by_dmtf(bmc, SUPPLIES)["Members"]
    links = [by_dmtf(bmc, member["@odata.id"])["Metrics"]["@odata.id"] for member in members]
    return sum(by_dmtf(bmc, link)["InputPowerWatts"]["Reading"] for link in links)


@pytest.mark.parametrize("name", ["environment", "supplies", "power"])
def test_each_figure_moves_with_the_bmc_and_agrees_with_another_client(
    start: Start, name: str
) -> None:
    bmc = start(240.5, figures=[name])
    with opened(bmc) as source:
        assert repr(source.channels) == repr((Channel(f"redfish:{name}", "power", "host"),))
        assert source.period_s == PERIOD_S
        for said in (240.5, 311.0, 98):
            bmc.set_watts(said)
            before = time.monotonic()
            (reading,) = source.read()
            assert before < reading.at_s < time.monotonic()
            assert (reading.value, reading.source_at_s) == (said, None)
            assert power_of(bmc, name) == said


def test_the_best_figure_is_the_first_that_says_something(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        assert figures(source) == {"redfish:environment": 240.0}
    bmc.change(ENVIRONMENT, PowerWatts={"Reading": 0})
    with opened(bmc) as source:
        assert figures(source) == {"redfish:supplies": 240.0}
    bmc.change(f"{SUPPLIES}/1/Metrics", InputPowerWatts={"Reading": None})
    with opened(bmc) as source:
        assert figures(source) == {"redfish:power": 240.0}
    bmc.change(POWER, PowerControl=[{"PowerConsumedWatts": None}])
    # Of a host that is off the best figure is the one that should speak first.
    with opened(bmc) as source:
        assert figures(source) == pytest.approx({"redfish:environment": math.nan}, nan_ok=True)
        bmc.set_watts(120.0)
        assert figures(source) == {"redfish:environment": 120.0}


def test_a_figure_by_the_sensor_behind_it_has_the_time_and_window_of_the_sensor(
    start: Start,
) -> None:
    bmc = start(None, figures=["environment"])
    bmc.change(ENVIRONMENT, PowerWatts={"Reading": 239.0, "DataSourceUri": SENSOR})
    sensor = {"Id": "TotalPower", "ReadingUnits": "W", "SensingInterval": "PT0.5S"}
    bmc.put(SENSOR, sensor | {"Reading": 240.0, "ReadingTime": "2026-03-01T12:00:00+00:00"})
    with opened(bmc) as source:
        assert source.channels[0].window_s == source.period_s == 0.5
        first, again = source.read() + source.read()
        assert first.value == 240.0
        assert first.source_at_s == again.source_at_s == 1772366400.0
        assert again.at_s > first.at_s
        bmc.change(SENSOR, ReadingTime="2026-03-01T12:00:00.5Z")
        assert source.read()[0].source_at_s == 1772366400.5
        bmc.change(SENSOR, ReadingTime="yesterday")
        assert source.read()[0].source_at_s is None
    bmc.change(SENSOR, AveragingInterval="PT1M")
    with opened(bmc) as source:
        assert source.channels[0].window_s == 60.0
        assert source.period_s == PERIOD_S
    bmc.change(SENSOR, ReadingUnits="A")
    with opened(bmc) as source:
        assert figures(source) == {"redfish:environment": 239.0}


def test_an_average_is_read_only_where_there_is_nothing_else_and_says_its_window(
    start: Start,
) -> None:
    bmc = start(None, figures=["power"])
    metrics = {"IntervalInMin": 5, "AverageConsumedWatts": 251, "MaxConsumedWatts": 420}
    control = {"PowerConsumedWatts": 240.0, "PowerMetrics": metrics}
    bmc.change(POWER, PowerControl=[control])
    with opened(bmc) as source:
        assert [(c.label, c.window_s) for c in source.channels] == [("redfish:power", 0.0)]
    bmc.change(POWER, PowerControl=[control | {"PowerConsumedWatts": None}])
    with opened(bmc) as source:
        assert [(c.label, c.window_s) for c in source.channels] == [("redfish:average", 300.0)]
        assert figures(source) == {"redfish:average": 251.0}
    # An average over nobody knows how long is no figure.
    for interval in ({}, {"IntervalInMin": 0}, {"IntervalInMin": "5"}):
        bmc.change(POWER, PowerControl=[{"PowerMetrics": interval | {"AverageConsumedWatts": 251}}])
        assert "no chassis tells its watts (there are: 1)" in refused_opening(bmc)


def test_of_power_control_only_the_whole_is_read(start: Start) -> None:
    bmc = start(None, figures=["power"])
    parts = [{"PhysicalContext": c, "PowerConsumedWatts": 80} for c in ("CPU", "Memory")]
    whole = {"PhysicalContext": "Chassis", "Name": "Total", "PowerConsumedWatts": 240}
    bmc.change(POWER, PowerControl=[*parts, whole])
    with opened(bmc) as source:
        assert figures(source) == {"redfish:power": 240.0}
        assert source.channels[0].note == ""
    bmc.change(POWER, PowerControl=[whole, whole | {"PowerConsumedWatts": 90}])
    with opened(bmc) as source:
        assert figures(source) == {"redfish:power": 240.0}
        assert source.channels[0].note == "first of 2 figures of its resource, named Total"


@pytest.mark.parametrize("name", ["environment", "supplies", "power"])
def test_what_is_no_figure_is_missing_and_never_0(start: Start, name: str) -> None:
    bmc = start(240.0, figures=[name])
    with opened(bmc) as source:
        for said in GARBAGE:
            bmc.set_watts(said)
            assert math.isnan(source.read()[0].value), said
            bmc.set_watts(150.0)
            assert source.read()[0].value == 150.0


@given(st.recursive(st.none() | st.booleans() | st.text() | st.floats() | st.integers(), st.lists))
def test_watts_are_positive_or_missing(said: Any) -> None:
    value = watts(said)
    assert math.isnan(value) or 0 < value < math.inf


KEYS = (
    *("@odata.id", "Members", "EnvironmentMetrics", "PowerSubsystem", "PowerSupplies", "Metrics"),
    *("Power", "PowerControl", "PowerConsumedWatts", "PhysicalContext", "PowerMetrics"),
    *("IntervalInMin", "AverageConsumedWatts", "Name", "Status", "State", "InputPowerWatts"),
    *("PowerWatts", "Reading", "DataSourceUri", "ReadingTime", "SensingInterval", "EnergykWh"),
    *("EnergyJoules", "LifetimeReading", "AveragingInterval", "ReadingUnits"),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("/a")
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=40,
)
documents = st.dictionaries(st.sampled_from(KEYS), values)


@given(documents, documents)
def test_whatever_a_service_answers_it_is_a_figure_or_none(
    chassis: dict[str, Any], other: dict[str, Any]
) -> None:
    links = {key: linked("/a") for key in ("EnvironmentMetrics", "PowerSubsystem", "Power")}
    for start in (chassis, links):
        for find in (best_power, energy_counter):
            found = find(start, lambda _path: other)
            value = found.now(lambda _path: other) if found else math.nan
            assert math.isnan(value) or 0 < value < math.inf


def test_the_sum_of_supplies_lacks_none_but_those_that_rest(start: Start) -> None:
    bmc = start(240.0, figures=["supplies"])
    metrics = f"{SUPPLIES}/1/Metrics"
    with opened(bmc) as source:
        for said, total in [
            ({"InputPowerWatts": {"Reading": 0}}, 120.0),
            ({"InputPowerWatts": {"Reading": None}}, math.nan),
            ({"Status": {"State": "StandbyOffline"}}, 120.0),
            ({"Status": {"State": "Enabled"}}, math.nan),
            ({"InputPowerWatts": {"Reading": 130}}, 250.0),
        ]:
            bmc.change(metrics, **said)
            assert source.read()[0].value == pytest.approx(total, nan_ok=True), said
        bmc.remove(metrics)
        assert math.isnan(source.read()[0].value)
    assert "no chassis tells its watts" in refused_opening(bmc)
    bmc.change(f"{SUPPLIES}/1", Status={"State": "Absent"})
    with opened(bmc) as source:
        assert figures(source) == {"redfish:supplies": 120.0}


@pytest.mark.parametrize(
    ("said", "joules", "resolution"),
    [
        ({"EnergykWh": {"Reading": 12.5001}}, 12.5001 * 3.6e6, 360.0),
        ({"EnergykWh": {"Reading": 1.5, "LifetimeReading": 12.50001}}, 12.50001 * 3.6e6, 36.0),
        ({"EnergykWh": {"Reading": 12.500000277777}}, 12.500000277777 * 3.6e6, math.nan),
        ({"EnergyJoules": {"Reading": 45_000_360}}, 45_000_360.0, 1.0),
    ],
)
def test_a_fine_counter_of_energy_stands_beside_the_power_and_is_never_added_to_it(
    start: Start, said: dict[str, Any], joules: float, resolution: float
) -> None:
    bmc = start(240.0)
    bmc.change(ENVIRONMENT, **said)
    with opened(bmc) as source:
        power, energy = source.channels
        assert repr(power) == repr(Channel("redfish:environment", "power", "host"))
        assert (energy.label, energy.quantity) == ("redfish:energy", "energy")
        assert energy.inside == power.label
        assert energy.resolution == pytest.approx(resolution, nan_ok=True)
        asked = len(bmc.asked)
        assert figures(source) == {"redfish:environment": 240.0, "redfish:energy": joules}
        assert len(bmc.asked) == asked + 1
        bmc.change(ENVIRONMENT, EnergykWh=None, EnergyJoules=None)
        assert math.isnan(figures(source)["redfish:energy"])


@pytest.mark.parametrize("said", [12.5, 13, 0.0, "12.5001", None])
def test_a_coarse_counter_of_energy_is_left_alone(start: Start, said: Any) -> None:
    bmc = start(240.0)
    bmc.change(ENVIRONMENT, EnergykWh={"Reading": said})
    with opened(bmc) as source:
        assert [channel.label for channel in source.channels] == ["redfish:environment"]


def with_blade_and_accelerator(bmc: RedfishBmc) -> None:
    """Chassis 1 holds a blade, which is another host's, and the blade holds an accelerator."""
    systems = {"ComputerSystems": [linked(f"{V1}/Systems/1")]}
    bmc.change(f"{CHASSIS}/1", Links=systems)
    inside = systems | {"ContainedBy": linked(f"{CHASSIS}/1")}
    bmc.add_chassis("Blade2", 90.0, ["power"], Id="Blade 2", Links=inside)
    inner = {"ContainedBy": linked(f"{CHASSIS}/Slot")}
    bmc.add_chassis("Slot", None, [], Links={"ContainedBy": linked(f"{CHASSIS}/Blade2")})
    bmc.add_chassis("GPU", 40.0, ["environment"], Links=inner)


def test_of_several_chassis_each_is_named_and_those_in_others_are_marked(start: Start) -> None:
    bmc = start(300.0, figures=["power"])
    with_blade_and_accelerator(bmc)
    with opened(bmc) as source:
        assert [(c.label, c.domain, c.inside) for c in source.channels] == [
            ("redfish:power-1", "host", None),
            ("redfish:power-Blade_2", "host", "redfish:power-1"),
            ("redfish:environment-GPU", "other", "redfish:power-Blade_2"),
        ]
        assert list(figures(source).values()) == [300.0, 90.0, 40.0]
    with opened(bmc, chassis="Blade 2") as source:
        assert [(c.label, c.inside) for c in source.channels] == [("redfish:power", None)]
        assert figures(source) == {"redfish:power": 90.0}
    message = refused_opening(bmc, chassis="3")
    assert "no chassis has the Id '3': choose one of 1, Blade 2, Slot, GPU" in message


def test_a_chassis_without_an_id_is_named_by_its_path(start: Start) -> None:
    bmc = start(300.0, figures=["power"])
    bmc.add_chassis("Node7", 280.0, ["power"], Id=None)
    with opened(bmc, chassis="Node7") as source:
        assert figures(source) == {"redfish:power": 280.0}


def test_chassis_beside_each_other_and_enclosures_say_what_to_mind(start: Start) -> None:
    bmc = start(300.0, figures=["power"])
    bmc.add_chassis("2", 280.0, ["power"])
    with opened(bmc) as source:
        assert {c.note for c in source.channels} == {
            "one of 2 chassis that may share watts: choose one with chassis=ID"
        }
    nodes = [linked(f"{V1}/Systems/{n}") for n in range(4)]
    bmc.change(f"{CHASSIS}/1", Links={"ComputerSystems": nodes})
    with opened(bmc, chassis="1") as source:
        assert (source.channels[0].domain, source.channels[0].note) == ("other", "covers 4 systems")


def test_members_are_read_page_by_page(start: Start) -> None:
    bmc = start(300.0, figures=["power"])
    bmc.add_chassis("2", 280.0, ["power"])
    first, second = bmc.document(CHASSIS)["Members"]
    bmc.put(CHASSIS, {"Members": [first], "Members@odata.nextLink": f"{CHASSIS}?$skip=1"})
    bmc.put(f"{CHASSIS}?$skip=1", {"Members": [second]})
    with opened(bmc) as source:
        assert list(figures(source).values()) == [300.0, 280.0]


def test_many_readings_share_one_connection(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        opening = bmc.connections
        for _ in range(50):
            source.read()
        assert bmc.connections == opening


# Trust.


def test_a_certificate_of_a_given_authority_is_trusted(start: Start, authority: Authority) -> None:
    bmc = start(240.0, certificate=authority.certificate())
    for address in (bmc.address, bmc.direct, bmc.address.removeprefix("https://")):
        with opened(address, ca=str(authority.pem)) as source:
            assert figures(source) == {"redfish:environment": 240.0}
            assert source.channels[0].note == ""


def test_an_unknown_certificate_is_refused_with_the_remedy(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    bmc = start(240.0, certificate=authority.certificate())
    message = refused_opening(bmc)
    assert "its certificate is not trusted: unable to get local issuer certificate" in message
    assert "ca=FILE" in message
    assert "verify=no" in message
    assert "not trusted" in refused_opening(bmc, ca=str(Authority(tmp_path, "Other").pem))
    empty = tmp_path / "empty.pem"
    empty.touch()
    assert "empty.pem: holds no certificate" in refused_opening(bmc, ca=str(empty))
    absent = tmp_path / "absent.pem"
    assert "absent.pem: No such file" in refused_opening(bmc, ca=str(absent))
    assert bmc.asked == []


def test_a_certificate_of_another_host_is_refused(start: Start, authority: Authority) -> None:
    bmc = start(240.0, certificate=authority.certificate("bmc.example"))
    assert "certificate is not valid for '127.0.0.1'" in refused_opening(bmc, ca=str(authority.pem))
    assert bmc.asked == []


def test_without_verification_the_channel_says_so(start: Start, authority: Authority) -> None:
    bmc = start(240.0, certificate=authority.certificate())
    with opened(bmc, verify="no") as source:
        assert figures(source) == {"redfish:environment": 240.0}
        assert source.channels[0].note == "the certificate was not verified"
    assert "verify=maybe: write yes or no" in refused_opening(bmc, verify="maybe")


@pytest.mark.parametrize("options", [{"verify": "no"}, {}])
def test_a_certificate_that_changes_gets_nothing_sent_to_it(
    start: Start, authority: Authority, options: dict[str, str]
) -> None:
    bmc = start(240.0, certificate=authority.certificate(), login=(USER, PASSWORD))
    options = options or {"ca": str(authority.pem)}
    with opened(bmc, login=(USER, PASSWORD), **options) as source:
        source.read()
        # Of the same authority and for the same host, and still another.
        bmc.renew(authority.certificate())
        asked = len(bmc.asked)
        for _ in range(2):
            assert "shows another certificate than when it was opened" in refusal(source.read)
    assert len(bmc.asked) == asked


def test_a_port_without_tls_is_named_as_such(start: Start) -> None:
    bmc = start(240.0)
    assert "no TLS connection" in refused_opening(bmc.address.replace("http:", "https:"))


# Login.


def test_a_session_is_opened_once_and_ended(start: Start) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    with opened(bmc, login=(USER, PASSWORD)) as source:
        for _ in range(3):
            assert figures(source) == {"redfish:environment": 240.0}
        assert len(bmc.tokens) == 1
    assert bmc.tokens == set()
    source.close()
    assert [asked.method for asked in bmc.asked if asked.method != "GET"] == ["POST", "DELETE"]
    assert not any("Authorization" in asked.headers for asked in bmc.asked)


def test_a_session_named_by_the_body_of_the_answer_is_ended_too(start: Start) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    bmc.tells_session_by = {"X-Auth-Token"}
    with opened(bmc, login=(USER, PASSWORD)) as source:
        assert figures(source) == {"redfish:environment": 240.0}
    assert bmc.asked[-1][:2] == ("DELETE", f"{SESSIONS}/1")


def test_a_service_that_takes_a_login_but_gives_no_token_is_asked_by_basic_authentication(
    start: Start,
) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    bmc.tells_session_by = set()
    with opened(bmc, login=(USER, PASSWORD)) as source:
        assert figures(source) == {"redfish:environment": 240.0}
        assert "Authorization" in bmc.asked[-1].headers


def test_basic_authentication_serves_where_there_are_no_sessions(start: Start) -> None:
    bmc = start(240.0, login=(USER, PASSWORD), sessions=False)
    with opened(bmc, login=(USER, PASSWORD)) as source:
        assert figures(source) == {"redfish:environment": 240.0}
    assert [asked.method for asked in bmc.asked].count("POST") == 1


@pytest.mark.parametrize("sessions", [True, False])
def test_a_rejected_password_is_tried_once(start: Start, sessions: bool) -> None:
    bmc = start(240.0, login=(USER, PASSWORD), sessions=sessions)
    message = refused_opening(bmc, login=(USER, "wrong"))
    assert f"rejects user {USER!r} or the password" in message
    assert "wrong" not in message
    attempts = [a for a in bmc.asked if a.method == "POST" or "Authorization" in a.headers]
    assert len(attempts) == (1 if sessions else 2)


def test_a_dropped_session_is_opened_again_once(start: Start) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    with opened(bmc, login=(USER, PASSWORD)) as source:
        bmc.drop_sessions()
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.drop_sessions()
        bmc.login = (USER, "changed meanwhile")
        posts = [a.method for a in bmc.asked].count("POST")
        for _ in range(3):
            assert "rejects user" in refusal(source.read)
        # More than one attempt with an old password would lock the account.
        assert [a.method for a in bmc.asked].count("POST") == posts + 1


def test_a_session_that_never_holds_ends(start: Start) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    with opened(bmc, login=(USER, PASSWORD)) as source:
        bmc.next_said.extend([Said(401), Said(401)])
        assert "rejects user" in refusal(source.read)


def test_who_asks_for_a_login_is_told_whose(start: Start) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    asked_for = []

    def login(kind: str, host: str) -> Login:
        asked_for.append((kind, host))
        return Login(USER, PASSWORD)

    source = open_source(bmc.address, SourceSettings(login=login))
    bmc.drop_sessions()
    source.read()
    source.close()
    assert asked_for == [("redfish", LOCAL)]
    assert "needs a user and a password" in refused_opening(bmc)


def test_a_forbidden_resource_names_the_user_and_the_role(start: Start) -> None:
    bmc = start(240.0, figures=["power"], login=(USER, PASSWORD))
    with opened(bmc, login=(USER, PASSWORD)) as source:
        bmc.next_said.append(Said(403))
        message = refusal(source.read)
        assert f"user {USER!r} may not read {POWER}: give the account a role" in message
    bmc.remove(POWER)
    bmc.change(f"{CHASSIS}/1", Power=linked(f"{CHASSIS}/1/Power"))
    assert "no chassis tells its watts" in refused_opening(bmc, login=(USER, PASSWORD))


def test_a_resource_forbidden_at_the_start_is_the_reason(start: Start) -> None:
    bmc = start(240.0, figures=["power"])
    chassis = Said(200, bmc._file(f"{CHASSIS}/1").read_bytes())
    collection = Said(200, bmc._file(CHASSIS).read_bytes())
    root = Said(200, bmc._file(V1).read_bytes())
    bmc.next_said.extend([root, collection, chassis, Said(403)])
    assert f"one who has not logged in may not read {POWER}" in refused_opening(bmc)


def test_no_login_goes_over_plain_http_but_to_this_machine(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    bmc = start(240.0, login=(USER, PASSWORD))
    monkeypatch.setattr(Origin, "is_loopback", False)
    message = refused_opening(bmc, login=(USER, PASSWORD))
    assert "http:// would send in the clear: use https://" in message
    assert {asked.method for asked in bmc.asked} == {"GET"}


def test_the_password_is_in_no_text_and_no_log(
    start: Start, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    bmc = start(240.0, login=(USER, PASSWORD), sessions=False)
    with opened(bmc, login=(USER, PASSWORD)) as source:
        source.read()
        texts = [
            repr(source),
            repr(vars(source)),
            repr(vars(source._client)),
            repr(source.channels),
        ]
    texts += [caplog.text, *capfd.readouterr()]
    assert "s3cret" not in "".join(texts)


# Faults.


def test_a_late_answer_is_given_up_after_the_limit(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc, timeout_s=0.5) as source:
        bmc.late_s = 30.0
        begun = time.monotonic()
        assert "no answer within 0.5 s" in refusal(source.read)
        assert time.monotonic() - begun < 10.0
        bmc.late_s = 0.0
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.late_s = 0.1
        assert figures(source) == {"redfish:environment": 240.0}


def test_the_limit_is_ten_seconds_unless_told() -> None:
    assert SourceSettings().timeout_s == 10.0


def test_one_broken_connection_is_forgiven(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        bmc.drop_connections()
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.hang_ups = 1
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.hang_ups = 2
        message = refusal(source.read)
        assert f"breaks the connection off instead of answering {ENVIRONMENT}" in message
        assert figures(source) == {"redfish:environment": 240.0}


def test_an_answer_that_breaks_off_is_asked_for_again_and_one_that_stalls_is_not(
    start: Start,
) -> None:
    bmc = start(240.0)
    with opened(bmc, timeout_s=0.5) as source:
        bmc.next_said.append(Said(200, b'{"PowerWatts": ', missing=9))
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.next_said.append(Said(200, b'{"PowerWatts": ', missing=9, stalls=True))
        assert "no answer within 0.5 s" in refusal(source.read)
        assert figures(source) == {"redfish:environment": 240.0}
        # Byte by byte, none of them late.
        bmc.next_said.append(Said(200, b"[0, 1, 2]", pause_s=0.1))
        assert "no answer within 0.5 s" in refusal(source.read)


def test_a_service_that_stopped_says_that_nobody_is_there(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        bmc.stop()
        assert "cannot be reached: Connection refused" in refusal(source.read)


def test_an_address_where_nobody_answers_says_so() -> None:
    with socket.socket() as reserved:
        reserved.bind((LOCAL, 0))
        port = reserved.getsockname()[1]
        assert "cannot be reached: Connection refused" in refused_opening(f"{LOCAL}:{port}")
    assert "cannot be reached" in refused_opening("a" * 64)


def test_who_accepts_and_never_answers_is_given_up() -> None:
    with socket.create_server((LOCAL, 0)) as silent:
        address = f"{LOCAL}:{silent.getsockname()[1]}"
        for scheme in ("https", "http"):
            message = refused_opening(f"{scheme}://{address}", timeout_s=0.3)
            assert "no answer within 0.3 s" in message


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_one_stumble_is_forgiven_and_two_are_not(start: Start, status: int) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        bmc.next_said.append(Said(status, b"", (("Retry-After", "0"),)))
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.next_said.extend([Said(status, b"<html>")] * 2)
        assert f"{ENVIRONMENT} answers {status}" in refusal(source.read)


def test_a_busy_service_is_given_the_time_it_asks_for_within_the_limit(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        begun = time.monotonic()
        bmc.next_said.append(Said(503, b"", (("Retry-After", "1"),)))
        assert figures(source) == {"redfish:environment": 240.0}
        assert time.monotonic() - begun >= 1.0
        bmc.next_said.append(Said(503, b"", (("Retry-After", "3600"),)))
        assert "answers 503 and asks to wait 3600 s: try again then" in refusal(source.read)
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        bmc.next_said.append(Said(503, b"", (("Retry-After", format_datetime(later)),)))
        assert "asks to wait 3" in refusal(source.read)
        bmc.next_said.append(Said(503, b"", (("Retry-After", "soon"),)))
        assert figures(source) == {"redfish:environment": 240.0}


@pytest.mark.parametrize("body", [b"<html>", b"", b'{"PowerWatts": {"Rea', b"[]", b"[" * 100_000])
def test_what_is_no_json_object_is_an_error_with_its_beginning(start: Start, body: bytes) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        bmc.next_said.append(Said(200, body))
        message = refusal(source.read)
        assert f"{ENVIRONMENT} is no JSON object but begins {body[:40].decode()!r}" in message


def test_an_endless_answer_is_cut_off(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        bmc.next_said.append(Said(200, b" " * (5 << 20)))
        assert "sends more than 4 MiB" in refusal(source.read)
        assert figures(source) == {"redfish:environment": 240.0}


def test_redirects_are_followed_to_the_same_service_only(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        for place in (ENVIRONMENT + "/", bmc.address + ENVIRONMENT):
            bmc.next_said.append(Said(308, b"", (("Location", place),)))
            assert figures(source) == {"redfish:environment": 240.0}
        for place in (
            "http://elsewhere.example/",
            "//elsewhere.example/redfish",
            "file:///etc",
            "",
        ):
            bmc.next_said.append(Said(302, b"", (("Location", place),)))
            assert f"points to {place!r}, which is not the same service" in refusal(source.read)
        bmc.next_said.extend([Said(302, b"", (("Location", ENVIRONMENT),))] * 3)
        assert "redirected in a circle" in refusal(source.read)


def test_a_chassis_that_goes_away_is_missing(start: Start) -> None:
    bmc = start(240.0)
    with opened(bmc) as source:
        bmc.remove(ENVIRONMENT)
        (reading,) = source.read()
        assert math.isnan(reading.value)
        assert reading.at_s <= time.monotonic()


@pytest.mark.parametrize("broken", [405, 501])
def test_a_broken_resource_does_not_hide_the_next_figure(start: Start, broken: int) -> None:
    bmc = start(240.0, figures=["environment", "power"])
    order = [V1, CHASSIS, f"{CHASSIS}/1"]
    bmc.next_said.extend(Said(200, bmc._file(path).read_bytes()) for path in order)
    bmc.next_said.append(Said(broken))
    with opened(bmc) as source:
        assert figures(source) == {"redfish:power": 240.0}


def test_a_service_without_chassis_or_figures_names_another_way(start: Start) -> None:
    bmc = start(240.0, figures=[])
    message = refused_opening(bmc)
    assert "no chassis tells its watts (there are: 1): update the BMC's firmware" in message
    assert f"ipmi@{LOCAL}" in message
    bmc.put(CHASSIS, {"Members": []})
    assert "(there are: none)" in refused_opening(bmc)
    for members in ("all", 7, [None, "1", {"@odata.id": 1}]):
        bmc.put(CHASSIS, {"Members": members})
        assert "(there are: none)" in refused_opening(bmc)


# Addresses and options.


@pytest.mark.parametrize(
    ("where", "origin"),
    [
        ("bmc-7", Origin("https", "bmc-7", 443)),
        ("bmc-7:8443", Origin("https", "bmc-7", 8443)),
        ("https://10.0.0.7/redfish/v1/", Origin("https", "10.0.0.7", 443)),
        ("http://localhost:8000", Origin("http", "localhost", 8000)),
        ("http://localhost", Origin("http", "localhost", 80)),
        ("[fe80::1]:8443", Origin("https", "fe80::1", 8443)),
    ],
)
def test_addresses(where: str, origin: Origin) -> None:
    assert parse_origin(where) == origin
    assert parse_origin(origin.url) == origin


@pytest.mark.parametrize(
    "where",
    ["ftp://bmc", "https://", "bmc:port", "bmc:99999", "bmc/Chassis", "bmc?a=b", "[::1", " "],
)
def test_what_is_no_address(where: str) -> None:
    assert "redfish@HOST[:PORT]" in refusal(lambda: parse_origin(where))


def test_a_login_in_the_address_is_refused_and_not_repeated() -> None:
    for where in ("admin:s3cret@bmc", "https://admin:s3[cret@bmc", "s3cret@"):
        message = refusal(lambda where=where: parse_origin(where))
        assert "no user or password belongs in the address" in message
        assert "s3" not in message


def test_which_hosts_are_this_machine() -> None:
    hosts = {"127.0.0.1": True, "::1": True, "localhost": True, "10.0.0.7": False, "bmc": False}
    assert {host: Origin("http", host, 80).is_loopback for host in hosts} == hosts


def test_names_show_the_port_where_it_is_unusual() -> None:
    assert Origin("https", "bmc", 443).name == "redfish at bmc"
    assert Origin("https", "bmc", 8443).name == "redfish at bmc port 8443"


def test_an_unknown_option_is_refused() -> None:
    message = refused_opening("bmc", verfy="no")
    assert "no option verfy: it has ca, chassis, verify" in message
    assert "needs an address" in refusal(lambda: open_source(None, SourceSettings()))


def test_durations() -> None:
    said = {"PT1S": 1.0, "PT0.25S": 0.25, "P0DT0H1M0S": 60.0, "P1DT1H": 90000.0, "1 s": 0.0}
    assert {text: seconds(text) for text in said} == said
    assert seconds(None) == 0.0
    assert seconds(f"PT{'9' * 400}S") == 0.0


def test_the_registry_opens_it(start: Start) -> None:
    bmc = start(240.0)
    spec = registry.parse_spec(f"redfish@{bmc.address},chassis=1")
    with contextlib.closing(registry.open_source(spec, SourceSettings())) as source:
        assert [reading.value for reading in source.read()] == [240.0]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "requests", None)
    assert "pip install 'perf-per-watt[measure]'" in refused_opening("bmc")


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = {"requests", "urllib3", "numpy", "pandas", "scipy"}
    code = f"import measurements.power.redfish, sys; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
