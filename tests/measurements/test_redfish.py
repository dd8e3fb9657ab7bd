"""Redfish: every figure and every fault of a BMC; sushy-static and DMTF's own client as peers."""

import contextlib
import datetime
import logging
import math
import socket
import sys
import time
import traceback
import types
from email.utils import format_datetime

import pytest
from peers.redfish_bmc import CHASSIS, LOCAL, SESSIONS, V1, RedfishBmc, Said, certificate, linked

from measurements.power import redfish_client, source as sources
from measurements.power.redfish import PERIOD_S, open_source, seconds
from measurements.power.redfish_client import ServiceOrigin, parse_origin
from measurements.power.source import Channel, Login, SensorError, SourceSettings

USER, PASSWORD = "admin", "s3cret, with: äö"
ENVIRONMENT, POWER = f"{CHASSIS}/1/EnvironmentMetrics", f"{CHASSIS}/1/Power"
SUPPLIES = f"{CHASSIS}/1/PowerSubsystem/PowerSupplies"
SENSOR = f"{CHASSIS}/1/Sensors/TotalPower"
GARBAGE = [0, None, -5, "240", True, [], {}, 65535, 4294967295, 4294967.295]
GARBAGE += [math.nan, math.inf, 10**400]
AMPLE_S, AT_ONCE_S = 60.0, 0.05


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:
        yield lambda watts=240.0, **given: stack.enter_context(RedfishBmc(watts, **given))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("authority"), "Authority")


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Seconds that a client waited for a busy service, which nobody waits for here."""
    waited = []
    clock = types.SimpleNamespace(monotonic=time.monotonic, sleep=waited.append)
    monkeypatch.setattr(redfish_client, "time", clock)
    return waited


@contextlib.contextmanager
def opened(bmc, *, login=None, timeout_s=AMPLE_S, **options):
    address = bmc if isinstance(bmc, str) else bmc.address
    known = {"login": lambda *_: Login(*login)} if login else {}
    settings = SourceSettings(timeout_s=timeout_s, options=options, **known)
    with contextlib.closing(open_source(address, settings)) as source:
        yield source


def figures(source):
    return {reading.label: reading.value for reading in source.read()}


def refusal(read):
    with pytest.raises(SensorError) as refused:
        read()
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith("redfish")
    assert PASSWORD not in "".join(traceback.format_exception(refused.value))
    return message


def refused_opening(bmc, **given):
    def read():
        with opened(bmc, **given) as source:
            source.read()

    return refusal(read)


@pytest.mark.parametrize("name", ["environment", "supplies", "power"])
def test_each_figure_moves_with_the_bmc_and_what_is_none_is_missing_and_never_0(start, name):
    bmc = start(240.5, figures=[name])
    with opened(bmc) as source:
        assert repr(source.channels) == repr((Channel(f"redfish:{name}", "power", "host"),))
        assert source.period_s == PERIOD_S
        opening = bmc.connections
        for said in (240.5, 311.0, 98):
            bmc.set_watts(said)
            before = time.monotonic()
            (reading,) = source.read()
            assert before < reading.at_s < time.monotonic()
            assert (reading.value, reading.source_at_s) == (said, None)
        for said in GARBAGE:
            bmc.set_watts(said)
            assert math.isnan(source.read()[0].value), said
        assert bmc.connections == opening


@pytest.mark.peer("redfish")
def test_figures_of_sushy_static_agree_with_another_client(start, tmp_path):
    import redfish

    def by_dmtf():
        """Watts by the client of the standard's authors."""

        def get(path):
            return client.get(path).dict

        members = get(f"{CHASSIS}/2/PowerSubsystem/PowerSupplies")["Members"]
        links = [get(member["@odata.id"])["Metrics"]["@odata.id"] for member in members]
        return [
            get(ENVIRONMENT)["PowerWatts"]["Reading"],
            sum(get(link)["InputPowerWatts"]["Reading"] for link in links),
            get(f"{CHASSIS}/3/Power")["PowerControl"][0]["PowerConsumedWatts"],
        ]

    bmc = start(240.5, figures=["environment"])
    bmc.add_chassis("2", 240.5, ["supplies"])
    bmc.add_chassis("3", 240.5, ["power"])
    with bmc.served(tmp_path) as address, opened(address) as source:
        labels = [channel.label for channel in source.channels]
        assert labels == ["redfish:environment-1", "redfish:supplies-2", "redfish:power-3"]
        client = redfish.redfish_client(base_url=address)
        with contextlib.closing(client._session):
            for said in (240.5, 311.0, 98):
                for chassis in "123":
                    bmc.set_watts(said, chassis)
                assert [reading.value for reading in source.read()] == by_dmtf() == [said] * 3


