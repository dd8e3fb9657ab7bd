"""The clock of a log on another host, by the runs of a sweep that it shows."""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from measurements.power.protocol import Channel
from measurements.run_rows import session_rows
from measurements.sampler import HEADER
from measurements.session import Session

ROOT = Path(__file__).resolve().parents[2]
RUNS = [(100.0, 130.0), (145.0, 190.0), (250.0, 265.0)]
LABEL = "log:pdu"


def made(folder: Path, offset_s: float, quantity: str, runs: int = 3) -> Session:
    """Sweep with the rows of a log that is early by ``offset_s``: 100 W idle, 300 W in runs."""
    at = np.arange(60.0, 300.0, 0.5)
    busy = np.any([(at >= start) & (at < end) for start, end in RUNS[:runs]], axis=0)
    watts = 100.0 + 200.0 * busy + np.random.default_rng(3).normal(0, 4, len(at))
    window = 0.5 if quantity == "power" else 0.0
    channel = Channel(LABEL, quantity, "wall", window_s=window, other_clock=True)  # type: ignore[arg-type]
    plan: dict[str, Any] = {
        "host": "far",
        "family": None,
        "workload": "w",
        "data_bytes": None,
        "price": None,
    }
    plan["channels"] = [{k: None if v != v else v for k, v in dataclasses.asdict(channel).items()}]
    session = Session.create(folder, plan)
    values = watts if quantity == "power" else np.cumsum(watts * 0.5)
    spans = [("idle", 61.0, 99.0), *(("run", *span) for span in RUNS[:runs])]
    begin = 0.0
    for number, (kind, start, end) in enumerate(spans):
        # A log is read as it grows: what came since the last run is in the file of the next.
        until = 300.0 if number == len(spans) - 1 else end
        rows = (at > begin) & (at <= until)
        begin = until
        with session.samples(number).open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(HEADER)
            for t, value in zip(at[rows], values[rows], strict=True):
                out.writerow((LABEL, f"{t - offset_s:.6f}", repr(float(value)), repr(float(t))))
        session.append(
            {
                "run": number,
                "kind": kind,
                "start_s": start,
                "end_s": end,
                "exit_code": 0,
                "executions": 1,
                "freq_hz": 2e9,
                "cores": 1,
                "repeat": number,
                "facts": {},
                "failures": {},
                "started_at": "2026-01-01T00:00:00Z",
            }
        )
    return session


@pytest.mark.parametrize("quantity", ["power", "energy"])
@pytest.mark.parametrize("offset_s", [-31.5, 0.0, 12.25])
def test_watts_of_a_clock_that_is_off_are_those_of_one_that_is_right(
    tmp_path: Path, offset_s: float, quantity: str
) -> None:
    rows = session_rows(made(tmp_path / "sweep", offset_s, quantity))
    right = session_rows(made(tmp_path / "right", 0.0, quantity))
    for row, as_right in zip(rows, right, strict=True):
        assert row["power_w"] == pytest.approx(as_right["power_w"], rel=0.05)
        assert row["power_w"] == pytest.approx(300.0, rel=0.05)
        assert row["idle_power_w"] == pytest.approx(100.0, rel=0.05)
        assert "log:pdu: clock offset " in row["notes"]
        told = float(row["notes"].split("clock offset ")[1].split(" s")[0])
        assert told == pytest.approx(offset_s, abs=0.8)


def test_an_offset_that_is_not_known_leaves_no_watts(tmp_path: Path) -> None:
    (row,) = session_rows(made(tmp_path / "sweep", 90.0, "power", runs=1))
    assert "power_w" not in row
    assert "log:pdu: clock offset: " in row["notes"]


LOGGER_AHEAD_S = 7.0


@pytest.fixture
def logger(tmp_path: Path) -> Any:
    """A host's watts under load, logged by a clock that is ahead."""
    log, load = tmp_path / "watts.csv", tmp_path / "load"
    ended = threading.Event()

    def write() -> None:
        with log.open("w") as file:
            file.write("time,power_w\n")
            while not ended.wait(0.05):
                watts = 250.0 if load.exists() else 50.0
                file.write(
                    f"{time.time() + LOGGER_AHEAD_S:.3f},{watts + 5 * np.sin(time.time())}\n"
                )
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.3)
    yield log, load
    ended.set()
    thread.join()


def test_measured_with_a_log_whose_clock_is_off(tmp_path: Path, logger: Any) -> None:
    log, load = logger
    work = f"sleep 0.4; touch {load}; sleep 1; rm {load}; sleep 0.4"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ppw", "measure", "-o", tmp_path / "runs.jsonl"),
            *("--power", f"log@{log},offset=auto,domain=wall", "--idle", "1s", "--settle", "0s"),
            *(
                "--as-found",
                "--clock",
                "2GHz",
                "--metric",
                "time,power",
                "--repeats",
                "3",
                "--",
                "sh",
                "-c",
                work,
            ),
        ],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    notes = [row["notes"] for row in rows]
    told = [float(note.split("clock offset ")[1].split(" s")[0]) for note in notes]
    assert told == [pytest.approx(-LOGGER_AHEAD_S, abs=0.7)] * 3
    assert [row["power_w"] for row in rows] == [pytest.approx(175.0, abs=60.0)] * 3
