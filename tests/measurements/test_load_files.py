"""Files for load generators: read by fio itself, and by rules made from DiskSpd's schema."""

import json
import re
import subprocess
from configparser import ConfigParser
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from measurements.errors import MeasurementError
from measurements.loads import load_files as files
from measurements.traces import read_trace
from measurements.traces.requests import SCHEMA

MIB = 1 << 20
Zone = files.AddressZone


def job(name="a", **given):
    known = {"rate": 200.0, "share": 1.0, "read_share": 1.0, "random_share": 1.0}
    known |= {"sizes": ((4096, 1.0),), "zones": (Zone(0, 8 * MIB, 1.0),), "alignment_bytes": 4096}
    return files.LoadJob(name, **{**known, **given})


MIXED = job(
    "mixed",
    read_share=0.337,
    random_share=0.75,
    sizes=((512, 0.004), (4096, 0.5), (8192, 0.496)),
    zones=(Zone(0, MIB, 0.6), Zone(2 * MIB, 3 * MIB, 0.395), Zone(3 * MIB, 8 * MIB, 0.005)),
    arrivals="poisson",
)

MANY_ZONES = tuple(Zone(i * MIB, (i + 1) * MIB, 1 / 1024) for i in range(1024))


def fio(*arguments):
    done = subprocess.run(["fio", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def written(one, path):
    """Section of a job in its file, and what is said."""
    said = files.write_fio_jobs([one], path, target="f", duration_s=60)
    parser = ConfigParser(delimiters="=", interpolation=None, allow_no_value=True)
    parser.read(path)
    return parser[one.name], said


def test_whole_percents_sum_to_a_hundred_and_stay_within_one():
    rng = np.random.default_rng(4)
    for n in (1, 2, 3, 17, 99):
        shares = rng.dirichlet(np.ones(n)).tolist()
        whole = files.whole_percents(shares)
        assert sum(whole) == 100
        assert max(abs(100 * s - w) for s, w in zip(shares, whole, strict=True)) < 1
    # The loss is the share that moves.
    assert files.misplaced_share([0.333, 0.667], [33, 67]) == pytest.approx(0.003)


class TestFioJobs:
    def test_what_is_written_of_a_mixed_job(self, tmp_path):
        section, said = written(MIXED, tmp_path / "m.fio")
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
        assert any("whole percents of sizes misplaces 0.40 %" in s.replace("%", " %") for s in said)
        assert any("instead of exponential" in s for s in said)

    def test_the_rate_of_a_poisson_job_is_of_its_smallest_size(self, tmp_path):
        one = job(arrivals="poisson", sizes=((4096, 0.5), (65536, 0.5)), rate=250.4)
        section, _ = written(one, tmp_path / "p.fio")
        assert (section["rate"], section["rate_process"]) == (str(250 * 4096), "poisson")

    def test_many_zones_become_at_most_256(self, tmp_path):
        section, _ = written(job(zones=MANY_ZONES), tmp_path / "z.fio")
        zones = section["random_distribution"].removeprefix("zoned_abs:").split(":")
        percents, lengths = zip(*(zone.split("/") for zone in zones), strict=True)
        assert len(percents) <= 256
        assert sum(map(int, percents)) == 100
        assert sum(map(int, lengths)) == 1024 * MIB

    def test_no_jobs_too_many_and_mixed_ones_for_diskspd_are_refused(self, tmp_path):
        for number in (0, 5000):
            with pytest.raises(MeasurementError, match=f"{number} jobs"):
                files.write_fio_jobs([job()] * number, tmp_path / "x", target="f", duration_s=1)
        with pytest.raises(MeasurementError, match="one job per transition"):
            files.write_diskspd([MIXED], tmp_path / "p.xml", target="f", duration_s=1)


@pytest.mark.parametrize("write", [files.write_fio_jobs, files.write_diskspd])
@pytest.mark.parametrize("target", ["/dev/null", "#3", "\\\\.\\PhysicalDrive1", "7"])
def test_a_device_is_no_target_unless_allowed(tmp_path, write, target):
    with pytest.raises(MeasurementError, match="is a device"):
        write([job()], tmp_path / "x", target=target, duration_s=1)
    assert not (tmp_path / "x").exists()
    write([job()], tmp_path / "x", target=target, duration_s=1, allow_device=True)


# Made from the schema that DiskSpd publishes (XmlProfileParser/diskspd.xsd): the children that an
# element may have, each once, with its type; a list has one or more of an element.
FLAG = re.compile("true|false")
UINT, ULONG, TEXT = range(2**32), range(2**64), re.compile(".*")
SCHEMA_OF = {
    "Profile": {"TimeSpans": ["TimeSpan"]},
    "TimeSpan": {
        "Targets": ["Target"],
        **dict.fromkeys(("Duration", "Warmup", "Cooldown", "RandSeed", "ThreadCount"), UINT),
        "RequestCount": UINT,
        "MeasureLatency": FLAG,
    },
    "Target": {
        "Path": TEXT,
        **dict.fromkeys(("StrideSize", "BaseFileOffset", "MaxFileSize", "FileSize"), ULONG),
        **dict.fromkeys(("BlockSize", "RequestCount", "ThreadsPerFile", "Throughput"), UINT),
        **dict.fromkeys(("BurstSize", "ThinkTime", "WriteRatio", "Weight"), UINT),
        "Random": ULONG,
        "DisableOSCache": FLAG,
        "WriteThrough": FLAG,
    },
}
NEEDED = {"Profile": "TimeSpans", "TimeSpan": "Targets", "Target": "Path"}


def check(element):
    """Compare an element with the schema, in which children are of any order."""
    names = [child.tag for child in element]
    assert len(set(names)) == len(names), f"{element.tag}: an element twice"
    assert NEEDED[element.tag] in names
    for child in element:
        kind, text = SCHEMA_OF[element.tag][child.tag], child.text or ""
        if isinstance(kind, list):
            assert {one.tag for one in child} == set(kind)
            for one in child:
                check(one)
        else:
            assert len(child) == 0
            assert int(text) in kind if isinstance(kind, range) else kind.fullmatch(text)


class TestDiskSpd:
    JOBS = (
        job("fast", rate=5000.0, share=0.9),
        job("slow", rate=0.25, share=0.05, read_share=0.0),
        job("log", rate=30.0, share=0.05, read_share=0.0, random_share=0.0, sizes=((65536, 1.0),)),
    )

    @pytest.fixture
    def write(self, tmp_path):
        """Write a profile; its root and what is said."""

        def write(target="f", duration_s=1, **options):
            path = tmp_path / "p.xml"
            options |= {"target": target, "duration_s": duration_s}
            said = files.write_diskspd(self.JOBS, path, **options)
            return ElementTree.parse(path).getroot(), said

        return write

    @pytest.mark.parametrize("outstanding", [None, 8])
    def test_it_is_as_the_schema_has_it(self, write, outstanding):
        profile, _ = write("C:\\load<1>.dat", 9.2, outstanding=outstanding)
        assert profile.tag == "Profile"
        check(profile)
        assert profile.findtext(".//Duration") == "10"
        assert {p.text for p in profile.iter("Path")} == {"C:\\load<1>.dat"}

    def test_open_loop_paces_each_target_and_closed_loop_weighs_them(self, write):
        root, said = write()
        fast, slow, log = root.iter("Target")
        assert fast.findtext("Throughput") == "20480"
        assert (slow.findtext("ThinkTime"), slow.findtext("BurstSize")) == ("4000", "1")
        assert slow.find("Throughput") is None
        assert log.findtext("Throughput") == str(round(30 * 65536 / 1000))
        assert (log.findtext("StrideSize"), log.find("Random")) == ("65536", None)
        assert [t.findtext("WriteRatio") for t in (fast, slow, log)] == ["0", "100", "100"]
        assert "misplaces 0.00% of the requests" in said[0]
        root, _ = write(outstanding=8)
        assert [w.text for w in root.iter("Weight")] == ["900000", "50000", "50000"]
        assert root.findtext(".//TimeSpan/RequestCount") == "8"
        assert root.find(".//ThinkTime") is None


def batch(time, lbn, size, op):
    given = {"time_s": time, "lbn": lbn, "size_bytes": size, "op": op}
    given |= {"latency_s": [np.nan] * len(time), "file": [-1] * len(time)}
    arrays = [pa.array(given.get(field.name, [0] * len(time)), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


TIMES = [0.0, 0.001, 0.25, 0.250001, 0.5]
REQUESTS = batch(TIMES, [8, 0, 16, 0, 2040], [4096, 512, 8192, 0, 4096], [0, 1, 0, 3, 1])


class TestIolog:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "t.log"

    def test_the_text_is_fios(self, path):
        written = files.write_iolog([REQUESTS], str(path), target="/x/f")
        assert path.read_text().splitlines() == [
            *("fio version 3 iolog", "1 /x/f add", "1 /x/f open", "1 /x/f read 4096 4096"),
            *("1001 /x/f write 0 512", "250001 /x/f read 8192 8192", "250002 /x/f sync"),
            *("500001 /x/f write 1044480 4096", "500001 /x/f close"),
        ]
        assert written == (5, 16896, 0.5, 1048576, 0)

    def test_it_reads_back_as_it_was(self, path):
        files.write_iolog([REQUESTS.slice(0, 2), REQUESTS.slice(2)], str(path), target="/x/f")
        table = read_trace(path).to_table()
        for name in ("lbn", "size_bytes", "op"):
            assert table[name].to_pylist() == REQUESTS.column(name).to_pylist()
        np.testing.assert_allclose(table["time_s"], REQUESTS.column("time_s"), atol=1e-9)

    def test_places_beyond_the_target_fold_and_time_and_number_are_scaled(self, path):
        written = files.write_iolog([REQUESTS], str(path), target="/x/f", size_bytes=16384)
        assert (written.folded, written.extent_bytes) == (1, 16384)
        # Block 2040 modulo the 25 blocks where 4096 bytes can start.
        assert f"write {2040 % 25 * 512} 4096" in path.read_text()
        written = files.write_iolog([REQUESTS], str(path), target="/x/f", time_scale=2.0, most=3)
        assert (written.requests, written.duration_s) == (3, 0.5)
        assert "500001 /x/f read 8192 8192" in path.read_text()

    def test_what_cannot_be_is_refused(self, path):
        closed = batch([np.nan, np.nan], [0, 8], [512, 512], [0, 0])
        for requests, given, said in (
            *((REQUESTS, {"target": "/dev/zero"}, "is a device"), (closed, {}, "no times")),
            (REQUESTS, {"target": "/a b"}, "separates words by spaces"),
            (REQUESTS, {"size_bytes": 1024}, "shorter than the largest request, 8192"),
            (REQUESTS, {"first_byte": 4096}, "below the first byte"),
        ):
            with pytest.raises(MeasurementError, match=said):
                files.write_iolog([requests], str(path), **{"target": "/x", **given})


def test_a_scratch_file_is_made_longer_and_never_shorter_where_there_is_room(tmp_path):
    path = tmp_path / "f"
    with pytest.raises(MeasurementError, match="MB are needed"):
        files.make_scratch(path, 2**60)
    assert not path.exists()
    files.make_scratch(path, 3 * MIB)
    first = path.read_bytes()
    files.make_scratch(path, 4 * MIB + 5)
    files.make_scratch(path, 10)
    assert path.stat().st_size == 4 * MIB + 5
    assert path.read_bytes().startswith(first)


@pytest.mark.peer("fio")
class TestFioItself:
    @pytest.mark.parametrize("outstanding", [None, 4])
    def test_fio_reads_every_kind_of_job(self, tmp_path, outstanding):
        jobs = [
            *(MIXED, job("reads"), job("poisson", arrivals="poisson", share=0.2)),
            *(job("odd ] name: 1"), job("zones", zones=MANY_ZONES)),
            job("writes in sequence", read_share=0.0, random_share=0.0, rate=0.01),
        ]
        path, known = tmp_path / "load.fio", {"duration_s": 1.5, "outstanding": outstanding}
        files.write_fio_jobs(jobs, path, target=str(tmp_path / "f"), **known)
        fio("--parse-only", path)

    def test_fio_runs_it_for_its_time_on_a_scratch_file(self, tmp_path):
        path, target = tmp_path / "load.fio", tmp_path / "scratch:1"
        jobs = [job("r", rate=50.0, share=0.5), job("w", rate=50.0, share=0.5, read_share=0.0)]
        files.write_fio_jobs(jobs, path, target=str(target), duration_s=1.2)
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
        files.write_fio_jobs(jobs, path, target=str(tmp_path / "f"), duration_s=1, outstanding=2)
        text = path.read_text().replace("ioengine=libaio", "ioengine=null")
        path.write_text(text.replace("direct=1", "direct=0"))
        (group,) = json.loads(fio("--output-format=json", path))["jobs"]
        reads, writes = (group[way]["total_ios"] for way in ("read", "write"))
        assert reads / (reads + writes) == pytest.approx(0.75, abs=0.02)

    def test_fio_completes_every_request_and_keeps_the_time(self, tmp_path):
        target, path = tmp_path / "f", tmp_path / "t.log"
        written = files.write_iolog([REQUESTS], str(path), target=str(target))
        files.make_scratch(target, written.extent_bytes)
        done = files.replay_iolog(path, expected_s=1)
        assert (done.requests, done.bytes_) == (4, 16896)
        assert done.duration_s >= 0.49
        assert 0 < done.latency_mean_s < 0.2
        # The gap after the first request: with a time of 0, fio would take the next for the first.
        late = batch([0.0, 0.6], [0, 8], [4096, 4096], [0, 0])
        files.write_iolog([late], str(path), target=str(target))
        assert files.replay_iolog(path, expected_s=1).duration_s >= 0.55

    def test_its_errors_are_ours(self, tmp_path):
        path, other = tmp_path / "t.log", tmp_path / "other.log"
        files.write_iolog([REQUESTS], str(path), target=str(tmp_path / "no" / "f"))
        other.write_text("nothing of the kind\n")
        for log in (path, other):
            with pytest.raises(MeasurementError, match="fio"):
                files.replay_iolog(log)
