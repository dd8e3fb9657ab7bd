"""`measure`: from a command on a host to a runs table, whatever the host can and cannot tell.

The host is this one, or by ``--ssh`` another: a ppw there does the same sweep, and its runs are
kept here.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measurements
from measurements.counters.command import check_perf
from measurements.errors import MeasurementError
from measurements.host import conditions, files
from measurements.host.frequency_control import FrequencyControl
from measurements.power import credentials, sampler, source
from measurements.sweep import loop, session as ses
from measurements.table.units import frequency_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

# What may be asked for with certainty; the rest is measured where it can be.
METRICS = ("time", "cpi", "power")
# Sources that are tried where none is named, the first that opens is taken.
_LOCAL_POWER = ("rapl", "ipmi", "hwmon@power_meter")


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """How this host is measured and set."""

    # Sources with commas, such as "rapl,ipmi@bmc"; None for what this host has; or "none".
    power: str | None = None
    # What must be measurable; the rest is measured where it can be.
    metrics: tuple[str, ...] = METRICS
    as_found: bool = False  # leave the core frequency alone
    turbo: bool | None = None  # switch turbo on or off; None leaves it as it is
    # Time between readings, and for a device to answer (s).
    interval_s: float = 0.1
    timeout_s: float = 10.0
    sysfs: str = "/sys"
    procfs: str = "/proc"


@dataclass
class Measuring:
    """A sweep that is set up: what it will do, and the table it writes. Made by `set_up`."""

    sweep: loop.MeasuredSweep
    output: Path
    host: HostOptions

    def rows(self) -> Iterator[dict[str, Any]]:
        """Measure; yields each run's row when it and all before it are in the table's file.

        Raises `MeasurementError` at the end where power was asked for and no run has it.
        """
        for row in self.sweep.run():
            measurements.write_runs(self.table(), self.output)
            yield row
        table = self.table()
        measurements.write_runs(table, self.output)
        if "power" in self.host.metrics and "power_w" not in table and len(table):
            notes = table["notes"].iloc[-1] if "notes" in table else "its source gave no figure"
            raise MeasurementError(
                f"no run has power: {notes}; the rows are kept in {self.output}: measure with "
                "another --power, or without power by --metric time"
            )

    def left(self) -> int:
        """Count the runs that are still to do."""
        return len(loop.order_of(self.sweep.options)) - len(self.earlier())

    def earlier(self) -> list[dict[str, Any]]:
        """Make the rows of the runs so far."""
        return ses.session_rows(self.sweep.session)

    def table(self) -> pd.DataFrame:
        """Make the runs table of all runs so far."""
        return ses.session_table(self.sweep.session)


@contextmanager
def set_up(
    options: loop.SweepOptions,
    host: HostOptions,
    output: Path,
    *,
    resume: bool = False,
    probe_memory: bool = False,
    tell: Callable[[str], None] = print,
) -> Iterator[Measuring]:
    """Open all that a sweep needs, and say what cannot be measured; close it when left."""
    folder, session = folder_and_session(output, resume=resume)
    if session is not None:
        options, host = _options_as_planned(session, options, host)
    elif not options.command:
        raise MeasurementError(
            f"{folder}: the sweep was ended before its plan was written: give its frequencies and "
            "its command again"
        )
    missing: list[str] = []
    with ExitStack() as stack:
        machine = open_machine(host, options.frequencies, options.cores, counters=options.counters)
        stack.callback(machine.close)
        if machine.no_counters is not None:
            refuse_or_note("cpi", machine.no_counters, host, missing)
        sampling = open_sampling(host, missing)
        stack.callback(sampling.close)
        stack.enter_context(ses.lock_session(folder))
        if session is None:
            probed = _probe_columns(host, tell) if probe_memory else {}
            session = ses.Session.create(
                folder, session_plan(options, host, sampling) | {"memory": probed}
            )
        elif session.plan["channels"] != sampled_channels(sampling):
            raise MeasurementError(
                f"{folder}: was measured with other power sources than this host has now: give "
                "the same ones, or another folder"
            )
        for text in missing:
            tell(f"not measured here: {text}")
        if options.frequencies and host.turbo is None and machine.turbo:
            tell(
                "turbo is on and may raise the frequency above the highest step, so that step is "
                "not one frequency: give --turbo off, or leave it out"
            )
        for channel in sampling.channels:
            if channel.note:
                tell(f"{channel.label}: {channel.note}")
        sweep = loop.MeasuredSweep(session, machine, sampling, tell, options)
        yield Measuring(sweep, output, host)


def folder_and_session(output: Path, *, resume: bool) -> tuple[Path, ses.Session | None]:
    """Find the folder of a table's raw readings, and the session in it that goes on."""
    folder = loop.default_folder(output)
    ses.check_writable(output)
    if resume and ses.ended_before_plan(folder):
        (folder / "plan.json").unlink(missing_ok=True)
        return folder, None
    if resume:
        return folder, ses.Session.open(folder)
    # Without its table, what is there are the raw readings of a sweep.
    taken = [path for path in (output, folder / "plan.json") if path.exists()]
    if taken:
        there = output if output in taken else folder
        raise MeasurementError(
            f"{there}: exists already: continue with --resume, or give another file with -o"
        )
    return folder, None


