"""blktrace's binary files against blkparse and btt, and records made by hand."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.traces import read_trace
from measurements.traces.blktrace import BIG, LITTLE, MAGIC

if TYPE_CHECKING:
    from pathlib import Path

READ, WRITE, DISCARD, NOTIFY = 1 << 16, 1 << 17, 1 << 29, 1 << 26
QUEUE, MERGE, ISSUE, COMPLETE, UNPLUG = 1, 2, 7, 8, 10


def record(
    time: int,
    action: int,
    sector: int = 0,
    size: int = 4096,
    *,
    pid: int = 1,
    payload: bytes = b"",
    layout: np.dtype[np.void] = LITTLE,
) -> bytes:
    made = np.zeros(1, layout)
    made["magic"], made["time"], made["sector"], made["bytes"] = MAGIC, time, sector, size
    made["action"], made["pid"], made["device"] = action, pid, (8 << 20) | 16
    made["payload"] = len(payload)
    return made.tobytes() + payload


def events(layout: np.dtype[np.void]) -> bytes:
    """A process's note, the wall clock, and requests with payloads of odd lengths between them."""
    wall = np.array([1_700_000_000, 500], layout["magic"]).tobytes()
    # Text that looks like a record.
    message = np.array([MAGIC] * 5, layout["magic"]).tobytes() + b"?"
    return b"".join(
        [
            record(100, NOTIFY | 0, pid=7, payload=b"sort".ljust(16, b"\0"), layout=layout),
            record(100, NOTIFY | 1, payload=wall, layout=layout),
            record(1000, READ | QUEUE, 64, pid=7, layout=layout),
            record(1500, NOTIFY | 2, payload=message, layout=layout),
            record(2000, WRITE | QUEUE, 128, 512, pid=9, layout=layout),
            record(2100, UNPLUG | READ, payload=b"\0" * 8, layout=layout),
            record(3000, READ | COMPLETE, 64, layout=layout),
            record(4500, WRITE | COMPLETE, 128, 512, layout=layout),
            record(5000, DISCARD | WRITE | QUEUE, 0, 1 << 20, layout=layout),
        ]
    )


@pytest.fixture(params=["little", "big"])
def layout(request: pytest.FixtureRequest) -> np.dtype[np.void]:
    return LITTLE if request.param == "little" else BIG


