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

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from measurements.power.protocol import Channel, Reading, SensorError
from measurements.power.redfish_client import RedfishClient, RefusalError, dig, member_paths
from measurements.power.redfish_figures import best_power, energy_counter
from measurements.power.redfish_origin import parse_origin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.power.protocol import Domain, SourceSettings
    from measurements.power.redfish_client import Answer
    from measurements.power.redfish_figures import Document, Figure, Look

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
