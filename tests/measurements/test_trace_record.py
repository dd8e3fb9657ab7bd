"""Recording a loop device under fio jobs of known law, and putting everything back.

The oracles are fio's own iolog, blkparse, btt and fio reading the records.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from peers.loop_device import is_traced, loop_device, tracer_settings

from measurements.errors import MeasurementError
from measurements.traces import read_trace
from measurements.traces.record import Recording, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
SIZE = 64 << 20


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with loop_device(tmp_path_factory.mktemp("loop"), SIZE) as made:
        yield made


@pytest.fixture(autouse=True)
def _put_back(device: Path) -> Iterator[None]:
    before = tracer_settings()
    assert "nop" in before
    yield
    assert tracer_settings() == before
    assert not is_traced(device)


def fio(device: Path, folder: Path, *options: str) -> list[str]:
    return [
        "fio",
        "--name=job",
        f"--filename={device}",
        "--bs=4k",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=8",
        "--randseed=1",
        f"--write_iolog={folder / 'job.iolog'}",
        f"--output={folder / 'fio.txt'}",
        *options,
    ]


def recorded(device: Path, folder: Path, *options: str) -> tuple[Recording, dict[str, np.ndarray]]:
    done = record(
        str(device), fio(device, folder, *options), folder / "t.parquet", raw=folder / "raw"
    )
    assert done.exit_code == 0
    assert done.lost == 0
    trace = read_trace(done.path)
    table = trace.to_table()
    jobs = [code for code, name in enumerate(trace.names["stream"]) if name.startswith("fio-")]
    found = {name: table[name].to_numpy() for name in table.column_names}
    chosen = np.isin(found["stream"], jobs)
    return done, {name: column[chosen] for name, column in found.items()}


class TestAgainstFio:
    def test_requests_are_those_that_fio_logs(self, device: Path, tmp_path: Path) -> None:
        _, found = recorded(device, tmp_path, "--rw=randrw", "--number_ios=1500")
        said = read_trace(tmp_path / "job.iolog").to_table()
        for column in ("lbn", "size_bytes", "op"):
            np.testing.assert_array_equal(found[column], said[column].to_numpy())
        assert np.isfinite(found["latency_s"]).all()
        assert (found["latency_s"] > 0).all()

    def test_sequential_writes(self, device: Path, tmp_path: Path) -> None:
        _, found = recorded(device, tmp_path, "--rw=write", "--bs=64k", "--size=16m")
        assert found["lbn"].tolist() == list(range(0, (16 << 20) // 512, 128))
        assert set(found["op"]) == {1}

    def test_four_fifths_in_a_fifth(self, device: Path, tmp_path: Path) -> None:
        zones = "--random_distribution=zoned:80/20:20/80"
        _, found = recorded(
            device, tmp_path, "--rw=randread", zones, "--norandommap", "--number_ios=3000"
        )
        share = np.mean(found["lbn"] < 0.2 * SIZE / 512)
        # Four standard errors of 3000 draws.
        assert share == pytest.approx(0.8, abs=4 * np.sqrt(0.8 * 0.2 / 3000))

    def test_poisson_arrivals(self, device: Path, tmp_path: Path) -> None:
        options = ("--rw=randread", "--rate_iops=400", "--rate_process=poisson", "--runtime=4")
        _, found = recorded(device, tmp_path, *options, "--time_based", "--iodepth=32")
        said = read_trace(tmp_path / "job.iolog").to_table()["time_s"].to_numpy()
        gaps = np.diff(found["time_s"])
        # fio's own clock, in µs, and the kernel's tell the same gaps.
        assert len(gaps) == len(said) - 1
        assert np.corrcoef(gaps, np.diff(said))[0, 1] > 0.9
        assert gaps.mean() == pytest.approx(1 / 400, rel=0.15)
        # Near 1, and further from it the busier the host is; fio's log says by how much.
        said = np.diff(said)
        assert gaps.std() / gaps.mean() == pytest.approx(said.std() / said.mean(), rel=0.05)
        assert np.median(gaps) / gaps.mean() == pytest.approx(np.log(2), abs=0.15)


class TestRawRecords:
    def test_blkparse_btt_and_fio_read_them(self, device: Path, tmp_path: Path) -> None:
        done, found = recorded(device, tmp_path, "--rw=randread", "--number_ios=500")
        assert [path.name for path in done.raw] == [
            f"raw.blktrace.{n}" for n in range(os.cpu_count() or 0)
        ]
        merged = tmp_path / "merged.bin"
        parsed = subprocess.run(
            ["blkparse", "-i", "raw", "-d", str(merged)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "error" not in parsed.stderr
        arrivals = re.findall(r" Q +R (\d+) \+ 8 \[fio\]", parsed.stdout)
        assert [int(lbn) for lbn in arrivals] == found["lbn"].tolist()
        said = subprocess.run(
            ["btt", "-i", str(merged)], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        match = re.search(r"^Q2C(?:dm)? +[\d.]+ +([\d.]+) +[\d.]+ +500$", said, re.MULTILINE)
        assert match is not None
        assert found["latency_s"].mean() == pytest.approx(float(match[1]), rel=1e-4)
        replay = subprocess.run(
            [
                "fio",
                "--name=replay",
                f"--read_iolog={merged}",
                "--replay_no_stall=1",
                f"--replay_redirect={device}",
                "--direct=1",
                "--ioengine=libaio",
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        ).stdout
        assert "issued rwts: total=500,0,0,0" in replay

    def test_the_wall_clock_is_in_them(self, device: Path, tmp_path: Path) -> None:
        before = time.time()
        done, _ = recorded(device, tmp_path, "--rw=read", "--number_ios=10")
        start = read_trace(done.path).start_unix_ns
        assert start is not None
        assert before - 0.01 < start / 1e9 < time.time()


class TestRefusals:
    def test_no_such_device(self, tmp_path: Path) -> None:
        with pytest.raises(MeasurementError, match="sdzz: no block device: choose one of"):
            record("sdzz", ["true"], tmp_path / "t.parquet")

    def test_no_request(self, device: Path, tmp_path: Path) -> None:
        with pytest.raises(MeasurementError, match="no request reached the device"):
            record(str(device), ["true"], tmp_path / "t.parquet")

    def test_no_such_command(self, device: Path, tmp_path: Path) -> None:
        with pytest.raises(MeasurementError, match="nosuch: cannot be started"):
            record(str(device), ["nosuch"], tmp_path / "t.parquet")

    def test_a_device_that_is_traced(self, device: Path, tmp_path: Path) -> None:
        enable = Path("/sys/block", device.name, "trace", "enable")
        enable.write_text("1")
        try:
            with pytest.raises(MeasurementError, match="is being traced already"):
                record(str(device), ["true"], tmp_path / "t.parquet")
            assert is_traced(device)
        finally:
            enable.write_text("0")

    def test_a_failed_command_is_told(self, device: Path, tmp_path: Path) -> None:
        read = f"dd if={device} of=/dev/null bs=4k count=10 iflag=direct 2>&-; exit 3"
        done = record(str(device), ["sh", "-c", read], tmp_path / "t.parquet")
        assert done.exit_code == 3
        assert "the command ended with 3" in done.caveats
        assert done.requests == 10

    def test_where_blktrace_may_not_record_it_is_said(self, device: Path, tmp_path: Path) -> None:
        read = ["dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
        done = record(str(device), read, tmp_path / "t.parquet")
        refused = any("blktrace may not record here" in caveat for caveat in done.caveats)
        assert refused == (done.method == "blk tracer")


CODE = """
import sys
from measurements.traces.record import record
record(sys.argv[1], ["sleep", "60"], sys.argv[2])
"""


class TestKilled:
    def start(self, device: Path, folder: Path) -> subprocess.Popen[bytes]:
        said = folder / "said"
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", CODE, str(device), str(folder / "t.parquet")],
                cwd=ROOT,
                stderr=stderr,
            )
        # blktrace is tried before, and the kernel traces then too.
        try:
            wait_until(lambda: tracer() == "blk" and is_traced(device))
        except AssertionError:
            # Nothing of it goes on beside the tests that follow.
            process.terminate()
            code = process.wait()
            pytest.fail(f"not traced in time: {tracer_settings()}; {code}: {said.read_text()}")
        return process

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_ppw(self, device: Path, tmp_path: Path, number: signal.Signals) -> None:
        process = self.start(device, tmp_path)
        process.send_signal(number)
        process.wait()
        wait_until(lambda: tracer() == "nop" and not is_traced(device))

    def test_the_recorder(self, device: Path, tmp_path: Path) -> None:
        process = self.start(device, tmp_path)
        (recorder,) = children(process.pid, "blk_tracer")
        os.kill(recorder, signal.SIGKILL)
        wait_until(lambda: tracer() == "nop" and not is_traced(device))
        process.kill()
        process.wait()

    def test_all_of_them_and_the_next_start_puts_back(self, device: Path, tmp_path: Path) -> None:
        process = self.start(device, tmp_path)
        (recorder,) = children(process.pid, "blk_tracer")
        (guard,) = children(recorder, "guard_process")
        for pid in (guard, recorder, process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert is_traced(device)
        read = ["dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
        done = record(str(device), read, tmp_path / "t.parquet")
        said = [caveat for caveat in done.caveats if "a killed ppw had left" in caveat]
        assert len(said) == 1
        assert "current_tracer" in said[0]
        assert f"{device.name}/trace/enable" in said[0]


def tracer() -> str:
    match = re.search(r"current_tracer <==\n(\w+)", tracer_settings())
    return match[1] if match else ""


def children(parent: int, marked: str) -> list[int]:
    """Processes of a parent whose command line has a word."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(pid) for pid in found if marked.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_recorder_says_nothing_to_a_ppw_that_was_killed() -> None:
    """No traceback, and nothing of Python's at its end, when nobody reads what it says."""
    read, write = os.pipe()
    os.close(read)
    say = "from measurements.traces import blk_tracer; blk_tracer._say(a=1); blk_tracer._say(b=2)"
    said = subprocess.run(
        [sys.executable, "-c", say], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (said.returncode, said.stderr) == (0, b"")
