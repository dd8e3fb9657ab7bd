"""Devices, their queues and layouts of files: by hand, and an event simulation."""

import heapq

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fitting.errors import FittingError
from fitting.storage.devices import ORDERS, Disk, FilePages, Queue, SolidState, previous_ends

# 1000 cylinders of 1 MB; a turn in 8 ms.
SEEKS = {"track_seek_s": 1e-3, "average_seek_s": 8e-3, "full_seek_s": 15e-3, "cylinders": 1000}
RATES = {"outer_bytes_s": 200e6, "inner_bytes_s": 100e6, "revolutions_s": 125.0}
DISK = Disk(capacity_bytes=1e9, overhead_s=0.5e-3, **SEEKS, **RATES)


def blocks(*values):
    return np.array(values, dtype=np.int64)


def test_seeks_have_the_ends_and_the_mean_of_the_data_sheet():
    assert DISK.seek_s(0) == 0.0
    assert DISK.seek_s(1) == pytest.approx(1e-3)
    # √(n − 1) and n − 1 in the place of √n and n.
    assert DISK.seek_s(1000) == pytest.approx(15e-3, rel=0.01)
    distance = np.arange(1, 1000)
    pairs = 2 * (1000 - distance)
    mean = (DISK.seek_s(distance) * pairs).sum() / pairs.sum()
    assert mean == pytest.approx(8e-3, rel=0.01)


def test_a_disk_by_hand():
    # From cylinder 0 to byte 500 000 256, which is 501 cylinders away; a rate of 150 MB/s.
    lbn = 976_563
    a = (-10 * 1 + 15 * 8 - 5 * 15) / (3 * np.sqrt(1000))
    b = (7 * 1 - 15 * 8 + 8 * 15) / 3000
    seek_ms = a * np.sqrt(500) + b * 500 + 1
    rate = 200e6 - 100e6 * lbn * 512 / 1e9
    expected = 0.5e-3 + seek_ms * 1e-3 + 4e-3 + 65536 / rate
    found = DISK.service_s(blocks(0), blocks(lbn), blocks(65536), blocks(0))
    assert found == pytest.approx([expected], rel=1e-12)
    # A request that goes on moves nothing.
    found = DISK.service_s(blocks(1), blocks(80), blocks(4096), blocks(80))
    assert found == pytest.approx([0.5e-3 + 4096 / (200e6 - 100e6 * 80 * 512 / 1e9)])
    # The angle is a share of a turn.
    one = (blocks(0), blocks(0), blocks(512), blocks(8))
    assert DISK.service_s(*one, 1.0) - DISK.service_s(*one, 0.0) == pytest.approx([8e-3])


def test_a_solid_state_drive_by_hand_and_ordinary_devices_by_default():
    drive = SolidState(read_s=100e-6, write_s=20e-6, unit_bytes_s=100e6, units=4)
    found = drive.service_s(blocks(0, 1, 2), blocks(0, 5, 9), blocks(10_000, 0, 0), blocks(0, 0, 0))
    assert found == pytest.approx([200e-6, 20e-6, 20e-6])
    one = (blocks(0), blocks(0), blocks(1_000_000), blocks(8))
    # 0.1 ms of the controller, to the next cylinder, half a turn of 7200 a minute, 200 MB/s.
    expected = (0.1 + 0.8 + 500 / 120 + 5.0) * 1e-3
    assert Disk().service_s(*one) == pytest.approx([expected], rel=1e-12)
    assert 0 < SolidState().service_s(*one)[0] < expected


def test_a_request_follows_the_last_one_of_its_own_device_whose_units_are_as_many():
    ends = np.full(2, -1, dtype=np.int64)
    found = previous_ends(blocks(0, 1, 0), blocks(0, 100, 8), blocks(4096, 512, 512), ends)
    assert found.tolist() == [-1, -1, 8]
    assert ends.tolist() == [9, 101]
    # The second device is first seen later.
    queue = Queue()
    for device in (0, 1):
        latency = queue.latency_s(np.zeros(2), blocks(device, device), np.ones(2))
        assert latency.tolist() == [1.0, 2.0]


