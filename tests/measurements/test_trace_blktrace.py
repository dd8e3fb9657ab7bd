"""Block traces by blktrace: files against blkparse and btt, and recordings of jobs of known law.

The oracles of recordings are fio's own iolog, blkparse, btt, and fio reading the records.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from peers.loop_device import is_traced, loop_device, tracer_settings
from peers.waiting import wait_for

from measurements.errors import MeasurementError
from measurements.traces import read_trace
from measurements.traces.blktrace import BIG, LITTLE, MAGIC
from measurements.traces.record import record

ROOT = Path(__file__).resolve().parents[2]
READ, WRITE, DISCARD, NOTIFY = 1 << 16, 1 << 17, 1 << 29, 1 << 26
QUEUE, COMPLETE, UNPLUG = 1, 8, 10


def binary(time, action, sector=0, size=4096, *, pid=1, payload=b"", layout=LITTLE):
    made = np.zeros(1, layout)
    made["magic"], made["time"], made["sector"], made["bytes"] = MAGIC, time, sector, size
    made["action"], made["pid"], made["device"] = action, pid, (8 << 20) | 16
    made["payload"] = len(payload)
    return made.tobytes() + payload


def events(layout):
    """A process's note, the wall clock, and requests with payloads of odd lengths between them."""
    wall = np.array([1_700_000_000, 500], layout["magic"]).tobytes()
    # Text that looks like a record.
    message = np.array([MAGIC] * 5, layout["magic"]).tobytes() + b"?"
    records = [
        (100, NOTIFY | 0, 0, 4096, 7, b"sort".ljust(16, b"\0")),
        (100, NOTIFY | 1, 0, 4096, 1, wall),
        (1000, READ | QUEUE, 64, 4096, 7),
        (1500, NOTIFY | 2, 0, 4096, 1, message),
        (2000, WRITE | QUEUE, 128, 512, 9),
        (2100, UNPLUG | READ, 0, 4096, 1, b"\0" * 8),
        (3000, READ | COMPLETE, 64),
        (4500, WRITE | COMPLETE, 128, 512),
        (5000, DISCARD | WRITE | QUEUE, 0, 1 << 20),
    ]
    return b"".join(
        binary(*row[:4], pid=(row[4:] or [1])[0], payload=b"".join(row[5:]), layout=layout)
        for row in records
    )


