"""Every reader that is fuzzed: its inputs, what its answers must be, and what it may refuse."""

import atexit
import contextlib
import functools
import io
import json
import math
import os
import random
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import click
import numpy as np
import seeds

import ppw
from fitting.errors import FittingError
from measurements.counters.command import read_counters
from measurements.counters.figures import parse_event
from measurements.counters.instructions import read_callgrind, read_qemu
from measurements.counters.memory_traffic import memory_events
from measurements.errors import MeasurementError
from measurements.host.activity import Snapshot, available_memory, last_level_cache
from measurements.host.conditions import read_state
from measurements.host.cpu_placement import read_topology
from measurements.host.files import parse_cpu_list
from measurements.host.frequency_control import read_policies
from measurements.imports.importing import import_runs
from measurements.power.ipmi import parse_power_reading
from measurements.power.ipmi_protocol import power_sensors, split_records
from measurements.power.meter import Instrument, MeterSource
from measurements.power.power_log import open_source
from measurements.power.redfish import best_power, energy_counter
from measurements.power.redfish_client import parse_origin
from measurements.power.sampler import read_samples
from measurements.power.source import SourceSettings, parse_specs
from measurements.sweep.session import Session, session_table
from measurements.table.reading import read_runs
from measurements.table.schema import COLUMNS
from measurements.table.specpower import is_specpower, read_specpower
from measurements.table.units import parse_frequency, parse_quantity
from measurements.timeseries import read_time_series
from measurements.traces import read_trace
from measurements.workloads import fio
from measurements.workloads.hadoop.cluster import read_nodes
from measurements.workloads.hadoop.history import parse_history, read_local_log
from measurements.workloads.hadoop.job_sweep import job_columns, node_columns
from measurements.workloads.memcached import load_generators as lg
from measurements.workloads.memcached.servers import Address
from ppw.catalogue.hosts import Host, parse_hosts
from ppw.cli import main
from ppw.errors import CaveatWarning, PpwError
from ppw.fleet.state import FleetState
from ppw.power.calibrated_runs import load_calibration
from ppw.pressure.capacity import read_thresholds
from ppw.procurement.scenario import read_scenario
from ppw.results.text import printable
from ppw.storage.fitted_devices import parse_device
from ppw.storage.trace_model import TraceModel

