"""Logs of graphics processors, by nvidia-smi or rocm-smi: one run, the mean over the samples."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

_GPU = ("index", "uuid", "pci.bus_id", "gpu_uuid", "gpu_bus_id")
_POWER = ("power.draw", "power.draw.average")
_FREQUENCY = ("clocks.current.sm", "clocks.sm")


def read_nvidia_smi(text: str) -> Iterator[dict[str, Any]]:
    """Make one run: the power of all GPUs, the mean of their SM frequency, and the time logged."""
    power: dict[str, list[float]] = defaultdict(list)
    frequencies, times = [], []
    for line in csv.DictReader(io.StringIO(text), skipinitialspace=True):
        cells = {name.partition(" [")[0]: cell for name, cell in line.items()}
        gpu = next((cells[name] for name in _GPU if name in cells), "")
        if number := _first_number(cells, _POWER):
            power[gpu].append(float(number[0]))
        if number := _first_number(cells, _FREQUENCY):
            frequencies.append(float(number[0]))
        if "timestamp" in cells:
            times.append(datetime.fromisoformat(cells["timestamp"].replace("/", "-")))
    if "" in power and len({*times}) < len(times):
        raise ValueError("several GPUs at one time: add index to --query-gpu")
    for run in _mean_run("gpu:nvidia-smi", power, frequencies):
        if len({*times}) > 1:
            run["time_s"] = (max(times) - min(times)).total_seconds()
        yield run


def _first_number(cells: Mapping[str, str], names: Sequence[str]) -> re.Match[str] | None:
    return re.match(r"[\d.]+", next((cells[name] for name in names if cells.get(name)), ""))


def read_rocm_smi(text: str) -> Iterator[dict[str, Any]]:
    """Make one run: the power of all GPUs, and the mean of their shader frequency."""
    power: dict[str, list[float]] = defaultdict(list)
    frequencies = []
    header: list[str] = []
    for cells in csv.reader(io.StringIO(text)):
        # Each call of rocm-smi writes its header again.
        if cells[:1] == ["device"]:
            header = cells
            continue
        for name, cell in zip(header, cells, strict=False):
            number = re.search(r"\d+(?:\.\d+)?", cell)
            if number and "Graphics Package Power" in name:
                power[cells[0]].append(float(number[0]))
            elif number and name.startswith("sclk clock speed"):
                frequencies.append(float(number[0]))
    yield from _mean_run("gpu:rocm-smi", power, frequencies)


def _mean_run(
    source: str, power_w: Mapping[str, Sequence[float]], frequencies_mhz: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Make a run of samples: the power of all GPUs and their mean frequency; none without power."""
    if power_w:
        run: dict[str, Any] = {"power_w": sum(sum(w) / len(w) for w in power_w.values())}
        run["power_source"] = source
        if frequencies_mhz:
            run["freq_achieved_hz"] = sum(frequencies_mhz) / len(frequencies_mhz) * 1e6
        yield run
