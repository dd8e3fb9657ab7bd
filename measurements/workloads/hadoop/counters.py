"""Counters of a MapReduce job: their names, and how a client prints them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Counter(NamedTuple):
    """A counter's group, without its package, and its name: TaskCounter, CPU_MILLISECONDS."""

    group: str
    name: str


CPU_MS = Counter("TaskCounter", "CPU_MILLISECONDS")
GC_MS = Counter("TaskCounter", "GC_TIME_MILLIS")
MAP_INPUT_RECORDS = Counter("TaskCounter", "MAP_INPUT_RECORDS")
MAP_OUTPUT_BYTES = Counter("TaskCounter", "MAP_OUTPUT_BYTES")
OUTPUT_RECORDS = Counter("TaskCounter", "REDUCE_OUTPUT_RECORDS")
SHUFFLE_BYTES = Counter("TaskCounter", "REDUCE_SHUFFLE_BYTES")
SPILLED_RECORDS = Counter("TaskCounter", "SPILLED_RECORDS")
PEAK_MAP_MEMORY = Counter("TaskCounter", "MAP_PHYSICAL_MEMORY_BYTES_MAX")
PEAK_REDUCE_MEMORY = Counter("TaskCounter", "REDUCE_PHYSICAL_MEMORY_BYTES_MAX")
INPUT_BYTES = Counter("FileInputFormatCounter", "BYTES_READ")
OUTPUT_BYTES = Counter("FileOutputFormatCounter", "BYTES_WRITTEN")
DATA_LOCAL_MAPS = Counter("JobCounter", "DATA_LOCAL_MAPS")
RACK_LOCAL_MAPS = Counter("JobCounter", "RACK_LOCAL_MAPS")
OTHER_MAPS = Counter("JobCounter", "OTHER_LOCAL_MAPS")

FILE_SYSTEMS = "FileSystemCounter"

# As a client prints them, of those that a column is made of.
_PRINTED = {
    "CPU time spent (ms)": CPU_MS,
    "GC time elapsed (ms)": GC_MS,
    "Map input records": MAP_INPUT_RECORDS,
    "Map output bytes": MAP_OUTPUT_BYTES,
    "Reduce output records": OUTPUT_RECORDS,
    "Reduce shuffle bytes": SHUFFLE_BYTES,
    "Spilled Records": SPILLED_RECORDS,
    "Peak Map Physical memory (bytes)": PEAK_MAP_MEMORY,
    "Peak Reduce Physical memory (bytes)": PEAK_REDUCE_MEMORY,
    "Data-local map tasks": DATA_LOCAL_MAPS,
    "Rack-local map tasks": RACK_LOCAL_MAPS,
    "Other local map tasks": OTHER_MAPS,
}
_PRINTED_IN_GROUP = {
    ("File Input Format Counters", "Bytes Read"): INPUT_BYTES,
    ("File Output Format Counters", "Bytes Written"): OUTPUT_BYTES,
}
_FILE_SYSTEM = re.compile(r"(\w+): Number of bytes (read|written)")
# The job's own counters, not those of one task that a process which runs all tasks prints too.
_HEAD = re.compile(r"\bJob: Counters: \d+\s*$")
_VALUE = re.compile(r"\t\t(.+)=(\d+)\s*$")


def printed_counters(lines: Iterable[str]) -> dict[Counter, int]:
    """Counters that a job's client has printed at its end, the last such list of a log.

    Parameters
    ----------
    lines : iterable of str
        The client's log.

    Returns
    -------
    dict of Counter to int
        Empty where no list is there. Those without a column keep the names that they are printed
        under.
    """
    found: dict[Counter, int] = {}
    group, inside = "", False
    for line in lines:
        if _HEAD.search(line):
            found, inside = {}, True
        elif inside and (match := _VALUE.match(line)):
            found[_named(group, match[1])] = int(match[2])
        elif inside and line.startswith("\t"):
            group = line.strip()
        else:
            inside = False
    return found


def _named(group: str, printed: str) -> Counter:
    if system := _FILE_SYSTEM.fullmatch(printed):
        return Counter(FILE_SYSTEMS, f"{system[1]}_BYTES_{system[2].upper()}")
    known = _PRINTED_IN_GROUP.get((group, printed)) or _PRINTED.get(printed)
    return known or Counter(group, printed)


def file_system_bytes(
    counters: Mapping[Counter, int], direction: str, *, local: bool
) -> float | None:
    """Bytes that tasks moved, of the local file system or of all others together.

    Parameters
    ----------
    counters : mapping
    direction : {"READ", "WRITTEN"}
    local : bool

    Returns
    -------
    float or None
        None where no such counter is there.
    """
    ending = f"_BYTES_{direction}"
    moved = [
        value
        for (group, name), value in counters.items()
        if group == FILE_SYSTEMS and name.endswith(ending)
        if (name == f"FILE{ending}") == local
    ]
    return float(sum(moved)) if moved else None
