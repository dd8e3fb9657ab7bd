"""Power of a host's chassis by Redfish, as its BMC tells it, or of a rack PDU and its outlets.

Of each chassis the first of these figures that says something is read:

``redfish:environment``
    ``PowerWatts`` of ``EnvironmentMetrics``, from the sensor behind it if it names one.
``redfish:supplies``
    Sum of the input power of the power supplies of ``PowerSubsystem``.
``redfish:power``
    ``PowerConsumedWatts`` of the older ``Power``, a momentary figure.
``redfish:average``
    ``AverageConsumedWatts`` there, over its interval.

Of a PDU or an outlet ``redfish:distribution`` is read, the ``PowerWatts`` of its metrics.

``redfish:energy`` is added if the metrics count energy in steps of 0.1 Wh or finer.
Labels end in the Id of the chassis if several have figures.

The clock of a reading is a sensor's ``ReadingTime`` only: the ``Date`` of an answer tells when the
BMC answered, and its entity tag stays while the power stays.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any, Literal

from measurements.errors import on_error
from measurements.power import redfish_client as http, source
from measurements.power.redfish_client import dig

Document = Mapping[str, Any]
# A resource by its path; None if the service has none there.
Look = Callable[[str], Document | None]
# A figure (W or J; NaN for none), and the sensor's own time of it (s).
Value = tuple[float, float | None]

OPTIONS = ("ca", "chassis", "outlet", "pdu", "verify")
# A BMC updates its sensors about once per second, and answers slowly when asked more often.
PERIOD_S = 1.0

_FORBIDDEN, _GONE = 403, 404
# Answers for resources without code or right to read; the next figure may work.
_NOT_OFFERED = {_FORBIDDEN, _GONE, 405, 500, 501}
_MOST_PAGES, _MOST_NESTED = 100, 8

# How BMCs say "unknown" in 16 and in 32 bits, the latter in W or in mW.
_NO_WATTS = {65535.0, 4294967295.0, 4294967.295}
_JOULES_PER_KWH = 3.6e6
# A tenth of a watt hour is a second of 360 W: a coarser counter tells less than the power.
_COARSEST_J = 360.0
# More decimals than this come from a division, not from the counter.
_FINEST_J = 0.01
# States of a supply that is in its slot, but delivers nothing.
_IDLE_STATES = ("Absent", "Disabled", "StandbyOffline", "UnavailableOffline")
# Entries of `PowerControl` in these contexts are parts of the wanted one.
_PARTS = ("Accelerator", "CPU", "Fan", "GPU", "Memory", "NetworkingDevice", "StorageDevice")
_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)


def open_source(where: str | None, settings: source.SourceSettings) -> RedfishSource:
    """Open the BMC at ``HOST[:PORT]`` (HTTPS) or at an address such as ``https://bmc-7``.

    Over ``http://`` a login is sent to this machine itself only. Options: ``chassis`` (Id of the
    only one to read), ``pdu`` and ``outlet`` (Ids of a rack PDU and of its outlet, in place of the
    chassis), ``ca`` (PEM file of the BMC's certificate or its authority), ``verify``
    (``no`` takes any certificate at first, and only that one afterwards).
    """
    source.check_options("redfish", settings.options, OPTIONS, yes_or_no=("verify",))
    if not where:
        raise source.SensorError("redfish needs an address: redfish@HOST[:PORT]")
    client = http.RedfishClient(http.parse_origin(where), settings)
    with on_error(client.close):
        return RedfishSource(client, settings.options)


class RedfishSource:
    """Figures of the chassis of one service."""

    def __init__(self, client: http.RedfishClient, options: Mapping[str, str]) -> None:
        self._client = client
        self._figures = _find_figures(client, options)
        self.channels = tuple(channel for channel, _ in self._figures)
        windows = (channel.window_s for channel in self.channels)
        self.period_s = min((w for w in windows if 0 < w < PERIOD_S), default=PERIOD_S)

    def read(self) -> list[source.Reading]:
        """Read every figure, each resource once; NaN for a figure that is gone."""
        paths = dict.fromkeys(path for _, figure in self._figures for path in figure.paths)
        answers = {path: self._get_unless_gone(path) for path in paths}
        readings = []
        for channel, figure in self._figures:
            found = [answers[path] for path in figure.paths]
            times = [answer.at_s for answer in found if answer] or [time.monotonic()]
            documents = [answer.document if answer else {} for answer in found]
            value, source_at_s = figure.compute(documents)
            at_s = (times[0] + times[-1]) / 2
            readings.append(source.Reading(channel.label, at_s, value, source_at_s))
        return readings

    def close(self) -> None:
        """Log out and hang up; a second call does nothing."""
        self._client.close()

    def _get_unless_gone(self, path: str) -> http.RedfishAnswer | None:
        try:
            return self._client.get(path)
        except http.StatusError as error:
            if error.status == _GONE:
                return None
            raise


@dataclass(frozen=True, slots=True)
class ChassisFigure:
    """One figure of a chassis: the resources it is computed from, and how.

    ``resolution`` and ``window_s`` are those of `measurements.power.source.Channel`.
    """

    name: str
    paths: tuple[str, ...]
    compute: Callable[[Sequence[Document]], Value]
    quantity: Literal["energy", "power"] = "power"
    resolution: float = math.nan
    window_s: float = 0.0
    note: str = ""


def best_power(chassis: Document, look: Look) -> ChassisFigure | None:
    """Choose the first power figure that says something, else the first that exists."""
    silent: ChassisFigure | None = None
    for find in (_environment_figures, _supplies_figure, _older_power_figures):
        for figure in find(chassis, look):
            value, _ = figure.compute([look(path) or {} for path in figure.paths])
            if not math.isnan(value):
                return figure
            silent = silent or figure
    return silent


def energy_counter(chassis: Document, look: Look) -> ChassisFigure | None:
    """Find an energy counter that is fine enough to tell one run from another."""
    path, metrics, _ = _metrics_of(chassis, look)
    if number(dig(metrics, "EnergyJoules", "Reading")) > 0:
        joules = _entry("EnergyJoules", "Reading", convert=number)
        return ChassisFigure("energy", (path,), joules, "energy", resolution=1.0)
    said = _kilowatt_hours(metrics)
    if not number(said) > 0:
        return None
    # The place value of the last decimal that is written.
    step = _JOULES_PER_KWH * 10.0 ** int(Decimal(repr(said)).as_tuple().exponent)
    if step > _COARSEST_J:
        return None

    def count_energy(documents: Sequence[Document]) -> Value:
        return _JOULES_PER_KWH * number(_kilowatt_hours(documents[0])), None

    resolution = step if step >= _FINEST_J else math.nan
    return ChassisFigure("energy", (path,), count_energy, "energy", resolution=resolution)


def _follow_link(document: Document, look: Look, name: str) -> tuple[str, Document]:
    """Read the resource that an entry links to, with its path; ("", {}) without a link."""
    path = dig(document, name, "@odata.id")
    return (path, look(path) or {}) if isinstance(path, str) else ("", {})


def number(said: Any) -> float:
    """Take a JSON number that can be a power or energy; NaN for everything else."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return math.nan
    try:
        value = float(said)
    except OverflowError:
        return math.nan
    return value if 0 <= value < math.inf and value not in _NO_WATTS else math.nan


def watts(said: Any) -> float:
    """Take a JSON number of watts above 0, which is how BMCs say "unknown"; else NaN.

    >>> watts(240), watts(0), watts("240"), watts(None)
    (240.0, nan, nan, nan)
    """
    return number(said) or math.nan


def seconds(duration: Any) -> float:
    """Parse an ISO 8601 duration such as ``PT0.5S`` (s); 0 for none."""
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None:
        return 0.0
    parts = {unit: float(said or 0) for unit, said in match.groupdict().items()}
    total = 86400 * parts["d"] + 3600 * parts["h"] + 60 * parts["m"] + parts["s"]
    return total if math.isfinite(total) else 0.0


def _unix_time_s(moment: Any) -> float | None:
    """Parse an ISO 8601 time as seconds since 1970; None for none."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _metrics_of(document: Document, look: Look) -> tuple[str, Document, str]:
    """Read the metrics of a chassis, a PDU or an outlet: path, entries and the figure's name."""
    for link, name in (("EnvironmentMetrics", "environment"), ("Metrics", "distribution")):
        if link in document:
            return *_follow_link(document, look, link), name
    # An outlet has its power and energy in its own document.
    return str(document.get("@odata.id", "")), document, "distribution"


def _entry(
    *keys: str | int, convert: Callable[[Any], float] = watts
) -> Callable[[Sequence[Document]], Value]:
    """Make a function that converts one entry of the first document (W or J by ``convert``)."""
    return lambda documents: (convert(dig(documents[0], *keys)), None)


def _environment_figures(chassis: Document, look: Look) -> Iterator[ChassisFigure]:
    """Find the power of the metrics."""
    path, metrics, name = _metrics_of(chassis, look)
    if dig(metrics, "PowerWatts") is None:
        return
    behind = dig(metrics, "PowerWatts", "DataSourceUri")
    sensor = look(behind) if isinstance(behind, str) else None
    # Only the sensor itself tells when it was read.
    if sensor and "Reading" in sensor and sensor.get("ReadingUnits", "W") == "W":
        averaging = seconds(sensor.get("AveragingInterval"))
        window_s = averaging or seconds(sensor.get("SensingInterval"))

        def read_sensor(documents: Sequence[Document]) -> Value:
            said = documents[0]
            return watts(said.get("Reading")), _unix_time_s(said.get("ReadingTime"))

        yield ChassisFigure(name, (behind,), read_sensor, window_s=window_s)
    else:
        yield ChassisFigure(name, (path,), _entry("PowerWatts", "Reading"))


def _supplies_figure(chassis: Document, look: Look) -> Iterator[ChassisFigure]:
    """Sum all supplies, or none: a sum that lacks one would look like a frugal host."""
    _, subsystem = _follow_link(chassis, look, "PowerSubsystem")
    _, supplies = _follow_link(subsystem, look, "PowerSupplies")
    paths = []
    for member in http.member_paths(supplies):
        supply = look(member) or {}
        if dig(supply, "Status", "State") == "Absent":
            continue
        path, metrics = _follow_link(supply, look, "Metrics")
        if "InputPowerWatts" not in metrics:
            return
        paths.append(path)
    if paths:
        yield ChassisFigure("supplies", tuple(paths), _sum_supplies_value)


def _sum_supplies_value(documents: Sequence[Document]) -> Value:
    """Sum the input power of all but idle supplies (W); NaN where one is unknown or all are 0."""
    delivering = (d for d in documents if dig(d, "Status", "State") not in _IDLE_STATES)
    # One supply in cold redundancy may take 0 W, but not all of them together.
    return watts(sum(number(dig(d, "InputPowerWatts", "Reading")) for d in delivering)), None


def _older_power_figures(chassis: Document, look: Look) -> Iterator[ChassisFigure]:
    """Find the momentary power of the older ``Power``, and its mean over an interval."""
    path, power = _follow_link(chassis, look, "Power")
    index, note = _whole_entry(power)
    now = ("PowerControl", index, "PowerConsumedWatts")
    if dig(power, *now) is not None:
        yield ChassisFigure("power", (path,), _entry(*now), note=note)
    metrics = ("PowerControl", index, "PowerMetrics")
    mean, window_s = (*metrics, "AverageConsumedWatts"), dig(power, *metrics, "IntervalInMin")
    if number(window_s) > 0 and dig(power, *mean) is not None:
        window_s = 60 * number(window_s)
        yield ChassisFigure("average", (path,), _entry(*mean), window_s=window_s, note=note)


def _whole_entry(power: Document) -> tuple[int, str]:
    """Find the entry that covers the whole chassis, and a caveat if several may."""
    entries = dig(power, "PowerControl")
    if not isinstance(entries, list):
        return 0, ""
    whole = [i for i, entry in enumerate(entries) if dig(entry, "PhysicalContext") not in _PARTS]
    if len(whole) < 2:
        return (whole or [0])[0], ""
    name = dig(entries, whole[0], "Name")
    return whole[0], f"first of {len(whole)} readings of its resource, named {name}"


def _kilowatt_hours(metrics: Document) -> Any:
    """Prefer the lifetime count, which no user can set to 0."""
    lifetime = dig(metrics, "EnergykWh", "LifetimeReading")
    return dig(metrics, "EnergykWh", "Reading") if lifetime is None else lifetime


@dataclass
class _Chassis:
    """A chassis of the service, with its figures if it tells its power."""

    path: str
    document: Document
    power: ChassisFigure | None = None
    energy: ChassisFigure | None = None

    @property
    def name(self) -> str:
        said = self.document.get("Id")
        return said if isinstance(said, str) and said else self.path.rpartition("/")[2]

    @property
    def systems(self) -> int:
        """Number of computer systems that it names."""
        named = dig(self.document, "Links", "ComputerSystems")
        return len(named) if isinstance(named, list) else 0


def _find_figures(
    client: http.RedfishClient, options: Mapping[str, str]
) -> list[tuple[source.Channel, ChassisFigure]]:
    forbidden: list[http.StatusError] = []

    # Every resource is read once while the figures are looked for.
    @cache
    def look(path: str) -> Document | None:
        try:
            return client.get(path).document
        except http.StatusError as error:
            if error.status not in _NOT_OFFERED:
                raise
            if error.status == _FORBIDDEN:
                forbidden.append(error)
            return None

    chassis = _find_chassis(client, look, options)
    for one in chassis:
        one.power = best_power(one.document, look)
        one.energy = energy_counter(one.document, look) if one.power else None
    if told := [one for one in chassis if one.power]:
        return _make_channels(told, look, is_verified=options.get("verify") != "no")
    if forbidden:
        raise forbidden[-1]
    raise client.origin.error(
        f"no chassis reports its power (there are: {_ids(chassis)}): update the BMC's firmware, "
        f"or read it by IPMI: ipmi@{client.origin.host}"
    )


def _find_chassis(
    client: http.RedfishClient, look: Look, options: Mapping[str, str]
) -> list[_Chassis]:
    """Find the chassis, or the rack PDUs or outlets that the options ask for in their place."""
    if not options.keys() & {"pdu", "outlet"}:
        return _find_members(client, look, client.root(), "Chassis", options.get("chassis"))
    _, equipment = _follow_link(client.root(), look, "PowerEquipment")
    units = _find_members(client, look, equipment, "RackPDUs", options.get("pdu"))
    if "outlet" not in options:
        return units
    find = partial(_find_members, client, look, link="Outlets", only=options["outlet"])
    return [outlet for unit in units for outlet in find(unit.document)]


def _find_members(
    client: http.RedfishClient, look: Look, owner: Document, link: str, only: str | None
) -> list[_Chassis]:
    """Read the collection that a document links to, or the one member whose Id is ``only``."""
    path = dig(owner, link, "@odata.id")
    members: list[str] = []
    for _ in range(_MOST_PAGES):
        if not isinstance(path, str):
            break
        page = client.get(path).document
        members += http.member_paths(page)
        path = page.get("Members@odata.nextLink")
    chassis = [_Chassis(member, document) for member in members if (document := look(member))]
    chosen = [one for one in chassis if only in (None, one.name)]
    if only and not chosen:
        kind = {"RackPDUs": "PDU", "Outlets": "outlet"}.get(link, "chassis")
        raise client.origin.error(f"no {kind} has the Id {only!r}: choose one of {_ids(chassis)}")
    return chosen


def _ids(chassis: Sequence[_Chassis]) -> str:
    return ", ".join(one.name for one in chassis) or "none"


def _make_channels(
    told: Sequence[_Chassis], look: Look, *, is_verified: bool
) -> list[tuple[source.Channel, ChassisFigure]]:
    """Make the channels of all chassis that tell their power."""
    ends = [re.sub(r"[^\w.-]+", "_", f"-{one.name}") if len(told) > 1 else "" for one in told]
    labels = {
        one.path: f"redfish:{one.power.name}{end}"
        for one, end in zip(told, ends, strict=True)
        if one.power
    }
    containers = [_container(one, labels, look) for one in told]
    outermost = containers.count(None)
    rivals = f"one of {outermost} chassis that may count the same power: choose one with chassis=ID"
    found = []
    for one, end, inside in zip(told, ends, containers, strict=True):
        domain, covers = _chassis_domain(one, told)
        note = source.join_notes(
            one.power.note if one.power else "",
            covers,
            rivals if not inside and outermost > 1 else "",
            "" if is_verified else "the certificate was not verified",
        )
        label = labels[one.path]
        # The energy is the same, counted: inside the power, so that nobody adds the two.
        energy = (f"redfish:energy{end}", one.energy, label)
        for name, figure, container in ((label, one.power, inside), energy):
            if figure:
                rest = (figure.resolution, figure.window_s, None, container)
                channel = source.Channel(name, figure.quantity, domain, *rest, note=note)
                found.append((channel, figure))
    return found


def _container(chassis: _Chassis, labels: Mapping[str, str], look: Look) -> str | None:
    """Find the label of the nearest chassis around this one that tells its power, too."""
    document = chassis.document
    for _ in range(_MOST_NESTED):
        path = dig(document, "Links", "ContainedBy", "@odata.id")
        if not isinstance(path, str) or path.rstrip("/") == chassis.path:
            return None
        if path.rstrip("/") in labels:
            return labels[path.rstrip("/")]
        document = look(path) or {}
    return None


def _chassis_domain(chassis: _Chassis, told: Sequence[_Chassis]) -> tuple[source.Domain, str]:
    """Choose the domain by the systems that a chassis names: a host names one."""
    if "Outlets" in chassis.document:
        return "other", "covers all outlets of the PDU"
    if chassis.systems > 1:
        return "other", f"covers {chassis.systems} systems"
    if chassis.systems == 0 and any(one.systems for one in told):
        return "other", "names no system of its own"
    return "host", ""
