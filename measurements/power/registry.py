"""All sources of watts and joules by name; a new one is a module and a line here."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from measurements.headers import nearest
from measurements.power.protocol import PowerSource, SensorError, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Iterable


class Kind(NamedTuple):
    """A kind of source: its module, whether it needs an address, and what it reads."""

    module: str
    needs_address: bool
    meaning: str


KINDS: dict[str, Kind] = {
    "rapl": Kind("rapl", False, "processor energy counters, by powercap"),
    "rapl:pyrapl": Kind("rapl_pyrapl", False, "the same through pyRAPL"),
    "ipmi": Kind("ipmi", False, "the BMC's power reading, local or over the network (pyghmi)"),
    "ipmi:ipmitool": Kind("ipmi_tool", False, "the same through the program ipmitool"),
    "redfish": Kind("redfish", True, "the BMC's power reading, by HTTPS"),
    "meter": Kind("meter", True, "a power meter that speaks SCPI, such as a Yokogawa WT (PyVISA)"),
    "log": Kind("power_log", True, "a CSV log of watts or joules that another program writes"),
    "hwmon": Kind("hwmon", False, "power sensors of the mainboard and its drivers"),
    "battery": Kind("battery", False, "what a battery delivers, on battery power only"),
    "nvml": Kind("nvml", False, "graphics processors of NVIDIA"),
}
_COMMAS = re.compile(r"(?<!\\),")


class Spec(NamedTuple):
    """A source as asked for: ``kind[@address][,option=value…]``."""

    kind: str
    where: str | None
    options: dict[str, str]

    @property
    def name(self) -> str:
        """How messages and labels name it."""
        return self.kind if self.where is None else f"{self.kind}@{self.where}"


def parse_spec(text: str) -> Spec:
    r"""Read ``ipmi:ipmitool@bmc-7,interface=lan`` apart; a comma of a file's name is ``\,``.

    Raises
    ------
    SensorError
        For an unknown kind, a missing address or an option without a value.
    """
    head, *rest = (part.replace("\\,", ",") for part in _COMMAS.split(text.strip()))
    kind, at, where = head.partition("@")
    kind = kind.strip().lower()
    if kind not in KINDS:
        raise SensorError(
            f"no power source is called {kind!r}{nearest(kind, list(KINDS))}: the kinds are "
            f"{', '.join(KINDS)}"
        )
    if not where and (at or KINDS[kind].needs_address):
        raise SensorError(f"{kind} needs an address: {kind}@ADDRESS")
    options = {}
    for part in rest:
        name, equals, value = part.partition("=")
        if not equals:
            raise SensorError(f"{text}: {part!r} is no OPTION=VALUE")
        options[name.strip()] = value.strip()
    return Spec(kind, where or None, options)


def parse_specs(text: str) -> list[Spec]:
    """Read several sources with commas between them: ``rapl,ipmi:ipmitool@bmc-7,interface=lan``.

    Raises
    ------
    SensorError
        As `parse_spec`, and where none is given.
    """
    parts: list[str] = []
    for part in _COMMAS.split(text):
        is_option = "=" in part and "@" not in part.partition("=")[0]
        if is_option and parts:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [parse_spec(part) for part in parts]


def open_source(spec: Spec, settings: SourceSettings) -> PowerSource:
    """Open one source. Raises `SensorError` with the remedy where it cannot be read."""
    module = importlib.import_module(f"measurements.power.{KINDS[spec.kind].module}")
    source: PowerSource = module.open_source(
        spec.where, replace(settings, options={**settings.options, **spec.options})
    )
    return source


def open_sources(specs: Iterable[Spec], settings: SourceSettings) -> list[PowerSource]:
    """Open several, all or none: those already open are closed when one cannot be."""
    opened: list[PowerSource] = []
    labels: set[str] = set()
    try:
        for spec in specs:
            opened.append(open_source(spec, settings))
            for channel in opened[-1].channels:
                if channel.label in labels:
                    raise SensorError(f"two sources have a channel {channel.label}: name one once")
                labels.add(channel.label)
    except BaseException:
        for source in opened:
            source.close()
        raise
    return opened
