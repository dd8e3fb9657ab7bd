"""Named devices, how they are written, and what they make of a trace."""

from __future__ import annotations

import numpy as np
import pytest
from made_traces import busy, trace

from fitting.device_model import Disk, SolidState
from ppw.errors import PpwError
from ppw.traces.devices import (
    DEVICES,
    Latencies,
    Storage,
    completed_iops,
    described,
    parse_device,
    reaching,
    time_text,
)
from ppw.traces.source import columns


class TestParsing:
    def test_parameters_with_units_and_with_or_without_their_endings(self):
        given = "disk,average_seek=9ms,full_seek_s=0.02,capacity=4000GB,revolutions=90,cylinders=5"
        assert parse_device(given) == (
            "disk",
            Disk(4e12, 90.0, average_seek_s=9 * 1e-3, full_seek_s=0.02, cylinders=5),
        )
        assert parse_device("ssd,units=16,read=70us,unit=500MB") == (
            "ssd",
            SolidState(read_s=70e-6, unit_bytes_s=500e6, units=16),
        )

    @pytest.mark.parametrize("name", DEVICES)
    def test_every_parameter_is_said(self, name):
        said = described(DEVICES[name])
        for pair in said.split(", "):
            key, value, *unit = pair.split()
            again = parse_device(f"{name},{key}={value}{''.join(unit).removesuffix('/s')}")[1]
            assert described(again) == said
        assert said.count(",") + 1 == len(DEVICES[name].__dataclass_fields__)

    @pytest.mark.parametrize(
        "text",
        ["", "floppy", "ssd,", "ssd,read", "ssd,read=fast", "disk,track_seek=1s", "ssd,units=x"],
    )
    def test_what_is_no_device_is_refused(self, text):
        with pytest.raises(PpwError):
            parse_device(text)


def test_a_disk_grows_to_the_trace_and_a_drive_has_no_places():
    assert reaching(DEVICES["disk"], 2**40).capacity_bytes == 2**49
    assert reaching(DEVICES["disk"], 8) is DEVICES["disk"]
    assert reaching(DEVICES["ssd"], 2**40) is DEVICES["ssd"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3e-9, "3 ns"), (8.5e-5, "85 µs"), (0.0015, "1.5 ms"), (61.5, "61.5 s")],
)
def test_times_have_the_unit_that_suits(seconds, text):
    assert time_text(seconds) == text


def test_quantiles_of_latencies_are_those_of_all_to_two_percent():
    found = np.random.default_rng(8).lognormal(-7, 1, 20_000)
    latencies = Latencies()
    for part in np.array_split(np.append(found, np.nan), 3):
        latencies.add(part)
    assert latencies.requests == 20_000
    assert latencies.mean_s == pytest.approx(found.mean())
    for share in (0.1, 0.5, 0.99):
        assert latencies.quantile_s(share) == pytest.approx(np.quantile(found, share), rel=0.022)
    assert np.isnan(Latencies().mean_s)


def test_no_latency_has_no_quantile():
    none = Latencies()
    none.add(np.array([np.nan, np.nan]))
    assert (none.requests, none.mean_s == none.mean_s) == (0, False)
    assert np.isnan(none.quantile_s(0.99))


class TestStorage:
    # Each request takes 2 ms, of two units a device.
    DRIVE = SolidState(read_s=2e-3, write_s=2e-3, unit_bytes_s=1e18, units=2)

    def test_latency_and_throughput_by_hand(self):
        # Five at once on one device: two, two, one; another device has one.
        made = trace(time_s=np.zeros(6), device=[0, 0, 0, 0, 0, 1], lbn=np.arange(6) * 80)
        storage = Storage(self.DRIVE)
        (batch,) = columns(made)
        assert storage.take(batch) == pytest.approx([2e-3, 2e-3, 4e-3, 4e-3, 6e-3, 2e-3])
        assert storage.iops == pytest.approx(6 / 6e-3)
        # The first device's units are busy for 10 of 12 ms.
        assert storage.utilisation == pytest.approx(10 / 12)
        assert storage.possible_iops == pytest.approx(6 / 5e-3)

    def test_angles_are_the_seeds(self):
        (batch,) = columns(trace(lbn=np.arange(50) * 800))
        first, again, other = (Storage(DEVICES["disk"], seed=s).take(batch) for s in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_completed_requests_do_not_depend_on_when_they_came(self):
        table = busy(n=500).table
        later = table.set_column(0, table.schema.field(0), [np.arange(500.0) * 9])
        assert completed_iops(table) == completed_iops(later)
        assert completed_iops(table) < completed_iops(table, DEVICES["ssd"])
