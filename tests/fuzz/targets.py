"""Every reader that is fuzzed, a line each."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import readers
import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

# Where the caller says, or in memory where there is such a disk.
SCRATCH = os.environ.get("TMPDIR") or (
    "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
)
HOSTILE = (
    *(b"-1", b"0", b"1e308", b"-1e308", b"nan", b"inf", b"1e999", b"99999999999999999999"),
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"[[[[",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xff\xfe",
        b"\xc3",
    ),
    *(b"\xef\xbb\xbf", b"\x1f\x8b", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\\ud800", b"=1+1", b"'"),
)
MOST_WORDS, LONGEST_WORD = 400, 40


@dataclass(frozen=True)
class Target:
    """A reader, and what it is fuzzed with.

    Attributes
    ----------
    read : callable
        Takes the bytes of an input.
    seeds : callable
        Makes valid inputs.
    where : str
        What its errors must name.
    often : int
        Inputs in each run of the tests.
    longest : int
        Bytes of an input at most.
    more_words : callable
        Words of its language that the seeds lack.
    """

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    where: str = ""
    often: int = 20_000
    longest: int = 2000
    more_words: Callable[[], list[bytes]] = list

    def words(self) -> list[bytes]:
        """What mutations put in: words of the seeds, and values that readers trip over."""
        found: dict[bytes, None] = dict.fromkeys((*HOSTILE, *self.more_words()))
        for seed in self.seeds():
            found |= dict.fromkeys(re.findall(rb"[A-Za-z_][\w.%@-]{2,}", seed))
        return [w for w in found if 0 < len(w) <= LONGEST_WORD][:MOST_WORDS]


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """Reader of text; bytes that are none are passed as the command line passes them."""
    return lambda data: read(data.decode("utf-8", "surrogateescape"))


def file(
    name: str,
    read: Callable[[Path], object],
    make: Callable[[], list[bytes]],
    where: str | None = None,
    **more: Any,
) -> Target:
    """Reader of a file of this name."""

    @functools.cache
    def path() -> Path:
        folder = tempfile.mkdtemp(prefix="ppw-fuzz-", dir=SCRATCH)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return Path(folder, name)

    def of_bytes(data: bytes) -> object:
        path().write_bytes(data)
        return read(path())

    return Target(of_bytes, make, where=name if where is None else where, **more)


def of(*texts: str | bytes) -> Callable[[], list[bytes]]:
    """Seeds that are these texts."""
    return lambda: seeds.zipped(*texts)


# Inputs in each run of the tests, where a reader is too slow for all: half a second's.
FEW, SOME, MORE = 200, 700, 2000

TRACES = {
    **dict.fromkeys(("msr", "spc", "iolog-2", "iolog-3", "mqsim", "etw", "csv"), SOME),
    "blkparse": FEW,
    "blktrace": SOME,
    "vscsi-1": MORE,
    "vscsi-2": MORE,
}
LOGS = {"collectl": FEW, "sadf-json": SOME, "sadf-csv": SOME, "pcp": FEW, "perf": SOME}
LOGS |= {"ppw-csv": SOME, "ppw-lines": MORE}


def _traces() -> dict[str, Target]:
    return {
        f"trace-{name}": file(
            "t", readers.trace(name), functools.partial(seeds.traces, name), often=often
        )
        for name, often in TRACES.items()
    }


def _logs() -> dict[str, Target]:
    return {
        f"log-{kind}": file(
            "log", readers.time_series, functools.partial(seeds.logs, kind), often=often
        )
        for kind, often in LOGS.items()
    }


TARGETS: dict[str, Target] = {
    "runs-csv": file("r.csv", readers.runs, of(seeds.RUNS, seeds.SEMICOLONS), often=FEW),
    "runs-lines": file("r.jsonl", readers.runs, of(seeds.RUN_LINES), often=SOME),
    "runs-parquet": file("r.pq", readers.runs, seeds.run_parquet, often=SOME, longest=9000),
    "answers": file("r.csv", readers.answers, of(seeds.RUNS), where="", often=10),
    "samples": file("s.csv", readers.samples, of(seeds.SAMPLES)),
    "session": file("runs.jsonl", readers.session, seeds.sessions, where="ppw-fuzz-", often=4000),
    **_traces(),
    "trace-parquet": file("t", readers.trace(None), seeds.own_trace, often=SOME, longest=9000),
    **_logs(),
    "specpower": file("p.html", readers.specpower, seeds.specpower, often=FEW, longest=4000),
    "perf": file("c.txt", readers.counters, seeds.perf, often=SOME),
    "callgrind": file("c.out", readers.callgrind, of(seeds.CALLGRIND)),
    "qemu": file("q.out", readers.qemu, of(seeds.QEMU)),
    "fio": file("f.json", readers.fio, seeds.fio),
    "memcaslap": file("m.txt", readers.memcaslap, seeds.memcaslap),
    "memtier": file("m.json", readers.memtier, seeds.memtier),
    "paced": file("p.txt", readers.paced, of(seeds.PACED)),
    "hadoop-history": file("j.jhist", readers.history, seeds.history, often=MORE, longest=12000),
    "hadoop-log": file("l.log", readers.local_log, seeds.local_log, often=MORE),
    "hadoop-nodes": file("n.csv", readers.nodes, of(seeds.NODES)),
    "power-log": file("w.csv", readers.power_log, of(*seeds.POWER_LOGS), often=SOME),
    "meter": Target(readers.meter, of(seeds.METER)),
    "redfish": Target(readers.redfish, of(json.dumps(seeds.REDFISH))),
    "ipmi-records": Target(readers.sensor_records, seeds.sensor_records),
    "ipmi-reading": Target(readers.power_reading, seeds.power_reading),
    "kernel": Target(readers.kernel, of("0\n1", "100\n0-3,8", "300\nintel"), often=40),
    "quantities": Target(text(readers.quantity), of(*seeds.QUANTITIES)),
    "specs": Target(text(readers.specs), of(*seeds.SPECS)),
    "host": Target(readers.host, seeds.hosts, where="h.toml"),
    "host-json": Target(text(readers.host_json), seeds.saved_hosts),
    "scenario": file("s.toml", readers.scenario, seeds.scenarios, often=MORE, longest=8000),
    "thresholds": file("t.toml", readers.thresholds, of(seeds.THRESHOLDS)),
    "saved": Target(text(readers.saved), seeds.saved, often=FEW, longest=6000),
    "trace-model": Target(
        text(readers.trace_model),
        functools.partial(seeds.saved, "trace_model"),
        often=SOME,
        longest=9000,
    ),
    "calibrations": file("h.json", readers.calibrations, seeds.calibrations, often=SOME),
    "fleet-state": file("manifest.json", readers.fleet_state, seeds.manifests),
    "arguments": Target(
        readers.arguments, seeds.command_lines, often=SOME, more_words=seeds.options
    ),
}