def test_the_best_figure_is_the_first_that_says_something(start):
    bmc = start()
    for path, silent, label in (
        (ENVIRONMENT, {"PowerWatts": {"Reading": 0}}, "redfish:environment"),
        (f"{SUPPLIES}/1/Metrics", {"InputPowerWatts": {"Reading": None}}, "redfish:supplies"),
        (POWER, {"PowerControl": [{"PowerConsumedWatts": None}]}, "redfish:power"),
    ):
        with opened(bmc) as source:
            assert figures(source) == {label: 240.0}
        bmc.change(path, **silent)
    # Of a host that is off the best figure is the one that should speak first.
    with opened(bmc) as source:
        assert figures(source) == pytest.approx({"redfish:environment": math.nan}, nan_ok=True)
        bmc.set_watts(120.0)
        assert figures(source) == {"redfish:environment": 120.0}


def test_a_figure_by_the_sensor_behind_it_has_the_time_and_window_of_the_sensor(start):
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
        assert (source.channels[0].window_s, source.period_s) == (60.0, PERIOD_S)
    bmc.change(SENSOR, ReadingUnits="A")
    with opened(bmc) as source:
        assert figures(source) == {"redfish:environment": 239.0}


def test_of_power_control_only_the_whole_is_read_and_an_average_where_there_is_no_other(start):
    bmc = start(None, figures=["power"])
    metrics = {"IntervalInMin": 5, "AverageConsumedWatts": 251, "MaxConsumedWatts": 420}
    parts = [{"PhysicalContext": c, "PowerConsumedWatts": 80} for c in ("CPU", "Memory")]
    whole = {"PhysicalContext": "Chassis", "Name": "Total", "PowerConsumedWatts": 240}
    several = "first of 2 readings of its resource, named Total"
    for entries, name, window_s, said, note in (
        ([{"PowerConsumedWatts": 240, "PowerMetrics": metrics}], "power", 0, 240, ""),
        ([{"PowerConsumedWatts": None, "PowerMetrics": metrics}], "average", 300, 251, None),
        ([*parts, whole], "power", 0, 240, ""),
        ([whole, whole | {"PowerConsumedWatts": 90}], "power", 0, 240, several),
    ):
        bmc.change(POWER, PowerControl=entries)
        with opened(bmc) as source:
            assert [c.window_s for c in source.channels] == [window_s]
            assert figures(source) == {f"redfish:{name}": said}
            assert note in (None, source.channels[0].note)
    # An average over nobody knows how long is no figure.
    for interval in ({}, {"IntervalInMin": 0}, {"IntervalInMin": "5"}):
        bmc.change(POWER, PowerControl=[{"PowerMetrics": interval | {"AverageConsumedWatts": 251}}])
        assert "no chassis reports its power (there are: 1)" in refused_opening(bmc)


def test_the_sum_of_supplies_lacks_none_but_those_that_rest(start):
    bmc = start(figures=["supplies"])
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
    assert "no chassis reports its power" in refused_opening(bmc)
    bmc.change(f"{SUPPLIES}/1", Status={"State": "Absent"})
    with opened(bmc) as source:
        assert figures(source) == {"redfish:supplies": 120.0}