@pytest.fixture
def write(tmp_path):
    def write(content, name="t.bin"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


class TestByHand:
    @pytest.mark.parametrize("size", [49, 64, 100, 1000, None])
    @pytest.mark.parametrize("layout", [LITTLE, BIG], ids=["little", "big"])
    def test_both_byte_orders_and_records_cut_by_blocks(self, size, layout, write, monkeypatch):
        if size is not None:
            monkeypatch.setattr("measurements.traces.blktrace._AT_ONCE", size)
        trace = read_trace(write(events(layout)))
        found = trace.to_table().to_pydict()
        assert trace.format == "blktrace"
        assert found["time_s"] == pytest.approx([0.0, 1e-6, 4e-6])
        assert found["lbn"] == [64, 128, 0]
        assert found["op"] == [0, 1, 2]
        if size in (1000, None):
            assert found["latency_s"][:2] == pytest.approx([2e-6, 2.5e-6])
        streams = [trace.names["stream"][code] for code in found["stream"]]
        assert streams == ["sort-7", "process-9", "process-1"]
        assert trace.names["device"] == ("8,16",)
        assert trace.start_unix_ns == 1_700_000_000_000_000_500 - 100 + 1000

    def test_files_of_all_cpus_by_any_name_and_one_that_is_cut_short(self, write, tmp_path):
        write(binary(10, READ | QUEUE, 8) + binary(40, READ | QUEUE, 16), "sda.blktrace.0")
        write(b"", "sda.blktrace.1")
        write(binary(20, READ | COMPLETE, 8) + binary(30, READ | QUEUE, 24), "sda.blktrace.10")
        for name in (tmp_path, tmp_path / "sda", tmp_path / "sda.blktrace.10"):
            table = read_trace(name).to_table()
            assert table["lbn"].to_pylist() == [8, 24, 16]
            assert table["latency_s"][0].as_py() == pytest.approx(10e-9)
        # A payload longer than the rest is cut short.
        path = write(events(LITTLE) + binary(1, NOTIFY | 2, payload=b"x" * 50)[:-1])
        with pytest.raises(ValueError, match="record 10 is cut short, 97 bytes are left"):
            read_trace(path).to_table()


def slow_latency(rows):
    """Of each arrival, by looking at every later completion."""
    for time_ns, arrival, begin, blocks in rows:
        if arrival:
            last = begin + blocks - 1
            ends = [t for t, a, b, n in rows if not a and t >= time_ns and b <= last < b + n]
            yield (min(ends) - time_ns) / 1e9 if ends else float("nan")


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 12), st.integers(1, 6)),
        min_size=1,
        max_size=40,
    ).filter(lambda rows: any(arrival for _, arrival, _, _ in rows))
)
def test_latency_is_that_of_a_plain_search(tmp_path_factory, rows):
    rows = sorted(rows, key=lambda row: row[0])
    path = tmp_path_factory.mktemp("pairs") / "t.bin"
    kinds = {True: READ | QUEUE, False: READ | COMPLETE}
    path.write_bytes(b"".join(binary(t, kinds[a], b, n * 512) for t, a, b, n in rows))
    found = read_trace(path).to_table()["latency_s"].to_numpy()
    np.testing.assert_allclose(found, list(slow_latency(rows)), atol=1e-15)


