"""Every format of block traces against lines written by hand and worked out by hand."""

from __future__ import annotations

import gzip
import math
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from measurements.errors import MeasurementError
from measurements.traces import Trace, read_trace

DATA = Path(__file__).parent / "data" / "traces"

READ, WRITE, DISCARD, FLUSH = range(4)
LOG_SENSE = 0x4D


def vscsi_1(*records: tuple[int, int, int, int]) -> bytes:
    """Records of (command, length, lbn, time in µs)."""
    return b"".join(
        struct.pack("<IIIHHQQ", n, length, 1, command, 0x100, lbn, time)
        for n, (command, length, lbn, time) in enumerate(records)
    )


def vscsi_2(*records: tuple[int, int, int, int, int]) -> bytes:
    """Records of (command, length, lbn, time in µs, response time in µs)."""
    return b"".join(
        struct.pack("<HHIIIQQQ", command, 0x200, n, length, 1, lbn, time, response)
        for n, (command, length, lbn, time, response) in enumerate(records)
    )


def columns(trace: Trace) -> dict[str, list[object]]:
    return trace.to_table().to_pydict()


def same(found: list[object], wanted: list[float]) -> bool:
    return bool(np.allclose(np.array(found, float), wanted, rtol=1e-12, atol=0, equal_nan=True))


