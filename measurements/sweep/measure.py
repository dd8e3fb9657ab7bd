"""`measure`: from a command on this host to a runs table, whatever the host can and cannot tell."""

from __future__ import annotations

import json
import shlex
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.counters.command import check_perf
from measurements.errors import MeasurementError
from measurements.host.conditions import package_temperature_c
from measurements.host.frequency_control import FrequencyControl
from measurements.power.sampler import Sampling
from measurements.power.source import (
    KINDS,
    SensorError,
    SourceSettings,
    open_source,
    parse_spec,
    parse_specs,
)
from measurements.sweep.loop import MeasuredSweep, SweepOptions, default_folder, order_of
from measurements.sweep.machine import Machine
from measurements.sweep.rows import session_rows, session_table
from measurements.sweep.session import Session, check_writable
from measurements.table.units import frequency_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from measurements.host.core_frequencies import FrequencyRange
    from measurements.power.source import Spec


# What may be asked for with certainty; the rest is measured where it can be.
METRICS = ("time", "cpi", "power")
# Sources that are tried where none is named, the first that opens is taken.
_LOCAL_POWER = ("rapl", "ipmi", "hwmon@power_meter")


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """How this host is measured and set.

    Attributes
    ----------
    power : str or None
        Sources with commas, such as "rapl,ipmi@bmc"; None for what this host has; "none".
    metrics : tuple of str
        What must be measurable; the rest is measured where it can be.
    as_found : bool
        Leave the clock alone.
    turbo : bool or None
        Switch turbo on or off; None leaves it as it is.
    interval_s, timeout_s : float
        Between readings, and for a device to answer.
    sysfs, procfs : str
    """

    power: str | None = None
    metrics: tuple[str, ...] = METRICS
    as_found: bool = False
    turbo: bool | None = None
    interval_s: float = 0.1
    timeout_s: float = 10.0
    sysfs: str = "/sys"
    procfs: str = "/proc"


@dataclass
class Measuring:
    """A sweep that is set up: what it will do, and the table it writes.

    Use as a context manager: leaving it puts back what was changed on the host.
    """

    sweep: MeasuredSweep
    machine: Machine
    sampling: Sampling
    output: Path
    missing: tuple[str, ...]

    def __enter__(self) -> Measuring:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Put back what was changed, and end the sampling."""
        try:
            self.machine.close()
        finally:
            self.sampling.close()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Measure; yields each run's row when it and all before it are in the table's file."""
        from measurements import write_runs

        for row in self.sweep.run():
            write_runs(self.table(), self.output)
            yield row
        write_runs(self.table(), self.output)

    def left(self) -> int:
        """How many runs are still to do."""
        return len(order_of(self.sweep.options)) - len(self.earlier())

    def earlier(self) -> list[dict[str, Any]]:
        """Rows of the runs so far."""
        return session_rows(self.sweep.session)

    def table(self) -> pd.DataFrame:
        """Runs table of all runs so far."""
        return session_table(self.sweep.session)


def set_up(
    options: SweepOptions,
    host: HostOptions,
    output: Path,
    *,
    resume: bool = False,
    probe_memory: bool = False,
    tell: Callable[[str], None] = print,
) -> Measuring:
    """Open all that a sweep needs, and say what cannot be measured.

    Raises
    ------
    MeasurementError, SensorError
        When what was asked for cannot be measured, set or written.
    MeasurementError
        When a sweep that goes on is another one.
    """
    folder, session = folder_and_session(output, resume=resume)
    if session is not None:
        options, host = _as_planned(session, options, host)
    missing: list[str] = []
    machine = _open_machine(options, host)
    try:
        if machine.no_counters is not None:
            refuse_or_note("cpi", machine.no_counters, host, missing)
        sampling = open_sampling(host, missing)
    except BaseException:
        machine.close()
        raise
    try:
        if session is None:
            probed = _probe_columns(host, tell) if probe_memory else {}
            session = Session.create(folder, _plan(options, host, sampling) | {"memory": probed})
        elif session.plan["channels"] != sampled_channels(sampling):
            raise MeasurementError(
                f"{folder}: was measured with other power sources than there are now"
            )
        for text in missing:
            tell(f"not measured here: {text}")
        if options.frequencies and host.turbo is None and machine.turbo:
            tell(
                "turbo is on and may lift the clock above the highest step, which is then not one "
                "clock: --turbo off, or leave that step out"
            )
        for channel in sampling.channels:
            if channel.note:
                tell(f"{channel.label}: {channel.note}")
        sweep = MeasuredSweep(options, session, machine, sampling, tell)
    except BaseException:
        machine.close()
        sampling.close()
        raise
    return Measuring(sweep, machine, sampling, output, tuple(missing))


