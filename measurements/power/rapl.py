"""Energy counters of processors that the kernel's powercap tree shows (RAPL).

Every zone below ``class/powercap`` is a channel: "rapl:package-0", "rapl:package-0/core",
"rapl:dram-0", "rapl:psys", on packages of several dies "rapl:package-0-die-1", and what the
second interface of some processors shows "rapl:mmio/package-0".

What may be added: channels of one domain, but for those that are `inside` another of the same
domain, which show its joules a second time. Packages and DRAM are apart and may be added to each
other; core and uncore are parts of their package; psys covers the packages, the DRAM and more of
the board, so that nothing is ever added to it. Its channel is not named in the packages' `inside`,
because it is not there on most servers and what it covers is up to the board's maker.

Some processors show one counter under the names of several dies. Two packages that move by the same
microjoules are such mirrors: `RaplSource.mirrored` names them, and the channel of the second is
`inside` the first.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from measurements.power.powercap import Zone, find_zones, powercap
from measurements.power.protocol import Channel, Reading, SensorError
from measurements.power.rapl_absence import why_absent
from measurements.power.sysfs import NumberFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measurements.power.protocol import SourceSettings

# The hardware brings its counters up to date about once in a millisecond.
PERIOD_S = 1e-3


def not_permitted(counter: Path, root: Path) -> str:
    """Explain that a counter may not be read, and how it may."""
    return (
        f"{counter}: only root may read it, since watts that anybody can read give away what "
        f"others compute (CVE-2020-8694): sudo chmod a+r {root}/*/energy_uj, which holds until the "
        "next boot, or run as root"
    )


def open_source(where: str | None, settings: SourceSettings) -> RaplSource:
    """Open all RAPL counters of this host.

    Raises
    ------
    SensorError
        Where there is no counter, or none that may be read.
    """
    if where is not None:
        raise SensorError(f"rapl@{where}: RAPL is read on this host alone: use rapl, no address")
    zones = find_zones(settings)
    if not zones:
        raise SensorError(why_absent(settings))
    return RaplSource(powercap(settings), zones)


class RaplSource:
    """All powercap counters of a host, open.

    A zone that fails is a reading of NaN while the others go on; so is one that may not be read,
    whose channel's note tells the remedy.
    """

    def __init__(self, root: Path, zones: Sequence[Zone]) -> None:
        self._root = root
        self._files = [NumberFile(zone.path / "energy_uj") for zone in zones]
        self._ranges = [math.inf if z.range_uj is None else z.range_uj for z in zones]
        first = self._counters()
        if all(value is None for _, value in first):
            self.close()
            raise SensorError(self._why_unreadable())
        self._channels = [
            replace(zone.channel, note=_joined(zone.channel.note, file.remedy))
            for zone, file in zip(zones, self._files, strict=True)
        ]
        self._mirrors = _Mirrors(
            [c.domain == "package" and c.inside is None for c in self._channels]
        )
        self._watch([value for _, value in first])
        self._look_for_mirrors()

    @property
    def channels(self) -> Sequence[Channel]:
        """One a zone. A mirror that is found only while reading changes `inside` and `note`."""
        return tuple(self._channels)

    @property
    def period_s(self) -> float:
        """The counters' own period."""
        return PERIOD_S

    @property
    def mirrored(self) -> dict[str, str]:
        """Labels of packages that show another one's counter, with that other's label."""
        labels = [channel.label for channel in self._channels]
        return {labels[mirror]: labels[first] for mirror, first in self._mirrors.found.items()}

    def read(self) -> list[Reading]:
        """Read every counter (J, not unwrapped); NaN for one that does not answer.

        Raises
        ------
        SensorError
            When none answers.
        """
        counters = self._counters()
        if all(value is None for _, value in counters):
            raise SensorError(self._why_unreadable())
        if self._mirrors.undecided:
            self._watch([value for _, value in counters])
        return [
            Reading(channel.label, at_s, math.nan if value is None else value / 1e6)
            for channel, (at_s, value) in zip(self._channels, counters, strict=True)
        ]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _counters(self) -> list[tuple[float, int | None]]:
        counters = []
        before = time.monotonic()
        for file, most in zip(self._files, self._ranges, strict=True):
            value = file.read()
            after = time.monotonic()
            sound = value is not None and 0 <= value <= most
            counters.append(((before + after) / 2, value if sound else None))
            before = after
        return counters

    def _look_for_mirrors(self) -> None:
        for _ in range(_Mirrors.LOOKS):
            if not self._mirrors.undecided:
                break
            time.sleep(5 * PERIOD_S)
            self._watch([value for _, value in self._counters()])

    def _watch(self, values: list[int | None]) -> None:
        for mirror, first in self._mirrors.see(values).items():
            twin = self._channels[first].label
            note = _joined(self._channels[mirror].note, f"mirrors {twin}: never added to it")
            self._channels[mirror] = replace(self._channels[mirror], inside=twin, note=note)

    def _why_unreadable(self) -> str:
        for file in self._files:
            if file.denied:
                return not_permitted(file.path, self._root)
        first = self._files[0]
        return (
            f"{self._root}: none of its {len(self._files)} energy counters can be read "
            f"({first.path.parent.name}: {first.problem or 'its figure is out of range'}): is the "
            "driver still loaded? sudo modprobe intel_rapl_msr"
        )


class _Mirrors:
    """Tells counters that always move by the same microjoules.

    The joules of two packages never agree in all digits time after time. Of one counter under two
    names they nearly always do; an update between the two readings is the exception.
    """

    MOVES = 10
    LOOKS = 14
    _ALIKE = 6

    def __init__(self, candidates: Sequence[bool]) -> None:
        numbers = [index for index, candidate in enumerate(candidates) if candidate]
        self.undecided = dict.fromkeys(combinations(numbers, 2), (0, 0))
        self.found: dict[int, int] = {}
        self._last: Sequence[int | None] = [None] * len(candidates)

    def see(self, values: Sequence[int | None]) -> dict[int, int]:
        """Take one more look; return the mirrors that it brought to light, with their first."""
        new = {}
        for pair, (moves, alike) in list(self.undecided.items()):
            steps = [_step(self._last[index], values[index]) for index in pair]
            if None in steps or steps == [0, 0]:
                continue
            moves, alike = moves + 1, alike + (steps[0] == steps[1])
            self.undecided[pair] = (moves, alike)
            if moves == self.MOVES:
                del self.undecided[pair]
                first, mirror = pair
                if alike >= self._ALIKE and mirror not in self.found:
                    new[mirror] = self.found[mirror] = self.found.get(first, first)
        self._last = values
        return new


def _step(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