def test_a_counter_of_energy_stands_beside_the_power_where_it_is_fine(start):
    bmc = start()
    for said, joules, resolution in (
        ({"EnergykWh": {"Reading": 12.5001}}, 12.5001 * 3.6e6, 360.0),
        ({"EnergykWh": {"Reading": 1.5, "LifetimeReading": 12.50001}}, 12.50001 * 3.6e6, 36.0),
        ({"EnergykWh": {"Reading": 12.500000277777}}, 12.500000277777 * 3.6e6, math.nan),
        ({"EnergyJoules": {"Reading": 45_000_360}}, 45_000_360.0, 1.0),
    ):
        bmc.change(ENVIRONMENT, **said)
        with opened(bmc) as source:
            power, energy = source.channels
            assert repr(power) == repr(Channel("redfish:environment", "power", "host"))
            assert (energy.label, energy.quantity) == ("redfish:energy", "energy")
            # Never added to the power.
            assert energy.inside == power.label
            assert energy.resolution == pytest.approx(resolution, nan_ok=True)
            asked = len(bmc.asked)
            assert figures(source) == {"redfish:environment": 240.0, "redfish:energy": joules}
            assert len(bmc.asked) == asked + 1
            for none in ({"Reading": said} for said in GARBAGE[1:]):
                bmc.change(ENVIRONMENT, EnergykWh=none, EnergyJoules=none)
                assert math.isnan(figures(source)["redfish:energy"]), none
    for coarse in (12.501, 13, 0.0, "1.0001"):
        bmc.change(ENVIRONMENT, EnergykWh={"Reading": coarse})
        with opened(bmc) as source:
            assert [channel.label for channel in source.channels] == ["redfish:environment"]


def test_durations():
    said = {"PT1S": 1.0, "PT0.25S": 0.25, "P0DT0H1M0S": 60.0, "P1DT1H": 90000.0, "1 s": 0.0}
    said |= {None: 0.0, f"PT{'9' * 400}S": 0.0}
    assert {text: seconds(text) for text in said} == said


def test_of_several_chassis_each_is_named_and_those_in_others_are_marked(start):
    bmc = start(300.0, figures=["power"])
    # Chassis 1 holds a blade, which is another host's, and the blade holds an accelerator.
    systems = {"ComputerSystems": [linked(f"{V1}/Systems/1")]}
    bmc.change(f"{CHASSIS}/1", Links=systems)
    inside = systems | {"ContainedBy": linked(f"{CHASSIS}/1")}
    bmc.add_chassis("Blade2", 90.0, ["power"], Id="Blade 2", Links=inside)
    inner = {"ContainedBy": linked(f"{CHASSIS}/Slot")}
    bmc.add_chassis("Slot", None, [], Links={"ContainedBy": linked(f"{CHASSIS}/Blade2")})
    bmc.add_chassis("GPU", 40.0, ["environment"], Id=None, Links=inner)
    with opened(bmc) as source:
        assert [(c.label, c.domain, c.inside) for c in source.channels] == [
            ("redfish:power-1", "host", None),
            ("redfish:power-Blade_2", "host", "redfish:power-1"),
            ("redfish:environment-GPU", "other", "redfish:power-Blade_2"),
        ]
        assert list(figures(source).values()) == [300.0, 90.0, 40.0]
    # One without an Id is named by its path.
    for chassis, label, said in (("Blade 2", "power", 90.0), ("GPU", "environment", 40.0)):
        with opened(bmc, chassis=chassis) as source:
            assert [c.inside for c in source.channels] == [None]
            assert figures(source) == {f"redfish:{label}": said}
    message = refused_opening(bmc, chassis="3")
    assert "no chassis has the Id '3': choose one of 1, Blade 2, Slot, GPU" in message


def test_chassis_beside_each_other_and_enclosures_say_what_to_mind(start):
    bmc = start(300.0, figures=["power"])
    bmc.add_chassis("2", 280.0, ["power"])
    note = "one of 2 chassis that may count the same power: choose one with chassis=ID"
    with opened(bmc) as source:
        assert {c.note for c in source.channels} == {note}
    # Members come page by page.
    first, second = bmc.document(CHASSIS)["Members"]
    bmc.put(CHASSIS, {"Members": [first], "Members@odata.nextLink": f"{CHASSIS}?$skip=1"})
    bmc.put(f"{CHASSIS}?$skip=1", {"Members": [second]})
    with opened(bmc) as source:
        assert list(figures(source).values()) == [300.0, 280.0]
    nodes = [linked(f"{V1}/Systems/{n}") for n in range(4)]
    bmc.change(f"{CHASSIS}/1", Links={"ComputerSystems": nodes})
    with opened(bmc, chassis="1") as source:
        assert (source.channels[0].domain, source.channels[0].note) == ("other", "covers 4 systems")


