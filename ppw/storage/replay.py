"""`replay_trace`: a trace played back by fio, and the error of each part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from measurements.loads import load_files as fio
from ppw.errors import PpwError
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.storage import fitted_devices as fd, trace_source as ts
from ppw.storage.scaling import Scale
from ppw.storage.trace_source import Batches

_Play = Callable[..., fio.ReplayReport]

# Places do not matter in memory; a short file does not use it up.
_MEMORY_BYTES = 1 << 24
# A replayer that is this much slower than the trace in memory tells little of a device.
_REPLAYER_OFF = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceReplay(ts.TraceResult):
    """A trace as it was asked for, as fio played it in memory, and on the target.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a stage.
    target : str
    engine : str
    fio_version : str
    """

    kind: ClassVar[str] = "trace_replay"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            stage          | text  | stage    | original, where one was given; trace; calibration, \
on a file in memory; replay; and model, where one was named
            requests       | count | requests | number of requests
            duration_s     | s     | duration | time from the first request to the last
            iops           | 1     | IOPS     | requests per second
            bytes_s        | B     | bytes/s  | bytes per second
            latency_mean_s | s     | latency  | mean latency; missing where there is none
            latency_p99_s  | s     | 99 %     | 99th percentile of the latency
            off            | 1     |          | difference of IOPS from those of the stage before it
            due_to         | text  |          | cause of the difference
            """,
            "Stages",
            show={
                **fd.time_cells("duration_s", "latency_mean_s", "latency_p99_s"),
                "bytes_s": lambda row: tx.shown(row["bytes_s"], "B"),
            },
        ),
    )

    table: pd.DataFrame
    target: str
    engine: str
    fio_version: str

    def verdict(self) -> list[str]:
        """Say which part each difference is due to."""
        parts = rs.rows_of(self.table[self.table["due_to"] != ""])
        return [f"{row['due_to']}: {row['off']:+.2%} of the requests per second." for row in parts]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw requests per second by stage."""
        ax, place = axes.new_axes(ax), np.arange(len(self.table))[::-1]
        ax.barh(place, self.table["iops"], color=axes.BAND)
        ax.set_yticks(place, [tx.plot_label(s.partition(",")[0]) for s in self.table["stage"]])
        ax.set(xlabel="requests a second", ylabel="stage")
        return ax


def replay_trace(
    trace: Batches | str | PathLike[str],
    target: str,
    *,
    original: Batches | str | PathLike[str] | None = None,
    size_bytes: float | None = None,
    count: int | None = None,
    time_scale: float = 1.0,
    streams: int = 1,
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
        Length of the target (B); a longer space is scaled down to it, as by `ppw.generate_trace`.
    count : int, optional
        Largest number of requests.
    time_scale : float
        Factor of all times: 2 is twice as slow.
    streams : int
        So many times the streams: copies of the trace on top of each other.
    depth : int
        Largest number of requests in flight.
    ioengine, direct
        As `measurements.loads.load_files.replay_iolog` has ``engine`` and ``direct``.
    device : str, optional
        ``disk`` or ``ssd``, with parameters if need be: a model to compare the replay with.
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
    """
    scale = Scale(size_bytes, time_scale, streams).check()
    if count is not None and count < 2:
        raise PpwError(f"count {count}: a replay needs two requests or more")
    source = ts.open_trace(trace)
    known = ts.survey(source)
    source = scale.apply(source, known.survey)
    size = None if size_bytes is None else int(size_bytes)
    # The log is written for this target first: it tells how long the target has to be.
    with tempfile.TemporaryDirectory(prefix="ppw-replay-") as folder:
        log = str(Path(folder, "trace.log"))
        written = fio.write_iolog(
            _drop_flushes(source),
            log,
            target=str(Path(target).absolute()),
            size_bytes=size,
            first_byte=known.survey.low_lbn * 512,
            most=count,
            allow_device=allow_device,
        )
        if not Path(target).is_block_device():
            fio.make_scratch(target, size or written.extent_bytes)
        play = partial(
            fio.replay_iolog, engine=ioengine, depth=depth, expected_s=written.duration_s
        )
        length = max(_MEMORY_BYTES, 2 * int(known.survey.sizes.max()))
        calibration = _calibrate(source, length, folder, written.requests, play)
        played = play(log, direct=direct, allow_device=allow_device)
    # Each stage answers for what it lacks against the one before it.
    if original is not None:
        original = ts.open_trace(original)
        original = scale.apply(original, ts.survey(original).survey)
    rows = list(_stages(written, calibration, played, original))
    if device is not None:
        rows.append(_model_stage(source, device, written.requests))
    remarks = (
        *scale.notes(known.survey),
        *_replay_caveats(written, calibration, played, direct),
    )
    rs.warn_caveats(remarks)
    names = TraceReplay.tables[0].names
    return TraceReplay(
        table=pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[1:-1], np.float64)),
        target=target,
        engine=ioengine,
        fio_version=played.fio_version,
        caveats=remarks,
        input_digest=rs.numbers_digest(known.digest, count, *scale),
    )