def told(*command, cwd):
    """What a program prints."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    assert "error" not in done.stderr
    return done.stdout


@pytest.mark.thirdparty
class TestRecordedElsewhere:
    """A recorded trace of a virtual disk, and the programs of the blktrace package on it."""

    @pytest.fixture
    def folder(self, data_dir):
        return data_dir.parent / "samples" / "blktrace"

    def test_text_and_binary_agree(self, folder):
        text = read_trace(folder / "blkparse_vda_randrw.txt").to_table()
        binary = read_trace(folder / "vda").to_table().slice(0, text.num_rows)
        for column in ("time_s", "lbn", "size_bytes", "op", "stream"):
            np.testing.assert_array_equal(text[column].to_numpy(), binary[column].to_numpy())

    @pytest.mark.peer("blktrace")
    def test_arrivals_are_those_that_blkparse_prints(self, folder):
        form = ("-f", "%T %t %a %S %n\\n", "-a", "queue")
        printed = told("blkparse", "-q", "-i", "vda", *form, cwd=folder).splitlines()
        rows = [line.split() for line in printed if re.match(r"\d+ \d+ Q ", line)]
        wanted = [(int(f"{s}{ns:>09}"), int(lbn), int(n)) for s, ns, _, lbn, n in rows if int(n)]
        table = read_trace(folder / "vda").to_table()
        moved = table.filter(pa.compute.field("size_bytes") > 0)
        assert moved["lbn"].to_pylist() == [lbn for _, lbn, _ in wanted]
        assert moved["size_bytes"].to_pylist() == [n * 512 for _, _, n in wanted]
        times = np.array([ns for ns, _, _ in wanted])
        np.testing.assert_allclose(moved["time_s"].to_numpy(), (times - times[0]) / 1e9, atol=1e-12)

    @pytest.mark.peer("blktrace")
    def test_latency_is_btts(self, folder, tmp_path):
        merged = tmp_path / "vda.bin"
        told("blkparse", "-q", "-O", "-i", "vda", "-d", str(merged), cwd=folder)
        said = told("btt", "-i", str(merged), cwd=tmp_path)
        match = re.search(r"^Q2Cdm +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$", said, re.MULTILINE)
        for trace in (read_trace(merged), read_trace(folder / "vda")):
            latency = trace.to_table()["latency_s"].to_numpy()
            found = [latency.min(), latency.mean(), latency.max()]
            np.testing.assert_allclose(found, [float(match[n]) for n in (1, 2, 3)], atol=2e-9)
            assert len(latency) == int(match[4])


@pytest.fixture(scope="module")
def shared_device(tmp_path_factory):
    with loop_device(tmp_path_factory.mktemp("loop"), 64 << 20) as made:
        yield made


@pytest.fixture
def device(shared_device):
    """A device, whose tracing and tracer must be as they were when a test is done."""
    before = tracer_settings()
    assert "nop" in before
    yield shared_device
    assert tracer_settings() == before
    assert not is_traced(shared_device)


@pytest.fixture
def traced(device, tmp_path):
    """Record a command on the device."""
    return lambda *command: record(str(device), [*command], tmp_path / "t.parquet")


@pytest.fixture
def recorded(device, tmp_path):
    """Record a job of fio; the recording, and the columns of its requests."""

    def recorded(*options):
        job = ("fio", "--name=job", f"--filename={device}", "--bs=4k", "--direct=1")
        job += ("--ioengine=libaio", "--iodepth=8", "--randseed=1")
        job += (f"--write_iolog={tmp_path / 'job.iolog'}", f"--output={tmp_path / 'fio.txt'}")
        path, raw = tmp_path / "t.parquet", tmp_path / "raw"
        done = record(str(device), [*job, *options], path, raw=raw)
        assert (done.exit_code, done.lost) == (0, 0)
        trace = read_trace(done.path)
        table = trace.to_table()
        jobs = [code for code, name in enumerate(trace.names["stream"]) if name.startswith("fio-")]
        chosen = np.isin(table["stream"].to_numpy(), jobs)
        return done, {name: table[name].to_numpy()[chosen] for name in table.column_names}

    return recorded


@pytest.mark.peer("blktrace")
class TestAgainstFio:
    def test_requests_are_those_that_fio_logs(self, recorded, tmp_path):
        before = time.time()
        done, found = recorded("--rw=randrw", "--bssplit=4k/80:64k/20", "--number_ios=1500")
        said = read_trace(tmp_path / "job.iolog").to_table()
        for column in ("lbn", "size_bytes", "op"):
            np.testing.assert_array_equal(found[column], said[column].to_numpy())
        assert np.isfinite(found["latency_s"]).all()
        assert (found["latency_s"] > 0).all()
        # The wall clock is in the records.
        assert before - 0.01 < read_trace(done.path).start_unix_ns / 1e9 < time.time()

    def test_poisson_arrivals(self, recorded, tmp_path):
        options = ("--rw=randread", "--rate_iops=800", "--rate_process=poisson", "--runtime=1")
        _, found = recorded(*options, "--time_based", "--iodepth=32")
        said = np.diff(read_trace(tmp_path / "job.iolog").to_table()["time_s"].to_numpy())
        gaps = np.diff(found["time_s"])
        # fio's own clock, in µs, and the kernel's tell the same gaps.
        assert len(gaps) == len(said)
        assert np.corrcoef(gaps, said)[0, 1] > 0.9
        assert gaps.mean() == pytest.approx(1 / 800, rel=0.15)
        # Those of the law on an idle host; fio's log says how far the busier ones are from it.
        assert gaps.std() / gaps.mean() == pytest.approx(said.std() / said.mean(), rel=0.05)
        assert np.median(gaps) == pytest.approx(np.median(said), abs=0.05 * said.mean())

    def test_blkparse_btt_and_fio_read_the_records(self, recorded, device, tmp_path):
        done, found = recorded("--rw=randread", "--number_ios=500")
        cpus = range(os.cpu_count() or 0)
        assert [path.name for path in done.raw] == [f"raw.blktrace.{n}" for n in cpus]
        merged = tmp_path / "merged.bin"
        parsed = told("blkparse", "-i", "raw", "-d", str(merged), cwd=tmp_path)
        arrivals = re.findall(r" Q +R (\d+) \+ 8 \[fio\]", parsed)
        assert [int(lbn) for lbn in arrivals] == found["lbn"].tolist()
        said = told("btt", "-i", str(merged), cwd=tmp_path)
        match = re.search(r"^Q2C(?:dm)? +[\d.]+ +([\d.]+) +[\d.]+ +500$", said, re.MULTILINE)
        assert found["latency_s"].mean() == pytest.approx(float(match[1]), rel=1e-4)
        again = ("--name=replay", f"--read_iolog={merged}", "--replay_no_stall=1", "--direct=1")
        to = (f"--replay_redirect={device}", "--ioengine=libaio")
        assert "issued rwts: total=500,0,0,0" in told("fio", *again, *to, cwd=tmp_path)


def read(device, count=1):
    return f"dd if={device} of=/dev/null bs=4k count={count} iflag=direct 2>&-"


@pytest.mark.peer("blktrace")
class TestRefusals:
    def test_what_cannot_be_recorded(self, device, traced, tmp_path):
        with pytest.raises(MeasurementError, match="no request reached the device"):
            traced("true")
        with pytest.raises(MeasurementError, match="nosuch: cannot be started"):
            traced("nosuch")
        enable = Path("/sys/block", device.name, "trace", "enable")
        enable.write_text("1")
        try:
            with pytest.raises(MeasurementError, match="is already being traced"):
                traced("true")
            assert is_traced(device)
        finally:
            enable.write_text("0")

    def test_a_failed_command_is_told_and_where_blktrace_may_not_record(self, device, traced):
        done = traced("sh", "-c", f"{read(device, 10)}; exit 3")
        assert done.exit_code == 3
        assert "the command ended with 3" in done.caveats
        assert done.requests == 10
        refused = any("blktrace may not record here" in caveat for caveat in done.caveats)
        assert refused == (done.method == "blk tracer")


def tracer():
    match = re.search(r"current_tracer <==\n(\w+)", tracer_settings())
    return match[1] if match else ""


def child(parent, word):
    """The process of a parent whose command line has a word."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (pid,) = [pid for pid in found if word in Path(f"/proc/{pid}/cmdline").read_text()]
    return int(pid)


