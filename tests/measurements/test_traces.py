"""Block traces: formats by hand, tables of others, what ppw writes, what no reader takes."""

import gzip
import io
import math
import random
import re
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from refusals import refusal

from measurements.errors import MeasurementError
from measurements.traces import read_trace, requests as arrivals, write_trace
from measurements.traces.blktrace import LITTLE, MAGIC
from measurements.traces.requests import SCHEMA

DATA = Path(__file__).parent / "data" / "traces"
NAMES = sorted(path.name for path in DATA.iterdir())
READ, WRITE, DISCARD, FLUSH = range(4)
LOG_SENSE = 0x4D

MSR = "128166372003061629,hm,1,Read,383496192,32768,113736\n"
SPC = "0,20941264,8192,W,0.551706\n"
MQSIM = "11413000 0 657728 16 1\n"
BLKPARSE = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n"
IOLOG = "fio version 3 iolog\n1 /a add\n"
TABLE = "time_s,lbn,size_bytes,op\n"
ETW = (DATA / "etw.csv").read_text()


def vscsi_1(command, length, lbn, time, version=0x100):
    return struct.pack("<IIIHHQQ", 1, length, 1, command, version, lbn, time)


def vscsi_2(command, length, lbn, time, response):
    return struct.pack("<HHIIIQQQ", command, 0x200, 1, length, 1, lbn, time, response)


def blktrace(sector=8, size=4096, action=(1 << 16) | 1):
    record = np.zeros(1, LITTLE)
    record["magic"], record["sector"] = MAGIC, sector
    record["bytes"], record["action"] = size, action
    return record.tobytes()