def open_machine(
    host: HostOptions, frequencies: Sequence[float], cores: Sequence[int] = (), **more: Any
) -> loop.Machine:
    """Open the host as its options say; see `measurements.sweep.loop.Machine.open`."""
    sysfs, procfs = Path(host.sysfs), Path(host.procfs)
    shared: dict[str, Any] = {"frequencies": frequencies, "cores": cores, "turbo": host.turbo}
    return loop.Machine.open(sysfs=sysfs, procfs=procfs, **shared, **more)


def _probe_columns(host: HostOptions, tell: Callable[[str], None]) -> dict[str, float]:
    from measurements.host.memory_probe import probe_memory

    probe = probe_memory(sysfs=Path(host.sysfs), procfs=Path(host.procfs))
    for note in probe.notes:
        tell(note)
    return probe.to_columns()


def open_sampling(host: HostOptions, missing: list[str]) -> sampler.Sampling:
    """Open the power sources asked for, else the first of this host, or say what is ``missing``."""
    if host.power == "none":
        if "power" in host.metrics:
            raise MeasurementError("--power none measures no power: leave it out of --metric")
        missing.append("power: no power source was given")
        return _start_sampling(host, [])
    if host.power is not None:
        return _start_sampling(host, source.parse_specs(host.power))
    reasons = []
    for text in _LOCAL_POWER:
        try:
            return _start_sampling(host, source.parse_specs(text))
        except source.SensorError as error:
            reasons.append(f"{text}: {error}")
    refuse_or_note("power", "; ".join(reasons), host, missing)
    return _start_sampling(host, [])


def _start_sampling(host: HostOptions, specs: Sequence[source.Spec]) -> sampler.Sampling:
    return sampler.Sampling.open(
        specs,
        interval_s=host.interval_s,
        sysfs=Path(host.sysfs),
        procfs=Path(host.procfs),
        timeout_s=host.timeout_s,
        logins=credentials.logins_for(specs),
    )


def refuse_or_note(metric: str, reason: str, host: HostOptions, missing: list[str]) -> None:
    """Refuse to measure without a metric that was asked for; note one that was not."""
    if metric in host.metrics:
        rest = ",".join(m for m in host.metrics if m != metric)
        raise MeasurementError(
            f"{metric} cannot be measured here: {reason}; to measure without it, --metric {rest}"
        )
    missing.append(f"{metric}: {reason}")


def session_plan(options: Any, host: HostOptions, sampling: sampler.Sampling) -> dict[str, Any]:
    """Make the plan of a new session from the options of a sweep, a data class, and the host's."""
    names = ("host", "family", "workload", "data_bytes", "price")
    return {
        **{name: getattr(options, name, None) for name in names},
        "options": asdict(options),
        "host_options": asdict(host),
        "channels": sampled_channels(sampling),
    }


def sampled_channels(sampling: sampler.Sampling) -> list[dict[str, Any]]:
    """List the channels that are sampled, as a session's plan keeps them."""
    return [sampler.channel_as_json(channel) for channel in sampling.channels]


