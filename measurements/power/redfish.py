"""The watts of a host's chassis, as its BMC tells them by Redfish.

Of each chassis the best figure of power is read, which is the first of these that says something:

``redfish:environment``
    ``PowerWatts`` of ``EnvironmentMetrics``, from the sensor behind it where one is named.
``redfish:supplies``
    Sum of the input watts of the power supplies of ``PowerSubsystem``.
``redfish:power``
    ``PowerConsumedWatts`` of the older ``Power``, at the moment.
``redfish:average``
    ``AverageConsumedWatts`` there, over its interval.

``redfish:energy`` is added where ``EnvironmentMetrics`` counts energy in steps of 0.1 Wh or finer.
Labels end in the Id of the chassis where several have figures.

Only a sensor's ``ReadingTime`` is taken for the clock of a reading. The ``Date`` of an answer is
not: it is when the BMC answered. Nor is its entity tag: it stays while the watts stay.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from measurements.power.redfish_client import (
    RedfishClient,
    RefusalError,
    dig,
    member_paths,
    parse_origin,
)
from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Document = Mapping[str, Any]
    # A resource by its path; None where the service has none there.
    Look = Callable[[str], "Document | None"]
    from collections.abc import Mapping

    from measurements.power.redfish_client import Answer
    from measurements.power.source import Domain, SourceSettings


# What Redfish resources say of watts and joules, and how well.
#
# Pure functions of the documents; `measurements.power.redfish` fetches them.


# What BMCs say for "unknown" in 16 and in 32 bits, the latter in W or in mW.
NO_WATTS = {65535.0, 4294967295.0, 4294967.295}

JOULES_PER_KWH = 3.6e6
# A tenth of a watt hour is a second of 360 W: a coarser counter says less than the watts do.
COARSEST_J = 360.0
# More decimals than this come from a division, not from the counter.
FINEST_J = 0.01

# In its slot, but delivering nothing.
IDLE_STATES = ("Absent", "Disabled", "StandbyOffline", "UnavailableOffline")
# Entries of `PowerControl` of such a context are parts of the one that is wanted.
PARTS = ("Accelerator", "CPU", "Fan", "GPU", "Memory", "NetworkingDevice", "StorageDevice")

_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)


class Value(NamedTuple):
    """A figure (W or J; NaN for none), and the sensor's own time of it."""

    value: float
    source_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a chassis: its name, the resources it is computed from, and how.

    ``resolution`` and ``window_s`` are those of `measurements.power.source.Channel`.
    """

    name: str
    paths: tuple[str, ...]
    compute: Callable[[Sequence[Document]], Value]
    quantity: Literal["energy", "power"] = "power"
    resolution: float = math.nan
    window_s: float = 0.0
    note: str = ""

    def now(self, look: Look) -> float:
        """Say what it is at the moment, NaN where the service tells none."""
        return self.compute([look(path) or {} for path in self.paths]).value


def best_power(chassis: Document, look: Look) -> Figure | None:
    """Choose the first figure that says something, else the first that there is."""
    silent: Figure | None = None
    for find in (_environment, _supplies, _momentary, _average):
        figure = find(chassis, look)
        if figure and not math.isnan(figure.now(look)):
            return figure
        silent = silent or figure
    return silent


def energy_counter(chassis: Document, look: Look) -> Figure | None:
    """Find a counter of energy that is fine enough to tell one run from another."""
    path, metrics = _linked(chassis, look, "EnvironmentMetrics")
    if number(dig(metrics, "EnergyJoules", "Reading")) > 0:
        return Figure("energy", (path,), _joules_said, "energy", resolution=1.0)
    step = JOULES_PER_KWH * _decimal_step(_kilowatt_hours(metrics))
    if not 0 < step <= COARSEST_J:
        return None
    resolution = step if step >= FINEST_J else math.nan
    return Figure("energy", (path,), _joules_of_kwh, "energy", resolution=resolution)


def number(said: Any) -> float:
    """Take a JSON number that can be one of power or energy; NaN for everything else."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return math.nan
    try:
        value = float(said)
    except OverflowError:
        return math.nan
    return value if 0 <= value < math.inf and value not in NO_WATTS else math.nan


def watts(said: Any) -> float:
    """Take a JSON number of watts above 0, which is what a BMC says for "unknown"; else NaN.

    >>> watts(240), watts(0), watts("240"), watts(None)
    (240.0, nan, nan, nan)
    """
    return number(said) or math.nan


