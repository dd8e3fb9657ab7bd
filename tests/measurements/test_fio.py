"""fio: its reports, real runs on a real file, and what cannot be measured."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from measurements.errors import MeasurementError
from measurements.workloads import fio
from measurements.workloads.fio import FioOptions, Pattern
from measurements.workloads.fio_report import read_report
from measurements.workloads.programs import find_program
from measurements.workloads.reaper import Reaper

REPORT = {
    "fio version": "fio-3.33",
    "jobs": [
        {
            "error": 0,
            "read": {
                "total_ios": 25_000,
                "iops": 12_500.0,
                "bw_bytes": 51_200_000,
                "runtime": 2000,
                "iops_samples": 4,
                "iops_mean": 12_000.0,
                "iops_stddev": 480.0,
                "lat_ns": {
                    "mean": 80_000.0,
                    "max": 5_000_000,
                    "percentile": {"50.000000": 70_000, "99.000000": 410_000},
                },
            },
            "write": {"total_ios": 0, "iops": 0.0, "lat_ns": {"mean": 0.0, "max": 0}},
        }
    ],
}


class TestReport:
    def test_by_hand(self, tmp_path):
        file = tmp_path / "fio.json"
        file.write_text("note: both iodepth >= 1 and synchronous\n" + json.dumps(REPORT))
        found = read_report(file, "read")
        assert found == {
            "throughput_ops_s": 12_500.0,
            "bandwidth_bytes_s": 51_200_000.0,
            # 480/√4 of 12000.
            "throughput_noise": pytest.approx(0.02),
            "latency_mean_s": pytest.approx(80e-6),
            "latency_p50_s": pytest.approx(70e-6),
            "latency_p99_s": pytest.approx(410e-6),
            "latency_max_s": pytest.approx(5e-3),
            "latency_resolution": "1.6 %",
            "fio_seconds": 2.0,
            "fio_version": "fio-3.33",
        }

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "no report of fio"),
            ("fio: engine libaio not loadable\n", "no report of fio: fio: engine libaio not"),
            (json.dumps(REPORT)[:80], "no report of fio"),
            (json.dumps({"jobs": []}), "no report of fio"),
        ],
    )
    def test_what_is_none(self, tmp_path, text, said):
        file = tmp_path / "fio.json"
        file.write_text(text)
        with pytest.raises(MeasurementError, match=said):
            read_report(file, "read")

    def test_nothing_moved_is_an_error_and_not_zero(self, tmp_path):
        file = tmp_path / "fio.json"
        file.write_text(json.dumps(REPORT))
        with pytest.raises(MeasurementError, match="fio moved nothing: error 0"):
            read_report(file, "write")


class TestPatterns:
    @pytest.mark.parametrize(
        ("text", "pattern"),
        [
            ("randread", ("randread", 4096)),
            ("write", ("write", 32768)),
            ("read:1MiB", ("read", 1 << 20)),
            ("randwrite:512", ("randwrite", 512)),
        ],
    )
    def test_what_they_are(self, text, pattern):
        assert Pattern.parse(text) == pattern

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("trim", "pattern 'trim': there are randread, randwrite, read, write"),
            ("read:100", "a request is a multiple of 512 B"),
            ("read:big", "'big' is not a quantity"),
        ],
    )
    def test_what_is_none(self, text, said):
        with pytest.raises(MeasurementError, match=said):
            Pattern.parse(text)

    def test_the_published_ones_are_the_default(self):
        options = FioOptions(folder=".")
        assert {(p.rw, p.block_bytes) for p in options.patterns} == {
            *(("randread", 4096), ("randwrite", 4096)),
            *(("read", 32768), ("write", 32768)),
        }
        assert options.depths == (1, 2, 4, 8, 16, 32)


class TestFile:
    def test_it_is_written_whole_and_not_only_reserved(self, tmp_path):
        """What was never written is read without the disk, and would be far too fast."""
        with Reaper() as reaper:
            path = reaper.folder(tmp_path) / "data"
            target = fio.Target(path, find_program("fio"), "libaio", False, None)
            fio._lay_out(target, 8 << 20, reaper)
            assert path.stat().st_size == 8 << 20
            assert path.stat().st_blocks * 512 >= 8 << 20
            content = path.read_bytes()
            assert content.count(0) < len(content) / 2
            assert fio._takes_direct(path)
        assert list(tmp_path.iterdir()) == []

    def test_a_file_system_without_direct_reads_is_told(self, tmp_path):
        full = tmp_path / "none"
        assert not fio._takes_direct(full)

    def test_the_disk_is_named(self):
        listed = subprocess.run(
            ["stat", "-c", "%Hd:%Ld", "/"], capture_output=True, text=True, check=True
        ).stdout.strip()
        link = Path("/sys/dev/block") / listed
        expected = link.resolve().name if link.exists() else None
        assert fio._disk_of(Path("/")) == expected

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"folder": "/nowhere"}, "/nowhere: is no folder"),
            ({"folder": "/", "size_bytes": 1 << 60}, "too little for a file of"),
            ({"folder": "/", "size_bytes": 1024}, "a file of 1024 B has no request of 32768 B"),
        ],
    )
    def test_what_cannot_be_measured(self, options, said):
        with pytest.raises(MeasurementError, match=said):
            FioOptions(**options).check()

    def test_without_fio_it_says_what_to_install(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MeasurementError, match="the program fio is not there: apt install fio"):
            find_program("fio")


def test_requests_are_seen_when_they_begin(tmp_path):
    counts = tmp_path / "io"
    assert not fio._moved(counts, 4096)
    for read, written, told in ((0, 0, False), (16384, 0, True), (0, 16384, True)):
        lines = ["rchar: 9000", "wchar: 10", f"read_bytes: {read}", f"write_bytes: {written}"]
        counts.write_text("\n".join(lines) + "\n")
        assert fio._moved(counts, 4096) is told


def test_a_run_of_fio_takes_as_long_as_it_was_asked_to(tmp_path):
    """fio cuts a time without a unit down to whole seconds."""
    with Reaper() as reaper:
        path = reaper.folder(tmp_path) / "data"
        target = fio.Target(path, find_program("fio"), "libaio", False, None)
        fio._lay_out(target, 4 << 20, reaper)
        command = [
            *fio._base(target, 4 << 20),
            *("--rw=randread", "--bs=4096", "--time_based", f"--runtime={fio._ms(1.5)}"),
        ]
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert time.monotonic() - begin >= 1.5
    report = tmp_path / "fio.json"
    report.write_text(done.stdout)
    assert read_report(report, "read")["fio_seconds"] == pytest.approx(1.5, abs=0.05)
