"""The processor's energy counters as pyRAPL reads them: packages and their DRAM.

Use "rapl". This back-end is for comparing with results that were got with pyRAPL, and for checking
one reader against the other. Its release of 2019 (0.2.3.1) reads below /sys and nowhere else, only
"package" and "dram", and only where there is one package for each socket that the kernel's topology
names: it gives up on packages of several dies. Its own measurements are None where a counter wraps
and so lose that energy; here its raw counters are read, with their ranges from beside them, so that
wraps can be counted. Labels are those of "rapl", hence not both at a time.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.power.rapl import PERIOD_S, find_zones, not_permitted, powercap, why_absent
from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measurements.power.source import SourceSettings

_SYSFS = Path("/sys")
_KINDS = ("package", "dram")


def open_source(where: str | None, settings: SourceSettings) -> PyRaplSource:
    """Open the counters that pyRAPL finds.

    Raises
    ------
    SensorError
        Without pyRAPL, without counters that it knows, or where they may not be read.
    """
    if where is not None:
        raise SensorError(f"rapl:pyrapl@{where}: pyRAPL reads this host alone: leave out @{where}")
    if settings.sysfs != _SYSFS:
        raise SensorError(f"rapl:pyrapl reads {_SYSFS} alone, not {settings.sysfs}: use rapl")
    try:
        with _quietly():
            library = import_module("pyRAPL")
    except ImportError as error:
        raise SensorError(
            f"rapl:pyrapl needs pyRAPL ({error}): pip install 'perf-per-watt[measure]', or use rapl"
        ) from None
    channels = [zone.channel for zone in find_zones(settings)]
    if not channels:
        raise SensorError(why_absent(settings))
    return PyRaplSource(library, {channel.label: channel for channel in channels}, settings)


class PyRaplSource:
    """pyRAPL's sensor, by the labels of "rapl"."""

    def __init__(self, library: Any, known: dict[str, Channel], settings: SourceSettings) -> None:
        self._library = library
        self._root = powercap(settings)
        self._sensor: Any = None
        energies = self._connected()
        # Two figures a socket: its package, then its DRAM; -1 for what is not there.
        labels = [f"rapl:{_KINDS[i % 2]}-{i // 2}" for i in range(len(energies))]
        self._places = {
            label: place
            for place, label in enumerate(labels)
            if energies[place] >= 0 and label in known
        }
        self._channels = tuple(known[label] for label in self._places)

    @property
    def channels(self) -> Sequence[Channel]:
        """Packages and their DRAM."""
        return self._channels

    @property
    def period_s(self) -> float:
        """The counters' own period."""
        return PERIOD_S

    def read(self) -> list[Reading]:
        """Read every counter (J, not unwrapped).

        Raises
        ------
        SensorError
            When they do not answer, nor after opening them again.
        """
        before = time.monotonic()
        energies = None
        # There is no sensor where connecting failed the last time.
        with suppress(OSError, ValueError):
            energies = self._sensor.energy() if self._sensor else None
        if energies is None:
            energies = self._connected()
        at_s = (before + time.monotonic()) / 2
        values = (energies[place] for place in self._places.values())
        return [
            Reading(label, at_s, value / 1e6 if value >= 0 else math.nan)
            for label, value in zip(self._places, values, strict=True)
        ]

    def close(self) -> None:
        """Close the files, which pyRAPL itself leaves open."""
        sensor, self._sensor = self._sensor, None
        if sensor is not None:
            for device in sensor._device_api.values():
                for file in device._sys_files:
                    file.close()

    def _connected(self) -> list[float]:
        self.close()
        # pyRAPL's open files end with its exceptions, which hence must not outlive this block.
        with _quietly():
            try:
                self._sensor = self._library.Sensor()
                return list(self._sensor.energy())
            except PermissionError as error:
                why = not_permitted(Path(str(error.filename)), self._root)
            except self._library.PyRAPLException:
                why = (
                    f"{self._root}: pyRAPL finds no package for each socket of this host, as on "
                    "processors of several dies: use rapl"
                )
            except (OSError, ValueError, IndexError) as error:
                why = f"{self._root}: pyRAPL cannot read it ({error}): use rapl"
        raise SensorError(why)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep pyRAPL from warning, from logging to the root and from loading pandas for its tables."""
    handlers = list(logging.root.handlers)
    logging.root.handlers[:] = [logging.NullHandler()]
    pandas_was_there = "pandas" in sys.modules
    if not pandas_was_there:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.handlers[:] = handlers
        if not pandas_was_there:
            del sys.modules["pandas"]