def folder_and_session(output: Path, *, resume: bool) -> tuple[Path, Session | None]:
    """Folder of a table's raw readings, and the session in it that goes on.

    Raises
    ------
    MeasurementError
        When the table cannot be written, or there is nothing to go on with.
    MeasurementError
        When the table of a new sweep is there already.
    """
    folder = default_folder(output)
    check_writable(output)
    if resume:
        return folder, Session.open(folder)
    if output.exists() or (folder / "plan.json").exists():
        raise MeasurementError(
            f"{output}: is there already: go on with --resume, or give another -o"
        )
    return folder, None


def _open_machine(options: SweepOptions, host: HostOptions, *, dry_run: bool = False) -> Machine:
    return Machine.open(
        frequencies=options.frequencies,
        cores=options.cores,
        turbo=host.turbo,
        counters=options.counters,
        sysfs=Path(host.sysfs),
        procfs=Path(host.procfs),
        dry_run=dry_run,
    )


def _probe_columns(host: HostOptions, tell: Callable[[str], None]) -> dict[str, float]:
    from measurements.host.memory_probe import probe_memory

    probe = probe_memory(sysfs=Path(host.sysfs), procfs=Path(host.procfs))
    for note in probe.notes:
        tell(note)
    return probe.to_columns()


def open_sampling(host: HostOptions, missing: list[str]) -> Sampling:
    """Open the power sources asked for, else the first that this host has.

    Where there is none although watts are not asked for, the reason is added to ``missing``.

    Raises
    ------
    MeasurementError
        When watts are asked for and no source can be opened.
    """
    if host.power == "none":
        if "power" in host.metrics:
            raise MeasurementError("--power none measures no power: leave it out of --metric")
        missing.append("power: none was asked for")
        return _sampling(host, [])
    if host.power is not None:
        return _sampling(host, parse_specs(host.power))
    reasons = []
    for text in _LOCAL_POWER:
        try:
            return _sampling(host, parse_specs(text))
        except SensorError as error:
            reasons.append(f"{text}: {error}")
    refuse_or_note("power", "; ".join(reasons), host, missing)
    return _sampling(host, [])


def _sampling(host: HostOptions, specs: Sequence[Spec]) -> Sampling:
    from measurements.power.credentials import logins_for

    return Sampling.open(
        specs,
        interval_s=host.interval_s,
        sysfs=Path(host.sysfs),
        procfs=Path(host.procfs),
        timeout_s=host.timeout_s,
        logins=logins_for(specs),
    )


def refuse_or_note(metric: str, reason: str, host: HostOptions, missing: list[str]) -> None:
    """Refuse to measure without a metric that was asked for; note one that was not.

    Raises
    ------
    MeasurementError
        With the reason and the ``--metric`` that leaves it out.
    """
    if metric in host.metrics:
        rest = ",".join(m for m in host.metrics if m != metric)
        raise MeasurementError(
            f"{metric} cannot be measured here: {reason}; to measure without it, --metric {rest}"
        )
    missing.append(f"{metric}: {reason}")


def _plan(options: SweepOptions, host: HostOptions, sampling: Sampling) -> dict[str, Any]:
    return {
        "host": options.host,
        "family": options.family,
        "workload": options.workload,
        "data_bytes": options.data_bytes,
        "price": options.price,
        "options": asdict(options),
        "host_options": asdict(host),
        "channels": sampled_channels(sampling),
    }


def sampled_channels(sampling: Sampling) -> list[dict[str, Any]]:
    """Channels that are sampled, as a session's plan keeps them."""
    from measurements.power.sampler import channel_as_json

    return [channel_as_json(channel) for channel in sampling.channels]


