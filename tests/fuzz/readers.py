"""The readers as they are fuzzed: each takes a path, a text or bytes, and looks at the answer."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import seeds

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_NUMBERS = ("host", "marks", "cpu_accounting")


def runs(path: Path) -> None:
    """Read runs; nothing that is read is infinite."""
    from measurements.runs import read_runs
    from measurements.schema import COLUMNS

    table = read_runs(path)
    for name in table:
        if name in COLUMNS and COLUMNS[name].kind != "text":
            assert table[name].dtype == np.float64, name
            assert not np.isinf(table[name]).any(), name


def answers(path: Path) -> None:
    """Answer runs with projections, all metrics at once."""
    import ppw

    ppw.project_runs(ppw.read_runs(path), freq=3e9).summary()


def samples(path: Path) -> None:
    """Read raw readings."""
    from measurements.sampling import read_samples

    read_samples(path)


def session(path: Path) -> None:
    """Make rows of a sweep's folder: its plan, a blank line, its runs."""
    from measurements.run_rows import session_table
    from measurements.session import Session

    plan, _, rest = path.read_bytes().partition(b"\n\n")
    path.with_name("plan.json").write_bytes(plan)
    path.write_bytes(rest)
    samples = path.with_name("samples")
    if not samples.exists():
        samples.mkdir()
        (samples / "0000.csv").write_text(seeds.SAMPLES)
    session_table(Session.open(path.parent))


def trace(format: str | None) -> Callable[[Path], None]:
    """Read traces of a format; their times ascend."""
    from measurements.traces import read_trace

    def read(path: Path) -> None:
        # Half of them by the format that they look like.
        given = format if path.stat().st_size % 2 else None
        table = read_trace(path, format=given).to_table()
        assert np.all(np.diff(table["time_s"].to_numpy()) >= 0)

    return read


def time_series(path: Path) -> None:
    """Read a log; nothing that is read is infinite, and its times ascend."""
    from measurements.timeseries import read_time_series

    series = read_time_series(path, cpus=2)
    frame = series.frame
    series.summary()
    assert len(frame)
    assert frame["time_s"].is_monotonic_increasing
    assert not (frame["interval_s"] <= 0).any()
    for name in frame:
        if name not in NOT_NUMBERS:
            assert not np.isinf(np.array(frame[name], dtype=float)).any(), name


def specpower(path: Path) -> None:
    """Read published results and tabulate them."""
    from measurements.specpower import is_specpower, read_specpower, specpower_table

    is_specpower(path)
    specpower_table(read_specpower(path))


def counters(path: Path) -> None:
    """Read counts of perf."""
    from measurements.perf.command import read_counters

    for value in read_counters(path).columns().values():
        assert isinstance(value, str) or math.isfinite(value)


def callgrind(path: Path) -> None:
    """Read counts of callgrind."""
    from measurements.instruction_counts import read_callgrind

    read_callgrind([path])


def qemu(path: Path) -> None:
    """Read counts of QEMU's plugin."""
    from measurements.instruction_counts import read_qemu

    read_qemu(path)


def fio(path: Path) -> None:
    """Read a report of fio."""
    from measurements.workloads.fio_report import read_report

    _finite(read_report(path, "read"))


def memcaslap(path: Path) -> None:
    """Read what memcaslap printed."""
    from measurements.workloads.memcached.memcaslap import read_totals

    read_totals(path).histogram.percentile(0.99)


def memtier(path: Path) -> None:
    """Read a report of memtier_benchmark."""
    from measurements.workloads.memcached.memtier import read_totals

    figures = read_totals(path)
    # Old versions do not tell the longest.
    _finite({name: value for name, value in figures.items() if value == value or name != "max_s"})


def paced(path: Path) -> None:
    """Read what ppw's own client printed."""
    from measurements.workloads.memcached.paced import read_totals

    read_totals(path).latency.percentile(0.99)


def history(path: Path) -> None:
    """Read a job history and compute the figures of its job."""
    from measurements.workloads.hadoop.figures import job_columns, node_columns
    from measurements.workloads.hadoop.history import read_history

    job = read_history(path)
    job_columns(job)
    node_columns(job)


def local_log(path: Path) -> None:
    """Read a log of Hadoop's local runner."""
    from measurements.workloads.hadoop.local_log import read_local_log

    read_local_log(path)


def nodes(path: Path) -> None:
    """Read a table of nodes."""
    from measurements.workloads.hadoop.nodes import read_nodes

    read_nodes(path)


def power_log(path: Path) -> None:
    """Read a power log from its beginning."""
    from measurements.power.power_log import open_source
    from measurements.power.protocol import SourceSettings

    with contextlib.closing(open_source(str(path), SourceSettings(options={"past": "yes"}))) as log:
        log.read()


def meter(data: bytes) -> None:
    """Read a power meter that says a line of these to every question."""
    from measurements.power.meter import MeterSource
    from measurements.power.visa_instrument import Instrument

    lines = data.decode("utf-8", "replace").split("\n")

    class Said(Instrument):
        def __init__(self) -> None:
            self.name, self._device, self._timeout_s = "meter", None, 1.0

        def reopen(self) -> None: ...

        def _tried(self, ask: Any, query: str) -> Any:
            return lines.pop(0) if lines else ""

    MeterSource(Said(), {}).read()


def redfish(data: bytes) -> None:
    """Find and read the figures of a chassis, its resources by their path."""
    from measurements.power.redfish_figures import best_power, energy_counter

    try:
        documents = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(documents, dict):
        return

    def look(path: str) -> Any:
        found = documents.get(path)
        return found if isinstance(found, dict) else None

    chassis = look("chassis") or {}
    for figure in (best_power(chassis, look), energy_counter(chassis, look)):
        if figure:
            figure.now(look)


