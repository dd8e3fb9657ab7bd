"""Energy counters and power sensors of NVIDIA graphics processors, through nvidia-ml-py.

Labels are "nvml:0", "nvml:1" … in the driver's order. Processors since Volta have an energy
counter, which is exact over any time; older ones have power only.
"""

from __future__ import annotations

import math
from typing import Any

from measurements.errors import on_error
from measurements.power import source
from measurements.power.source import Channel, Reading, SensorError, time_call

_MILLI = 1e-3
# Since Ampere, power is a mean over a second (`nvmlDeviceGetPowerUsage`).
_AMPERE, _AMPERE_WINDOW_S = 7, 1.0


def open_source(where: str | None, settings: source.SourceSettings) -> NvmlSource:
    """Open all graphics processors, or the one with the index or UUID ``where``."""
    return NvmlSource(source.import_library("nvml", "pynvml", "nvidia-ml-py"), where)


class NvmlSource:
    """NVIDIA graphics processors. One that fails reads NaN."""

    def __init__(self, library: Any, where: str | None) -> None:
        self._library = library
        self._is_open = False
        self._connect()
        with on_error(self.close):
            try:
                self._processors = self._find_processors(where)
            except library.NVMLError as error:
                raise SensorError(f"nvml: {error}: see nvidia-smi") from None
        self.channels = tuple(processor.channel for processor in self._processors)
        self.period_s = min(channel.window_s for channel in self.channels)

    def read(self) -> list[Reading]:
        """Read every processor (J or W), reconnecting once; raise if none answers."""
        readings = self._read_all_processors()
        if all(math.isnan(reading.value) for reading in readings):
            self._connect()
            for processor in self._processors:
                processor.reconnect()
            readings = self._read_all_processors()
        if all(math.isnan(reading.value) for reading in readings):
            why = "; ".join(f"{p.channel.label}: {p.problem}" for p in self._processors)
            raise SensorError(f"nvml: no graphics processor answers ({why}): see nvidia-smi")
        return readings

    def close(self) -> None:
        """Release the driver."""
        if self._is_open:
            self._is_open = False
            _why_refused(self._library, self._library.nvmlShutdown)

    def _read_all_processors(self) -> list[Reading]:
        answers = [(p.channel.label, time_call(p.read)) for p in self._processors]
        return [Reading(label, at_s, value) for label, (value, at_s) in answers]

    def _connect(self) -> None:
        self.close()
        why = _why_refused(self._library, self._library.nvmlInit)
        if why is not None:
            remedy = "load the driver (sudo modprobe nvidia) and see nvidia-smi, or leave out nvml"
            if "Library Not Found" in why:
                remedy = "install the driver, whose part libnvidia-ml.so.1 is, or leave out nvml"
            raise SensorError(f"nvml: {why}: {remedy}")
        self._is_open = True

    def _find_processors(self, where: str | None) -> list[_Processor]:
        count = self._library.nvmlDeviceGetCount()
        by_index = where is not None and where.isdigit()
        # A lost processor must not matter unless it is asked for.
        wanted = [i for i in range(count) if not by_index or i == int(where or 0)]
        found = [_Processor(self._library, index) for index in wanted]
        if where is not None and not by_index:
            found = [processor for processor in found if processor.uuid == where]
        if not found:
            name = "" if where is None else f" {where}"
            raise SensorError(f"nvml: the driver has no graphics processor{name} (of {count})")
        if all(processor.problem for processor in found):
            problems = "; ".join(f"{p.channel.label}, {p.channel.note}" for p in found)
            raise SensorError(f"nvml: {problems}: leave out nvml")
        return found


class _Processor:
    """One graphics processor, read by its energy counter, or its power if it has none."""

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self.uuid = _text(library.nvmlDeviceGetUUID(self._handle))
        name = _text(library.nvmlDeviceGetName(self._handle))
        self._figure = library.nvmlDeviceGetTotalEnergyConsumption
        has_counter = _why_refused(library, self._figure, self._handle) is None
        if not has_counter:
            self._figure = library.nvmlDeviceGetPowerUsage
        self.problem = ""
        self.read()
        self.channel = Channel(
            f"nvml:{index}",
            "energy" if has_counter else "power",
            "gpu",
            resolution=_MILLI,
            window_s=0.0 if has_counter else self._averaging_window_s(),
            note=f"{name}: {self.problem}" if self.problem else name,
        )

    def reconnect(self) -> None:
        """Find the processor again in a new session of the driver."""
        try:
            self._handle = self._library.nvmlDeviceGetHandleByUUID(self.uuid)
        except self._library.NVMLError as error:
            self.problem = str(error)

    def read(self) -> float:
        """Read energy (J) or power (W); NaN without an answer."""
        try:
            value = float(self._figure(self._handle) * _MILLI)
        except self._library.NVMLError as error:
            self.problem = str(error)
            return math.nan
        self.problem = ""
        return value

    def _averaging_window_s(self) -> float:
        """Time that the power is a mean of (s); 0 before Ampere or if unknown."""
        try:
            generation = self._library.nvmlDeviceGetArchitecture(self._handle)
        except self._library.NVMLError:
            return 0.0
        return _AMPERE_WINDOW_S if generation >= _AMPERE else 0.0


def _why_refused(library: Any, function: Any, *arguments: Any) -> str | None:
    """Return the error of a call to the library; None if it succeeds."""
    try:
        function(*arguments)
    except library.NVMLError as error:
        return str(error)
    return None


def _text(name: str | bytes) -> str:
    """Decode a name, which older releases of the library return as bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name
