"""Power sources: labelled channels, their readings, and the kinds of sources there are.

A source is a module with a function ``open_source(where, settings)`` that returns a `PowerSource`
or raises `SensorError` with the remedy. Neither this module nor a source imports pandas or NumPy,
so that the sampling process stays small.
"""

import importlib
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from measurements.errors import MeasurementError, install_command
from measurements.table.headers import nearest

T = TypeVar("T")
Domain = Literal[
    "package", "core", "uncore", "dram", "psys", "gpu", "host", "wall", "battery", "other"
]

# A device that answers later than this counts as unreachable.
TIMEOUT_S = 10.0
# Largest power of a processor or host whose limits are unknown (W).
MOST_W = 1000.0
# No single host draws this much (W); the densest of 2025 draw a third of it.
MOST_HOST_W = 50_000.0
# Domains that draw power whenever the host runs.
NEVER_STILL = ("package", "psys", "host", "wall")


class SensorError(MeasurementError):
    """Report a sensor that is missing, unreadable or without a usable figure, and the remedy."""


@dataclass(frozen=True, slots=True)
class Channel:
    """Describe the figures of one stream."""

    label: str  # unique among all open sources, such as "rapl:package-0" or "ipmi:dcmi"
    # Energy of a counter that only grows, except for its wraps (J), or power (W).
    quantity: Literal["energy", "power"]
    domain: Domain
    resolution: float = math.nan  # smallest step of a figure (J or W); NaN if unknown
    # A reading is the mean over this time before it (s); 0 for counters and momentary figures.
    window_s: float = 0.0
    # Energy after which a counter restarts at 0 (J); None for one that never does.
    range_j: float | None = None
    # Label of the channel that contains this one, as a package contains its cores: never add both.
    inside: str | None = None
    most_w: float = math.nan  # power that the channel hardly exceeds (W); NaN if unknown
    note: str = ""  # remark for the user, for instance that the channel mirrors another
    # Readings carry the times of another clock, whose offset the runs must tell.
    other_clock: bool = False

    @property
    def bound_w(self) -> float:
        """Upper bound of the power (W), which sets how often a counter must be read."""
        return MOST_W if math.isnan(self.most_w) else self.most_w

    @property
    def impossible_w(self) -> float:
        """Power above which a figure is a fault of the sensor (W)."""
        of_processor = self.domain in ("package", "core", "uncore", "dram")
        known = of_processor or not math.isnan(self.most_w)
        return self.bound_w if known else MOST_HOST_W


class Reading(NamedTuple):
    """Hold one figure of one channel."""

    label: str
    at_s: float  # middle of the request and its answer, by `time.monotonic` (s)
    # Counter as shown, not unwrapped (J), or power (W); NaN for an answer without a figure.
    value: float
    # The sensor's own clock, from any origin (s). Equal times mean the same reading, asked twice.
    source_at_s: float | None = None


class PowerSource(Protocol):
    """Read power or energy. Whoever opens a source closes it."""

    @property
    def channels(self) -> Sequence[Channel]:
        """Streams that `read` answers for, in a fixed order."""

    @property
    def period_s(self) -> float:
        """Time between two new figures (s); 0 if unknown."""

    def read(self) -> list[Reading]:
        """Read every channel once, reconnecting once; raise `SensorError` without an answer."""

    def close(self) -> None:
        """Release devices, sessions and files; a second call does nothing."""


class Login(NamedTuple):
    """User and password of a device. The repr hides the password, so that no log shows it."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, password=…)"


def no_login(kind: str, host: str) -> Login:
    """Refuse, because no login is configured."""
    raise SensorError(f"{kind} at {host} needs a user and a password, and ppw has none")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Hold what a source may need beside its address."""

    # Mount points of the kernel's trees; other folders for tests and containers.
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    # ``(kind, host) -> Login``, called only by sources that need one; raises `SensorError`.
    login: Callable[[str, str], Login] = no_login
    timeout_s: float = TIMEOUT_S  # limit of each request to a device (s)
    # Options after the address, such as ``ca`` or ``verify`` of Redfish.
    options: Mapping[str, str] = field(default_factory=dict)