@pytest.fixture
def trace(tmp_path):
    """Write a trace, and open it."""

    def trace(content, name="trace", **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_trace(path, **options)

    return trace


@pytest.fixture
def refused(trace, tmp_path):
    """Check that reading a trace fails with its name and one line of text."""

    def refused(said, content, **options):
        message = refusal(lambda: trace(content, **options).to_table(), f"{tmp_path}/trace")
        assert re.search(said, message)

    return refused


def without_latency(trace):
    # NaN is equal to nothing.
    return trace.to_table().drop_columns("latency_s")


def columns(trace):
    return trace.to_table().to_pydict()


def named(trace, column):
    """Names behind the codes of a column."""
    return [trace.names[column][code] for code in columns(trace)[column]]


def iolog_rows(*times):
    requests = [(0, 4096, READ), (8, 8192, WRITE), (1, 512, DISCARD), (0, 0, FLUSH)]
    return [(time, *rest, math.nan) for time, rest in zip(times, requests, strict=True)]


# Time (s), block, bytes, operation and latency (s) of each request.
BY_HAND = {
    "msr.csv": [
        (0.0, 749016, 32768, READ, 0.0113736),
        (1.3320526, 607390, 16384, WRITE, 0.0022826),
        (2.3320616, 2, 512, READ, 1e-6),
    ],
    "spc.spc": [
        (0.0, 20941264, 8192, WRITE, math.nan),
        (0.002335, 20939840, 512, READ, math.nan),
        (0.948294, 3072, 4096, READ, math.nan),
    ],
    "alibaba.csv": [
        (0.0, 749016, 32768, READ, math.nan),
        (1.332052, 607390, 16384, WRITE, math.nan),
        (2.332061, 2, 512, READ, math.nan),
    ],
    "tencent.csv": [
        (0.0, 20941264, 8192, READ, math.nan),
        (0.0, 20939840, 512, WRITE, math.nan),
        (2.0, 3072, 4096, READ, math.nan),
    ],
    # A request without an operation is left out.
    "systor17.csv": [
        (0.0, 899056122368 // 512, 131072, READ, 806e-6),
        (1.0, 8, 8192, WRITE, 2500e-6),
    ],
    # The device stands above the block.
    "oracle-general.bin": [
        (0.0, 8, 4096, READ, math.nan),
        (0.0, 8, 512, READ, math.nan),
        (2.0, 8, 4096, READ, math.nan),
    ],
    # Two merged arrivals end together; a split one with its last part.
    "blkparse.txt": [
        (0.0, 223490, 4096, WRITE, 10e-6),
        (2.197e-6, 223498, 4096, WRITE, 10e-6 - 2.197e-6),
        (6e-6, 1000, 8192, READ, 24e-6),
        (11e-6, 4096, 1048576, DISCARD, math.nan),
        (15e-6, 0, 0, FLUSH, math.nan),
    ],
    # Waits are until milliseconds since the start; version 3 has microseconds.
    "v2.iolog": iolog_rows(0.0, 1.5, 2.5, 2.5),
    "v3.iolog": iolog_rows(0.0, 1.0, 1.5, 1.5001),
    # One is a read.
    "mqsim.trace": [
        (0.0, 657728, 8192, READ, math.nan),
        (152e-6, 31244784, 32768, WRITE, math.nan),
        (308e-6, 21868784, 8192, READ, math.nan),
    ],
    # Completed at 1300, 1500 and 1600 µs after 400, 700 and 50.
    "etw.csv": [
        (0.0, 1, 512, WRITE, 700e-6),
        (100e-6, 0x201000 // 512, 8192, READ, 400e-6),
        (750e-6, 0, 0, FLUSH, 50e-6),
    ],
}


class TestByHand:
    """Lines written by hand and worked out by hand."""

    @pytest.mark.parametrize("name", NAMES)
    def test_files(self, name):
        trace, wanted = read_trace(DATA / name), BY_HAND[name]
        formats = {"v2.iolog": "iolog-2", "v3.iolog": "iolog-3"}
        assert trace.format == formats.get(name, name.partition(".")[0])
        found = columns(trace)
        rows = list(zip(*(found[c] for c in ("lbn", "size_bytes", "op")), strict=True))
        assert rows == [row[1:4] for row in wanted]
        for column, place in (("time_s", 0), ("latency_s", 4)):
            values = [row[place] for row in wanted]
            np.testing.assert_allclose(found[column], values, rtol=1e-12, atol=1e-15)

    @pytest.mark.parametrize(
        ("name", "header"),
        [
            ("alibaba.csv", "device_id,opcode,offset,length,timestamp\n"),
            ("tencent.csv", "Timestamp,Offset,Size,IOType,VolumeID\n"),
        ],
    )
    def test_a_header_of_the_fields_names_changes_nothing(self, trace, name, header):
        plain = DATA / name
        with_names = trace(header + plain.read_text())
        assert with_names.format == read_trace(plain).format
        assert without_latency(with_names).equals(without_latency(read_trace(plain)))

    def test_devices_of_cloud_traces(self):
        assert named(read_trace(DATA / "alibaba.csv"), "device") == ["7", "7", "12"]
        assert named(read_trace(DATA / "systor17.csv"), "device") == ["0", "3"]
        assert columns(read_trace(DATA / "oracle-general.bin"))["device"] == [0, 1, 0]

    def test_next_accesses_are_written_and_what_the_records_cannot_hold_is_refused(self, tmp_path):
        records, path = DATA / "oracle-general.bin", tmp_path / "t.oracleGeneral"
        assert write_trace(read_trace(records), path) == (3, 2.0)
        written, wanted = (
            list(struct.iter_unpack("<IQIq", file.read_bytes())) for file in (path, records)
        )
        assert written == [(time - 10, *rest) for time, *rest in wanted]
        (batch,) = read_trace(records).batches()
        far = batch.set_column(3, "lbn", pa.array([0, 1 << 44, 0]))
        with pytest.raises(MeasurementError, match="cannot hold an address"):
            write_trace([far], path)
        assert len(path.read_bytes()) == 72

    def test_names_of_hosts_processes_devices_and_files(self):
        msr = read_trace(DATA / "msr.csv")
        assert named(msr, "device") == ["hm_1", "hm_1", "src1_0"]
        assert named(msr, "stream") == ["hm", "hm", "src1"]
        # Known before a pass.
        assert read_trace(DATA / "msr.csv").names["stream"] == ("hm", "src1")
        # 2007-02-22 17:00:00.3061629 UTC, as the traces' documentation dates them.
        assert msr.start_unix_ns == 1172163600306162900
        spc = read_trace(DATA / "spc.spc")
        assert named(spc, "device") == ["0", "1", "0"]
        assert spc.names["stream"] == ("all",)
        assert columns(spc)["file"] == [-1, -1, -1]
        blkparse = read_trace(DATA / "blkparse.txt")
        journal, program = "kjournald-697", "my prog-701"
        assert named(blkparse, "stream") == [journal, journal, program, program, journal]
        assert named(blkparse, "device") == ["8,0"] * 3 + ["8,16", "8,0"]
        assert any("1 requests have no completion" in finding for finding in blkparse.findings)
        assert named(read_trace(DATA / "v2.iolog"), "file") == ["/data/a"] * 2 + ["/data/b"] * 2
        etw = read_trace(DATA / "etw.csv")
        assert named(etw, "stream") == ["System (4)", "diskspd.exe (4242)", "System (4)"]
        files = columns(etw)["file"]
        assert etw.names["file"][files[1]] == "C:\\data, hot\\test.dat"
        assert files[2] == -1
        assert any("2 lines of other events" in finding for finding in etw.findings)

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_msr_with_the_names_of_its_fields_above(self, trace, mark, end):
        names = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
        headed = trace(f"{mark}{names}{end}".encode() + (DATA / "msr.csv").read_bytes())
        assert headed.format == "msr"
        assert columns(headed) == columns(read_trace(DATA / "msr.csv"))

    def test_vscsi_has_response_times_in_version_2_and_other_commands_are_left_out(self, trace):
        records = [(0x2A, 512, 7, 5_000_000), (0x28, 4096, 8, 5_250_000), (0x35, 0, 0, 6_000_000)]
        read = trace(b"".join(vscsi_1(*record) for record in records))
        assert read.format == "vscsi-1"
        found = columns(read)
        assert found["time_s"] == [0.0, 0.25, 1.0]
        assert (found["op"], found["lbn"]) == ([WRITE, READ, FLUSH], [7, 8, 0])
        read = trace(vscsi_2(0x88, 512, 7, 10, 125) + vscsi_2(0x8A, 4096, 8, 20, 250))
        assert read.format == "vscsi-2"
        assert columns(read)["op"] == [READ, WRITE]
        assert columns(read)["latency_s"] == pytest.approx([125e-6, 250e-6], rel=1e-12)
        read = vscsi_1(0x28, 512, 0, 1)
        found = trace(read * 20 + vscsi_1(LOG_SENSE, 0, 0, 2) + vscsi_1(0x28, 512, 0, 3))
        assert found.to_table().num_rows == 21
        assert any("1 SCSI commands" in finding for finding in found.findings)

    def test_common_formats_of_blkparse_are_recognised_and_any_other_is_given(self, trace):
        lines = ("0.000000000 697 Q", "0.000001000 697 D", "0.000002000 0 C")
        read = trace("".join(f"{line} R 100 8\n" for line in lines))
        assert read.format == "blkparse"
        assert columns(read)["latency_s"] == pytest.approx([2e-6])
        assert any("%T.%t %p %a %d %S %n" in finding for finding in read.findings)
        text = "Q|R|100|4096|0.000000000|cat dog\nC|R|100|4096|0.000002000|0\n"
        found = columns(trace(text, format="blkparse:%a|%d|%S|%N|%T.%t|%C"))
        assert found["size_bytes"] == [4096]
        assert found["latency_s"] == pytest.approx([2e-6])
        lacks = {"%T.%t %a %d %S": "sizes", "%a %d %S %n": "%T is needed", "%T.%t %Z": "%Z"}
        for layout, said in lacks.items():
            with pytest.raises(MeasurementError, match=said):
                trace(text, format=f"blkparse:{layout}")


class TestEveryFormat:
    @pytest.mark.parametrize("name", NAMES)
    def test_packed_in_pieces_and_under_any_name(self, name, trace, monkeypatch):
        plain = read_trace(DATA / name)
        packed = trace(gzip.compress((DATA / name).read_bytes()), "trace.spc")
        assert packed.format == plain.format
        assert without_latency(packed).equals(without_latency(plain))
        for size in (7, 100):
            monkeypatch.setattr("measurements.traces.requests.BLOCK", size)
            pieces = without_latency(read_trace(DATA / name))
            assert pieces.to_pylist() == without_latency(plain).to_pylist()

    @pytest.mark.parametrize("name", NAMES)
    def test_parquet_reads_back_exactly(self, name, tmp_path):
        first = read_trace(DATA / name)
        write_trace(first, tmp_path / "t.parquet")
        again = read_trace(tmp_path / "t.parquet")
        assert again.format == "ppw"
        for a, b in zip(first.batches(), again.batches(), strict=True):
            for one, other in zip(a.columns, b.columns, strict=True):
                np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())
        assert (again.names, again.start_unix_ns) == (first.names, first.start_unix_ns)

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("ending", ["csv", "csv.gz"])
    def test_csv_reads_back(self, name, ending, tmp_path):
        first = read_trace(DATA / name)
        write_trace(first, tmp_path / f"t.{ending}")
        again = read_trace(tmp_path / f"t.{ending}")
        assert again.format == "csv"
        for one, other in zip(first.batches(), again.batches(), strict=True):
            for column in ("time_s", "lbn", "size_bytes", "op", "latency_s"):
                np.testing.assert_array_equal(one[column].to_numpy(), other[column].to_numpy())
        assert named(again, "stream") == named(first, "stream")

    def test_unknown_formats_and_others_that_are_asked_for(self, refused, tmp_path):
        with pytest.raises(MeasurementError, match=r"line 1, read as SPC.*7 fields, not the 5"):
            read_trace(DATA / "msr.csv", format="spc").to_table()
        with pytest.raises(MeasurementError, match="no trace format 'msrc': choose one of blktrac"):
            read_trace(DATA / "msr.csv", format="msrc")
        with pytest.raises(MeasurementError, match="does not use --map"):
            read_trace(DATA / "msr.csv", format="msr", mapping={"time_s": "a"})
        refused("does not look like a block trace", "Shall I compare thee to a summer's day?\n")
        refused("is empty", "")
        refused("no line is an arrival", "\n", format="blkparse")
        with pytest.raises(MeasurementError, match="cannot be read: No such file"):
            read_trace(tmp_path / "t")


class TestStream:
    def test_every_pass_is_the_same(self):
        trace = read_trace(DATA / "msr.csv", batch_requests=2)
        assert [batch.num_rows for batch in trace.batches()] == [2, 1]
        assert list(trace.batches()) == list(trace.batches())

    def test_late_requests_are_put_in_order_and_told(self, trace):
        read = trace("0,1,512,R,0.5\n0,2,512,R,0.25\n0,3,512,R,0.75\n")
        assert columns(read)["lbn"] == [2, 1, 3]
        assert columns(read)["time_s"] == [0.0, 0.25, 0.5]
        assert read.findings == ("1 requests were out of order, by up to 0.25 s; ppw sorted them",)

    def test_old_and_fine_clocks_lose_nothing(self, trace):
        # Neighbouring ticks near 1.28e17 are one double, and so are nanoseconds of the epoch.
        msr = "{},h,0,Read,0,512,1\n"
        read = trace(msr.format(128166372003061629) + msr.format(128166372003061630))
        assert columns(read)["time_s"] == [0.0, 1e-7]
        rows = "1700000000000000001,0,512,r\n1700000000000000002,0,512,r\n"
        assert columns(trace("time_ns,lbn,size_bytes,op\n" + rows))["time_s"] == [0.0, 1e-9]

    def test_too_late_for_the_window(self, refused, monkeypatch):
        monkeypatch.setattr("measurements.traces.text_lines._AT_ONCE", 64)
        monkeypatch.setattr(arrivals.InOrder.__init__, "__defaults__", (4,))
        rows = "".join(f"0,1,512,R,{n}.0\n" for n in (*range(1, 40), 0))
        refused(r"line 40.*more than 4 requests.*sort the trace", rows)


class TestMapping:
    def test_units_are_in_the_headers_that_a_map_names_or_that_people_write(self, trace):
        mapping = {"time_s": "when_ms", "offset_bytes": "at_kib", "size_bytes": "len_kib"}
        text = "when_ms;at_kib;len_kib;kind\n10;4;8;R\n16.5;8;64;w\n"
        mapped = columns(trace(text, mapping={**mapping, "op": "kind"}))
        head = "ts_us,Operation,Offset (KiB),Length (KiB),Device\n"
        for found in (mapped, columns(trace(head + "0,Read,4,8,sda\n6500,Write,8,64,sda\n"))):
            assert found["time_s"] == pytest.approx([0.0, 6.5e-3])
            assert (found["lbn"], found["size_bytes"]) == ([8, 16], [8192, 65536])
            assert found["op"] == [READ, WRITE]

    def test_known_names_need_no_map_and_come_before_those_often_used(self, trace):
        head = "time_us,lbn,blocks,op,device,latency_us,file\n"
        read = trace(head + "5,100,8,read,a,10,f\n6,1,1,TRIM,b,,\n")
        found = columns(read)
        assert (found["size_bytes"], found["op"]) == ([4096, 512], [READ, DISCARD])
        assert found["latency_s"] == pytest.approx([1e-5, np.nan], nan_ok=True)
        assert read.names["device"] == ("a", "b")
        found = columns(trace("length_kib,sector,op,lbn,time_s,size_bytes\n8,99,R,3,1,512\n"))
        assert (found["lbn"], found["size_bytes"]) == ([3], [512])

    def test_numbers_for_operations_need_their_meaning(self, trace, refused):
        text = TABLE + "0,0,512,1\n1,0,512,0\n"
        refused(r"line 2.*op is '1': say which code is a read", text)
        assert columns(trace(text, mapping={"op": "op:1/0"}))["op"] == [READ, WRITE]

    def test_parquet(self, trace, refused):
        table = {"ts": [1.0, 2.0], "lbn": [1, 2], "size_bytes": [512, 512], "rw": ["W", "R"]}
        stream = io.BytesIO()
        pq.write_table(pa.table(table), stream)
        read = trace(stream.getvalue(), mapping={"time_s": "ts", "op": "rw"})
        assert read.format == "parquet"
        assert columns(read)["op"] == [WRITE, READ]
        stream = io.BytesIO()
        pq.write_table(pa.table({**table, "lbn": [[1], [2]]}), stream)
        refused(r"lbn is \[1\], no number", stream.getvalue(), mapping={"time_s": "ts", "op": "rw"})

    def test_the_unit_of_a_mapped_size_and_its_doubt(self, trace):
        for target, header, size in (
            *(("size_bytes", h, 4000) for h in ("KB", "SizeKB", "size_kbytes")),
            *(("size_bytes", "size in KiB", 4096), ("size_bytes", "size_sectors", 2048)),
            *(("size_bytes", "len", 4), ("size_kib", "len", 4096), ("size_kib", "KB", 4096)),
            *(("size_sectors", "len", 2048), ("blocks", "len", 2048)),
        ):
            read = trace(f"time_s,lbn,op,{header}\n0,0,r,4\n1,8,r,4\n", mapping={target: header})
            assert columns(read)["size_bytes"] == [size, size]
            doubts = [said for said in read.findings if f"is column {header!r} in" in said]
            assert len(doubts) == (size % 512 > 0)
        # Half of the sizes are no doubt.
        assert trace("time_s,lbn,op,size_bytes\n0,0,r,512\n1,8,r,100\n").findings == ()

    def test_the_unit_of_a_mapped_time(self, trace):
        targets = {"time_ms": "t", "time_s": "t ms", "timestamp_ms": "t"}
        for target, header in (*targets.items(), ("time_s", "ms")):
            text = f"{header},lbn,op,size_bytes\n0,0,r,512\n1500,8,r,512\n"
            assert columns(trace(text, mapping={target: header}))["time_s"] == [0.0, 1.5]

    def test_what_a_map_says_wrong(self, trace):
        for mapping, said in (
            ({"time_us": "t ms"}, "carry different units; write time_s=t ms"),
            ({"time_s": "x (KB)"}, "the column is not in s, by its header"),
            ({"time_s": "t ms", "time_ms": "b"}, "--map names two columns for time_s"),
            ({"time": "b"}, "--map time=b: no column 'time' (did you mean 'time_s'"),
            ({"time_s": "bb"}, "column 'bb', which the table does not have (did you mean 'b'"),
            ({"time_s": "b"}, "no column is lbn or offset_bytes, size_bytes or blocks, op: name"),
            ({"op": "b:1"}, "give the codes of a read and a write"),
        ):
            with pytest.raises(MeasurementError, match=re.escape(said)):
                trace("t ms,x (KB),b\n1,2,3\n", mapping=mapping).to_table()


def requests(**given):
    """Four requests without latencies or files."""
    columns = {name: [0] * 4 for name in SCHEMA.names} | {"latency_s": [np.nan] * 4}
    columns |= {"time_s": [0.0, 1.0, 1.0, 2.5], "lbn": [8, 16, 8, 24], "file": [-1] * 4}
    columns |= {"size_bytes": [4096, 4096, 512, 8192], "op": [0, 1, 0, 0], **given}
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


class TestWriting:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "t.parquet"

    def test_numbers_without_names_are_written_as_numbers(self, path):
        write_trace(requests(device=[0, 3, 3, 0]).to_batches(), path)
        write_trace(read_trace(path), path.with_name("t.csv"))
        again = read_trace(path.with_name("t.csv"))
        assert again.names["device"] == ("0", "3")
        assert columns(again)["device"] == [0, 1, 1, 0]

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        gaps=st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=30),
        data=st.data(),
    )
    def test_any_request_survives(self, gaps, data, path):
        n = len(gaps)

        def some(values):
            return data.draw(st.lists(values, min_size=n, max_size=n))

        drawn = {
            "time_s": np.cumsum(gaps) - gaps[0],
            "lbn": some(st.integers(0, 2**40)),
            "size_bytes": some(st.integers(1, 2**40)),
            "op": some(st.integers(0, 3)),
            "latency_s": some(st.floats(0, 1e3)),
            "file": [-1] * n,
        }
        arrays = [pa.array(drawn.get(field.name, [0] * n), field.type) for field in SCHEMA]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        write_trace([batch], path)
        assert list(read_trace(path).batches()) == [batch]

    def test_columns_of_a_single_value(self, path):
        for name, values in (
            ("latency_s", [np.nan, np.nan, np.nan, np.nan]),
            ("latency_s", [np.nan, np.nan, 0.5, np.nan]),
            *(("latency_s", [0.5, np.nan, 0.5, 0.5]), ("file", [2, 2, 2, 2])),
            *(("file", [-1, -1, -1, 0]), ("stream", [7, 7, 8, 8]), ("op", [1, 1, 1, 1])),
            ("time_s", [0.0, 0.0, 0.0, 0.0]),
        ):
            table = requests(**{name: values})
            # Two chunks in the file: what one has says nothing of the other.
            write_trace(table.to_batches(max_chunksize=2), path)
            found = read_trace(path).to_table()
            for column in SCHEMA.names:
                np.testing.assert_array_equal(found[column].to_numpy(), table[column].to_numpy())

    def test_a_column_that_says_nothing_is_read(self, path):
        write_trace(requests().to_batches(), path)
        said = pq.ParquetFile(path).metadata.metadata[b"ppw.trace"]
        silent = path.with_name("silent.parquet")
        with pq.ParquetWriter(silent, SCHEMA, write_statistics=False) as writer:
            writer.write_table(requests(latency_s=[0.1, 0.2, 0.3, 0.4]))
            writer.add_key_value_metadata({b"ppw.trace": said})
        assert columns(read_trace(silent))["latency_s"] == [0.1, 0.2, 0.3, 0.4]

    def test_columns_are_required_and_what_is_missing_is_not_written(self, path):
        write_trace(requests().to_batches(), path)
        stored = pq.ParquetFile(path).schema_arrow
        assert stored.names == SCHEMA.names
        assert not any(field.nullable for field in stored)
        path.unlink()
        with pytest.raises(MeasurementError, match="device is missing in 1 requests"):
            write_trace(requests(device=[0, None, 0, 0]).to_batches(), path)
        assert not list(path.parent.iterdir())

    def test_no_such_operation_and_no_such_ending(self, path):
        write_trace(requests(op=[0, 0, 7, 0]).to_batches(), path)
        with pytest.raises(MeasurementError, match=r"row 3.*operation 7 is none of 0 \(read\)"):
            read_trace(path, format="ppw").to_table()
        with pytest.raises(MeasurementError, match=r"written as \.parquet, \.csv, \.csv\.gz or"):
            write_trace([], path.with_name("t.txt"))

    def test_no_part_of_a_file_is_left(self, trace, path):
        bad = trace((DATA / "msr.csv").read_text() + "junk\n")
        with pytest.raises(MeasurementError, match="line 4"):
            write_trace(bad, path)
        assert [p.name for p in path.parent.iterdir()] == ["trace"]


