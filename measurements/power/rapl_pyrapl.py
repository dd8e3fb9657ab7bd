"""The processor's energy counters through pyRAPL: packages and their DRAM.

Prefer "rapl". This back end serves to compare with results from pyRAPL, and to check one reader
against the other. pyRAPL 0.2.3.1 (2019) reads /sys only, knows "package" and "dram" only, and fails
on packages of several dies. Its own measurements are None when a counter wraps; here its raw
counters are read, so that wraps can be counted. The labels are those of "rapl", so that only one of
the two can be open.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from measurements.power import rapl, source
from measurements.power.source import Channel, Reading, SensorError, SourceSettings, time_call

_SYSFS = Path("/sys")
_KINDS = ("package", "dram")


def open_source(where: str | None, settings: SourceSettings) -> PyRaplSource:
    """Open the counters that pyRAPL finds."""
    if where is not None:
        raise SensorError(f"rapl:pyrapl@{where}: pyRAPL reads this host alone: leave out @{where}")
    if settings.sysfs != _SYSFS:
        raise SensorError(f"rapl:pyrapl reads {_SYSFS} alone, not {settings.sysfs}: use rapl")
    with _quietly():
        library = source.import_library("rapl:pyrapl", "pyRAPL", "pyRAPL", ", or use rapl")
    channels = {zone.channel.label: zone.channel for zone in rapl.find_zones(settings)}
    if not channels:
        raise SensorError(rapl.why_absent(settings))
    return PyRaplSource(library, channels, rapl.powercap(settings))


class PyRaplSource:
    """pyRAPL's sensor, by the labels of "rapl"."""

    period_s = rapl.PERIOD_S

    def __init__(self, library: Any, known: dict[str, Channel], root: Path) -> None:
        self._library = library
        self._root = root
        self._sensor: Any = None
        # Two figures per socket: its package, then its DRAM; -1 if there is none.
        labels = [(f"rapl:{_KINDS[i % 2]}-{i // 2}", i, e) for i, e in enumerate(self._connect())]
        self._positions = {label: i for label, i, e in labels if e >= 0 and label in known}
        self.channels = tuple(known[label] for label in self._positions)

    def read(self) -> list[Reading]:
        """Read every counter (J, not unwrapped), reconnecting once."""
        energies, at_s = time_call(self._energies)
        return [
            Reading(label, at_s, energies[at] / 1e6 if energies[at] >= 0 else math.nan)
            for label, at in self._positions.items()
        ]

    def close(self) -> None:
        """Close the files, which pyRAPL itself leaves open."""
        sensor, self._sensor = self._sensor, None
        if sensor is not None:
            for device in sensor._device_api.values():
                for file in device._sys_files:
                    file.close()

    def _energies(self) -> list[float]:
        # There is no sensor if connecting failed the last time.
        if self._sensor:
            with suppress(OSError, ValueError):
                return list(self._sensor.energy())
        return self._connect()

    def _connect(self) -> list[float]:
        self.close()
        # pyRAPL's open files end with its exceptions, which must not outlive this block.
        with _quietly():
            try:
                self._sensor = self._library.Sensor()
                return list(self._sensor.energy())
            except PermissionError as error:
                why = rapl.not_permitted(Path(str(error.filename)), self._root)
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
