"""NVIDIA's graphics processors.

None is here: a module plays nvidia-ml-py and its driver; the real library finds no driver.
"""

from __future__ import annotations

import math
import sys
import types
from typing import NamedTuple

import pytest

from measurements.power import nvml
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec

NAN = pytest.approx(math.nan, nan_ok=True)


def values(source: nvml.NvmlSource) -> dict[str, float]:
    return {reading.label: reading.value for reading in source.read()}


class Handle(NamedTuple):
    """A processor as long as the driver stays loaded."""

    loaded: int
    index: int


class Driver(types.ModuleType):
    """What nvidia-ml-py offers, of processors that a test describes by their figures."""

    def __init__(self, *processors: dict[str, int]) -> None:
        super().__init__("pynvml")
        self.NVMLError = type("NVMLError", (Exception,), {})
        self.processors = list(processors)
        self.initialised = self.loaded = 0
        self.init_error: str | None = None

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error is not None:
            raise self.NVMLError(self.init_error)
        self.initialised += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        if not self.initialised:
            raise self.NVMLError("Uninitialized")
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.processors)

    def unload(self) -> None:
        """Forget all users and their handles."""
        self.initialised = 0
        self.loaded += 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802
        handle = Handle(self.loaded, index)
        self._figure(handle, "present")
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle:  # noqa: N802
        return self.nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))

    def nvmlDeviceGetName(self, handle: Handle) -> bytes:  # noqa: N802
        return b"Tesla"

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:  # noqa: N802
        return f"GPU-{handle.index}"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int:  # noqa: N802
        return self._figure(handle, "energy_mj")

    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:  # noqa: N802
        return self._figure(handle, "power_mw")

    def nvmlDeviceGetArchitecture(self, handle: Handle) -> int:  # noqa: N802
        return self._figure(handle, "generation")

    def _figure(self, handle: Handle, name: str) -> int:
        if not self.initialised:
            raise self.NVMLError("Uninitialized")
        if handle.loaded != self.loaded:
            raise self.NVMLError("Invalid Argument")
        figures = {"present": 1, **self.processors[handle.index]}
        if "lost" in figures:
            raise self.NVMLError("GPU is lost")
        if name not in figures:
            raise self.NVMLError("Not Supported")
        return figures[name]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    return driver


def graphics(where: str | None = None) -> nvml.NvmlSource:
    return nvml.open_source(where, SourceSettings())


def test_the_real_library_without_a_driver_names_the_remedy() -> None:
    with pytest.raises(SensorError) as error:
        open_source(parse_spec("nvml"), SourceSettings())
    assert str(error.value) == (
        "nvml: NVML Shared Library Not Found: install the driver, whose part libnvidia-ml.so.1 is, "
        "or leave out nvml"
    )


def test_counter_where_there_is_one_else_watts(driver: Driver) -> None:
    driver.processors += [
        {"energy_mj": 5_250_123, "power_mw": 70_000, "generation": 7},
        {"power_mw": 65_432, "generation": 4},
        {"power_mw": 50_000, "generation": 8},
        {"power_mw": 40_000},
    ]
    source = graphics()
    assert [(c.label, c.quantity, c.domain, c.window_s) for c in source.channels] == [
        ("nvml:0", "energy", "gpu", 0.0),
        ("nvml:1", "power", "gpu", 0.0),
        ("nvml:2", "power", "gpu", 1.0),
        ("nvml:3", "power", "gpu", 0.0),
    ]
    assert all(c.resolution == 1e-3 and c.note == "Tesla" for c in source.channels)
    assert source.period_s == 0.0
    assert list(values(source).values()) == pytest.approx([5250.123, 65.432, 50.0, 40.0])
    source.close()


def test_closing_lets_go_once(driver: Driver) -> None:
    driver.processors.append({"energy_mj": 1000})
    driver.nvmlInit()
    source = graphics()
    source.close()
    source.close()
    assert driver.initialised == 1


@pytest.mark.parametrize("where", ["1", "GPU-1"])
def test_one_processor_by_index_or_uuid(driver: Driver, where: str) -> None:
    driver.processors += [{"energy_mj": 1000}, {"energy_mj": 2000}]
    source = graphics(where)
    assert values(source) == {"nvml:1": 2.0}
    source.close()


def test_unknown_processor_is_an_error(driver: Driver) -> None:
    driver.processors.append({"energy_mj": 1000})
    with pytest.raises(SensorError, match=r"the driver has no graphics processor 4 \(of 1\)"):
        graphics("4")
    driver.processors.clear()
    with pytest.raises(SensorError, match=r"the driver has no graphics processor \(of 0\)"):
        graphics()
    assert driver.initialised == 0


def test_lost_processor_is_missing_while_others_go_on(driver: Driver) -> None:
    driver.processors += [{"energy_mj": 1000}, {"energy_mj": 2000}]
    source = graphics()
    driver.processors[0]["lost"] = 1
    assert values(source) == {"nvml:0": NAN, "nvml:1": 2.0}
    driver.processors[1]["lost"] = 1
    with pytest.raises(SensorError, match=r"no graphics processor answers .nvml:0: GPU is lost"):
        source.read()
    for processor in driver.processors:
        del processor["lost"]
    assert values(source) == {"nvml:0": 1.0, "nvml:1": 2.0}
    source.close()
    assert driver.initialised == 0


def test_driver_that_was_loaded_again_is_connected_again(driver: Driver) -> None:
    driver.processors.append({"energy_mj": 1000})
    source = graphics()
    driver.unload()
    assert values(source) == {"nvml:0": 1.0}
    assert driver.initialised == 1
    source.close()


def test_processor_without_a_figure_says_so(driver: Driver) -> None:
    driver.processors.append({})
    with pytest.raises(SensorError, match="nvml: nvml:0, Tesla: Not Supported: leave out nvml"):
        graphics()
    driver.processors.append({"energy_mj": 2000})
    source = graphics()
    assert [c.note for c in source.channels] == ["Tesla: Not Supported", "Tesla"]
    assert values(source) == {"nvml:0": NAN, "nvml:1": 2.0}
    source.close()


def test_driver_that_refuses_names_the_remedy(driver: Driver) -> None:
    driver.init_error = "Driver Not Loaded"
    with pytest.raises(SensorError, match=r"nvml: Driver Not Loaded: .*sudo modprobe nvidia"):
        graphics()
    driver.init_error = None
    driver.processors.append({"lost": 1})
    with pytest.raises(SensorError, match="nvml: GPU is lost: see nvidia-smi"):
        graphics()
    assert driver.initialised == 0


def test_library_that_is_missing_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SensorError, match=r"pip install 'perf-per-watt\[measure\]'"):
        graphics()