class Driver(NamedTuple):
    """Module of a kind of source, whether it needs an address, what it reads and who opens it."""

    module: str
    needs_address: bool
    meaning: str
    opener: str = "open_source"


KINDS: dict[str, Driver] = {
    "rapl": Driver("rapl", False, "processor energy counters, by powercap"),
    "rapl:pyrapl": Driver("rapl", False, "the same through pyRAPL", "open_pyrapl"),
    "ipmi": Driver("ipmi", False, "the BMC's power reading, local or over the network (pyghmi)"),
    "ipmi:ipmitool": Driver(
        "ipmi", False, "the same through the program ipmitool", "open_ipmitool"
    ),
    "redfish": Driver("redfish", True, "the power reading of a BMC or a rack PDU, by HTTPS"),
    "meter": Driver("meter", True, "a SCPI power meter (Yokogawa WT and others), by PyVISA"),
    "log": Driver("power_log", True, "a CSV log of power or energy that another program writes"),
    "hwmon": Driver("sysfs", False, "power sensors of the mainboard and its drivers", "open_hwmon"),
    "battery": Driver(
        "sysfs", False, "what a battery delivers, on battery power only", "open_batteries"
    ),
    "nvml": Driver("nvml", False, "graphics processors of NVIDIA"),
}
_COMMAS = re.compile(r"(?<!\\),")


class Spec(NamedTuple):
    """A source as the user writes it: ``kind[@address][,option=value…]``."""

    kind: str
    where: str | None
    options: dict[str, str]

    @property
    def name(self) -> str:
        """Name in messages and labels."""
        return self.kind if self.where is None else f"{self.kind}@{self.where}"


def parse_spec(text: str) -> Spec:
    r"""Parse ``ipmi:ipmitool@bmc-7,interface=lan``; a comma in a file name is ``\,``."""
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
    """Parse comma-separated sources: ``rapl,ipmi:ipmitool@bmc-7,interface=lan``."""
    parts: list[str] = []
    for part in _COMMAS.split(text):
        is_option = "=" in part and "@" not in part.partition("=")[0]
        if is_option and parts:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [parse_spec(part) for part in parts]


def open_source(spec: Spec, settings: SourceSettings) -> PowerSource:
    """Open one source; raise `SensorError` with the remedy if it cannot be read."""
    kind = KINDS[spec.kind]
    module = importlib.import_module(f"measurements.power.{kind.module}")
    settings = replace(settings, options={**settings.options, **spec.options})
    return getattr(module, kind.opener)(spec.where, settings)


def open_sources(specs: Iterable[Spec], settings: SourceSettings) -> list[PowerSource]:
    """Open several sources, all or none."""
    opened: list[PowerSource] = []
    labels: set[str] = set()
    with ExitStack() as closing:
        for spec in specs:
            opened.append(open_source(spec, settings))
            closing.callback(opened[-1].close)
            for channel in opened[-1].channels:
                if channel.label in labels:
                    raise SensorError(
                        f"two sources have the channel {channel.label}: name each source only once"
                    )
                labels.add(channel.label)
        closing.pop_all()
    return opened


def import_library(kind: str, name: str, library: str, instead: str = "") -> Any:
    """Import a library of a kind of source; raise `SensorError` with how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SensorError(
            f"{kind} needs {library} ({error}): {install_command(name.partition('.')[0])}{instead}"
        ) from None


def time_call(ask: Callable[[], T]) -> tuple[T, float]:
    """Call a function; return its answer and the middle of the call by `time.monotonic` (s)."""
    start_s = time.monotonic()
    answer = ask()
    return answer, (start_s + time.monotonic()) / 2


def check_options(
    kind: str, options: Mapping[str, str], known: Sequence[str], yes_or_no: Sequence[str] = ()
) -> None:
    """Refuse options that a source would ignore, and flags that are neither yes nor no."""
    if unknown := sorted(set(options) - set(known)):
        has = ", ".join(known) or "none"
        raise SensorError(f"{kind} has no option {', '.join(unknown)}: it has {has}")
    for name in yes_or_no:
        if options.get(name, "no") not in ("yes", "no"):
            raise SensorError(f"{kind}: {name}={options[name]}: write yes or no")


def join_notes(*notes: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note)
