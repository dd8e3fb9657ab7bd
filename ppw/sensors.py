"""What this host can measure and set, and why not the rest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.frequency import FrequencyControl
from measurements.host.heat import package_temperature_c
from measurements.perf.check import check_perf
from measurements.power.protocol import SourceSettings
from measurements.power.registry import KINDS, open_source, parse_spec
from measurements.quantities import frequency_text
from ppw.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measurements.cpufreq import Clocks


@dataclass(frozen=True, slots=True)
class Sensor:
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


def find_sensors(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> list[Sensor]:
    """Try everything that this host may have; nothing is changed."""
    settings = SourceSettings(sysfs=sysfs, procfs=procfs)
    return [
        *_power(settings),
        _counters(sysfs, procfs),
        _clock(sysfs, procfs),
        _temperature(sysfs),
    ]


def as_text(sensors: list[Sensor]) -> str:
    """Table of what there is, then the reasons for what there is not."""
    words = {True: "yes", False: "no", None: "by address"}
    there = [[s.name, words[s.available], s.detail] for s in sensors if s.available is not False]
    lines: list[str] = [text_table(["sensor", "here", "what"], there)]
    lines += [f"{s.name}: not here: {s.detail}" for s in sensors if s.available is False]
    return "\n".join(lines)


def as_json(sensors: list[Sensor]) -> str:
    """The same as a JSON list."""
    return json.dumps([asdict(s) for s in sensors], indent=1, ensure_ascii=False)


def _power(settings: SourceSettings) -> Iterator[Sensor]:
    for name, kind in KINDS.items():
        if kind.needs_address:
            yield Sensor(name, None, f"{name}@ADDRESS: {kind.meaning}")
            continue
        try:
            source = open_source(parse_spec(name), settings)
        except MeasurementError as error:
            yield Sensor(name, False, str(error))
            continue
        try:
            said = [c.label + f" ({c.note})" * bool(c.note) for c in source.channels]
            yield Sensor(name, True, ", ".join(said))
        finally:
            source.close()


def _counters(sysfs: Path, procfs: Path) -> Sensor:
    support = check_perf(sysfs=sysfs, procfs=procfs)
    if support.counters is not None and support.hardware:
        reasons = "".join(f"; not {reason}" for reason in support.reasons)
        return Sensor("counters", True, ", ".join(support.counters.events) + reasons)
    return Sensor("counters", False, "; ".join(support.reasons))


def _clock(sysfs: Path, procfs: Path) -> Sensor:
    try:
        with FrequencyControl.open(sysfs=sysfs, procfs=procfs, dry_run=True) as control:
            clocks = control.steps()
            drivers = ", ".join(sorted({policy.driver for policy in control.policies}))
    except MeasurementError as error:
        return Sensor("clock", False, str(error))
    return Sensor("clock", True, f"{drivers}: {_range(clocks)}")


def _range(clocks: Clocks) -> str:
    if clocks.steps_hz:
        return ", ".join(map(frequency_text, clocks.steps_hz))
    return f"{frequency_text(clocks.lowest_hz)} to {frequency_text(clocks.highest_hz)}"


def _temperature(sysfs: Path) -> Sensor:
    now_c = package_temperature_c(sysfs)
    if now_c is None:
        return Sensor("temperature", False, "no sensor of the processor's temperature is there")
    return Sensor("temperature", True, f"{now_c:g} °C now")
