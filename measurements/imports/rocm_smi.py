"""Log of rocm-smi (``--showpower --csv``, again and again): one run, the mean over its samples."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from measurements.imports.importing import mean_run


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make one run: the power of all GPUs, and the mean of their shader frequency."""
    power: dict[str, list[float]] = defaultdict(list)
    clocks = []
    header: list[str] = []
    for cells in csv.reader(io.StringIO(text)):
        if cells[:1] == ["device"]:
            header = cells
            continue
        for name, cell in zip(header, cells, strict=False):
            number = re.search(r"\d+(?:\.\d+)?", cell)
            if number and "Graphics Package Power" in name:
                power[cells[0]].append(float(number[0]))
            elif number and name.startswith("sclk clock speed"):
                clocks.append(float(number[0]))
    yield from mean_run("gpu:rocm-smi", power, clocks)