def test_a_pdu_and_one_of_its_outlets_are_read_in_place_of_the_chassis(start):
    # Resources, links and entries of the Redfish description of a rack PDU.
    bmc = start(300.0)
    pdus = f"{V1}/PowerEquipment/RackPDUs"
    bmc.change(V1, PowerEquipment=linked(f"{V1}/PowerEquipment"))
    bmc.put(f"{V1}/PowerEquipment", {"RackPDUs": linked(pdus)})
    bmc.put(pdus, {"Members": [linked(f"{pdus}/1")]})
    links = {"Metrics": linked(f"{pdus}/1/Metrics"), "Outlets": linked(f"{pdus}/1/Outlets")}
    bmc.put(f"{pdus}/1", {"Id": "1", **links})
    metrics = {"PowerWatts": {"Reading": 6438}, "EnergykWh": {"Reading": 56438}}
    bmc.put(f"{pdus}/1/Metrics", metrics)
    names = [f"{pdus}/1/Outlets/{name}" for name in ("A1", "A2")]
    bmc.put(f"{pdus}/1/Outlets", {"Members": [linked(name) for name in names]})
    for path, power, energy in zip(names, (118.0, 0.0), (36166.1, 0.02), strict=True):
        said = {"PowerWatts": {"Reading": power}, "EnergykWh": {"Reading": energy}}
        bmc.put(path, {"@odata.id": path, "Id": path[-2:], **said})
    with opened(bmc, pdu="1") as source:
        assert figures(source) == {"redfish:distribution": 6438.0}
        (channel,) = source.channels
        assert (channel.domain, channel.note) == ("other", "covers all outlets of the PDU")
    with opened(bmc, outlet="A1") as source:
        assert figures(source) == {"redfish:distribution": 118.0}
        assert source.channels[0].domain == "host"
        bmc.change(names[0], PowerWatts={"Reading": 125.5})
        assert figures(source) == {"redfish:distribution": 125.5}
    assert "no PDU has the Id '2': choose one of 1" in refused_opening(bmc, pdu="2")
    message = refused_opening(bmc, pdu="1", outlet="B7")
    assert "no outlet has the Id 'B7': choose one of A1, A2" in message
    with opened(bmc) as source:
        assert figures(source)["redfish:environment"] == 300.0


def test_a_service_without_chassis_or_figures_names_another_way(start):
    bmc = start(figures=[])
    message = refused_opening(bmc)
    assert "no chassis reports its power (there are: 1): update the BMC's firmware" in message
    assert f"ipmi@{LOCAL}" in message
    for members in ([], "all", 7, [None, "1", {"@odata.id": 1}]):
        bmc.put(CHASSIS, {"Members": members})
        assert "(there are: none)" in refused_opening(bmc)
    bmc.put(V1, {"Chassis": None})
    assert "(there are: none)" in refused_opening(bmc)


def test_a_certificate_of_a_given_authority_is_trusted(start, authority):
    bmc = start(certificate=authority.issue())
    for address in (bmc.address, bmc.address.removeprefix("https://")):
        with opened(address, ca=str(authority.pem)) as source:
            assert figures(source) == {"redfish:environment": 240.0}
            assert source.channels[0].note == ""
    with opened(bmc, verify="no") as source:
        assert figures(source) == {"redfish:environment": 240.0}
        assert source.channels[0].note == "the certificate was not verified"


def test_an_unknown_certificate_or_one_of_another_host_is_refused(start, authority, tmp_path):
    bmc = start(certificate=authority.issue())
    message = refused_opening(bmc)
    assert "its certificate is not trusted: unable to get local issuer certificate" in message
    assert "ca=FILE" in message
    assert "verify=no" in message
    (tmp_path / "empty.pem").touch()
    for file, said in (
        (certificate(tmp_path, "Other").pem, "not trusted"),
        (tmp_path / "empty.pem", "empty.pem: holds no certificate"),
        (tmp_path / "absent.pem", "absent.pem: No such file"),
    ):
        assert said in refused_opening(bmc, ca=str(file))
    other = start(certificate=authority.issue("bmc.example"))
    message = refused_opening(other, ca=str(authority.pem))
    assert "certificate is not valid for '127.0.0.1'" in message
    assert bmc.asked == other.asked == []


