"""Energy counters and power sensors of NVIDIA's graphics processors, by nvidia-ml-py.

Labels are "nvml:0", "nvml:1" … in the driver's order. From the Volta generation on there is an
energy counter, which is exact over any time; before that there are watts.
"""

from __future__ import annotations

import math
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from measurements.power.source import SourceSettings

_MILLI = 1e-3
# From Ampere on the watts are a mean over a second (`nvmlDeviceGetPowerUsage`).
_AMPERE = 7
_AMPERE_WINDOW_S = 1.0


def open_source(where: str | None, settings: SourceSettings) -> NvmlSource:
    """Open all graphics processors, or the one whose index or UUID `where` is.

    Raises
    ------
    SensorError
        Without nvidia-ml-py, without its driver, or without a processor that tells its power.
    """
    try:
        library = import_module("pynvml")
    except ImportError as error:
        raise SensorError(
            f"nvml needs nvidia-ml-py ({error}): pip install 'perf-per-watt[measure]'"
        ) from None
    return NvmlSource(library, where)


class NvmlSource:
    """NVIDIA's graphics processors. One that fails is a reading of NaN."""

    def __init__(self, library: Any, where: str | None) -> None:
        self._library = library
        self._open = False
        self._connect()
        try:
            self._processors = self._found(where)
        except SensorError:
            self.close()
            raise
        except library.NVMLError as error:
            self.close()
            raise SensorError(f"nvml: {error}: see nvidia-smi") from None
        self._channels = tuple(processor.channel for processor in self._processors)

    @property
    def channels(self) -> Sequence[Channel]:
        """One a processor."""
        return self._channels

    @property
    def period_s(self) -> float:
        """Shortest window of the means; 0 where there is a counter or a momentary figure."""
        return min(channel.window_s for channel in self._channels)

    def read(self) -> list[Reading]:
        """Read every processor (J, or W); NaN for one that does not answer.

        Raises
        ------
        SensorError
            When none answers, nor after connecting again.
        """
        readings = self._readings()
        if _silent(readings):
            self._connect()
            for processor in self._processors:
                processor.connect()
            readings = self._readings()
        if _silent(readings):
            why = "; ".join(f"{p.channel.label}: {p.problem}" for p in self._processors)
            raise SensorError(f"nvml: no graphics processor answers ({why}): see nvidia-smi")
        return readings

    def close(self) -> None:
        """Let go of the driver."""
        if self._open:
            self._open = False
            try:
                self._library.nvmlShutdown()
            except self._library.NVMLError:
                return

    def _readings(self) -> list[Reading]:
        readings = []
        for processor in self._processors:
            before = time.monotonic()
            value = processor.read()
            at_s = (before + time.monotonic()) / 2
            readings.append(Reading(processor.channel.label, at_s, value))
        return readings

    def _connect(self) -> None:
        self.close()
        why = _refused(self._library, self._library.nvmlInit)
        if why is not None:
            raise SensorError(f"nvml: {why}: {_remedy(why)}")
        self._open = True

    def _found(self, where: str | None) -> list[_Processor]:
        count = self._library.nvmlDeviceGetCount()
        # One that is not asked for may be lost and must not matter.
        wanted = [
            i for i in range(count) if where is None or not where.isdigit() or i == int(where)
        ]
        found = [_Processor(self._library, index) for index in wanted]
        if where is not None and not where.isdigit():
            found = [processor for processor in found if processor.uuid == where]
        if not found:
            name = "" if where is None else f" {where}"
            raise SensorError(f"nvml: the driver has no graphics processor{name} (of {count})")
        if all(processor.problem for processor in found):
            raise SensorError(f"nvml: {_problems(found)}: leave out nvml")
        return found


class _Processor:
    """One graphics processor and the better of the two figures that it has."""

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self.uuid = _text(library.nvmlDeviceGetUUID(self._handle))
        name = _text(library.nvmlDeviceGetName(self._handle))
        self._figure = library.nvmlDeviceGetTotalEnergyConsumption
        counts = _refused(library, self._figure, self._handle) is None
        if not counts:
            self._figure = library.nvmlDeviceGetPowerUsage
        self.problem = ""
        self.read()
        self.channel = Channel(
            f"nvml:{index}",
            "energy" if counts else "power",
            "gpu",
            resolution=_MILLI,
            window_s=0.0 if counts else self._window_s(),
            note=f"{name}: {self.problem}" if self.problem else name,
        )

    def connect(self) -> None:
        """Find the processor again after the driver was connected anew."""
        try:
            self._handle = self._library.nvmlDeviceGetHandleByUUID(self.uuid)
        except self._library.NVMLError as error:
            self.problem = str(error)

    def read(self) -> float:
        """Return joules or watts; NaN where the processor does not answer."""
        try:
            value = float(self._figure(self._handle) * _MILLI)
        except self._library.NVMLError as error:
            self.problem = str(error)
            return math.nan
        self.problem = ""
        return value

    def _window_s(self) -> float:
        try:
            generation = self._library.nvmlDeviceGetArchitecture(self._handle)
        except self._library.NVMLError:
            return 0.0
        return _AMPERE_WINDOW_S if generation >= _AMPERE else 0.0


def _silent(readings: Sequence[Reading]) -> bool:
    return all(math.isnan(reading.value) for reading in readings)


def _remedy(why: str) -> str:
    if "Library Not Found" in why:
        return "install the driver, whose part libnvidia-ml.so.1 is, or leave out nvml"
    return "load the driver (sudo modprobe nvidia) and see nvidia-smi, or leave out nvml"


def _problems(processors: Sequence[_Processor]) -> str:
    return "; ".join(f"{p.channel.label}, {p.channel.note}" for p in processors)


def _refused(library: Any, function: Any, *arguments: Any) -> str | None:
    """Why the library refuses a call; None where it does not."""
    try:
        function(*arguments)
    except library.NVMLError as error:
        return str(error)
    return None


def _text(name: str | bytes) -> str:
    """Older releases of the library return bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name