VSCSI = vscsi_1(0x28, 512, 0, 1)
FAULTS = {
    "msr junk": (MSR + "rubbish\n", "line 2, read as MSR.*: 1 fields, not the 7 of Timestamp,"),
    "msr no number": (MSR + MSR.replace("383496192", "x1"), "line 2.*Offset is 'x1', no whole"),
    "msr empty number": (MSR + MSR.replace("383496192", ""), "line 2.*Offset is '', no whole"),
    "msr truncated": (MSR + MSR[:30], "line 2.*5 fields"),
    "msr zero size": (MSR + "\n" + MSR.replace("32768", "0"), "line 3.*a read of 0 bytes"),
    "msr operation": (MSR + MSR.replace("Read", "Trim"), "line 2.*Type 'Trim' is none of read"),
    "msr far": (MSR + MSR.replace("383496192", str(2**63)), "line 2.*Offset .* is beyond 2.63"),
    "msr end is far": (MSR.replace("383496192", str(2**63 - 512)), "line 1.*ends beyond 2.63 byte"),
    "msr negative": (MSR + MSR.replace("383496192", "-512"), "line 2.*lbn -1 is negative"),
    "msr then spc": (MSR + SPC, "line 2.*5 fields, not the 7"),
    "spc then msr": (SPC + MSR, "line 2.*7 fields, not the 5"),
    "spc not a time": (SPC + SPC.replace("0.551706", "nan"), "line 2.*(Timestamp is .nan.|time)"),
    "spc far": (SPC + SPC.replace("20941264", str(2**60)), r"line 2.*ends beyond 2\^63"),
    "mqsim type": (MQSIM + MQSIM.replace(" 1\n", " 2\n"), "line 2.*type '2' is none of 1, 0"),
    "mqsim zero size": (MQSIM.replace(" 16 ", " 0 "), "line 1.*a read of 0 bytes"),
    "mqsim far": (MQSIM.replace(" 16 ", f" {2**60} "), "line 1.*beyond 2.63"),
    "blkparse junk": (BLKPARSE + "and so on\n", "line 2, read as blkparse text: no event"),
    "blkparse zero size": (BLKPARSE.replace("W ", "R ").replace("+ 8", "+ 0"), "line 1.*0 bytes"),
    "blkparse far": (BLKPARSE.replace("223490", "9" * 20), "line 1.*sector 9+ is beyond 2.63"),
    "blkparse no arrival": (BLKPARSE.replace(" Q ", " D "), "no line is an arrival"),
    "iolog junk": (IOLOG + "5 /a read\n6 what\n", "line 4.*no line of a fio iolog version 3"),
    "iolog zero size": (IOLOG + "5 /a read 0 0\n", "line 3.*a read of 0 bytes"),
    "iolog far": (IOLOG + f"5 /a read {2**64} 512\n", "line 3.*offset .* is beyond 2.63"),
    "iolog 2 in 3": (IOLOG + "/a read 0 512\n", "line 3.*no line of a fio iolog version 3"),
    "iolog wait": (IOLOG + "5 /a wait 100\n", "line 3.*version 3 has no wait"),
    "etw junk": (ETW + "12345\n", "line 12.*no event of a dumper: '12345'"),
    "etw fields": (ETW + "DiskRead, 1, 2\n", "line 12.*its fields are not those of the header"),
    "etw far": (ETW.replace("0x0000201000", "0x" + "f" * 16), "line 9.*ByteOffset .* is beyond"),
    "etw zero size": (ETW.replace("0x00002000", "0x00000000"), "line 9.*a read of 0 bytes"),
    "etw twice": (ETW.replace("ByteOffset,", "ByteOffset, ByteOffset,"), "names ByteOffset twice"),
    "table junk": (TABLE + "0,0,512,r\n1,zero,512,r\n", "line 3.*lbn is 'zero', no number"),
    "table fields": (TABLE + "0,0,512,r\n1,0\n", "line 3.*2 fields, not the 4"),
    "table empty": (TABLE + "0,0,512,r\n,0,512,r\n", "line 3.*time_s is empty"),
    "table zero size": (TABLE + "0,0,0,r\n", "line 2.*a read of 0 bytes"),
    "table far": (TABLE + f"0,{2**62},512,r\n", "line 2.*lbn .* is beyond 2.63 bytes"),
    "table operation": (TABLE + "0,0,512,copy\n", "line 2.*op is 'copy', which is no operation"),
    "table not a time": (TABLE + "inf,0,512,r\n", "line 2.*its time is no number"),
    "table no request": (TABLE + "\n", "holds no request"),
    "vscsi truncated": (VSCSI * 3 + b"x" * 20, "record 4 is cut short, 20 of 3"),
    "vscsi zero size": (vscsi_1(0x28, 0, 0, 1), "record 1.*a read of 0 bytes"),
    "vscsi far": (vscsi_1(0x28, 512, 2**60, 1), "record 1.*ends beyond 2.63 bytes"),
    "vscsi mixed": (VSCSI * 20 + vscsi_1(0x28, 512, 0, 1, 0x200), "record 21.*version is 2, not 1"),
    "vscsi time": (vscsi_1(0x28, 512, 0, 2**63), "record 1.*its time .* is beyond 2.63"),
    "blktrace truncated": (blktrace() * 2 + blktrace()[:20], "record 3 is cut short, 20 bytes"),
    "blktrace junk": (blktrace() * 2 + b"?" * 100, "record 3.*is not the start of a record"),
    "blktrace zero size": (blktrace(size=0), "record 1.*a read of 0 bytes"),
    "blktrace far": (blktrace(sector=2**63), "record 1.*ends beyond 2.63 bytes"),
    "blktrace no arrival": (blktrace(action=(1 << 16) | 7), "is an arrival"),
    "blktrace version": (b"\x08tae" + blktrace()[4:], "its records have blktrace version 8"),
    "gzip and more": (gzip.compress(MSR.encode()) + b"more", "broken gzip"),
    "gzip": (b"\x1f\x8b\x08\x00rubbish", "broken gzip"),
    "gzip cut short": (gzip.compress(MSR.encode() * 20_000)[:-50], "broken gzip.*copy it again"),
    "parquet": (b"PAR1 rubbish PAR1", "is no whole Parquet file"),
    "no end of a line": (MSR + "9" * 100_000, "line 2"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_and_located(fault, refused):
    content, said = FAULTS[fault]
    refused(said, content)


class TestPlainLines:
    """The compiled parser against Arrow's, with lines among them that it leaves to it."""

    @pytest.fixture
    def read(self, trace, monkeypatch):
        def read(content, compiled, block=None):
            with monkeypatch.context() as patched:
                place = "measurements.traces.text_lines._is_worth_compiling"
                patched.setattr(place, lambda path: compiled)
                if block:
                    patched.setattr("measurements.traces.requests.BLOCK", block)
                try:
                    table = without_latency(trace(content, format="msr"))
                except MeasurementError as error:
                    return str(error)
                return table.to_pylist(), table.schema.metadata

        return read

    @staticmethod
    def lines(number):
        line = "128166372003061629,hm{},{},{},{},4096,113736\n"
        ways = ("Read", "Write")
        return [line.format(n % 3, n % 3, ways[n % 2], 512 * n) for n in range(number)]

    def test_odd_lines(self, read):
        plain = self.lines(500)
        for odd in (
            *("", "\n", "1,host,0,Read,-512,512,1\n", "1,a b,1,write,0,512,1\r\n"),
            *("1,,1,write,0,512,1\n", f"1,{'h' * 70},1,Write,0,512,1\n"),
            *("1,host,0,Read,512,512\n", "1,host,0,Read,512,512,1,1\n", "1,host,0,Read,512,x,1\n"),
            *(f"1,host,0,Read,{2**63},512,1\n", "1,host,0,Trim,512,512,1\n"),
        ):
            for end in ("\n", ""):
                text = "".join([*plain[:250], odd, *plain[250:]]).rstrip("\n") + end
                arrow = read(text, False)
                assert read(text, True) == arrow
                assert read(text, True, block=1000) == arrow

    @pytest.mark.parametrize("seed", range(40))
    def test_damaged_lines(self, seed, read):
        rng = random.Random(seed)
        text = bytearray("".join(self.lines(40)).encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            piece = rng.choice([b"", b",", b"\n", b"7", b"-", b"\xff", b"\r"])
            text[at : at + rng.randrange(3)] = piece
        assert read(bytes(text), True) == read(bytes(text), False)


@pytest.mark.thirdparty
class TestMeasured:
    def test_cloudphysics_first_hour(self, data_dir):
        trace = read_trace(data_dir / "block-traces/raw/cloudPhysicsIO_first_hour.vscsi")
        table = trace.to_table()
        assert trace.format == "vscsi-1"
        assert table.num_rows == 55_918
        assert table["time_s"][-1].as_py() == pytest.approx(3600, abs=2)

    @pytest.mark.parametrize(
        ("name", "requests", "seconds", "devices"),
        [("tpcc-small.trace", 6_999, 0.137, 16), ("wsrch-small.trace", 24_783, 60.06, 6)],
    )
    def test_mqsim(self, data_dir, name, requests, seconds, devices):
        trace = read_trace(data_dir / "block-traces" / "raw" / name)
        table = trace.to_table()
        assert table.num_rows == requests
        assert table["time_s"][-1].as_py() == pytest.approx(seconds, rel=0.01)
        reads = np.mean(np.asarray(table["op"]) == READ)
        assert (reads > 0.99) == (name == "wsrch-small.trace")
        assert table["device"].combine_chunks().unique().to_pylist() == list(range(devices))
        assert len(trace.names["device"]) == devices