# Where the caller says, or in memory where there is such a disk.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
SCRATCH = os.environ.get("TMPDIR") or IN_MEMORY or tempfile.gettempdir()
HOSTILE = (
    *b"-1 0 1e308 -1e308 nan inf 1e999 99999999999999999999 null true [] {} [[[[ =1+1".split(),
    *(b'""', b"'", b"\n", b"\r\n", b"\x00", b"\xff\xfe", b"\xc3", b"\xef\xbb\xbf", b"\x1f\x8b"),
    *(b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\\ud800"),
)
OURS = (MeasurementError, FittingError, PpwError, click.ClickException)
# Longer messages bury what they say, unless it is what the user typed.
LONGEST_MESSAGE = 4000


class FaultError(AssertionError):
    """An error that is ours, and not as it should be."""


def be_strict():
    """Let every warning but our own be an error."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", CaveatWarning)


@dataclass(frozen=True)
class Target:
    """A reader, and what it is fuzzed with.

    ``often`` is the number of inputs in a run, ``longest`` their bytes at most, ``where`` what its
    errors must name, and ``more_words`` makes words of its language that the seeds lack. Without
    ``seeds``, they are those of its name in ``corpus``.
    """

    read: Callable
    seeds: Callable | None = None
    where: str = ""
    often: int = 10_000
    longest: int = 2000
    more_words: Callable = list

    def judge(self, data):
        """Read an input: None where there is a result, or the package's own error in one line.

        Anything else is raised: an error that is not ours as it is, and as a `FaultError` a message
        without text, of several lines, far too long, or that does not say where.
        """
        try:
            self.read(data)
        except click.ClickException as error:
            shown = io.StringIO()
            error.show(shown)
            said, most = printable(error.message) or shown.getvalue().split("\n")[0], 10
        except OURS as error:
            said, most = str(error), 1
        else:
            return None
        # What else does not print is spelt where it is shown.
        if not said.strip() or "\n" in said or len(said) > most * LONGEST_MESSAGE:
            raise FaultError(f"no single line, or a long one, of {len(said)}: {said[:300]!r}")
        if self.where not in said:
            raise FaultError(f"names no {self.where!r}: {said[:300]!r}")
        return said

    def words(self):
        """What mutations put in: words of the seeds, and values that readers trip over."""
        found = dict.fromkeys((*HOSTILE, *self.more_words()))
        for seed in self.seeds():
            found |= dict.fromkeys(re.findall(rb"[A-Za-z_][\w.%@-]{2,}", seed))
        return [w for w in found if 0 < len(w) <= 40][:400]

    def mutants(self, count):
        """Make inputs of the seeds, the same each time: words in place of others, pieces moved."""
        rng, words, start = random.Random(0), self.words(), self.seeds()
        for _ in range(count):
            data = rng.choice(start)[: self.longest]
            for _ in range(rng.randint(1, 3)):
                tokens = [m.span() for m in re.finditer(rb"[\w.%@+-]+", data)] or [(0, len(data))]
                begin, end = rng.choice(tokens)
                if rng.random() < 0.3:
                    begin, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
                    end = min(end, begin + rng.choice((0, 1, 4, 40)))
                other = rng.choice(start)
                at = rng.randrange(len(other) + 1)
                piece = (rng.choice(words), rng.choice(HOSTILE), b"", other[at : at + 30])
                data = data[:begin] + rng.choice(piece) + data[end:]
            yield data[: self.longest]


def text(read):
    """Reader of text; bytes that are none are passed as the command line passes them."""
    return lambda data: read(data.decode("utf-8", "surrogateescape"))


@functools.cache
def _folder(_):
    folder = tempfile.mkdtemp(prefix="ppw-fuzz-", dir=SCRATCH)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def file(name, read, make=None, where=None, **more):
    """Reader of a file of this name, in a folder of its own."""
    key = object()

    def of_bytes(data):
        path = _folder(key) / name
        path.write_bytes(data)
        return read(path)

    return Target(of_bytes, make, where=name if where is None else where, **more)


def _finite(row):
    for name, value in row.items():
        assert value is None or isinstance(value, str) or math.isfinite(value), name


def runs(path):
    table = read_runs(path)
    for name in table:
        if name in COLUMNS and COLUMNS[name].kind != "text":
            assert table[name].dtype == np.float64, name
            assert not np.isinf(table[name]).any(), name


def imported(path):
    """Read files of other programs; no number of their runs is infinite."""
    asked = {"freq": "2GHz", "workload": "w", "power_source": "meter"}
    numbers = import_runs(str(path), values=asked).select_dtypes("number")
    assert not np.isinf(numbers.to_numpy(dtype=float)).any()


def answers(path):
    ppw.project(ppw.read_runs(path), freq=3e9).summary()


def session(path):
    """Make rows of a sweep's folder: its plan, a blank line, its runs."""
    plan, _, rest = path.read_bytes().partition(b"\n\n")
    path.with_name("plan.json").write_bytes(plan)
    path.write_bytes(rest)
    samples = path.with_name("samples")
    if not samples.exists():
        samples.mkdir()
        (samples / "0000.csv").write_bytes(seeds.kept("samples")[0])
    session_table(Session.open(path.parent))


def trace(format, path):
    """Read traces, half of them by the format that they look like; their times ascend."""
    given = format if path.stat().st_size % 2 else None
    table = read_trace(path, format=given).to_table()
    assert np.all(np.diff(table["time_s"].to_numpy()) >= 0)


def time_series(path):
    """Read a log; nothing that is read is infinite, and its times ascend."""
    series = read_time_series(path, cpus=2)
    frame = series.frame
    series.summary()
    assert len(frame)
    assert frame["time_s"].is_monotonic_increasing
    assert not (frame["interval_s"] <= 0).any()
    for name in set(frame) - {"host", "marks", "cpu_accounting"}:
        assert not np.isinf(np.array(frame[name], dtype=float)).any(), name


def specpower(path):
    is_specpower(path)
    read_specpower(path)


def counters(path):
    _finite(read_counters(path).columns())


def memtier_totals(path):
    """Read a report of memtier_benchmark, whose old versions do not tell the longest."""
    figures = lg.read_memtier_totals(path)
    _finite({name: value for name, value in figures.items() if value == value or name != "max_s"})


def history(path):
    job = parse_history(Path(path).read_text(errors="replace"), str(path))
    job_columns(job)
    node_columns(job)


def power_log(path):
    with contextlib.closing(open_source(str(path), SourceSettings(options={"past": "yes"}))) as log:
        log.read()


def meter(data):
    """Read a power meter that says a line of these to every question."""
    lines = data.decode("utf-8", "replace").split("\n")

    class Said(Instrument):
        def __init__(self):
            self.name, self._device, self._timeout_s = "meter", None, 1.0

        def reopen(self): ...

        def _call_device(self, ask, query):
            return lines.pop(0) if lines else ""

    MeterSource(Said(), {}).read()


def redfish(data):
    """Find and read the figures of a chassis, its resources by their path."""
    try:
        documents = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(documents, dict):
        return

    def look(path):
        found = documents.get(path)
        return found if isinstance(found, dict) else None

    chassis = look("chassis") or {}
    for figure in (best_power(chassis, look), energy_counter(chassis, look)):
        if figure:
            figure.compute([look(path) or {} for path in figure.paths])


def sensor_records(data):
    for sensor in power_sensors(split_records(data)):
        for byte in (0, 1, 127, 128, 255):
            assert not math.isinf(sensor.watts(bytes([byte, 0x40, 0])))


def power_reading(data):
    if reading := parse_power_reading(data):
        assert isinstance(reading.problem, str)
        assert reading.window_s >= 0


def kernel(data):
    """Read a host with another text in one of its kernel's files, by its number."""
    host, files = _host()
    number, _, content = data.partition(b"\n")
    changed = files[int(number) % len(files) if number.isdigit() and len(number) < 9 else 0]
    before = changed.read_bytes()
    changed.write_bytes(content)
    looks = (
        lambda: read_state(host.sysfs, host.procfs, root=host.root),
        lambda: read_topology(host.sysfs),
        lambda: read_policies(host.sysfs, procfs=host.procfs),
        lambda: last_level_cache(host.sysfs, [0, 1]),
        lambda: available_memory(host.procfs, host.sysfs),
        lambda: memory_events(host.sysfs),
        lambda: Snapshot.take(host.procfs, host.sysfs),
    )
    try:
        for look in looks:
            with contextlib.suppress(MeasurementError):
                look()
    finally:
        changed.write_bytes(before)


@functools.cache
def _host():
    """A host whose kernel's files are copies, and those files."""
    from peers.sysfs_host import xeon

    root = _folder("host")
    return xeon(root), sorted(path for path in root.rglob("*") if path.is_file())


def _refusals(text, *parsers):
    """Parse it by each of them: every refusal is one line."""
    refusals = []
    for parse in parsers:
        try:
            parse(text)
        except OURS as error:
            refusals.append(str(error))
    for said in refusals:
        assert said.strip(), text
        assert "\n" not in said, said


def quantity(text):
    """Read a quantity of each kind: it is finite."""

    def finite(parse, *unit):
        return lambda text: _finite({text: parse(text, *unit)})

    kinds = (finite(parse_quantity, unit) for unit in ("s", "bytes", "w"))
    _refusals(text, finite(parse_frequency), *kinds)


def specs(text):
    """Read what names a sensor, a list of CPUs, a device or an address."""
    parse_event(text)
    _refusals(text, parse_specs, parse_cpu_list, parse_device, parse_origin, Address.parse)


def model(text):
    TraceModel.from_json(text).summary()


def saved(text):
    try:
        kind = json.loads(text)["kind"]
    except (ValueError, LookupError, TypeError, RecursionError):
        kind = None
    known = _kinds()
    result = known.get(str(kind), known["validation"]).from_json(text)
    assert isinstance(result.to_json(), str)


@functools.cache
def _kinds():
    """Every public result by the kind that its document says."""
    found = {}
    for one in (getattr(ppw, name) for name in ppw.__all__):
        if hasattr(one, "from_json"):
            try:
                one.from_json('{"schema_version": 1, "kind": "?"}')
            except PpwError as error:
                found[str(error).split("'")[-2]] = one
    return found


def calibrations(path):
    folder = path.parent / "calibrations"
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
    load_calibration("h", folder=path.parent).summary()


def command(words, seeds_, name="f.json", **more):
    """Target of a whole command; "{}" is its file, "{o}" a file beside it."""

    def run(path):
        said = [word.format(path, o=path.with_name("out")) for word in words.split()]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main.main(said, prog_name="ppw", standalone_mode=False)

    return file(name, run, seeds_, where="", longest=9000, **more)


def arguments(data):
    """Parse a command line, an argument a line, up to where its command would begin."""
    words = data.decode("utf-8", "surrogateescape").replace("\0", "").split("\n")
    said = io.StringIO()
    with (
        mock.patch.object(click.Command, "invoke", return_value=None),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        main.main(words, prog_name="ppw", standalone_mode=False)


# Inputs in each run of the tests, where a reader is too slow for all: half a second's.
FEW, SOME, MORE = 200, 700, 2000
TRACES = dict.fromkeys(("msr", "spc", "iolog-2", "iolog-3", "mqsim", "etw", "csv"), SOME)
TRACES |= {"blkparse": FEW, "blktrace": SOME, "vscsi-1": MORE, "vscsi-2": MORE}
LOGS = {"collectl": FEW, "sadf-json": SOME, "sadf-csv": SOME, "pcp": FEW, "perf": SOME}
LOGS |= {"ppw-csv": SOME, "ppw-lines": MORE, "sar": SOME, "iostat": SOME, "vmstat": SOME}
_of = functools.partial
MODELS, CONVERT = _of(seeds.saved, "trace_model"), "trace convert {} --target t -o {o} --to "
HISTORIES = _of(seeds.files, "hadoop", "*.jhist")

TARGETS = {
    "runs-csv": file("r.csv", runs, often=FEW),
    "runs-lines": file("r.jsonl", runs, often=SOME),
    "runs-parquet": file("r.pq", runs, lambda: [seeds.parquet()], often=SOME, longest=9000),
    "imports": file("f", imported, seeds.imported, often=SOME),
    "answers": file("r.csv", answers, where="", often=10),
    "samples": file("s.csv", read_samples),
    "session": file("runs.jsonl", session, where="ppw-fuzz-", often=4000),
    **{f"trace-{name}": file("t", _of(trace, name), often=n) for name, n in TRACES.items()},
    "trace-parquet": file("t", _of(trace, None), seeds.own_trace, often=SOME, longest=9000),
    **{f"log-{kind}": file("log", time_series, often=n, longest=5000) for kind, n in LOGS.items()},
    "specpower": file("p.html", specpower, often=FEW, longest=4000),
    "perf": file("c.txt", counters, _of(seeds.files, "perf", longest=2000), often=SOME),
    "callgrind": file("c.out", lambda path: read_callgrind([path])),
    "qemu": file("q.out", read_qemu),
    "fio": file("f.json", lambda path: _finite(fio.read_report(path, "read"))),
    "memcaslap": file("m.txt", lambda p: lg.read_memcaslap_totals(p).histogram.percentile(0.99)),
    "memtier": file("m.json", memtier_totals),
    "paced": file("p.txt", lambda path: lg.read_paced_totals(path).latency.percentile(0.99)),
    "hadoop-history": file("j.jhist", history, HISTORIES, often=MORE, longest=12000),
    "hadoop-log": file("l.log", read_local_log, seeds.local_log, often=MORE),
    "hadoop-nodes": file("n.csv", read_nodes),
    "power-log": file("w.csv", power_log, often=SOME),
    "meter": Target(meter),
    "redfish": Target(redfish),
    "ipmi-records": Target(sensor_records, seeds.sensor_records),
    "ipmi-reading": Target(power_reading, seeds.power_reading),
    "kernel": Target(kernel, often=40),
    "quantities": Target(text(quantity)),
    "specs": Target(text(specs)),
    "host": Target(
        lambda data: [h.summary() for h in parse_hosts(data, "h.toml")], seeds.hosts, where="h.toml"
    ),
    "host-json": Target(text(lambda said: Host.from_json(said).summary()), seeds.saved_hosts),
    "scenario": file("s.toml", read_scenario, seeds.scenarios, often=MORE, longest=8000),
    "thresholds": file("t.toml", lambda path: read_thresholds(path).to_frame()),
    "saved": Target(text(saved), seeds.saved, often=FEW, longest=6000),
    "trace-model": Target(text(model), MODELS, often=SOME, longest=9000),
    "convert-fio": command(CONVERT + "fio-job", MODELS, often=SOME),
    "convert-diskspd": command(CONVERT + "diskspd", MODELS, often=SOME),
    "generate": command("trace generate {} --duration 1s -o {o}.csv", MODELS, often=40),
    "rightsize": command("rightsize {}", _of(seeds.kept, "log-ppw-csv"), "log", often=FEW),
    "colocate": command("colocate a={} b={}", _of(seeds.kept, "log-collectl"), "log", often=FEW),
    "pressure": command("pressure {}", _of(seeds.kept, "log-perf"), "log", often=FEW),
    "calibrations": file("h.json", calibrations, seeds.calibrations, often=SOME),
    "fleet-state": file("manifest.json", lambda p: FleetState.open(p.parent).layout_by()),
    "arguments": Target(arguments, seeds.command_lines, often=SOME, more_words=seeds.options),
}
TARGETS = {
    name: target if target.seeds else replace(target, seeds=_of(seeds.kept, name))
    for name, target in TARGETS.items()
}