class TestByHand:
    def test_both_byte_orders(self, layout: np.dtype[np.void], tmp_path: Path) -> None:
        path = tmp_path / "t.bin"
        path.write_bytes(events(layout))
        trace = read_trace(path)
        found = trace.to_table().to_pydict()
        assert trace.format == "blktrace"
        assert found["time_s"] == pytest.approx([0.0, 1e-6, 4e-6])
        assert found["lbn"] == [64, 128, 0]
        assert found["op"] == [0, 1, 2]
        assert found["latency_s"][:2] == pytest.approx([2e-6, 2.5e-6])
        assert [trace.names["stream"][code] for code in found["stream"]] == [
            "sort-7",
            "process-9",
            "process-1",
        ]
        assert trace.names["device"] == ("8,16",)
        assert trace.start_unix_ns == 1_700_000_000_000_000_500 - 100 + 1000

    @pytest.mark.parametrize("size", [49, 64, 100, 1000])
    def test_records_cut_by_blocks(
        self,
        size: int,
        layout: np.dtype[np.void],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path = tmp_path / "t.bin"
        path.write_bytes(events(layout))
        whole = read_trace(path).to_table()["lbn"]
        monkeypatch.setattr("measurements.traces.blktrace._AT_ONCE", size)
        assert read_trace(path).to_table()["lbn"].to_pylist() == whole.to_pylist()

    def test_files_of_all_cpus_by_any_name(self, tmp_path: Path) -> None:
        (tmp_path / "sda.blktrace.0").write_bytes(
            record(10, READ | QUEUE, 8) + record(40, READ | QUEUE, 16)
        )
        (tmp_path / "sda.blktrace.1").write_bytes(b"")
        (tmp_path / "sda.blktrace.10").write_bytes(
            record(20, READ | COMPLETE, 8) + record(30, READ | QUEUE, 24)
        )
        tables = [
            read_trace(name).to_table()
            for name in (tmp_path, tmp_path / "sda", tmp_path / "sda.blktrace.10")
        ]
        for table in tables:
            assert table["lbn"].to_pylist() == [8, 24, 16]
            assert table["latency_s"][0].as_py() == pytest.approx(10e-9)

    def test_a_payload_longer_than_the_rest_is_cut_short(self, tmp_path: Path) -> None:
        path = tmp_path / "t.bin"
        path.write_bytes(events(LITTLE) + record(1, NOTIFY | 2, payload=b"x" * 50)[:-1])
        with pytest.raises(ValueError, match="record 10 is cut short, 97 bytes are left"):
            read_trace(path).to_table()


def slow_latency(rows: list[tuple[int, bool, int, int]]) -> list[float]:
    """Of each arrival, by looking at every later completion."""
    found = []
    for time, arrival, begin, blocks in rows:
        if arrival:
            last = begin + blocks - 1
            ends = [t for t, a, b, n in rows if not a and t >= time and b <= last < b + n]
            found.append((min(ends) - time) / 1e9 if ends else float("nan"))
    return found


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 12), st.integers(1, 6)),
        min_size=1,
        max_size=40,
    ).filter(lambda rows: any(arrival for _, arrival, _, _ in rows))
)
def test_latency_is_that_of_a_plain_search(
    rows: list[tuple[int, bool, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    path = tmp_path_factory.mktemp("pairs") / "t.bin"
    path.write_bytes(
        b"".join(
            record(time, READ | (QUEUE if arrival else COMPLETE), begin, blocks * 512)
            for time, arrival, begin, blocks in rows
        )
    )
    found = read_trace(path).to_table()["latency_s"].to_numpy()
    np.testing.assert_allclose(found, slow_latency(rows), atol=1e-15)


class TestBlkparse:
    """The programs of the blktrace package on a recorded trace of a virtual disk."""

    def parsed(self, folder: Path) -> list[tuple[int, int, int]]:
        """Time (ns), sector and size (blocks) of every arrival, as blkparse prints them."""
        text = subprocess.run(
            ["blkparse", "-q", "-i", "vda", "-f", "%T %t %a %S %n\\n", "-a", "queue"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rows = (line.split() for line in text.splitlines() if re.match(r"\d+ \d+ Q ", line))
        return [(int(s) * 10**9 + int(ns), int(lbn), int(n)) for s, ns, _, lbn, n in rows]

    @pytest.mark.thirdparty
    def test_arrivals_are_those_that_blkparse_prints(self, data_dir: Path) -> None:
        folder = data_dir.parent / "samples" / "blktrace"
        table = read_trace(folder / "vda").to_table()
        wanted = [row for row in self.parsed(folder) if row[2]]
        moved = table.filter(pa.compute.field("size_bytes") > 0)
        assert moved["lbn"].to_pylist() == [lbn for _, lbn, _ in wanted]
        assert moved["size_bytes"].to_pylist() == [n * 512 for _, _, n in wanted]
        times = np.array([time for time, _, _ in wanted])
        np.testing.assert_allclose(moved["time_s"].to_numpy(), (times - times[0]) / 1e9, atol=1e-12)

    @pytest.mark.thirdparty
    def test_latency_is_btts(self, data_dir: Path, tmp_path: Path) -> None:
        folder = data_dir.parent / "samples" / "blktrace"
        merged = tmp_path / "vda.bin"
        subprocess.run(
            ["blkparse", "-q", "-O", "-i", "vda", "-d", str(merged)],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        said = subprocess.run(
            ["btt", "-i", str(merged)], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        match = re.search(r"^Q2Cdm +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$", said, re.MULTILINE)
        assert match is not None
        for trace in (read_trace(merged), read_trace(folder / "vda")):
            latency = trace.to_table()["latency_s"].to_numpy()
            found = [latency.min(), latency.mean(), latency.max()]
            np.testing.assert_allclose(found, [float(match[n]) for n in (1, 2, 3)], atol=2e-9)
            assert len(latency) == int(match[4])

    @pytest.mark.thirdparty
    def test_text_and_binary_agree(self, data_dir: Path) -> None:
        folder = data_dir.parent / "samples" / "blktrace"
        text = read_trace(folder / "blkparse_vda_randrw.txt").to_table()
        binary = read_trace(folder / "vda").to_table().slice(0, text.num_rows)
        for column in ("time_s", "lbn", "size_bytes", "op", "stream"):
            np.testing.assert_array_equal(text[column].to_numpy(), binary[column].to_numpy())
