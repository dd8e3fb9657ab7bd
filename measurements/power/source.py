"""What every source of watts or joules is: labelled channels, and readings of them.

A source is one small module with a function ``open_source(where, settings)`` that returns a
`PowerSource` or raises `SensorError` with the remedy; `measurements.power.source` lists them.
Nothing here or in a source imports pandas: the sampling process stays small.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from measurements.errors import MeasurementError
from measurements.table.headers import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


Domain = Literal[
    "package", "core", "uncore", "dram", "psys", "gpu", "host", "wall", "battery", "other"
]

# Whoever answers slower than this is taken for unreachable.
TIMEOUT_S = 10.0


class SensorError(MeasurementError):
    """A sensor that is not there, cannot be read or said nothing usable; tells the remedy."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What the figures of one stream mean.

    Attributes
    ----------
    label : str
        Unique among all open sources, such as "rapl:package-0" or "ipmi:dcmi".
    quantity : {"energy", "power"}
        Joules of a counter that only grows (but for its wraps), or watts.
    domain : str
        What the figure covers.
    resolution : float
        Smallest step of a figure (J or W); NaN if not known.
    window_s : float
        A reading is the mean over so many seconds before it, and a new one comes no sooner;
        0 for counters and momentary figures.
    range_j : float or None
        Energy after which a counter begins again at 0; None for one that never does.
    inside : str or None
        Label of the channel whose figure contains this one, as a package contains its cores:
        the two are never added.
    most_w : float
        Watts that the channel will hardly exceed, by its limits; NaN if not known. Sets how often
        a counter must be read for no wrap to be lost.
    note : str
        What the user should know of this channel, such as that it mirrors another.
    other_clock : bool
        Readings have the times of another clock, whose offset the runs have to tell.
    """

    label: str
    quantity: Literal["energy", "power"]
    domain: Domain
    resolution: float = float("nan")
    window_s: float = 0.0
    range_j: float | None = None
    inside: str | None = None
    most_w: float = float("nan")
    note: str = ""
    other_clock: bool = False


class Reading(NamedTuple):
    """One figure of one channel.

    Attributes
    ----------
    label : str
        Of the channel.
    at_s : float
        When it was read, by `time.monotonic`: the middle of the request and its answer.
    value : float
        Joules as the counter shows them (not unwrapped) or watts; NaN where the sensor answered
        without a figure (not activated, 0 W, 0xFFFF).
    source_at_s : float or None
        The sensor's own clock, seconds since whenever. Two readings with the same one are the
        same reading, however often it was asked for.
    """

    label: str
    at_s: float
    value: float
    source_at_s: float | None = None


class PowerSource(Protocol):
    """An open source. A context manager is not needed: whoever opens it closes it."""

    @property
    def channels(self) -> Sequence[Channel]:
        """Streams that `read` answers for, in a fixed order."""
        ...

    @property
    def period_s(self) -> float:
        """Seconds below which reading again tells nothing new; 0 for none."""
        ...

    def read(self) -> list[Reading]:
        """Read every channel once.

        Raises
        ------
        SensorError
            When the sensor does not answer, after one attempt to connect again.
        """
        ...

    def close(self) -> None:
        """Let go of devices, sessions and files; a second call does nothing."""
        ...


class Login(NamedTuple):
    """Who asks a device. Its text hides the password, so that no log can show it."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, password=…)"


def no_login(kind: str, host: str) -> Login:
    """Refuse: nobody has said where credentials come from."""
    raise SensorError(f"{kind} at {host} needs a user and a password, and none is known")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What a source may need beside its address.

    Attributes
    ----------
    sysfs, procfs : Path
        Where the kernel's trees are mounted; another folder for tests and containers.
    login : callable
        ``(kind, host) -> Login``, asked only by sources that need one; raises `SensorError`.
    timeout_s : float
        For every request to a device.
    options : mapping
        What was given after the address, such as ``ca`` or ``verify`` of Redfish.
    """

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    login: Callable[[str, str], Login] = no_login
    timeout_s: float = TIMEOUT_S
    options: Mapping[str, str] = field(default_factory=dict)


# All sources of watts and joules by name; a new one is a module and a line here.


class Kind(NamedTuple):
    """A kind of source: its module, whether it needs an address, and what it reads."""

    module: str
    needs_address: bool
    meaning: str


KINDS: dict[str, Kind] = {
    "rapl": Kind("rapl", False, "processor energy counters, by powercap"),
    "rapl:pyrapl": Kind("rapl_pyrapl", False, "the same through pyRAPL"),
    "ipmi": Kind("ipmi", False, "the BMC's power reading, local or over the network (pyghmi)"),
    "ipmi:ipmitool": Kind("ipmitool", False, "the same through the program ipmitool"),
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