@pytest.mark.parametrize("verify", [False, True])
def test_a_certificate_that_changes_gets_nothing_sent_to_it(start, authority, verify):
    bmc = start(certificate=authority.issue(), login=(USER, PASSWORD))
    options = {"ca": str(authority.pem)} if verify else {"verify": "no"}
    with opened(bmc, login=(USER, PASSWORD), **options) as source:
        source.read()
        # Of the same authority and for the same host, and still another.
        bmc.renew(authority.issue())
        asked = len(bmc.asked)
        for _ in range(2):
            assert "shows another certificate than when it was opened" in refusal(source.read)
    assert len(bmc.asked) == asked


@pytest.mark.parametrize("told", [{"X-Auth-Token", "Location"}, {"X-Auth-Token"}])
def test_a_session_is_opened_once_and_ended(start, told):
    bmc = start(login=(USER, PASSWORD))
    bmc.tells_session_by = told
    with opened(bmc, login=(USER, PASSWORD)) as source:
        for _ in range(3):
            assert figures(source) == {"redfish:environment": 240.0}
        assert len(bmc.tokens) == 1
    assert bmc.tokens == set()
    source.close()
    assert [asked.method for asked in bmc.asked if asked.method != "GET"] == ["POST", "DELETE"]
    assert bmc.asked[-1][:2] == ("DELETE", f"{SESSIONS}/1")
    assert not any("Authorization" in asked.headers for asked in bmc.asked)


