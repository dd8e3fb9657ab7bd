"""`measure`: from a command on this host to a runs table, whatever the host can and cannot tell."""

from __future__ import annotations

import json
import shlex
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.errors import MeasurementError
from measurements.machine import Machine
from measurements.power.protocol import SensorError
from measurements.power.registry import parse_specs
from measurements.quantities import frequency_text
from measurements.run_rows import session_rows, session_table
from measurements.sampling import Sampling
from measurements.session import Session, check_writable
from measurements.sweep import Sweep, SweepOptions, default_folder, order_of
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from measurements.power.registry import Spec

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

    sweep: Sweep
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
    PpwError
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
            probed = _probed(host, tell) if probe_memory else {}
            session = Session.create(folder, _plan(options, host, sampling) | {"memory": probed})
        elif session.plan["channels"] != sampled_channels(sampling):
            raise PpwError(f"{folder}: was measured with other power sources than there are now")
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
        sweep = Sweep(options, session, machine, sampling, tell)
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
    PpwError
        When the table of a new sweep is there already.
    """
    folder = default_folder(output)
    check_writable(output)
    if resume:
        return folder, Session.open(folder)
    if output.exists() or (folder / "plan.json").exists():
        raise PpwError(f"{output}: is there already: go on with --resume, or give another -o")
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


def _probed(host: HostOptions, tell: Callable[[str], None]) -> dict[str, float]:
    from measurements.memory_probe import probe_memory

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
            raise PpwError("--power none measures no power: leave it out of --metric")
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
    from measurements.power.logins import logins_for

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
    from measurements.sampler import channel_as_json

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
                raise PpwError(
                    f"{session.folder}: {field.name.replace('_', ' ')} was {_said(other)} and is "
                    f"{_said(one)} now: give the same, or nothing but --resume and -o"
                )
    return options, host


def _options_from(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _said(value: object) -> str:
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


def summary(table: pd.DataFrame) -> str:
    """Medians by set-up, as text."""
    from ppw.estimate import shown
    from ppw.tables import text_table

    columns = {"time_s": "s", "power_w": "W", "cpi": "1", "energy_j": "J/run"}
    columns = {name: unit for name, unit in columns.items() if name in table}
    keys = [c for c in ("workload", "cores", "freq_hz") if c in table]
    rows = []
    for key, part in table.groupby(keys, dropna=False, sort=True):
        values: Any = key
        pairs = zip(keys, values, strict=True)
        names = [frequency_text(k) if c == "freq_hz" else str(k) for c, k in pairs]
        medians = [shown(part[c].median(), u) for c, u in columns.items()]
        time = part["time_s"]
        spread = (time.max() - time.min()) / time.median()
        rows.append([*names, str(len(part)), *medians, f"{spread:.1%}"])
    header = [*(c.removesuffix("_hz") for c in keys), "runs"]
    header += [name.rpartition("_")[0] or name for name in columns]
    return text_table([*header, "time spread"], rows)