def simulated_open(arrivals, devices, services, units):
    """Events in order of time; a device's requests wait in a list."""
    waiting = {d: [] for d in set(devices)}
    free = dict.fromkeys(waiting, units)
    done = [0.0] * len(arrivals)
    events = [(t, 1, i) for i, t in enumerate(arrivals)]
    heapq.heapify(events)
    while events:
        now, arrives, i = heapq.heappop(events)
        device = devices[i]
        if arrives:
            waiting[device].append(i)
        else:
            free[device] += 1
            done[i] = now
        while free[device] and waiting[device]:
            k = waiting[device].pop(0)
            free[device] -= 1
            heapq.heappush(events, (now + services[k], 0, k))
    return [d - a for d, a in zip(done, arrivals, strict=True)]


times = st.floats(0.01, 10.0).map(lambda x: round(x, 4))


@given(
    st.lists(st.tuples(times, times, st.integers(0, 2)), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 30),
)
def test_an_open_loop_is_an_event_simulation(requests, units, batch):
    gaps, services, devices = (np.array(column) for column in zip(*requests, strict=True))
    arrivals = np.cumsum(gaps)
    queue = Queue(units)
    at = range(batch, len(gaps), batch)
    parts = zip(*(np.split(column, at) for column in (arrivals, devices, services)), strict=True)
    found = np.concatenate([queue.latency_s(*part) for part in parts])
    expected = simulated_open(arrivals.tolist(), devices.tolist(), services.tolist(), units)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert queue.busy_s.sum() == pytest.approx(services.sum())


@pytest.mark.cases(
    "make, how",
    *((Disk, {"revolutions_s": 0}), (Disk, {"track_seek_s": 9e-3})),
    *((SolidState, {"units": 0}), (SolidState, {"read_s": np.nan})),
    (Queue, {"units": 0}),
)
def test_impossible_devices_are_refused(make, how):
    with pytest.raises(FittingError):
        make(**how)


PAGE = 8


def laid_out(file, page, order, device=None, batch=10**9):
    """Pages after a layout that knows the requests, taken in batches."""
    pages, file, lbn = FilePages(), blocks(*file), blocks(*page) * PAGE
    device = np.zeros_like(file) if device is None else blocks(*device)
    size = np.full(len(lbn), 4096)
    for i in range(0, len(lbn), batch):
        part = slice(i, i + batch)
        pages.add(device[part], file[part], lbn[part], size[part])
    return pages.layout(order).move(device, lbn, size).lbn // PAGE


def test_layouts_by_hand():
    # File 0 at pages 10, 30 and 12 (read in that order), file 1 between at 11 and 20.
    file, pages = (0, 1, 0, 1, 0), (10, 11, 30, 20, 12)
    assert laid_out(file, pages, "address").tolist() == [10, 13, 12, 14, 11]
    assert laid_out(file, pages, "first_use").tolist() == [10, 13, 11, 14, 12]
    # Devices are apart.
    assert laid_out((0, 0), (50, 9), "first_use", device=(0, 1)).tolist() == [50, 9]
    # A request keeps its place in the page and may be broken.
    pages = FilePages()
    file, device = blocks(0, 1, 0), blocks(0, 0, 0)
    lbn, size = blocks(10 * PAGE + 3, 12 * PAGE, 11 * PAGE), blocks(512, 512, 8192)
    pages.add(device, file, lbn, size)
    moved = pages.layout("address").move(device, lbn, size)
    # Page 12 is of file 1, which touched it first; the last request reaches into it.
    assert moved.lbn.tolist() == [10 * PAGE + 3, 12 * PAGE, 11 * PAGE]
    assert moved.end.tolist() == [10 * PAGE + 4, 12 * PAGE + 1, 13 * PAGE]
    assert not moved.broken.any()


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=80),
    st.sampled_from(ORDERS),
    st.integers(1, 80),
)
def test_pages_stay_apart_and_batches_make_no_difference(pages, order, batch):
    # A page belongs to one file.
    file = np.array(pages) % 3
    found = laid_out(file, pages, order)
    np.testing.assert_array_equal(laid_out(file, pages, order, batch=batch), found)
    assert len(np.unique(found)) == len(set(pages))
    for one in np.unique(file):
        places = np.unique(found[file == one])
        assert places[-1] - places[0] == len(places) - 1


def test_impossible_layouts_are_refused():
    with pytest.raises(FittingError, match="no order 'size'"):
        FilePages().layout("size")
    one, pages = blocks(0), FilePages()
    pages.add(one, one, blocks(2**56 // 512 - 8), blocks(4096))
    with pytest.raises(FittingError, match="beyond 64 PiB"):
        pages.add(one, one, blocks(2**56 // 512 * 16), blocks(4096))