@pytest.mark.parametrize("sessions", [True, False])
def test_basic_authentication_serves_where_there_are_no_sessions(start, sessions, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    bmc = start(login=(USER, PASSWORD), sessions=sessions)
    # A service may take a login and give no token.
    bmc.tells_session_by = set()
    with opened(bmc, login=(USER, PASSWORD)) as source:
        assert figures(source) == {"redfish:environment": 240.0}
        texts = [repr(source), repr(vars(source)), repr(vars(source._client)), caplog.text]
    assert "Authorization" in bmc.asked[-1].headers
    assert [asked.method for asked in bmc.asked].count("POST") == 1
    assert "s3cret" not in "".join([*texts, *capfd.readouterr()])


@pytest.mark.parametrize("sessions", [True, False])
def test_a_rejected_password_is_tried_once(start, sessions):
    bmc = start(login=(USER, PASSWORD), sessions=sessions)
    message = refused_opening(bmc, login=(USER, "wrong"))
    assert f"rejects user {USER!r} or the password" in message
    assert "wrong" not in message
    attempts = [a for a in bmc.asked if a.method == "POST" or "Authorization" in a.headers]
    assert len(attempts) == (1 if sessions else 2)


def test_a_dropped_session_is_opened_again_once(start):
    bmc = start(login=(USER, PASSWORD))
    with opened(bmc, login=(USER, PASSWORD)) as source:
        bmc.tokens.clear()
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.tokens.clear()
        bmc.login = (USER, "changed meanwhile")
        posts = [a.method for a in bmc.asked].count("POST")
        for _ in range(3):
            assert "rejects user" in refusal(source.read)
        # More than one attempt with an old password would lock the account.
        assert [a.method for a in bmc.asked].count("POST") == posts + 1
    bmc.login = (USER, PASSWORD)
    with opened(bmc, login=bmc.login) as source:
        bmc.next_said.extend([Said(401), Said(401)])
        assert "rejects user" in refusal(source.read)


def test_who_asks_for_a_login_is_told_whose_and_none_goes_over_plain_http(start, monkeypatch):
    bmc = start(login=(USER, PASSWORD))
    asked_for = []

    def login(*whose):
        asked_for.append(whose)
        return Login(USER, PASSWORD)

    with contextlib.closing(open_source(bmc.address, SourceSettings(login=login))) as source:
        bmc.tokens.clear()
        source.read()
    assert asked_for == [("redfish", LOCAL)]
    assert "needs a user and a password" in refused_opening(bmc)
    bmc.asked.clear()
    monkeypatch.setattr(ServiceOrigin, "is_loopback", False)
    message = refused_opening(bmc, login=(USER, PASSWORD))
    assert "http:// would send it unencrypted: use https://" in message
    assert {asked.method for asked in bmc.asked} == {"GET"}


def test_a_forbidden_resource_names_the_user_and_the_role(start):
    bmc = start(figures=["power"], login=(USER, PASSWORD))
    with opened(bmc, login=(USER, PASSWORD)) as source:
        bmc.next_said.append(Said(403))
        message = refusal(source.read)
        assert f"user {USER!r} may not read {POWER}: give the account a role" in message
    bmc.remove(POWER)
    assert "no chassis reports its power" in refused_opening(bmc, login=(USER, PASSWORD))


def test_a_broken_resource_does_not_hide_the_next_figure(start):
    forbidden = f"one who has not logged in may not read {ENVIRONMENT}"
    for broken, said in ((405, "no chassis"), (501, "no chassis"), (403, forbidden)):
        bmc = start(figures=["environment", "power"])
        answers = [bmc.said(path) for path in (V1, CHASSIS, f"{CHASSIS}/1")]
        bmc.next_said.extend([*answers, Said(broken)])
        with opened(bmc) as source:
            assert figures(source) == {"redfish:power": 240.0}
        bmc.remove(POWER)
        bmc.next_said.extend([*answers, Said(broken)])
        assert said in refused_opening(bmc)
    bmc.next_said.extend([*answers, Said(418)])
    assert f"{ENVIRONMENT} answers 418" in refused_opening(bmc)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_late_answer_is_given_up_after_the_limit(scheme, start, authority):
    assert SourceSettings().timeout_s == 10.0
    bmc, begun = start(certificate=authority.issue() if scheme == "https" else None), b'{"Power": '
    # The last two would take 30 s for their bytes.
    stalls = Said(200, begun, missing=9, stalls=True)
    byte_by_byte = Said(200, begun + b" " * 3000, pause_s=0.01)
    slow_head = Said(200, b"{}", (("X-Filler", 3000 * "x"),), pause_s=0.01, slow_head=True)
    began_s = time.monotonic()
    with opened(bmc, verify="no") as source:
        for late in ([], [stalls], [byte_by_byte], [slow_head]):
            bmc.is_silent = not late
            bmc.next_said.extend(late)
            source._client._timeout_s = AT_ONCE_S
            assert f"no answer within {AT_ONCE_S:g} s" in refusal(source.read)
            bmc.is_silent, source._client._timeout_s = False, AMPLE_S
            assert figures(source) == {"redfish:environment": 240.0}
        assert time.monotonic() - began_s < 20
        # One that breaks off is asked for again.
        bmc.next_said.append(Said(200, begun, missing=9))
        assert figures(source) == {"redfish:environment": 240.0}


def test_one_broken_connection_is_forgiven(start):
    bmc = start()
    with opened(bmc) as source:
        bmc.hang_up()
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.hang_ups = 1
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.hang_ups = 2
        message = refusal(source.read)
        assert f"closes the connection instead of answering {ENVIRONMENT}" in message
        assert figures(source) == {"redfish:environment": 240.0}
        bmc.stop()
        assert "cannot be reached: Connection refused" in refusal(source.read)


def test_an_address_where_nobody_answers_says_so(start):
    assert "no TLS connection" in refused_opening(start().address.replace("http:", "https:"))
    with socket.socket() as reserved:
        reserved.bind((LOCAL, 0))
        port = reserved.getsockname()[1]
        assert "cannot be reached: Connection refused" in refused_opening(f"{LOCAL}:{port}")
    assert "cannot be reached" in refused_opening("a" * 64)
    with socket.create_server((LOCAL, 0)) as silent:
        address = f"{LOCAL}:{silent.getsockname()[1]}"
        for scheme in ("https", "http"):
            message = refused_opening(f"{scheme}://{address}", timeout_s=AT_ONCE_S)
            assert f"no answer within {AT_ONCE_S:g} s" in message


def test_one_stumble_is_forgiven_and_a_busy_service_gets_the_time_it_asks_for(start, waits):
    bmc = start()
    later = format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1))
    with opened(bmc) as source:
        for status in (500, 502, 503, 504):
            bmc.next_said.append(Said(status, b"", (("Retry-After", "0"),)))
            assert figures(source) == {"redfish:environment": 240.0}
            bmc.next_said.extend([Said(status, b"<html>")] * 2)
            assert f"{ENVIRONMENT} answers {status}" in refusal(source.read)
        for seconds_said in ("1", "-1", "soon"):
            bmc.next_said.append(Said(503, b"", (("Retry-After", seconds_said),)))
            assert figures(source) == {"redfish:environment": 240.0}
        asks = "answers 503 and asks to wait 3"
        for said, told in (("3600", f"{asks}600 s: try again then"), (later, asks)):
            bmc.next_said.append(Said(503, b"", (("Retry-After", said),)))
            assert told in refusal(source.read)
    assert waits == [*([0.0, 0.5] * 4), 1.0, 0.5, 0.5]


