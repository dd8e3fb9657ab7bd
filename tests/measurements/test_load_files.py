"""Files for load generators: read by fio itself, and by rules made from DiskSpd's schema."""

from __future__ import annotations

import json
import subprocess
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from measurements.errors import MeasurementError
from measurements.loads.diskspd import write_diskspd
from measurements.loads.fio_jobs import write_fio_jobs
from measurements.loads.fio_replay import make_scratch, replay_iolog
from measurements.loads.iolog import write_iolog
from measurements.loads.job import Job, Zone, percent_loss, whole_percents
from measurements.traces import read_trace
from measurements.traces.requests import SCHEMA

MIB = 1 << 20


def job(name="a", **given):
    known = {
        "rate": 200.0,
        "share": 1.0,
        "read_share": 1.0,
        "random_share": 1.0,
        "sizes": ((4096, 1.0),),
        "zones": (Zone(0, 8 * MIB, 1.0),),
        "alignment_bytes": 4096,
    }
    return Job(name, **{**known, **given})


MIXED = job(
    "mixed",
    read_share=0.337,
    random_share=0.75,
    sizes=((512, 0.004), (4096, 0.5), (8192, 0.496)),
    zones=(Zone(0, MIB, 0.6), Zone(2 * MIB, 3 * MIB, 0.395), Zone(3 * MIB, 8 * MIB, 0.005)),
    arrivals="poisson",
)


