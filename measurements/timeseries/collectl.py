"""Plot logs of collectl (``collectl -P``): columns by name, whatever ``-s`` and version.

Space or another separator (``--sep``), all forms of date and time (``-o``), details of CPUs, disks
and interfaces in the same file or in files of their own, headers that come again as columns change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.errors import MeasurementError
from measurements.timeseries.clock import stamps, to_utc
from measurements.timeseries.collectl_header import (
    Facts,
    Layout,
    cpus_listed,
    is_header,
    read_facts,
    read_layout,
)
from measurements.timeseries.delimited import Block, read_block
from measurements.timeseries.gathering import Gathering
from measurements.timeseries.log import Log, refuse_another_host
from measurements.timeseries.schema import of_device
from measurements.timeseries.series import Finding
from measurements.timeseries.shortcomings import CPUS_UNKNOWN, LOCAL_TIMES, cpus_taken, left_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from measurements.timeseries.reading import Options
    from measurements.timeseries.source import Source

    Numbers = NDArray[np.float64]

FORMAT = "collectl"
_TIME_DIGITS = 8


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a plot log."""
    return any(is_header(line) and ("[" in line) for line in _decoded(head).splitlines())


def read(source: Source, options: Options) -> Log:
    """Read a plot log.

    Raises
    ------
    MeasurementError
        When it has no header with columns, or its dates have no year.
    """
    reader = _Reader(source, options)
    for piece in source.lines():
        reader.feed(piece)
    return reader.finish()


