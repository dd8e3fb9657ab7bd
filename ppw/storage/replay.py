"""`replay_trace`: a trace played back by fio, and whose error is whose."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from measurements.loads.fio_replay import make_scratch, replay_iolog, write_iolog
from ppw.errors import PpwError
from ppw.results import caveats as cv
from ppw.results.arguments import as_positive
from ppw.results.axes import BAND, new_axes
from ppw.results.result import TabledResult, numbers_digest, rows_of
from ppw.results.text import plot_label, shown, summary_text, text_table
from ppw.storage.fitted_devices import Storage, described, parse_device, time_text
from ppw.storage.trace_source import Columns, columns, opened, survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    import pyarrow as pa
    from matplotlib.axes import Axes

    from fitting.storage.survey import Survey
    from measurements.loads.fio_replay import Replayed, Written
    from ppw.storage.trace_source import Batches


# Places do not matter in memory; a short file does not use it up.
_MEMORY_BYTES = 1 << 24
# A replayer that is this much slower than the trace in memory tells little of a device.
_REPLAYER_OFF = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceReplay(TabledResult):
    """A trace as it was asked for, as fio played it in memory, and on the target.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a stage: ``stage`` (original, where one was given; trace; calibration, on a file
        in memory; replay; and model, where one was named), ``requests``, ``duration_s``,
        ``iops``, ``bytes_s``, ``latency_mean_s``, ``latency_p99_s`` (NaN where there is none),
        ``off`` (of IOPS, against the stage that it answers for), ``due_to``.
    target : str
    engine : str
    fio_version : str
    """

    kind: ClassVar[str] = "trace_replay"

    table: pd.DataFrame
    target: str
    engine: str
    fio_version: str

    def verdict(self) -> list[str]:
        """Say which part of the difference is whose."""
        parts = rows_of(self.table[self.table["due_to"] != ""])
        return [f"{row['due_to']}: {row['off']:+.2%} of the requests a second." for row in parts]

    def to_frame(self) -> pd.DataFrame:
        """One row a stage."""
        return self.table

    def summary(self) -> str:
        """Text: whose error is whose, the stages and the caveats."""
        lines = [*self.verdict(), "", text_table(self.header(), self.cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["stage", "requests", "duration", "IOPS", "bytes/s", "latency", "99 %"]

    def cells(self) -> list[list[str]]:
        """The stages as they are printed."""
        return [
            [
                row["stage"],
                f"{row['requests']:.0f}",
                time_text(row["duration_s"]),
                shown(row["iops"]),
                shown(row["bytes_s"], "B"),
                _time(row["latency_mean_s"]),
                _time(row["latency_p99_s"]),
            ]
            for row in rows_of(self.table)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw requests a second by stage."""
        return plot_stages(self, ax)


def _time(seconds: float) -> str:
    return "–" if np.isnan(seconds) else time_text(seconds)


def replay_trace(
    trace: Batches | str | PathLike[str],
    target: str,
    *,
    original: Batches | str | PathLike[str] | None = None,
    size_bytes: float | None = None,
    count: int | None = None,
    time_scale: float = 1.0,
    depth: int = 256,
    ioengine: str = "libaio",
    direct: bool = True,
    device: str | None = None,
    allow_device: bool = False,
) -> TraceReplay:
    """Replay a trace on a scratch file, after a calibration run that touches no device.

    The target is made as long as the trace needs, or ``size_bytes``, and is written over. The
    calibration plays the same requests on a file in memory: what it lacks against the trace is
    the replayer's own error, and what the replay lacks against it is the device's.

    Parameters
    ----------
    trace : Trace or path
    target : str
        Scratch file, or a device if ``allow_device``.
    original : Trace or path, optional
        What the trace was generated after: tells the generator's error.
    size_bytes : float, optional
        Length of the target (B); places beyond it are taken modulo the length.
    count : int, optional
        Requests at most.
    time_scale : float
        Factor of all times: 2 is twice as slow.
    depth : int
        Requests in flight at most.
    ioengine, direct
        As `measurements.loads.fio_replay.replay_iolog` has ``engine`` and ``direct``.
    device : str, optional
        ``disk`` or ``ssd``, with parameters if need be: a model to hold against the replay.
    allow_device : bool
        Whether the target may be a device, whose content is lost.

    Returns
    -------
    TraceReplay

    Raises
    ------
    MeasurementError
        Where the trace cannot be read, fio fails, or the target cannot be made.
    PpwError
        For arguments that cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    scale = as_positive("time scale", time_scale)
    if count is not None and count < 2:
        raise PpwError(f"count {count}: a replay takes two requests at least")
    source = opened(trace)
    known = survey(source)
    size = None if size_bytes is None else int(as_positive("size", size_bytes))
    with tempfile.TemporaryDirectory(prefix="ppw-replay-") as folder:
        log = str(Path(folder, "trace.log"))
        written = write_iolog(
            _without_flushes(source),
            log,
            target=str(Path(target).absolute()),
            size_bytes=size,
            first_byte=0 if size else known.survey.low_lbn * 512,
            time_scale=scale,
            most=count,
            allow_device=allow_device,
        )
        if not Path(target).is_block_device():
            make_scratch(target, size or written.extent_bytes)
        options: dict[str, Any] = {"depth": depth, "expected_s": written.duration_s}
        calibration = _calibrated(source, known.survey, folder, ioengine, written, scale, options)
        played = replay_iolog(
            log, engine=ioengine, direct=direct, allow_device=allow_device, **options
        )
    rows = list(_rows(written, calibration, played, original, scale))
    if device is not None:
        rows.append(_modelled(source, device, written, scale))
    caveats = tuple(_caveats(written, calibration, played, direct))
    cv.warn(caveats)
    return TraceReplay(
        table=pd.DataFrame(rows),
        target=target,
        engine=ioengine,
        fio_version=played.fio_version,
        caveats=caveats,
        input_digest=numbers_digest(known.digest, count, scale),
    )


def _calibrated(
    source: Batches,
    known: Survey,
    folder: str,
    engine: str,
    written: Written,
    scale: float,
    options: dict[str, Any],
) -> Replayed:
    """Replay the same requests at the same times on a short file in memory."""
    length = max(_MEMORY_BYTES, 2 * int(known.sizes.max()))
    log = str(Path(folder, "calibration.log"))
    with tempfile.NamedTemporaryFile(dir=_in_memory(), prefix="ppw-calibration-") as file:
        write_iolog(
            _without_flushes(source),
            log,
            target=file.name,
            size_bytes=length,
            time_scale=scale,
            most=written.requests,
            allow_device=True,
        )
        make_scratch(file.name, length)
        return replay_iolog(log, engine=engine, direct=False, allow_device=True, **options)


def _in_memory() -> str | None:
    """Folder of a file system in memory; None, the usual place, where there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _without_flushes(source: Batches) -> Iterator[pa.RecordBatch]:
    """Requests that move something: fio waits at a flush until all before it are done."""
    import pyarrow.compute as pc

    from ppw.storage.trace_source import FLUSH

    for batch in source.batches():
        yield batch.filter(pc.not_equal(batch.column("op"), FLUSH))