def fio(*arguments):
    done = subprocess.run(
        ["fio", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def options(path):
    """Sections of a job file by name."""
    found = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            found[line[1:-1]] = section = {}
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section[key] = value
    return found


class TestWholePercents:
    def test_they_sum_to_a_hundred_and_stay_within_one(self):
        rng = np.random.default_rng(4)
        for n in (1, 2, 3, 17, 99):
            shares = rng.dirichlet(np.ones(n)).tolist()
            whole = whole_percents(shares)
            assert sum(whole) == 100
            assert max(abs(100 * s - w) for s, w in zip(shares, whole, strict=True)) < 1

    def test_the_loss_is_the_share_that_moves(self):
        assert percent_loss([0.333, 0.667], [33, 67]) == pytest.approx(0.003)


class TestFioJobs:
    @pytest.mark.parametrize("outstanding", [None, 4])
    def test_fio_reads_every_kind_of_job(self, tmp_path, outstanding):
        jobs = [
            job("reads"),
            job("writes in sequence", read_share=0.0, random_share=0.0, rate=0.01),
            job("poisson", arrivals="poisson", share=0.2),
            MIXED,
            job("odd ] name: 1"),
        ]
        path = tmp_path / "load.fio"
        write_fio_jobs(
            jobs, path, target=str(tmp_path / "f"), duration_s=1.5, outstanding=outstanding
        )
        fio("--parse-only", path)

    def test_fio_runs_it_for_its_time_on_a_scratch_file(self, tmp_path):
        path = tmp_path / "load.fio"
        target = tmp_path / "scratch:1"
        jobs = [job("r", rate=50.0, share=0.5), job("w", rate=50.0, share=0.5, read_share=0.0)]
        write_fio_jobs(jobs, path, target=str(target), duration_s=1.2)
        report = json.loads(fio("--output-format=json", path))
        (group,) = report["jobs"]
        assert group["error"] == 0
        assert group["job_runtime"] >= 2000
        assert min(group["read"]["total_ios"], group["write"]["total_ios"]) >= 20
        assert group["read"]["io_bytes"] == 4096 * group["read"]["total_ios"]
        assert target.stat().st_size == 8 * MIB

    def test_shares_of_a_closed_loop_are_those_asked_for(self, tmp_path):
        path = tmp_path / "load.fio"
        jobs = [job("often", share=0.75), job("seldom", share=0.25, read_share=0.0)]
        write_fio_jobs(jobs, path, target=str(tmp_path / "f"), duration_s=1, outstanding=2)
        text = path.read_text().replace("ioengine=libaio", "ioengine=null")
        path.write_text(text.replace("direct=1", "direct=0"))
        (group,) = json.loads(fio("--output-format=json", path))["jobs"]
        reads, writes = (group[way]["total_ios"] for way in ("read", "write"))
        assert reads / (reads + writes) == pytest.approx(0.75, abs=0.02)

    def test_what_is_written_of_a_mixed_job(self, tmp_path):
        said = write_fio_jobs([MIXED], tmp_path / "m.fio", target="f", duration_s=60)
        section = options(tmp_path / "m.fio")["mixed"]
        assert section["rw"] == "randrw"
        assert section["rwmixread"] == "34"
        assert section["percentage_random"] == "75"
        # The half percent of 512 B has no whole one.
        assert section["bssplit"] == "4096/50:8192/50"
        # The gap between zones is one that nothing goes to; the last has less than a percent.
        mib = str(MIB)
        assert section["random_distribution"] == (f"zoned_abs:60/{mib}:0/{mib}:40/{6 * MIB}")
        # 200 a second of 6144 B: slower than fio's Poisson can do for reads.
        assert section["rate"] == "417792,811008"
        assert "rate_process" not in section
        assert any("whole percents of sizes misplace 0.40 %" in s.replace("%", " %") for s in said)
        assert any("exponential gaps" in s for s in said)

    def test_the_rate_of_a_poisson_job_is_of_its_smallest_size(self, tmp_path):
        one = job(arrivals="poisson", sizes=((4096, 0.5), (65536, 0.5)), rate=250.4)
        write_fio_jobs([one], tmp_path / "p.fio", target="f", duration_s=1)
        section = options(tmp_path / "p.fio")["a"]
        assert (section["rate"], section["rate_process"]) == (str(250 * 4096), "poisson")

    def test_many_zones_become_at_most_256(self, tmp_path):
        zones = tuple(Zone(i * MIB, (i + 1) * MIB, 1 / 1024) for i in range(1024))
        write_fio_jobs([job(zones=zones)], tmp_path / "z.fio", target="f", duration_s=1)
        written = options(tmp_path / "z.fio")["a"]["random_distribution"].removeprefix("zoned_abs:")
        percents, lengths = zip(*(zone.split("/") for zone in written.split(":")), strict=True)
        assert len(percents) <= 256
        assert sum(map(int, percents)) == 100
        assert sum(map(int, lengths)) == 1024 * MIB
        fio("--parse-only", tmp_path / "z.fio")

    @pytest.mark.parametrize("number", [0, 5000])
    def test_no_jobs_and_too_many_are_refused(self, tmp_path, number):
        with pytest.raises(MeasurementError, match=f"{number} jobs"):
            write_fio_jobs([job()] * number, tmp_path / "x", target="f", duration_s=1)


@pytest.mark.parametrize("write", [write_fio_jobs, write_diskspd])
@pytest.mark.parametrize("target", ["/dev/null", "#3", "\\\\.\\PhysicalDrive1", "7"])
def test_a_device_is_no_target_unless_allowed(tmp_path, write, target):
    with pytest.raises(MeasurementError, match="is a device"):
        write([job()], tmp_path / "x", target=target, duration_s=1)
    assert not (tmp_path / "x").exists()
    write([job()], tmp_path / "x", target=target, duration_s=1, allow_device=True)


# Made from the schema that DiskSpd publishes (XmlProfileParser/diskspd.xsd): the children that an
# element may have, each with its type, and how often; order is free, except in lists.
_FLAG, _UINT, _ULONG, _TEXT = "flag", "uint", "ulong", "text"
_TARGET = {
    "Path": _TEXT,
    "BlockSize": _UINT,
    "StrideSize": _ULONG,
    "BaseFileOffset": _ULONG,
    "MaxFileSize": _ULONG,
    "FileSize": _ULONG,
    "Random": _ULONG,
    "RequestCount": _UINT,
    "ThreadsPerFile": _UINT,
    "Throughput": _UINT,
    "BurstSize": _UINT,
    "ThinkTime": _UINT,
    "WriteRatio": _UINT,
    "Weight": _UINT,
    "DisableOSCache": _FLAG,
    "WriteThrough": _FLAG,
}
_SPAN = {
    "Targets": [("Target", _TARGET, ("Path",))],
    "Duration": _UINT,
    "Warmup": _UINT,
    "Cooldown": _UINT,
    "RandSeed": _UINT,
    "ThreadCount": _UINT,
    "RequestCount": _UINT,
    "MeasureLatency": _FLAG,
}
_PROFILE = {"TimeSpans": [("TimeSpan", _SPAN, ("Targets",))]}


def check(element, children, needed):
    names = [child.tag for child in element]
    assert len(set(names)) == len(names), f"{element.tag}: an element twice"
    assert set(needed) <= set(names)
    for child in element:
        kind = children[child.tag]
        if isinstance(kind, list):
            ((name, inner, must),) = kind
            assert len(child) >= 1
            for one in child:
                assert one.tag == name
                check(one, inner, must)
        else:
            check_text(child, kind)


def check_text(element, kind):
    text = element.text or ""
    assert len(element) == 0
    if kind == _FLAG:
        assert text in ("true", "false")
    elif kind != _TEXT:
        assert 0 <= int(text) < 2 ** (32 if kind == _UINT else 64)


class TestDiskSpd:
    JOBS = (
        job("fast", rate=5000.0, share=0.9),
        job("slow", rate=0.25, share=0.05, read_share=0.0),
        job("log", rate=30.0, share=0.05, read_share=0.0, random_share=0.0, sizes=((65536, 1.0),)),
    )

    @pytest.mark.parametrize("outstanding", [None, 8])
    def test_it_is_as_the_schema_has_it(self, tmp_path, outstanding):
        path = tmp_path / "p.xml"
        write_diskspd(
            self.JOBS, path, target="C:\\load<1>.dat", duration_s=9.2, outstanding=outstanding
        )
        profile = ElementTree.parse(path).getroot()
        assert profile.tag == "Profile"
        check(profile, _PROFILE, ("TimeSpans",))
        assert profile.findtext(".//Duration") == "10"
        assert {p.text for p in profile.iter("Path")} == {"C:\\load<1>.dat"}

    def test_open_loop_paces_each_target(self, tmp_path):
        said = write_diskspd(self.JOBS, tmp_path / "p.xml", target="f", duration_s=1)
        fast, slow, log = ElementTree.parse(tmp_path / "p.xml").iter("Target")
        assert fast.findtext("Throughput") == "20480"
        assert (slow.findtext("ThinkTime"), slow.findtext("BurstSize")) == ("4000", "1")
        assert slow.find("Throughput") is None
        assert log.findtext("Throughput") == str(round(30 * 65536 / 1000))
        assert (log.findtext("StrideSize"), log.find("Random")) == ("65536", None)
        assert [t.findtext("WriteRatio") for t in (fast, slow, log)] == ["0", "100", "100"]
        assert "misplace 0.00% of the requests" in said[0]

    def test_closed_loop_weighs_the_targets(self, tmp_path):
        write_diskspd(self.JOBS, tmp_path / "p.xml", target="f", duration_s=1, outstanding=8)
        root = ElementTree.parse(tmp_path / "p.xml").getroot()
        assert [w.text for w in root.iter("Weight")] == ["900000", "50000", "50000"]
        assert root.findtext(".//TimeSpan/RequestCount") == "8"
        assert root.find(".//ThinkTime") is None

    def test_a_mixed_job_is_refused(self, tmp_path):
        with pytest.raises(MeasurementError, match="one a transition"):
            write_diskspd([MIXED], tmp_path / "p.xml", target="f", duration_s=1)


def batch(time, lbn, size, op):
    n = len(time)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.asarray(time, float)),
            pa.array(np.zeros(n, np.int32)),
            pa.array(np.zeros(n, np.int32)),
            pa.array(np.asarray(lbn, np.int64)),
            pa.array(np.asarray(size, np.int64)),
            pa.array(np.asarray(op, np.uint8)),
            pa.array(np.full(n, np.nan)),
            pa.array(np.full(n, -1, np.int32)),
        ],
        schema=SCHEMA,
    )