def _calibrate(
    source: Batches, length: int, folder: str, requests: int, play: _Play
) -> fio.ReplayReport:
    """Replay the same requests at the same times on a file in memory of so many bytes."""
    log = str(Path(folder, "calibration.log"))
    # Without a file system in memory, the usual folder has to do.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # nosec B108  # tempfile makes a folder of its own there
    with tempfile.NamedTemporaryFile(dir=memory, prefix="ppw-calibration-") as file:
        fio.write_iolog(
            _drop_flushes(source),
            log,
            target=file.name,
            size_bytes=length,
            most=requests,
            allow_device=True,
        )
        fio.make_scratch(file.name, length)
        return play(log, direct=False, allow_device=True)


def _drop_flushes(source: Batches) -> Iterator[pa.RecordBatch]:
    """Requests that move something: fio waits at a flush until all before it are done."""
    for batch in source.batches():
        yield batch.filter(pc.not_equal(batch.column("op"), ts.FLUSH))


def _stages(
    written: fio.IologContent,
    calibration: fio.ReplayReport,
    played: fio.ReplayReport,
    original: Batches | None,
) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each stage, compared with the one before it."""
    iops, nothing = written.requests / written.duration_s, (np.nan, np.nan)
    answer: tuple[float, str] = (np.nan, "")
    if original is not None:
        # As many requests of the original as fio plays of the trace.
        known = ts.survey(ts.part_of(original, 0, written.requests)).survey
        moved = float(known.sizes @ known.size_counts)
        yield _stage("original", known.requests, known.duration_s, moved, *nothing, *answer)
        answer = iops / (known.requests / known.duration_s) - 1, "the generator"
    yield _stage("trace", written.requests, written.duration_s, written.bytes_, *nothing, *answer)
    for stage, done, before, due_to in (
        ("calibration", calibration, iops, "the replayer"),
        ("replay", played, calibration.iops, "the device"),
    ):
        rest = done.latency_mean_s, done.latency_p99_s, done.iops / before - 1, due_to
        yield _stage(stage, done.requests, done.duration_s, done.bytes_, *rest)


def _stage(
    name: str, requests: int, duration_s: float, moved: float, *rest: Any
) -> tuple[Any, ...]:
    """Row of a stage: its rates of requests and of bytes stand before the rest."""
    return (name, requests, duration_s, requests / duration_s, moved / duration_s, *rest)


def _model_stage(source: Batches, device: str, requests: int) -> tuple[Any, ...]:
    """Serve the first requests by a model of the device."""
    drive = fd.parse_device(device)
    # As many requests as fio played, at the times that it was asked for.
    storage, left, moved = fd.Storage(drive.model), requests, 0.0
    for batch in ts.columns(source):
        part = batch.pick(slice(left))
        # One target serves all devices of the trace.
        storage.take(part._replace(device=np.zeros_like(part.device)))
        moved += float(part.size_bytes.sum())
        left -= len(part.time_s)
        if left <= 0:
            break
    latencies, name = storage.latencies, f"model: {drive.name}, {drive.parameters}"
    delays = latencies.mean_s, latencies.quantile_s(0.99)
    return _stage(name, requests, latencies.requests / storage.iops, moved, *delays, np.nan, "")


def _replay_caveats(
    written: fio.IologContent, calibration: fio.ReplayReport, played: fio.ReplayReport, direct: bool
) -> Iterator[str]:
    off = calibration.iops * written.duration_s / written.requests - 1
    if abs(off) > _REPLAYER_OFF:
        yield (
            f"fio itself is {off:+.1%} off in memory: replay more slowly (--time-scale), or this "
            "error counts as one of the device"
        )
    for stage, done in (("calibration", calibration), ("replay", played)):
        if done.requests != written.requests:
            yield f"{stage}: {done.requests} of {written.requests} requests completed"
    if not direct:
        yield "the replay uses the page cache: the latency of a hit is that of memory"
    yield (
        "requests wait in fio beyond the depth, so a device that falls behind slows the load: "
        "latency is counted from submission, not from the time in the trace"
    )