def _rows(
    written: Written,
    calibration: Replayed,
    played: Replayed,
    original: Any,
    scale: float,
) -> Iterator[dict[str, Any]]:
    asked = written.requests / written.duration_s
    if original is not None:
        known = survey(opened(original)).survey
        rate = known.requests / known.duration_s
        moved = float(known.sizes @ known.size_counts) / known.duration_s
        yield _row("original", known.requests, known.duration_s, moved)
        off = asked * scale / rate - 1
        yield _row(
            "trace", written.requests, written.duration_s, _speed(written), off, "the generator"
        )
    else:
        yield _row("trace", written.requests, written.duration_s, _speed(written))
    yield _replayed("calibration", calibration, calibration.iops / asked - 1, "the replayer")
    yield _replayed("replay", played, played.iops / calibration.iops - 1, "the device")


def _row(
    stage: str, requests: int, duration_s: float, bytes_s: float, off: float = np.nan, by: str = ""
) -> dict[str, Any]:
    return {
        "stage": stage,
        "requests": float(requests),
        "duration_s": duration_s,
        "iops": requests / duration_s,
        "bytes_s": bytes_s,
        "latency_mean_s": np.nan,
        "latency_p99_s": np.nan,
        "off": off,
        "due_to": by,
    }


def _speed(written: Written) -> float:
    return written.bytes_ / written.duration_s


def _replayed(stage: str, done: Replayed, off: float, by: str) -> dict[str, Any]:
    row = _row(stage, done.requests, done.duration_s, done.bytes_ / done.duration_s, off, by)
    return {**row, "latency_mean_s": done.latency_mean_s, "latency_p99_s": done.latency_p99_s}


def _modelled(source: Batches, device: str, written: Written, scale: float) -> dict[str, Any]:
    name, model = parse_device(device)
    storage, left = Storage(model), written.requests
    moved = 0.0
    for batch in columns(source):
        part = Columns(*(column[:left] for column in batch))
        # One target serves all devices of the trace.
        whole = part._replace(device=np.zeros_like(part.device), time_s=part.time_s * scale)
        storage.take(whole)
        moved += float(part.size_bytes.sum())
        left -= len(part.time_s)
        if left <= 0:
            break
    duration = storage.latencies.requests / storage.iops
    row = _row(f"model: {name}, {described(model)}", written.requests, duration, moved / duration)
    latencies = storage.latencies
    return {
        **row,
        "latency_mean_s": latencies.mean_s,
        "latency_p99_s": latencies.quantile_s(0.99),
    }


def _caveats(
    written: Written, calibration: Replayed, played: Replayed, direct: bool
) -> Iterable[str]:
    if written.folded:
        share = written.folded / written.requests
        yield f"{share:.1%} of the requests lay beyond the target and were taken modulo its length"
    off = calibration.iops * written.duration_s / written.requests - 1
    if abs(off) > _REPLAYER_OFF:
        yield (
            f"the replayer itself is {off:+.1%} off in memory: replay slower (--time-scale), or "
            "the device is blamed for it"
        )
    for stage, done in (("calibration", calibration), ("replay", played)):
        if done.requests != written.requests:
            yield f"{stage}: {done.requests} of {written.requests} requests completed"
    if not direct:
        yield "through the page cache: latency is that of memory where it hits"
    yield (
        "requests wait in fio beyond the depth, so a device that falls behind slows the load: "
        "latency is counted from submission, not from the time in the trace"
    )


def plot_stages(result: TraceReplay, ax: Axes | None = None) -> Axes:
    """Draw requests a second by stage."""
    axes, table = new_axes(ax), result.table
    place = np.arange(len(table))[::-1]
    axes.barh(place, table["iops"], color=BAND)
    axes.set_yticks(place, [plot_label(name.partition(",")[0]) for name in table["stage"]])
    axes.set_xlabel("requests a second")
    axes.set_ylabel("stage")
    return axes
