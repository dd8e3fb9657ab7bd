"""Traces as tables: foreign columns by name and --map, and what ppw writes itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.errors import MeasurementError
from measurements.traces import read_trace, write_trace
from measurements.traces.requests import SCHEMA

DATA = Path(__file__).parent / "data" / "traces"


def _four() -> pa.Table:
    """Four requests without latencies or files."""
    values: dict[str, list[float]] = {
        "time_s": [0.0, 1.0, 1.0, 2.5],
        "lbn": [8, 16, 8, 24],
        "size_bytes": [4096, 4096, 512, 8192],
        "op": [0, 1, 0, 0],
    }
    missing = {"latency_s": np.nan, "file": -1}
    columns = {n: values.get(n, [missing.get(n, 0)] * 4) for n in SCHEMA.names}
    return pa.table({n: np.array(v) for n, v in columns.items()}).cast(SCHEMA)


def _with(table: pa.Table, name: str, values: list[float]) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = SCHEMA.field(name)
    return table.set_column(at, field, pa.array(np.array(values), field.type, safe=False))


class TestMapping:
    def test_units_are_in_the_headers(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("when_ms;at_kib;len_kib;kind\n10;4;8;R\n12.5;8;4;w\n")
        mapping = {
            "time_s": "when_ms",
            "offset_bytes": "at_kib",
            "size_bytes": "len_kib",
            "op": "kind",
        }
        found = read_trace(path, mapping=mapping).to_table().to_pydict()
        assert found["time_s"] == pytest.approx([0.0, 2.5e-3])
        assert found["lbn"] == [8, 16]
        assert found["size_bytes"] == [8192, 4096]
        assert found["op"] == [0, 1]

    def test_known_names_need_no_map(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text(
            "time_us,lbn,blocks,op,device,latency_us,file\n5,100,8,read,a,10,f\n6,1,1,TRIM,b,,\n"
        )
        trace = read_trace(path)
        found = trace.to_table().to_pydict()
        assert found["size_bytes"] == [4096, 512]
        assert found["op"] == [0, 2]
        assert found["latency_s"][0] == pytest.approx(1e-5)
        assert np.isnan(found["latency_s"][1])
        assert trace.names["device"] == ("a", "b")

    def test_nanoseconds_of_the_epoch_lose_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text(
            "time_ns,lbn,size_bytes,op\n1700000000000000001,0,512,r\n1700000000000000002,0,512,r\n"
        )
        assert read_trace(path).to_table()["time_s"].to_pylist() == [0.0, 1e-9]

    def test_numbers_for_operations_need_their_meaning(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("time_s,lbn,size_bytes,op\n0,0,512,1\n1,0,512,0\n")
        with pytest.raises(MeasurementError, match=r"line 2.*op is '1': say which code is a read"):
            read_trace(path).to_table()
        found = read_trace(path, mapping={"op": "op:1/0"}).to_table()
        assert found["op"].to_pylist() == [0, 1]

    def test_headers_that_people_write_are_known_by_their_units(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        rows = ["ts_us,Operation,Offset (KiB),Length (KiB),Device", "0,Read,8,4,sda"]
        path.write_text("\n".join([*rows, "6500,Write,4,64,sda", ""]))
        found = read_trace(path).to_table()
        assert found["time_s"].to_pylist() == [0.0, 0.0065]
        assert found["lbn"].to_pylist() == [16, 8]
        assert found["size_bytes"].to_pylist() == [4096, 65536]
        assert found["op"].to_pylist() == [0, 1]

    def test_a_column_by_its_own_name_comes_before_one_often_called_so(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text("length_kib,sector,op,lbn,time_s,size_bytes\n8,99,R,3,1,512\n")
        found = read_trace(path).to_table()
        assert (found["lbn"].to_pylist(), found["size_bytes"].to_pylist()) == ([3], [512])

    def test_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        table = {"ts": [1.0, 2.0], "lbn": [1, 2], "size_bytes": [512, 512], "rw": ["W", "R"]}
        pq.write_table(pa.table(table), path)
        trace = read_trace(path, mapping={"time_s": "ts", "op": "rw"})
        assert trace.format == "parquet"
        assert trace.to_table()["op"].to_pylist() == [1, 0]

    @pytest.mark.parametrize(
        ("target", "header", "size"),
        [
            ("size_bytes", "KB", 4000),
            ("size_bytes", "Size KB", 4000),
            ("size_bytes", "SizeKB", 4000),
            ("size_bytes", "size_kbytes", 4000),
            ("size_bytes", "size in KiB", 4096),
            ("size_bytes", "size_sectors", 2048),
            ("size_bytes", "len", 4),
            ("size_kib", "len", 4096),
            ("size_kib", "KB", 4096),
            ("size_sectors", "len", 2048),
            ("blocks", "len", 2048),
        ],
    )
    def test_the_unit_of_a_mapped_size(
        self, target: str, header: str, size: int, tmp_path: Path
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text(f"time_s,lbn,op,{header}\n0,0,r,4\n1,8,r,4\n")
        trace = read_trace(path, mapping={target: header})
        assert trace.to_table()["size_bytes"].to_pylist() == [size, size]
        doubts = [said for said in trace.findings if f"is column {header!r} in" in said]
        assert len(doubts) == (size % 512 > 0)

    @pytest.mark.parametrize(
        ("target", "header"),
        [("time_ms", "t"), ("time_s", "t ms"), ("time_s", "ms"), ("timestamp_ms", "t")],
    )
    def test_the_unit_of_a_mapped_time(self, target: str, header: str, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text(f"{header},lbn,op,size_bytes\n0,0,r,512\n1500,8,r,512\n")
        found = read_trace(path, mapping={target: header}).to_table()
        assert found["time_s"].to_pylist() == [0.0, 1.5]

    def test_half_of_the_sizes_inside_a_block_are_no_doubt(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("time_s,lbn,op,size_bytes\n0,0,r,512\n1,8,r,100\n")
        assert read_trace(path).findings == ()

    @pytest.mark.parametrize(
        ("mapping", "said"),
        [
            ({"time_us": "t ms"}, "carry different units; write time_s=t ms"),
            ({"time_s": "size (KB)"}, "the column is not in s, by its header"),
            ({"time_s": "t ms", "time_ms": "b"}, "--map names two columns for time_s"),
        ],
    )
    def test_units_that_contradict_each_other(
        self, mapping: dict[str, str], said: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text("t ms,size (KB),b\n1,2,3\n")
        with pytest.raises(MeasurementError, match=re.escape(said)):
            read_trace(path, mapping=mapping).to_table()

    @pytest.mark.parametrize(
        ("mapping", "said"),
        [
            ({"time": "a"}, r"--map time=a: no column 'time' \(did you mean 'time_s'"),
            ({"time_s": "aa"}, r"column 'aa', which is not there \(did you mean 'a'"),
            (
                {"time_s": "a"},
                "no column is lbn or offset_bytes, size_bytes or blocks, op: name them with --map",
            ),
            ({"op": "a:1"}, "give the codes of a read and a write"),
        ],
    )
    def test_what_a_map_says_wrong(
        self, mapping: dict[str, str], said: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text("a,b,c\n1,2,3\n")
        with pytest.raises(MeasurementError, match=said):
            read_trace(path, mapping=mapping).to_table()

    def test_a_map_for_another_format(self) -> None:
        with pytest.raises(MeasurementError, match="--map means nothing"):
            read_trace(DATA / "msr.csv", format="msr", mapping={"time_s": "a"})


class TestOwn:
    @pytest.mark.parametrize("name", [p.name for p in sorted(DATA.iterdir())])
    def test_parquet_reads_back_exactly(self, name: str, tmp_path: Path) -> None:
        first = read_trace(DATA / name)
        write_trace(first, tmp_path / "t.parquet")
        again = read_trace(tmp_path / "t.parquet")
        assert again.format == "ppw"
        for a, b in zip(first.batches(), again.batches(), strict=True):
            for one, other in zip(a.columns, b.columns, strict=True):
                np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())
        assert again.names == first.names
        assert again.start_unix_ns == first.start_unix_ns

    @pytest.mark.parametrize("name", [p.name for p in sorted(DATA.iterdir())])
    @pytest.mark.parametrize("ending", ["csv", "csv.gz"])
    def test_csv_reads_back(self, name: str, ending: str, tmp_path: Path) -> None:
        first = read_trace(DATA / name)
        write_trace(first, tmp_path / f"t.{ending}")
        again = read_trace(tmp_path / f"t.{ending}")
        assert again.format == "csv"
        for one, other in zip(first.batches(), again.batches(), strict=True):
            for column in ("time_s", "lbn", "size_bytes", "op", "latency_s"):
                np.testing.assert_array_equal(one[column].to_numpy(), other[column].to_numpy())
        said = [first.names["stream"][i] for i in first.to_table()["stream"].to_pylist()]
        found = [again.names["stream"][i] for i in again.to_table()["stream"].to_pylist()]
        assert found == said

    def test_batches_without_names(self, tmp_path: Path) -> None:
        batches = list(read_trace(DATA / "msr.csv").batches())
        write_trace(batches, tmp_path / "t.parquet")
        assert list(read_trace(tmp_path / "t.parquet").batches()) == batches

    def test_numbers_without_names_are_written_as_numbers(self, tmp_path: Path) -> None:
        table = read_trace(DATA / "msr.csv").to_table().slice(0, 2)
        at = table.schema.get_field_index("device")
        table = table.set_column(at, SCHEMA.field(at), [pa.array([0, 3], pa.int32())])
        write_trace(table.to_batches(), tmp_path / "t.parquet")
        write_trace(read_trace(tmp_path / "t.parquet"), tmp_path / "t.csv")
        again = read_trace(tmp_path / "t.csv")
        assert again.names["device"] == ("0", "3")
        assert again.to_table()["device"].to_pylist() == [0, 1]

    @given(
        gaps=st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=30),
        data=st.data(),
    )
    def test_any_request_survives(
        self, gaps: list[float], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.mktemp("own") / "t.parquet"
        n = len(gaps)
        draw = data.draw
        ints = st.lists(st.integers(0, 2**40), min_size=n, max_size=n)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(np.cumsum(gaps) - gaps[0]),
                pa.array([0] * n, pa.int32()),
                pa.array([0] * n, pa.int32()),
                pa.array(draw(ints), pa.int64()),
                pa.array([1 + size for size in draw(ints)], pa.int64()),
                pa.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), pa.uint8()),
                pa.array(draw(st.lists(st.floats(0, 1e3), min_size=n, max_size=n)), pa.float64()),
                pa.array([-1] * n, pa.int32()),
            ],
            schema=SCHEMA,
        )
        write_trace([batch], path)
        assert list(read_trace(path).batches()) == [batch]

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("latency_s", [np.nan, np.nan, np.nan, np.nan]),
            ("latency_s", [np.nan, np.nan, 0.5, np.nan]),
            ("latency_s", [0.5, np.nan, 0.5, 0.5]),
            ("file", [-1, -1, -1, -1]),
            ("file", [2, 2, 2, 2]),
            ("file", [-1, -1, -1, 0]),
            ("stream", [7, 7, 8, 8]),
            ("op", [1, 1, 1, 1]),
            ("time_s", [0.0, 0.0, 0.0, 0.0]),
        ],
    )
    def test_columns_of_a_single_value(
        self, name: str, values: list[float], tmp_path: Path
    ) -> None:
        table = _with(_four(), name, values)
        # Two chunks in the file: what one has says nothing of the other.
        write_trace(table.to_batches(max_chunksize=2), tmp_path / "t.parquet")
        found = read_trace(tmp_path / "t.parquet").to_table()
        for column in SCHEMA.names:
            np.testing.assert_array_equal(found[column].to_numpy(), table[column].to_numpy())

    def test_a_column_that_says_nothing_is_read(self, tmp_path: Path) -> None:
        write_trace(_four().to_batches(), tmp_path / "t.parquet")
        stored = pq.ParquetFile(tmp_path / "t.parquet")
        silent = _with(stored.read(), "latency_s", [0.1, 0.2, 0.3, 0.4])
        with pq.ParquetWriter(tmp_path / "u.parquet", SCHEMA, write_statistics=False) as writer:
            writer.write_table(silent.cast(SCHEMA))
            said = stored.metadata.metadata
            writer.add_key_value_metadata({b"ppw.trace": said[b"ppw.trace"]})
        found = read_trace(tmp_path / "u.parquet").to_table()
        assert found["latency_s"].to_pylist() == [0.1, 0.2, 0.3, 0.4]

    def test_columns_are_required(self, tmp_path: Path) -> None:
        write_trace(_four().to_batches(), tmp_path / "t.parquet")
        stored = pq.ParquetFile(tmp_path / "t.parquet").schema_arrow
        assert stored.names == SCHEMA.names
        assert not any(field.nullable for field in stored)

    def test_what_is_missing_is_not_written(self, tmp_path: Path) -> None:
        table = _four()
        at = table.schema.get_field_index("device")
        table = table.set_column(at, SCHEMA.field(at), [pa.array([0, None, 0, 0], pa.int32())])
        with pytest.raises(MeasurementError, match="device is missing in 1 requests"):
            write_trace(table.to_batches(), tmp_path / "t.parquet")
        assert not list(tmp_path.iterdir())

    def test_other_endings(self, tmp_path: Path) -> None:
        with pytest.raises(MeasurementError, match=r"written as \.parquet, \.csv or \.csv\.gz"):
            write_trace([], tmp_path / "t.txt")

    def test_no_part_of_a_file_is_left(self, tmp_path: Path) -> None:
        (tmp_path / "bad.csv").write_text((DATA / "msr.csv").read_text() + "junk\n")
        with pytest.raises(MeasurementError, match="line 4"):
            write_trace(read_trace(tmp_path / "bad.csv"), tmp_path / "t.parquet")
        assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]
