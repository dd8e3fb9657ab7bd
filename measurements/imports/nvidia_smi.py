"""Log of nvidia-smi (``--query-gpu=… --format=csv``): one run, the mean over its samples."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from measurements.imports.importing import mean_run

_GPU = ("index", "uuid", "pci.bus_id", "gpu_uuid", "gpu_bus_id")


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make one run: the power of all GPUs, the mean of their SM frequency, and the time logged."""
    lines = [*csv.DictReader(io.StringIO(text), skipinitialspace=True)]
    power: dict[str, list[float]] = defaultdict(list)
    clocks, times = [], []
    for line in lines:
        cells = {name.partition(" [")[0]: cell for name, cell in line.items()}
        gpu = next((cells[name] for name in _GPU if name in cells), "")
        watt = cells.get("power.draw") or cells.get("power.draw.average") or ""
        if number := re.match(r"[\d.]+", watt):
            power[gpu].append(float(number[0]))
        if number := re.match(
            r"[\d.]+", cells.get("clocks.current.sm") or cells.get("clocks.sm", "")
        ):
            clocks.append(float(number[0]))
        if "timestamp" in cells:
            times.append(datetime.fromisoformat(cells["timestamp"].replace("/", "-")))
    if "" in power and len({*times}) < len(times):
        raise ValueError("several GPUs at one time: add index to --query-gpu")
    for run in mean_run("gpu:nvidia-smi", power, clocks):
        if len({*times}) > 1:
            run["time_s"] = (max(times) - min(times)).total_seconds()
        yield run
