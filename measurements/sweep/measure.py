"""`measure`: from a command on this host to a runs table, whatever the host can and cannot tell."""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.counters.command import check_perf
from measurements.errors import MeasurementError
from measurements.host import conditions
from measurements.host.frequency_control import FrequencyControl
from measurements.power import credentials, sampler, source
from measurements.sweep import loop
from measurements.sweep.machine import Machine
from measurements.sweep.session import Session, check_writable, session_rows, session_table
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
    # Leave the core frequency alone.
    as_found: bool = False
    # Switch turbo on or off; None leaves it as it is.
    turbo: bool | None = None
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

    def rows(self) -> Iterator[dict[str, Any]]:
        """Measure; yields each run's row when it and all before it are in the table's file."""
        from measurements import write_runs

        for row in self.sweep.run():
            write_runs(self.table(), self.output)
            yield row
        write_runs(self.table(), self.output)

    def left(self) -> int:
        """Count the runs that are still to do."""
        return len(loop.order_of(self.sweep.options)) - len(self.earlier())

    def earlier(self) -> list[dict[str, Any]]:
        """Make the rows of the runs so far."""
        return session_rows(self.sweep.session)

    def table(self) -> pd.DataFrame:
        """Make the runs table of all runs so far."""
        return session_table(self.sweep.session)


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
    """Open all that a sweep needs, and say what cannot be measured; close it when left.

    Raises `MeasurementError` when what was asked for cannot be measured, set or written, and when
    a sweep that goes on is another one.
    """
    folder, session = folder_and_session(output, resume=resume)
    if session is not None:
        options, host = _as_planned(session, options, host)
    missing: list[str] = []
    with ExitStack() as stack:
        machine = _open_machine(options, host)
        stack.callback(machine.close)
        if machine.no_counters is not None:
            refuse_or_note("cpi", machine.no_counters, host, missing)
        sampling = open_sampling(host, missing)
        stack.callback(sampling.close)
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
        yield Measuring(loop.MeasuredSweep(session, machine, sampling, tell, options), output)


def folder_and_session(output: Path, *, resume: bool) -> tuple[Path, Session | None]:
    """Find the folder of a table's raw readings, and the session in it that goes on.

    Raises `MeasurementError` when the table cannot be written, there is nothing to go on with, or
    the table of a new sweep is there already.
    """
    folder = loop.default_folder(output)
    check_writable(output)
    if resume:
        return folder, Session.open(folder)
    if output.exists() or (folder / "plan.json").exists():
        raise MeasurementError(
            f"{output}: is there already: go on with --resume, or give another -o"
        )
    return folder, None


def _open_machine(
    options: loop.SweepOptions, host: HostOptions, *, dry_run: bool = False
) -> Machine:
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


def open_sampling(host: HostOptions, missing: list[str]) -> sampler.Sampling:
    """Open the power sources asked for, else the first that this host has.

    Where there is none although power is not asked for, the reason is added to ``missing``. Raises
    `MeasurementError` when power is asked for and no source can be opened.
    """
    if host.power == "none":
        if "power" in host.metrics:
            raise MeasurementError("--power none measures no power: leave it out of --metric")
        missing.append("power: none was asked for")
        return _sampling(host, [])
    if host.power is not None:
        return _sampling(host, source.parse_specs(host.power))
    reasons = []
    for text in _LOCAL_POWER:
        try:
            return _sampling(host, source.parse_specs(text))
        except source.SensorError as error:
            reasons.append(f"{text}: {error}")
    refuse_or_note("power", "; ".join(reasons), host, missing)
    return _sampling(host, [])


def _sampling(host: HostOptions, specs: Sequence[source.Spec]) -> sampler.Sampling:
    return sampler.Sampling.open(
        specs,
        interval_s=host.interval_s,
        sysfs=Path(host.sysfs),
        procfs=Path(host.procfs),
        timeout_s=host.timeout_s,
        logins=credentials.logins_for(specs),
    )


def refuse_or_note(metric: str, reason: str, host: HostOptions, missing: list[str]) -> None:
    """Refuse to measure without a metric that was asked for; note one that was not.

    Raises `MeasurementError` with the reason and the ``--metric`` that leaves it out.
    """
    if metric in host.metrics:
        rest = ",".join(m for m in host.metrics if m != metric)
        raise MeasurementError(
            f"{metric} cannot be measured here: {reason}; to measure without it, --metric {rest}"
        )
    missing.append(f"{metric}: {reason}")


def _plan(
    options: loop.SweepOptions, host: HostOptions, sampling: sampler.Sampling
) -> dict[str, Any]:
    names = ("host", "family", "workload", "data_bytes", "price")
    return {
        **{name: getattr(options, name) for name in names},
        "options": asdict(options),
        "host_options": asdict(host),
        "channels": sampled_channels(sampling),
    }


def sampled_channels(sampling: sampler.Sampling) -> list[dict[str, Any]]:
    """List the channels that are sampled, as a session's plan keeps them."""
    return [sampler.channel_as_json(channel) for channel in sampling.channels]


def _as_planned(
    session: Session, options: loop.SweepOptions, host: HostOptions
) -> tuple[loop.SweepOptions, HostOptions]:
    """Return the options of the sweep that goes on; those given must be its own."""
    planned = _options_from(loop.SweepOptions, session.plan["options"])
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


def dry_run(options: loop.SweepOptions, host: HostOptions) -> list[str]:
    """Say what a sweep would do, one line each; nothing is written or started."""
    machine = _open_machine(options, host, dry_run=True)
    lines = []
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

    # As `ppw measure --power` takes it, or "counters", "clock", "temperature".
    name: str
    # None where it takes an address to know.
    available: bool | None
    # What it tells; where it is not available the reason and the remedy.
    detail: str


def find_sensors(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> list[HostSensor]:
    """Try everything that this host may have; nothing is changed."""
    settings = source.SourceSettings(sysfs=sysfs, procfs=procfs)
    return [
        *(_power(name, kind, settings) for name, kind in source.KINDS.items()),
        _counters(sysfs, procfs),
        _clock(sysfs, procfs),
        _temperature(sysfs),
    ]


def _power(name: str, kind: source.Driver, settings: source.SourceSettings) -> HostSensor:
    if kind.needs_address:
        return HostSensor(name, None, f"{name}@ADDRESS: {kind.meaning}")
    try:
        opened = source.open_source(source.parse_spec(name), settings)
    except MeasurementError as error:
        return HostSensor(name, False, str(error))
    try:
        texts = [c.label + f" ({c.note})" * bool(c.note) for c in opened.channels]
        return HostSensor(name, True, ", ".join(texts))
    finally:
        opened.close()


def _counters(sysfs: Path, procfs: Path) -> HostSensor:
    support = check_perf(sysfs=sysfs, procfs=procfs)
    if support.counters is not None and support.hardware:
        reasons = "".join(f"; not {reason}" for reason in support.reasons)
        return HostSensor("counters", True, ", ".join(support.counters.events) + reasons)
    return HostSensor("counters", False, "; ".join(support.reasons))


def _clock(sysfs: Path, procfs: Path) -> HostSensor:
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


def _temperature(sysfs: Path) -> HostSensor:
    now_c = conditions.package_temperature_c(sysfs)
    if now_c is None:
        return HostSensor("temperature", False, "no sensor of the processor's temperature is there")
    return HostSensor("temperature", True, f"{now_c:g} °C now")