class _Reader:
    """Goes through a log, stretch by stretch between headers."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source, self._options = source, options
        self._facts = Facts()
        self._layout: Layout | None = None
        self._comments: list[str] = []
        self._gathered = Gathering()
        self._times: list[Numbers] = []
        self._odd: list[NDArray[np.bool_]] = []
        self._restarts: list[int] = []
        self._skipped = 0
        self._cut = False
        self._unknown_cpus = False
        self._taken = False

    def feed(self, piece: bytes) -> None:
        """Read whole lines; a last line without an end is left out."""
        if not piece.endswith(b"\n"):
            end = piece.rfind(b"\n") + 1
            self._cut = True
            piece = piece[:end]
        start = 0
        while start < len(piece):
            if piece.startswith(b"#", start):
                end = piece.find(b"\n", start) + 1
                self._comment(_decoded(piece[start:end]).rstrip("\r\n"))
            else:
                end = (piece.find(b"\n#", start) + 1) or len(piece)
                self._rows(piece[start:end])
            start = end

    def _comment(self, line: str) -> None:
        if not is_header(line):
            self._comments.append(line)
            return
        if any(comment.startswith("# Collectl:") for comment in self._comments):
            facts = read_facts("\n".join(self._comments))
            self._refuse_another(facts)
            self._facts = facts
            self._restarts.append(self._gathered.rows)
        self._comments.clear()
        layout = read_layout(line, self._options.selection)
        if self._layout is not None and layout.per_interval != self._layout.per_interval:
            raise MeasurementError(
                f"{self._source.name}: rates a second and amounts an interval (-on) are in one "
                "log: split it where the header changes"
            )
        self._layout = layout

    def _refuse_another(self, facts: Facts) -> None:
        # One name for all is the caller's to give.
        if not self._options.host:
            refuse_another_host(self._source.name, [self._facts.host, facts.host])
        facts.host = facts.host or self._facts.host

    def _rows(self, data: bytes) -> None:
        layout = self._layout
        # What comes before the first header is collectl's talk to the terminal.
        if layout is None or not data.strip():
            return
        stamped = (0,) if layout.epoch else (0, 1)
        block = read_block(data, layout.separator, len(layout.names), stamped, [*layout.wanted])
        self._skipped += block.skipped
        if not block.rows:
            return
        times = self._stamps(block, layout)
        known = np.isfinite(times)
        self._skipped += int((~known).sum())
        columns = self._columns(block, layout)
        self._gathered.add(int(known.sum()), {n: column[known] for n, column in columns.items()})
        self._times.append(times[known])
        self._odd.append(block.odd[known])

    def _stamps(self, block: Block, layout: Layout) -> Numbers:
        import pandas as pd
        import pyarrow.compute as pc

        if layout.epoch:
            return np.array(pd.to_numeric(block.texts[0].to_pandas(), errors="coerce"), float)
        dates, times = block.texts[0], block.texts[1]
        if pc.any(pc.match_substring(dates, "/")).as_py():
            dates = pc.binary_join_element_wise(
                self._year(), pc.replace_substring(dates, "/", ""), ""
            )
        whole = pc.utf8_slice_codeunits(times, 0, _TIME_DIGITS)
        found = stamps(pc.binary_join_element_wise(dates, whole, " "), "%Y%m%d %H:%M:%S")
        fraction = pc.utf8_slice_codeunits(times, _TIME_DIGITS)
        if pc.any(pc.not_equal(fraction, "")).as_py():
            found = found + pd.to_numeric("0" + fraction.to_pandas(), errors="coerce").to_numpy()
        return to_utc(found, self._zone() or "+0000")

    def _zone(self) -> str | None:
        return self._options.timezone or self._facts.offset

    def _year(self) -> str:
        if self._facts.year is None:
            raise MeasurementError(
                f"{self._source.name}: its dates have no year (-od) and it has no header with one: "
                "record with -oD, or into a file with -f"
            )
        return str(self._facts.year)

    def _columns(self, block: Block, layout: Layout) -> dict[str, Numbers]:
        cpus = self._cpus() or self._options.cpus
        columns: dict[str, Numbers] = {}
        for position, (field, device) in layout.wanted.items():
            numbers = block.numbers.pop(position)
            factor = field.factor
            if field.of_cpus and layout.per_interval:
                # Without rates these are ticks.
                factor = 1 / self._facts.hz if self._facts.hz else np.nan
            elif field.of_cpus == "all":
                factor *= cpus or np.nan
                self._taken |= cpus is not None and self._cpus() is None
            if np.isnan(factor):
                self._unknown_cpus = True
                continue
            name = of_device(field.column, device) if device and not field.of_cpus else field.column
            if factor != 1.0:
                numbers *= factor
            if name in columns:
                columns[name] += numbers
            else:
                columns[name] = numbers
        _mean_queues(columns)
        return columns

    def _cpus(self) -> float | None:
        """CPUs that the log's shares are of, by the log."""
        listed = cpus_listed(self._layout.names) if self._layout else 0
        return self._facts.cpus or listed or None

    def finish(self) -> Log:
        if self._layout is None:
            raise MeasurementError(
                f"{self._source.name}: has no header that names its columns (#Date Time …): "
                "record with collectl -P"
            )
        rows = self._gathered.rows
        log = Log(
            source=self._source.name,
            format=FORMAT,
            times_s=np.concatenate(self._times) if self._times else np.zeros(0),
            columns=self._gathered.columns(),
            host=self._options.host or self._facts.host or "",
            cpus=self._cpus(),
            hz=self._facts.hz,
            usual_s=self._facts.interval,
            restarts=np.isin(np.arange(rows), self._restarts),
            per_interval=self._layout.per_interval,
        )
        if rows:
            log.marks["not a number"] = np.concatenate(self._odd)
        self._add_facts(log)
        log.findings += self._findings(log)
        return log

    def _add_facts(self, log: Log) -> None:
        if self._options.selection.needs("network_speed_bytes_s"):
            for interface, speed in self._facts.speeds.items():
                if of_device("network_rx_bytes", interface) in log.columns:
                    name = of_device("network_speed_bytes_s", interface)
                    log.columns[name] = np.full(len(log.times_s), speed)

    def _findings(self, log: Log) -> list[Finding]:
        found = []
        if self._unknown_cpus:
            found.append(CPUS_UNKNOWN)
        if self._taken:
            found.append(cpus_taken(self._options.cpus))
        if self._layout and not self._layout.epoch and not self._zone():
            found.append(LOCAL_TIMES)
        idle = log.columns.get("idle_s")
        if idle is not None and self._facts.cpus and _whole_percents(idle, self._facts.cpus):
            found.append(
                "CPU shares are whole percents, so that each CPU time is known to within "
                f"{self._facts.cpus * 0.005:g} CPUs: record with -o2 for more digits"
            )
        return [Finding("", 0, text) for text in found] + left_out(
            self._skipped, self._cut or self._source.truncated
        )


def _mean_queues(columns: dict[str, Numbers]) -> None:
    """Make the queue while busy the mean queue of the interval, or leave it out."""
    for name in [name for name in columns if name.startswith("disk_queue[")]:
        share = columns.get(name.replace("disk_queue", "disk_busy_share", 1))
        if share is None:
            del columns[name]
        else:
            columns[name] *= share


def _whole_percents(idle: Numbers, cpus: float) -> bool:
    percents = idle[:1000] * (100 / cpus)
    return bool((np.abs(percents - np.rint(percents)) < 1e-6).all())


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