def sensor_records(data: bytes) -> None:
    """Find power sensors in a dump of sensor data records, and read them."""
    from measurements.power.ipmi_sdr import power_sensors, split_records

    for sensor in power_sensors(split_records(data)):
        for byte in (0, 1, 127, 128, 255):
            value = sensor.watts(bytes([byte, 0x40, 0]))
            assert not math.isinf(value)


def power_reading(data: bytes) -> None:
    """Read a reply to Get Power Reading."""
    from measurements.power.ipmi_dcmi import parse_power_reading

    if reading := parse_power_reading(data):
        assert isinstance(reading.problem, str)
        assert reading.window_s >= 0


def kernel(data: bytes) -> None:
    """Read a host with another text in one of its kernel's files, by its number."""
    from measurements.cpufreq import read_policies
    from measurements.host.snapshot import Snapshot
    from measurements.host_state import read_state
    from measurements.memory_counters import memory_events
    from measurements.memory_sizes import available_memory, last_level_cache
    from measurements.placement import read_topology

    host, files = _host()
    number, _, content = data.partition(b"\n")
    changed = files[int(number) % len(files) if number.isdigit() and len(number) < 9 else 0]
    before = changed.read_bytes()
    changed.write_bytes(content)
    looks: tuple[Callable[[], object], ...] = (
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
def _host() -> tuple[Any, list[Path]]:
    """A host whose kernel's files are copies, and those files."""
    import tempfile

    from peers.sysfs_host import xeon

    root = Path(tempfile.mkdtemp(prefix="ppw-fuzz-"))
    return xeon(root), sorted(path for path in root.rglob("*") if path.is_file())


def quantity(text: str) -> None:
    """Read a quantity of each kind."""
    from measurements.quantities import parse_frequency, parse_quantity

    refusals = []
    for parse in (
        parse_frequency,
        *(lambda t, u=u: parse_quantity(t, u) for u in ("s", "bytes", "w")),
    ):
        try:
            assert math.isfinite(parse(text))
        except ValueError as error:
            refusals.append(str(error))
    for said in refusals:
        assert said.strip(), text
        assert "\n" not in said, said


def specs(text: str) -> None:
    """Read what names a sensor, a list of CPUs, a device or an address."""
    from measurements.cpu_lists import parse_cpu_list
    from measurements.perf.events import parse_event
    from measurements.power.redfish_origin import parse_origin
    from measurements.power.registry import parse_specs
    from measurements.workloads.memcached.protocol import Address
    from ppw.errors import PpwError
    from ppw.traces.devices import parse_device

    parse_event(text)
    refusals = []
    for parse in (parse_specs, parse_cpu_list, parse_device, parse_origin, Address.parse):
        try:
            parse(text)
        except (MeasurementError, PpwError) as error:
            refusals.append(str(error))
    for said in refusals:
        assert said.strip(), text
        assert "\n" not in said, said


def host(data: bytes) -> None:
    """Read a machine of the catalogue."""
    from ppw.host_files import parse_host

    parse_host(data, "h.toml").summary()


def host_json(text: str) -> None:
    """Read a machine that was saved."""
    from ppw.host import Host

    Host.from_json(text).summary()


def scenario(path: Path) -> None:
    """Read a scenario of a procurement."""
    from ppw.procurement.scenario import read_scenario

    read_scenario(path)


def thresholds(path: Path) -> None:
    """Read thresholds."""
    from ppw.pressure.thresholds import read_thresholds

    read_thresholds(path).to_frame()


def saved(text: str) -> None:
    """Read a saved result of whichever kind it says."""
    try:
        kind = json.loads(text)["kind"]
    except (ValueError, LookupError, TypeError, RecursionError):
        kind = None
    known = _kinds()
    result = known.get(str(kind), known["validation"]).from_json(text)
    assert isinstance(result.to_json(), str)


@functools.cache
def _kinds() -> dict[str, Any]:
    """Every public result by the kind that its document says."""
    import ppw

    found = {}
    for one in (getattr(ppw, name) for name in ppw.__all__):
        if hasattr(one, "from_json"):
            try:
                one.from_json('{"schema_version": 1, "kind": "?"}')
            except ppw.PpwError as error:
                found[str(error).split("'")[-2]] = one
    return found


def trace_model(text: str) -> None:
    """Read a saved model of a trace."""
    from ppw.traces.model import TraceModel

    TraceModel.from_json(text).summary()


def calibrations(path: Path) -> None:
    """Read the calibrations kept of a host."""
    from ppw.calibration_store import load_calibration

    folder = path.parent / "calibrations"
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
    load_calibration("h", folder=path.parent).summary()


def fleet_state(path: Path) -> None:
    """Open the state of a fleet."""
    from ppw.fleet.state import FleetState

    state = FleetState.open(path.parent)
    state.layout_by()


def arguments(data: bytes) -> None:
    """Parse a command line, an argument a line, up to where its command would begin."""
    import click

    from ppw.cli import main

    words = data.decode("utf-8", "surrogateescape").replace("\0", "").split("\n")
    said = io.StringIO()
    invoke, click.Command.invoke = click.Command.invoke, lambda self, ctx: None
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main.main(words, prog_name="ppw", standalone_mode=False)
    finally:
        click.Command.invoke = invoke


def _finite(row: dict[str, Any]) -> None:
    for name, value in row.items():
        assert value is None or isinstance(value, str) or math.isfinite(value), name