def _as_planned(
    session: Session, options: SweepOptions, host: HostOptions
) -> tuple[SweepOptions, HostOptions]:
    """Options of the sweep that goes on; those given must be its own."""
    planned = _options_from(SweepOptions, session.plan["options"])
    planned_host = _options_from(HostOptions, session.plan["host_options"])
    if not options.command:
        return planned, planned_host
    for given, known in ((options, planned), (host, planned_host)):
        for field in fields(given):
            one, other = getattr(given, field.name), getattr(known, field.name)
            if one != other and field.name not in ("repeats", "frequencies", "cores"):
                raise MeasurementError(
                    f"{session.folder}: {field.name.replace('_', ' ')} was {_option_text(other)} "
                    f"and is {_option_text(one)} now: give the same, or nothing but --resume and -o"
                )
    return options, host


def _options_from(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _option_text(value: object) -> str:
    return shlex.join(value) if isinstance(value, tuple) and value else json.dumps(value)


def this_host() -> str:
    """Name of this host, as it goes into the table."""
    return socket.gethostname()


def dry_run(options: SweepOptions, host: HostOptions) -> list[str]:
    """What a sweep would do, one line each; nothing is written or started."""
    machine = _open_machine(options, host, dry_run=True)
    lines = []
    try:
        for number, step in enumerate(order_of(options)):
            lines += [f"write {value} to {path}" for path, value in machine.writes(step.freq_hz)]
            lines.append(f"run {number}: {shlex.join(options.command)} at {step.text()}")
    finally:
        machine.close()
    return lines


# What this host can measure and set, and why not the rest.


@dataclass(frozen=True, slots=True)
class HostSensor:
    """One thing that may be measured or set.

    Attributes
    ----------
    name : str
        As `ppw measure --power` takes it, or "counters", "clock", "temperature".
    available : bool or None
        None where it takes an address to know.
    detail : str
        What it tells; where it is not available the reason and the remedy.
    """

    name: str
    available: bool | None
    detail: str


def find_sensors(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> list[HostSensor]:
    """Try everything that this host may have; nothing is changed."""
    settings = SourceSettings(sysfs=sysfs, procfs=procfs)
    return [
        *_power(settings),
        _counters(sysfs, procfs),
        _clock(sysfs, procfs),
        _temperature(sysfs),
    ]


def _power(settings: SourceSettings) -> Iterator[HostSensor]:
    for name, kind in KINDS.items():
        if kind.needs_address:
            yield HostSensor(name, None, f"{name}@ADDRESS: {kind.meaning}")
            continue
        try:
            source = open_source(parse_spec(name), settings)
        except MeasurementError as error:
            yield HostSensor(name, False, str(error))
            continue
        try:
            said = [c.label + f" ({c.note})" * bool(c.note) for c in source.channels]
            yield HostSensor(name, True, ", ".join(said))
        finally:
            source.close()


def _counters(sysfs: Path, procfs: Path) -> HostSensor:
    support = check_perf(sysfs=sysfs, procfs=procfs)
    if support.counters is not None and support.hardware:
        reasons = "".join(f"; not {reason}" for reason in support.reasons)
        return HostSensor("counters", True, ", ".join(support.counters.events) + reasons)
    return HostSensor("counters", False, "; ".join(support.reasons))


def _clock(sysfs: Path, procfs: Path) -> HostSensor:
    try:
        with FrequencyControl.open(sysfs=sysfs, procfs=procfs, dry_run=True) as control:
            clocks = control.steps()
            drivers = ", ".join(sorted({policy.driver for policy in control.policies}))
    except MeasurementError as error:
        return HostSensor("clock", False, str(error))
    return HostSensor("clock", True, f"{drivers}: {_range(clocks)}")


def _range(clocks: FrequencyRange) -> str:
    if clocks.steps_hz:
        return ", ".join(map(frequency_text, clocks.steps_hz))
    return f"{frequency_text(clocks.lowest_hz)} to {frequency_text(clocks.highest_hz)}"


def _temperature(sysfs: Path) -> HostSensor:
    now_c = package_temperature_c(sysfs)
    if now_c is None:
        return HostSensor("temperature", False, "no sensor of the processor's temperature is there")
    return HostSensor("temperature", True, f"{now_c:g} °C now")