@pytest.mark.peer("blktrace")
class TestKilled:
    @pytest.fixture
    def recording(self, device, tmp_path):
        """A process that records, by the tracer: blktrace is tried before."""
        code = "from measurements.traces.record import record\n"
        code += f"record({str(device)!r}, ['sleep', '600'], {str(tmp_path / 't.parquet')!r})"
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
        try:
            wait_for(lambda: tracer() == "blk" and is_traced(device))
            yield process
        finally:
            # Nothing of it goes on beside the tests that follow.
            process.kill()
            process.wait()

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, None])
    def test_ppw_or_the_recorder(self, device, recording, number):
        if number is None:
            os.kill(child(recording.pid, "recording_process"), signal.SIGKILL)
        else:
            recording.send_signal(number)
            recording.wait()
        wait_for(lambda: tracer() == "nop" and not is_traced(device))

    def test_all_of_them_and_the_next_start_puts_back(self, device, recording, traced):
        recorder = child(recording.pid, "recording_process")
        for pid in (child(recorder, "settings_guard"), recorder, recording.pid):
            os.kill(pid, signal.SIGKILL)
        recording.wait()
        assert is_traced(device)
        done = traced("sh", "-c", read(device))
        (said,) = [caveat for caveat in done.caveats if "a killed ppw had left" in caveat]
        assert "current_tracer" in said
        assert f"{device.name}/trace/enable" in said


def test_a_recording_needs_a_device(tmp_path):
    with pytest.raises(MeasurementError, match="sdzz: no block device: choose one of"):
        record("sdzz", ["true"], tmp_path / "t.parquet")