def test_what_is_no_resource_of_the_service_is_an_error_that_says_what_it_is(start):
    bmc = start()
    elsewhere = ("http://elsewhere.example/", "//elsewhere.example/redfish", "file:///etc", "")
    with opened(bmc) as source:
        for body in (b"<html>", b"", b'{"PowerWatts": {"Rea', b"[]", b"[" * 100_000):
            bmc.next_said.append(Said(200, body))
            begins = f"{ENVIRONMENT} is no JSON object but begins {body[:40].decode()!r}"
            assert begins in refusal(source.read)
        bmc.next_said.append(Said(200, b" " * (5 << 20)))
        assert "sends more than 4 MiB" in refusal(source.read)
        for place in (ENVIRONMENT + "/", bmc.address + ENVIRONMENT):
            bmc.next_said.append(Said(308, b"", (("Location", place),)))
            assert figures(source) == {"redfish:environment": 240.0}
        for place in elsewhere:
            bmc.next_said.append(Said(302, b"", (("Location", place),)))
            assert f"points to {place!r}, which is another service" in refusal(source.read)
        bmc.next_said.extend([Said(302, b"", (("Location", ENVIRONMENT),))] * 3)
        assert "redirected in a circle" in refusal(source.read)
        bmc.next_said.append(Said(418))
        assert f"{ENVIRONMENT} answers 418" in refusal(source.read)
        # Of a chassis that went away there is no figure.
        bmc.remove(ENVIRONMENT)
        (reading,) = source.read()
        assert math.isnan(reading.value)
        assert reading.at_s <= time.monotonic()


def test_addresses():
    for where, origin, name in (
        ("bmc-7", ServiceOrigin("https", "bmc-7", 443), "bmc-7"),
        ("bmc-7:8443", ServiceOrigin("https", "bmc-7", 8443), "bmc-7 port 8443"),
        ("https://10.0.0.7/redfish/v1/", ServiceOrigin("https", "10.0.0.7", 443), "10.0.0.7"),
        ("http://localhost:8000", ServiceOrigin("http", "localhost", 8000), "localhost port 8000"),
        ("http://localhost", ServiceOrigin("http", "localhost", 80), "localhost"),
        ("[fe80::1]:8443", ServiceOrigin("https", "fe80::1", 8443), "fe80::1 port 8443"),
    ):
        assert parse_origin(where) == parse_origin(origin.url) == origin
        assert origin.name == f"redfish at {name}"


def test_what_is_no_address_and_which_hosts_are_this_machine():
    no_address = ("ftp://bmc", "https://", "bmc:port", "bmc:99999", "bmc/Chassis", "bmc?a=b")
    for where in (*no_address, "[::1", " "):
        assert "redfish@HOST[:PORT]" in refusal(lambda where=where: parse_origin(where))
    for where in ("admin:s3cret@bmc", "https://admin:s3[cret@bmc", "s3cret@"):
        message = refusal(lambda where=where: parse_origin(where))
        assert "the address must not contain a user or password" in message
        assert "s3" not in message
    hosts = {"127.0.0.1": True, "::1": True, "localhost": True, "10.0.0.7": False, "bmc": False}
    assert {host: ServiceOrigin("http", host, 80).is_loopback for host in hosts} == hosts


def test_an_unknown_option_is_refused_and_a_missing_library_named(start, monkeypatch):
    assert "no option verfy: it has ca, chassis, outlet, pdu, verify" in refused_opening(
        "bmc", verfy="no"
    )
    assert "verify=maybe: write yes or no" in refused_opening("bmc", verify="maybe")
    assert "needs an address" in refusal(lambda: open_source(None, SourceSettings()))
    spec = sources.parse_spec(f"redfish@{start().address},chassis=1")
    with contextlib.closing(sources.open_source(spec, SourceSettings())) as source:
        assert [reading.value for reading in source.read()] == [240.0]
    monkeypatch.setitem(sys.modules, "requests", None)
    assert "pip install 'perf-per-watt[measure]'" in refused_opening("bmc")