REQUESTS = batch(
    [0.0, 0.001, 0.25, 0.250001, 0.5],
    [8, 0, 16, 0, 2040],
    [4096, 512, 8192, 0, 4096],
    [0, 1, 0, 3, 1],
)


class TestIolog:
    def test_the_text_is_fios(self, tmp_path):
        path = tmp_path / "t.log"
        written = write_iolog([REQUESTS], str(path), target="/x/f")
        assert path.read_text().splitlines() == [
            "fio version 3 iolog",
            "1 /x/f add",
            "1 /x/f open",
            "1 /x/f read 4096 4096",
            "1001 /x/f write 0 512",
            "250001 /x/f read 8192 8192",
            "250002 /x/f sync",
            "500001 /x/f write 1044480 4096",
            "500001 /x/f close",
        ]
        assert written == (5, 16896, 0.5, 1048576, 0)

    def test_it_reads_back_as_it_was(self, tmp_path):
        path = tmp_path / "t.log"
        write_iolog([REQUESTS.slice(0, 2), REQUESTS.slice(2)], str(path), target="/x/f")
        table = read_trace(path).to_table()
        for name in ("lbn", "size_bytes", "op"):
            assert table[name].to_pylist() == REQUESTS.column(name).to_pylist()
        np.testing.assert_allclose(table["time_s"], REQUESTS.column("time_s"), atol=1e-9)

    def test_fio_completes_every_request_and_keeps_the_time(self, tmp_path):
        target, path = tmp_path / "f", tmp_path / "t.log"
        written = write_iolog([REQUESTS], str(path), target=str(target))
        make_scratch(target, written.extent_bytes)
        done = replay_iolog(path, expected_s=1)
        assert (done.requests, done.bytes_) == (4, 16896)
        assert done.duration_s >= 0.49
        assert 0 < done.latency_mean_s < 0.2
        fast = replay_iolog(path, as_fast_as_possible=True)
        assert fast.requests == 4
        assert fast.duration_s < 0.49

    def test_the_gap_after_the_first_request_is_kept(self, tmp_path):
        """A time of 0 would lose it: fio then takes the next time for the first."""
        late = batch([0.0, 0.6], [0, 8], [4096, 4096], [0, 0])
        write_iolog([late], str(tmp_path / "t.log"), target=str(tmp_path / "f"))
        make_scratch(tmp_path / "f", 8192)
        done = replay_iolog(tmp_path / "t.log", expected_s=1)
        assert done.duration_s >= 0.55

    def test_places_beyond_the_target_fold(self, tmp_path):
        path = tmp_path / "t.log"
        written = write_iolog([REQUESTS], str(path), target="/x/f", size_bytes=16384)
        assert (written.folded, written.extent_bytes) == (1, 16384)
        # Block 2040 modulo the 25 blocks where 4096 bytes can start.
        assert f"write {2040 % 25 * 512} 4096" in path.read_text()

    def test_time_scale_and_count(self, tmp_path):
        path = tmp_path / "t.log"
        written = write_iolog([REQUESTS], str(path), target="/x/f", time_scale=2.0, most=3)
        assert (written.requests, written.duration_s) == (3, 0.5)
        assert "500001 /x/f read 8192 8192" in path.read_text()

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"target": "/dev/zero"}, "is a device"),
            ({"target": "/a b"}, "separates words by spaces"),
            ({"target": "/x", "size_bytes": 1024}, "has no request of 8192"),
            ({"target": "/x", "first_byte": 4096}, "before the first byte"),
        ],
    )
    def test_what_cannot_be_is_refused(self, tmp_path, given, said):
        with pytest.raises(MeasurementError, match=said):
            write_iolog([REQUESTS], str(tmp_path / "t.log"), **given)

    def test_requests_without_times_are_refused(self, tmp_path):
        closed = batch([np.nan, np.nan], [0, 8], [512, 512], [0, 0])
        with pytest.raises(MeasurementError, match="no times"):
            write_iolog([closed], str(tmp_path / "t.log"), target="/x")


class TestReplay:
    def test_fios_errors_are_ours(self, tmp_path):
        path = tmp_path / "t.log"
        write_iolog([REQUESTS], str(path), target=str(tmp_path / "no" / "f"))
        with pytest.raises(MeasurementError, match="fio"):
            replay_iolog(path)

    def test_what_is_no_iolog_is_an_error(self, tmp_path):
        path = tmp_path / "t.log"
        path.write_text("nothing of the kind\n")
        with pytest.raises(MeasurementError, match="fio"):
            replay_iolog(path)

    def test_a_scratch_file_that_has_no_room_is_refused(self, tmp_path):
        with pytest.raises(MeasurementError, match="MB are needed"):
            make_scratch(tmp_path / "f", 2**60)
        assert not (tmp_path / "f").exists()

    def test_a_scratch_file_is_made_longer_and_never_shorter(self, tmp_path):
        make_scratch(tmp_path / "f", 3 * MIB)
        first = (tmp_path / "f").read_bytes()
        make_scratch(tmp_path / "f", 4 * MIB + 5)
        make_scratch(tmp_path / "f", 10)
        now = (tmp_path / "f").read_bytes()
        assert len(now) == 4 * MIB + 5
        assert now.startswith(first)