class TestByHand:
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_msr_with_the_names_of_its_fields_above(self, tmp_path, mark, end) -> None:
        names = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
        path = tmp_path / "headed.csv"
        path.write_bytes(f"{mark}{names}{end}".encode() + (DATA / "msr.csv").read_bytes())
        trace = read_trace(path)
        assert trace.format == "msr"
        assert columns(trace) == columns(read_trace(DATA / "msr.csv"))

    def test_msr_filetime_bytes_and_response(self) -> None:
        trace = read_trace(DATA / "msr.csv")
        found = columns(trace)
        assert trace.format == "msr"
        assert same(found["time_s"], [0.0, 1.3320526, 2.3320616])
        assert found["lbn"] == [749016, 607390, 2]
        assert found["size_bytes"] == [32768, 16384, 512]
        assert found["op"] == [READ, WRITE, READ]
        assert same(found["latency_s"], [0.0113736, 0.0022826, 1e-6])
        assert [trace.names["device"][code] for code in found["device"]] == [
            "hm_1",
            "hm_1",
            "src1_0",
        ]
        assert [trace.names["stream"][code] for code in found["stream"]] == ["hm", "hm", "src1"]
        # 2007-02-22 17:00:00.3061629 UTC, as the traces' documentation dates them.
        assert trace.start_unix_ns == 1172163600306162900

    def test_spc_blocks_and_seconds(self) -> None:
        trace = read_trace(DATA / "spc.spc")
        found = columns(trace)
        assert trace.format == "spc"
        assert np.allclose(found["time_s"], [0.0, 0.002335, 0.948294], atol=1e-15)
        assert found["lbn"] == [20941264, 20939840, 3072]
        assert found["op"] == [WRITE, READ, READ]
        assert found["device"] == [0, 1, 0]
        assert trace.names["device"] == ("0", "1")
        assert all(math.isnan(value) for value in found["latency_s"])
        assert found["file"] == [-1, -1, -1]

    def test_blkparse_arrivals_and_completions(self) -> None:
        trace = read_trace(DATA / "blkparse.txt")
        found = columns(trace)
        assert trace.format == "blkparse"
        assert found["lbn"] == [223490, 223498, 1000, 4096, 0]
        assert found["size_bytes"] == [4096, 4096, 8192, 1048576, 0]
        assert found["op"] == [WRITE, WRITE, READ, DISCARD, FLUSH]
        # Two merged arrivals end together; a split one with its last part.
        wanted = [10e-6, 10e-6 - 2.197e-6, 24e-6, math.nan, math.nan]
        assert np.allclose(found["latency_s"], wanted, atol=1e-15, equal_nan=True)
        names = trace.names
        assert [names["stream"][code] for code in found["stream"]] == [
            "kjournald-697",
            "kjournald-697",
            "my prog-701",
            "my prog-701",
            "kjournald-697",
        ]
        assert [names["device"][code] for code in found["device"]] == ["8,0"] * 3 + ["8,16", "8,0"]
        assert any("1 requests have no completion" in finding for finding in trace.findings)

    def test_iolog_2_waits_until_milliseconds_since_the_start(self) -> None:
        trace = read_trace(DATA / "v2.iolog")
        found = columns(trace)
        assert trace.format == "iolog-2"
        assert found["time_s"] == [0.0, 1.5, 2.5, 2.5]
        assert found["op"] == [READ, WRITE, DISCARD, FLUSH]
        assert found["lbn"] == [0, 8, 1, 0]
        assert [trace.names["file"][code] for code in found["file"]] == [
            "/data/a",
            "/data/a",
            "/data/b",
            "/data/b",
        ]

    def test_iolog_3_microseconds(self) -> None:
        trace = read_trace(DATA / "v3.iolog")
        found = columns(trace)
        assert trace.format == "iolog-3"
        assert np.allclose(found["time_s"], [0.0, 1.0, 1.5, 1.5001], atol=1e-15)
        assert found["op"] == [READ, WRITE, DISCARD, FLUSH]

    def test_mqsim_one_is_a_read(self) -> None:
        trace = read_trace(DATA / "mqsim.trace")
        found = columns(trace)
        assert trace.format == "mqsim"
        assert found["op"] == [READ, WRITE, READ]
        assert np.allclose(found["time_s"], [0.0, 152e-6, 308e-6], atol=1e-15)
        assert found["size_bytes"] == [8192, 32768, 8192]

    def test_etw_arrivals_are_before_completions(self) -> None:
        trace = read_trace(DATA / "etw.csv")
        found = columns(trace)
        assert trace.format == "etw"
        # Completed at 1300, 1500 and 1600 µs after 400, 700 and 50.
        assert np.allclose(found["time_s"], [0.0, 100e-6, 750e-6], atol=1e-15)
        assert found["op"] == [WRITE, READ, FLUSH]
        assert found["lbn"] == [1, 0x201000 // 512, 0]
        assert found["size_bytes"] == [512, 8192, 0]
        assert np.allclose(found["latency_s"], [700e-6, 400e-6, 50e-6])
        names = trace.names
        assert [names["stream"][code] for code in found["stream"]] == [
            "System (4)",
            "diskspd.exe (4242)",
            "System (4)",
        ]
        assert names["file"][found["file"][1]] == "C:\\data, hot\\test.dat"
        assert found["file"][2] == -1
        assert any("2 lines of other events" in finding for finding in trace.findings)

    def test_vscsi_1(self, tmp_path: Path) -> None:
        path = tmp_path / "vm.vscsi"
        path.write_bytes(
            vscsi_1((0x2A, 512, 7, 5_000_000), (0x28, 4096, 8, 5_250_000), (0x35, 0, 0, 6_000_000))
        )
        trace = read_trace(path)
        found = columns(trace)
        assert trace.format == "vscsi-1"
        assert found["time_s"] == [0.0, 0.25, 1.0]
        assert found["op"] == [WRITE, READ, FLUSH]
        assert found["lbn"] == [7, 8, 0]

    def test_vscsi_2_has_response_times(self, tmp_path: Path) -> None:
        path = tmp_path / "vm.vscsi"
        path.write_bytes(vscsi_2((0x88, 512, 7, 10, 125), (0x8A, 4096, 8, 20, 250)))
        trace = read_trace(path)
        found = columns(trace)
        assert trace.format == "vscsi-2"
        assert found["op"] == [READ, WRITE]
        assert same(found["latency_s"], [125e-6, 250e-6])

    def test_vscsi_leaves_other_commands_out(self, tmp_path: Path) -> None:
        path = tmp_path / "vm.vscsi"
        read = (0x28, 512, 0, 1)
        path.write_bytes(vscsi_1(*([read] * 20), (LOG_SENSE, 0, 0, 2), (0x28, 512, 0, 3)))
        trace = read_trace(path)
        assert trace.to_table().num_rows == 21
        assert any("1 SCSI commands" in finding for finding in trace.findings)


class TestBlkparseFormats:
    LINES = "0.000000000 697 Q R 100 8\n0.000001000 697 D R 100 8\n0.000002000 0 C R 100 8\n"

    def test_common_ones_are_recognised(self, tmp_path: Path) -> None:
        path = tmp_path / "t.txt"
        path.write_text(self.LINES)
        trace = read_trace(path)
        assert trace.format == "blkparse"
        assert columns(trace)["latency_s"] == pytest.approx([2e-6])
        assert any("%T.%t %p %a %d %S %n" in finding for finding in trace.findings)

    def test_any_other_is_given(self, tmp_path: Path) -> None:
        path = tmp_path / "t.txt"
        path.write_text("Q|R|100|4096|0.000000000|cat dog\nC|R|100|4096|0.000002000|0\n")
        trace = read_trace(path, format="blkparse:%a|%d|%S|%N|%T.%t|%C")
        found = columns(trace)
        assert found["size_bytes"] == [4096]
        assert found["latency_s"] == pytest.approx([2e-6])

    @pytest.mark.parametrize(
        ("layout", "said"),
        [("%T.%t %a %d %S", "sizes"), ("%a %d %S %n", "%T is needed"), ("%T.%t %Z", "%Z")],
    )
    def test_what_it_must_hold(self, layout: str, said: str) -> None:
        with pytest.raises(MeasurementError, match=said):
            read_trace(DATA / "msr.csv", format=f"blkparse:{layout}")


class TestGuess:
    @pytest.mark.parametrize("name", [p.name for p in sorted(DATA.iterdir())])
    def test_packed_is_as_plain(self, name: str, tmp_path: Path) -> None:
        packed = tmp_path / "trace.gz"
        with gzip.open(packed, "wb") as file:
            file.write((DATA / name).read_bytes())
        plain = read_trace(DATA / name)
        trace = read_trace(packed)
        assert trace.format == plain.format
        assert (
            trace.to_table()
            .drop_columns("latency_s")
            .equals(plain.to_table().drop_columns("latency_s"))
        )

    def test_the_name_says_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.spc"
        shutil.copy(DATA / "msr.csv", path)
        assert read_trace(path).format == "msr"

    def test_override_stands(self) -> None:
        trace = read_trace(DATA / "msr.csv", format="spc")
        with pytest.raises(MeasurementError, match=r"line 1, read as SPC.*7 fields, not the 5"):
            trace.to_table()

    def test_unknown_format(self) -> None:
        with pytest.raises(
            MeasurementError, match="no trace format 'msrc': choose one of blktrace"
        ):
            read_trace(DATA / "msr.csv", format="msrc")

    def test_what_is_none(self, tmp_path: Path) -> None:
        path = tmp_path / "poem.txt"
        path.write_text("Shall I compare thee to a summer's day?\n")
        with pytest.raises(MeasurementError, match="looks like no block trace"):
            read_trace(path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "t").write_text("")
        with pytest.raises(MeasurementError, match="is empty"):
            read_trace(tmp_path / "t")

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(MeasurementError, match="cannot be read: No such file"):
            read_trace(tmp_path / "t")


class TestStream:
    def test_every_pass_is_the_same(self) -> None:
        trace = read_trace(DATA / "msr.csv", batch_requests=2)
        sizes = [batch.num_rows for batch in trace.batches()]
        assert sizes == [2, 1]
        assert list(trace.batches()) == list(trace.batches())

    def test_names_without_a_pass(self) -> None:
        assert read_trace(DATA / "msr.csv").names["stream"] == ("hm", "src1")

    def test_codes_always_have_a_name(self) -> None:
        trace = read_trace(DATA / "spc.spc")
        assert trace.names["stream"] == ("all",)

    def test_late_requests_are_put_in_order_and_told(self, tmp_path: Path) -> None:
        path = tmp_path / "t.spc"
        path.write_text("0,1,512,R,0.5\n0,2,512,R,0.25\n0,3,512,R,0.75\n")
        trace = read_trace(path)
        assert columns(trace)["lbn"] == [2, 1, 3]
        assert columns(trace)["time_s"] == [0.0, 0.25, 0.5]
        assert trace.findings == ("1 requests were out of order, by up to 0.25 s; now sorted",)

    def test_an_old_clock_loses_nothing(self, tmp_path: Path) -> None:
        # Neighbouring ticks near 1.28e17 are one double.
        path = tmp_path / "t.csv"
        path.write_text(
            "128166372003061629,h,0,Read,0,512,1\n128166372003061630,h,0,Read,0,512,1\n"
        )
        assert columns(read_trace(path))["time_s"] == [0.0, 1e-7]


@pytest.mark.thirdparty
class TestMeasured:
    def test_cloudphysics_first_hour(self, data_dir: Path) -> None:
        path = data_dir / "block-traces" / "raw" / "cloudPhysicsIO_first_hour.vscsi"
        trace = read_trace(path)
        table = trace.to_table()
        assert trace.format == "vscsi-1"
        assert table.num_rows == 55_918
        assert table["time_s"][-1].as_py() == pytest.approx(3600, abs=2)

    @pytest.mark.parametrize(
        ("name", "requests", "seconds", "devices"),
        [("tpcc-small.trace", 6_999, 0.137, 16), ("wsrch-small.trace", 24_783, 60.06, 6)],
    )
    def test_mqsim(
        self, data_dir: Path, name: str, requests: int, seconds: float, devices: int
    ) -> None:
        trace = read_trace(data_dir / "block-traces" / "raw" / name)
        table = trace.to_table()
        assert table.num_rows == requests
        assert table["time_s"][-1].as_py() == pytest.approx(seconds, rel=0.01)
        reads = np.mean(np.asarray(table["op"]) == READ)
        assert (reads > 0.99) == (name == "wsrch-small.trace")
        assert table["device"].combine_chunks().unique().to_pylist() == list(
            range(len(trace.names["device"]))
        )
        assert len(trace.names["device"]) == devices


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "\n",
        "1,host,0,Read,-512,512,1\n",
        "1,a b,1,write,0,512,1\r\n",
        "1,,1,write,0,512,1\n",
        f"1,{'h' * 70},1,Write,0,512,1\n",
        "1,host,0,Read,512,512\n",
        "1,host,0,Read,512,512,1,1\n",
        "1,host,0,Read,512,x,1\n",
        f"1,host,0,Read,{2**63},512,1\n",
        "1,host,0,Trim,512,512,1\n",
    ],
)
def test_plain_lines_are_parsed_as_arrow_does(odd, tmp_path, monkeypatch):
    """The compiled parser against Arrow's, with lines among them that it leaves to it."""
    line = "128166372003061629,hm{n},{n},{op},{at},4096,113736\n"
    plain = [line.format(n=n % 3, op=("Read", "Write")[n % 2], at=512 * n) for n in range(500)]
    path = tmp_path / "t.csv"

    def read():
        try:
            table = read_trace(path, format="msr").to_table().drop_columns("latency_s")
        except MeasurementError as error:
            return str(error)
        return table.to_pylist(), table.schema.metadata

    for end in ("\n", ""):
        path.write_text("".join([*plain[:250], odd, *plain[250:]]).rstrip("\n") + end)
        with monkeypatch.context() as patched:
            arrow = read()
            patched.setattr("measurements.traces.fields._is_worth_compiling", lambda path: True)
            assert read() == arrow
            patched.setattr("measurements.traces.source.BLOCK", 1000)
            assert read() == arrow


@pytest.mark.parametrize("seed", range(40))
def test_damaged_plain_lines_are_parsed_as_arrow_does(seed, tmp_path, monkeypatch):
    """The same of lines with bytes changed, taken out and put in."""
    rng = random.Random(seed)
    line = "128166372003061629,hm,{n},{op},{at},4096,113736\n"
    text = bytearray(
        "".join(
            line.format(n=n % 3, op=("Read", "Write")[n % 2], at=512 * n) for n in range(40)
        ).encode()
    )
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        text[at : at + rng.randrange(3)] = rng.choice(
            [b"", b",", b"\n", b"7", b"-", b"\xff", b"\r"]
        )
    path = tmp_path / "t.csv"
    path.write_bytes(text)
    found = []
    for compiled in (False, True):
        monkeypatch.setattr(
            "measurements.traces.fields._is_worth_compiling", lambda path, worth=compiled: worth
        )
        try:
            table = read_trace(path, format="msr").to_table().drop_columns("latency_s")
            found.append((table.to_pylist(), table.schema.metadata))
        except MeasurementError as error:
            found.append(str(error))
    assert found[0] == found[1]