def _options_as_planned(
    session: ses.Session, options: loop.SweepOptions, host: HostOptions
) -> tuple[loop.SweepOptions, HostOptions]:
    """Return the options of the sweep that goes on; those given must be its own."""
    planned = _rebuild_options(loop.SweepOptions, session.plan["options"])
    planned_host = _rebuild_options(HostOptions, session.plan["host_options"])
    if not options.command:
        return planned, planned_host
    for given, known in ((options, planned), (host, planned_host)):
        for field in fields(given):
            one, other = getattr(given, field.name), getattr(known, field.name)
            if one != other and field.name not in ("repeats", "frequencies", "cores"):
                raise MeasurementError(
                    f"{session.folder}: {field.name.replace('_', ' ')} was {_option_text(other)} "
                    f"and is {_option_text(one)} now: give the same value, or only --resume and -o"
                )
    return options, host


def _rebuild_options(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _option_text(value: object) -> str:
    return shlex.join(value) if isinstance(value, tuple) and value else json.dumps(value)


def dry_run(options: loop.SweepOptions, host: HostOptions) -> list[str]:
    """Say what a sweep would do, one line each; nothing is written or started."""
    machine = open_machine(
        host, options.frequencies, options.cores, counters=options.counters, dry_run=True
    )
    written = [] if machine.control is None else machine.control.writes
    lines = [f"write {value} to {path}" for path, value in written]
    try:
        for number, step in enumerate(loop.order_of(options)):
            lines += [f"write {value} to {path}" for path, value in machine.writes(step.freq_hz)]
            lines.append(f"run {number}: {shlex.join(options.command)} at {step.text()}")
    finally:
        machine.close()
    return lines


# What this host can measure and set, and why not the rest.


@dataclass(frozen=True, slots=True)
class HostSensor:
    """One thing that may be measured or set."""

    name: str  # as `ppw measure --power` takes it, or "counters", "clock", "temperature"
    available: bool | None  # None where it takes an address to know
    detail: str  # what it tells; where it is not available the reason and the remedy


def find_sensors(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> list[HostSensor]:
    """Try each source of power and counters; list what works and why the others do not."""
    settings = source.SourceSettings(sysfs=sysfs, procfs=procfs)
    return [
        *(_try_power(name, kind, settings) for name, kind in source.KINDS.items()),
        _try_counters(sysfs, procfs),
        _try_frequency_control(sysfs, procfs),
        _try_temperature_sensor(sysfs),
    ]


def _try_power(name: str, kind: source.Driver, settings: source.SourceSettings) -> HostSensor:
    if kind.needs_address:
        options = importlib.import_module(f"measurements.power.{kind.module}").OPTIONS
        said = f"{name}@ADDRESS[,OPTION=VALUE…]: {kind.meaning}; options {', '.join(options)}"
        return HostSensor(name, None, said)
    try:
        opened = source.open_source(source.parse_spec(name), settings)
    except MeasurementError as error:
        return HostSensor(name, False, str(error))
    try:
        texts = [c.label + f" ({c.note})" * bool(c.note) for c in opened.channels]
        return HostSensor(name, True, ", ".join(texts))
    finally:
        opened.close()


def _try_counters(sysfs: Path, procfs: Path) -> HostSensor:
    support = check_perf(sysfs=sysfs, procfs=procfs)
    if support.counters is not None and support.hardware:
        reasons = "".join(f"; not {reason}" for reason in support.reasons)
        return HostSensor("counters", True, ", ".join(support.counters.events) + reasons)
    return HostSensor("counters", False, "; ".join(support.reasons))


def _try_frequency_control(sysfs: Path, procfs: Path) -> HostSensor:
    try:
        with FrequencyControl.open(sysfs=sysfs, procfs=procfs, dry_run=True) as control:
            steps = control.steps()
            drivers = ", ".join(sorted({policy.driver for policy in control.policies}))
    except MeasurementError as error:
        return HostSensor("clock", False, str(error))
    if steps.steps_hz:
        text = ", ".join(map(frequency_text, steps.steps_hz))
    else:
        text = f"{frequency_text(steps.lowest_hz)} to {frequency_text(steps.highest_hz)}"
    return HostSensor("clock", True, f"{drivers}: {text}")


def _try_temperature_sensor(sysfs: Path) -> HostSensor:
    now_c = conditions.package_temperature_c(sysfs)
    none = "this host has no sensor of the processor's temperature"
    is_there = now_c is not None
    return HostSensor("temperature", is_there, f"{now_c:g} °C now" if is_there else none)


# A sweep of that host is kept there, below the name $0, until it is whole and has been fetched.
_FOLDER = 'folder="${XDG_CACHE_HOME:-$HOME/.cache}/ppw/$0"'


def remote_command(host: str, script: str, *words: str) -> list[str]:
    """Make the command that runs a script of ours on ``host``, with ``words`` as $0, $1 and so on.

    Every command for another host is made here: the script is a constant, and what users wrote is
    in ``words``, which no shell expands. Raises `MeasurementError` for a host that is an option.
    """
    if not host or host.startswith("-"):
        raise MeasurementError(f"--ssh {host}: no name of a host: give HOST or USER@HOST")
    return ["ssh", "-T", "--", host, shlex.join(["sh", "-c", f"{_FOLDER}; {script}", *words])]


def measure_on(host: str, arguments: Sequence[str], output: str | None) -> int:
    """Measure on ``host`` as the arguments say; write its table here and fetch its readings."""
    if not output or output == "-":
        raise MeasurementError("--ssh needs -o FILE for the table on this host")
    target = Path(output)
    ses.check_writable(target)
    text = f"{socket.gethostname()}:{target.resolve()}"
    name = f"{target.stem}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    asked = ("ppw", "measure", "-o", "runs.jsonl", "--stream", *_passed_on(arguments))
    script = 'mkdir -p "$folder" && cd "$folder" && exec "$@"'
    command = remote_command(host, script, name, *asked)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as remote:  # nosec B603  # remote_command quotes
        code = _keep_rows(remote, target)
    if code == 255:
        raise MeasurementError(
            f"ssh {host}: no connection, or the connection was lost: continue with --resume"
        )
    if code == 127:
        raise MeasurementError(f"{host} has no ppw: install it there (pip install perf-per-watt)")
    _fetch_readings(host, name, target)
    if code == 0:
        subprocess.run(remote_command(host, 'rm -r "$folder"', name), check=False)  # nosec B603  # remote_command quotes
    return code


def _keep_rows(remote: subprocess.Popen[bytes], target: Path) -> int:
    """Write the table anew after each row that arrives; the exit code of the other ppw."""
    import pandas as pd

    assert remote.stdin is not None
    assert remote.stdout is not None
    rows: list[dict[str, Any]] = []
    try:
        for line in remote.stdout:
            try:
                rows.append(json.loads(line))
            except ValueError:
                # A greeting of the other host's shell is no row.
                sys.stderr.write(line.decode(errors="replace"))
            else:
                measurements.write_runs(pd.DataFrame(rows), target)
    except BaseException:
        # The other ppw ends when its input does, and puts back what it changed.
        remote.stdin.close()
        remote.wait(timeout=30)
        raise
    return remote.wait()


def _fetch_readings(host: str, name: str, target: Path) -> None:
    """Bring the raw readings here."""
    here = loop.default_folder(target)
    command = remote_command(host, 'tar -C "$folder" -cf - runs.samples', name)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as remote:  # nosec B603  # remote_command quotes
        assert remote.stdout is not None
        try:
            with tarfile.open(fileobj=remote.stdout, mode="r|") as archive:
                for member in archive:
                    _extract(archive, member, here)
        except tarfile.TarError as error:
            raise MeasurementError(
                f"{host}: the raw readings could not be fetched: {error}"
            ) from error


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a plain file of the archive below ``folder``; nothing else, and nowhere else."""
    parts = Path(member.name).parts[1:]
    content = archive.extractfile(member) if member.isfile() else None
    if content is None or not parts or ".." in parts:
        return
    target = folder.joinpath(*parts)
    files.make_folder(target.parent)
    with files.open_for_writing(target, private=True) as file:
        shutil.copyfileobj(content, file)


def _passed_on(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of this `ppw measure` without those for this side."""
    kept: list[str] = []
    rest = iter(list(arguments)[list(arguments).index("measure") + 1 :])
    for argument in rest:
        if argument == "--":
            return [*kept, "--", *rest]
        if argument in ("--ssh", "-o", "--output"):
            next(rest, None)
        elif not argument.startswith(("--ssh=", "--output=", "-o")):
            kept.append(argument)
    return kept


def end_with_input() -> None:
    """Interrupt this process when its standard input ends: whoever asked for it is gone."""

    def watch() -> None:
        # Not through sys.stdin, whose lock the end of the interpreter would wait for.
        while os.read(0, 4096):
            continue
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