def seconds(duration: Any) -> float:
    """Read an ISO 8601 duration such as ``PT0.5S``; 0 for none."""
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None:
        return 0.0
    parts = {unit: float(said or 0) for unit, said in match.groupdict().items()}
    total = 86400 * parts["d"] + 3600 * parts["h"] + 60 * parts["m"] + parts["s"]
    return total if math.isfinite(total) else 0.0


def epoch(moment: Any) -> float | None:
    """Read an ISO 8601 time as seconds since 1970; None for none."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _linked(chassis: Document, look: Look, name: str) -> tuple[str, Document]:
    path = dig(chassis, name, "@odata.id")
    return (path, look(path) or {}) if isinstance(path, str) else ("", {})


def _environment(chassis: Document, look: Look) -> Figure | None:
    path, metrics = _linked(chassis, look, "EnvironmentMetrics")
    if dig(metrics, "PowerWatts") is None:
        return None
    behind = dig(metrics, "PowerWatts", "DataSourceUri")
    sensor = look(behind) if isinstance(behind, str) else None
    # Only the sensor itself tells when it was read.
    if sensor and "Reading" in sensor and sensor.get("ReadingUnits", "W") == "W":
        averaging = seconds(sensor.get("AveragingInterval"))
        window_s = averaging or seconds(sensor.get("SensingInterval"))
        return Figure("environment", (behind,), _sensor_said, window_s=window_s)
    return Figure("environment", (path,), _environment_said)


def _environment_said(documents: Sequence[Document]) -> Value:
    return Value(watts(dig(documents[0], "PowerWatts", "Reading")))


def _sensor_said(documents: Sequence[Document]) -> Value:
    return Value(watts(documents[0].get("Reading")), epoch(documents[0].get("ReadingTime")))


def _supplies(chassis: Document, look: Look) -> Figure | None:
    """Sum all supplies, or nothing: a sum that lacks one would look like a frugal host."""
    _, subsystem = _linked(chassis, look, "PowerSubsystem")
    _, supplies = _linked(subsystem, look, "PowerSupplies")
    paths = []
    for member in member_paths(supplies):
        supply = look(member) or {}
        if dig(supply, "Status", "State") == "Absent":
            continue
        path, metrics = _linked(supply, look, "Metrics")
        if "InputPowerWatts" not in metrics:
            return None
        paths.append(path)
    return Figure("supplies", tuple(paths), _supplies_said) if paths else None


def _supplies_said(documents: Sequence[Document]) -> Value:
    delivering = (d for d in documents if dig(d, "Status", "State") not in IDLE_STATES)
    # One that rests in cold redundancy takes 0 W; all of them together do not.
    return Value(watts(sum(number(dig(d, "InputPowerWatts", "Reading")) for d in delivering)))


def _momentary(chassis: Document, look: Look) -> Figure | None:
    path, power = _linked(chassis, look, "Power")
    index, note = _whole(power)
    if dig(power, "PowerControl", index, "PowerConsumedWatts") is None:
        return None
    return Figure(
        "power",
        (path,),
        lambda said: Value(watts(dig(said[0], "PowerControl", index, "PowerConsumedWatts"))),
        note=note,
    )


def _average(chassis: Document, look: Look) -> Figure | None:
    path, power = _linked(chassis, look, "Power")
    index, note = _whole(power)
    metrics = ("PowerControl", index, "PowerMetrics")
    window_s = 60 * number(dig(power, *metrics, "IntervalInMin"))
    if not window_s > 0 or dig(power, *metrics, "AverageConsumedWatts") is None:
        return None
    return Figure(
        "average",
        (path,),
        lambda said: Value(watts(dig(said[0], *metrics, "AverageConsumedWatts"))),
        window_s=window_s,
        note=note,
    )


def _whole(power: Document) -> tuple[int, str]:
    """Index of the entry that covers the whole chassis, and what to know of the choice."""
    entries = dig(power, "PowerControl")
    if not isinstance(entries, list):
        return 0, ""
    whole = [i for i, entry in enumerate(entries) if dig(entry, "PhysicalContext") not in PARTS]
    if len(whole) < 2:
        return (whole or [0])[0], ""
    name = dig(entries, whole[0], "Name")
    return whole[0], f"first of {len(whole)} figures of its resource, named {name}"


def _joules_said(documents: Sequence[Document]) -> Value:
    return Value(number(dig(documents[0], "EnergyJoules", "Reading")))


def _joules_of_kwh(documents: Sequence[Document]) -> Value:
    return Value(JOULES_PER_KWH * number(_kilowatt_hours(documents[0])))


def _kilowatt_hours(metrics: Document) -> Any:
    """Prefer the count since the BMC was made, which no user can set to 0."""
    lifetime = dig(metrics, "EnergykWh", "LifetimeReading")
    return dig(metrics, "EnergykWh", "Reading") if lifetime is None else lifetime


def _decimal_step(said: Any) -> float:
    """Place value of the last decimal written; 0 where there is no number above 0."""
    if not number(said) > 0:
        return 0.0
    exponent = Decimal(repr(said)).as_tuple().exponent
    return 10.0 ** int(exponent)


OPTIONS = ("ca", "chassis", "verify")

# A BMC looks at its sensors about once a second, and answers slowly when asked more often.
PERIOD_S = 1.0

FORBIDDEN, GONE = 403, 404
# What a service answers for what it has no code or no right for; the next figure may do.
NOT_OFFERED = {FORBIDDEN, GONE, 405, 500, 501}
MOST_PAGES = 100
MOST_NESTED = 8


class _Chassis(NamedTuple):
    path: str
    document: Document

    @property
    def name(self) -> str:
        said = self.document.get("Id")
        return said if isinstance(said, str) and said else self.path.rpartition("/")[2]


class _Told(NamedTuple):
    """A chassis that tells its watts."""

    chassis: _Chassis
    power: Figure
    energy: Figure | None


def open_source(where: str | None, settings: SourceSettings) -> RedfishSource:
    """Open the BMC at an address.

    Parameters
    ----------
    where : str
        ``HOST[:PORT]`` (HTTPS) or a whole address such as ``https://bmc-7``. Over ``http://`` a
        login is sent to this machine itself only.
    settings : SourceSettings
        ``login("redfish", host)`` is asked where the service wants a login. Options: ``chassis``
        (Id of the only one to read), ``ca`` (PEM file of the BMC's certificate or its authority),
        ``verify`` (``no`` takes any certificate at first sight; no other one afterwards).

    Raises
    ------
    SensorError
        When the service cannot be reached or trusted, rejects the login or tells no watts.
    """
    _check_options(settings.options)
    if not where:
        raise SensorError("redfish needs an address: redfish@HOST[:PORT]")
    client = RedfishClient(parse_origin(where), settings)
    try:
        return RedfishSource(client, settings.options)
    except BaseException:
        client.close()
        raise


class _Look:
    """Reads every resource once while the figures are looked for."""

    def __init__(self, client: RedfishClient) -> None:
        self._client = client
        self._seen: dict[str, Document | None] = {}
        self.forbidden: RefusalError | None = None

    def __call__(self, path: str) -> Document | None:
        if path not in self._seen:
            self._seen[path] = self._ask(path)
        return self._seen[path]

    def _ask(self, path: str) -> Document | None:
        try:
            return self._client.get(path).document
        except RefusalError as error:
            if error.status not in NOT_OFFERED:
                raise
            if error.status == FORBIDDEN:
                self.forbidden = error
            return None


class RedfishSource:
    """Figures of the chassis of one service."""

    def __init__(self, client: RedfishClient, options: Mapping[str, str]) -> None:
        self._client = client
        self._figures = _find_figures(client, options)
        self.channels: Sequence[Channel] = tuple(channel for channel, _ in self._figures)
        windows = (channel.window_s for channel in self.channels)
        self.period_s = min((w for w in windows if 0 < w < PERIOD_S), default=PERIOD_S)

    def read(self) -> list[Reading]:
        """Read every figure; a resource of several is asked for once. NaN for one that is gone."""
        answers: dict[str, Answer | None] = {}
        for path in (path for _, figure in self._figures for path in figure.paths):
            if path not in answers:
                answers[path] = self._ask(path)
        return [
            _reading(channel.label, figure, [answers[path] for path in figure.paths])
            for channel, figure in self._figures
        ]

    def close(self) -> None:
        """Log out and hang up; a second call does nothing."""
        self._client.close()

    def _ask(self, path: str) -> Answer | None:
        try:
            return self._client.get(path)
        except RefusalError as error:
            if error.status == GONE:
                return None
            raise


def _check_options(options: Mapping[str, str]) -> None:
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise SensorError(
            f"redfish has no option {', '.join(unknown)}: it has {', '.join(OPTIONS)}"
        )
    if options.get("verify", "yes") not in ("yes", "no"):
        raise SensorError(f"redfish: verify={options['verify']}: write yes or no")


def _reading(label: str, figure: Figure, answers: Sequence[Answer | None]) -> Reading:
    times = [answer.at_s for answer in answers if answer] or [time.monotonic()]
    value = figure.compute([answer.document if answer else {} for answer in answers])
    return Reading(label, (times[0] + times[-1]) / 2, value.value, value.source_at_s)


def _find_figures(
    client: RedfishClient, options: Mapping[str, str]
) -> list[tuple[Channel, Figure]]:
    look = _Look(client)
    chassis = _all_chassis(client, look, options.get("chassis"))
    told = [
        _Told(one, power, energy_counter(one.document, look))
        for one in chassis
        if (power := best_power(one.document, look))
    ]
    if told:
        return _with_channels(told, look, options)
    if look.forbidden:
        raise look.forbidden
    raise SensorError(
        f"{client.origin.name}: no chassis tells its watts (there are: {_names(chassis)}): update "
        f"the BMC's firmware, or read it by IPMI: ipmi@{client.origin.host}"
    )


def _with_channels(
    told: Sequence[_Told], look: Look, options: Mapping[str, str]
) -> list[tuple[Channel, Figure]]:
    suffixes = [_suffix(one.chassis) if len(told) > 1 else "" for one in told]
    labels = {
        one.chassis.path: f"redfish:{one.power.name}{suffix}"
        for one, suffix in zip(told, suffixes, strict=True)
    }
    containers = [_container(one.chassis, labels, look) for one in told]
    found = []
    for one, suffix, inside in zip(told, suffixes, containers, strict=True):
        domain, covers = _domain(one.chassis, told)
        notes = (
            one.power.note,
            covers,
            "" if inside else _rivals(containers.count(None)),
            "the certificate was not verified" if options.get("verify") == "no" else "",
        )
        power = Channel(
            labels[one.chassis.path],
            "power",
            domain,
            window_s=one.power.window_s,
            inside=inside,
            note="; ".join(note for note in notes if note),
        )
        found.append((power, one.power))
        if one.energy:
            found.append((_counter(power, f"redfish:energy{suffix}", one.energy), one.energy))
    return found


def _suffix(chassis: _Chassis) -> str:
    return "-" + re.sub(r"[^\w.-]+", "_", chassis.name)


def _counter(power: Channel, label: str, energy: Figure) -> Channel:
    """Channel of the same watts, counted: inside, so that nobody adds the two."""
    return replace(
        power,
        label=label,
        quantity="energy",
        resolution=energy.resolution,
        window_s=0.0,
        inside=power.label,
    )


def _rivals(outermost: int) -> str:
    if outermost < 2:
        return ""
    return f"one of {outermost} chassis that may share watts: choose one with chassis=ID"


def _all_chassis(client: RedfishClient, look: Look, only: str | None) -> list[_Chassis]:
    path = dig(client.root(), "Chassis", "@odata.id")
    members: list[str] = []
    for _ in range(MOST_PAGES):
        if not isinstance(path, str):
            break
        page = client.get(path).document
        members += member_paths(page)
        path = page.get("Members@odata.nextLink")
    chassis = [_Chassis(member, document) for member in members if (document := look(member))]
    chosen = [one for one in chassis if only in (None, one.name)]
    if only and not chosen:
        raise SensorError(
            f"{client.origin.name}: no chassis has the Id {only!r}: choose one of {_names(chassis)}"
        )
    return chosen


def _names(chassis: Sequence[_Chassis]) -> str:
    return ", ".join(one.name for one in chassis) or "none"


def _container(chassis: _Chassis, labels: Mapping[str, str], look: Look) -> str | None:
    """Label of the nearest chassis around this one that tells its watts too."""
    document: Document = chassis.document
    for _ in range(MOST_NESTED):
        path = dig(document, "Links", "ContainedBy", "@odata.id")
        if not isinstance(path, str) or path.rstrip("/") == chassis.path:
            return None
        if path.rstrip("/") in labels:
            return labels[path.rstrip("/")]
        document = look(path) or {}
    return None


def _domain(chassis: _Chassis, told: Sequence[_Told]) -> tuple[Domain, str]:
    """Whether a chassis is a host, which is said by the systems that it names."""
    systems = _systems(chassis)
    if systems > 1:
        return "other", f"covers {systems} systems"
    if systems == 0 and any(_systems(one.chassis) for one in told):
        return "other", "names no system of its own"
    return "host", ""


def _systems(chassis: _Chassis) -> int:
    named = dig(chassis.document, "Links", "ComputerSystems")
    return len(named) if isinstance(named, list) else 0
