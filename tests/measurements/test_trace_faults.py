"""What no reader takes: named, located, and nothing but a MeasurementError."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.errors import MeasurementError
from measurements.traces import arrivals, read_trace, write_trace
from measurements.traces.blktrace import LITTLE, MAGIC

DATA = Path(__file__).parent / "data" / "traces"

MSR = "128166372003061629,hm,1,Read,383496192,32768,113736\n"
SPC = "0,20941264,8192,W,0.551706\n"
MQSIM = "11413000 0 657728 16 1\n"
BLKPARSE = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n"
IOLOG = "fio version 3 iolog\n1 /a add\n"
TABLE = "time_s,lbn,size_bytes,op\n"
ETW = (DATA / "etw.csv").read_text()


def vscsi(command: int, length: int, lbn: int, time: int, version: int = 0x100) -> bytes:
    return struct.pack("<IIIHHQQ", 1, length, 1, command, version, lbn, time)


def blktrace(sector: int = 8, size: int = 4096, action: int = (1 << 16) | 1) -> bytes:
    record = np.zeros(1, LITTLE)
    record["magic"], record["sector"] = MAGIC, sector
    record["bytes"], record["action"] = size, action
    return record.tobytes()


FAULTS = {
    "msr junk": (MSR + "rubbish\n", "line 2, read as MSR.*: 1 fields, not the 7 of Timestamp,"),
    "msr no number": (MSR + MSR.replace("383496192", "x1"), "line 2.*Offset is 'x1', no whole"),
    "msr empty number": (MSR + MSR.replace("383496192", ""), "line 2.*Offset is '', no whole"),
    "msr truncated": (MSR + MSR[:30], "line 2.*5 fields"),
    "msr zero size": (MSR + "\n" + MSR.replace("32768", "0"), "line 3.*a read of 0 bytes"),
    "msr operation": (MSR + MSR.replace("Read", "Trim"), "line 2.*Type 'Trim' is none of read"),
    "msr far": (MSR + MSR.replace("383496192", str(2**63)), "line 2.*Offset .* is beyond 2.63"),
    "msr end is far": (
        MSR.replace("383496192", str(2**63 - 512)),
        r"line 1.*ends beyond 2\^63 bytes",
    ),
    "msr negative": (MSR + MSR.replace("383496192", "-512"), "line 2.*lbn -1 is negative"),
    "msr then spc": (MSR + SPC, "line 2.*5 fields, not the 7"),
    "spc then msr": (SPC + MSR, "line 2.*7 fields, not the 5"),
    "spc not a time": (
        SPC + SPC.replace("0.551706", "nan"),
        "line 2.*Timestamp is 'nan', no n|time",
    ),
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
    "etw names a column twice": (
        ETW.replace("ByteOffset,", "ByteOffset, ByteOffset,"),
        "its header names ByteOffset twice",
    ),
    "table junk": (TABLE + "0,0,512,r\n1,zero,512,r\n", "line 3.*lbn is 'zero', no number"),
    "table fields": (TABLE + "0,0,512,r\n1,0\n", "line 3.*2 fields, not the 4"),
    "table empty": (TABLE + "0,0,512,r\n,0,512,r\n", "line 3.*time_s is empty"),
    "table zero size": (TABLE + "0,0,0,r\n", "line 2.*a read of 0 bytes"),
    "table far": (TABLE + f"0,{2**62},512,r\n", "line 2.*lbn .* is beyond 2.63 bytes"),
    "table operation": (TABLE + "0,0,512,copy\n", "line 2.*op is 'copy', which is no operation"),
    "table not a time": (TABLE + "inf,0,512,r\n", "line 2.*its time is no number"),
    "table no request": (TABLE + "\n", "holds no request"),
    "vscsi truncated": (vscsi(0x28, 512, 0, 1) * 3 + b"x" * 20, "record 4 is cut short, 20 of 32"),
    "vscsi zero size": (vscsi(0x28, 0, 0, 1), "record 1.*a read of 0 bytes"),
    "vscsi far": (vscsi(0x28, 512, 2**60, 1), "record 1.*ends beyond 2.63 bytes"),
    "vscsi mixed": (
        vscsi(0x28, 512, 0, 1) * 20 + vscsi(0x28, 512, 0, 1, 0x200),
        "record 21.*its version is 2, not 1",
    ),
    "vscsi time": (vscsi(0x28, 512, 0, 2**63), "record 1.*its time .* is beyond 2.63"),
    "blktrace truncated": (blktrace() * 2 + blktrace()[:20], "record 3 is cut short, 20 bytes"),
    "blktrace junk": (blktrace() * 2 + b"?" * 100, "record 3.*does not begin as a record"),
    "blktrace zero size": (blktrace(size=0), "record 1.*a read of 0 bytes"),
    "blktrace far": (blktrace(sector=2**63), "record 1.*ends beyond 2.63 bytes"),
    "blktrace no arrival": (blktrace(action=(1 << 16) | 7), "none is an arrival"),
    "blktrace version": (b"\x08tae" + blktrace()[4:], "of version 8 of blktrace's records"),
    "gzip": (b"\x1f\x8b\x08\x00rubbish", "broken gzip"),
    "parquet": (b"PAR1 rubbish PAR1", "is no whole Parquet file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_named_and_located(fault: str, tmp_path: Path) -> None:
    content, said = FAULTS[fault]
    path = tmp_path / "trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(MeasurementError, match=said) as raised:
        read_trace(path).to_table()
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_too_late_for_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measurements.traces.fields._AT_ONCE", 64)
    monkeypatch.setattr(arrivals.InOrder.__init__, "__defaults__", (4,))
    path = tmp_path / "t.spc"
    path.write_text("".join(f"0,1,512,R,{n}.0\n" for n in (*range(1, 40), 0)))
    with pytest.raises(MeasurementError, match=r"line 40.*more than 4 requests.*sort the trace"):
        read_trace(path).to_table()


def test_no_such_operation(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = read_trace(DATA / "msr.csv").to_table()
    codes = table["op"].to_numpy().copy()
    codes[2] = 7
    write_trace([table.set_column(5, "op", pa.array(codes)).to_batches()[0]], path)
    with pytest.raises(MeasurementError, match=r"row 3.*operation 7 is none of 0 \(read\)"):
        read_trace(path, format="ppw").to_table()


def test_gzip_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    rows = "".join(MSR.replace("383496192", str(512 * n)) for n in range(200_000))
    path.write_bytes(gzip.compress(rows.encode())[:-5000])
    with pytest.raises(MeasurementError, match=r"broken gzip.*copy it again"):
        read_trace(path).to_table()


def test_a_line_without_end(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(MSR + "9" * 100_000)
    with pytest.raises(MeasurementError, match="line 2"):
        read_trace(path).to_table()


def _survives(path: Path, content: bytes, format: str | None = None) -> bool:
    """Read it; whether it is a trace. Nothing but a MeasurementError may come of it."""
    path.write_bytes(content)
    try:
        table = read_trace(path, format=format).to_table()
    except MeasurementError as error:
        said = str(error)
    else:
        said = ""
        assert np.all(np.diff(table["time_s"].to_numpy()) >= 0)
    assert "\n" not in said
    return not said


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "trace"


@given(content=st.binary(max_size=400))
def test_any_bytes(content: bytes, scratch: Path) -> None:
    _survives(scratch, content)


@given(
    content=st.text(st.sampled_from("0123456789,. \t\n-+eRWreadQC[]():/xX\"';"), max_size=300),
    format=st.sampled_from(["msr", "spc", "blkparse", "iolog-2", "iolog-3", "mqsim", "csv"]),
)
def test_any_text_of_any_format(content: str, format: str, scratch: Path) -> None:
    _survives(scratch, content.encode(), format)


@pytest.mark.parametrize("name", [p.name for p in sorted(DATA.iterdir())])
@pytest.mark.parametrize("size", [7, 100])
def test_blocks_change_nothing(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / name
    whole = read_trace(path).to_table().drop_columns("latency_s").to_pylist()
    monkeypatch.setattr("measurements.traces.source.BLOCK", size)
    pieces = read_trace(path).to_table().drop_columns("latency_s").to_pylist()
    assert pieces == whole
